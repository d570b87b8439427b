//! What a table looks like: its columns, by class.
//!
//! Three classes of columns (FX-11): *meta* columns are kept by the engine for every row, *data* columns are declared
//! by the user, and each data column has a *status* column that is true once its value is final.

mod data_type;

pub use data_type::{DataType, Element, StorageClass};

use crate::error::{Cause, Result};

/// The most data columns that a table may have.
pub const DATA_COLUMNS_MAX: usize = 64;

/// The names of the meta columns, in the order in which they are shown.
pub const META_COLUMNS: [&str; 18] = [
    "sample_id",
    "policy_version",
    "input_id",
    "turn",
    "trajectory_id",
    "group_key",
    "agent",
    "purpose",
    "origin",
    "parent",
    "attempt",
    "created_at",
    "weights",
    "is_processing",
    "state",
    "excluded_reason",
    "step",
    "claim",
];

/// What a column is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnClass {
    /// Kept by the engine: who, when, which version.
    Meta,
    /// Declared by the user.
    Data,
    /// Kept by the engine: whether the data column of the same stem is final, and since when.
    Status,
}

impl ColumnClass {
    /// The word for this class in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            ColumnClass::Meta => "meta",
            ColumnClass::Data => "data",
            ColumnClass::Status => "status",
        }
    }
}

/// A declared data column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataColumn {
    /// Its name, unique in the table.
    pub name: String,
    /// The type of its values.
    pub data_type: DataType,
    /// Equal values are stored once.
    pub shared: bool,
}

/// The declaration of a table.
///
/// ```
/// use forebay_store::{ColumnClass, DataType, Element, Schema};
/// let schema = Schema::new().data("prompt", DataType::list(Element::Int32)).data("reward", DataType::Float32);
/// let classes: Vec<_> = schema.columns().filter(|(name, _)| name.starts_with("reward")).collect();
/// assert_eq!(classes, [
///     ("reward".to_owned(), ColumnClass::Data),
///     ("reward_status".to_owned(), ColumnClass::Status),
///     ("reward_at".to_owned(), ColumnClass::Status),
/// ]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    data: Vec<DataColumn>,
    policy: Option<String>,
}

impl Schema {
    /// A schema without data columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a data column.
    pub fn data(mut self, name: &str, data_type: DataType) -> Self {
        self.data.push(DataColumn { name: name.to_owned(), data_type, shared: false });
        self
    }

    /// Adds a data column of which many rows have the same value, as the prompt of a group: equal values are stored
    /// once. Worth it for values of some hundred bytes and more; a bool or number takes no more room either way.
    ///
    /// ```
    /// use forebay_store::{DataType, Element, Schema};
    /// let schema = Schema::new().data_shared("prompt", DataType::list(Element::Int32)).data("reward", DataType::Float32);
    /// assert!(schema.data_columns()[0].shared);
    /// ```
    pub fn data_shared(mut self, name: &str, data_type: DataType) -> Self {
        self.data.push(DataColumn { name: name.to_owned(), data_type, shared: true });
        self
    }

    /// Names the policy whose version the rows of this table carry. Default: a policy of the table's own name. Several
    /// tables may share one policy.
    pub fn policy(mut self, name: &str) -> Self {
        self.policy = Some(name.to_owned());
        self
    }

    /// The policy named with [`Schema::policy`].
    pub fn policy_name(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The data columns, in the order of their declaration.
    pub fn data_columns(&self) -> &[DataColumn] {
        &self.data
    }

    /// Every column with its class: meta, then data, then for each data column its status and the time it turned true.
    pub fn columns(&self) -> impl Iterator<Item = (String, ColumnClass)> + '_ {
        let meta = META_COLUMNS.iter().map(|name| ((*name).to_owned(), ColumnClass::Meta));
        let data = self.data.iter().map(|column| (column.name.clone(), ColumnClass::Data));
        let status = self.data.iter().flat_map(|column| {
            ["status", "at"].map(|suffix| (format!("{}_{suffix}", column.name), ColumnClass::Status))
        });
        meta.chain(data).chain(status)
    }

    /// The position of a data column.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::Kind::Input) when there is none of that name; the nearest name is suggested.
    pub fn index_of(&self, name: &str) -> Result<usize> {
        self.data.iter().position(|column| column.name == name).ok_or_else(|| {
            let names = self.data.iter().map(|column| column.name.as_str());
            Cause::Unknown { what: "column", name: name.to_owned(), close: nearest(name, names) }.into()
        })
    }

    /// Checks names and limits.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.data.len() > DATA_COLUMNS_MAX {
            return Err(Cause::TooMany {
                what: "data columns",
                limit: DATA_COLUMNS_MAX,
                found: self.data.len(),
            }
            .into());
        }
        let mut seen: Vec<String> = META_COLUMNS.iter().map(|name| (*name).to_owned()).collect();
        for column in &self.data {
            check_name("column", &column.name)?;
            column.data_type.validate(&column.name)?;
            for taken in
                [column.name.clone(), format!("{}_status", column.name), format!("{}_at", column.name)]
            {
                if seen.contains(&taken) {
                    return Err(Cause::ColumnReserved { column: column.name.clone() }.into());
                }
                seen.push(taken);
            }
        }
        Ok(())
    }
}

/// Names of tables, columns, consumers, policies and objects are plain words, fit for SQL and for file names.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let starts = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    if starts && name.len() <= 64 && name.chars().all(legal) {
        return Ok(());
    }
    Err(Cause::Name { what, name: name.to_owned() }.into())
}

/// The name closest to `name`, if one is close enough to be what was meant.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let scored = names.map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate));
    let (distance, best) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + name.len() / 4).then(|| best.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // FX-11, FX-17
    #[test]
    fn each_data_column_brings_its_status() {
        let schema = Schema::new().data("prompt", DataType::Utf8).data("next_agent_id", DataType::Int32);
        let of =
            |class| schema.columns().filter(|(_, c)| *c == class).map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(of(ColumnClass::Meta), META_COLUMNS);
        assert_eq!(of(ColumnClass::Data), ["prompt", "next_agent_id"]);
        assert_eq!(
            of(ColumnClass::Status),
            ["prompt_status", "prompt_at", "next_agent_id_status", "next_agent_id_at"]
        );
    }

    #[test]
    fn names_that_would_clash_are_refused() {
        for names in
            [vec!["sample_id"], vec!["a", "a"], vec!["reward", "reward_status"], vec!["1st"], vec![""]]
        {
            let schema = names.iter().fold(Schema::new(), |schema, name| schema.data(name, DataType::Bool));
            assert!(schema.validate().is_err(), "{names:?}");
        }
    }

    #[test]
    fn more_columns_than_a_status_word_has_bits_are_refused() {
        let wide = |n: usize| (0..n).fold(Schema::new(), |s, i| s.data(&format!("c{i}"), DataType::Bool));
        assert!(wide(64).validate().is_ok());
        assert!(wide(65).validate().unwrap_err().to_string().contains("at most 64"));
    }

    #[test]
    fn an_unknown_column_is_answered_with_the_nearest() {
        let schema = Schema::new().data("response", DataType::Utf8);
        assert!(schema.index_of("reponse").unwrap_err().to_string().contains("did you mean \"response\""));
    }
}
