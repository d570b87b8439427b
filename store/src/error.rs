//! What can go wrong, on two levels.
//!
//! Outside there is one [`Error`] with six [`Kind`]s; a kind says what the caller does next. Inside there is a
//! precise [`Cause`] that carries the offending value and the way out. Two causes that the caller treats alike
//! share a kind; messages are rich and free to change, kinds are not.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::disk::link_in_the_way;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller of a failed call does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Try the same call again later: nothing was changed.
    Retry,
    /// Mend the call: an argument is wrong, and will be wrong tomorrow. Nothing was changed.
    Input,
    /// A legal call at the wrong moment. The message names the state and the way out. Nothing was changed.
    State,
    /// Out of room: free some, or raise the limit that the message names. Nothing was changed.
    Capacity,
    /// Stored bytes are not what was written. The message names file and offset. Retrying cannot help.
    Corrupt,
    /// The store no longer accepts calls: reopen it. What was in flight is whole or absent.
    Closed,
}

impl Kind {
    /// The word that stands for this kind in messages, metrics and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Retry => "retry",
            Kind::Input => "input",
            Kind::State => "state",
            Kind::Capacity => "capacity",
            Kind::Corrupt => "corrupt",
            Kind::Closed => "closed",
        }
    }
}

/// Why a call of the store failed.
///
/// Match on [`Error::kind`] to decide what to do; print the error to tell a person; look at [`Error::cause`] only
/// where one precise case is handled differently from its kind.
pub struct Error(Box<Cause>);

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

impl Error {
    /// Why the store closes after this error.
    pub(crate) fn closing_reason(&self) -> String {
        match self.cause() {
            Cause::Closed { reason } => reason.clone(),
            _ => self.with_sources(),
        }
    }

