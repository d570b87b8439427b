//! How a session is set up: plain data.

/// What a session may use.
///
/// ```
/// let options = forebay_query::Options::default().memory_bytes_max(256 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) memory_bytes_max: usize,
    pub(crate) batch_rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { memory_bytes_max: 1 << 30, batch_rows: 8192 }
    }
}

impl Options {
    /// The most memory that sorts, joins and groups of the session's queries take together, in bytes. Beyond it a
    /// query fails with [`Kind::Capacity`](crate::Kind::Capacity); nothing is spilled to disk. Default: 1 GiB. The answer
    /// itself is not counted.
    pub fn memory_bytes_max(mut self, bytes: usize) -> Self {
        self.memory_bytes_max = bytes;
        self
    }

    /// How many rows go through a query at a time. Default: 8192. What other engines call batch or vector size.
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows.max(1);
        self
    }
}
