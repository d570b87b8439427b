//! Resolves what a user declares, a consumer or a step's plan, against the tables and consumers that are there.

use super::State;
use crate::consumer::{Consumer, ConsumerKind, GroupBy};
use crate::error::{Cause, Error, Result};
use crate::log::record::ConsumerRecord;
use crate::schema::nearest;

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
    if consumer.group.is_some_and(|(_, members)| members == 0) {
        return Err(argument("a group of 0 members is never complete; give at least 1".into()));
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
        let mask = consumer
            .ready
            .iter()
            .try_fold(0, |mask, c| Ok::<_, Error>(mask | 1 << table.schema.index_of(c)?))?;
        tables.push(table.id);
        required.push(mask);
    }
    Ok(ConsumerRecord {
        trainer: consumer.kind == ConsumerKind::Trainer,
        tables,
        required,
        group: GroupBy::tag(consumer.group.map(|(by, _)| by)),
        group_size: consumer.group.map_or(0, |(_, members)| members),
    })
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
    let Some((by, _)) = planned.group else {
        let single = "it takes single rows; plan a number of rows instead of groups";
        return if groups.is_empty() { Ok(()) } else { refuse(single) };
    };
    if let Some(key) = groups.iter().find(|key| by.parse(key).is_none()) {
        let reason =
            format!("{key:?} is no group key of {:?}: by input and turn it ends in _TURN", planned.name);
        return Err(Cause::Argument { what: "plan", reason }.into());
    }
    Ok(())
}
