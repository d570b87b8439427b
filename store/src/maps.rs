//! Hash maps over what the store itself numbers: rows, cells, places.
//!
//! The standard maps hash so that nobody who chooses keys can make them collide. Keys that nobody chooses do not need
//! that, and are looked up for every cell that is written.

use std::collections::HashMap;

/// A map whose keys no caller chooses.
pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
