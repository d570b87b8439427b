//! What a caller hears of a connection that failed: where it went, why, and the way out. What the transport has to say of it is the
//! source of the error, for whoever looks for more.

use std::error::Error as _;
use std::time::Duration;

use forebay_store::Kind;
use tonic::{Code, Status};

use super::address::Address;
use crate::error::Error;
use crate::wire::{self, failure_of, to_error};

/// The error of a call that failed, after so much time was given to it.
pub(super) fn call_error(address: &Address, time: Duration, status: Status) -> Error {
    let error = to_error(status.clone());
    match error.cause() {
        _ if failure_of(&status).is_some() => error, // the server's own words
        "Deadline" => late(address, time).because(status),
        "Connection" => unreachable_at(address, &status).because(status),
        _ => error,
    }
}

/// The error of a session that could not be begun.
pub(super) fn opening_error(address: &Address, time: Duration, status: Status) -> Error {
    let has_answered = !matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown);
    if failure_of(&status).is_some() || wire::is_late(&status) || !has_answered {
        return call_error(address, time, status);
    }
    let message = format!(
        "what answers at {address} is no server's address for clients; give that of `forebay serve --grpc` or `--socket` (HTTP and \
         Flight SQL have addresses of their own)"
    );
    Error::new(Kind::Input, "Protocol", message).because(status)
}

/// The error of a server that has said nothing for so long.
pub(super) fn late(address: &Address, time: Duration) -> Error {
    let message = format!(
        "the server at {address} did not answer within {:.1} s, and nobody can tell whether it has made the call",
        time.as_secs_f64()
    );
    Error::new(Kind::Retry, "Deadline", message)
}

fn unreachable_at(address: &Address, status: &Status) -> Error {
    let served = match address {
        Address::Unix(path) => format!("forebay serve --socket {}", path.display()),
        Address::Tcp { authority, .. } => format!("forebay serve --grpc {authority}"),
    };
    let message =
        format!("no server answers at {address} ({}); is `{served}` running there?", reason(status));
    Error::new(Kind::Retry, "Connection", message)
}

/// The innermost reason of a failure.
fn reason(status: &Status) -> String {
    let mut innermost = status.source();
    while let Some(deeper) = innermost.and_then(std::error::Error::source) {
        innermost = Some(deeper);
    }
    innermost.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        "unix:///tmp/none.sock".parse().unwrap()
    }

    fn refused(text: &'static str) -> Status {
        Status::from_error(Box::new(std::io::Error::new(std::io::ErrorKind::NotFound, text)))
    }

    #[test]
    fn a_connection_that_failed_is_told_once_with_its_place_and_the_way_out() {
        let error = call_error(&address(), Duration::from_secs(3), Status::unavailable("tcp connect error"));
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Connection"));
        let told = error.to_string();
        assert!(told.contains("unix:///tmp/none.sock (tcp connect error)"), "{told}");
        assert!(told.contains("`forebay serve --socket /tmp/none.sock`"), "{told}");
        let told = opening_error(&address(), Duration::from_secs(3), refused("no such file")).to_string();
        assert!(told.contains("(no such file)") && told.matches("no such file").count() == 1, "{told}");
        let error = call_error(&address(), Duration::from_millis(2500), Status::deadline_exceeded("late"));
        let told = error.to_string();
        assert!(
            error.cause() == "Deadline" && told.contains("none.sock did not answer within 2.5 s"),
            "{told}"
        );
    }

    #[test]
    fn another_door_is_told_from_a_server_that_refuses() {
        for code in [Code::Internal, Code::Unimplemented, Code::Unauthenticated, Code::PermissionDenied] {
            let error = opening_error(&address(), Duration::ZERO, Status::new(code, "words"));
            assert_eq!((error.kind(), error.cause()), (Kind::Input, "Protocol"), "{code:?}");
            assert!(error.to_string().contains("--socket"), "{error}");
        }
        let own = wire::from_error(&Error::new(Kind::Input, "Unauthenticated", "show a token"));
        let error = opening_error(&address(), Duration::ZERO, own);
        assert_eq!((error.cause(), error.to_string()), ("Unauthenticated", "show a token".to_owned()));
    }
}
