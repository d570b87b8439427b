//! The snapshots that one holder has of a store of this process, by number.
//!
//! An embedded client is one holder; a server has one for each session, so that nobody reads or ends what is another's. Dropping it ends
//! them all. A snapshot ends with its deadline, too: whoever asks next finds it gone, and a server looks for those that nobody asks for.
//!
//! # Locks
//! `inner` and that of `orders`, one at a time, for a look-up. Rows are sorted and read, and snapshots dropped, with nothing locked.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_store::{Kind, ScanOrder, Store, TableSnapshot, Timestamp, VersionRows};

use super::calls::{ReadRows, SnapshotCalls, TableShown, TakeSnapshot, TakenSnapshot};
use super::orders::{Order, Orders};
use super::rows::{batch_of, columns_of, numbers_of};
use crate::error::{Error, Result};

/// How many snapshots one holder may have at a time.
const SNAPSHOTS_MAX: usize = 16;
/// The greatest age of one where the store has none ([`Options::snapshot_age_max`](forebay_store::Options::snapshot_age_max)).
const AGE_MAX: Duration = Duration::from_secs(3600);

/// What one holder has.
#[derive(Debug)]
pub struct KeptSnapshots {
    store: Store,
    owner: String,
    age_max: Duration,
    inner: Mutex<Inner>,
    orders: Orders,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    kept: HashMap<u64, Kept>,
    /// Nothing is taken any more.
    is_closed: bool,
}

#[derive(Debug)]
struct Kept {
    deadline: Timestamp,
    /// No deadline is later.
    last: Timestamp,
    shown: Arc<Shown>,
}

/// What a snapshot shows. Who reads it has a part in it, also when it has ended meanwhile.
#[derive(Debug)]
struct Shown {
    tables: Vec<TableSnapshot>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
}

fn over(number: u64) -> Error {
    let message = format!(
        "snapshot {number} is over (its deadline has come, or it was released) or another client's; take another, and extend it in time"
    );
    Error::new(Kind::State, "SnapshotOver", message)
}

impl Shown {
    fn table(&self, name: &str) -> Result<&TableSnapshot> {
        self.tables.iter().find(|table| table.name() == name).ok_or_else(|| {
            let all: Vec<&str> = self.tables.iter().map(TableSnapshot::name).collect();
            let message = format!("the snapshot shows no table {name:?}; it shows {}", all.join(", "));
            Error::input("Unknown", message)
        })
    }
}

impl KeptSnapshots {
    /// Of nothing yet. `owner` is what `system.pins` shows.
    pub fn new(store: Store, owner: &str) -> Self {
        let age_max = store.snapshot_age_max().unwrap_or(AGE_MAX);
        KeptSnapshots {
            store,
            owner: owner.to_owned(),
            age_max,
            inner: Mutex::default(),
            orders: Orders::default(),
        }
    }

    fn now(&self) -> Timestamp {
        self.store.clock().now()
    }

    /// Ends all of them, and refuses those that would be taken later.
    pub fn give_back(&self) {
        let mut inner = lock(&self.inner);
        inner.is_closed = true;
        let all = std::mem::take(&mut inner.kept);
        drop(inner);
        drop(all);
        self.orders.forget(|_| true);
    }

    /// Ends those whose deadline has come.
    pub fn expire(&self) {
        let mut inner = lock(&self.inner);
        if inner.kept.is_empty() {
            return;
        }
        let now = self.now();
        let ended: Vec<(u64, Kept)> = inner.kept.extract_if(|_, kept| kept.deadline <= now).collect();
        drop(inner);
        if !ended.is_empty() {
            self.orders.forget(|number| ended.iter().any(|(of, _)| *of == number));
        }
    }

    fn with<T>(&self, number: u64, look: impl FnOnce(&mut Kept) -> T) -> Result<T> {
        self.store.check_process()?;
        self.expire();
        lock(&self.inner).kept.get_mut(&number).map(look).ok_or_else(|| over(number))
    }

