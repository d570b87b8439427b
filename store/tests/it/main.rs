//! What the store promises, held against its public interface.
//!
//! Most tests run on a disk in memory and a clock that stands still; [`support`] has both, and a way to read every
//! column of every row as text.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

mod backup_copy;
mod campaign;
mod cells;
mod checked;
mod checkpoints;
mod claims;
mod columns;
mod compaction;
mod crash;
mod deletion;
mod disk;
mod doubt;
mod durability;
mod duties;
mod early;
mod early_ends;
mod exact_groups;
mod expressed;
mod extents;
mod external;
mod faults;
mod flat;
mod fork;
mod gangs;
mod gap;
mod golden;
mod groups;
mod hostile;
mod in_place;
mod indexing;
mod killed;
mod limiter;
mod limits;
mod links;
mod local;
mod looks;
mod memory;
mod model;
mod objects;
mod over;
mod parity;
mod peek;
mod power;
mod power_names;
mod probe;
mod puts;
mod reader;
mod recovery;
mod remembered;
mod repair;
mod repair_copy;
mod repair_gone;
mod retention;
mod retired;
mod rewind;
mod rewound_groups;
mod rows;
mod snapshot;
mod space;
mod staleness;
mod steps;
mod tables;
mod tabular;
mod texts;
mod threads;
mod undone;
mod verify;
mod waits;
