//! What can go wrong with a query, on two levels.
//!
//! Outside there is one [`Error`] with six [`Kind`]s; a kind says what the caller does next. Inside there is a
//! [`Cause`] with the offending words and the way out. DataFusion's errors are sorted into causes here, and only here.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::ArrowError;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use parquet::errors::ParquetError;

use crate::archive::ArchiveFault;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller of a failed query does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Mend the query: it is not SQL, names something that is not there, or computes something that has no value.
    Input,
    /// Call the library instead: the statement would change something, and SQL only reads. The message names the call.
    ReadOnly,
    /// Ask for less, or raise the limit that the message names.
    Capacity,
    /// The store could not give what it holds; the source is the store's own error.
    Store,
    /// Look after the archive: it is not there, not this store's, damaged or out of reach. The message names it and the
    /// file. The store is as it was.
    Archive,
    /// Report it: the query engine contradicts itself.
    Bug,
}

impl Kind {
    /// The word that stands for this kind in messages, metrics and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Input => "input",
            Kind::ReadOnly => "read_only",
            Kind::Capacity => "capacity",
            Kind::Store => "store",
            Kind::Archive => "archive",
            Kind::Bug => "bug",
        }
    }
}

/// Why a query failed.
///
/// Match on [`Error::kind`] to decide what to do; print the error to tell a person.
#[derive(Clone)]
pub struct Error(Arc<Cause>);

impl Error {
    /// What to do next.
    pub fn kind(&self) -> Kind {
        self.0.kind()
    }

    /// The precise cause.
    pub fn cause(&self) -> &Cause {
        &self.0
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Error(Arc::new(cause))
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        let error = innermost(error);
        match ours(&error) {
            Some(error) => error.clone(),
            None => Cause::of_engine(error).into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.kind().as_str(), self.0)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}

/// The precise reasons.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each variant's message is its documentation; fields are named for what they hold"
)]
pub enum Cause {
    #[error("not SQL: {message}{snippet}")]
    Syntax { message: String, snippet: String },
    #[error("there is no statement; write one SELECT")]
    Empty,
    #[error(
        "the statement is {bytes} bytes long, and {limit} are the most; ask in several, or join with a table that holds the values"
    )]
    TooLong { bytes: usize, limit: usize },
    #[error(
        "the statement is {depth} levels deep, each link of a chain such as a OR b OR c being one, and {limit} are the most; write \
         lists as `x IN (…)`, or ask in several statements"
    )]
    TooDeep { depth: usize, limit: usize },
    #[error(
        "the statement lists {items} columns, arguments or rows, and {limit} are the most, those of x IN (…) aside; write what is looked \
         for as a list of IN, or ask in several statements"
    )]
    TooMany { items: usize, limit: usize },
    #[error(
        "the statement comes to more than {limit} steps, since it names what it defines again and again; ask in several statements"
    )]
    TooLarge { limit: u64 },
    #[error(
        "CUBE of {columns} columns makes a grouping of each choice of them, and {limit} columns are the most; name the groupings that \
         are wanted in GROUPING SETS (…)"
    )]
    TooManyGroupings { columns: usize, limit: usize },
    #[error("{count} statements in one query; send them one by one")]
    ManyStatements { count: usize },
    #[error("no table is named {name}{}{}", among(*.is_narrow), table_suggestion(.close))]
    UnknownTable { name: String, is_narrow: bool, close: Option<String> },
    #[error(
        "{name} tells of the whole store, and this session sees {seen} only; ask where all tables are seen (of a server: with a token \
         that is not for some tables)"
    )]
    WholeStore { name: String, seen: String },
    #[error("no column is named {name}{}", suggestion(.close))]
    UnknownColumn { name: String, close: Option<String> },
    #[error("no column is named {name} in a table as it was: what was under way then ({all}) is not kept")]
    NotKept { name: String, all: String },
    #[error(
        "the tables of the statement have {columns} columns together or more, each table as often as it is named, and {limit} are \
         the most; ask in several statements"
    )]
    TooWide { columns: usize, limit: usize },
    #[error(
        "the regular expression cannot be used: {reason}; `LIKE`, `strpos` and `starts_with` look for texts as they are"
    )]
    Pattern { reason: String },
    #[error("{reason}")]
    Query { reason: String },
    #[error("{reason}")]
    Parameters { reason: String },
    #[error("SQL only reads a store, and {verb} would not: {instead}")]
    ReadOnly { verb: String, instead: &'static str },
    #[error(
        "the query needs more memory than it may take ({reason}); ask for fewer rows or columns, or raise `memory_bytes_max` of \
         `Options` (`--memory-bytes-max` of `forebay sql`, `query_memory_bytes_max=` of `forebay.open` in Python)"
    )]
    Memory { reason: String },
    #[error("the tokenizer {} cannot be used: {reason}; give the `tokenizer.json` of a model", path.display())]
    Tokenizer { path: PathBuf, reason: String },
    #[error(
        "the query needs more space for what it spills than it may take ({reason}); ask for fewer rows or columns, or raise \
         `spill_bytes_max`"
    )]
    Spill { reason: String },
    #[error("queries cannot spill to {}: {reason}; give another `spill_dir`", .directory.display())]
    SpillDirectory { directory: PathBuf, reason: String },
    #[error(
        "the statement took longer than {limit:?}; ask for less, or raise `statement_time_max` of `Options` (`--time-max-s` of \
         `forebay sql`, `query_time_max=` of `forebay.open` in Python, `stream_time_max` of a server's `Builder`)"
    )]
    Time { limit: Duration },
    #[error("the store could not be read: {source}")]
    Store { source: forebay_store::Error },
    #[error("archive {url}: {fault}")]
    Archive { url: String, fault: ArchiveFault },
    #[error("the query engine failed: {reason}; this is a bug, please report it with the query")]
    Bug { reason: String },
}

