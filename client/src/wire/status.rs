//! Failures: a kind has a code that generic gRPC tools understand, and the precise words travel in the details.

use std::time::Duration;

use bytes::Bytes;
use forebay_store::Kind;
use prost::Message;
use tonic::{Code, Status};

use super::proto::Failure;
use crate::error::{Error, kind_named};

/// Details and message travel in headers, and headers are small.
const MESSAGE_BYTES_MAX: usize = 3000;

/// The status of a failed call.
pub fn from_error(error: &Error) -> Status {
    let code = match (error.kind(), error.cause()) {
        (_, "Unauthenticated") => Code::Unauthenticated,
        (_, "Forbidden") => Code::PermissionDenied,
        (_, "Deadline") => Code::DeadlineExceeded,
        (_, "Unknown") => Code::NotFound,
        (_, "Exists" | "DuplicateRow") => Code::AlreadyExists,
        (Kind::Retry, _) => Code::Unavailable,
        (Kind::Input, _) => Code::InvalidArgument,
        (Kind::State, _) => Code::FailedPrecondition,
        (Kind::Capacity, _) => Code::ResourceExhausted,
        (Kind::Corrupt, _) => Code::DataLoss,
        (Kind::Closed, _) => Code::Aborted,
    };
    let mut message = error.to_string();
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
    }
    message.shrink_to_fit(); // it is kept for who asks again
    let retry_after_ms = error.wait_before_retry().map(|time| time.as_millis() as u64);
    let (kind, cause) = (error.kind().as_str().to_owned(), error.cause().to_owned());
    let failure = Failure { kind, cause, message: message.clone(), retry_after_ms };
    Status::with_details(code, message, Bytes::from(failure.encode_to_vec()))
}

/// What a status says of a failure; none where the peer is no Forebay, or the call did not reach it.
pub fn failure_of(status: &Status) -> Option<Error> {
    let failure = Failure::decode(status.details()).ok().filter(|failure| !failure.kind.is_empty())?;
    let kind = kind_named(&failure.kind)?;
    Some(
        Error::new(kind, &failure.cause, failure.message)
            .retry_after(failure.retry_after_ms.map(Duration::from_millis)),
    )
}

/// Whether the time of a call was over. The transport's own clock says so by a code that stands for much else.
pub fn is_late(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded
        || status.code() == Code::Cancelled && status.message().contains("Timeout expired")
}

/// The error that a failed call is for its caller.
pub fn to_error(status: Status) -> Error {
    if let Some(error) = failure_of(&status) {
        return error;
    }
    let message = status.message().to_owned();
    let (kind, cause, message) = match status.code() {
        _ if is_late(&status) => {
            (Kind::Retry, "Deadline", "the call took longer than its deadline".to_owned())
        }
        Code::Unauthenticated => (Kind::Input, "Unauthenticated", message),
        Code::PermissionDenied => (Kind::Input, "Forbidden", message),
        Code::ResourceExhausted | Code::OutOfRange => (Kind::Input, "TooLarge", message),
        Code::Unimplemented => (
            Kind::Input,
            "Protocol",
            format!("the server does not know the call ({message}); use one of the client's release"),
        ),
        Code::InvalidArgument | Code::Internal | Code::DataLoss => (Kind::Input, "Protocol", message),
        _ => (Kind::Retry, "Connection", format!("the server cannot be reached: {message}")),
    };
    Error::new(kind, cause, message).because(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_comes_back_with_all_that_it_says() {
        for kind in [Kind::Retry, Kind::Input, Kind::State, Kind::Capacity, Kind::Corrupt, Kind::Closed] {
            let error = Error::new(kind, "HeldBack", "wait").retry_after(Some(Duration::from_millis(12)));
            let back = to_error(from_error(&error));
            assert_eq!((back.kind(), back.cause(), back.to_string()), (kind, "HeldBack", "wait".to_owned()));
            assert_eq!(back.wait_before_retry(), Some(Duration::from_millis(12)));
        }
        let long = from_error(&Error::new(Kind::Input, "x", "ä".repeat(9000)));
        assert!(long.message().len() < 4000 && long.details().len() < 4000);
    }

    #[test]
    fn what_did_not_reach_a_store_is_told_by_its_code() {
        for (code, kind, cause) in [
            (Code::Unavailable, Kind::Retry, "Connection"),
            (Code::Cancelled, Kind::Retry, "Connection"),
            (Code::DeadlineExceeded, Kind::Retry, "Deadline"),
            (Code::OutOfRange, Kind::Input, "TooLarge"),
            (Code::Unimplemented, Kind::Input, "Protocol"),
        ] {
            let error = to_error(Status::new(code, "words"));
            assert_eq!((error.kind(), error.cause()), (kind, cause), "{code:?}");
        }
        let hostile = Status::with_details(Code::Internal, "m", Bytes::from_static(b"\xff\xff\xff\xff"));
        assert_eq!(to_error(hostile).cause(), "Protocol");
    }
}
