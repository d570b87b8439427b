//! What a step is to take, as `Store.step` is told.

use std::collections::BTreeSet;

use forebay::client::Plan;
use forebay::store::ConsumerKind;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::consumer::ConsumerName;
use crate::failure::{Result, input, state};
use crate::handle::Open;

/// The membership of a step, by consumer.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    groups: Vec<(String, Vec<String>)>,
    rows: Vec<(String, u64)>,
}

impl Membership {
    /// What a call says: groups by key, or numbers of rows, each by consumer.
    pub(crate) fn of(groups: Option<&Bound<'_, PyDict>>, rows: Option<&Bound<'_, PyDict>>) -> Result<Self> {
        let mut membership = Membership::default();
        for (consumer, keys) in groups.into_iter().flatten() {
            let keys: Vec<String> = keys.try_iter()?.map(|key| key?.extract()).collect::<PyResult<_>>()?;
            membership.groups.push((name_of(&consumer)?, keys));
        }
        for (consumer, count) in rows.into_iter().flatten() {
            let count = count
                .extract()
                .map_err(|_| crate::options::wrong("rows", "a number of rows a consumer", &count))?;
            membership.rows.push((name_of(&consumer)?, count));
        }
        Ok(membership)
    }

    /// The plan, and the consumers in it. Where nothing was said: every group that was begun and that no step has taken.
    pub(crate) fn plan(mut self, open: &Open) -> Result<(Plan, BTreeSet<String>)> {
        if self.groups.is_empty() && self.rows.is_empty() {
            self.groups = begun(open)?;
        }
        let plan = self.groups.iter().fold(Plan::new(), |plan, (name, keys)| plan.groups(name, keys));
        let plan = self.rows.iter().fold(plan, |plan, (name, count)| plan.rows(name, *count));
        let names =
            self.groups.into_iter().map(|(name, _)| name).chain(self.rows.into_iter().map(|(name, _)| name));
        Ok((plan, names.collect()))
    }
}

fn name_of(consumer: &Bound<'_, PyAny>) -> Result<String> {
    let name: ConsumerName<'_> = consumer
        .extract()
        .map_err(|_| input("a step is planned by consumer: give {consumer: ...}, by object or by name"))?;
    Ok(name.name().to_owned())
}

/// The open groups of every trainer that has some.
fn begun(open: &Open) -> Result<Vec<(String, Vec<String>)>> {
    let trainers = open.client.consumers()?.into_iter().filter(|told| told.kind == ConsumerKind::Trainer);
    let groups = trainers.map(|told| {
        let keys = open.client.connection().open_groups(&told.name)?;
        Ok((told.name, keys))
    });
    let mut groups: Vec<(String, Vec<String>)> = groups.collect::<Result<_>>()?;
    groups.retain(|(_, keys)| !keys.is_empty());
    if groups.is_empty() {
        return Err(state(
            "there is nothing to take: no trainer has a group that was begun; insert rows first, or say what the step \
             takes with groups= or rows=",
        ));
    }
    Ok(groups)
}
