//! Data parallel: the ranks of an agent share out the units of a step and make the same update.
//!
//! Each rank accumulates its units at their planned positions. [`RankLinks::exchange`] then gives every rank the units
//! of all: trees are joined by position and not by rank, so which rank computed a unit, and how many ranks there are, changes
//! no bit. After it each rank applies the step by itself; weights are never sent.
//!
//! The procedure: rank 0 reads one cache of every other rank, joins them with its own, and sends the whole back. Before it has
//! joined them, any failure (a rank that died, sent half a cache, or is at another version) is told to all that are left:
//! every cache is then as it was, and once the units of the lost rank have been accumulated elsewhere, the exchange is made
//! again without it. After it has joined them the step is complete, and a rank that dies now is only named.
//!
//! If rank 0 is lost, the others have their caches as they were: make a new group with another first rank.
//!
//! A link is anything that reads and writes bytes in order: a pipe, a Unix socket, a TCP stream. Time limits are the
//! link's own: a read that times out is a lost rank. One exchange is one frame each way on a link, so after a failure all
//! links that are left stand at the beginning of a frame.

mod frame;
mod links;

pub use links::{ExchangeReport, RankLinks};
