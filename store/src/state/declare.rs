//! Resolves what a user declares, a consumer or a step's plan, against the tables and consumers that are there.

use super::State;
use crate::consumer::{Consumer, ConsumerKind, GroupBy, MEMBERS_MAX};
use crate::error::{Cause, Error, Result};
use crate::log::record::{ConditionRecord, ConsumerRecord};
use crate::origin::Origins;
use crate::schema::{DataType, Schema, nearest};

/// The error for a name that nothing has, with the nearest one that something has.
pub(crate) fn unknown<'a>(what: &'static str, name: &str, names: impl Iterator<Item = &'a str>) -> Error {
    Cause::Unknown { what, name: name.to_owned(), close: nearest(name, names) }.into()
}

/// Resolves the names of a consumer's declaration.
pub(crate) fn declare(state: &State, consumer: &Consumer) -> Result<ConsumerRecord> {
    let argument = |reason: String| Error::from(Cause::Argument { what: "consumer", reason });
    if consumer.tables.is_empty() {
        return Err(argument("it reads no table; name at least one".into()));
    }
    if let Some(size) =
        consumer.grouping.map(|grouping| grouping.size).filter(|s| !(1..=MEMBERS_MAX).contains(s))
    {
        return Err(argument(format!("a group has 1 to {MEMBERS_MAX} members, not {size}")));
    }
    if consumer.staleness.is_some() && consumer.kind == ConsumerKind::Task {
        return Err(argument(
            "a task serves whatever its tables' trainers may take; declare the window there".into(),
        ));
    }
    if consumer.origins == Origins::External && consumer.kind == ConsumerKind::Trainer {
        return Err(argument(
            "a trainer of peers' rows alone would leave those of its own run open; take all".into(),
        ));
    }
    let (mut tables, mut required) = (Vec::new(), Vec::new());
    for (at, name) in consumer.tables.iter().enumerate() {
        if consumer.tables[..at].contains(name) {
            return Err(argument(format!("it names table {name:?} twice")));
        }
        let index = state
            .table_named(name)
            .ok_or_else(|| unknown("table", name, state.tables.iter().map(|t| &*t.name)))?;
        let table = &state.tables[index];
        if table.consumers.len() >= CONSUMERS_MAX {
            return Err(
                Cause::TooMany { what: "consumers", limit: CONSUMERS_MAX, found: CONSUMERS_MAX + 1 }.into()
            );
        }
        if consumer.kind == ConsumerKind::Trainer && table.trainer.is_some() {
            return Err(argument(format!("table {name:?} has a trainer already; a row is trained on once")));
        }
        required.push(required_columns(&table.schema, consumer)?);
        tables.push(table.id);
    }
    let columns = |name: &str| {
        let of_table = |&table: &u32| number_column(&state.tables[table as usize].schema, name);
        tables.iter().map(of_table).collect::<Result<Vec<u16>>>()
    };
    let condition = |(column, comparison, number): &(String, crate::consumer::Comparison, f64)| {
        Ok(ConditionRecord {
            columns: columns(column)?,
            comparison: comparison.tag(),
            number: number.to_bits(),
        })
    };
    let members = consumer.grouping.map_or(1, |grouping| grouping.size);
    Ok(ConsumerRecord {
        trainer: consumer.kind == ConsumerKind::Trainer,
        grouping: consumer.grouping.map(|grouping| grouping.record()),
        purposes: consumer.purposes,
        staleness: consumer.staleness,
        origins: consumer.origins.tag(),
        conditions: consumer.conditions.iter().map(condition).collect::<Result<_>>()?,
        limiter: consumer.limiter.map(|limiter| limiter.record(members).map(Box::new)).transpose()?,
        priority: consumer.priority.as_deref().map_or(Ok(Vec::new()), columns)?,
        tables,
        required,
    })
}

/// What must be final for a row to be ready, a bit a column: what was asked for, and what decides on it.
fn required_columns(schema: &Schema, consumer: &Consumer) -> Result<u64> {
    let decides = consumer.conditions.iter().map(|(column, ..)| column).chain(&consumer.priority);
    consumer.ready.iter().chain(decides).try_fold(0, |mask, column| Ok(mask | 1 << schema.index_of(column)?))
}

/// A column that can be compared.
fn number_column(schema: &Schema, name: &str) -> Result<u16> {
    let index = schema.index_of(name)?;
    match &schema.data_columns()[index].data_type {
        DataType::Bool | DataType::Number(_) => Ok(index as u16),
        found => {
            let (expected, found) = ("a number or a bool to compare".to_owned(), found.to_string());
            Err(Cause::TypeMismatch { column: name.to_owned(), expected, found }.into())
        }
    }
}

/// The most consumers that a table may have.
const CONSUMERS_MAX: usize = 16;

/// Checks one entry of a step's plan; `twice` says that its consumer was named before.
pub(crate) fn check_planned(state: &State, consumer: usize, groups: &[String], twice: bool) -> Result<()> {
    let planned = state.consumers.get(consumer).filter(|_| !twice).ok_or_else(|| {
        let reason = format!("consumer number {consumer} is named twice or is not of this store");
        Cause::Argument { what: "plan", reason }
    })?;
    let refuse = |hint| {
        let (consumer, found) = (planned.name.to_string(), planned.kind.as_str());
        Err(Cause::ConsumerKind { consumer, found, hint }.into())
    };
    if planned.kind != ConsumerKind::Trainer {
        return refuse("only a trainer takes part in steps; claim from a task directly");
    }
    let Some(by) = planned.grouping.map(|grouping| grouping.by) else {
        let single = "it takes single rows; plan a number of rows instead of groups";
        return if groups.is_empty() { Ok(()) } else { refuse(single) };
    };
    if let Some(key) = groups.iter().find(|key| by.parse(key).is_none()) {
        return Err(no_key("plan", key, &planned.name, by));
    }
    Ok(())
}

/// The error for a text that is no group key.
pub(crate) fn no_key(what: &'static str, key: &str, consumer: &str, by: GroupBy) -> Error {
    let reason = format!("{key:?} is no group key of {consumer:?}; its keys are {}", by.shape());
    Cause::Argument { what, reason }.into()
}