impl Cause {
    /// The outward kind that this cause folds into.
    pub fn kind(&self) -> Kind {
        match self {
            Cause::Syntax { .. } | Cause::Empty | Cause::ManyStatements { .. } => Kind::Input,
            Cause::TooLong { .. }
            | Cause::TooDeep { .. }
            | Cause::TooMany { .. }
            | Cause::TooManyGroupings { .. }
            | Cause::TooLarge { .. }
            | Cause::TooWide { .. } => Kind::Input,
            Cause::UnknownTable { .. } | Cause::WholeStore { .. } | Cause::UnknownColumn { .. } => {
                Kind::Input
            }
            Cause::NotKept { .. } | Cause::Query { .. } | Cause::Pattern { .. } => Kind::Input,
            Cause::Tokenizer { .. } => Kind::Input,
            Cause::ReadOnly { .. } => Kind::ReadOnly,
            Cause::Parameters { .. } | Cause::SpillDirectory { .. } => Kind::Input,
            Cause::Memory { .. } | Cause::Spill { .. } | Cause::Time { .. } => Kind::Capacity,
            Cause::Store { .. } => Kind::Store,
            Cause::Archive { fault: ArchiveFault::Address { .. }, .. } => Kind::Input,
            Cause::Archive { .. } => Kind::Archive,
            Cause::Bug { .. } => Kind::Bug,
        }
    }
}

