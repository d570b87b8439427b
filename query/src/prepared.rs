//! A statement that is read once and asked often, with other values each time.
//!
//! It is planned again each time, against the moment of that time: planning takes a fraction of a millisecond, and a plan
//! that was kept would hold its snapshot, and with it the space of all values that the snapshot shows.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::ending::Ending;
use crate::error::Result;
use crate::placeholder::{Parameters, refused};
use crate::plan::Planned;
use crate::room::Roomy;
use crate::session::Session;
use crate::stream::{Batches, RowStream};

/// A statement with places for values: `$1`, `$2`, or `?` for the next, or `$name`.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{Float32Array, RecordBatch};
/// use forebay_query::Session;
/// use forebay_store::{DataType, Options, Schema, Store};
/// # let dir = tempfile::tempdir()?;
/// # let store = Store::open(dir.path().join("store"), Options::default())?;
/// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
/// solver.insert(0, "q17_0_0", [("reward", 1.0.into())])?;
/// solver.insert(0, "q17_0_1", [("reward", 0.25.into())])?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let prepared = Session::new(&store)?.prepare("SELECT sample_id FROM solver WHERE reward > ?").await?;
/// assert_eq!(prepared.schema().field(0).name(), "sample_id");
/// assert_eq!(prepared.parameters().fields().len(), 1);
///
/// let values = RecordBatch::try_from_iter([("1", Arc::new(Float32Array::from(vec![0.5])) as _)])?;
/// assert_eq!(prepared.stream(Some(&values)).await?.collect().await?.row_count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Prepared {
    session: Session,
    sql: Arc<str>,
    schema: SchemaRef,
    parameters: Parameters,
}

impl Prepared {
    pub(crate) fn new(session: Session, sql: &str, schema: SchemaRef, parameters: Parameters) -> Self {
        Prepared { session, sql: sql.into(), schema, parameters }
    }

    /// What is kept for it, in bytes: its text, and what is known of its columns and parameters.
    pub fn bytes(&self) -> usize {
        self.sql.len() + self.schema.fields().size() + self.parameters.schema.fields().size()
    }

    /// The columns of the answer. Where a parameter's type is not told by the statement, a column's type may become
    /// another with its value; the answer's own schema counts.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// A field a parameter: `$1`, `$2` … in order, or the names in alphabetical order. Its type is `Null` where the
    /// statement does not tell it.
    pub fn parameters(&self) -> &SchemaRef {
        &self.parameters.schema
    }

    /// Answers the statement with the values of each row of `values`, one after the other, all from one moment of the
    /// store. Columns are taken in their order for numbered parameters, by their name for named ones. A statement without
    /// parameters needs none.
    ///
    /// # Errors
    /// As for [`Session::stream`]; [`Kind::Input`](crate::Kind::Input) too when values are missing.
    pub async fn stream(&self, values: Option<&RecordBatch>) -> Result<RowStream> {
        let ending = self.session.ending();
        let (schema, batches) = ending.bound(Roomy::new(self.start(values, &ending))).await?;
        Ok(RowStream::new(schema, batches, ending, self.session.rows_max()))
    }

    async fn start(&self, values: Option<&RecordBatch>, ending: &Ending) -> Result<(SchemaRef, Batches)> {
        let planned = self.session.plan(&self.sql, ending).await?;
        if self.parameters.is_empty() {
            return planned.start().await;
        }
        let values = values.filter(|values| values.num_rows() > 0).cloned().ok_or_else(|| {
            let count = self.parameters.schema.fields().len();
            refused(format!("the statement has {count} parameters, and no values were given"))
        })?;
        let (schema, first) = self.bound(&planned, &values, 0)?.start().await?;
        let (this, expected) = (self.clone(), schema.clone());
        let rest = stream::iter(1..values.num_rows()).then(move |row| {
            let bound = this.bound(&planned, &values, row);
            let expected = expected.clone();
            async move {
                let (schema, batches) = bound?.start().await?;
                match schema == expected {
                    true => Ok(batches),
                    false => Err(refused(format!(
                        "the values of row {row} give other columns than those of row 0"
                    ))),
                }
            }
        });
        let rest = rest.map_err(datafusion::error::DataFusionError::from).try_flatten();
        Ok((schema, Box::pin(Roomy::new(first.chain(rest)))))
    }

    fn bound(&self, planned: &Planned, values: &RecordBatch, row: usize) -> Result<Planned> {
        planned.with_values(&self.parameters.bind(values, row)?)
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("sql", &self.sql).finish_non_exhaustive()
    }
}
