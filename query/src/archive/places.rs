//! The places that data columns have in their table: what manifests hold of them, and what a table's schema says.

use std::collections::{BTreeMap, HashMap, HashSet};

/// The data columns of a table, each with its place among all that it ever had.
pub(super) type Places = BTreeMap<String, u32>;

/// A data column is shown as three: its values, whether they are final, and since when.
pub(super) const ENDS: [&str; 3] = ["", "_status", "_at"];

/// One of the three columns of a place.
pub(super) type Part = (u32, usize);

/// The places of the columns of a table as it is now.
pub(super) fn places_of(schema: &forebay_store::Schema) -> Places {
    let columns = (0_u32..).zip(schema.data_columns()).filter(|(_, column)| !column.retired);
    columns.map(|(place, column)| (column.name.clone(), place)).collect()
}

/// The places of the columns that were retired.
pub(super) fn retired_of(schema: &forebay_store::Schema) -> HashSet<u32> {
    let columns = (0_u32..).zip(schema.data_columns()).filter(|(_, column)| column.retired);
    columns.map(|(place, _)| place).collect()
}

/// How often columns of a table were renamed, less how many it began with: between two instants of one life of the store that have the
/// same none was.
pub(super) fn renames_of(schema: &forebay_store::Schema) -> i64 {
    let columns = schema.data_columns();
    let come_and_gone = columns.len() + columns.iter().filter(|column| column.retired).count();
    i64::from(schema.version()) - come_and_gone as i64
}

/// The columns that places make.
pub(super) fn parts_of(places: &Places) -> HashMap<String, Part> {
    let part = |(name, place): (&String, &u32), end: usize| (format!("{name}{}", ENDS[end]), (*place, end));
    places.iter().flat_map(|column| (0..ENDS.len()).map(move |end| part(column, end))).collect()
}
