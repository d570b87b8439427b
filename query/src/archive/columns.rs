//! Which column of a file is which column of the table.
//!
//! A column has its place in the table for good: a rename changes its name, and the place of one that was retired is never
//! given again. So manifests hold the places of the data columns, and a column is found by its place: a renamed one under
//! the name that it had, and one that only has the name of a column which was retired is not in the file. Manifests that hold no places
//! were written before there were any, and their columns are found by name.
//!
//! A store that was made again from a damaged one, or put back from an older copy, may have lost the coming of a column, and another
//! one has its place then. The values of the one that was lost are not shown as the other's where their types differ, nor where their
//! names do and no column of the table was renamed between the manifest and now ([`renames_of`]). Where nothing tells them apart they
//! are shown: as those of a column of that name and type, at whichever place that came again, and as those of a renamed one where one was,
//! or the manifest does not hold that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef};

use super::manifest::Manifest;
use super::names::Names;
use super::places::{ENDS, Part, parts_of, places_of, renames_of, retired_of};
use super::upload::plain_type;

/// The type of the values of a data column, asked for by its name or by that of its status; of any other column there is none.
fn type_of(schema: &Schema, name: &str) -> Option<DataType> {
    let field = schema.field_with_name(name).ok()?;
    let values = match field.metadata().get("class").map(String::as_str) {
        Some("data") => name,
        Some("status") => ENDS[1..].iter().find_map(|end| name.strip_suffix(*end))?,
        _ => return None,
    };
    schema.field_with_name(values).ok().map(|field| plain_type(field.data_type()))
}

/// Whether two columns have one type, whatever the items of lists are called in it: that is said by Arrow, and not by the table.
fn are_alike(ours: Option<DataType>, theirs: Option<DataType>) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => ours.equals_datatype(&theirs),
        (ours, theirs) => ours == theirs,
    }
}

/// The columns that a query sees of a table, or those of the files of a version.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub(super) schema: SchemaRef,
    /// Empty where they are found by name.
    parts: HashMap<String, Part>,
    /// What [`renames_of`] said of them; `None` where it is not known.
    renames: Option<i64>,
    /// The same by name, where manifests of several instants told the columns.
    told: HashMap<String, Option<i64>>,
    /// The places of retired columns; `None` where they are not known.
    retired: Option<HashSet<u32>>,
}

impl Columns {
    /// Those of a table of the store.
    pub(super) fn of_table(table: &forebay_store::Schema, schema: SchemaRef) -> Self {
        let (parts, renames) = (parts_of(&places_of(table)), Some(renames_of(table)));
        Columns { schema, parts, renames, told: HashMap::new(), retired: Some(retired_of(table)) }
    }

