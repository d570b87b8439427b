//! The hands of other processes: values that they write and read where the store keeps them.
//!
//! Who shares the machine and may open the store's files need not send values through a socket. Such a *neighbour* fills an
//! extent of its own ([`ExtentFiller`]), which the store has lent to it ([`LentExtent`]), and says only where each value
//! lies; and it is told where the values of its claims lie, and reads them through mappings of its own
//! ([`ValueReader`]). What it may do so is what it may do anyway: whoever may open the files may spoil them. Others of
//! the machine may fill [slabs](Slab), which are copied from; all others send and get values.
//!
//! # What the store believes
//! Nothing. A value that is said to lie in a lent extent is read with `read`, so that a file that was cut short is an error
//! and no signal, held against its checksum, and has behind it what the store would write there: where its filler has put something
//! else there, or nothing, the store writes it ([`TakenValues`]). Ranges that were taken before are refused. What a neighbour
//! does to its extent after that is what it could do to any file.
//!
//! # When a file may be used again
//! A neighbour that is slow, stopped, or cut off from the server must not write into, or read, what has become somebody
//! else's, whatever became of the server meanwhile. Both are held back by locks on files that end with the neighbour's
//! process, so whoever opens the store next respects them too, and no clock is asked:
//! - to fill: `fillers/NUMBER.filler` exists for every extent that was lent. The neighbour locks it (shared) and then reads
//!   in it which generation it was lent; the store locks it (exclusively), writes over it and removes it before it gives the
//!   extent away. Whoever comes second sees that.
//! - to read: a [reader's slot](crate::reader), which says how many records had been written when the oldest answer was
//!   asked for of which something is still held. It is written before the question is sent, so the answer names nothing
//!   that may be given away.

mod cell_name;
mod filler;
mod gathered;
mod lent;
mod loan;
mod lock;
mod placed;
mod places;
mod ranges;
mod reader;
mod slab;
mod taken;

pub use cell_name::CellName;
pub use filler::ExtentFiller;
pub use lent::LentExtent;
pub use loan::Loan;
pub use placed::{Placed, PlacedKind, Spot};
pub use places::Places;
pub use reader::{Hold, ValuePlace, ValueReader};
pub use slab::{Copied, Slab, SlabFiller};

pub(crate) use lock::{is_lent, may_give_away};
pub(crate) use taken::TakenValues;
