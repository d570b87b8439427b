//! Memory that other processes were given: it is not used again before they have said so, or have ended.
//!
//! A loan begins before the other process is told where its memory lies, and is written down before that; it ends when the
//! process lets go. One that has not said so leaves its loan in *quarantine* until it has ended. The journal outlives this
//! process, so whoever opens the store next goes on with the loans of processes that live.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::host::{HostExtent, LoanRecord, places_of};
use super::super::owner::{Owner, ProcessHandle};
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
    /// Lends memory to another process, and gives the loan's number. `None` when it is this process that has it.
    pub(in crate::object) fn lend(
        &mut self,
        owner: &Owner,
        extents: &Arc<Vec<HostExtent>>,
    ) -> Result<Option<u64>> {
        let Owner::Process(process) = owner else { return Ok(None) };
        self.loans_given += 1;
        let number = self.loans_given;
        let mut record = None;
        if let Some(journal) = &mut self.journal {
            let said = LoanRecord { number, process: process.record(), places: places_of(extents) };
            journal.lend(&said).map_err(unnoted)?;
            record = Some(said);
        }
        let loan = Loan { owner: owner.clone(), extents: extents.clone(), record, state: LoanState::Out };
        self.loans.insert(number, loan);
        Ok(Some(number))
    }

    /// Nobody here looks after a loan any more. It is over when its process `let_go` or has ended; otherwise it is in quarantine.
    #[must_use = "the memory is given back when this is dropped"]
    pub(in crate::object) fn end_loan(&mut self, number: u64, let_go: bool) -> Vec<Arc<Vec<HostExtent>>> {
        if let Some(loan) = self.loans.get_mut(&number) {
            loan.state = if let_go { LoanState::Over } else { LoanState::Quarantined };
        }
        self.end_loans()
    }

    /// Ends the loans that are over and those of processes that have ended, once the journal says so.
    #[must_use = "the memory is given back when this is dropped"]
    pub(in crate::object) fn end_loans(&mut self) -> Vec<Arc<Vec<HostExtent>>> {
        let Catalog { loans, journal, .. } = self;
        let over = loans.extract_if(.., |number, loan| {
            let is_over = match loan.state {
                LoanState::Out => false,
                LoanState::Over => true,
                LoanState::Quarantined => loan.owner.may_be_trusted_gone(),
            };
            if is_over {
                loan.state = LoanState::Over;
            }
            let journal = journal.as_mut().filter(|_| loan.record.is_some());
            is_over && journal.is_none_or(|journal| journal.let_go(*number).is_ok())
        });
        over.map(|(_, loan)| loan.extents).collect()
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
