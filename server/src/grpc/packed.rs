//! How much a packed message may come to, without unpacking it: a few kilobytes may stand for the largest message that is taken.
//!
//! What is read is the form of zstd (RFC 8878): frames of blocks, each of which says what it takes and, but for those that are
//! compressed, what it comes to. A compressed one comes to 128 KiB at most.

const FRAME: u32 = 0xFD2F_B528;
/// The last four bits are anything.
const SKIPPED: u32 = 0x184D_2A50;
/// What a compressed block comes to at most.
const BLOCK_BYTES_MAX: u64 = 128 << 10;

/// Something packed, and how far it was looked at.
struct Packed<'a>(&'a [u8]);

impl Packed<'_> {
    /// The next bytes, so many, as a number.
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (these, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(these.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn pass_over(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// Passes over the head of a frame, and tells whether a checksum ends it.
    fn head(&mut self) -> Option<bool> {
        let said = self.number(1)?;
        let has_window = said & 0x20 == 0;
        let name_bytes = [0, 1, 2, 4][(said & 3) as usize];
        let content_bytes = [u64::from(!has_window), 2, 4, 8][(said >> 6) as usize];
        self.pass_over(u64::from(has_window) + name_bytes + content_bytes)?;
        Some(said & 4 != 0)
    }

    /// What a block comes to, and whether it is the last.
    fn block(&mut self) -> Option<(u64, bool)> {
        let said = self.number(3)?;
        let (kind, bytes) = (said >> 1 & 3, said >> 3);
        let (takes, comes_to) = match kind {
            0 => (bytes, bytes),
            1 => (1, bytes), // one byte, so often
            2 => (bytes, BLOCK_BYTES_MAX),
            _ => return None,
        };
        self.pass_over(takes)?;
        Some((comes_to, said & 1 == 1))
    }

    fn frame(&mut self) -> Option<u64> {
        let name = u32::try_from(self.number(4)?).ok()?;
        if name & !0xF == SKIPPED {
            let bytes = self.number(4)?;
            return self.pass_over(bytes).map(|()| 0);
        }
        if name != FRAME {
            return None;
        }
        let is_summed = self.head()?;
        let mut all = 0_u64;
        loop {
            let (bytes, is_last) = self.block()?;
            all = all.saturating_add(bytes);
            if is_last {
                self.pass_over(if is_summed { 4 } else { 0 })?;
                return Some(all);
            }
        }
    }
}

/// The most bytes that a packed message may come to; none where it is no such message.
pub(super) fn unpacked_bytes_max(packed: &[u8]) -> Option<u64> {
    let (mut packed, mut all) = (Packed(packed), 0_u64);
    while !packed.0.is_empty() {
        all = all.saturating_add(packed.frame()?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with these blocks: kind, what its head says, and what follows.
    fn frame(said: u8, head: &[u8], blocks: &[(u32, u32, &[u8])], end: &[u8]) -> Vec<u8> {
        let mut bytes = [&FRAME.to_le_bytes()[..], &[said], head].concat();
        for (at, (kind, length, content)) in blocks.iter().enumerate() {
            let is_last = u32::from(at + 1 == blocks.len());
            bytes.extend(&(is_last | kind << 1 | length << 3).to_le_bytes()[..3]);
            bytes.extend(*content);
        }
        [&bytes, end].concat()
    }

    #[test]
    fn what_a_packed_message_may_come_to_is_found_without_unpacking_it() {
        let many = vec![(1, 128 << 10, &b"x"[..]); 512];
        let cases: [(Vec<u8>, u64); 7] = [
            (vec![], 0),
            (frame(0, &[0], &[(0, 3, b"abc")], &[]), 3),
            (frame(0x20, &[3], &[(0, 3, b"abc")], &[]), 3),
            (frame(0x04, &[0], &[(2, 4, b"????"), (0, 1, b"a")], &[1, 2, 3, 4]), (128 << 10) + 1),
            (frame(0xC3, &[0; 13], &[(1, 9, b"x")], &[]), 9),
            (frame(0, &[0], &many, &[]), 64 << 20),
            (
                [
                    &0x184D_2A57_u32.to_le_bytes()[..],
                    &2_u32.to_le_bytes(),
                    b"??",
                    &frame(0, &[0], &[(1, 5, b"x")], &[]),
                ]
                .concat(),
                5,
            ),
        ];
        for (packed, most) in cases {
            assert_eq!(unpacked_bytes_max(&packed), Some(most), "{packed:?}");
        }
    }

    /// 300,000 times `x`, as the library of zstd packs it.
    #[test]
    fn what_the_library_has_packed_is_read() {
        let packed = b"\x28\xb5\x2f\xfd\x00\x58\x54\x00\x00\x10\x78\x78\x01\x00\xfb\xff\x39\xc0\x02\x02\x00\x10\x78\x03\x9f\x04\x78";
        assert_eq!(unpacked_bytes_max(packed), Some(300_000));
    }

    #[test]
    fn what_is_no_packed_message_is_none_wherever_it_ends() {
        let whole = frame(0x44, &[0; 3], &[(0, 3, b"abc"), (2, 2, b"??")], &[1, 2, 3, 4]);
        assert!(unpacked_bytes_max(&whole).is_some());
        for length in 1..whole.len() {
            assert_eq!(unpacked_bytes_max(&whole[..length]), None, "{length} bytes of it");
        }
        assert_eq!(unpacked_bytes_max(b"no such thing"), None);
        assert_eq!(unpacked_bytes_max(&frame(0, &[0], &[(3, 1, b"?")], &[])), None);
        assert_eq!(unpacked_bytes_max(&[&whole[..], b"x"].concat()), None);
    }
}