    /// The message with those of its sources.
    pub(crate) fn with_sources(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(&format!(": {error}"));
            source = error.source();
        }
        text
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Error(Box::new(cause))
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

/// The precise reasons, each with the value that caused it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each variant's message is its documentation; fields are named for what they hold"
)]
pub enum Cause {
    // Input.
    #[error("sample id {id:?} is not INPUT_TURN_TRAJECTORY: {reason}")]
    SampleId { id: String, reason: &'static str },
    #[error(
        "{what} {name:?} is not a legal name: use 1 to 64 of a-z, A-Z, 0-9, '_', '-', '.', starting with a letter"
    )]
    Name { what: &'static str, name: String },
    #[error("no {what} is named {name:?}{}", suggestion(.close))]
    Unknown { what: &'static str, name: String, close: Option<String> },
    #[error("{what} {name:?} exists already; open it by its name instead")]
    Exists { what: &'static str, name: String },
    #[error("column {column:?} holds {expected}, the value is {found}")]
    TypeMismatch { column: String, expected: String, found: String },
    #[error("column {column:?} is named twice in one call; write each cell once")]
    ColumnTwice { column: String },
    #[error("column name {column:?} is taken by the engine; choose another")]
    ColumnReserved { column: String },
    #[error("a table has at most {limit} {what}; this one would have {found}")]
    TooMany { what: &'static str, limit: usize, found: usize },
    #[error(
        "a value of {bytes} bytes is larger than the greatest extent of {limit} bytes; split it over several cells"
    )]
    ValueTooLarge { bytes: usize, limit: usize },
    #[error("column {column:?} cannot be {role}: it holds {found}, not {expected}")]
    RoleMismatch { column: String, role: &'static str, expected: &'static str, found: String },
    #[error(
        "column {column:?} has {length} entries and {other:?} of the same row has {other_length}; columns with one entry \
         a token have the same length"
    )]
    LengthMismatch { column: String, length: usize, other: String, other_length: usize },
    #[error(
        "a value of {bytes} bytes was said to lie in extent {extent} at {offset}, but {reason}; write it into the extent again, \
         to a place of its own, or send it"
    )]
    Misplaced { extent: u32, offset: u32, bytes: u32, reason: &'static str },
    #[error(
        "no value of {bytes} bytes lies at {offset} of the slab: {reason}; put it there again, or send it"
    )]
    NotInSlab { offset: u32, bytes: u32, reason: &'static str },
    #[error("{what}: {reason}")]
    Argument { what: &'static str, reason: String },

    // State.
    #[error(
        "row {sample_id} of version {version} exists already in table {table:?}; give the insert an idempotency token \
         to repeat it safely, or open the row's next attempt"
    )]
    DuplicateRow { table: String, sample_id: String, version: u64 },
    #[error(
        "policy version {version} is stale: policy {policy:?} is at {current}; start the rollout again on the current weights"
    )]
    Stale { policy: String, version: u64, current: u64 },
    #[error(
        "policy version {version} is retired in table {table:?}: its rows were deleted for good, and none comes after them; start the \
         rollout again on the current weights, or give a row of a peer the version that the policy has now"
    )]
    Retired { table: String, version: u64 },
    #[error(
        "row {sample_id} of version {version} was deleted for good in table {table:?}; its identity is not used again, \
         take another trajectory"
    )]
    RowDeleted { table: String, sample_id: String, version: u64 },
    #[error("row {row} of table {table:?} is held by claim {claim}; wait for its end, or delete by force")]
    RowHeld { table: String, row: u64, claim: u64 },
    #[error(
        "row {row} of table {table:?} may be needed by a rewind to step {step}; keep fewer states to go back to, or \
         delete by force"
    )]
    RowNeeded { table: String, row: u64, step: u64 },
    #[error(
        "version {version} cannot be deleted from table {table:?}: its policy is at {current} and rollouts write it; \
         delete an older one, or by force"
    )]
    VersionCurrent { table: String, version: u64, current: u64 },
    #[error(
        "version {version} of table {table:?} is not as the snapshot showed it ({reason}); take another snapshot and \
         decide again"
    )]
    VersionChanged { table: String, version: u64, reason: String },
    #[error("column {column:?} of table {table:?} is retired; nothing can be written to it any more")]
    ColumnRetired { table: String, column: String },
    #[error("column {column:?} cannot be retired: consumer {consumer:?} waits for it")]
    ColumnRequired { column: String, consumer: String },
    #[error("generation {generation} of extent {extent} is not lent any more; ask the store for another")]
    LoanOver { extent: u32, generation: u32 },
    #[error("cell {column:?} of row {row} is final and holds other bytes; a final cell never changes")]
    CellFinal { column: String, row: String },
    #[error("cell {column:?} of row {row} is partial; close it with finalize, or append to it")]
    CellPartial { column: String, row: String },
    #[error("cell {column:?} of row {row} is {found}; only a partial cell can be {verb}")]
    CellNotPartial { column: String, row: String, found: &'static str, verb: &'static str },
    #[error("row {row} was excluded ({reason}); its late writes are refused, start the row's next attempt")]
    RowExcluded { row: String, reason: String },
    #[error("row {row} was trained on in step {step}; it can no longer be {verb}")]
    RowConsumed { row: String, step: u64, verb: &'static str },
    #[error("claim {claim} is {found}, not {expected}; its rows are no longer this holder's, claim again")]
    ClaimFenced { claim: u64, found: &'static str, expected: &'static str },
    #[error("step {step} is open, begun {since} ago; commit it or drop its handle before another begins")]
    StepOpen { step: u64, since: String },
    #[error("step {step} is no longer open; begin another")]
    StepClosed { step: u64 },
    #[error(
        "step {step}, whose gradient caches count from {caches_from} on, was given up; the step {step} that is open is another \
         one, whose caches count from {open_caches_from} on: work through its own handle"
    )]
    StepBegunAgain { step: u64, caches_from: u32, open_caches_from: u32 },
    #[error(
        "claim {claim} of consumer {consumer:?} is leased and not accumulated; accumulate or drop it, then commit"
    )]
    StepUnfinished { claim: u64, consumer: String },
    #[error(
        "policy {policy:?} has no accumulated rows in step {step}; leave it out of the commit, its version stays {version}"
    )]
    PolicyIdle { policy: String, step: u64, version: u64 },
    #[error(
        "policy {policy:?} has {rows} accumulated rows in step {step} but no update; name it in the commit or drop its cache"
    )]
    PolicyMissing { policy: String, step: u64, rows: usize },
    #[error(
        "policy {policy:?} is durable and its update names no object of key {key:?}; write that object, or declare the \
         policy as volatile"
    )]
    StateMissing { policy: String, key: String },
    #[error(
        "object {key:?} version {version} was put by somebody else meanwhile: its file has crc32c {found:08x}, and {put:08x} is \
         meant; if the step is yours, put it again and commit"
    )]
    PutByOther { key: String, version: u64, put: u32, found: u32 },
    #[error(
        "gradient {gradient} was meant for a cache that has been dropped; the cache is in epoch {epoch} now, take its \
         rows again"
    )]
    CacheDropped { gradient: String, epoch: u32 },
    #[error("of the {expected} rows of step {step} {found} are left, the others were deleted")]
    StepIncomplete { step: u64, expected: u64, found: u64 },
    #[error(
        "step {step} is too far back: with {kept} versions of each object kept, the oldest step to go back to is \
         {oldest}; open the store with more of `object_versions_kept` before the steps that may have to be undone"
    )]
    RewindTooFar { step: u64, oldest: u64, kept: usize },
    #[error("group {key:?} of consumer {consumer:?} {found}; {hint}")]
    Group { consumer: String, key: String, found: String, hint: &'static str },
    #[error("consumer {consumer:?} is a {found}; {hint}")]
    ConsumerKind { consumer: String, found: &'static str, hint: &'static str },
    #[error("the store at {} is opened read-only; open it without `read_only` to {verb}", path.display())]
    ReadOnly { path: PathBuf, verb: &'static str },
    #[error(
        "the store at {} is in use by process {pid}; {}",
        path.display(), way_to_unlock(*pid)
    )]
    Locked { path: PathBuf, pid: u32 },
    #[error("the store at {} is being read by another process; try again when it has finished", path.display())]
    LockedByReaders { path: PathBuf },
    #[error(
        "the store was opened by process {opened_by} and this is process {pid}, its child; leave the handles alone here, \
         and open the store anew once the parent has closed it"
    )]
    Forked { opened_by: u32, pid: u32 },
    #[error("{} holds no Forebay store; give the directory of a run, or create a store there first", path.display())]
    NotAStore { path: PathBuf },
    #[error("{} is not empty and holds no Forebay store; give an empty or a new directory", path.display())]
    DirectoryTaken { path: PathBuf },
    #[error(
        "{} is a link, and nothing is written through one there; remove it, or name another directory",
        path.display()
    )]
    Link { path: PathBuf },
    #[error(
        "{} has on-disk format {found}, this program reads format {expected}; use the release that wrote it, nothing \
         was changed",
        path.display()
    )]
    FormatVersion { path: PathBuf, found: u32, expected: u32 },

    #[error(
        "the store at {} was cut off when the machine went down; open it for writing once, which mends it, then read it",
        path.display()
    )]
    NeedsRecovery { path: PathBuf },

    // Objects.
    #[error(
        "tensor {tensor:?} is too large: with it its payload would have more than {limit} bytes; split it"
    )]
    TensorTooLarge { tensor: String, limit: u64 },
    #[error("tensor {tensor:?} is {expected}, {found} is given")]
    TensorMismatch { tensor: String, expected: String, found: String },
    #[error("{found} do not fit {tensor:?}, which has {limit} bytes")]
    TensorLength { tensor: String, found: String, limit: u64 },
    #[error(
        "object {key:?} version {version} has the layout {found:016x}, {expected:016x} is expected; get it with its own \
         layout, or set it anew"
    )]
    LayoutMismatch { key: String, version: u64, expected: u64, found: u64 },
    #[error(
        "object {key:?} is at {found}, {expected} was expected; expect that and commit again, or drop what was filled"
    )]
    ObjectConflict { key: String, expected: String, found: String },
    #[error(
        "version {wanted} of object {key:?} is gone: deleted, received, or older than what is kept; the newest is {newest}"
    )]
    ObjectGone { key: String, wanted: u64, newest: String },
    #[error(
        "version {wanted} of object {key:?} has not come; the newest is {newest}; ask again, or wait longer"
    )]
    ObjectNotYet { key: String, wanted: u64, newest: String },
    #[error(
        "no version of the objects {keys} that were committed together is there any more, or ever was; set them with \
         `commit_together`, or get each by itself"
    )]
    ObjectsApart { keys: String },
    #[error(
        "version {version} of object {key:?} was not set, or was cut off: {} has no manifest; what a step names is read by its \
         reference, with `Store::object`",
        path.display()
    )]
    ObjectForeign { key: String, version: u64, path: PathBuf },
    #[error(
        "versions of object {key:?} come and go faster than they can be copied ({tries} attempts); let its writer keep more \
         versions (`ObjectOptions::versions_kept`)"
    )]
    ObjectOutran { key: String, tries: usize },
    #[error("object {key:?} was to be filled and was given up: {reason}; ask again once it is set anew")]
    FillingFailed { key: String, reason: String },
    #[error("object {key:?} is {found}; nothing can be filled in any more, begin another version")]
    FillingOver { key: String, found: &'static str },
    #[error(
        "bytes {start} to {end} of {class:?} of object {key:?} are being filled by another thread; give each its own range"
    )]
    FillOverlap { key: String, class: String, start: u64, end: u64 },
    #[error(
        "object {key:?} cannot be committed: bytes {start} to {end} of {class:?} were not filled, tensor {tensor:?} first; \
         fill all of it"
    )]
    Unfilled { key: String, tensor: String, class: String, start: u64, end: u64 },
    #[error(
        "the host tier is in use: {leases} versions are held and {quarantine_bytes} bytes in quarantine; let go of them first"
    )]
    HostInUse { leases: u64, quarantine_bytes: u64 },
    #[error(
        "no room for {needed} bytes in the host tier: {used} of {limit} bytes are taken; demote or delete objects, let go of \
         those that are held, or raise `host_bytes_max`"
    )]
    NoHostMemory { needed: u64, used: u64, limit: u64 },

    // Capacity and the disk.
    #[error(
        "snapshot {owner:?} is {} s old, and the store keeps none for longer than {} s (`snapshot_age_max`): what it showed may be \
         gone; take another",
        age.as_secs(),
        age_max.as_secs()
    )]
    SnapshotOverdue { owner: String, age: Duration, age_max: Duration },
    #[error("no room to {verb} {}", path.display())]
    DiskFull { verb: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "no room for {needed} bytes: {used} of {limit} bytes are taken, and none came free in time; {pin}; remove rows, let \
         readers go, or raise the store's disk budget"
    )]
    NoSpace { needed: u64, used: u64, limit: u64, pin: String },
    #[error(
        "no memory for {needed} bytes: {used} bytes are taken, and of {limit} this call may use {usable}; none came free in time; \
         {pin}; delete rows, let snapshots go, or raise the store's memory budget"
    )]
    NoMemory { needed: u64, used: u64, usable: u64, limit: u64, pin: String },
    #[error(
        "consumer {consumer:?} holds inserts back: of {inserted} rows that count {handed_out} were handed out, and its rate \
         limiter lets no more than its buffer of {buffer} lie there; let it claim, exclude rows that it shall not have, wait \
         longer, or declare it with a larger buffer"
    )]
    HeldBack { consumer: String, inserted: u64, handed_out: u64, buffer: f64 },
    #[error(
        "no file handle is free to {verb} {}; let connections and stores go that are not needed, or raise the limit of open files \
         (`ulimit -n`)",
        path.display()
    )]
    NoHandles { verb: &'static str, path: PathBuf, source: io::Error },
    #[error("could not {verb} {}", path.display())]
    Io { verb: &'static str, path: PathBuf, source: io::Error },

    // Given up.
    #[error("the {what} was stopped before its end by who began it; begin it again to have it whole")]
    Stopped { what: &'static str },

    // Corrupt.
    #[error("{} is damaged at offset {offset}: {reason}; nothing was changed, restore the file from a copy", path.display())]
    Corrupt { path: PathBuf, offset: u64, reason: String },

    #[error(
        "a checkpoint's manifest would take {bytes} bytes, and no more than {limit} are read back; the log stays as it is. Delete \
         whole versions (retention by version), so that identities of deleted rows need not be remembered one by one"
    )]
    ManifestTooLarge { bytes: usize, limit: u64 },
    #[error(
        "{what} are numbered with 32 bits, and {left} numbers are left for the {wanted} that are wanted; numbers are never used \
         again: go on in another table, or in a new store"
    )]
    NumbersUsedUp { what: &'static str, left: u64, wanted: u64 },

    // Closed.
    #[error("the store is closed: {reason}; open it again")]
    Closed { reason: String },
}