    /// Those of the files that a manifest names.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn of_files(manifest: &Manifest) -> Result<Self, ArrowError> {
        let (schema, parts) = (manifest.columns()?, parts_of(&manifest.places));
        Ok(Columns { schema, parts, renames: manifest.renames, told: HashMap::new(), retired: None })
    }

    /// Those of a table that is only in the archive: of its newest version, and what older ones, which come behind it, had beside
    /// them. A column has its newest name; of two that had one name or one place, the older is left out.
    ///
    /// # Errors
    /// The manifest whose columns cannot be read, and why.
    pub(super) fn of_versions<'a>(
        newest_first: impl Iterator<Item = &'a Arc<Manifest>>,
    ) -> Result<Self, (&'a Arc<Manifest>, ArrowError)> {
        let (mut fields, mut names): (Vec<FieldRef>, HashSet<String>) = (Vec::new(), HashSet::new());
        let mut parts: HashMap<String, Part> = HashMap::new();
        let mut told: HashMap<String, Option<i64>> = HashMap::new();
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
                told.insert(field.name().clone(), manifest.renames);
                parts.extend(part.map(|part| (field.name().clone(), part)));
                known.extend(part);
            }
        }
        Ok(Columns { schema: Arc::new(Schema::new(fields)), parts, renames: None, told, retired: None })
    }

    /// What these columns are called in files with those.
    pub(super) fn names_in(&self, files: &Columns) -> Names {
        let by_part: HashMap<Part, &String> = files.parts.iter().map(|(name, part)| (*part, name)).collect();
        let known: HashSet<Part> = self.parts.values().copied().collect();
        let at_its_place = |name: &String| -> Option<String> {
            match (self.parts.get(name), files.parts.get(name)) {
                (Some(part), _) if !files.parts.is_empty() => by_part.get(part).map(|at| (*at).clone()),
                (None, Some(part)) if known.contains(part) => None, // of a column that has another name now
                _ => Some(name.clone()),
            }
        };
        let in_files = |name: &String| -> Option<String> {
            match at_its_place(name).filter(|archived| self.are_one(name, files, archived)) {
                Some(archived) => (archived != *name).then_some(archived),
                None if self.came_again(name, files) => None,
                // No column may be called so.
                None => files.schema.field_with_name(name).is_ok().then(|| format!("{name} (not there)")),
            }
        };
        let fields = self.schema.fields().iter();
        let changed = fields.filter_map(|field| Some((field.name().clone(), in_files(field.name())?)));
        Names(changed.collect())
    }

    /// Whether one of these columns is that one of the files, which has its place.
    fn are_one(&self, name: &str, files: &Columns, archived: &str) -> bool {
        let is_called_so = name == archived || self.may_be_renamed(name, files);
        is_called_so && are_alike(type_of(&self.schema, name), type_of(&files.schema, archived))
    }

    /// Whether a column may have had another name when the files were written.
    fn may_be_renamed(&self, name: &str, files: &Columns) -> bool {
        let renames = self.told.get(name).copied().unwrap_or(self.renames);
        renames.is_none() || renames != files.renames
    }

    /// Whether a column that was lost has come again at another place: none was renamed, and the files have one of its name where the
    /// table has retired none. Within one life of the store there is none such: places stay, and are not given again. Where its own place is
    /// of no column in the files, and not beyond them, it was retired there, and the one of its name is another.
    fn came_again(&self, name: &str, files: &Columns) -> bool {
        let places = (&self.retired, self.parts.get(name), files.parts.get(name));
        let (Some(retired), Some((own, end)), Some((place, end_there))) = places else { return false };
        let mut there = files.parts.values().map(|(place, _)| place);
        let was_retired_there = there.clone().any(|place| place > own) && there.all(|place| place != own);
        let may_be_it = !retired.contains(place) && !was_retired_there && !self.may_be_renamed(name, files);
        may_be_it && end == end_there && are_alike(type_of(&self.schema, name), type_of(&files.schema, name))
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::Field;

    use super::super::manifest::encode_columns;
    use super::super::places::Places;
    use super::*;

    fn places(columns: &[(&str, u32)]) -> Places {
        columns.iter().map(|(name, place)| ((*name).to_owned(), *place)).collect()
    }

    fn columns(of: &[(&str, u32)]) -> Columns {
        typed(of, &DataType::Utf8)
    }

    /// Their values are of that type.
    fn typed(of: &[(&str, u32)], data_type: &DataType) -> Columns {
        let parts = parts_of(&places(of));
        let mut names: Vec<(&String, &Part)> = parts.iter().collect();
        names.sort_unstable();
        let field = |(name, (_, end)): (&String, &Part)| {
            let (data_type, class) =
                if *end == 0 { (data_type.clone(), "data") } else { (DataType::Boolean, "status") };
            let class = HashMap::from([("class".to_owned(), class.to_owned())]);
            Field::new(name.as_str(), data_type, true).with_metadata(class)
        };
        let fields: Vec<Field> = names.into_iter().map(field).collect();
        Columns {
            schema: Arc::new(Schema::new(fields)),
            parts,
            renames: None,
            told: HashMap::new(),
            retired: None,
        }
    }

    /// The names that files have, where they are others: of values alone.
    fn names(table: &[(&str, u32)], archived: &[(&str, u32)]) -> Vec<(String, String)> {
        let Names(names) = columns(table).names_in(&columns(archived));
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
        let (table, archived) = (columns(&[("prompt", 0), ("reward", 2)]), columns(&[("reward", 1)]));
        let without_places = |columns: &Columns| Columns { parts: HashMap::new(), ..columns.clone() };
        assert!(table.names_in(&without_places(&archived)).are_the_same());
        let unplaced = without_places(&table);
        assert!(unplaced.names_in(&archived).are_the_same(), "and those of a table without places");
        let Names(names) = table.names_in(&without_places(&typed(&[("reward", 1)], &DataType::Int32)));
        assert!(names.keys().eq(["reward", "reward_at", "reward_status"]), "of another type: {names:?}");
    }

    #[test]
    fn a_column_at_the_place_of_another_is_told_from_it_by_type_and_by_name() {
        let archived = Columns { renames: Some(-2), ..columns(&[("prompt", 0), ("score", 1)]) };
        let in_files = |name: &str, data_type: DataType, renames: Option<i64>| {
            let Names(names) = Columns { renames, ..typed(&[(name, 1)], &data_type) }.names_in(&archived);
            names.get(name).cloned()
        };
        let there = |name: &str| Some(name.to_owned());
        for renames in [Some(-2), Some(-1), None] {
            assert_eq!(in_files("score", DataType::Utf8, renames), None, "it is called so there");
            assert_eq!(in_files("score", DataType::Int32, renames), there("score (not there)"));
            assert_eq!(in_files("points", DataType::Int32, renames), None, "there is none of that name");
        }
        assert_eq!(in_files("points", DataType::Utf8, Some(-2)), None, "nor where none was renamed");
        assert_eq!(in_files("prompt", DataType::Utf8, Some(-2)), there("prompt (not there)"));
        assert_eq!(in_files("points", DataType::Utf8, Some(-1)), there("score"));
        assert_eq!(in_files("points", DataType::Utf8, None), there("score"));
    }

    #[test]
    fn a_column_that_came_again_is_found_by_its_name_where_the_table_has_not_retired_its_place() {
        let archived = Columns { renames: Some(-1), ..columns(&[("prompt", 0), ("note", 1), ("score", 2)]) };
        let table = columns(&[("prompt", 0), ("score", 1), ("note", 3)]);
        let in_files = |name: &str, retired: Option<HashSet<u32>>, renames: Option<i64>| {
            let Names(names) = Columns { renames, retired, ..table.clone() }.names_in(&archived);
            names.get(name).cloned()
        };
        for name in ["score", "note"] {
            assert_eq!(in_files(name, Some(HashSet::new()), Some(-1)), None, "{name}");
            let hidden = Some(format!("{name} (not there)"));
            let retired = Some(HashSet::from([1, 2]));
            assert_eq!(in_files(name, retired, Some(-1)), hidden, "its place was retired");
            assert_eq!(in_files(name, None, Some(-1)), hidden, "what was retired is not known");
        }
        let renamed = in_files("score", Some(HashSet::new()), Some(0));
        assert_eq!(renamed, Some("note".to_owned()), "for all that one can tell");
        // Where the table has it the other life had one, too, and retired it before another of its name came.
        let table = Columns {
            renames: Some(-1),
            retired: Some(HashSet::new()),
            ..columns(&[("prompt", 0), ("note", 1)])
        };
        let another = Columns { renames: Some(-1), ..columns(&[("prompt", 0), ("note", 2)]) };
        assert_eq!(table.names_in(&another).0["note"], "note (not there)");
    }

    /// The manifest of a version whose files have these columns.
    fn manifest(version: u64, of: &[(&str, u32)], renames: i64) -> Arc<Manifest> {
        Arc::new(Manifest {
            format: 1,
            store: String::new(),
            table: "solver".to_owned(),
            version,
            generation: 1,
            commit: 0,
            rows: 0,
            digest: String::new(),
            archived_at: String::new(),
            schema: encode_columns(&columns(of).schema).unwrap(),
            files: Vec::new(),
            steps: Vec::new(),
            places: places(of),
            told: true,
            renames: Some(renames),
        })
    }

    /// Where there is no store: the column was renamed between two older manifests, and retired before the newest.
    #[test]
    fn a_column_may_be_renamed_since_the_manifest_that_told_it() {
        let newest_first = [
            manifest(2, &[("prompt", 0)], 1),
            manifest(1, &[("prompt", 0), ("note", 2)], 0),
            manifest(0, &[("prompt", 0), ("remark", 2)], 1), // of a version that was archived last but one
        ];
        let table = Columns::of_versions(newest_first.iter()).unwrap();
        let names = newest_first.each_ref().map(|files| table.names_in(&Columns::of_files(files).unwrap()).0);
        let renamed = [("note", "remark"), ("note_at", "remark_at"), ("note_status", "remark_status")];
        let expected = [Vec::new(), Vec::new(), owned(&renamed)];
        assert_eq!(names.map(|names| names.into_iter().collect::<Vec<_>>()), expected);
    }

    #[test]
    fn lists_are_alike_whatever_their_items_are_called() {
        let list = |item: &str, of: DataType| DataType::List(Arc::new(Field::new(item, of, true)));
        let archived = typed(&[("tokens", 0)], &list("element", DataType::Int32));
        let names = |of: DataType| typed(&[("tokens", 0)], &list("item", of)).names_in(&archived);
        assert!(names(DataType::Int32).are_the_same());
        assert!(!names(DataType::Int64).are_the_same());
    }

    #[test]
    fn a_status_column_goes_where_its_values_go() {
        let Names(names) = columns(&[("points", 1), ("reward", 2)]).names_in(&columns(&[("reward", 1)]));
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
        let names = columns(&[("reward", 1)]).names_in(&columns(&[("reward_at", 0)]));
        assert_eq!(names.0.into_iter().collect::<Vec<_>>(), owned(&[("reward_at", "reward_at (not there)")]));
    }
}
