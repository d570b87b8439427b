//! Ranges of a filling that a device writes where they lie.
//!
//! Whoever lends a range has taken it, as for a write; what the device has brought is summed up when it is there, by the processor or by the
//! device before it left, and only then counts as filled.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::filled::Piece;
use super::write::PAD;
use crate::checksum::crc32c_combine;
use crate::object::OBJECT_CHUNK_BYTES;
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
    pub fn filled(self) {
        self.filled_as(&[]);
    }

    /// As [`filled`](Self::filled), with the crc32c of what the device has brought, as the device has it: of each chunk of
    /// [`OBJECT_CHUNK_BYTES`] that it has brought a part of, in order, of that part alone. What is none of `sums` is summed up here.
    pub fn filled_as(mut self, sums: &[u32]) {
        let (lender, payload, end) = (&self.lender, self.payload, self.end);
        for (at, piece) in self.pieces.iter_mut().enumerate() {
            let mut crc = piece.crc.unwrap_or(0);
            let data = piece.start.min(end)..piece.end.min(end);
            if piece.crc.is_some() && !data.is_empty() {
                crc = match sums.get(at) {
                    Some(sum) if data.start.is_multiple_of(OBJECT_CHUNK_BYTES) => *sum, // joining takes as long as a copy of 2 MiB
                    Some(sum) => crc32c_combine(crc, *sum, data.end - data.start),
                    None => lender.sum(payload, data, crc),
                };
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
    use crate::checksum::crc32c;
    use crate::object::manifest::chunks_of;
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

    /// What a device says that it has brought: a checksum for each chunk that the range touches.
    fn sums(range: &FillingRange, value: u8) -> Vec<u32> {
        let (start, end) = (range.range.start, range.range.start + range.bytes() as u64);
        let parts = chunks_of(0, start..end, BYTES)
            .map(|chunk| chunk.range.end.min(end) - chunk.range.start.max(start));
        parts.map(|bytes| crc32c(&vec![value; bytes as usize])).collect()
    }

    #[test]
    fn ranges_that_a_device_has_written_in_any_order_have_their_checksums() {
        let world = World::new(options());
        let cut = [0, 1, 700, OBJECT_CHUNK_BYTES + 5, 2 * OBJECT_CHUNK_BYTES, BYTES];
        let orders = [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]];
        for (order, says) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
            let filling = world.begin();
            let lend = |part: usize| {
                filling.lend_class("weights", cut[part], cut[part + 1] - cut[part]).unwrap().unwrap()
            };
            let lent: Vec<FillingRange> = order.iter().map(|&part| lend(part)).collect();
            for (range, part) in lent.into_iter().zip(order) {
                bring(&range, part as u8);
                match says {
                    true => {
                        let sums = sums(&range, part as u8);
                        range.filled_as(&sums);
                    }
                    false => range.filled(),
                }
            }
            filling.commit().unwrap();
            let expected = (0..5).flat_map(|part| vec![part as u8; (cut[part + 1] - cut[part]) as usize]);
            assert!(world.values() == expected.collect::<Vec<u8>>(), "{order:?}, {says}");
        }
    }

    #[test]
    fn what_a_device_says_and_did_not_bring_is_found_by_whoever_reads_it() {
        let world = World::new(options());
        let filling = world.begin();
        let lent = filling.lend_class("weights", 0, BYTES).unwrap().unwrap();
        bring(&lent, 1);
        let sums = sums(&lent, 2);
        lent.filled_as(&sums);
        filling.commit().unwrap();
        let held = world.store.objects().unwrap().get("solver", Which::Latest).unwrap();
        assert!(held.verify().unwrap_err().to_string().contains("chunk 0"));
        let manifest = held.manifest();
        let (chunk, end) = (OBJECT_CHUNK_BYTES, manifest.layout.payloads()[0].bytes);
        // The payload is filled up behind its tensor.
        let (last, rest) = (sums[2], vec![0; (end - BYTES) as usize]);
        let damage = |range, sums: &[u32]| manifest.damage_by_sums("weights", range, sums, &rest).unwrap();
        assert_eq!(damage((0, end), &sums), None);
        assert_eq!(damage((2 * chunk, end - 2 * chunk), &[last]), None);
        assert!(damage((chunk, end - chunk), &[sums[1], !last]).unwrap().contains("chunk 2"));
        assert!(damage((chunk, end - chunk), &[!sums[1], last]).unwrap().contains("chunk 1"));
        let all = (0, end);
        for (range, count) in [(all, 2), (all, 4), ((1, chunk), 1), ((0, chunk + 1), 2), ((chunk, end), 3)] {
            let wrong = manifest.damage_by_sums("weights", range, &vec![0; count], &[]);
            assert!(wrong.is_err(), "{range:?}, {count} sums");
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
