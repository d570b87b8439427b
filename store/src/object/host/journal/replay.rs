//! What a journal comes to, read from its first record to its last whole one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Kept;
use super::record::{Entry, LoanRecord, Record, layout_of, records};
use crate::object::layout::Layout;
use crate::object::manifest::Manifest;

/// What an earlier process left.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) objects: Vec<(Manifest, Entry)>,
    pub(crate) last: BTreeMap<String, u64>,
    /// Versions that were deleted and that somebody held, or whose files were there, when that was last written down.
    pub(crate) deleted: BTreeSet<(String, u64)>,
    /// What other processes were given and have not let go of.
    pub(crate) loans: BTreeMap<u64, LoanRecord>,
    /// How many bytes of the journal are whole records.
    pub(super) bytes: u64,
}

impl Recovered {
    pub(super) fn state(&self) -> Kept<'_, impl Iterator<Item = (&Layout, &Entry)>> {
        let objects = self.objects.iter().map(|(manifest, entry)| (&manifest.layout, entry));
        Kept { objects, last: &self.last, deleted: &self.deleted, loans: &self.loans }
    }
}

pub(crate) fn replay(bytes: &[u8]) -> Recovered {
    let mut layouts: HashMap<u64, Layout> = HashMap::new();
    let mut live: BTreeMap<(String, u64), Entry> = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut deleted: BTreeSet<(String, u64)> = BTreeSet::new();
    let mut loans: BTreeMap<u64, LoanRecord> = BTreeMap::new();
    let mut whole_bytes = 0;
    let mut rises = |key: &str, version: u64| {
        let greatest = last.entry(key.to_owned()).or_default();
        *greatest = version.max(*greatest);
    };
    for (record, left) in records(bytes) {
        whole_bytes = bytes.len() - left;
        match record {
            Record::Layout { fingerprint, tensors } => {
                layouts.extend(layout_of(tensors).map(|layout| (fingerprint, layout)));
            }
            Record::Committed(entries) => {
                for entry in entries {
                    let (key, version) = (entry.manifest.key.clone(), entry.manifest.version);
                    rises(&key, version);
                    live.insert((key, version), entry);
                }
            }
            Record::Dropped { key, version } => _ = live.remove(&(key, version)),
            Record::Last { key, version } => rises(&key, version),
            Record::Deleted { key, version } => {
                rises(&key, version);
                deleted.insert((key, version));
            }
            Record::Lent(loan) => _ = loans.insert(loan.number, loan),
            Record::LetGo { number } => _ = loans.remove(&number),
        }
    }
    let objects = live.into_values().filter_map(|entry| {
        let (key, version) = (entry.manifest.key.clone(), entry.manifest.version);
        let found = manifest_of(entry, &layouts);
        if found.is_none() {
            tracing::error!(
                key,
                version,
                "an object in the host tier is lost: the journal does not say what it is"
            );
        }
        found
    });
    Recovered { objects: objects.collect(), last, deleted, loans, bytes: whole_bytes as u64 }
}

fn manifest_of(entry: Entry, layouts: &HashMap<u64, Layout>) -> Option<(Manifest, Entry)> {
    let layout = layouts.get(&entry.manifest.fingerprint)?.clone();
    let manifest = entry.manifest.clone().with(layout).ok()?;
    (manifest.layout.payloads().len() == entry.places.len()).then_some((manifest, entry))
}
