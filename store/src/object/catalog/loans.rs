//! Memory that other processes were given: it is not used again before they have said so, or have ended.
//!
//! A loan begins before the other process is told where its memory lies, and is written down before that; it ends when the
//! process lets go. One that has not said so leaves its loan in *quarantine* until it has ended. The journal outlives this
//! process, so whoever opens the store next goes on with the loans of processes that live. A process that lets go of what it was
//! given by somebody who is gone since (a session that was lost, an earlier process) has no number for the loan; it names the places.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::host::{HostExtent, LoanRecord, places_of};
use super::super::owner::{Owner, ProcessHandle, ProcessRecord};
use super::Catalog;
use super::copies::unnoted;
use crate::error::Result;

/// Memory that another process was given.
#[derive(Debug)]
pub(super) struct Loan {
    owner: Owner,
    extents: Arc<Vec<HostExtent>>,
    /// As the journal has it; `None` where there is none.
    record: Option<LoanRecord>,
    state: LoanState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoanState {
    /// Somebody here looks after it.
    Out,
    /// Nobody here does, and the process has not said that it let go.
    Quarantined,
    /// The process has let go, and the journal does not yet say so.
    Over,
}

impl Catalog {
    /// Lends memory to another process, and gives the loan's number.
    pub(in crate::object) fn lend(
        &mut self,
        owner: Owner,
        process: ProcessRecord,
        extents: &Arc<Vec<HostExtent>>,
    ) -> Result<u64> {
        self.loans_given += 1;
        let number = self.loans_given;
        let mut record = None;
        if let Some(journal) = &mut self.journal {
            let said = LoanRecord { number, process, places: places_of(extents) };
            journal.lend(&said).map_err(unnoted)?;
            record = Some(said);
        }
        let loan = Loan { owner, extents: extents.clone(), record, state: LoanState::Out };
        self.loans.insert(number, loan);
        Ok(number)
    }

    /// Nobody here looks after a loan any more. It is over when its process `let_go` or has ended; otherwise it is in quarantine.
    #[must_use = "the memory is given back when this is dropped"]
    pub(in crate::object) fn end_loan(&mut self, number: u64, let_go: bool) -> Option<Arc<Vec<HostExtent>>> {
        let loan = self.loans.get_mut(&number)?;
        loan.state = if let_go { LoanState::Over } else { LoanState::Quarantined };
        self.take_over(number)
    }

    /// One of the loans in quarantine that a process has of those places.
    pub(in crate::object) fn quarantined(
        &self,
        process: &ProcessRecord,
        places: &[(u32, u64)],
    ) -> Option<u64> {
        let is_of = |loan: &Loan| match (&loan.record, &loan.owner) {
            (Some(record), _) => record.process.is_surely(process),
            (None, Owner::Process(owner)) => owner.record().is_surely(process),
            (None, Owner::Here) => false,
        };
        let lies_there = |loan: &Loan| {
            let lent = places_of(&loan.extents).into_iter().map(|(segment, offset, _)| (segment, offset));
            lent.eq(places.iter().copied())
        };
        let mut quarantined =
            self.loans.iter().filter(|(_, loan)| loan.state == LoanState::Quarantined && lies_there(loan));
        quarantined.find(|(_, loan)| is_of(loan)).map(|(number, _)| *number)
    }

    /// Ends the loans of processes that have ended, and those whose end could not be written down before.
    #[must_use = "the memory is given back when this is dropped"]
    pub(in crate::object) fn end_loans(&mut self) -> Vec<Arc<Vec<HostExtent>>> {
        for loan in self.loans.values_mut().filter(|loan| loan.state == LoanState::Quarantined) {
            if loan.owner.may_be_trusted_gone() {
                loan.state = LoanState::Over;
            }
        }
        let numbers: Vec<u64> = self.loans.keys().copied().collect();
        numbers.into_iter().filter_map(|number| self.take_over(number)).collect()
    }

    /// Takes out a loan that is over, once the journal says so.
    fn take_over(&mut self, number: u64) -> Option<Arc<Vec<HostExtent>>> {
        let Catalog { loans, journal, .. } = self;
        let loan = loans.get(&number).filter(|loan| loan.state == LoanState::Over)?;
        if let Some(journal) = journal.as_mut().filter(|_| loan.record.is_some())
            && let Err(error) = journal.let_go(number)
        {
            tracing::warn!(%error, number, "the journal of the host tier is full: memory is kept back");
            return None;
        }
        loans.remove(&number).map(|loan| loan.extents)
    }

    /// Goes on with a loan of an earlier process, whose borrower lives.
    pub(in crate::object) fn recover_loan(
        &mut self,
        record: LoanRecord,
        process: ProcessHandle,
        extents: Arc<Vec<HostExtent>>,
    ) {
        let (owner, state) = (Owner::Process(process), LoanState::Quarantined);
        self.loans.insert(record.number, Loan { owner, extents, record: Some(record), state });
    }

    /// The borrower of a loan of an earlier process has ended.
    pub(in crate::object) fn forget_loan(&mut self, number: u64) {
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.let_go(number)
        {
            tracing::warn!(%error, number, "who opens the store next looks once more whether a process has ended");
        }
    }

    /// What other processes have not said to have let go of, and nobody here looks after.
    pub(in crate::object) fn quarantine_bytes(&self) -> u64 {
        let quarantined = self.loans.values().filter(|loan| loan.state == LoanState::Quarantined);
        quarantined.flat_map(|loan| loan.extents.iter()).map(HostExtent::bytes).sum()
    }

    pub(super) fn loan_records(&self) -> BTreeMap<u64, LoanRecord> {
        let records = self.loans.iter().filter_map(|(number, loan)| Some((*number, loan.record.clone()?)));
        records.collect()
    }
}
