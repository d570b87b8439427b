//! How many connections each host has.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// How many connections each host has, and may have.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    most: Option<usize>,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A host's connection, until it is dropped.
#[derive(Debug)]
pub(super) struct OfHost(Hosts, IpAddr);

impl Hosts {
    pub(super) fn new(most: Option<usize>) -> Self {
        Hosts { most, open: Arc::default() }
    }

    /// A place for one more of that host, if it may have one. Who has no address is of this machine, and has no limit.
    pub(super) fn enter(&self, host: Option<IpAddr>) -> Result<Option<OfHost>, ()> {
        let (Some(host), Some(most)) = (host, self.most) else { return Ok(None) };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner); // counts stay counts
        let has = open.entry(host).or_default();
        if *has >= most {
            return Err(());
        }
        *has += 1;
        Ok(Some(OfHost(self.clone(), host)))
    }
}

impl Drop for OfHost {
    fn drop(&mut self) {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(has) = open.get_mut(&self.1) {
            *has -= 1;
            if *has == 0 {
                open.remove(&self.1);
            }
        }
    }
}
