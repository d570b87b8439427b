//! `POST /sql`: the body is the query, the answer comes in the form that `Accept` asks for.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_query::{Answer, Format};

use crate::access::Caller;
use crate::failure::Failure;
use crate::gathered::Taken;
use crate::routes::App;

/// Media types, with the format and the full name of each; the first is for whoever does not care.
const MEDIA: [(&str, Format, &str); 5] = [
    ("application/json", Format::Json, "application/json"),
    ("text/csv", Format::Csv, "text/csv; charset=utf-8; header=present"),
    ("text/plain", Format::Table, "text/plain; charset=utf-8"),
    ("application/vnd.apache.arrow.stream", Format::Arrow, "application/vnd.apache.arrow.stream"),
    ("application/vnd.apache.parquet", Format::Parquet, "application/vnd.apache.parquet"),
];

pub(crate) async fn answer(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Failure> {
    let (format, content_type) = acceptable(request.headers())?;
    let body = sent(&app, request).await?;
    let sql = std::str::from_utf8(&body).map_err(|error| {
        Failure::new(StatusCode::BAD_REQUEST, "input", format!("the query is not UTF-8: {error}"))
    })?;
    let (answer, kept) = in_time(&app, &caller, sql).await?;
    let rendered = app.gathered.rendered(&answer, format)?;
    drop((answer, kept));
    Ok(([(header::CONTENT_TYPE, content_type)], rendered).into_response())
}

/// The body of a request, which has to come in the time for a piece: it is no larger.
async fn sent(app: &App, request: Request) -> Result<Bytes, Failure> {
    let time = app.piece_time_max;
    match tokio::time::timeout(time, Bytes::from_request(request, app)).await {
        Ok(body) => body.map_err(|error| Failure::new(error.status(), "input", error.body_text())),
        Err(_) => {
            let message = format!("the request's body took longer than {time:?} to come; send it at once");
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "input", message))
        }
    }
}

/// Waits for a turn and runs the query, all of it within the time that a query may take.
async fn in_time(app: &App, caller: &Caller, sql: &str) -> Result<(Answer, Taken), Failure> {
    let (session, query) = (caller.session(&app.session), Arc::new(app.queries.begin("http", None)));
    let run = async {
        let turn = app.turns.turn_at_last(&caller.name).await; // turns are never closed
        let keeps = (turn, query.clone());
        let sql = sql.to_owned();
        let rows = app.threads.run(async move { session.stream(&sql).await }).await?;
        app.gathered.collect(rows.driven_by(&app.threads, keeps)).await
    };
    match tokio::time::timeout(app.query_time_max, run).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            query.failed(error.kind());
            Err(error)
        }
        Err(_) => {
            query.failed("capacity");
            let time = app.query_time_max;
            let message =
                format!("the query took longer than {time:?}; ask for less, or raise `query_time_max`");
            Err(Failure::capacity(message))
        }
    }
}

/// The first media type of `Accept` that can be given.
fn acceptable(headers: &HeaderMap) -> Result<(Format, &'static str), Failure> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("*/*");
    let wanted = accept.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
    let fits = |range: &str, media: &str| {
        let family = range.strip_suffix("/*").is_some_and(|family| media.split('/').next() == Some(family));
        range == "*/*" || range.eq_ignore_ascii_case(media) || family
    };
    let found = wanted.flat_map(|range| MEDIA.iter().find(|(media, ..)| fits(range, media))).next();
    found.map(|(_, format, content_type)| (*format, *content_type)).ok_or_else(|| {
        let known = MEDIA.map(|(media, ..)| media).join(", ");
        let message = format!("{accept:?} cannot be given; accept one of {known}");
        Failure::new(StatusCode::NOT_ACCEPTABLE, "input", message)
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_first_form_that_can_be_given_is() {
        let format = |accept: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            acceptable(&headers).ok().map(|(format, _)| format)
        };
        assert_eq!(format("*/*"), Some(Format::Json));
        assert_eq!(format("text/csv"), Some(Format::Csv));
        assert_eq!(format("text/*"), Some(Format::Csv));
        assert_eq!(format("text/html, text/plain;q=0.9, */*;q=0.1"), Some(Format::Table));
        assert_eq!(format("application/vnd.apache.parquet"), Some(Format::Parquet));
        assert_eq!(format("image/png"), None);
        assert!(matches!(acceptable(&HeaderMap::new()), Ok((Format::Json, _))));
    }
}
