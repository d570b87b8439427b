//! Values as bytes: integers and floats little-endian, everything of variable length behind its length in eight bytes.

use std::io::Result;

use crate::frame::invalid;

/// Bytes being put together.
#[derive(Debug, Default)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn word(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn words(&mut self, values: &[u64]) {
        values.iter().for_each(|&value| self.word(value));
    }

    pub(super) fn count(&mut self, value: usize) {
        self.word(value as u64);
    }

    pub(super) fn float(&mut self, value: f32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.count(value.len());
        self.0.extend(value);
    }

    pub(super) fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    pub(super) fn tokens(&mut self, values: &[u32]) {
        self.count(values.len());
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    pub(super) fn floats(&mut self, values: &[f32]) {
        self.count(values.len());
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    pub(super) fn flags(&mut self, values: &[bool]) {
        self.count(values.len());
        self.0.extend(values.iter().map(|&value| u8::from(value)));
    }

    /// Whether there is one, and it.
    pub(super) fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.word(u64::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(super) fn list<T>(&mut self, values: &[T], put: impl Fn(&mut Self, &T)) {
        self.count(values.len());
        values.iter().for_each(|value| put(self, value));
    }
}

/// Bytes being taken apart. Nothing is allocated for a length before the bytes are known to be there.
#[derive(Debug)]
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| invalid("a message ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// The bytes of a run of `width` each.
    fn run(&mut self, width: usize) -> Result<&'a [u8]> {
        let length = self.count()?.checked_mul(width).ok_or_else(|| invalid("a length is too large"))?;
        self.take(length)
    }

    pub(super) fn word(&mut self) -> Result<u64> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| invalid("no word"))?))
    }

    pub(super) fn count(&mut self) -> Result<usize> {
        usize::try_from(self.word()?).map_err(|_| invalid("a count is too large"))
    }

    pub(super) fn float(&mut self) -> Result<f32> {
        let bytes = self.take(4)?;
        Ok(f32::from_le_bytes(bytes.try_into().map_err(|_| invalid("no number"))?))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        self.run(1)
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|_| invalid("a text is not UTF-8"))
    }

    pub(super) fn tokens(&mut self) -> Result<Vec<u32>> {
        Ok(self.run(4)?.as_chunks().0.iter().copied().map(u32::from_le_bytes).collect())
    }

    pub(super) fn floats(&mut self) -> Result<Vec<f32>> {
        Ok(self.run(4)?.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect())
    }

    pub(super) fn flags(&mut self) -> Result<Vec<bool>> {
        Ok(self.run(1)?.iter().map(|&byte| byte != 0).collect())
    }

    pub(super) fn optional<T>(&mut self, get: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match self.word()? {
            0 => Ok(None),
            1 => get(self).map(Some),
            _ => Err(invalid("neither there nor absent")),
        }
    }

    pub(super) fn list<T>(&mut self, get: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.count()?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(get(self)?);
        }
        Ok(values)
    }

    /// Refuses what is left over.
    pub(super) fn end(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(invalid("a message goes on behind its end")) }
    }
}
