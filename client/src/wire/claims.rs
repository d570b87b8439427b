//! Micro-batch rules, gangs, and what was granted.

use forebay_store::{Gang, GradientId, MicroBatch, Split};

use super::value::{from_row, to_rows};
use super::{malformed, proto};
use crate::connection::Granted;
use crate::error::Result;

/// A micro-batch rule on the wire.
pub fn from_micro_batch(rule: &MicroBatch) -> proto::MicroBatch {
    let budget = rule.token_budget();
    proto::MicroBatch {
        rows: u64::try_from(rule.rows()).ok().filter(|rows| *rows < u64::MAX),
        exact: rule.is_exact(),
        token_column: budget.map(|(column, _)| column.to_owned()),
        tokens: budget.map_or(0, |(_, tokens)| tokens),
        open_groups: rule.open_groups() as u64,
    }
}

/// The micro-batch rule that is meant.
///
/// # Errors
/// `input` where there is none.
pub fn to_micro_batch(wire: Option<&proto::MicroBatch>) -> Result<MicroBatch> {
    let wire = wire.ok_or_else(|| malformed("a claim without a rule"))?;
    let rows = wire.rows.map_or(usize::MAX, |rows| usize::try_from(rows).unwrap_or(usize::MAX));
    let rule = match (wire.exact, usize::try_from(wire.open_groups).unwrap_or(usize::MAX)) {
        (true, 0) => MicroBatch::of(rows),
        (false, open_groups) => MicroBatch::early(rows, open_groups),
        (true, _) => return Err(malformed("an exact number of rows in parts of groups")),
    };
    Ok(wire.token_column.iter().fold(rule, |rule, column| rule.tokens_at_most(column, wire.tokens)))
}

/// A rank's place on the wire.
pub fn from_gang(step: u64, consumer: &str, gang: &Gang) -> proto::JoinStepRequest {
    proto::JoinStepRequest {
        step,
        consumer: consumer.to_owned(),
        gang: gang.name.clone(),
        rank: gang.rank,
        world: gang.world,
        balanced: gang.split == Split::Balanced,
    }
}

/// The rank that is meant.
pub fn to_gang(wire: &proto::JoinStepRequest) -> Gang {
    let split = if wire.balanced { Split::Balanced } else { Split::Same };
    Gang::new(&wire.gang, wire.rank, wire.world).split(split)
}

/// A gradient's name on the wire.
pub(super) fn from_gradient(id: GradientId) -> proto::Gradient {
    let GradientId { policy, step, consumer, sequence, cache_epoch } = id;
    proto::Gradient { policy, step, consumer, sequence, cache_epoch }
}

/// The gradient that is meant.
pub(super) fn to_gradient(wire: proto::Gradient) -> GradientId {
    let proto::Gradient { policy, step, consumer, sequence, cache_epoch } = wire;
    GradientId { policy, step, consumer, sequence, cache_epoch }
}

/// What was granted, on the wire, without columns.
pub fn from_granted(granted: Granted) -> proto::Granted {
    let (incarnation, claim, member) = granted.epoch;
    proto::Granted {
        incarnation,
        member,
        claim,
        table: granted.table,
        step: granted.step,
        sequence_in_step: granted.sequence_in_step,
        rows: granted.rows.into_iter().map(from_row).collect(),
        sample_ids: granted.samples.iter().map(ToString::to_string).collect(),
        rows_in_gang: granted.rows_in_gang,
        tokens_in_gang: granted.tokens_in_gang,
        gradient: granted.gradient.map(from_gradient),
        columns: Default::default(),
    }
}

/// What was granted.
///
/// # Errors
/// `input` when rows and samples do not go together.
pub fn to_granted(wire: proto::Granted) -> Result<Granted> {
    if wire.rows.len() != wire.sample_ids.len() {
        return Err(malformed("a claim with other rows than samples"));
    }
    Ok(Granted {
        epoch: (wire.incarnation, wire.claim, wire.member),
        table: wire.table,
        step: wire.step,
        sequence_in_step: wire.sequence_in_step,
        rows: to_rows(&wire.rows)?,
        samples: wire.sample_ids.iter().map(|id| Ok(id.parse()?)).collect::<Result<_>>()?,
        rows_in_gang: wire.rows_in_gang,
        tokens_in_gang: wire.tokens_in_gang,
        gradient: wire.gradient.map(to_gradient),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_ranks_come_back_as_they_went() {
        for rule in [
            MicroBatch::of(16),
            MicroBatch::up_to(3),
            MicroBatch::early(16, 2),
            MicroBatch::of(usize::MAX),
            MicroBatch::tokens("response", 65_536),
            MicroBatch::up_to(4).tokens_at_most("response", 7),
        ] {
            assert_eq!(to_micro_batch(Some(&from_micro_batch(&rule))).unwrap(), rule);
        }
        assert!(to_micro_batch(None).is_err());
        for split in [Split::Same, Split::Balanced] {
            let gang = Gang::new("actors", 1, 4).split(split);
            assert_eq!(to_gang(&from_gang(3, "train", &gang)), gang);
        }
    }

    #[test]
    fn what_was_granted_comes_back_as_it_went() {
        let gradient = GradientId {
            policy: "solver".to_owned(),
            step: 3,
            consumer: "train".to_owned(),
            sequence: 1,
            cache_epoch: 2,
        };
        let task = Granted {
            epoch: (4, 17, 2),
            table: "solver".to_owned(),
            step: None,
            sequence_in_step: 0,
            rows: vec![forebay_store::Row::from_bytes([7; 24])],
            samples: vec!["q_1_2".parse().unwrap()],
            rows_in_gang: 1,
            tokens_in_gang: 0,
            gradient: None,
        };
        let trainer = Granted {
            step: Some(3),
            sequence_in_step: 1,
            rows_in_gang: 8,
            tokens_in_gang: 99,
            gradient: Some(gradient),
            ..task.clone()
        };
        for granted in [task, trainer] {
            assert_eq!(to_granted(from_granted(granted.clone())).unwrap(), granted);
        }
    }

    #[test]
    fn a_claim_whose_parts_do_not_go_together_is_refused() {
        let row = bytes::Bytes::from_static(&[0; 24]);
        let good =
            proto::Granted { rows: vec![row], sample_ids: vec!["q_0_0".to_owned()], ..Default::default() };
        assert_eq!(to_granted(good.clone()).unwrap().rows.len(), 1);
        for wrong in [
            proto::Granted { rows: vec![], ..good.clone() },
            proto::Granted { sample_ids: vec!["q".to_owned()], ..good.clone() },
            proto::Granted { rows: vec![bytes::Bytes::new()], ..good },
        ] {
            assert!(to_granted(wrong).is_err());
        }
    }
}
