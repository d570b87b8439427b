//! A table of which some versions are live and others archived.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Statistics, internal_datafusion_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use forebay_store::TableSnapshot;

use super::columns::Columns;
use super::contents::{Contents, Found};
use super::fault::ArchiveFault;
use super::folder::Archive;
use super::manifest::Manifest;
use super::scan::{Wanted, plans};
use super::statistics::of_versions;

/// The table of a name: the live one, and what the archive adds to it. `None` where there is neither.
///
/// # Errors
/// When the columns of an archived table cannot be told.
pub(crate) fn table(
    contents: &Contents,
    name: &str,
    live: Option<(&TableSnapshot, Arc<dyn TableProvider>)>,
) -> PlanResult<Option<Arc<dyn TableProvider>>> {
    let Some((archive, found)) = contents.of_table(name) else {
        return Ok(live.map(|(_, provider)| provider));
    };
    let snapshot = live.as_ref().map(|(snapshot, _)| *snapshot);
    let gone = found.iter().filter(|(version, found)| is_read(snapshot, **version, found));
    let versions: BTreeMap<u64, Found> = gone.map(|(version, found)| (*version, found.clone())).collect();
    if versions.is_empty() && live.is_some() {
        return Ok(live.map(|(_, provider)| provider));
    }
    let columns = match &live {
        Some((snapshot, live)) => Columns::of_table(snapshot.schema(), live.schema()),
        None => columns_of(archive, &versions)?,
    };
    let live = live.map(|(_, provider)| provider);
    Ok(Some(Arc::new(SpanningTable { archive: archive.clone(), versions, columns, live })))
}

/// Whether a version is read from the archive beside what a store shows: not while its rows are there, and then only where they
/// left for the archive, if its manifest is one of those of which the store says so. A version to which the store never came was moved out
/// of the one that it is an older copy of.
fn is_read(live: Option<&TableSnapshot>, version: u64, found: &Found) -> bool {
    let Some(live) = live else { return true };
    let is_told = found.as_ref().is_ok_and(|manifest| manifest.told);
    let is_out = !is_told || live.is_moved_out(version) || !live.came_to(version);
    !live.has_version(version) && is_out
}

/// The columns of a table that is only in the archive, those of its damaged versions left out: they cannot be told.
fn columns_of(archive: &Archive, versions: &BTreeMap<u64, Found>) -> PlanResult<Columns> {
    let mut sound = versions.values().rev().filter_map(|found| found.as_ref().ok()).peekable();
    if sound.peek().is_none()
        && let Some(Err(fault)) = versions.values().next()
    {
        return Err(archive.plan_fault(fault.clone()));
    }
    Columns::of_versions(sound).map_err(|(manifest, error)| {
        let manifest = manifest.name().path().to_string();
        archive.plan_fault(ArchiveFault::Manifest { manifest, reason: error.to_string() })
    })
}

/// Live rows and archived ones, in one.
#[derive(Debug)]
struct SpanningTable {
    archive: Archive,
    versions: BTreeMap<u64, Found>,
    columns: Columns,
    live: Option<Arc<dyn TableProvider>>,
}

impl SpanningTable {
    async fn scan_live(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(live) = &self.live else { return Ok(None) };
        let taken = live.supports_filters_pushdown(&filters.iter().collect::<Vec<_>>())?;
        let taken =
            filters.iter().zip(taken).filter(|(_, how)| *how != TableProviderFilterPushDown::Unsupported);
        let taken: Vec<Expr> = taken.map(|(filter, _)| filter.clone()).collect();
        live.scan(session, projection, &taken, limit).await.map(Some)
    }
}

#[async_trait]
impl TableProvider for SpanningTable {
    fn schema(&self) -> SchemaRef {
        self.columns.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Of live rows as their store knows them, of archived ones as their manifests do; nothing where one of these is damaged.
    fn statistics(&self) -> Option<Statistics> {
        let sound: Option<Vec<&Arc<Manifest>>> =
            self.versions.values().map(|found| found.as_ref().ok()).collect();
        let archived = of_versions(&self.columns.schema, sound?.into_iter());
        let Some(live) = &self.live else { return Some(archived) };
        Statistics::try_merge_iter([&archived, &live.statistics()?], &self.columns.schema).ok()
    }

    /// Every filter helps to leave something out, and none is relied on: the plan filters again.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        let helps = |filter: &&Expr| match filter.is_volatile() {
            true => TableProviderFilterPushDown::Unsupported,
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(helps).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let live = self.scan_live(session, projection, filters, limit).await?;
        let wanted = Wanted { columns: &self.columns, projection, filters, limit };
        let archived = plans(session, &self.archive, &self.versions, &wanted)?;
        let mut parts: Vec<Arc<dyn ExecutionPlan>> = live.into_iter().chain(archived).collect();
        match parts.len() {
            0 => {
                let schema = match projection {
                    Some(positions) => Arc::new(self.columns.schema.project(positions)?),
                    None => self.columns.schema.clone(),
                };
                Ok(Arc::new(EmptyExec::new(schema)))
            }
            1 => parts.pop().ok_or_else(|| internal_datafusion_err!("one plan, and none")),
            _ => UnionExec::try_new(parts),
        }
    }
}