impl Cause {
    /// The outward kind that this cause folds into.
    pub fn kind(&self) -> Kind {
        use Cause::*;
        match self {
            SampleId { .. } | Name { .. } | Unknown { .. } | Exists { .. } | TypeMismatch { .. } => {
                Kind::Input
            }
            ColumnTwice { .. } | ColumnReserved { .. } | TooMany { .. } | ValueTooLarge { .. } => Kind::Input,
            Argument { .. } | RoleMismatch { .. } | LengthMismatch { .. } | Misplaced { .. } => Kind::Input,
            NotInSlab { .. } => Kind::Input,
            DuplicateRow { .. } | Stale { .. } | CellFinal { .. } | CellPartial { .. } => Kind::State,
            CellNotPartial { .. } | RowExcluded { .. } | RowConsumed { .. } | ClaimFenced { .. } => {
                Kind::State
            }
            StepOpen { .. } | StepClosed { .. } | StepBegunAgain { .. } | StepUnfinished { .. } => {
                Kind::State
            }
            PolicyIdle { .. } | SnapshotOverdue { .. } => Kind::State,
            PolicyMissing { .. } | ConsumerKind { .. } | ReadOnly { .. } | Locked { .. } => Kind::State,
            Group { .. } | LoanOver { .. } => Kind::State,
            RowDeleted { .. } | RowHeld { .. } | RowNeeded { .. } | VersionCurrent { .. } => Kind::State,
            VersionChanged { .. } => Kind::State,
            Retired { .. } | ColumnRetired { .. } | ColumnRequired { .. } => Kind::State,
            PutByOther { .. }
            | StateMissing { .. }
            | CacheDropped { .. }
            | StepIncomplete { .. }
            | RewindTooFar { .. } => Kind::State,
            NeedsRecovery { .. } | Forked { .. } => Kind::State,
            NotAStore { .. } | DirectoryTaken { .. } | Link { .. } | FormatVersion { .. } | Io { .. } => {
                Kind::State
            }
            TensorTooLarge { .. } | TensorMismatch { .. } | TensorLength { .. } | LayoutMismatch { .. } => {
                Kind::Input
            }
            ObjectConflict { .. } | ObjectGone { .. } | FillingOver { .. } | FillOverlap { .. } => {
                Kind::State
            }
            Unfilled { .. } | HostInUse { .. } | ObjectForeign { .. } | ObjectsApart { .. } => Kind::State,
            ManifestTooLarge { .. } | NumbersUsedUp { .. } | NoHandles { .. } => Kind::Capacity,
            DiskFull { .. } | NoSpace { .. } | NoMemory { .. } | NoHostMemory { .. } => Kind::Capacity,
            LockedByReaders { .. } | HeldBack { .. } | Stopped { .. } => Kind::Retry,
            ObjectNotYet { .. } | ObjectOutran { .. } | FillingFailed { .. } => Kind::Retry,
            Corrupt { .. } => Kind::Corrupt,
            Closed { .. } => Kind::Closed,
        }
    }

