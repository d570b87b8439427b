//! What only a store behind a server can meet: networks that break, clients that die, servers that come again, tokens.

mod access;
mod admin;
mod along;
mod broken;
mod bulk;
mod early;
mod flow;
mod fuzzed;
mod hostile;
mod limits;
mod lost;
mod neighbour;
mod objects;
mod outage;
mod proxy;
mod pushed;
mod put;
mod raw;
mod reads;
mod resumed;
mod room;
mod shared;
mod slabs;
mod slow_disk;
mod waiting;
