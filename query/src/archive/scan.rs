//! The plan to read archived versions of a table: DataFusion's own scan of Parquet, over the files that manifests name.
//!
//! Versions are left out by what the filters say of `policy_version`, without opening a file; then the scan leaves out row
//! groups and pages by their statistics and, for a sample id, by bloom filter. Statistics of floats are not looked at, not in
//! files that have them either: they leave NaN out.
//!
//! Files that call the table's columns alike ([`Names`]) are one scan; above it the columns have the table's names.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PlanColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricBuilder;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::columns::Columns;
use super::contents::Found;
use super::fault::ArchiveFault;
use super::fill::Fill;
use super::folder::Archive;
use super::manifest::{ArchivedFile, Manifest};
use super::names::Names;
use super::places::Places;
use super::reader::Readers;
use super::statistics::of_versions;
use crate::floats::Canonical;

/// The column that tells versions apart.
pub(super) const VERSION: &str = "policy_version";

/// The name by which a session's plans know its archive.
fn object_store_url() -> PlanResult<ObjectStoreUrl> {
    ObjectStoreUrl::parse("forebay-archive://archive")
}

impl Archive {
    /// Makes the archive known to a session's plans.
    pub(crate) fn register(&self, runtime: &RuntimeEnv) -> PlanResult<()> {
        runtime.register_object_store(object_store_url()?.as_ref(), self.objects().clone());
        Ok(())
    }

    /// What is wrong with it, as an error of whoever plans a query.
    pub(super) fn plan_fault(&self, fault: ArchiveFault) -> DataFusionError {
        DataFusionError::External(Box::new(self.fault(fault)))
    }
}

/// What is read of the archive.
pub(super) struct Wanted<'a> {
    /// The columns of the table, whatever those of the files are.
    pub(super) columns: &'a Columns,
    pub(super) projection: Option<&'a Vec<usize>>,
    pub(super) filters: &'a [Expr],
    pub(super) limit: Option<usize>,
}

/// The plans that together read these versions; none when no row of them can pass the filters.
///
/// # Errors
/// When a version may have such a row, and its manifest is damaged or a filter has no answer for it.
pub(super) fn plans<'v>(
    session: &dyn Session,
    archive: &Archive,
    versions: &'v BTreeMap<u64, Found>,
    wanted: &Wanted<'_>,
) -> PlanResult<Vec<Arc<dyn ExecutionPlan>>> {
    let passing = passing(session, versions, wanted.filters)?;
    let mut pruned = versions.len() - passing.len();
    let or_fault = |found: &'v Found| found.as_ref().map_err(|fault| archive.plan_fault(fault.clone()));
    let passing = passing.into_iter().map(or_fault).collect::<PlanResult<Vec<_>>>()?;
    let groups = by_names(passing, wanted.columns)?.into_iter();
    let plans = groups.map(|(names, group)| {
        let pruned = std::mem::take(&mut pruned); // told once, by the first
        Group { names, group, pruned }.plan(session, archive, wanted)
    });
    plans.collect()
}

/// The versions, those together in whose files the columns of the table have the same names.
fn by_names<'a>(
    passing: Vec<&'a Arc<Manifest>>,
    columns: &Columns,
) -> PlanResult<BTreeMap<Names, Vec<&'a Arc<Manifest>>>> {
    // By all that names follow from.
    let mut known: BTreeMap<(&Places, &str, Option<i64>), Names> = BTreeMap::new();
    let mut groups: BTreeMap<Names, Vec<&Arc<Manifest>>> = BTreeMap::new();
    for manifest in passing {
        let told = (&manifest.places, manifest.schema.as_str(), manifest.renames);
        let names: &Names = match known.entry(told) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(new) => new.insert(columns.names_in(&Columns::of_files(manifest)?)),
        };
        match groups.get_mut(names) {
            Some(group) => group.push(manifest),
            None => _ = groups.insert(names.clone(), vec![manifest]),
        }
    }
    Ok(groups)
}

/// Versions in whose files the columns of the table have the same names.
struct Group<'a> {
    names: Names,
    group: Vec<&'a Arc<Manifest>>,
    /// How many versions the filters ruled out.
    pruned: usize,
}