    fn shown(&self, number: u64) -> Result<Arc<Shown>> {
        self.with(number, |kept| kept.shown.clone())
    }

    fn tables(&self, take: &TakeSnapshot) -> Result<(u64, Vec<TableSnapshot>)> {
        let owner = take.named_owner().unwrap_or(&self.owner);
        let snapshot = self.store.snapshot_for(&format!("snapshot of {owner}"));
        let tables = match take.named() {
            None => snapshot.tables().to_vec(),
            Some(names) => {
                names.iter().try_for_each(|name| snapshot.table(name).map(drop))?;
                let named = |table: &&TableSnapshot| names.iter().any(|name| name == table.name());
                snapshot.tables().iter().filter(named).cloned().collect()
            }
        };
        Ok((snapshot.commit(), tables))
    }

    fn keep(&self, tables: Vec<TableSnapshot>, time: Duration) -> Result<(u64, Timestamp)> {
        let now = self.now();
        let mut inner = lock(&self.inner);
        if inner.is_closed {
            let reason = "the client has gone".to_owned();
            return Err(forebay_store::Error::from(forebay_store::Cause::Closed { reason }).into());
        }
        if inner.kept.len() >= SNAPSHOTS_MAX {
            let message =
                format!("{SNAPSHOTS_MAX} snapshots are held already by this client; release some of them");
            return Err(Error::new(Kind::Capacity, "Snapshots", message));
        }
        let last = now.after(self.age_max);
        let deadline = now.after(time).min(last);
        inner.next += 1;
        let number = inner.next;
        let shown = Arc::new(Shown { tables });
        inner.kept.insert(number, Kept { deadline, last, shown });
        Ok((number, deadline))
    }
}

fn shown_of(table: &TableSnapshot) -> TableShown {
    TableShown {
        name: table.name().to_owned(),
        policy: table.policy().to_owned(),
        current_version: table.current_version(),
        rows: table.row_count() as u64,
        schema: table.schema().clone(),
    }
}

impl SnapshotCalls for KeptSnapshots {
    fn take(&self, take: &TakeSnapshot) -> Result<TakenSnapshot> {
        self.store.check_process()?;
        if let Some(reason) = self.store.closed() {
            return Err(forebay_store::Error::from(forebay_store::Cause::Closed { reason }).into());
        }
        self.expire();
        let (commit, held) = self.tables(take)?;
        let tables = held.iter().map(shown_of).collect();
        let (number, deadline) = self.keep(held, take.held_for())?;
        Ok(TakenSnapshot { number, commit, deadline, tables })
    }

    fn read(&self, snapshot: u64, table: &str, rows: &ReadRows, from: u64) -> Result<Option<RecordBatch>> {
        let shown = self.shown(snapshot)?;
        let table = shown.table(table)?;
        let columns = columns_of(table, rows.columns.as_deref())?;
        let is_arrival = rows.order == ScanOrder::Arrival;
        let order = Order { snapshot, table: table.name().to_owned(), version: rows.version, is_arrival };
        let numbers = self.orders.rows(&order, || numbers_of(table, rows));
        if !lock(&self.inner).kept.contains_key(&snapshot) {
            self.orders.forget(|number| number == snapshot); // it has ended while its rows were sorted
        }
        batch_of(table, &numbers, &columns, rows, from)
    }

    fn versions(&self, snapshot: u64, table: &str) -> Result<BTreeMap<u64, VersionRows>> {
        Ok(self.shown(snapshot)?.table(table)?.versions_up_to(u64::MAX))
    }

    fn extend(&self, snapshot: u64, time: Duration) -> Result<Timestamp> {
        let until = self.now().after(time);
        self.with(snapshot, |kept| {
            kept.deadline = kept.deadline.max(until).min(kept.last);
            kept.deadline
        })
    }

    fn release(&self, snapshot: u64) -> Result<()> {
        self.store.check_process()?;
        let released = lock(&self.inner).kept.remove(&snapshot);
        released.map(drop).ok_or_else(|| over(snapshot))?;
        self.orders.forget(|number| number == snapshot);
        Ok(())
    }
}
