//! What an operator asks.

use std::path::PathBuf;

use forebay_store::{
    Checked, ConsumerKind, FaultKind, VerifyFault, VerifyProgress, VerifyReport, VerifyStage,
};

use super::{malformed, proto};
use crate::admin::{Depth, Overview};
use crate::error::Result;

/// The words of the stages.
const STAGES: [(VerifyStage, &str); 4] = [
    (VerifyStage::Checkpoint, "checkpoint"),
    (VerifyStage::Log, "log"),
    (VerifyStage::Values, "values"),
    (VerifyStage::Objects, "objects"),
];

const KINDS: [FaultKind; 8] = [
    FaultKind::Identity,
    FaultKind::Checkpoint,
    FaultKind::Segment,
    FaultKind::Record,
    FaultKind::Extent,
    FaultKind::Value,
    FaultKind::Object,
    FaultKind::Count,
];

/// An overview on the wire.
pub fn from_overview(overview: Overview) -> proto::OverviewReply {
    let Overview { settings, stats, depths } = overview;
    let settings = settings.into_iter().map(|(name, value)| proto::Setting { name, value }).collect();
    let depth = |depth: Depth| proto::ConsumerDepth {
        consumer: depth.consumer,
        trainer: depth.kind == ConsumerKind::Trainer,
        table: depth.table,
        ready_rows: depth.ready_rows,
        future_rows: depth.future_rows,
        processing_rows: depth.processing_rows,
        current_version: depth.current_version,
        group_members: depth.group_members,
    };
    proto::OverviewReply {
        settings,
        stats: stats.into_iter().collect(),
        depths: depths.into_iter().map(depth).collect(),
    }
}

/// The overview that is meant.
pub fn to_overview(wire: proto::OverviewReply) -> Overview {
    let depth = |wire: proto::ConsumerDepth| Depth {
        consumer: wire.consumer,
        kind: if wire.trainer { ConsumerKind::Trainer } else { ConsumerKind::Task },
        table: wire.table,
        ready_rows: wire.ready_rows,
        future_rows: wire.future_rows,
        processing_rows: wire.processing_rows,
        current_version: wire.current_version,
        group_members: wire.group_members,
    };
    Overview {
        settings: wire.settings.into_iter().map(|setting| (setting.name, setting.value)).collect(),
        stats: wire.stats.into_iter().collect(),
        depths: wire.depths.into_iter().map(depth).collect(),
    }
}

/// How far a check is, on the wire.
pub fn from_progress(progress: VerifyProgress) -> proto::VerifyProgress {
    let stage = STAGES.iter().find(|(stage, _)| *stage == progress.stage).map_or("", |(_, word)| word);
    let VerifyProgress { done_bytes, total_bytes, .. } = progress;
    proto::VerifyProgress { stage: stage.to_owned(), done_bytes, total_bytes }
}

/// How far it is said to be.
///
/// # Errors
/// `input` for a stage that is none.
pub fn to_progress(wire: &proto::VerifyProgress) -> Result<VerifyProgress> {
    let stage = STAGES.iter().find(|(_, word)| *word == wire.stage);
    let (stage, _) = *stage.ok_or_else(|| malformed(&format!("{:?} is no stage of a check", wire.stage)))?;
    Ok(VerifyProgress { stage, done_bytes: wire.done_bytes, total_bytes: wire.total_bytes })
}

/// Something wrong, on the wire.
pub fn from_fault(fault: VerifyFault) -> proto::VerifyFault {
    let VerifyFault { kind, path, offset, reason } = fault;
    proto::VerifyFault {
        kind: kind.as_str().to_owned(),
        path: path.to_string_lossy().into_owned(),
        offset,
        reason,
    }
}

/// What is said to be wrong.
///
/// # Errors
/// `input` for a kind that is none.
pub fn to_fault(wire: proto::VerifyFault) -> Result<VerifyFault> {
    let kind = KINDS.into_iter().find(|kind| kind.as_str() == wire.kind);
    let kind = kind.ok_or_else(|| malformed(&format!("{:?} is no kind of fault", wire.kind)))?;
    Ok(VerifyFault { kind, path: wire.path.into(), offset: wire.offset, reason: wire.reason })
}

/// What was checked, by name.
fn counted(checked: &mut Checked) -> [(&'static str, &mut u64); 19] {
    [
        ("segments", &mut checked.segments),
        ("log_bytes", &mut checked.log_bytes),
        ("records", &mut checked.records),
        ("torn_bytes", &mut checked.torn_bytes),
        ("pages", &mut checked.pages),
        ("page_bytes", &mut checked.page_bytes),
        ("tables", &mut checked.tables),
        ("rows", &mut checked.rows),
        ("cells", &mut checked.cells),
        ("values", &mut checked.values),
        ("value_bytes", &mut checked.value_bytes),
        ("values_carried", &mut checked.values_carried),
        ("extents", &mut checked.extents),
        ("objects", &mut checked.objects),
        ("object_bytes", &mut checked.object_bytes),
        ("claims", &mut checked.claims),
        ("steps", &mut checked.steps),
        ("policies", &mut checked.policies),
        ("consumers", &mut checked.consumers),
    ]
}

/// A report on the wire, but for its faults.
pub fn from_report(mut report: VerifyReport) -> proto::VerifyDone {
    let checked = counted(&mut report.checked).map(|(name, count)| (name.to_owned(), *count));
    proto::VerifyDone {
        path: report.path.to_string_lossy().into_owned(),
        store_id: report.store_id,
        next_sequence: report.next_sequence,
        faults_not_described: report.faults_not_described,
        orphans: report.orphans.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        checked: checked.into_iter().collect(),
    }
}

/// The report that is meant, with the faults that came before.
pub fn to_report(wire: proto::VerifyDone, faults: Vec<VerifyFault>) -> VerifyReport {
    let mut checked = Checked::default();
    for (name, count) in counted(&mut checked) {
        *count = wire.checked.get(name).copied().unwrap_or_default();
    }
    VerifyReport {
        path: wire.path.into(),
        store_id: wire.store_id,
        next_sequence: wire.next_sequence,
        checked,
        faults,
        faults_not_described: wire.faults_not_described,
        orphans: wire.orphans.into_iter().map(PathBuf::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back_as_it_went() {
        let mut report = VerifyReport { path: "store".into(), store_id: Some(7), ..VerifyReport::default() };
        (report.next_sequence, report.faults_not_described) = (9, 2);
        report.orphans = vec!["a".into(), "b".into()];
        for (at, (_, count)) in counted(&mut report.checked).into_iter().enumerate() {
            *count = at as u64 + 1;
        }
        let fault = |kind| VerifyFault { kind, path: "x".into(), offset: 3, reason: "torn".to_owned() };
        report.faults = KINDS.map(fault).to_vec();
        let faults =
            report.faults.iter().cloned().map(from_fault).map(to_fault).collect::<Result<_>>().unwrap();
        assert_eq!(to_report(from_report(report.clone()), faults), report);
        assert!(to_fault(proto::VerifyFault::default()).is_err());
    }

    #[test]
    fn progress_comes_back_as_it_went() {
        for (stage, _) in STAGES {
            let progress = VerifyProgress { stage, done_bytes: 1, total_bytes: 2 };
            assert_eq!(to_progress(&from_progress(progress)).unwrap(), progress);
        }
        assert!(to_progress(&proto::VerifyProgress::default()).is_err());
    }
}
