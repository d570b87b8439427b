//! `lineage('solver/q1_0_0')`: a row, the rows that it continues, and those that continue it, over all tables.
//!
//! A row names the one that it continues as `TABLE/SAMPLE_ID` (`parent`). `depth` is 0 for the row itself, negative for what
//! came before it, positive for what came of it. A sample that is there in several versions or attempts is as many rows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, StringBuilder, UInt32Builder, UInt64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use forebay_store::{ScanColumn, TableSnapshot};

use super::text;
use crate::catalog::Catalogs;

/// The function `lineage`.
#[derive(Debug)]
pub(super) struct LineageOf(pub(super) Catalogs);

impl TableFunctionImpl for LineageOf {
    fn call_with_args(&self, arguments: TableFunctionArgs<'_, '_>) -> PlanResult<Arc<dyn TableProvider>> {
        let [row] = arguments.exprs() else {
            return plan_err!("lineage takes one row: lineage('solver/q1_0_0')");
        };
        let Some(row) = text(row).filter(|row| row.contains('/')) else {
            return plan_err!("lineage takes a row as TABLE/SAMPLE_ID: lineage('solver/q1_0_0')");
        };
        Ok(Arc::new(Lineage { catalogs: self.0.clone(), row: row.to_owned(), schema: schema() }))
    }
}

/// The family of one row; looked for when it is read.
#[derive(Debug)]
struct Lineage {
    catalogs: Catalogs,
    row: String,
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
        let batch = Family::of(self.catalogs.moment().snapshot.tables())?.around(&self.row, &self.schema)?;
        let table = MemTable::try_new(self.schema.clone(), vec![vec![batch]])?;
        table.scan(session, projection, filters, limit).await
    }
}

/// A row as far as ancestry goes.
struct Member {
    table: usize,
    sample: String,
    version: u64,
    attempt: u32,
    parent: Option<String>,
}

/// All rows of all tables, by what they are and by what they continue.
struct Family<'a> {
    tables: &'a [TableSnapshot],
    members: Vec<Member>,
    by_name: HashMap<String, Vec<usize>>,
    by_parent: HashMap<String, Vec<usize>>,
}

impl<'a> Family<'a> {
    fn of(tables: &'a [TableSnapshot]) -> PlanResult<Self> {
        let mut family =
            Family { tables, members: Vec::new(), by_name: HashMap::new(), by_parent: HashMap::new() };
        for (number, table) in tables.iter().enumerate() {
            for part in table.parts() {
                family.take(number, &read(table, &table.rows_of(&part))?);
            }
        }
        Ok(family)
    }

    /// Rows of one table: sample id, version, attempt, parent.
    fn take(&mut self, table: usize, batch: &RecordBatch) {
        let (samples, parents) = (batch.column(0).as_string::<i32>(), batch.column(3).as_string::<i32>());
        let versions = batch.column(1).as_primitive::<UInt64Type>().values();
        let attempts = batch.column(2).as_primitive::<UInt32Type>().values();
        for row in 0..batch.num_rows() {
            let sample = samples.value(row).to_owned();
            let parent = parents.is_valid(row).then(|| parents.value(row).to_owned());
            let number = self.members.len();
            self.by_name.entry(format!("{}/{sample}", self.tables[table].name())).or_default().push(number);
            if let Some(parent) = &parent {
                self.by_parent.entry(parent.clone()).or_default().push(number);
            }
            let (version, attempt) = (versions[row], attempts[row]);
            self.members.push(Member { table, sample, version, attempt, parent });
        }
    }

    fn name(&self, member: usize) -> String {
        let Member { table, sample, .. } = &self.members[member];
        format!("{}/{sample}", self.tables[*table].name())
    }

    /// The rows of that name, their ancestors and descendants, each once, by depth.
    fn around(&self, row: &str, schema: &SchemaRef) -> PlanResult<RecordBatch> {
        let own = self.by_name.get(row).cloned().unwrap_or_default();
        let mut seen: HashSet<usize> = own.iter().copied().collect();
        let mut found: Vec<(i32, usize)> = own.iter().map(|member| (0, *member)).collect();
        let none = Vec::new();
        for step in [-1, 1] {
            let (mut depth, mut front) = (0, own.clone());
            while !front.is_empty() {
                depth += step;
                let next = front.iter().flat_map(|member| match step {
                    1 => self.by_parent.get(&self.name(*member)).unwrap_or(&none),
                    _ => {
                        let parent = self.members[*member].parent.as_ref();
                        parent.and_then(|parent| self.by_name.get(parent)).unwrap_or(&none)
                    }
                });
                front = next.copied().filter(|member| seen.insert(*member)).collect();
                found.extend(front.iter().map(|member| (depth, *member)));
            }
        }
        found.sort_unstable();
        self.batch(&found, schema)
    }

    fn batch(&self, found: &[(i32, usize)], schema: &SchemaRef) -> PlanResult<RecordBatch> {
        let (mut depths, mut versions) = (Int32Builder::new(), UInt64Builder::new());
        let (mut tables, mut samples) = (StringBuilder::new(), StringBuilder::new());
        let (mut attempts, mut parents) = (UInt32Builder::new(), StringBuilder::new());
        for (depth, member) in found {
            let Member { table, sample, version, attempt, parent } = &self.members[*member];
            depths.append_value(*depth);
            tables.append_value(self.tables[*table].name());
            samples.append_value(sample);
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
}

fn read(table: &TableSnapshot, rows: &[u32]) -> PlanResult<RecordBatch> {
    let schema = table.arrow_schema();
    let columns = ["sample_id", "policy_version", "attempt", "parent"].map(|name| schema.index_of(name));
    let columns = columns.into_iter().map(|at| at.map(ScanColumn::Value)).collect::<Result<Vec<_>, _>>()?;
    table.read(rows, &columns).map_err(|error| DataFusionError::External(Box::new(error)))
}