/// An error of this crate that the engine has carried, however deep it lies.
fn ours(error: &DataFusionError) -> Option<&Error> {
    let first: &(dyn std::error::Error + 'static) = error;
    let mut all = std::iter::successors(Some(first), |error| error.source());
    all.find_map(|error| error.downcast_ref())
}

impl Cause {
    /// What an error of the engine's own means.
    fn of_engine(error: DataFusionError) -> Self {
        use DataFusionError as E;
        if let Some(reason) = spill_failure(&error) {
            return Cause::Spill { reason };
        }
        match error {
            E::SchemaError(schema, _) => from_schema(&schema),
            E::External(source) => from_outside(source),
            E::ParquetError(error) => match *error {
                ParquetError::External(source) => from_outside(source),
                other => Cause::Bug { reason: other.to_string() },
            },
            error @ E::ResourcesExhausted(_) => Cause::Memory { reason: first_line(&error) },
            error @ (E::Internal(_) | E::ExecutionJoin(_) | E::IoError(_) | E::Ffi(_) | E::Substrait(_)) => {
                Cause::Bug { reason: first_line(&error) }
            }
            error => match not_compiled(&plain(&error)) {
                Some(reason) => Cause::Pattern { reason },
                None => Cause::Query { reason: plain(&error) },
            },
        }
    }
}

/// What is wrong with a regular expression that Arrow could not compile; none for another failure. Arrow tells it as its compiler
/// does to programmers: with a frame around a drawing, or as the name of a limit.
fn not_compiled(message: &str) -> Option<String> {
    let (_, told) = message.split_once("Regular expression did not compile: ")?;
    if let Some(bytes) = told.strip_prefix("CompiledTooBig(") {
        return Some(format!("compiled, it takes more than {} bytes", bytes.trim_end_matches(')')));
    }
    let drawing = told.find("regex parse error:").map_or(told, |at| &told[at..]);
    let lines = drawing.lines().filter(|line| !line.starts_with("~~~") && *line != ")");
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// How the engine begins to tell of a full spill directory: as an error of memory, of a file or of a format, depending on
/// who was writing.
const SPILL_LIMIT: &str = "The used disk space during the spilling process";

/// Why what does not fit into memory could not be written either; none for another failure.
fn spill_failure(error: &DataFusionError) -> Option<String> {
    let message = error.message();
    if let Some(at) = message.find(SPILL_LIMIT) {
        let told = &message[at..];
        return Some(told.split(". ").next().unwrap_or(told).to_owned());
    }
    let file = match error {
        DataFusionError::IoError(error) => error,
        DataFusionError::ArrowError(error, _) => match &**error {
            ArrowError::IoError(_, error) => error,
            _ => return None,
        },
        _ => return None,
    };
    (file.kind() == ErrorKind::StorageFull).then(|| file.to_string())
}

/// An error of ours on its way through the engine's streams.
impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

/// An error that a part of this crate gave the query engine to carry.
fn from_outside(source: Box<dyn std::error::Error + Send + Sync>) -> Cause {
    let source = match source.downcast::<regex::Error>() {
        Ok(source) => return Cause::Pattern { reason: source.to_string() },
        Err(other) => other,
    };
    match source.downcast::<regex_syntax::Error>() {
        Ok(source) => Cause::Pattern { reason: source.to_string() },
        Err(other) => Cause::Bug { reason: other.to_string() },
    }
}

/// An error of the store, on its way through the engine's streams.
pub(crate) fn from_store(source: forebay_store::Error) -> DataFusionError {
    Error::from(Cause::Store { source }).into()
}

/// The error without the layers that only say what was under way.
pub(crate) fn innermost(error: DataFusionError) -> DataFusionError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => innermost(*inner),
        DataFusionError::Collection(mut errors) if !errors.is_empty() => innermost(errors.swap_remove(0)),
        DataFusionError::Shared(shared) => match Arc::try_unwrap(shared) {
            Ok(inner) => innermost(inner),
            Err(shared) => told_again(&shared),
        },
        other => other,
    }
}

/// An error that others hold as well, such as the other partitions of a join: ours stay what they are, and limits limits.
fn told_again(shared: &DataFusionError) -> DataFusionError {
    use DataFusionError as E;
    if let Some(error) = ours(shared) {
        return error.clone().into();
    }
    match shared.find_root() {
        E::ResourcesExhausted(reason) => E::ResourcesExhausted(reason.clone()),
        _ => E::Execution(shared.message().into_owned()),
    }
}

/// What the engine adds to what it takes for its own fault. Some of it is not: an argument of another type than a function takes.
const APOLOGY: &str = "This issue was likely caused by a bug in DataFusion";

