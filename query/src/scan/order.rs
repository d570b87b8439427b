//! In which order parts are read where the plan above sorts.
//!
//! No order is promised: rows come in the order of arrival, and versions overlap while a step is under way. But parts know the
//! bounds of their versions. So a plan that sorts by version first is given the parts first that come first in its order: the
//! worst of the best that it has then rules out the parts that follow.

use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use forebay_store::{Part, ScanColumn};

use super::Scan;
use super::statistics::VERSION;

/// Which versions are wanted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionOrder {
    Ascending,
    Descending,
}

impl VersionOrder {
    /// That of a sort whose first key is the version that a scan gives; `None` of any other.
    pub(super) fn of(scan: &Scan, keys: &[PhysicalSortExpr]) -> Option<Self> {
        let first = keys.first()?;
        let ScanColumn::Value(position) = scan.column(first.expr.downcast_ref::<Column>()?.index())? else {
            return None;
        };
        (scan.table.arrow_schema().field(position).name() == VERSION).then_some(())?;
        Some(if first.options.descending { VersionOrder::Descending } else { VersionOrder::Ascending })
    }

    /// All parts in that order, dealt out to as many partitions as there are. Those with rows of peers, whose versions nothing
    /// bounds, come first.
    pub(super) fn dealt(self, partitions: &[Vec<Part>]) -> Vec<Vec<Part>> {
        let mut parts: Vec<Part> = partitions.concat();
        match self {
            VersionOrder::Ascending => parts.sort_by_key(|part| part.versions().map(|of| *of.start())),
            VersionOrder::Descending => {
                parts.sort_by_key(|part| part.versions().map(|of| std::cmp::Reverse(*of.end())));
            }
        }
        let mut dealt = vec![Vec::new(); partitions.len()];
        for (at, part) in parts.into_iter().enumerate() {
            dealt[at % partitions.len()].push(part);
        }
        dealt
    }
}
