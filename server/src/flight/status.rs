//! What a client is told when a request fails: a code that its driver turns into an exception of the right class, and our
//! own words.

use forebay_query::{Cause, Error, Kind};
use tonic::{Code, Status};

/// Messages travel in a header, and headers are small.
const MESSAGE_BYTES_MAX: usize = 4096;

/// The status of a failed query.
pub(crate) fn of(error: &Error) -> Status {
    let code = match (error.kind(), error.cause()) {
        (_, Cause::Store { source }) if source.kind() == forebay_store::Kind::Closed => Code::Unavailable,
        (_, Cause::Time { .. }) => Code::DeadlineExceeded,
        (Kind::Input | Kind::ReadOnly, _) => Code::InvalidArgument,
        (Kind::Capacity, _) => Code::ResourceExhausted,
        (Kind::Archive, _) => Code::Unavailable,
        (Kind::Store | Kind::Bug, _) => Code::Internal,
    };
    if code == Code::Internal {
        tracing::error!(%error, "a query failed");
    }
    Status::new(code, short(error.to_string()))
}

/// The status of who may not read.
pub(crate) fn of_reader(error: &forebay_client::Error) -> Status {
    let code = if error.cause() == "Forbidden" { Code::PermissionDenied } else { Code::Unauthenticated };
    Status::new(code, short(error.to_string()))
}

/// What the library of the protocol cannot do is our fault, as all input has been looked at.
pub(crate) fn internal(error: impl std::fmt::Display) -> Status {
    tracing::error!(%error, "an answer could not be written");
    Status::internal(short(error.to_string()))
}

fn short(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_query::ArchiveFault;

    use super::*;

    #[test]
    fn kinds_have_codes_that_drivers_understand() {
        let closed = forebay_store::Cause::Closed { reason: "disk gone".into() };
        let vanished = Cause::Archive { url: "s3://bucket/runs".into(), fault: ArchiveFault::NotThere };
        let long = "ä".repeat(5000);
        for (cause, code) in [
            (Cause::Empty, Code::InvalidArgument),
            (Cause::ReadOnly { verb: "DELETE".into(), instead: "call" }, Code::InvalidArgument),
            (Cause::Memory { reason: "much".into() }, Code::ResourceExhausted),
            (Cause::Time { limit: Duration::from_secs(1) }, Code::DeadlineExceeded),
            (Cause::Store { source: closed.into() }, Code::Unavailable),
            (vanished, Code::Unavailable),
            (Cause::Bug { reason: long }, Code::Internal),
        ] {
            let status = of(&Error::from(cause));
            assert_eq!(status.code(), code, "{status:?}");
            assert!(status.message().len() < 5000 && !status.message().is_empty());
        }
    }
}
