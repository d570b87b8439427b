//! `lineage('solver/q1_0_0')`: a row, the rows that it continues, and those that continue it, over all tables, whether
//! their rows are in the store or in its archive.
//!
//! A row names the one that it continues as `TABLE/SAMPLE_ID` (`parent`), or the row before it in its trajectory names its agent
//! (`next_agent_id`). `depth` is 0 for the row itself, negative for what came before it, positive for what came of it. A sample
//! that is there in several versions or attempts is as many rows, each with its own family; `version => 3` asks for one version.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, StringBuilder, UInt32Builder, UInt64Builder};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::family::Family;
use super::member::Member;
use super::{number, text};
use crate::catalog::Catalogs;

/// The function `lineage`.
#[derive(Debug)]
pub(super) struct LineageOf(pub(super) Catalogs);

impl TableFunctionImpl for LineageOf {
    fn call_with_args(&self, arguments: TableFunctionArgs<'_, '_>) -> PlanResult<Arc<dyn TableProvider>> {
        let (row, version) = match arguments.exprs() {
            [row] => (row, None),
            [row, kind, version] => (row, Some(of_version(kind, version)?)),
            _ => return plan_err!("lineage takes one row, and maybe its version: {EXAMPLE}"),
        };
        let Some(row) = text(row).filter(|row| row.contains('/')) else {
            return plan_err!("lineage takes a row as TABLE/SAMPLE_ID: lineage('solver/q1_0_0')");
        };
        let table = row.split('/').next().unwrap_or_default();
        if !self.0.agent_tables().iter().any(|known| known == table) {
            return plan_err!("table '{table}' not found");
        }
        let (catalogs, row) = (self.0.clone(), row.to_owned());
        Ok(Arc::new(Lineage { catalogs, row, version, schema: schema() }))
    }
}

const EXAMPLE: &str = "lineage('solver/q1_0_0', version => 3)";

fn of_version(kind: &Expr, version: &Expr) -> PlanResult<u64> {
    match (text(kind).map(str::to_lowercase).as_deref(), number(version)) {
        (Some("version"), Some(version)) => Ok(version),
        (Some("version"), None) => plan_err!("a version is a whole number: {EXAMPLE}"),
        _ => plan_err!("lineage takes version => n beside the row: {EXAMPLE}"),
    }
}

/// The family of one row; looked for when it is read.
#[derive(Debug)]
struct Lineage {
    catalogs: Catalogs,
    row: String,
    version: Option<u64>,
    schema: SchemaRef,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("depth", DataType::Int32, false),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("sample_id", DataType::Utf8, false),
        Field::new("policy_version", DataType::UInt64, false),
        Field::new("attempt", DataType::UInt32, false),
        Field::new("parent", DataType::Utf8, true),
    ]))
}

#[async_trait]
impl TableProvider for Lineage {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let found = Family::new(session, &self.catalogs)?.around(&self.row, self.version).await?;
        let batch = batch(&found, &self.schema)?;
        let table = MemTable::try_new(self.schema.clone(), vec![vec![batch]])?;
        table.scan(session, projection, filters, limit).await
    }
}

fn batch(found: &[(i32, Member)], schema: &SchemaRef) -> PlanResult<RecordBatch> {
    let (mut depths, mut versions) = (Int32Builder::new(), UInt64Builder::new());
    let (mut tables, mut samples) = (StringBuilder::new(), StringBuilder::new());
    let (mut attempts, mut parents) = (UInt32Builder::new(), StringBuilder::new());
    for (depth, Member { table, sample, version, attempt, parent, .. }) in found {
        depths.append_value(*depth);
        tables.append_value(table);
        samples.append_value(sample.to_string());
        versions.append_value(*version);
        attempts.append_value(*attempt);
        parents.append_option(parent.as_ref());
    }
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(depths.finish()),
        Arc::new(tables.finish()),
        Arc::new(samples.finish()),
        Arc::new(versions.finish()),
        Arc::new(attempts.finish()),
        Arc::new(parents.finish()),
    ];
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}
