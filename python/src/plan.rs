//! What a step is to take, as `Store.step` is told.

use std::collections::BTreeSet;

use forebay::client::Plan;
use forebay::store::ConsumerKind;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::arguments;
use crate::consumer::ConsumerName;
use crate::failure::{Result, input, state};
use crate::handle::Open;
use crate::lacking;
use crate::options::wrong;

/// The membership of a step, by consumer.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    groups: Vec<(String, Vec<String>)>,
    rows: Vec<(String, u64)>,
}

impl Membership {
    /// What a call says: groups by key, or numbers of rows, each by consumer.
    pub(crate) fn of(groups: Option<&Bound<'_, PyAny>>, rows: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let mut membership = Membership::default();
        let of_keys = "a dict of lists of keys by consumer";
        let groups = groups.map(|given| arguments::dict("groups", of_keys, given)).transpose()?;
        let of_counts = "a dict of numbers of rows by consumer";
        let rows = rows.map(|given| arguments::dict("rows", of_counts, given)).transpose()?;
        for (consumer, keys) in groups.into_iter().flatten() {
            let expected = "a list of keys a consumer";
            let is_one = keys.is_instance_of::<PyString>();
            let listed =
                keys.try_iter().and_then(|keys| keys.map(|key| key?.extract()).collect::<PyResult<_>>());
            let keys: Vec<String> =
                listed.ok().filter(|_| !is_one).ok_or_else(|| wrong("groups", expected, &keys))?;
            membership.groups.push((name_of(&consumer)?, keys));
        }
        for (consumer, count) in rows.into_iter().flatten() {
            let count = count.extract().map_err(|_| wrong("rows", "a number of rows a consumer", &count))?;
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
        return Err(state(format!(
            "there is nothing to take: no trainer has a group that was begun; insert rows first, or say what the step \
             takes with groups= or rows={}",
            lacking::to_come(open)
        )));
    }
    Ok(groups)
}
