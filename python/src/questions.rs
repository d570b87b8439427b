//! SQL over a store in this process: the engine is set up by the first question.

use std::sync::OnceLock;

use forebay::client::{self, Answering, Queries};
use forebay::query::{self, Session};
use forebay::server::Asked;
use forebay::store::Store;

/// Answers the questions of an opened store. What is read only takes in what its writer has written before each.
#[derive(Debug)]
pub(crate) struct Questions {
    store: Store,
    asked: OnceLock<Asked>,
}

impl Questions {
    pub(crate) fn of(store: &Store) -> Self {
        Questions { store: store.clone(), asked: OnceLock::new() }
    }

    fn asked(&self) -> client::Result<&Asked> {
        if let Some(asked) = self.asked.get() {
            return Ok(asked);
        }
        let options = query::Options::default().refresh(self.store.is_read_only());
        let session = Session::with_options(&self.store, &options).map_err(|error| Asked::failure(&error))?;
        Ok(self.asked.get_or_init(|| Asked::new(session)))
    }
}

impl Queries for Questions {
    fn query(&self, statement: &str) -> client::Result<client::Answer> {
        self.asked()?.query(statement)
    }

    fn query_async(&self, statement: &str) -> client::Result<Answering> {
        self.asked()?.query_async(statement)
    }
}
