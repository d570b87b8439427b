//! What can be wrong with an archive.

/// Why an archive could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each variant's message is its documentation; fields are named for what they hold"
)]
pub enum ArchiveFault {
    #[error(
        "that is no address of an archive ({reason}); give a directory, file:///PATH or s3://BUCKET/PREFIX"
    )]
    Address { reason: String },
    #[error(
        "there is no archive; it has vanished, or none was begun yet: `forebay archive --dir DIR --to URL` begins one"
    )]
    NotThere,
    #[error(
        "it is the archive of store {theirs}, and this is store {ours}; give each store an archive of its own"
    )]
    Foreign { theirs: String, ours: String },
    #[error("it is written in format {format}, and this program reads format {known}; use a newer program")]
    Format { format: u32, known: u32 },
    #[error(
        "it cannot be reached ({reason}); look at the address, the network and the credentials, and try again"
    )]
    Unreachable { reason: String },
    #[error("{file} has vanished; bring it back, or remove {manifest} and lose the rows of that version")]
    Vanished { file: String, manifest: String },
    #[error(
        "{file} has {bytes} bytes, and {expected} were written; bring it back whole, or remove {manifest} and lose \
         the rows of that version"
    )]
    Truncated { file: String, manifest: String, bytes: u64, expected: u64 },
    #[error(
        "{file} is corrupt at offset {offset}: {reason}; bring it back as it was, or remove {manifest} and lose the rows \
         of that version"
    )]
    Corrupt { file: String, manifest: String, offset: u64, reason: String },
    #[error(
        "{manifest} is corrupt: {reason}; bring it back as it was, or remove it and lose the rows of that version"
    )]
    Manifest { manifest: String, reason: String },
    #[error(
        "what was written of version {version} of {table} is not what the store holds ({reason}); nothing was deleted \
         from the store. Run it again"
    )]
    Mismatch { table: String, version: u64, reason: String },
    #[error(
        "it does not hold when the steps of {table} were committed: a version of it was moved there before one was, or by a \
         program that did not keep that; ask beside the store, with --dir DIR --archive URL"
    )]
    NoHistory { table: String },
}
