//! Tables and policies.

use forebay_store::{DataColumn, DataType, Policy, Role, Schema};

use super::value::{from_element, to_element};
use super::{from_object, malformed, proto, to_object};
use crate::error::Result;

/// A table's declaration on the wire.
pub fn from_schema(schema: &Schema) -> proto::Schema {
    let columns = schema.data_columns().iter().map(from_column).collect();
    proto::Schema { columns, policy: schema.policy_name().map(str::to_owned) }
}

/// The declaration of a table.
///
/// # Errors
/// `input` for types and roles that there are not.
pub fn to_schema(schema: proto::Schema) -> Result<Schema> {
    let columns = schema.columns.into_iter().map(to_column).collect::<Result<Vec<_>>>()?;
    let declared = columns.into_iter().fold(Schema::new(), Schema::with);
    Ok(schema.policy.iter().fold(declared, |declared, policy| declared.policy(policy)))
}

/// A column's declaration on the wire.
pub fn from_column(column: &DataColumn) -> proto::DataColumn {
    let DataColumn { name, data_type, shared, role, lazy, retired } = column;
    proto::DataColumn {
        name: name.clone(),
        data_type: Some(from_type(data_type)),
        shared: *shared,
        role: role.map_or(String::new(), |role| role.as_str().to_owned()),
        lazy: *lazy,
        retired: *retired,
    }
}

/// The declaration of a column.
///
/// # Errors
/// `input` for a type or role that there is not.
pub fn to_column(column: proto::DataColumn) -> Result<DataColumn> {
    let proto::DataColumn { name, data_type, shared, role, lazy, retired } = column;
    let found = Role::ALL.into_iter().find(|known| known.as_str() == role);
    if found.is_none() && !role.is_empty() {
        return Err(malformed(&format!("{role:?} is no role of a column")));
    }
    Ok(DataColumn { role: found, shared, lazy, retired, ..DataColumn::new(&name, to_type(data_type)?) })
}

fn from_type(data_type: &DataType) -> proto::DataType {
    use proto::data_type::Type;
    let wire = match data_type {
        DataType::Bool => Type::Boolean(true),
        DataType::Number(element) => Type::Number(from_element(*element)),
        DataType::Utf8 => Type::Utf8(true),
        DataType::Binary => Type::Binary(true),
        DataType::List(element) => Type::List(from_element(*element)),
        DataType::Tensor(element, shape) => {
            Type::Tensor(proto::Tensor { element: from_element(*element), shape: shape.clone() })
        }
    };
    proto::DataType { r#type: Some(wire) }
}

fn to_type(data_type: Option<proto::DataType>) -> Result<DataType> {
    use proto::data_type::Type;
    let wire = data_type.and_then(|wire| wire.r#type).ok_or_else(|| malformed("a column has no type"))?;
    Ok(match wire {
        Type::Boolean(_) => DataType::Bool,
        Type::Number(element) => DataType::Number(to_element(element)?),
        Type::Utf8(_) => DataType::Utf8,
        Type::Binary(_) => DataType::Binary,
        Type::List(element) => DataType::List(to_element(element)?),
        Type::Tensor(tensor) => DataType::Tensor(to_element(tensor.element)?, tensor.shape),
    })
}

/// A policy's declaration on the wire.
pub fn from_policy(policy: &Policy) -> proto::Policy {
    let objects = policy.objects.iter().map(from_object).collect();
    proto::Policy { version: policy.version, objects, state_keys: policy.state_keys.clone(), updated_at: 0 }
}

/// The declaration of a policy.
pub fn to_policy(policy: proto::Policy) -> Policy {
    let keys = policy.state_keys.iter().map(String::as_str);
    let mut declared = Policy::durable(keys).version(policy.version);
    declared.objects = policy.objects.into_iter().map(to_object).collect();
    declared
}

#[cfg(test)]
mod tests {
    use forebay_store::Element;

    use super::*;

    #[test]
    fn declarations_come_back_as_they_went() {
        let schema = Schema::new()
            .data_shared("prompt", DataType::list(Element::Int32))
            .role("prompt", Role::InputIds)
            .data("text", DataType::Utf8)
            .data("image", DataType::Binary)
            .lazy("image")
            .data("done", DataType::Bool)
            .data("reward", DataType::Float32)
            .data("state", DataType::Tensor(Element::BFloat16, vec![2, 3]))
            .policy("shared");
        assert_eq!(to_schema(from_schema(&schema)).unwrap(), schema);
        let policy = Policy::durable(["weights", "moments"]).version(7);
        assert_eq!(to_policy(from_policy(&policy)), policy);
    }

    #[test]
    fn columns_of_no_type_or_of_an_unknown_role_are_refused() {
        let column = from_column(&DataColumn::new("a", DataType::Bool));
        for wrong in [
            proto::DataColumn { data_type: None, ..column.clone() },
            proto::DataColumn { data_type: Some(proto::DataType::default()), ..column.clone() },
            proto::DataColumn { role: "king".to_owned(), ..column },
        ] {
            assert_eq!(to_column(wrong).unwrap_err().cause(), "Protocol");
        }
    }
}
