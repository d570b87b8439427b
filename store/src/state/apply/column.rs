//! Columns as records have them.

use crate::log::record::ColumnRecord;
use crate::schema::{DataColumn, DataType, Element, Role};

impl ColumnRecord {
    /// The stored form of a column's declaration.
    pub(crate) fn new(column: &DataColumn) -> Self {
        let (kind, element, shape) = match &column.data_type {
            DataType::Bool => (1, 0, Vec::new()),
            DataType::Number(element) => (2, element.tag(), Vec::new()),
            DataType::Utf8 => (3, 0, Vec::new()),
            DataType::Binary => (4, 0, Vec::new()),
            DataType::List(element) => (5, element.tag(), Vec::new()),
            DataType::Tensor(element, shape) => (6, element.tag(), shape.clone()),
        };
        let (name, role) = (column.name.clone(), Role::tag(column.role));
        let (lazy, retired) = (column.lazy, column.retired);
        ColumnRecord { name, kind, element, shape, role, lazy, retired, shared: column.shared }
    }

    /// The declaration that was stored.
    pub(crate) fn column(&self) -> Result<DataColumn, String> {
        let role = Role::from_tag(self.role).ok_or_else(|| format!("no role {}", self.role))?;
        let data_type = self.data_type()?;
        Ok(DataColumn {
            role,
            lazy: self.lazy,
            retired: self.retired,
            shared: self.shared,
            ..DataColumn::new(&self.name, data_type)
        })
    }

    fn data_type(&self) -> Result<DataType, String> {
        let element =
            || Element::from_tag(self.element).ok_or_else(|| format!("no element type {}", self.element));
        Ok(match self.kind {
            1 => DataType::Bool,
            2 => DataType::Number(element()?),
            3 => DataType::Utf8,
            4 => DataType::Binary,
            5 => DataType::List(element()?),
            6 => DataType::Tensor(element()?, self.shape.clone()),
            kind => return Err(format!("no column type {kind}")),
        })
    }
}
