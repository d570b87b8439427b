//! The file that is a version: the parts, and what their bytes have to be.
//!
//! ```text
//! forebay state 1
//! trainer 1730 5f3c.. trainer.4711.9c1e
//! claims 12 88ab.. claims.4711.02d7
//! end 0f6c..
//! ```
//!
//! A line a part: name, length, digest, file. The last line has the SHA-256 of everything before it, which is a few hundred bytes.

use sha2::{Digest, Sha256};

use super::digest::is_digest;

const HEAD: &str = "forebay state 1";

/// A part as the manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) digest: String,
    pub(super) file: String,
}

impl Entry {
    /// As one line; also what a part is called between stage and commit.
    pub(super) fn line(&self) -> String {
        format!("{} {} {} {}", self.name, self.bytes, self.digest, self.file)
    }

    pub(super) fn of_line(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, bytes, digest, file] = words[..] else { return None };
        let is_valid = is_name(name) && is_name(file) && is_digest(digest);
        let bytes = bytes.parse().ok().filter(|_| is_valid)?;
        Some(Self { name: name.to_owned(), bytes, digest: digest.to_owned(), file: file.to_owned() })
    }
}

pub(super) fn write(entries: &[Entry]) -> String {
    let mut text = format!("{HEAD}\n");
    for entry in entries {
        text.push_str(&entry.line());
        text.push('\n');
    }
    let digest = sha256(text.as_bytes());
    text.push_str(&format!("end {digest}\n"));
    text
}

pub(super) fn read(text: &str) -> Result<Vec<Entry>, String> {
    let (body, end) = text.rsplit_once("end ").ok_or("its last line is missing")?;
    if end.trim_end() != sha256(body.as_bytes()) {
        return Err("its checksum does not fit".into());
    }
    let mut lines = body.lines();
    if lines.next() != Some(HEAD) {
        return Err(format!("its first line is not {HEAD:?}"));
    }
    lines.map(|line| Entry::of_line(line).ok_or_else(|| format!("{line:?} names no part"))).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a key, part or file may be called: nothing that leaves its folder.
pub(super) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=160).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_and_any_cut_is_an_error() {
        let entry = |name: &str| Entry {
            name: name.into(),
            bytes: 12,
            digest: sha256(name.as_bytes()),
            file: format!("{name}.1.a"),
        };
        let entries = [entry("trainer"), entry("cache.0")];
        let text = write(&entries);
        assert_eq!(read(&text).unwrap(), entries);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            // The last byte is the line's end, which says nothing.
            assert!(read(&changed).is_err() || at == text.len() - 1, "byte {at}");
            assert!(read(&text[..at]).is_err() || at == text.len() - 1, "cut to {at}");
        }
    }
}
