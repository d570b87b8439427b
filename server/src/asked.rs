//! SQL for a client whose store is in this process.
//!
//! A question that is awaited runs on two threads of its own, for computing it seldom pauses and who asks may have other things to
//! do: one sees when it is given up, one plans it and computes. It holds the store until both are gone.

use forebay_client::{Answer, Answering, Error, Queries};
use forebay_query::{Cause, Kind, QueryThreads, Session};
use tokio::sync::oneshot;

/// Answers the queries of an embedded client, which by itself compiles no SQL engine.
///
/// ```
/// use std::sync::Arc;
/// use forebay_client::{Client, Embedded};
/// use forebay_query::Session;
/// use forebay_server::Asked;
/// use forebay_store::{Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// let asked = Asked::new(Session::new(&store)?);
/// let client = Client::over(Arc::new(Embedded::new(store).with_queries(Arc::new(asked))));
/// let (schema, rows) = client.query("SELECT 40 + 2 AS answer")?;
/// assert_eq!((schema.field(0).name().as_str(), rows[0].num_rows()), ("answer", 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Asked(Session);

impl Asked {
    /// Answers with that session.
    pub fn new(session: Session) -> Self {
        Asked(session)
    }

    /// The failure of a query, in the store's kinds.
    pub fn failure(error: &forebay_query::Error) -> Error {
        failure(error)
    }
}

impl Queries for Asked {
    fn query(&self, statement: &str) -> Result<Answer, Error> {
        let answer = self.0.sql_blocking(statement).map_err(|error| failure(&error))?;
        Ok((answer.schema, answer.batches))
    }

    fn query_async(&self, statement: &str) -> Result<Answering, Error> {
        let (session, statement) = (self.0.clone(), statement.to_owned());
        let (asking, given_up) = oneshot::channel::<()>();
        let (give, given) = oneshot::channel();
        let compute = move || {
            // Nobody is there to take it when the question was given up.
            let _ = give.send(answer(&session, &statement, given_up));
        };
        let thread = std::thread::Builder::new().name("question".into()).spawn(compute);
        thread.map_err(|error| no_room(&error))?;
        Ok(Box::pin(async move {
            let answer = given.await.unwrap_or_else(|_| Err(lost()));
            drop(asking);
            answer
        }))
    }
}

/// Answers, unless the question is given up: that ends it.
fn answer(session: &Session, statement: &str, given_up: oneshot::Receiver<()>) -> Result<Answer, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let threads = QueryThreads::new(1).map_err(|error| no_room(&error))?;
    runtime.map_err(|error| no_room(&error))?.block_on(async {
        let (session, statement) = (session.clone(), statement.to_owned());
        let planned = threads.run(async move { session.stream(&statement).await });
        let asked = async { planned.await?.driven_by(&threads, ()).collect().await };
        tokio::select! {
            answer = asked => {
                answer.map(|answer| (answer.schema, answer.batches)).map_err(|error| failure(&error))
            }
            _ = given_up => Err(Error::new(forebay_store::Kind::State, "GivenUp", "the question was given up")),
        }
    })
}

fn no_room(error: &std::io::Error) -> Error {
    let message = format!("no thread for the question: {error}; raise the limit of the process");
    Error::new(forebay_store::Kind::Capacity, "Threads", message)
}

fn lost() -> Error {
    let message = "the question ended without an answer; this is a bug of forebay, please report it";
    Error::new(forebay_store::Kind::State, "Bug", message)
}

/// The failure of a query, in the store's kinds.
pub(crate) fn failure(error: &forebay_query::Error) -> Error {
    use forebay_store::Kind as Next;
    let (kind, cause) = match (error.kind(), error.cause()) {
        (_, Cause::Store { source }) => (source.kind(), "Store"),
        (_, Cause::Time { .. }) => (Next::Capacity, "Deadline"),
        (Kind::Input, _) => (Next::Input, "Query"),
        (Kind::ReadOnly, _) => (Next::Input, "ReadOnly"),
        (Kind::Capacity, _) => (Next::Capacity, "Query"),
        (Kind::Archive, _) => (Next::State, "Archive"),
        (Kind::Store | Kind::Bug, _) => (Next::State, "Bug"),
    };
    Error::new(kind, cause, error.to_string())
}
