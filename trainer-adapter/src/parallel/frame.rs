//! What goes over a link between ranks: frames ([`crate::frame`]) of `FBRX`.
//!
//! | kind | body |
//! | --- | --- |
//! | 1 | a rank's cache, a [`crate::CachePayload`] as safetensors |
//! | 2 | the joined cache, likewise |
//! | 3 | the exchange failed, or a rank could not take part: the rank (8 bytes) and the reason as text |

use std::io::{Read, Result, Write};

use crate::frame::{invalid, read_frame, write_frame};

const PROTOCOL: [u8; 4] = *b"FBRX";

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
        match self {
            Self::Cache(bytes) => write_frame(link, PROTOCOL, 1, &[bytes]),
            Self::Joined(bytes) => write_frame(link, PROTOCOL, 2, &[bytes]),
            Self::Failed { rank, reason } => {
                write_frame(link, PROTOCOL, 3, &[&rank.to_le_bytes(), reason.as_bytes()])
            }
        }
    }

    /// A cache may have any length: it is as large as the peer's model and its plan make it.
    pub(super) fn read(link: &mut impl Read) -> Result<Self> {
        let (kind, body) = read_frame(link, PROTOCOL, u64::MAX)?;
        match kind {
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
    use std::io::ErrorKind;

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
