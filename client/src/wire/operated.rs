//! What an operator changes, looks at and has done.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_store::{
    BackupOptions, BackupProgress, BackupReport, BudgetChange, Budgets, CompactReport, Peek, Retention,
};

use super::proto;
use crate::error::{Error, Result};

/// A look on the wire.
pub fn from_peek(table: &str, peek: &Peek) -> proto::PeekRequest {
    let Peek { columns, rows_max, newest, ready_for } = peek.clone();
    proto::PeekRequest {
        table: table.to_owned(),
        only_columns: columns.is_some(),
        columns: columns.unwrap_or_default(),
        rows_max: u32::try_from(rows_max).unwrap_or(u32::MAX), // refused either way
        newest,
        ready_for,
    }
}

/// The table and the look that are meant.
pub fn to_peek(wire: proto::PeekRequest) -> (String, Peek) {
    let proto::PeekRequest { table, columns, only_columns, rows_max, newest, ready_for } = wire;
    let columns = only_columns.then_some(columns);
    (table, Peek { columns, rows_max: rows_max as usize, newest, ready_for })
}

fn from_limit(bytes_max: Option<u64>) -> proto::ByteLimit {
    proto::ByteLimit { bytes_max }
}

fn to_limit(wire: &proto::ByteLimit) -> Option<u64> {
    wire.bytes_max
}

/// A change of budgets on the wire.
pub fn from_budget_change(change: &BudgetChange) -> proto::BudgetsRequest {
    proto::BudgetsRequest {
        memory: change.memory_bytes_max.map(from_limit),
        disk: change.disk_bytes_max.map(from_limit),
    }
}

/// The change that is meant.
pub fn to_budget_change(wire: &proto::BudgetsRequest) -> BudgetChange {
    let proto::BudgetsRequest { memory, disk } = wire;
    BudgetChange {
        memory_bytes_max: memory.as_ref().map(to_limit),
        disk_bytes_max: disk.as_ref().map(to_limit),
    }
}

/// Budgets on the wire.
pub fn from_budgets(budgets: Budgets) -> proto::BudgetsReply {
    let Budgets { memory_bytes_max, disk_bytes_max } = budgets;
    proto::BudgetsReply { memory: Some(from_limit(memory_bytes_max)), disk: Some(from_limit(disk_bytes_max)) }
}

/// The budgets that are meant.
pub fn to_budgets(wire: &proto::BudgetsReply) -> Budgets {
    Budgets {
        memory_bytes_max: wire.memory.as_ref().and_then(to_limit),
        disk_bytes_max: wire.disk.as_ref().and_then(to_limit),
    }
}

/// A rule of retention on the wire. A time is rounded up to milliseconds: nothing goes before it was to.
pub fn from_retention(rule: Retention) -> proto::RetentionRule {
    let milliseconds =
        |time: Duration| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    proto::RetentionRule {
        versions: rule.versions_kept(),
        consumed_for_ms: rule.consumed_kept_for().map(milliseconds),
    }
}

/// The rule that is meant.
pub fn to_retention(wire: &proto::RetentionRule) -> Retention {
    let rule = wire.versions.map_or(Retention::default(), |versions| Retention::default().versions(versions));
    match wire.consumed_for_ms {
        Some(ms) => rule.consumed_for(Duration::from_millis(ms)),
        None => rule,
    }
}

/// What a compaction did, on the wire.
pub fn from_compact_report(report: CompactReport) -> proto::CompactDone {
    let CompactReport { bytes_before, bytes_after, values_moved, held_back_bytes } = report;
    proto::CompactDone { bytes_before, bytes_after, values_moved, held_back_bytes }
}

/// What it is said to have done.
pub fn to_compact_report(wire: &proto::CompactDone) -> CompactReport {
    let proto::CompactDone { bytes_before, bytes_after, values_moved, held_back_bytes } = *wire;
    CompactReport { bytes_before, bytes_after, values_moved, held_back_bytes }
}