impl Group<'_> {
    fn plan(
        self,
        session: &dyn Session,
        archive: &Archive,
        wanted: &Wanted<'_>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let schema = self.names.of_schema(&wanted.columns.schema);
        let source = self.source(session, archive, wanted.filters, &schema)?;
        let statistics = of_versions(&schema, self.group.iter().copied());
        let files = self.group.iter().copied().flat_map(ArchivedFile::all_of).map(|file| {
            PartitionedFile::new(file.path().to_string(), file.part().bytes).with_extension(file)
        });
        let config = FileScanConfigBuilder::new(object_store_url()?, Arc::new(source))
            .with_file_group(FileGroup::new(files.collect()))
            .with_statistics(statistics)
            .with_projection_indices(wanted.projection.cloned())?
            .with_limit(wanted.limit)
            .with_expr_adapter(Some(Arc::new(Fill)))
            .build();
        let shown = match wanted.projection {
            Some(positions) => Arc::new(wanted.columns.schema.project(positions)?),
            None => wanted.columns.schema.clone(),
        };
        as_shown(session, DataSourceExec::from_data_source(config), &shown)
    }

    /// What is read of the files, in the names that they have.
    fn source(
        &self,
        session: &dyn Session,
        archive: &Archive,
        filters: &[Expr],
        schema: &SchemaRef,
    ) -> PlanResult<ParquetSource> {
        let mut source = ParquetSource::new(schema.clone())
            .with_parquet_file_reader_factory(Arc::new(Readers(archive.clone())))
            .with_pushdown_filters(true)
            .with_reorder_filters(true)
            .with_enable_page_index(true)
            .with_bloom_filter_on_read(true);
        if let Some(filter) = conjunction(filters.iter().cloned()) {
            let columns = DFSchema::try_from(schema.clone())?;
            let filter = self.names.of_filter(filter)?;
            let filter = Canonical::of_columns(filter, &|column| is_float(schema, &column.name))?;
            source = source.with_predicate(session.create_physical_expr(filter, &columns)?);
        }
        // Figures of `EXPLAIN ANALYZE`, beside those of files, row groups and pages.
        for (name, count) in [("versions_scanned", self.group.len()), ("versions_pruned", self.pruned)] {
            MetricBuilder::new(source.metrics()).global_counter(name).add(count);
        }
        Ok(source)
    }
}

fn is_float(schema: &Schema, column: &str) -> bool {
    schema.field_with_name(column).is_ok_and(|field| field.data_type().is_floating())
}

/// What files hold, with the names of the table and numbers as SQL counts them ([`crate::floats`]). Filters that the plan above
/// makes while it runs come through here, and ask for these as well.
fn as_shown(
    session: &dyn Session,
    files: Arc<DataSourceExec>,
    shown: &SchemaRef,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let schema = files.schema();
    let is_plain = |(field, shown): (&FieldRef, &FieldRef)| {
        field.name() == shown.name() && !field.data_type().is_floating()
    };
    if schema.fields().iter().zip(shown.fields()).all(is_plain) {
        return Ok(files);
    }
    let columns = DFSchema::try_from(schema.clone())?;
    let fields = schema.fields().iter().zip(shown.fields()).enumerate();
    let given = fields.map(|(at, (field, shown))| {
        let name = field.name();
        let expr: Arc<dyn PhysicalExpr> = match field.data_type().is_floating() {
            true => {
                let column = Expr::Column(Column::from_name(name));
                session.create_physical_expr(Canonical::over(column), &columns)?
            }
            false => Arc::new(PlanColumn::new(name, at)),
        };
        Ok(ProjectionExpr { expr, alias: shown.name().clone() })
    });
    Ok(Arc::new(ProjectionExec::try_new(given.collect::<PlanResult<Vec<_>>>()?, files)?))
}

/// The versions that the filters do not rule out by what they say of the version alone.
///
/// # Errors
/// When a filter has no answer for a version, and no other one rules that out.
fn passing<'a>(
    session: &dyn Session,
    versions: &'a BTreeMap<u64, Found>,
    filters: &[Expr],
) -> PlanResult<Vec<&'a Found>> {
    let schema = Arc::new(Schema::new(vec![Field::new(VERSION, DataType::UInt64, false)]));
    let columns = DFSchema::try_from(schema.clone())?;
    let of_version_alone = |filter: &&Expr| {
        let columns = filter.column_refs();
        !columns.is_empty() && columns.iter().all(|column| column.name == VERSION) && !filter.is_volatile()
    };
    let filters = filters.iter().filter(of_version_alone);
    let tests = filters.filter_map(|filter| session.create_physical_expr(filter.clone(), &columns).ok());
    let tests: Vec<Arc<dyn PhysicalExpr>> = tests.collect();
    let mut passing = Vec::new();
    for (version, found) in versions {
        let answers: Vec<PlanResult<bool>> =
            tests.iter().map(|test| passes(&**test, &schema, *version)).collect();
        if !answers.iter().any(|answer| matches!(answer, Ok(false))) {
            answers.into_iter().collect::<PlanResult<Vec<bool>>>()?;
            passing.push(found);
        }
    }
    Ok(passing)
}

/// Whether a filter on the version alone lets a version pass.
fn passes(filter: &dyn PhysicalExpr, schema: &SchemaRef, version: u64) -> PlanResult<bool> {
    let number: ArrayRef = Arc::new(UInt64Array::from_iter_values([version]));
    let passed = filter.evaluate(&RecordBatch::try_new(schema.clone(), vec![number])?)?.into_array(1)?;
    Ok(passed.as_boolean_opt().is_none_or(|passed| passed.is_valid(0) && passed.value(0)))
}
