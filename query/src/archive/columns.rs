//! Which column of a file is which column of the table.
//!
//! A column has its place in the table for good: a rename changes its name, and the place of one that was retired is never
//! given again. So manifests hold the places of the data columns, and a column is found by its place: a renamed one under
//! the name that it had, and one that only has the name of a column which was retired is not in the file. Manifests that hold no places
//! were written before there were any, and their columns are found by name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{ArrowError, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::Expr;

use super::manifest::Manifest;

/// The data columns of a table, each with its place among all that it ever had.
pub(super) type Places = BTreeMap<String, u32>;

/// A data column is shown as three: its values, whether they are final, and since when.
const ENDS: [&str; 3] = ["", "_status", "_at"];

/// One of the three columns of a place.
type Part = (u32, usize);

/// The places of the columns of a table as it is now.
pub(super) fn places_of(schema: &forebay_store::Schema) -> Places {
    let columns = (0_u32..).zip(schema.data_columns()).filter(|(_, column)| !column.retired);
    columns.map(|(place, column)| (column.name.clone(), place)).collect()
}

/// The columns that places make.
fn parts_of(places: &Places) -> HashMap<String, Part> {
    let part = |(name, place): (&String, &u32), end: usize| (format!("{name}{}", ENDS[end]), (*place, end));
    places.iter().flat_map(|column| (0..ENDS.len()).map(move |end| part(column, end))).collect()
}

/// The columns that a query sees of a table.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub(super) schema: SchemaRef,
    /// Empty where they are found by name.
    parts: HashMap<String, Part>,
}

impl Columns {
    /// Those of a table of the store.
    pub(super) fn of_table(table: &forebay_store::Schema, schema: SchemaRef) -> Self {
        Columns { schema, parts: parts_of(&places_of(table)) }
    }

    /// Those of a table that is only in the archive: of its newest version, and what older ones, which come behind it, had beside
    /// them. A column has its newest name; of two that had one name, the older is left out.
    ///
    /// # Errors
    /// The manifest whose columns cannot be read, and why.
    pub(super) fn of_versions<'a>(
        newest_first: impl Iterator<Item = &'a Arc<Manifest>>,
    ) -> Result<Self, (&'a Arc<Manifest>, ArrowError)> {
        let (mut fields, mut names): (Vec<FieldRef>, HashSet<String>) = (Vec::new(), HashSet::new());
        let mut parts: HashMap<String, Part> = HashMap::new();
        let mut known: HashSet<Part> = HashSet::new();
        for manifest in newest_first {
            let (columns, own) =
                (manifest.columns().map_err(|error| (manifest, error))?, parts_of(&manifest.places));
            for field in columns.fields() {
                let part = own.get(field.name()).copied();
                if part.is_some_and(|part| known.contains(&part)) || !names.insert(field.name().clone()) {
                    continue;
                }
                fields.push(field.clone());
                parts.extend(part.map(|part| (field.name().clone(), part)));
                known.extend(part);
            }
        }
        Ok(Columns { schema: Arc::new(Schema::new(fields)), parts })
    }

    /// What these columns are called in files with those places.
    pub(super) fn names_in(&self, places: &Places) -> Names {
        let there = parts_of(places);
        if there.is_empty() {
            return Names::default();
        }
        let by_part: HashMap<Part, &String> = there.iter().map(|(name, part)| (*part, name)).collect();
        let known: HashSet<Part> = self.parts.values().copied().collect();
        let in_file = |name: &String| -> Option<String> {
            let is_anothers = || match (self.parts.get(name), there.get(name)) {
                (_, None) => false,
                (Some(_), Some(_)) => true, // found below, were it the same
                (None, Some(other)) => known.contains(other),
            };
            match self.parts.get(name).and_then(|part| by_part.get(part)) {
                Some(archived) => (*archived != name).then(|| (*archived).clone()),
                None => is_anothers().then(|| format!("{name} (not there)")), // no column may be called so
            }
        };
        let fields = self.schema.fields().iter();
        let changed = fields.filter_map(|field| Some((field.name().clone(), in_file(field.name())?)));
        Names(changed.collect())
    }
}

