//! How a session is set up: plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::archive::Archive;

/// What a session may use.
///
/// ```
/// let options = forebay_query::Options::default().memory_bytes_max(256 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) memory_bytes_max: usize,
    pub(crate) spill_bytes_max: u64,
    pub(crate) spill_dir: Option<PathBuf>,
    pub(crate) statement_time_max: Option<Duration>,
    pub(crate) rows_max: Option<usize>,
    pub(crate) refresh: bool,
    pub(crate) batch_rows: usize,
    pub(crate) partitions: usize,
    pub(crate) tokenizers: BTreeMap<String, PathBuf>,
    pub(crate) archive: Option<Archive>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            memory_bytes_max: 1 << 30,
            spill_bytes_max: 8 << 30,
            spill_dir: None,
            statement_time_max: None,
            rows_max: None,
            refresh: false,
            batch_rows: 8192,
            partitions: 1,
            tokenizers: BTreeMap::new(),
            archive: None,
        }
    }
}

impl Options {
    /// The most memory that sorts, joins and groups of the session's queries take together, in bytes. Beyond it sorts, groups and
    /// joins by equality go on in files ([`Options::spill_bytes_max`]); what cannot fails with
    /// [`Kind::Capacity`](crate::Kind::Capacity). Default: 1 GiB. The answer itself is not counted.
    pub fn memory_bytes_max(mut self, bytes: usize) -> Self {
        self.memory_bytes_max = bytes;
        self
    }

    /// The most that the session's queries keep in files at one time because it does not fit into their memory, in bytes.
    /// Beyond it they fail with [`Kind::Capacity`](crate::Kind::Capacity). The files are gone when their query ends.
    /// Default: 8 GiB. 0 spills nothing.
    pub fn spill_bytes_max(mut self, bytes: u64) -> Self {
        self.spill_bytes_max = bytes;
        self
    }

    /// Where those files lie. Default: the system's directory for temporary files.
    pub fn spill_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spill_dir = Some(directory.into());
        self
    }

    /// How long a statement may take, from the call to its last batch; whoever reads a stream slowly spends it too. Then
    /// it fails with [`Kind::Capacity`](crate::Kind::Capacity). Default: no limit.
    pub fn statement_time_max(mut self, time: Duration) -> Self {
        self.statement_time_max = Some(time);
        self
    }

    /// The most rows of an answer, for people who look: the rest is cut off, and the answer says so
    /// ([`Answer::cut`](crate::Answer::cut)). Default: all.
    pub fn rows_max(mut self, rows: usize) -> Self {
        self.rows_max = Some(rows);
        self
    }

    /// Whether each query first takes in what a writer in another process has written
    /// ([`Store::refresh`](forebay_store::Store::refresh)); a store that is not open for reading only always shows its
    /// newest. Default: false.
    pub fn refresh(mut self, refresh: bool) -> Self {
        self.refresh = refresh;
        self
    }

    /// How many rows go through a query at a time; less where memory is scarce. Default: 8192. What other engines call
    /// batch or vector size.
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

    /// Where versions lie that left the store: queries read them beside the live ones, each row once. Default: none.
    pub fn archive(mut self, archive: &Archive) -> Self {
        self.archive = Some(archive.clone());
        self
    }
}
