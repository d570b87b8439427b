//! What became of rows.

use bytes::Bytes;
use forebay_store::{Origin, Purpose, Row, SampleId, Timestamp, VersionSpan};

use super::claims::{from_gradient, to_gradient};
use super::value::{from_row, to_row, to_rows};
use super::{malformed, proto};
use crate::error::Result;
use crate::history::{RowShown, TrainedBatch};

pub(super) fn from_span(VersionSpan { start, version }: VersionSpan) -> proto::VersionSpan {
    proto::VersionSpan { start, version }
}

pub(super) fn to_span(proto::VersionSpan { start, version }: proto::VersionSpan) -> VersionSpan {
    VersionSpan { start, version }
}

/// How many rows are shown at once at most.
pub const SHOWN_ROWS_MAX: usize = 256;

/// How many rows are found at once at most.
pub const FOUND_ROWS_MAX: usize = 10_000;

/// What a row is found by, on the wire.
pub fn from_identity(policy_version: u64, sample: &SampleId) -> proto::Identity {
    proto::Identity { policy_version, sample_id: sample.to_string() }
}

/// Rows that were found, and some that are not there, on the wire.
pub fn from_found(rows: Vec<Option<Row>>) -> proto::FindReply {
    proto::FindReply { rows: rows.into_iter().map(|row| row.map_or_else(Bytes::new, from_row)).collect() }
}

/// The rows that were found, and where none is: one for each of so many that were asked for.
///
/// # Errors
/// `input` for another number of them, and for names that are none.
pub fn to_found(reply: &proto::FindReply, asked: usize) -> Result<Vec<Option<Row>>> {
    if reply.rows.len() != asked {
        return Err(malformed(&format!("{} rows are found of {asked}", reply.rows.len())));
    }
    reply.rows.iter().map(|row| if row.is_empty() { Ok(None) } else { to_row(row).map(Some) }).collect()
}

/// A row that is shown, on the wire.
pub fn from_row_shown(shown: RowShown) -> proto::RowShown {
    proto::RowShown {
        row: from_row(shown.row),
        sample_id: shown.sample_id.to_string(),
        policy_version: shown.policy_version,
        version_spans: shown.version_spans.into_iter().map(from_span).collect(),
        trainable_from: shown.trainable_from,
        attempt: shown.attempt,
        purpose: shown.purpose.as_str().to_owned(),
        created_at: shown.created_at.0,
        agent: shown.agent,
        origin: shown.origin.map(|origin| origin.to_string()),
        parent: shown.parent,
        weights: shown.weights,
        excluded: shown.excluded,
        gradient: shown.gradient.map(from_gradient),
        step: shown.step,
    }
}

/// The row that is meant.
///
/// # Errors
/// `input` for a name, a purpose or an origin that is none.
pub fn to_row_shown(wire: proto::RowShown) -> Result<RowShown> {
    let purpose = Purpose::ALL.into_iter().find(|purpose| purpose.as_str() == wire.purpose);
    let origin =
        |text: String| Origin::parse(&text).ok_or_else(|| malformed(&format!("{text:?} is not PEER/ROUND")));
    Ok(RowShown {
        row: to_row(&wire.row)?,
        sample_id: wire.sample_id.parse()?,
        policy_version: wire.policy_version,
        version_spans: wire.version_spans.into_iter().map(to_span).collect(),
        trainable_from: wire.trainable_from,
        attempt: wire.attempt,
        purpose: purpose.ok_or_else(|| malformed(&format!("{:?} is no purpose", wire.purpose)))?,
        created_at: Timestamp(wire.created_at),
        agent: wire.agent,
        origin: wire.origin.map(origin).transpose()?,
        parent: wire.parent,
        weights: wire.weights,
        excluded: wire.excluded,
        step: wire.step,
        gradient: wire.gradient.map(to_gradient),
    })
}

