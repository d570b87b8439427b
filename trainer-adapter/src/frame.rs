//! A frame: four bytes that name the protocol, a kind, a length, that many bytes. Integers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | the protocol: `FBRX` between ranks ([`crate::parallel`]), `FBPG` to a rank ([`crate::process_group`]) |
//! | 1 | kind, as the protocol numbers them |
//! | 8 | length of what follows |
//!
//! What is no frame of the protocol is `InvalidData`, and so is one that is longer than its reader takes; a link that ends
//! inside a frame is `UnexpectedEof`.

use std::io::{Error, ErrorKind, Read, Result, Write};

const HEAD_BYTES: usize = 13;

/// Writes one frame, its body in parts, and flushes the link.
pub(crate) fn write_frame(link: &mut impl Write, protocol: [u8; 4], kind: u8, parts: &[&[u8]]) -> Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&protocol);
    head[4] = kind;
    head[5..].copy_from_slice(&(length as u64).to_le_bytes());
    link.write_all(&head)?;
    for part in parts {
        link.write_all(part)?;
    }
    link.flush()
}

/// Reads one frame of at most `body_bytes_max`: its kind and its body.
pub(crate) fn read_frame(
    link: &mut impl Read,
    protocol: [u8; 4],
    body_bytes_max: u64,
) -> Result<(u8, Vec<u8>)> {
    let mut head = [0; HEAD_BYTES];
    link.read_exact(&mut head)?;
    let ([name @ .., kind], length) = head.split_at(5) else { return Err(invalid("no frame")) };
    if name != protocol {
        return Err(invalid(&format!("not a frame of {}", String::from_utf8_lossy(&protocol))));
    }
    let length = u64::from_le_bytes(length.try_into().map_err(|_| invalid("no length"))?);
    if length > body_bytes_max {
        return Err(invalid(&format!("a frame of {length} bytes, at most {body_bytes_max} are taken")));
    }
    // Memory grows with the bytes that come, not with the length that is claimed.
    let mut body = Vec::new();
    if link.take(length).read_to_end(&mut body)? as u64 != length {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the link ended inside a frame"));
    }
    Ok((*kind, body))
}

/// What is no frame.
pub(crate) fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_and_anything_else_is_an_error() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, *b"TEST", 7, &[b"ab", b"", b"c"]).unwrap();
        assert_eq!(read_frame(&mut bytes.as_slice(), *b"TEST", 3).unwrap(), (7, b"abc".to_vec()));
        let refused = |bytes: &[u8], bytes_max| read_frame(&mut &bytes[..], *b"TEST", bytes_max).unwrap_err();
        assert_eq!(refused(&bytes, 2).kind(), ErrorKind::InvalidData);
        for length in 0..bytes.len() {
            assert_eq!(refused(&bytes[..length], 3).kind(), ErrorKind::UnexpectedEof, "cut to {length}");
        }
        assert_eq!(
            read_frame(&mut bytes.as_slice(), *b"ELSE", 3).unwrap_err().kind(),
            ErrorKind::InvalidData
        );
        bytes[5..13].fill(0xFF);
        assert_eq!(refused(&bytes, 3).kind(), ErrorKind::InvalidData);
        assert_eq!(refused(&bytes, u64::MAX).kind(), ErrorKind::UnexpectedEof);
    }
}
