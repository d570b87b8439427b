//! The columns of a new table, as `create_table` takes them.

use forebay::store::{DataType, Role, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::failure::{Result, input};
use crate::options::wrong;

/// What is said of columns beside their types.
#[derive(Debug)]
pub(crate) struct Remarks {
    pub(crate) roles: Vec<(String, String)>,
    pub(crate) shared: Vec<String>,
    pub(crate) lazy: Vec<String>,
    pub(crate) policy: Option<String>,
}

/// The schema of a table. A type is one of pyarrow's, or its name as the store shows it (`list<int32>`).
pub(crate) fn schema(columns: &Bound<'_, PyDict>, remarks: Remarks) -> Result<Schema> {
    let mut schema = Schema::new();
    let mut unnamed = remarks.shared.clone();
    for (name, given) in columns {
        let name: String = name.extract().map_err(|_| wrong("the name of a column", "a text", &name))?;
        let data_type = data_type(&given)?;
        schema = match remarks.shared.contains(&name) {
            true => schema.data_shared(&name, data_type),
            false => schema.data(&name, data_type),
        };
        unnamed.retain(|shared| *shared != name);
    }
    if let Some(name) = unnamed.first() {
        schema.index_of(name)?; // says that there is no such column, and which is nearest
    }
    for (column, role) in &remarks.roles {
        schema = schema.role(column, role_named(role)?);
    }
    schema = remarks.lazy.iter().fold(schema, |schema, column| schema.lazy(column));
    Ok(match remarks.policy {
        Some(policy) => schema.policy(&policy),
        None => schema,
    })
}

/// One type: a name, or what pyarrow has for it.
pub(crate) fn data_type(given: &Bound<'_, PyAny>) -> Result<DataType> {
    let name: String = match given.cast::<PyString>() {
        Ok(name) => name.extract()?,
        Err(_) => given.py().import("forebay._arrays")?.getattr("type_name")?.call1((given,))?.extract()?,
    };
    Ok(name.parse()?)
}

fn role_named(word: &str) -> Result<Role> {
    Role::ALL.into_iter().find(|role| role.as_str() == word).ok_or_else(|| {
        let words = Role::ALL.map(Role::as_str).join(", ");
        input(format!("{word:?} is no role of a column; the roles are {words}"))
    })
}
