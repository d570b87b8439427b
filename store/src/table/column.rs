//! One data column of a chunk.

use std::ops::Range;

use arrow_buffer::MutableBuffer;

use crate::log::record::StoredValue;
use crate::page::{Content, Rows};

/// Up to 4,096 cells of one column: numbers by value, everything else as 16-byte views.
#[derive(Clone, Default)]
pub(crate) struct ColumnPage {
    pub(crate) bytes: Rows<u8>,
    /// When each cell turned final after its row was created, in [`Elapsed`] steps; 0 for cells behind the end, so that
    /// a column whose cells come with their rows has none.
    pub(crate) final_after: Rows<u16>,
    /// A bit a cell: the final cell is null. Empty while none is.
    pub(crate) nulls: Rows<u64>,
}

const VIEW_BYTES: usize = 16;

impl ColumnPage {
    /// Sets a cell of a column whose cells take `width` bytes. A value of another form than the column's cannot come
    /// out of validation or a checked log; it is reported, not stored.
    pub(crate) fn set(
        &mut self,
        at: usize,
        width: usize,
        value: StoredValue,
        after_ms: u64,
    ) -> Result<(), String> {
        let bytes = self.bytes.to_mut();
        if bytes.len() < (at + 1) * width {
            bytes.resize((at + 1) * width, 0);
        }
        let cell = &mut bytes[at * width..(at + 1) * width];
        match value {
            StoredValue::Null => self.set_null(at),
            StoredValue::Inline(bits) if width <= 8 => cell.copy_from_slice(&bits.to_le_bytes()[..width]),
            StoredValue::View(view) if width == VIEW_BYTES => cell.copy_from_slice(&view),
            other => return Err(format!("a cell of another form than its column: {other:?}")),
        }
        self.set_final_after(at, Elapsed::from_ms(after_ms));
        Ok(())
    }

    fn set_final_after(&mut self, at: usize, elapsed: Elapsed) {
        if elapsed.0 == 0 && self.final_after.len() <= at {
            return;
        }
        let times = self.final_after.to_mut();
        if times.len() <= at {
            times.resize(at + 1, 0);
        }
        times[at] = elapsed.0;
    }

    fn set_null(&mut self, at: usize) {
        let nulls = self.nulls.to_mut();
        if nulls.len() <= at / 64 {
            nulls.resize(at / 64 + 1, 0);
        }
        nulls[at / 64] |= 1 << (at % 64);
    }

    pub(super) fn is_null(&self, at: usize) -> bool {
        self.nulls.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// The value of a cell that is final.
    pub(crate) fn get(&self, at: usize, width: usize) -> StoredValue {
        let Some(cell) = self.bytes.get(at * width..(at + 1) * width).filter(|_| !self.is_null(at)) else {
            return StoredValue::Null;
        };
        if width == VIEW_BYTES {
            return StoredValue::View(std::array::from_fn(|i| cell[i]));
        }
        let mut bits = [0; 8];
        bits[..width].copy_from_slice(cell);
        StoredValue::Inline(u64::from_le_bytes(bits))
    }

    /// The cells of a column of views, final or not.
    pub(super) fn views(&self) -> &[[u8; VIEW_BYTES]] {
        self.bytes.as_chunks().0
    }

    /// Whether a cell that is final has a value.
    pub(crate) fn has(&self, at: usize, width: usize) -> bool {
        (at + 1) * width <= self.bytes.len() && !self.is_null(at)
    }

    /// How many of some neighbours, from the first on, have a value where they are final; those behind have none. `None`
    /// where that takes a look at each.
    pub(crate) fn has_until(&self, places: &Range<usize>, width: usize) -> Option<usize> {
        let cells = self.bytes.len() / width;
        self.nulls.is_empty().then(|| cells.clamp(places.start, places.end) - places.start)
    }

    /// Appends the bytes of cells, zeros where there is none. Neighbours, where the caller knows them for that, go in one
    /// copy.
    pub(crate) fn gather(
        &self,
        width: usize,
        neighbours: Option<Range<usize>>,
        places: impl Iterator<Item = usize>,
        into: &mut MutableBuffer,
    ) {
        let bytes: &[u8] = &self.bytes;
        if let Some(Range { start, end }) = neighbours {
            let there = bytes.get(start * width..bytes.len().min(end * width)).unwrap_or_default();
            into.extend_from_slice(there);
            return into.extend_zeros((end - start) * width - there.len());
        }
        for at in places {
            match bytes.get(at * width..(at + 1) * width) {
                Some(cell) => into.extend_from_slice(cell),
                None => into.extend_zeros(width),
            }
        }
    }

    pub(crate) fn final_after_ms(&self, at: usize) -> u64 {
        self.final_after.get(at).map_or(0, |elapsed| Elapsed(*elapsed).to_ms())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.heap_bytes() + self.final_after.heap_bytes() + self.nulls.heap_bytes()
    }
}

impl Content for ColumnPage {
    fn parts(&self) -> Vec<&[u8]> {
        vec![&self.bytes, bytemuck::cast_slice(&self.final_after), bytemuck::cast_slice(&self.nulls)]
    }
}

impl std::fmt::Debug for ColumnPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (&self.bytes, &self.final_after, &self.nulls).fmt(f)
    }
}

