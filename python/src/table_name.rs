//! A table, as a call names it that is no table's own.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::failure::{Result, input};
use crate::handle::Handle;
use crate::table::Table;

/// A table as an argument: the object, or its name.
#[derive(FromPyObject)]
pub(crate) enum TableName<'py> {
    Object(Bound<'py, Table>),
    Name(String),
}

impl TableName<'_> {
    /// The name, for a call of that store.
    pub(crate) fn name_in(&self, handle: &Arc<Handle>) -> Result<&str> {
        let table = match self {
            TableName::Name(name) => return Ok(name),
            TableName::Object(table) => table.get(),
        };
        if Arc::ptr_eq(table.handle(), handle) {
            return Ok(table.name());
        }
        let (name, own, other) = (table.name(), handle.place(), table.handle().place());
        Err(input(format!("table {name:?} is of the store at {other}, not of that at {own}")))
    }
}