/// A copy that is asked for, on the wire.
///
/// # Errors
/// `input` for a path that is no text.
pub fn from_backup(to: &Path, options: BackupOptions) -> Result<proto::BackupRequest> {
    let text = to.to_str().ok_or_else(|| {
        let message = format!("{} is not UTF-8, which a path of another machine has to be", to.display());
        Error::input("Path", message)
    })?;
    Ok(proto::BackupRequest { to: text.to_owned(), set_objects: options.copies_set_objects() })
}

/// The place and the options that are meant.
pub fn to_backup(wire: proto::BackupRequest) -> (String, BackupOptions) {
    (wire.to, BackupOptions::default().set_objects(wire.set_objects))
}

/// How far a copy is, on the wire.
pub fn from_work_progress(progress: BackupProgress) -> proto::WorkProgress {
    let BackupProgress { done_bytes, total_bytes } = progress;
    proto::WorkProgress { done_bytes, total_bytes }
}

/// How far it is said to be.
pub fn to_work_progress(wire: &proto::WorkProgress) -> BackupProgress {
    let proto::WorkProgress { done_bytes, total_bytes } = *wire;
    BackupProgress { done_bytes, total_bytes }
}

/// What a copy copied, on the wire.
pub fn from_backup_report(report: &BackupReport) -> proto::BackupDone {
    let BackupReport { to, records, segments, extents, objects, bytes } = report;
    let (records, segments, extents) = (*records, *segments, *extents);
    let to = to.to_string_lossy().into_owned();
    proto::BackupDone { to, records, segments, extents, objects: *objects, bytes: *bytes }
}

/// What it is said to have copied.
pub fn to_backup_report(wire: proto::BackupDone) -> BackupReport {
    let proto::BackupDone { to, records, segments, extents, objects, bytes } = wire;
    BackupReport { to: PathBuf::from(to), records, segments, extents, objects, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_looks_come_back_as_they_went() {
        for limit in [None, Some(None), Some(Some(0)), Some(Some(u64::MAX))] {
            let change = BudgetChange { memory_bytes_max: limit, disk_bytes_max: None };
            assert_eq!(to_budget_change(&from_budget_change(&change)), change);
            let change = BudgetChange { memory_bytes_max: None, disk_bytes_max: limit };
            assert_eq!(to_budget_change(&from_budget_change(&change)), change);
        }
        let budgets = Budgets { memory_bytes_max: Some(3), disk_bytes_max: None };
        assert_eq!(to_budgets(&from_budgets(budgets)), budgets);
        let none = Retention::default();
        for rule in [none, none.versions(4), none.consumed_for(Duration::from_secs(9)).versions(1)] {
            assert_eq!(to_retention(&from_retention(rule)), rule);
        }
        assert_eq!(
            to_retention(&from_retention(none.consumed_for(Duration::from_nanos(1)))).consumed_kept_for(),
            Some(Duration::from_millis(1))
        );
        for peek in [Peek::new(), Peek::new().columns([]).newest().ready_for("judge").rows_max(7)] {
            assert_eq!(to_peek(from_peek("solver", &peek)), ("solver".to_owned(), peek));
        }
    }

    #[test]
    fn reports_come_back_as_they_went() {
        let report = CompactReport { bytes_before: 4, bytes_after: 3, values_moved: 2, held_back_bytes: 1 };
        assert_eq!(to_compact_report(&from_compact_report(report)), report);
        let report =
            BackupReport { to: "copy".into(), records: 1, segments: 2, extents: 3, objects: 4, bytes: 5 };
        assert_eq!(to_backup_report(from_backup_report(&report)), report);
        let asked = from_backup(Path::new("nightly/7"), BackupOptions::default().set_objects(true)).unwrap();
        assert_eq!(to_backup(asked), ("nightly/7".to_owned(), BackupOptions::default().set_objects(true)));
    }
}
