//! What manifests tell of archived rows before a file is opened: how many there are, and of which versions.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};

use super::manifest::Manifest;
use super::scan::VERSION;

/// What is known of all rows of some versions, in the columns of a table. Exact: a version that is archived never changes.
pub(super) fn of_versions<'a>(
    schema: &SchemaRef,
    versions: impl Iterator<Item = &'a Arc<Manifest>> + Clone,
) -> Statistics {
    let rows: u64 = versions.clone().map(|manifest| manifest.rows).sum();
    let there = versions.filter(|manifest| manifest.rows > 0).map(|manifest| manifest.version);
    let bound = |version: Option<u64>| match version {
        Some(version) => Precision::Exact(ScalarValue::UInt64(Some(version))),
        None => Precision::Absent,
    };
    let column = |name: &str, nullable: bool| {
        let mut known = ColumnStatistics::new_unknown();
        if !nullable {
            known.null_count = Precision::Exact(0);
        }
        if name == VERSION {
            (known.min_value, known.max_value) = (bound(there.clone().min()), bound(there.clone().max()));
        }
        known
    };
    Statistics {
        num_rows: Precision::Exact(usize::try_from(rows).unwrap_or(usize::MAX)),
        total_byte_size: Precision::Absent,
        column_statistics: schema.fields().iter().map(|f| column(f.name(), f.is_nullable())).collect(),
    }
}
