//! What the functions of a grouped scan are over.

use arrow_array::RecordBatch;
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs, Projector};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use forebay_store::{ScanColumn, TableSnapshot};

use super::Scan;
use super::columns::is_heavy;
use crate::error::from_store;
use crate::expressions::moved;
use crate::floats::canonical_batch;

/// Columns that are read, and what is made of them once for all functions.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    read: Vec<ScanColumn>,
    made: Projector,
}

impl Inputs {
    /// Those at the places of `wanted` among `outputs`, which are over `scan`. `None` where they want values out of extents, or
    /// what may differ each time that it is made.
    pub(super) fn of(scan: &Scan, outputs: &ProjectionExprs, wanted: &[usize]) -> PlanResult<Option<Self>> {
        let outputs: Vec<&ProjectionExpr> = outputs.iter().collect();
        let wanted: Option<Vec<&ProjectionExpr>> =
            wanted.iter().map(|at| outputs.get(*at).copied()).collect();
        let Some(wanted) = wanted else { return Ok(None) };
        let mut places: Vec<usize> =
            wanted.iter().flat_map(|made| collect_columns(&made.expr)).map(|column| column.index()).collect();
        places.sort_unstable();
        places.dedup();
        let read: Option<Vec<ScanColumn>> = places.iter().map(|at| scan.column(*at)).collect();
        let read = read.filter(|read| !read.iter().any(|column| is_heavy(*column, &scan.table)));
        let Some(read) = read.filter(|_| !wanted.iter().any(|made| is_volatile(&made.expr))) else {
            return Ok(None);
        };
        let place = |at: usize| places.binary_search(&at).unwrap_or(at);
        let made = wanted
            .iter()
            .map(|made| Ok(ProjectionExpr { expr: moved(&made.expr, &place)?, alias: made.alias.clone() }));
        let made = ProjectionExprs::new(made.collect::<PlanResult<Vec<_>>>()?);
        let schema = scan.table.schema_of(&read).map_err(from_store)?;
        Ok(Some(Inputs { made: made.make_projector(&schema)?, read }))
    }

    /// Those of some rows.
    pub(super) fn read(&self, table: &TableSnapshot, rows: &[u32]) -> PlanResult<RecordBatch> {
        self.made.project_batch(&canonical_batch(table.read(rows, &self.read).map_err(from_store)?)?)
    }
}

/// The output of a scan that is shown at a place of `outputs` as it is; `None` where something is made of it.
pub(super) fn shown(outputs: &ProjectionExprs, at: usize) -> Option<usize> {
    outputs.iter().nth(at)?.expr.downcast_ref::<Column>().map(Column::index)
}
