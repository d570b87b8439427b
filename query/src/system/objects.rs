//! `system.objects`: a row a version of an object that can be had, and one for each policy whose present version rests on it.
//!
//! What is set and got ([`Store::objects`](forebay_store::Store::objects)) is listed as its holders see it: by the process that
//! sets it with its leases, beside it from files and shared memory, where leases are not known. A file that a step alone names
//! (`Store::put_object`) is seen through its policy.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use forebay_store::{ObjectInfo, ObjectRef, PolicyInfo, Store, Tier, Timestamp};

use super::Moment;
use super::fields::Fields;
use crate::error::from_store;

/// A version, as somebody knows it.
struct Row {
    key: String,
    version: u64,
    bytes: u64,
    tier: String,
    leases: Option<u64>,
    once: bool,
    created_at: Option<Timestamp>,
    crc32c: Option<String>,
    policy: Option<String>,
}

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let rows = rows(&moment.store).map_err(|error| ArrowError::ExternalError(Box::new(from_store(error))))?;
    Fields::default()
        .texts("key", rows.iter().map(|row| &row.key))
        .numbers("version", rows.iter().map(|row| row.version))
        .texts("tier", rows.iter().map(|row| &row.tier))
        .numbers("bytes", rows.iter().map(|row| row.bytes))
        .optional_numbers("leases", rows.iter().map(|row| row.leases))
        .bools("once", rows.iter().map(|row| row.once))
        .optional_times("created_at", rows.iter().map(|row| row.created_at))
        .optional_texts("crc32c", rows.iter().map(|row| row.crc32c.as_ref()))
        .optional_texts("policy", rows.iter().map(|row| row.policy.as_ref()))
        .batch(rows.len())
}

/// Every version of the store's objects, and what policies name beside them; by key, version and policy.
fn rows(store: &Store) -> forebay_store::Result<Vec<Row>> {
    let (policies, listed) = (store.policies(), listed(store)?);
    let mut named: HashMap<(&str, u64), Vec<(&PolicyInfo, &ObjectRef)>> = HashMap::new();
    for (policy, object) in policies.iter().flat_map(|p| p.objects.iter().map(move |object| (p, object))) {
        named.entry((&object.key, object.version)).or_default().push((policy, object));
    }
    let mut rows = Vec::new();
    for (leases, info) in &listed {
        let by = named.remove(&(info.manifest.key.as_str(), info.manifest.version)).unwrap_or_default();
        let refs = by.iter().map(|(policy, object)| Some((*policy, *object)));
        let refs = refs.chain(by.is_empty().then_some(None));
        rows.extend(refs.map(|by| of_directory(info, *leases, by)));
    }
    rows.extend(named.into_values().flatten().map(|(policy, object)| of_policy(policy, object)));
    rows.sort_by(|a, b| (&a.key, a.version, &a.policy).cmp(&(&b.key, b.version, &b.policy)));
    Ok(rows)
}

/// What is set, with how many hold it where that is known. Looks at nothing that was not asked for yet: to list objects makes no
/// memory for them.
fn listed(store: &Store) -> forebay_store::Result<Vec<(Option<u64>, ObjectInfo)>> {
    if store.object_stats().is_some() {
        let known = |info: ObjectInfo| (Some(info.leases as u64), info);
        return Ok(store.objects()?.list().into_iter().map(known).collect());
    }
    Ok(store.object_reader()?.list()?.into_iter().map(|info| (None, info)).collect())
}

fn of_directory(info: &ObjectInfo, leases: Option<u64>, by: Option<(&PolicyInfo, &ObjectRef)>) -> Row {
    let tiers = info.tiers.iter().map(|tier| match tier {
        Tier::Host => "host",
        Tier::Disk => "disk",
    });
    Row {
        key: info.manifest.key.clone(),
        version: info.manifest.version,
        bytes: info.manifest.bytes(),
        tier: tiers.collect::<Vec<_>>().join("+"),
        leases,
        once: info.once,
        created_at: Some(info.manifest.created_at),
        crc32c: by.map(|(_, object)| crc32c(object)),
        policy: by.map(|(policy, _)| policy.name.clone()),
    }
}

fn of_policy(policy: &PolicyInfo, object: &ObjectRef) -> Row {
    Row {
        key: object.key.clone(),
        version: object.version,
        bytes: object.bytes,
        tier: "disk".to_owned(),
        leases: None,
        once: false,
        created_at: None,
        crc32c: Some(crc32c(object)),
        policy: Some(policy.name.clone()),
    }
}

fn crc32c(object: &ObjectRef) -> String {
    format!("{:08x}", object.crc32c)
}
