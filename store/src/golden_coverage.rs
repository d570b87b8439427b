//! Holds the golden files in `tests/golden/` against the records of the log: a kind of record that no golden file has
//! could change its layout unseen.

use std::collections::BTreeSet;
use std::path::Path;

use crate::directory::FORMAT_VERSION;
use crate::disk::LocalDisk;
use crate::log::record::*;
use crate::log::{self, Found};

/// Names the variants of an enum; one that is missing here does not compile.
macro_rules! kinds {
    ($($of:ident { $($variant:ident)* })*) => {$(
        impl Kind for $of {
            const ALL: &'static [&'static str] = &[$(concat!(stringify!($of), "::", stringify!($variant))),*];

            fn kind(&self) -> &'static str {
                match self {
                    $($of::$variant { .. } => concat!(stringify!($of), "::", stringify!($variant)),)*
                }
            }
        }
    )*};
}

trait Kind {
    const ALL: &'static [&'static str];

    fn kind(&self) -> &'static str;
}

kinds! {
    Event {
        Opened PolicyCreated TableCreated ConsumerCreated Written Claimed Returned Finished Accumulated StepBegun
        StepCommitted StepAbandoned Rewound SchemaChanged Deleted Moved RankAccumulated Extended
        WentBack GroupsForgotten SteppedBack
    }
    SchemaChange { Add Rename Retire }
    Operation { Insert Write Append Exclude Group Span Share Mask }
    GroupChangeRecord { Expected Closed TrajectoryClosed }
    StoredValue { Null Inline View }
    ReturnReason { Released Expired CacheDropped }
}

/// The kinds of everything in a record.
fn note(record: &Record, seen: &mut BTreeSet<&'static str>) {
    seen.insert(record.event.kind());
    seen.extend((!record.carried.is_empty()).then_some("carried values"));
    match &record.event {
        Event::Written { operations } | Event::Finished { operations, .. } => {
            operations.iter().for_each(|operation| note_operation(operation, seen));
        }
        Event::SchemaChanged { change, .. } => _ = seen.insert(change.kind()),
        Event::Returned { why, .. } => _ = seen.insert(why.kind()),
        Event::Claimed(claim) => seen.extend(claim.gang.as_ref().map(|_| "a gang's claim")),
        Event::Deleted { deletions } => {
            seen.extend(
                deletions.iter().any(|d| d.consumed_up_to > 0).then_some("retention of consumed rows"),
            );
            seen.extend(deletions.iter().any(|d| d.retired.is_some()).then_some("retired versions"));
            seen.extend(says_moved_out(deletions).then_some("versions that were moved out"));
        }
        _ => {}
    }
}

/// Whether a deletion without rows says of what the one before it retires that it was moved out.
fn says_moved_out(deletions: &[DeleteRecord]) -> bool {
    let is_said = |deleted: &DeleteRecord, said: &DeleteRecord| {
        let of_it = (said.table, said.retired) == (deleted.table, deleted.retired);
        of_it && said.retired.is_some() && said.rows.is_empty()
    };
    deletions.windows(2).any(|pair| is_said(&pair[0], &pair[1]))
}

fn note_operation(operation: &Operation, seen: &mut BTreeSet<&'static str>) {
    seen.insert(operation.kind());
    match operation {
        Operation::Insert(insert) => seen.extend(insert.cells.iter().map(|cell| cell.value.kind())),
        Operation::Write { cells, .. } => seen.extend(cells.iter().map(|cell| cell.value.kind())),
        Operation::Group { change, .. } => _ = seen.insert(change.kind()),
        _ => {}
    }
}

#[test]
fn every_kind_of_record_is_in_the_golden_files() {
    let mut seen = BTreeSet::new();
    // A kind that is no longer written is in the files of when it was.
    for written in ["", "-rewound", "-went-back"] {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let folder = golden.join(format!("format-{FORMAT_VERSION}{written}/log/log"));
        let scanned = log::scan(&LocalDisk, &folder, None, |place, found| match found {
            Found::Record { record, .. } => note(&record, &mut seen),
            Found::Begins { .. } => {}
            _ => panic!("{} is damaged at byte {}", place.path.display(), place.offset),
        });
        assert!(scanned.unwrap().bytes > 0);
    }
    let others = [
        "carried values",
        "a gang's claim",
        "retention of consumed rows",
        "retired versions",
        "versions that were moved out",
    ];
    let all = [
        Event::ALL,
        SchemaChange::ALL,
        Operation::ALL,
        GroupChangeRecord::ALL,
        StoredValue::ALL,
        ReturnReason::ALL,
    ];
    let missing: Vec<&str> =
        all.concat().into_iter().chain(others).filter(|kind| !seen.contains(kind)).collect();
    assert!(
        missing.is_empty(),
        "let tests/it/golden/life.rs make these too, and write the files anew: {missing:?}"
    );
}
