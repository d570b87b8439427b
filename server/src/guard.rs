//! Refuses requests of who may not read: without a token, where they are asked for, or with one for something else; without a
//! certificate, where those are; and under a foreign host name. A connection stays once somebody was let in over it.
//!
//! A web page can make its own name resolve to 127.0.0.1 and then read, in its visitor's browser, what a server on
//! loopback answers. The browser sends the page's name as host, so a server that is for this machine only answers under
//! this machine's names only.

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use forebay_client::Error;

use crate::connections::Known;
use crate::failure::Failure;
use crate::routes::App;

pub(crate) async fn check_host(State(app): State<App>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if app.any_host || is_here(host) {
        return next.run(request).await;
    }
    let message = format!("this server answers as localhost or 127.0.0.1 only, not as {host:?}");
    Failure::new(StatusCode::FORBIDDEN, "input", message).into_response()
}

/// What tells nothing of the store is told to everybody.
const OPEN: [&str; 2] = ["/health", "/ready"];

/// Lets in who may read, and says to what follows who that is.
pub(crate) async fn check_reader(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let known = request.extensions().get::<ConnectInfo<Known>>().map(|ConnectInfo(known)| known);
    let caller = match app.certified && !known.is_some_and(Known::is_certified) {
        true => Err(uncertified()),
        false => app.readers.caller(header.unwrap_or_default()).map_err(|error| refusal(&error)),
    };
    match caller {
        Ok(caller) => {
            known.into_iter().for_each(Known::let_in);
            request.extensions_mut().insert(caller);
        }
        Err(_) if OPEN.contains(&request.uri().path()) => {}
        Err(refusal) => return refusal,
    }
    next.run(request).await
}

fn uncertified() -> Response {
    let message =
        "show a certificate that the server's authority has signed; only /health and /ready want none";
    Failure::new(StatusCode::FORBIDDEN, "input", message.to_owned()).into_response()
}

pub(crate) fn refusal(error: &Error) -> Response {
    let failure = |status| Failure::new(status, error.kind().as_str(), error.to_string());
    match error.cause() {
        "Forbidden" => failure(StatusCode::FORBIDDEN).into_response(),
        _ => ([(header::WWW_AUTHENTICATE, "Bearer")], failure(StatusCode::UNAUTHORIZED)).into_response(),
    }
}

/// Whether `HOST[:PORT]` names this machine's loopback. No host at all is no browser.
fn is_here(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_here;

    #[test]
    fn only_this_machine_s_names_are_answered_to() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", ""] {
            assert!(is_here(host), "{host}");
        }
        for host in
            ["example.org", "localhost.example.org:80", "10.0.0.1", "127.0.0.1.example.org", "[fe80::1]:80"]
        {
            assert!(!is_here(host), "{host}");
        }
    }
}
