//! What goes over a link: `FBRX`, a kind, a length, that many bytes. Integers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | `FBRX` |
//! | 1 | kind: 1 a rank's cache, 2 the joined cache, 3 the exchange failed |
//! | 8 | length of what follows |
//! | length | a [`crate::CachePayload`] as safetensors; or the failed rank (8 bytes) and the reason as text |

use std::io::{Error, ErrorKind, Read, Result, Write};

const MAGIC: [u8; 4] = *b"FBRX";

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// What a rank has accumulated.
    Cache(Vec<u8>),
    /// What all ranks have accumulated.
    Joined(Vec<u8>),
    /// The exchange failed and changed nothing.
    Failed { rank: u64, reason: String },
}

impl Frame {
    pub(super) fn write(&self, link: &mut impl Write) -> Result<()> {
        let failed;
        let (kind, body) = match self {
            Self::Cache(bytes) => (1, bytes.as_slice()),
            Self::Joined(bytes) => (2, bytes.as_slice()),
            Self::Failed { rank, reason } => {
                failed = [&rank.to_le_bytes(), reason.as_bytes()].concat();
                (3, failed.as_slice())
            }
        };
        let mut head = [0; 13];
        head[..4].copy_from_slice(&MAGIC);
        head[4] = kind;
        head[5..].copy_from_slice(&(body.len() as u64).to_le_bytes());
        link.write_all(&head)?;
        link.write_all(body)?;
        link.flush()
    }

    pub(super) fn read(link: &mut impl Read) -> Result<Self> {
        let invalid = |reason: &str| Error::new(ErrorKind::InvalidData, reason);
        let mut head = [0; 13];
        link.read_exact(&mut head)?;
        let ([magic @ .., kind], length) = head.split_at(5) else { return Err(invalid("no frame")) };
        if magic != MAGIC {
            return Err(invalid("not a frame of an exchange"));
        }
        let length = u64::from_le_bytes(length.try_into().map_err(|_| invalid("no length"))?);
        // Memory grows with the bytes that come, not with the length that is claimed.
        let mut body = Vec::new();
        if link.take(length).read_to_end(&mut body)? as u64 != length {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the link ended inside a frame"));
        }
        match *kind {
            1 => Ok(Self::Cache(body)),
            2 => Ok(Self::Joined(body)),
            3 => {
                let (rank, reason) =
                    body.split_first_chunk().ok_or_else(|| invalid("a failure without a rank"))?;
                let reason = String::from_utf8_lossy(reason).into_owned();
                Ok(Self::Failed { rank: u64::from_le_bytes(*rank), reason })
            }
            _ => Err(invalid("a frame of an unknown kind")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_anything_else_is_an_error() {
        let frames = [
            Frame::Cache(vec![1, 2, 3]),
            Frame::Joined(Vec::new()),
            Frame::Failed { rank: 2, reason: "gone".into() },
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes).unwrap());
        let mut link = bytes.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut link).unwrap(), *frame);
        }
        let mut one = Vec::new();
        frames[0].write(&mut one).unwrap();
        for length in 0..one.len() {
            assert!(Frame::read(&mut &one[..length]).is_err(), "cut to {length}");
        }
        for (at, value) in [(0, b'X'), (4, 9)] {
            let mut changed = one.clone();
            changed[at] = value;
            assert_eq!(Frame::read(&mut changed.as_slice()).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        let mut huge = one.clone();
        huge[5..13].fill(0xFF);
        assert_eq!(Frame::read(&mut huge.as_slice()).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