/// A micro-batch of a step, on the wire.
pub fn from_trained(batch: TrainedBatch) -> proto::TrainedBatch {
    proto::TrainedBatch {
        gradient: Some(from_gradient(batch.gradient)),
        table: batch.table,
        rows: batch.rows.into_iter().map(from_row).collect(),
        sample_ids: batch.samples.iter().map(ToString::to_string).collect(),
    }
}

/// The micro-batch that is meant.
///
/// # Errors
/// `input` when rows and samples do not go together, or it made no gradient.
pub fn to_trained(wire: proto::TrainedBatch) -> Result<TrainedBatch> {
    if wire.rows.len() != wire.sample_ids.len() {
        return Err(malformed("a micro-batch with other rows than samples"));
    }
    let gradient = wire.gradient.ok_or_else(|| malformed("a micro-batch that made no gradient"))?;
    Ok(TrainedBatch {
        gradient: to_gradient(gradient),
        table: wire.table,
        rows: to_rows(&wire.rows)?,
        samples: wire.sample_ids.iter().map(|id| Ok(id.parse()?)).collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use forebay_store::{GradientId, Row};

    use super::*;

    fn gradient() -> GradientId {
        let (policy, consumer) = ("shared".to_owned(), "train".to_owned());
        GradientId { policy, step: 3, consumer, sequence: 1, cache_epoch: 2 }
    }

    fn bare() -> RowShown {
        RowShown {
            row: Row::from_bytes([7; 24]),
            sample_id: "in_put_1_2".parse().unwrap(),
            policy_version: 9,
            version_spans: Vec::new(),
            trainable_from: 0,
            attempt: 0,
            purpose: Purpose::Train,
            created_at: Timestamp(-1),
            agent: String::new(),
            origin: None,
            parent: None,
            weights: None,
            excluded: None,
            step: None,
            gradient: None,
        }
    }

    #[test]
    fn rows_that_are_shown_come_back_as_they_went() {
        let full = RowShown {
            version_spans: vec![VersionSpan { start: 0, version: 9 }, VersionSpan { start: 5, version: 10 }],
            trainable_from: 5,
            attempt: 2,
            agent: "a".to_owned(),
            origin: Some(Origin { peer: "a/b".to_owned(), round: 3 }),
            parent: Some("t/q_0_0".to_owned()),
            weights: Some("w".to_owned()),
            excluded: Some("why".to_owned()),
            step: Some(3),
            gradient: Some(gradient()),
            ..bare()
        };
        let of = |purpose| RowShown { purpose, ..bare() };
        for shown in Purpose::ALL.map(of).into_iter().chain([full]) {
            assert_eq!(to_row_shown(from_row_shown(shown.clone())).unwrap(), shown);
        }
    }

    #[test]
    fn a_row_that_is_shown_as_none_can_be_is_refused() {
        let good = from_row_shown(bare());
        for wrong in [
            proto::RowShown { row: Bytes::new(), ..good.clone() },
            proto::RowShown { sample_id: "q".to_owned(), ..good.clone() },
            proto::RowShown { purpose: "fun".to_owned(), ..good.clone() },
            proto::RowShown { origin: Some("nowhere".to_owned()), ..good },
        ] {
            assert!(to_row_shown(wrong.clone()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn micro_batches_of_a_step_come_back_as_they_went_and_their_parts_go_together() {
        let batch = TrainedBatch {
            gradient: gradient(),
            table: "solver".to_owned(),
            rows: vec![Row::from_bytes([7; 24])],
            samples: vec!["q_1_2".parse().unwrap()],
        };
        let good = from_trained(batch.clone());
        assert_eq!(to_trained(good.clone()).unwrap(), batch);
        for wrong in [
            proto::TrainedBatch { gradient: None, ..good.clone() },
            proto::TrainedBatch { rows: Vec::new(), ..good.clone() },
            proto::TrainedBatch { sample_ids: vec!["q".to_owned()], ..good },
        ] {
            assert!(to_trained(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