/// What columns are called in files where they are not called as in the table: by their names in the table. One that is not
/// in the files, though another of its name is, has a name there that is nobody's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    pub(super) fn are_the_same(&self) -> bool {
        self.0.is_empty()
    }

    /// The table's columns as the files call them.
    pub(super) fn of_schema(&self, schema: &SchemaRef) -> SchemaRef {
        if self.are_the_same() {
            return schema.clone();
        }
        let renamed = |field: &FieldRef| match self.0.get(field.name()) {
            Some(name) => Arc::new(Field::clone(field).with_name(name)),
            None => field.clone(),
        };
        Arc::new(Schema::new(schema.fields().iter().map(renamed).collect::<Vec<_>>()))
    }

    /// A condition on the table's columns as one on those of the files.
    pub(super) fn of_filter(&self, filter: Expr) -> PlanResult<Expr> {
        let renamed = |node: Expr| match node {
            Expr::Column(column) if self.0.contains_key(&column.name) => {
                let name = self.0[&column.name].clone();
                Ok::<_, DataFusionError>(Transformed::yes(Expr::Column(Column { name, ..column })))
            }
            other => Ok(Transformed::no(other)),
        };
        filter.transform_up(renamed).data()
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn places(columns: &[(&str, u32)]) -> Places {
        columns.iter().map(|(name, place)| ((*name).to_owned(), *place)).collect()
    }

    fn columns(of: &[(&str, u32)]) -> Columns {
        let parts = parts_of(&places(of));
        let mut names: Vec<&String> = parts.keys().collect();
        names.sort_unstable();
        let fields: Vec<Field> =
            names.iter().map(|name| Field::new(name.as_str(), DataType::Utf8, true)).collect();
        Columns { schema: Arc::new(Schema::new(fields)), parts }
    }

    /// The names that files have, where they are others: of values alone.
    fn names(table: &[(&str, u32)], archived: &[(&str, u32)]) -> Vec<(String, String)> {
        let Names(names) = columns(table).names_in(&places(archived));
        names.into_iter().filter(|(name, _)| !name.ends_with("_status") && !name.ends_with("_at")).collect()
    }

    fn owned(names: &[(&str, &str)]) -> Vec<(String, String)> {
        names.iter().map(|(table, file)| ((*table).to_owned(), (*file).to_owned())).collect()
    }

    #[test]
    fn a_column_is_found_by_its_place() {
        type Table<'a> = &'a [(&'a str, u32)];
        type Expected<'a> = &'a [(&'a str, &'a str)];
        let archived = [("prompt", 0), ("reward", 1)];
        let cases: [(Table<'_>, Expected<'_>); 6] = [
            (&[("prompt", 0), ("reward", 1)], &[]),
            (&[("prompt", 0), ("reward", 1), ("score", 2)], &[]),
            (&[("prompt", 0), ("points", 1)], &[("points", "reward")]),
            (&[("prompt", 0), ("reward", 2)], &[("reward", "reward (not there)")]),
            (&[("prompt", 1), ("reward", 0)], &[("prompt", "reward"), ("reward", "prompt")]),
            (
                &[("prompt", 0), ("points", 1), ("reward", 2)],
                &[("points", "reward"), ("reward", "reward (not there)")],
            ),
        ];
        for (table, expected) in cases {
            assert_eq!(names(table, &archived), owned(expected), "{table:?}");
        }
    }

    #[test]
    fn columns_of_manifests_without_places_are_found_by_name() {
        assert_eq!(names(&[("prompt", 0), ("reward", 2)], &[]), []);
        let schema = Arc::new(Schema::new(vec![Field::new("reward", DataType::Utf8, true)]));
        let Names(names) = Columns { schema, parts: HashMap::new() }.names_in(&places(&[("reward", 1)]));
        assert!(names.is_empty(), "and so are those of a table whose places are not known");
    }

    #[test]
    fn a_status_column_goes_where_its_values_go() {
        let Names(names) = columns(&[("points", 1), ("reward", 2)]).names_in(&places(&[("reward", 1)]));
        let expected = [
            ("points", "reward"),
            ("points_at", "reward_at"),
            ("points_status", "reward_status"),
            ("reward", "reward (not there)"),
            ("reward_at", "reward_at (not there)"),
            ("reward_status", "reward_status (not there)"),
        ];
        assert_eq!(names.into_iter().collect::<Vec<_>>(), owned(&expected));
        // Values that have the name of another column's status.
        let names = columns(&[("reward", 1)]).names_in(&places(&[("reward_at", 0)]));
        assert_eq!(names.0.into_iter().collect::<Vec<_>>(), owned(&[("reward_at", "reward_at (not there)")]));
    }

    #[test]
    fn a_condition_is_asked_of_the_column_of_its_place() {
        let names = columns(&[("points", 1), ("reward", 2)]).names_in(&places(&[("reward", 1)]));
        let filter = col("points").gt(lit(1)).and(col("reward").is_null());
        let expected =
            col("reward").gt(lit(1)).and(Expr::Column(Column::from_name("reward (not there)")).is_null());
        assert_eq!(names.of_filter(filter).unwrap(), expected);
    }
}
