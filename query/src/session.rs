//! A session: answers queries over one store.
//!
//! A query goes: parse, refuse what would write, take one moment of the store, plan against it, run. The planner's
//! functions and rules are set up once a session; a query gets a copy of them over a catalog of its own, so that every
//! name in it resolves to the same snapshot.
//!
//! Any number of threads may ask at once. A query runs on the thread (or task) that waits for it and takes one core.

use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::collect;
use datafusion::prelude::{SQLOptions, SessionConfig};
use forebay_store::Store;

use crate::answer::Answer;
use crate::catalog::{CATALOG, Catalogs, PUBLIC};
use crate::error::{Cause, Error, Result};
use crate::functions::{self, Tokenizers};
use crate::options::Options;
use crate::statement;
use crate::system::Moment;
use crate::travel;

/// Answers SQL over an open store. Cheap to clone; clones share their memory budget.
///
/// ```
/// use forebay_query::{Format, Session};
/// use forebay_store::{DataType, Options, Schema, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
/// solver.insert(0, "q17_0_0", [("reward", 1.0.into())])?;
/// solver.insert(0, "q17_0_1", [("reward", 0.0.into())])?;
///
/// let session = Session::new(&store)?;
/// let answer = session.sql_blocking("SELECT policy_version, avg(reward) AS mean FROM solver GROUP BY 1")?;
/// let mut json = Vec::new();
/// answer.render(Format::Json, &mut json, None)?;
/// assert_eq!(json, b"[{\"policy_version\":0,\"mean\":0.5}]\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Session {
    store: Store,
    base: Arc<SessionState>,
}

impl Session {
    /// A session with default [`Options`].
    ///
    /// # Errors
    /// As for [`Session::with_options`].
    pub fn new(store: &Store) -> Result<Self> {
        Self::with_options(store, &Options::default())
    }

    /// A session that may use what `options` say.
    ///
    /// # Errors
    /// [`Kind::Bug`](crate::Kind::Bug) when the query engine cannot be set up.
    pub fn with_options(store: &Store, options: &Options) -> Result<Self> {
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, PUBLIC)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .with_batch_size(options.batch_rows)
            .with_target_partitions(options.partitions);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(options.memory_bytes_max)))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
            .build_arc()?;
        let mut base = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .build();
        let files = options.tokenizers.iter().map(|(name, path)| (name.as_str(), path.as_path()));
        functions::register(&mut base, Tokenizers::read(files)?)?;
        Ok(Session { store: store.clone(), base: Arc::new(base) })
    }

    /// Answers one statement. What it sees is the store at the moment of the call; dropping the future ends the query.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::Kind::Input) for what is not SQL, names unknown things or cannot be computed;
    /// `ReadOnly` for a statement that would write; `Capacity` beyond the memory budget; `Store` when values cannot be
    /// read.
    pub async fn sql(&self, sql: &str) -> Result<Answer> {
        let mut statement = statement::parse(sql)?;
        statement::check_reads_only(&statement)?;
        travel::spell_out_names(&mut statement);
        let catalogs = Catalogs::new(Moment::of(&self.store));
        let state = self.state_over(&catalogs);
        let plan = state.statement_to_plan(statement).await.map_err(|error| catalogs.name_missing(error))?;
        let reads_only =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        reads_only.verify_plan(&plan).map_err(|_| statement::refused("this statement"))?;
        let plan = state.create_physical_plan(&plan).await?;
        let schema = plan.schema();
        let batches = collect(plan, state.task_ctx()).await?;
        Ok(Answer { schema, batches })
    }

    /// [`Session::sql`] for synchronous callers, from any thread, async ones included (whose runtime it blocks).
    ///
    /// # Errors
    /// As for [`Session::sql`].
    pub fn sql_blocking(&self, sql: &str) -> Result<Answer> {
        if tokio::runtime::Handle::try_current().is_err() {
            return self.run_here(sql);
        }
        // A runtime cannot be entered from inside another one, but a fresh thread is in none.
        std::thread::scope(|scope| match scope.spawn(|| self.run_here(sql)).join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    fn run_here(&self, sql: &str) -> Result<Answer> {
        let workers = self.base.config().target_partitions();
        let runtime = match workers {
            1 => tokio::runtime::Builder::new_current_thread().build(),
            workers => tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build(),
        };
        let runtime = runtime.map_err(|error| Error::from(Cause::Bug { reason: error.to_string() }))?;
        runtime.block_on(self.sql(sql))
    }

    fn state_over(&self, catalogs: &Catalogs) -> SessionState {
        let mut state = SessionStateBuilder::new_from_existing((*self.base).clone())
            .with_catalog_list(Arc::new(catalogs.clone()))
            .build();
        travel::register(&mut state, catalogs);
        state
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("store", &self.store.path()).finish_non_exhaustive()
    }
}
