//! What a table looks like: its columns, by class.
//!
//! Three classes of columns (FX-11): *meta* columns are kept by the engine for every row, *data* columns are declared
//! by the user, and each data column has a *status* column that is true once its value is final.

mod data_type;
mod role;

pub use data_type::{DataType, Element, StorageClass};
pub use role::Role;

use crate::error::{Cause, Result};

/// The most data columns that a table may have.
pub const DATA_COLUMNS_MAX: usize = 64;

/// The names of the meta columns, in the order in which they are shown.
pub const META_COLUMNS: [&str; 20] = [
    "sample_id",
    "policy_version",
    "version_spans",
    "input_id",
    "turn",
    "trajectory_id",
    "group_key",
    "agent",
    "purpose",
    "origin_peer",
    "origin_round",
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
    /// What it means to a trainer.
    pub role: Option<Role>,
    /// It is read only when it is named: a scan of all columns leaves it out.
    pub lazy: bool,
    /// It was taken out of the table. Its place is never used for another column.
    pub retired: bool,
}

impl DataColumn {
    /// A column of that name and type.
    pub fn new(name: &str, data_type: DataType) -> Self {
        DataColumn {
            name: name.to_owned(),
            data_type,
            role: None,
            lazy: false,
            retired: false,
            shared: false,
        }
    }

    /// The same with a role.
    pub fn role(self, role: Role) -> Self {
        DataColumn { role: Some(role), ..self }
    }

    /// The same, read only when it is named.
    pub fn lazy(self) -> Self {
        DataColumn { lazy: true, ..self }
    }

    /// The width of the elements, for a list that has one entry a token.
    pub(crate) fn token_width_bytes(&self) -> Option<usize> {
        match (&self.data_type, self.role) {
            (DataType::List(element), Some(_)) => Some(element.width_bytes()),
            _ => None,
        }
    }
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
    /// Columns that were given a role or called lazy and are not declared.
    misnamed: Vec<String>,
    version: u32,
}

impl Schema {
    /// A schema without data columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a data column.
    pub fn data(self, name: &str, data_type: DataType) -> Self {
        self.with(DataColumn::new(name, data_type))
    }

    /// Adds a data column of which many rows have the same value, as the prompt of a group: equal values are stored
    /// once. Worth it for values of some hundred bytes and more; a bool or number takes no more room either way.
    ///
    /// ```
    /// use forebay_store::{DataType, Element, Schema};
    /// let schema = Schema::new().data_shared("prompt", DataType::list(Element::Int32)).data("reward", DataType::Float32);
    /// assert!(schema.data_columns()[0].shared);
    /// ```
    pub fn data_shared(self, name: &str, data_type: DataType) -> Self {
        self.with(DataColumn { shared: true, ..DataColumn::new(name, data_type) })
    }

    /// Adds a data column as it is.
    pub fn with(mut self, column: DataColumn) -> Self {
        self.data.push(column);
        self
    }

    /// Says what a data column that was declared before means to a trainer. A role belongs to one column at most.
    ///
    /// ```
    /// use forebay_store::{DataType, Element, Role, Schema};
    /// let schema = Schema::new()
    ///     .data("tokens", DataType::list(Element::Int32)).role("tokens", Role::InputIds)
    ///     .data("logprobs", DataType::list(Element::Float32)).role("logprobs", Role::BehaviourLogprobs);
    /// assert_eq!(schema.column_of(Role::InputIds).unwrap().name, "tokens");
    /// ```
    pub fn role(self, column: &str, role: Role) -> Self {
        self.change(column, |column| column.role = Some(role))
    }

    /// Says that a data column that was declared before is read only when it is named (images, routed experts): a scan of
    /// all columns leaves it out.
    pub fn lazy(self, column: &str) -> Self {
        self.change(column, |column| column.lazy = true)
    }

    fn change(mut self, column: &str, change: impl FnOnce(&mut DataColumn)) -> Self {
        match self.data.iter_mut().find(|data| data.name == column) {
            Some(data) => change(data),
            None => self.misnamed.push(column.to_owned()),
        }
        self
    }

    /// The data column that has a role.
    pub fn column_of(&self, role: Role) -> Option<&DataColumn> {
        self.live_columns().map(|(_, column)| column).find(|column| column.role == Some(role))
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

    /// How often the columns were changed since the table was created.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The same columns, at another version.
    pub(crate) fn at_version(&self, version: u32) -> Self {
        Schema { version, ..self.clone() }
    }

    /// The schema after a change.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut Vec<DataColumn>)) -> Self {
        let mut schema = Schema { version: self.version + 1, ..self.clone() };
        change(&mut schema.data);
        schema
    }

    /// The data columns that are not retired, with their positions.
    pub(crate) fn live_columns(&self) -> impl Iterator<Item = (usize, &DataColumn)> {
        self.data.iter().enumerate().filter(|(_, column)| !column.retired)
    }

    /// The data columns, in the order of their declaration; retired ones among them, for a column keeps its place.
    pub fn data_columns(&self) -> &[DataColumn] {
        &self.data
    }

    /// Every column with its class: meta, then data, then for each data column its status and the time it turned true.
    pub fn columns(&self) -> impl Iterator<Item = (String, ColumnClass)> + '_ {
        let meta = META_COLUMNS.iter().map(|name| ((*name).to_owned(), ColumnClass::Meta));
        let data = self.live_columns().map(|(_, column)| (column.name.clone(), ColumnClass::Data));
        let status = self.live_columns().flat_map(|(_, column)| {
            ["status", "at"].map(|suffix| (format!("{}_{suffix}", column.name), ColumnClass::Status))
        });
        meta.chain(data).chain(status)
    }

    /// The position of a data column.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::Kind::Input) when there is none of that name; the nearest name is suggested.
    pub fn index_of(&self, name: &str) -> Result<usize> {
        let found = self.live_columns().find(|(_, column)| column.name == name);
        found.map(|(index, _)| index).ok_or_else(|| {
            let names = self.live_columns().map(|(_, column)| column.name.as_str());
            Cause::Unknown { what: "column", name: name.to_owned(), close: nearest(name, names) }.into()
        })
    }

    fn validate_roles(&self) -> Result<()> {
        for (at, column) in self.live_columns() {
            let Some(role) = column.role else { continue };
            if let Some(expected) = role.refuses(&column.data_type) {
                let (column, found) = (column.name.clone(), column.data_type.to_string());
                return Err(Cause::RoleMismatch { column, role: role.as_str(), expected, found }.into());
            }
            let mut before = self.live_columns().take_while(|(other, _)| *other < at);
            if let Some((_, other)) = before.find(|(_, other)| other.role == Some(role)) {
                let reason = format!("{:?} and {:?} are both {}", other.name, column.name, role.as_str());
                return Err(Cause::Argument { what: "role", reason }.into());
            }
        }
        Ok(())
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
        if let Some(column) = self.misnamed.first() {
            self.index_of(column)?;
        }
        self.validate_roles()?;
        let mut seen: Vec<String> = META_COLUMNS.iter().map(|name| (*name).to_owned()).collect();
        for (_, column) in self.live_columns() {
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

/// A name that is longer is not held against others.
const NEAREST_BYTES_MAX: usize = 256;

/// The name closest to `name`, if one is close enough to be what was meant.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    if name.len() > NEAREST_BYTES_MAX {
        return None; // a peer may name anything, and its caller may have a lock
    }
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
        let long = "reponse".repeat(1_000_000); // is held against nothing
        assert!(!schema.index_of(&long).unwrap_err().to_string().contains("did you mean"));
    }
}
