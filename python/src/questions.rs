//! SQL over a store in this process: the engine is set up by the first question, and may use what the store was opened with.

use std::sync::OnceLock;

use forebay::client::{self, Answering, Queries};
use forebay::query::{self, Session};
use forebay::server::Asked;
use forebay::store::Store;

/// Answers the questions of an opened store. What is read only takes in what its writer has written before each.
#[derive(Debug)]
pub(crate) struct Questions {
    store: Store,
    options: query::Options,
    asked: OnceLock<Asked>,
}

impl Questions {
    pub(crate) fn of(store: &Store, options: query::Options) -> Self {
        let options = options.refresh(store.is_read_only());
        Questions { store: store.clone(), options, asked: OnceLock::new() }
    }

    fn asked(&self) -> client::Result<&Asked> {
        if let Some(asked) = self.asked.get() {
            return Ok(asked);
        }
        let session = Session::with_options(&self.store, &self.options);
        let session = session.map_err(|error| Asked::failure(&error))?;
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
