//! Claims: rows in the hands of a holder.
//!
//! A claim's life:
//! ```text
//! task      leased ──finish──> finished
//! trainer   leased ──accumulated──> accumulated ──commit of its step──> consumed
//! both      leased ──drop, deadline, end of the process──> released, expired, lost: the rows are claimable again, once
//! trainer   accumulated ──cache dropped, end of the process──> returned, lost: the rows are claimable again, once
//! ```
//! An epoch (incarnation of the store, claim number) fences late holders: once a claim has ended, nothing done with it
//! changes anything.
//!
//! [`book`] is what the engine knows of claims; [`handle`] is what a holder has.

mod book;
mod handle;

pub(crate) use book::{ClaimBook, ClaimState};
pub use book::{ClaimInfo, ClaimProgress};
pub use handle::Claim;