    /// An I/O failure of `verb` on `path`; a full disk and a lack of file handles are told apart from the rest.
    pub(crate) fn io(verb: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        if let Some(link) = link_in_the_way(&source) {
            return Cause::Link { path: link.to_owned() };
        }
        match source {
            _ if is_full(&source) => Cause::DiskFull { verb, path, source },
            _ if is_out_of_handles(&source) => Cause::NoHandles { verb, path, source },
            _ => Cause::Io { verb, path, source },
        }
    }
}

/// Whether there is no room for what was to be written.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether this process, or the machine, has as many files open as it may.
fn is_out_of_handles(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error
        .raw_os_error()
        .is_some_and(|number| [Errno::MFILE, Errno::NFILE].contains(&Errno::from_raw_os_error(number)))
}

fn way_to_unlock(pid: u32) -> &'static str {
    if pid == std::process::id() {
        "that is this one: let go of its handles, and of the snapshots, values and record batches that it gave out"
    } else {
        "stop that process, or ask it for what you need (a second writer is never let in)"
    }
}

fn suggestion(close: &Option<String>) -> String {
    close.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_capacity_and_any_other_failure_is_not() {
        let cases =
            [(io::ErrorKind::StorageFull, Kind::Capacity), (io::ErrorKind::PermissionDenied, Kind::State)];
        for (found, kind) in cases {
            assert_eq!(Cause::io("write", "x", found.into()).kind(), kind);
        }
    }

    #[test]
    fn an_unknown_name_comes_with_the_nearest_one() {
        let error = Error::from(Cause::Unknown {
            what: "column",
            name: "rewrd".into(),
            close: Some("reward".into()),
        });
        assert_eq!(error.to_string(), "no column is named \"rewrd\"; did you mean \"reward\"?");
        assert_eq!(error.kind(), Kind::Input);
    }
}
