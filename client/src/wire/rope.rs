//! Bytes as they came, in several parts, read as if they were one: a value that lies in one of them is not copied.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Parts that are shorter together become one: each that is kept takes more than its bytes.
const PART_BYTES: usize = 4 << 10;

/// Bytes in parts.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// None of them empty.
    parts: VecDeque<Bytes>,
    length: usize,
}

impl Rope {
    /// Adds what came next. Short parts are copied together.
    pub fn push(&mut self, part: Bytes) {
        self.length += part.len();
        match self.parts.back_mut() {
            _ if part.is_empty() => {}
            Some(last) if last.len() + part.len() <= PART_BYTES => {
                *last = joined(std::mem::take(last), &part);
            }
            _ => self.parts.push_back(part),
        }
    }

    /// Takes the first `length` bytes out of it, or all.
    pub fn split_to(&mut self, length: usize) -> Rope {
        let mut taken = Rope::default();
        while let Some(left) = length.checked_sub(taken.length).filter(|left| *left > 0)
            && let Some(mut part) = self.parts.pop_front()
        {
            self.length -= part.len();
            if part.len() > left {
                let rest = part.split_off(left);
                self.length += rest.len();
                self.parts.push_front(rest);
            }
            taken.push(part);
        }
        taken
    }
}

/// Two short parts as one, which has room for more.
fn joined(first: Bytes, second: &[u8]) -> Bytes {
    let mut whole = first.try_into_mut().unwrap_or_else(|first| {
        let mut whole = BytesMut::with_capacity(PART_BYTES);
        whole.put(first);
        whole
    });
    whole.put(second);
    whole.freeze()
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.length
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| part)
    }

    fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.length, "{bytes} bytes of {}", self.length);
        drop(self.split_to(bytes));
    }

    /// Copies only what lies in several parts.
    fn copy_to_bytes(&mut self, bytes: usize) -> Bytes {
        assert!(bytes <= self.length, "{bytes} bytes of {}", self.length);
        let mut taken = self.split_to(bytes);
        match taken.parts.len() {
            0 | 1 => taken.parts.pop_front().unwrap_or_default(),
            _ => {
                let mut whole = BytesMut::with_capacity(bytes);
                taken.parts.into_iter().for_each(|part| whole.put(part));
                whole.freeze()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(parts: &[&'static [u8]]) -> Rope {
        let mut rope = Rope::default();
        parts.iter().for_each(|part| rope.push(Bytes::from_static(part)));
        rope
    }

    #[test]
    fn a_rope_reads_as_its_parts_would_in_one_piece_wherever_it_is_cut() {
        let whole = b"one, two and three";
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let parts = [&whole[..first], &whole[first..second], &whole[second..]];
                for taken in 0..=whole.len() {
                    let mut rope = rope(&parts);
                    assert_eq!(
                        (rope.copy_to_bytes(taken), rope.remaining()),
                        (whole[..taken].into(), whole.len() - taken)
                    );
                    assert_eq!(rope.copy_to_bytes(rope.remaining()), whole[taken..]);
                    assert!(!rope.has_remaining() && rope.chunk().is_empty());
                }
            }
        }
    }

    #[test]
    fn what_lies_in_one_long_part_stays_where_it_is() {
        let part = Bytes::from(vec![7; PART_BYTES]);
        let mut rope = Rope::default();
        rope.push(Bytes::from_static(b"head"));
        rope.push(part.clone());
        rope.advance(5);
        assert_eq!(rope.copy_to_bytes(3).as_ptr(), part[1..].as_ptr());
        assert_eq!(rope.split_to(9).copy_to_bytes(4), part[..4]);
    }

    #[test]
    fn a_byte_at_a_time_takes_few_parts() {
        let mut rope = Rope::default();
        let all: Vec<u8> = (0..3 * PART_BYTES).map(|at| at as u8).collect();
        all.iter().for_each(|byte| rope.push(Bytes::copy_from_slice(&[*byte])));
        assert_eq!((rope.parts.len(), rope.remaining()), (3, all.len()));
        assert_eq!(rope.copy_to_bytes(all.len()), all);
    }
}
