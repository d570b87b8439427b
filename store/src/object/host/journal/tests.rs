//! The journal against what it promises.

use super::*;
use crate::clock::Timestamp;
use crate::object::Dtype;
use crate::object::manifest::{Manifest, ManifestRecord};

fn object(key: &str, version: u64) -> (Layout, Entry) {
    let layout = Layout::builder().tensor("weights", "a", Dtype::U8, &[5]).build().unwrap();
    let manifest = Manifest {
        key: key.into(),
        version,
        layout: layout.clone(),
        checksums: vec![vec![9]],
        metadata: BTreeMap::new(),
        created_at: Timestamp(1),
        group: None,
    };
    (
        layout,
        Entry { manifest: ManifestRecord::of(&manifest), places: vec![(1, 4096)], once: false, ours: true },
    )
}

fn named(recovered: &Recovered) -> Vec<(&str, u64)> {
    recovered.objects.iter().map(|(manifest, _)| (&*manifest.key, manifest.version)).collect()
}

#[test]
fn members_of_a_commit_are_there_together_wherever_the_journal_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(folder.path()).unwrap();
    let members = ["a", "b"].map(|key| object(key, 3));
    journal.commit(&members.each_ref().map(|(layout, entry)| (layout, entry.clone()))).unwrap();
    let (layout, entry) = object("c", 1);
    journal.commit(&[(&layout, entry)]).unwrap();
    journal.drop_version("c", 1).unwrap();
    let bytes = fs::read(folder.path().join("journal")).unwrap();
    let mut seen = HashSet::new();
    for cut in 0..=bytes.len() {
        let recovered = replay(&bytes[..cut]);
        let found = named(&recovered);
        assert!(
            [vec![], vec![("a", 3), ("b", 3)], vec![("a", 3), ("b", 3), ("c", 1)]].contains(&found),
            "{cut}"
        );
        seen.insert(found.len());
    }
    assert_eq!(seen.len(), 3);
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        let found = replay(&bytes);
        assert!(found.objects.len() != 1, "half a commit, with byte {at} changed");
    }
    let (_, again) = Journal::open(folder.path()).unwrap();
    assert_eq!(
        (named(&again), again.last["c"]),
        (vec![("a", 3), ("b", 3)], 1),
        "and its number is not used again"
    );
}

#[test]
fn a_journal_that_was_full_says_what_comes_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(folder.path()).unwrap();
    let (layout, entry) = object("a", 1);
    let file = journal.fill();
    assert_eq!(journal.commit(&[(&layout, entry.clone())]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    journal.mend(file);
    journal.commit(&[(&layout, entry)]).unwrap();
    let (_, again) = Journal::open(folder.path()).unwrap();
    assert_eq!(named(&again), [("a", 1)], "with its layout");
}

#[test]
fn a_journal_that_cannot_be_written_anew_goes_on_behind_its_last_whole_record() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(folder.path()).unwrap();
    let (layout, entry) = object("a", 1);
    journal.commit(&[(&layout, entry)]).unwrap();
    journal.delete_version("b", 7).unwrap();
    let path = folder.path().join("journal");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], &whole[..11]].concat()).unwrap();
    fs::create_dir(path.with_extension("tmp")).unwrap();
    let (mut journal, recovered) = Journal::open(folder.path()).unwrap();
    assert_eq!(named(&recovered), [("a", 1)]);
    let (layout, entry) = object("a", 2);
    journal.commit(&[(&layout, entry)]).unwrap();
    for _ in 0..2 {
        let (_, again) = Journal::open(folder.path()).unwrap();
        assert_eq!((named(&again), again.last["b"]), (vec![("a", 1), ("a", 2)], 7));
        assert_eq!(again.deleted, BTreeSet::from([("b".to_owned(), 7)]));
        let _ = fs::remove_dir(path.with_extension("tmp")); // now it can
    }
}

#[test]
fn what_was_lent_is_told_until_it_was_let_go_of() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(folder.path()).unwrap();
    let process = crate::object::ProcessHandle::of(std::process::id()).unwrap().record();
    let loan =
        |number| LoanRecord { number, process: process.clone(), places: vec![(1, 4096, 512), (2, 0, 9)] };
    (1..=3).for_each(|number| journal.lend(&loan(number)).unwrap());
    journal.let_go(2).unwrap();
    for _ in 0..2 {
        let (_, again) = Journal::open(folder.path()).unwrap(); // which also writes it anew
        assert_eq!(again.loans.into_values().collect::<Vec<_>>(), [loan(1), loan(3)]);
    }
}

/// As builds before this one have written it.
#[test]
fn an_entry_that_does_not_say_who_filled_it_may_be_anybodys() {
    let (_, entry) = object("a", 1);
    let mut said = serde_json::to_value(&entry).unwrap();
    said.as_object_mut().unwrap().remove("ours").unwrap();
    assert!(!serde_json::from_value::<Entry>(said).unwrap().ours);
}
