//! Which request goes where, and the small answers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use forebay_query::{QueryThreads, Session};
use forebay_store::Store;

use crate::access::Caller;
use crate::builder::Builder;
use crate::doors::Doors;
use crate::failure::Failure;
use crate::gathered::Gathered;
use crate::grpc::Tally;
use crate::grpc::room::Shares;
use crate::queries::Queries;
use crate::readers::Readers;
use crate::server::QUERY_THREADS;
use crate::{guard, metrics, sql};

/// What all requests share.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) session: Session,
    /// Of queries.
    pub(crate) turns: Shares,
    pub(crate) threads: Arc<QueryThreads>,
    pub(crate) query_time_max: Duration,
    pub(crate) piece_time_max: Duration,
    pub(crate) any_host: bool,
    pub(crate) readers: Readers,
    /// Whether who reads has to show a certificate.
    pub(crate) certified: bool,
    pub(crate) queries: Queries,
    pub(crate) clients: Tally,
    pub(crate) doors: Doors,
    pub(crate) gathered: Gathered,
    body_bytes_max: usize,
}

impl App {
    pub(crate) fn new(
        settings: &Builder,
        store: Store,
        session: Session,
        threads: Arc<QueryThreads>,
    ) -> Self {
        let gathered = Gathered::new(settings.query_memory_bytes_max);
        let Builder { body_bytes_max, query_time_max, clients: of_clients, .. } = settings;
        let piece_time_max = of_clients.limits.piece_time_max;
        let readers = settings.readers_who();
        let certified = settings.tls.as_ref().is_some_and(|tls| tls.client_authority.is_some());
        let (turns, queries) = (Shares::new(QUERY_THREADS as u32, *query_time_max), Queries::default());
        let (clients, doors) = (Tally::default(), Doors::default());
        let any_host = settings.allow_remote || !readers.is_open(); // a web page knows no token
        App {
            store,
            session,
            turns,
            threads,
            query_time_max: *query_time_max,
            piece_time_max,
            any_host,
            readers,
            certified,
            queries,
            clients,
            doors,
            gathered,
            body_bytes_max: *body_bytes_max,
        }
    }
}

pub(crate) fn router(app: App) -> Router {
    let limit = DefaultBodyLimit::max(app.body_bytes_max);
    Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/sql", post(sql::answer))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(limit)
        .layer(middleware::from_fn_with_state(app.clone(), guard::check_reader))
        .layer(middleware::from_fn_with_state(app.clone(), guard::check_host))
        .with_state(app)
}

async fn health() -> &'static str {
    "ok\n"
}

/// Ready as long as the store accepts calls.
async fn ready(State(app): State<App>) -> Response {
    match app.store.closed() {
        Some(reason) => {
            let message = format!("the store is closed: {reason}; open it again");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "closed", message).into_response()
        }
        None => "ready\n".into_response(),
    }
}

/// What is counted, of all tables: for who sees all of them.
async fn metrics(State(app): State<App>, Extension(caller): Extension<Caller>) -> Response {
    if let Err(error) = caller.check_all_tables() {
        return guard::refusal(&error);
    }
    let page = metrics::text(&app.store, &app.queries.counts(), &app.clients, &app.doors);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

async fn unknown() -> Failure {
    let message = "there are GET /health, /ready and /metrics, and POST /sql";
    Failure::new(StatusCode::NOT_FOUND, "input", message.to_owned())
}

async fn wrong_method() -> Failure {
    let message = "use GET for /health, /ready and /metrics, and POST for /sql";
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "input", message.to_owned())
}
