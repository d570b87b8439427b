//! The calls that are drawn.

use forebay_store::Durability;
use proptest::prelude::*;

use super::MEMBERS;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It closes the store.
    Closed,
    /// It dies; the kernel keeps what it was given.
    Killed,
    /// The machine goes down; what was synced is there, and of the rest what the disk's seed leaves.
    PowerFailed,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Insert { of: (u32, u32), ahead: i64, eval: bool, peer: bool, out: bool, ready: bool, level: Durability },
    Again { row: usize, out: bool },
    Write { row: usize, column: usize, value: u8, level: Durability },
    Append { row: usize, column: usize },
    Finalize { row: usize, column: usize },
    Resume { row: usize, mask: bool },
    Exclude { row: usize, word: bool },
    Delete { row: usize, rows: usize },
    TaskClaim { rows: usize },
    TaskFinish { claim: usize, write: bool },
    Begin { rows: u64, inputs: u8 },
    Next { rows: usize },
    Accumulate { claim: usize },
    Drop { claim: usize },
    DropCache,
    DropStep,
    Commit { named: bool },
    Rewind { back: usize, exclude: bool },
    Advance { seconds: u64 },
    Checkpoint,
    Sync,
    End { how: End, level: Durability },
}

fn level() -> impl Strategy<Value = Durability> {
    prop_oneof![
        2 => Just(Durability::Memory),
        3 => Just(Durability::Logged),
        1 => Just(Durability::Synced),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Closed), Just(End::Killed), Just(End::PowerFailed)]
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let bools = || any::<bool>();
    let rarely = || prop::bool::weighted(0.15);
    prop_oneof![
        6 => ((0..3_u32, 0..MEMBERS), prop::sample::select(vec![0, 0, 0, 0, 0, 1, -1, -2]), rarely(), rarely(), rarely(), bools(), level()).prop_map(
            |(of, ahead, eval, peer, out, ready, level)| {
                Op::Insert { of, ahead, eval, peer, out, ready, level }
            }),
        2 => (0..64_usize, rarely()).prop_map(|(row, out)| Op::Again { row, out }),
        6 => (0..64_usize, 0..3_usize, 0..3_u8, level()).prop_map(
            |(row, column, value, level)| Op::Write { row, column, value, level }),
        2 => (0..64_usize, 0..2_usize).prop_map(|(row, column)| Op::Append { row, column }),
        2 => (0..64_usize, 0..2_usize).prop_map(|(row, column)| Op::Finalize { row, column }),
        2 => (0..64_usize, bools()).prop_map(|(row, mask)| Op::Resume { row, mask }),
        2 => (0..64_usize, bools()).prop_map(|(row, word)| Op::Exclude { row, word }),
        1 => (0..64_usize, 1..4_usize).prop_map(|(row, rows)| Op::Delete { row, rows }),
        3 => (1..5_usize).prop_map(|rows| Op::TaskClaim { rows }),
        3 => (0..8_usize, bools()).prop_map(|(claim, write)| Op::TaskFinish { claim, write }),
        3 => (0..6_u64, 1..8_u8).prop_map(|(rows, inputs)| Op::Begin { rows, inputs }),
        5 => (1..5_usize).prop_map(|rows| Op::Next { rows }),
        5 => (0..8_usize).prop_map(|claim| Op::Accumulate { claim }),
        1 => (0..8_usize).prop_map(|claim| Op::Drop { claim }),
        1 => Just(Op::DropCache),
        1 => Just(Op::DropStep),
        3 => prop::bool::weighted(0.9).prop_map(|named| Op::Commit { named }),
        1 => (0..4_usize, bools()).prop_map(|(back, exclude)| Op::Rewind { back, exclude }),
        1 => (1..70_u64).prop_map(|seconds| Op::Advance { seconds }),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Sync),
        2 => (end(), level()).prop_map(|(how, level)| Op::End { how, level }),
    ]
}

/// Many steps over few rows, and back again, while a task has some of them: what random calls of all kinds seldom come to.
pub(super) fn rewinding() -> impl Strategy<Value = Op> {
    let rarely = || prop::bool::weighted(0.1);
    let level = Durability::Memory;
    let insert = ((0..2_u32, 0..MEMBERS), rarely(), rarely(), prop::bool::weighted(0.9)).prop_map(
        move |(of, eval, out, ready)| Op::Insert { of, ahead: 0, eval, peer: false, out, ready, level },
    );
    prop_oneof![
        6 => insert,
        4 => (1..5_usize).prop_map(|rows| Op::TaskClaim { rows }),
        4 => (0..8_usize, rarely()).prop_map(|(claim, write)| Op::TaskFinish { claim, write }),
        4 => (1..6_u64, 1..8_u8).prop_map(|(rows, inputs)| Op::Begin { rows, inputs }),
        5 => (1..5_usize).prop_map(|rows| Op::Next { rows }),
        5 => (0..8_usize).prop_map(|claim| Op::Accumulate { claim }),
        4 => Just(Op::Commit { named: true }),
        3 => (0..4_usize, any::<bool>()).prop_map(|(back, exclude)| Op::Rewind { back, exclude }),
        8 => op(),
    ]
}
