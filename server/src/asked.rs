//! SQL for a client whose store is in this process.

use forebay_client::{Answer, Error, Queries};
use forebay_query::{Cause, Kind, Session};

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
}

impl Queries for Asked {
    fn query(&self, statement: &str) -> Result<Answer, Error> {
        let answer = self.0.sql_blocking(statement).map_err(|error| failure(&error))?;
        Ok((answer.schema, answer.batches))
    }
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
