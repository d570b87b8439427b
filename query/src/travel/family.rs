//! The relatives of a row: those that it continues, and those that continue it, over all tables.
//!
//! One generation at a time, so that what is held in memory is the family and not the tables: parents are looked for by
//! their sample ids, which leave out most parts and files unread; children by a condition on `parent`. Every look is a
//! query over the tables of the moment, live and archived rows in one. It is made from where a plan is made, and ends with
//! it.
//!
//! A row is one version and one attempt of a sample of a table, and comes once, at the generation that it was first met in.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Column;
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use datafusion::physical_plan::collect;
use forebay_store::SampleId;

use crate::catalog::Catalogs;

/// What is read of a row.
const COLUMNS: [&str; 4] = ["sample_id", "policy_version", "attempt", "parent"];

/// A row as far as ancestry goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) table: Arc<str>,
    pub(super) sample: String,
    pub(super) version: u64,
    pub(super) attempt: u32,
    pub(super) parent: Option<String>,
}

impl Member {
    /// What a row that continues this one has as its parent.
    fn name(&self) -> String {
        format!("{}/{}", self.table, self.sample)
    }
}

/// Where to look for relatives.
pub(super) struct Family<'a> {
    session: &'a dyn Session,
    tables: Vec<(Arc<str>, Arc<dyn TableProvider>)>,
}

impl<'a> Family<'a> {
    /// The families in the tables of a query's moment.
    pub(super) fn new(session: &'a dyn Session, catalogs: &Catalogs) -> PlanResult<Self> {
        let mut tables = Vec::new();
        for name in catalogs.agent_tables() {
            if let Some(provider) = catalogs.agent_table(&name)? {
                tables.push((Arc::from(name), provider));
            }
        }
        Ok(Family { session, tables })
    }

    /// The rows of a name, their ancestors (depth below 0) and their descendants (above 0): by depth, and then in the order
    /// of tables, versions, samples and attempts.
    pub(super) async fn around(&self, row: &str) -> PlanResult<Vec<(i32, Member)>> {
        let own = self.named(&HashSet::from([row.to_owned()])).await?;
        let mut seen: HashSet<Member> = own.iter().cloned().collect();
        let mut found: Vec<(i32, Member)> = own.iter().map(|member| (0, member.clone())).collect();
        for step in [-1, 1] {
            let (mut depth, mut front) = (0, own.clone());
            while !front.is_empty() {
                depth += step;
                let next = match step {
                    1 => self.continuing(&front.iter().map(Member::name).collect()).await?,
                    _ => self.named(&front.into_iter().filter_map(|member| member.parent).collect()).await?,
                };
                front = next.into_iter().filter(|member| seen.insert(member.clone())).collect();
                found.extend(front.iter().map(|member| (depth, member.clone())));
            }
        }
        let place: BTreeMap<&str, usize> =
            self.tables.iter().enumerate().map(|(place, (name, _))| (&**name, place)).collect();
        found.sort_by_cached_key(|(depth, member)| {
            let sample = member.sample.parse::<SampleId>().ok();
            (*depth, place.get(&*member.table).copied(), member.version, sample, member.attempt)
        });
        Ok(found)
    }

    /// The rows of these names, each `TABLE/SAMPLE_ID`.
    async fn named(&self, names: &HashSet<String>) -> PlanResult<Vec<Member>> {
        let mut found = Vec::new();
        for (table, provider) in &self.tables {
            let of_table = |name: &String| name.strip_prefix(&**table)?.strip_prefix('/').map(str::to_owned);
            let samples: HashSet<String> = names.iter().filter_map(of_table).collect();
            found.extend(self.look(table, provider, "sample_id", &samples).await?);
        }
        Ok(found)
    }

    /// The rows of all tables that continue rows of these names.
    async fn continuing(&self, names: &HashSet<String>) -> PlanResult<Vec<Member>> {
        let mut found = Vec::new();
        for (table, provider) in &self.tables {
            found.extend(self.look(table, provider, "parent", names).await?);
        }
        Ok(found)
    }

    /// The rows of a table whose `column` has one of the values.
    async fn look(
        &self,
        table: &Arc<str>,
        provider: &Arc<dyn TableProvider>,
        column: &str,
        values: &HashSet<String>,
    ) -> PlanResult<Vec<Member>> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let named = |name: &str| Expr::Column(Column::from_name(name));
        let values = values.iter().map(|value| lit(value.as_str())).collect();
        let plan = LogicalPlanBuilder::scan(&**table, provider_as_source(provider.clone()), None)?
            .filter(Expr::InList(InList::new(Box::new(named(column)), values, false)))?
            .project(COLUMNS.map(named))?
            .build()?;
        let plan = self.session.create_physical_plan(&plan).await?;
        let batches = collect(plan, self.session.task_ctx()).await?;
        Ok(batches.iter().flat_map(|batch| members(table, batch)).collect())
    }
}

/// The rows of a batch of [`COLUMNS`].
fn members(table: &Arc<str>, batch: &RecordBatch) -> Vec<Member> {
    let (samples, parents) = (batch.column(0).as_string_view(), batch.column(3).as_string_view());
    let versions = batch.column(1).as_primitive::<UInt64Type>().values();
    let attempts = batch.column(2).as_primitive::<UInt32Type>().values();
    let member = |row| Member {
        table: table.clone(),
        sample: samples.value(row).to_owned(),
        version: versions[row],
        attempt: attempts[row],
        parent: parents.is_valid(row).then(|| parents.value(row).to_owned()),
    };
    (0..batch.num_rows()).map(member).collect()
}
