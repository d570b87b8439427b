//! Checksums of a file, a block at a time: so that a part of a file can be checked without reading the rest.

use std::ops::Range;

/// The size of a block in what is written, in bytes.
pub(super) const BLOCK_BYTES: u32 = 256 << 10;

/// Takes the bytes of a file as they come, and gives a crc32c for each block.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    done: Vec<u32>,
    open: u32,
    bytes: u64,
}

impl Blocks {
    /// The next bytes of the file.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = u64::from(BLOCK_BYTES) - self.bytes % u64::from(BLOCK_BYTES);
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            self.open = forebay_store::checksum::crc32c_append(self.open, now);
            self.bytes += now.len() as u64;
            if self.bytes.is_multiple_of(u64::from(BLOCK_BYTES)) {
                self.done.push(std::mem::take(&mut self.open));
            }
            bytes = later;
        }
    }

    /// How many bytes there were.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The checksums, the last one of the bytes that are left.
    pub(super) fn finish(mut self) -> Vec<u32> {
        if !self.bytes.is_multiple_of(u64::from(BLOCK_BYTES)) {
            self.done.push(self.open);
        }
        self.done
    }
}

/// The blocks of a file of `file_bytes` that a range lies in, as a range of bytes.
pub(super) fn around(range: &Range<u64>, block_bytes: u64, file_bytes: u64) -> Range<u64> {
    let start = range.start / block_bytes * block_bytes;
    let end = range.end.div_ceil(block_bytes).saturating_mul(block_bytes).min(file_bytes);
    start..end.max(start)
}

/// The offset of the first block in `bytes` that is not as it was written. They begin at `start`, which is where a block
/// does.
pub(super) fn first_damage(bytes: &[u8], start: u64, block_bytes: u64, written: &[u32]) -> Option<u64> {
    let first = start / block_bytes;
    let blocks = bytes.chunks(block_bytes as usize).zip(first..);
    let damaged = |(block, number): &(&[u8], u64)| {
        written.get(*number as usize).is_none_or(|crc| forebay_store::checksum::crc32c(block) != *crc)
    };
    blocks.into_iter().find(damaged).map(|(_, number)| number * block_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_found_in_its_block() {
        let block = u64::from(BLOCK_BYTES);
        let mut file: Vec<u8> = (0..2 * block + 100).map(|at| (at % 251) as u8).collect();
        let mut blocks = Blocks::default();
        file.chunks(10_007).for_each(|part| blocks.update(part));
        assert_eq!(blocks.bytes(), file.len() as u64);
        let written = blocks.finish();
        assert_eq!(written.len(), 3);
        assert_eq!(first_damage(&file, 0, block, &written), None);
        file[block as usize + 5] ^= 1;
        assert_eq!(first_damage(&file, 0, block, &written), Some(block));
        assert_eq!(first_damage(&file[2 * block as usize..], 2 * block, block, &written), None);
        assert_eq!(first_damage(&[0], 3 * block, block, &written), Some(3 * block), "there is no such block");
    }

    #[test]
    fn a_range_is_read_with_the_blocks_around_it() {
        assert_eq!(around(&(5..6), 10, 95), 0..10);
        assert_eq!(around(&(9..21), 10, 95), 0..30);
        assert_eq!(around(&(90..95), 10, 95), 90..95);
        assert_eq!(around(&(200..201), 10, 95), 200..200);
    }
}