fn plain(error: &DataFusionError) -> String {
    let message = error.message();
    let message = message.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or_default();
    match message.split_once(APOLOGY) {
        Some((told, _)) => {
            told.trim_start_matches("Internal error: ").trim_end().trim_end_matches('.').to_owned()
        }
        None => message.trim_end().to_owned(),
    }
}

fn first_line(error: &DataFusionError) -> String {
    plain(error).lines().next().unwrap_or_default().to_owned()
}

fn from_schema(error: &SchemaError) -> Cause {
    let SchemaError::FieldNotFound { field, valid_fields } = error else {
        return Cause::Query { reason: error.to_string() };
    };
    let close = nearest(&field.name, valid_fields.iter().map(|valid| valid.name.as_str()));
    let close = close.map(|name| Column::from_name(name).quoted_flat_name());
    Cause::UnknownColumn { name: field.quoted_flat_name(), close }
}

/// The name closest to `name`, if one is close enough to be what was meant.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
    let (distance, best) = names.map(|candidate| (distance(candidate), candidate)).min()?;
    (distance <= 1 + name.len() / 4).then_some(best)
}

fn suggestion(close: &Option<String>) -> String {
    close.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// Where a table was looked for, unless that is the whole store.
fn among(is_narrow: bool) -> &'static str {
    if is_narrow { " among those that this session sees" } else { "" }
}

fn table_suggestion(close: &Option<String>) -> String {
    close.as_ref().map_or_else(|| "; SHOW TABLES lists all".to_owned(), |_| suggestion(close))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_error_keeps_its_own_words_through_the_engine() {
        fn source() -> DataFusionError {
            from_store(forebay_store::Cause::Closed { reason: "disk gone".into() }.into())
        }
        let ways: [fn() -> DataFusionError; 3] = [
            source,
            || ParquetError::External(Box::new(source())).into(),
            || ArrowError::ExternalError(Box::new(source())).into(),
        ];
        for wrapped in ways {
            let held = Arc::new(wrapped().context("scanning"));
            for error in [wrapped().context("scanning"), DataFusionError::Shared(held.clone())] {
                let error = Error::from(error);
                assert_eq!(error.kind(), Kind::Store);
                assert!(error.to_string().contains("disk gone"), "{error}");
            }
        }
    }

    #[test]
    fn a_disk_that_is_full_is_no_bug() {
        let full = || std::io::Error::from(ErrorKind::StorageFull);
        let arrow = ArrowError::IoError("writing".to_owned(), full());
        for error in [DataFusionError::IoError(full()), DataFusionError::ArrowError(Box::new(arrow), None)] {
            assert_eq!(Error::from(error.context("spilling")).kind(), Kind::Capacity);
        }
    }

    #[test]
    fn a_limit_is_one_also_where_others_hold_the_error() {
        let limit = Duration::from_millis(100);
        let time = DataFusionError::from(Error::from(Cause::Time { limit }));
        for (error, option) in [
            (DataFusionError::ResourcesExhausted("no room for a join".to_owned()), "--memory-bytes-max"),
            (time, "--time-max-s"),
        ] {
            let held = Arc::new(error.context("building a table"));
            let error = Error::from(DataFusionError::Shared(held.clone()));
            assert_eq!(error.kind(), Kind::Capacity, "{held}");
            assert!(error.to_string().contains(option), "{error}");
        }
    }

    #[test]
    fn suggestions_are_spelled_as_sql_wants_them() {
        let spelled = |name: &str| {
            let valid_fields = ["reward", "Answer", "next-agent"].map(Column::from_name).to_vec();
            let field = Box::new(Column::from_name(name));
            from_schema(&SchemaError::FieldNotFound { field, valid_fields }).to_string()
        };
        assert!(spelled("rewrd").ends_with("did you mean reward?"));
        assert!(spelled("answer").ends_with("did you mean \"Answer\"?"));
        assert!(spelled("next_agent").ends_with("did you mean \"next-agent\"?"));
        assert_eq!(spelled("unlike"), "no column is named unlike");
    }
}
