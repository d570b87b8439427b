//! What a client is told when a request fails: a status, and `{"kind": …, "message": …}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_query::{Cause, Error, Kind};
use serde_json::json;

/// A failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Failure { status, kind, message }
    }

    pub(crate) fn input(message: String) -> Self {
        Failure::new(StatusCode::BAD_REQUEST, "input", message)
    }

    pub(crate) fn capacity(message: String) -> Self {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "capacity", message)
    }

    /// The word for what its client does next.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, kind) = match (error.kind(), error.cause()) {
            (_, Cause::Store { source }) if source.kind() == forebay_store::Kind::Closed => {
                (StatusCode::SERVICE_UNAVAILABLE, source.kind().as_str())
            }
            (_, Cause::Store { source }) => (StatusCode::INTERNAL_SERVER_ERROR, source.kind().as_str()),
            (kind @ Kind::Input, _) => (StatusCode::BAD_REQUEST, kind.as_str()),
            (kind @ Kind::ReadOnly, _) => (StatusCode::FORBIDDEN, kind.as_str()),
            (kind @ Kind::Capacity, _) => (StatusCode::SERVICE_UNAVAILABLE, kind.as_str()),
            (kind @ Kind::Archive, _) => (StatusCode::BAD_GATEWAY, kind.as_str()),
            (kind @ (Kind::Store | Kind::Bug), _) => (StatusCode::INTERNAL_SERVER_ERROR, kind.as_str()),
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a query failed");
        }
        Failure::new(status, kind, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({"kind": self.kind, "message": self.message});
        (self.status, Json(body)).into_response()
    }
}
