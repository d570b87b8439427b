//! Ranges of a filling that a device writes where they lie.
//!
//! Whoever lends a range has taken it, as for a write; what the device has brought is summed up by the processor when it is there, and only
//! then counts as filled.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::filled::Piece;
use super::write::PAD;
use crate::object::mapping::ObjectMapping;

/// A filling, as what lends ranges of it sees it.
pub(in crate::object) trait Lender: fmt::Debug + Send + Sync {
    /// The mapping that a payload lies in, and where; nothing where it lies in none.
    fn mapping(&self, payload: usize) -> Option<(ObjectMapping, usize)>;
    /// The crc32c of a range, going on from another.
    fn sum(&self, payload: usize, range: Range<u64>, crc: u32) -> u32;
    /// Writes bytes of a range that was taken, and adds them to a crc32c.
    fn put(&self, payload: usize, offset: u64, bytes: &[u8], crc: u32) -> u32;
    /// Gives a range back, as filled.
    fn written(&self, payload: usize, range: Range<u64>, pieces: &[Piece]);
    /// Gives a range back, as it may be.
    fn left(&self, payload: usize, range: Range<u64>, pieces: &[Piece]);
}

/// A range of a memory class that a device writes by itself. Nobody else writes there meanwhile. Dropped without
/// [`filled`](Self::filled) it is not filled, and whoever wrote it has to be done by then.
#[derive(Debug)]
pub struct FillingRange {
    lender: Arc<dyn Lender>,
    payload: usize,
    /// Up to where the next tensor may begin.
    range: Range<u64>,
    /// Behind the last byte that the device brings.
    end: u64,
    pieces: Vec<Piece>,
    mapping: ObjectMapping,
    offset: usize,
    is_over: bool,
}

impl FillingRange {
    /// The range of a payload from `start` to `end`, which was taken up to the end of `range`; nothing where it lies in no mapping: it is
    /// given back then.
    pub(in crate::object) fn new(
        lender: Arc<dyn Lender>,
        payload: usize,
        (range, end): (Range<u64>, u64),
        pieces: Vec<Piece>,
    ) -> Option<Self> {
        let Some((mapping, start)) = lender.mapping(payload) else {
            lender.left(payload, range, &pieces);
            return None;
        };
        let offset = start + range.start as usize;
        Some(FillingRange { lender, payload, range, end, pieces, mapping, offset, is_over: false })
    }

    /// The mapping that it lies in.
    pub fn mapping(&self) -> &ObjectMapping {
        &self.mapping
    }

    /// Where in the mapping it begins.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        (self.end - self.range.start) as usize
    }

    /// Sums up what lies there now; it is filled then. The device is done with it.
    pub fn filled(mut self) {
        let (lender, payload, end) = (&self.lender, self.payload, self.end);
        for piece in &mut self.pieces {
            let mut crc = piece.crc.unwrap_or(0);
            let data = piece.start.min(end)..piece.end.min(end);
            if piece.crc.is_some() && !data.is_empty() {
                crc = lender.sum(payload, data, crc);
            }
            if piece.end > end {
                let pad = &PAD[..(piece.end - piece.start.max(end)) as usize];
                crc = lender.put(payload, piece.start.max(end), pad, crc);
            }
            piece.crc = piece.crc.map(|_| crc);
        }
        self.is_over = true;
        self.lender.written(payload, self.range.clone(), &self.pieces);
    }
}

impl Drop for FillingRange {
    fn drop(&mut self) {
        if !self.is_over {
            self.lender.left(self.payload, self.range.clone(), &self.pieces);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use crate::object::{Dtype, Expected, Layout, OBJECT_CHUNK_BYTES, ObjectOptions, Which};
    use crate::{HostFolder, Options, Store};

    const BYTES: u64 = 2 * OBJECT_CHUNK_BYTES + 1000;

    struct World {
        store: Store,
        _dir: tempfile::TempDir,
    }

    impl World {
        fn new(options: ObjectOptions) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path().join("store"), Options::default().objects(options)).unwrap();
            World { store, _dir: dir }
        }

        fn begin(&self) -> Arc<super::super::Filling> {
            let layout = Layout::builder().tensor("weights", "all", Dtype::U8, &[BYTES]).build().unwrap();
            let objects = self.store.objects().unwrap();
            Arc::new(objects.begin("solver", Expected::Any, &layout).unwrap())
        }

        fn values(&self) -> Vec<u8> {
            let held = self.store.objects().unwrap().get("solver", Which::Latest).unwrap();
            held.verify().unwrap();
            let mut bytes = vec![0; BYTES as usize];
            held.read_class("weights", 0, &mut bytes).unwrap();
            bytes
        }
    }

    fn options() -> ObjectOptions {
        ObjectOptions::default().host_folder(HostFolder::Anonymous)
    }

    /// What a device does: it writes, and says nothing of checksums.
    fn bring(range: &FillingRange, value: u8) {
        let bytes = vec![value; range.bytes()];
        range.lender.put(range.payload, range.range.start, &bytes, 0);
    }

    #[test]
    fn ranges_that_a_device_has_written_in_any_order_have_their_checksums() {
        let world = World::new(options());
        let cut = [0, 1, 700, OBJECT_CHUNK_BYTES + 5, 2 * OBJECT_CHUNK_BYTES, BYTES];
        for order in [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]] {
            let filling = world.begin();
            let lend = |part: usize| {
                filling.lend_class("weights", cut[part], cut[part + 1] - cut[part]).unwrap().unwrap()
            };
            let lent: Vec<FillingRange> = order.iter().map(|&part| lend(part)).collect();
            for (range, part) in lent.into_iter().zip(order) {
                bring(&range, part as u8);
                range.filled();
            }
            filling.commit().unwrap();
            let expected = (0..5).flat_map(|part| vec![part as u8; (cut[part + 1] - cut[part]) as usize]);
            assert!(world.values() == expected.collect::<Vec<u8>>(), "{order:?}");
        }
    }

    #[test]
    fn a_range_that_was_given_back_is_not_filled_and_may_be_written() {
        let world = World::new(options());
        let filling = world.begin();
        let lent = filling.lend_class("weights", 0, 4096).unwrap().unwrap();
        assert_eq!((lent.bytes(), lent.mapping().is_writable()), (4096, true));
        let busy = filling.write_class("weights", 4000, &[1; 200]).unwrap_err();
        assert!(busy.to_string().contains("weights"), "{busy}");
        bring(&lent, 9);
        drop(lent);
        filling.write_class("weights", 4096, &vec![2; BYTES as usize - 4096]).unwrap();
        let hole = filling.commit().unwrap_err();
        assert!(hole.to_string().contains("all"), "{hole}");
        filling.write_class("weights", 0, &[1; 4096]).unwrap();
        filling.commit().unwrap();
        assert_eq!(world.values()[4090..4100], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
        assert!(
            filling.lend_class("weights", BYTES, 1).is_err() && filling.lend_class("wheights", 0, 1).is_err()
        );
    }
}
