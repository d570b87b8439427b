//! How a session is set up: plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a session may use.
///
/// ```
/// let options = forebay_query::Options::default().memory_bytes_max(256 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) memory_bytes_max: usize,
    pub(crate) batch_rows: usize,
    pub(crate) partitions: usize,
    pub(crate) tokenizers: BTreeMap<String, PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options { memory_bytes_max: 1 << 30, batch_rows: 8192, partitions: 1, tokenizers: BTreeMap::new() }
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

    /// Over how many streams a table is read at the same time, and the rest of a query with it. Default: 1, for beside a
    /// run the other cores are busy with rollouts and training. More are used only as far as the runtime that polls the
    /// query has threads; [`Session::sql_blocking`](crate::Session::sql_blocking) brings as many.
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions.max(1);
        self
    }

    /// Makes the tokenizer in a file (`tokenizer.json` of Hugging Face) known to `detokenise` under a name. Read when the
    /// session is made. Default: none.
    pub fn tokenizer(mut self, name: impl Into<String>, file: impl Into<PathBuf>) -> Self {
        self.tokenizers.insert(name.into(), file.into());
        self
    }
}
