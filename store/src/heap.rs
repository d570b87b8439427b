//! How many bytes the collections of the standard library take, as near as can be told from outside.
//!
//! A B-tree that is filled in order, as nearly all here are, has six items in nodes that hold eleven; a hash table has a
//! byte of its own a bucket, and at least one bucket in eight free.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// Bytes of memory that a collection has asked the allocator for, without what its items have.
pub(crate) trait HeapBytes {
    fn heap_bytes(&self) -> usize;
}

impl<T> HeapBytes for Vec<T> {
    fn heap_bytes(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

impl<T> HeapBytes for VecDeque<T> {
    fn heap_bytes(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

impl<K, V> HeapBytes for BTreeMap<K, V> {
    fn heap_bytes(&self) -> usize {
        tree_bytes(self.len(), size_of::<K>() + size_of::<V>())
    }
}

impl<K> HeapBytes for BTreeSet<K> {
    fn heap_bytes(&self) -> usize {
        tree_bytes(self.len(), size_of::<K>())
    }
}

impl<K, V, S> HeapBytes for HashMap<K, V, S> {
    fn heap_bytes(&self) -> usize {
        table_bytes(self.capacity(), size_of::<(K, V)>())
    }
}

impl<K, S> HeapBytes for HashSet<K, S> {
    fn heap_bytes(&self) -> usize {
        table_bytes(self.capacity(), size_of::<K>())
    }
}

fn tree_bytes(items: usize, item_bytes: usize) -> usize {
    items * (item_bytes + 2) * 11 / 6
}

fn table_bytes(capacity: usize, item_bytes: usize) -> usize {
    capacity * 8 / 7 * (item_bytes + 1)
}