/// A span of time in 16 bits: exact below 4.096 s, then to one part in 4,096, up to 50 days.
///
/// Eleven bits of mantissa below five of exponent, as in a floating-point number without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Elapsed(u16);

impl Elapsed {
    const MANTISSA_BITS: u32 = 11;
    const EXPONENT_MAX: u32 = 31;

    fn from_ms(ms: u64) -> Self {
        let hidden = 1_u64 << Self::MANTISSA_BITS;
        if ms < hidden {
            return Elapsed(ms as u16);
        }
        let shift = ms.ilog2() - Self::MANTISSA_BITS;
        if shift + 1 > Self::EXPONENT_MAX {
            return Elapsed(u16::MAX);
        }
        Elapsed(((shift + 1) as u16) << Self::MANTISSA_BITS | ((ms >> shift) - hidden) as u16)
    }

    fn to_ms(self) -> u64 {
        let hidden = 1_u64 << Self::MANTISSA_BITS;
        let mantissa = u64::from(self.0) & (hidden - 1);
        match u32::from(self.0) >> Self::MANTISSA_BITS {
            0 => mantissa,
            exponent => (mantissa + hidden) << (exponent - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_exact_for_seconds_and_close_beyond() {
        for ms in (0..4096).chain([10_000, 3_600_000, 86_400_000, u64::from(u32::MAX)]) {
            let back = Elapsed::from_ms(ms).to_ms();
            assert!(back <= ms && (ms - back) * 2048 <= ms, "{ms} came back as {back}");
            assert!(ms >= 4096 || back == ms, "{ms} came back as {back}");
        }
        assert!(Elapsed::from_ms(u64::MAX).to_ms() > 86_400_000 * 49);
    }

    #[test]
    fn neighbours_are_gathered_as_cells_one_by_one_are() {
        let mut page = ColumnPage::default();
        for at in 0..5 {
            page.set(at, 4, StoredValue::Inline(at as u64 + 1), 0).unwrap();
        }
        for places in [0..0, 0..3, 0..5, 2..9, 5..7, 8..9] {
            let (mut run, mut each) = (MutableBuffer::new(0), MutableBuffer::new(0));
            page.gather(4, Some(places.clone()), places.clone(), &mut run);
            page.gather(4, None, places.clone(), &mut each);
            assert_eq!((run.as_slice(), run.len()), (each.as_slice(), places.len() * 4), "{places:?}");
            let having = places.clone().filter(|at| page.has(*at, 4)).count();
            assert_eq!(page.has_until(&places, 4), Some(having), "{places:?}");
        }
        page.set(1, 4, StoredValue::Null, 0).unwrap();
        assert_eq!(page.has_until(&(0..3), 4), None, "a null may be anywhere");
    }

    #[test]
    fn cells_of_every_form_come_back_and_others_are_refused() {
        let mut numbers = ColumnPage::default();
        numbers.set(70, 4, StoredValue::Inline(7), 12).unwrap();
        numbers.set(71, 4, StoredValue::Null, 5000).unwrap();
        assert_eq!((numbers.get(70, 4), numbers.get(71, 4)), (StoredValue::Inline(7), StoredValue::Null));
        assert_eq!((numbers.final_after_ms(70), numbers.final_after_ms(71)), (12, 5000));
        assert!(numbers.set(0, 4, StoredValue::View([0; 16]), 0).is_err());
        let mut views = ColumnPage::default();
        views.set(3, 16, StoredValue::View([9; 16]), 0).unwrap();
        assert_eq!(views.get(3, 16), StoredValue::View([9; 16]));
        assert!(views.set(0, 16, StoredValue::Inline(1), 0).is_err());
    }
}
