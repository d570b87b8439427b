//! Objects that are listed, a page at a time: there may be more of them than one message holds.

use forebay_client::ObjectShown;
use forebay_client::wire;
use forebay_client::wire::proto::{ListObjectsReply, ListObjectsRequest};

/// How many there are on a page at most.
const PAGE: usize = 1_000;

/// The page that is asked for.
pub(super) fn page(mut all: Vec<ObjectShown>, ask: &ListObjectsRequest) -> ListObjectsReply {
    all.retain(|shown| shown.key.starts_with(&ask.prefix));
    all.sort_by(|a, b| place(a).cmp(&place(b)));
    let first = ask.after.as_ref().map_or(0, |after| {
        let after = (after.key.as_str(), after.version.unwrap_or(u64::MAX));
        all.partition_point(|shown| place(shown) <= after)
    });
    let rest = all.split_off(first);
    let most = if ask.most == 0 { PAGE } else { PAGE.min(ask.most as usize) };
    let more = rest.len() > most;
    ListObjectsReply { objects: rest.into_iter().take(most).map(wire::from_shown).collect(), more }
}

fn place(shown: &ObjectShown) -> (&str, u64) {
    (&shown.key, shown.version)
}

#[cfg(test)]
mod tests {
    use forebay_client::wire::proto::ObjectVersion;
    use forebay_store::Timestamp;

    use super::*;

    fn shown(key: &str, version: u64) -> ObjectShown {
        ObjectShown {
            key: key.to_owned(),
            version,
            bytes: 0,
            tensors: 0,
            tiers: Vec::new(),
            leases: 0,
            once: false,
            created_at: Timestamp(0),
            metadata: Default::default(),
        }
    }

    #[test]
    fn pages_follow_each_other_and_hold_each_version_once() {
        let all: Vec<ObjectShown> =
            (0..2_500).map(|at| shown(if at % 3 == 0 { "b/w" } else { "a/w" }, 2_500 - at)).collect();
        for (prefix, most, count) in [("", 0, 2_500), ("a", 7, 1_666), ("b/w", 5_000, 834), ("c", 0, 0)] {
            let mut ask = ListObjectsRequest { prefix: prefix.to_owned(), after: None, most };
            let mut got = Vec::new();
            loop {
                let ListObjectsReply { objects, more } = page(all.clone(), &ask);
                let most = if most == 0 { PAGE } else { PAGE.min(most as usize) };
                assert!(objects.len() == most || !more, "{} of {most}", objects.len());
                got.extend(objects.into_iter().map(|object| (object.key, object.version)));
                let Some((key, version)) = got.last().filter(|_| more) else { break };
                ask.after = Some(ObjectVersion { key: key.clone(), version: Some(*version) });
            }
            assert!(got.is_sorted_by(|a, b| a < b) && got.len() == count, "{prefix:?}: {}", got.len());
        }
    }
}
