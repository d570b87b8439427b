//! New rows, as `Table.insert` is told of them.

use forebay::store::{NewRow, Origin, VersionSpan};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::changes::starts;
use crate::failure::{Result, input};
use crate::options;
use crate::table::purpose_named;

/// What a call says of the rows that it begins, beside their cells: of all of them, or of each.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) policy_version: u64,
    pub(crate) purpose: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) parents: Option<Vec<Option<String>>>,
    pub(crate) weights: Option<String>,
    pub(crate) idempotency_tokens: Option<Vec<u128>>,
    pub(crate) version_spans: Option<Vec<Vec<(u32, u64)>>>,
    pub(crate) next_attempt: bool,
    pub(crate) late: bool,
    pub(crate) excluded: Option<String>,
    pub(crate) origin: Option<String>,
}

impl Begun {
    /// The rows with these sample ids, trained on from there on: one start of all, or one a row.
    pub(crate) fn rows(
        self,
        sample_ids: &Bound<'_, PyAny>,
        trainable_from: Option<&Bound<'_, PyAny>>,
    ) -> Result<Vec<NewRow>> {
        let samples = samples(sample_ids)?;
        check_count("parents", self.parents.as_ref().map(Vec::len), samples.len())?;
        check_count("idempotency_tokens", self.idempotency_tokens.as_ref().map(Vec::len), samples.len())?;
        check_count("version_spans", self.version_spans.as_ref().map(Vec::len), samples.len())?;
        let starts =
            trainable_from.map(|given| starts(given, "trainable_from", samples.len())).transpose()?;
        let mut rows: Vec<NewRow> = samples
            .iter()
            .map(|sample| Ok(NewRow::new(self.policy_version, sample)?))
            .collect::<Result<_>>()?;
        self.say_of_all(&mut rows)?;
        for (row, parent) in rows.iter_mut().zip(self.parents.into_iter().flatten()) {
            row.parent = parent.unwrap_or_default();
        }
        for (row, token) in rows.iter_mut().zip(self.idempotency_tokens.into_iter().flatten()) {
            row.token = token;
        }
        for (row, spans) in rows.iter_mut().zip(self.version_spans.into_iter().flatten()) {
            row.spans = spans.into_iter().map(|(start, version)| VersionSpan { start, version }).collect();
        }
        for (row, start) in rows.iter_mut().zip(starts.into_iter().flatten()) {
            row.trainable_from = start;
        }
        Ok(rows)
    }

    fn say_of_all(&self, rows: &mut [NewRow]) -> Result<()> {
        let purpose = self.purpose.as_deref().map(purpose_named).transpose()?;
        let origin = self.origin.as_deref().map(origin_named).transpose()?;
        for row in rows {
            row.purpose = purpose.unwrap_or(row.purpose);
            row.agent.clone_from(&self.agent);
            row.origin.clone_from(&origin);
            row.weights = self.weights.clone().unwrap_or_default();
            (row.next_attempt, row.late) = (self.next_attempt, self.late);
            row.excluded.clone_from(&self.excluded);
        }
        Ok(())
    }
}

fn samples(given: &Bound<'_, PyAny>) -> Result<Vec<String>> {
    if given.is_instance_of::<PyString>() {
        return Err(input("sample_ids is one text; give a list with one id a row"));
    }
    let wrong = || options::wrong("sample_ids", "a list of sample ids, one a row", given);
    let ids = given.try_iter().map_err(|_| wrong())?;
    // What an iterator raises is its caller's, and so is a Ctrl-C that comes meanwhile.
    ids.map(|id| id?.extract().map_err(|_| wrong())).collect()
}

fn check_count(what: &str, given: Option<usize>, rows: usize) -> Result<()> {
    match given.filter(|given| *given != rows) {
        Some(given) => Err(input(format!("{what} has {given} entries for {rows} rows"))),
        None => Ok(()),
    }
}

fn origin_named(text: &str) -> Result<Origin> {
    Origin::parse(text).ok_or_else(|| {
        input(format!(
            "origin={text:?} names no peer and round of it; it is PEER/ROUND, such as \"berlin-3/17\""
        ))
    })
}
