//! Consumers.

use forebay_store::{
    Comparison, Consumer, ConsumerKind, GroupBy, GroupRule, Grouping, Member, Origins, Purpose, RateLimiter,
    TrajectoryEnd,
};

use super::{malformed, proto};
use crate::connection::Declared;
use crate::error::Result;

const COMPARISONS: [(Comparison, &str); 6] = [
    (Comparison::Less, "<"),
    (Comparison::AtMost, "<="),
    (Comparison::Equal, "="),
    (Comparison::NotEqual, "!="),
    (Comparison::AtLeast, ">="),
    (Comparison::Greater, ">"),
];

const GROUPS: [(GroupBy, &str); 4] = [
    (GroupBy::Input, "input"),
    (GroupBy::InputAndTurn, "input_turn"),
    (GroupBy::InputTurnAgent, "input_turn_agent"),
    (GroupBy::Parent, "parent"),
];

const ORIGINS: [(Origins, &str); 3] =
    [(Origins::Own, "own"), (Origins::All, "all"), (Origins::External, "external")];

fn word<T: PartialEq>(of: &T, words: &[(T, &'static str)]) -> String {
    words.iter().find(|(value, _)| value == of).map_or(String::new(), |(_, word)| (*word).to_owned())
}

fn meant<T: Copy>(what: &str, word: &str, words: &[(T, &str)]) -> Result<T> {
    let found = words.iter().find(|(_, known)| *known == word);
    found.map(|(value, _)| *value).ok_or_else(|| malformed(&format!("{word:?} is no {what}")))
}

/// A consumer's declaration on the wire.
pub fn from_consumer(consumer: &Consumer) -> proto::Consumer {
    let condition = |(column, comparison, number): &(String, Comparison, f64)| proto::Condition {
        column: column.clone(),
        comparison: word(comparison, &COMPARISONS),
        number: *number,
    };
    let limiter = |limiter: RateLimiter| {
        let RateLimiter { samples_per_insert, min_size_to_sample, error_buffer } = limiter;
        proto::RateLimiter { samples_per_insert, min_size_to_sample, error_buffer }
    };
    proto::Consumer {
        trainer: consumer.kind == ConsumerKind::Trainer,
        tables: consumer.tables.clone(),
        ready: consumer.ready.clone(),
        grouping: consumer.grouping.map(from_grouping),
        purposes: consumer.purposes_taken().map(|purpose| purpose.as_str().to_owned()).collect(),
        conditions: consumer.conditions.iter().map(condition).collect(),
        priority: consumer.priority.clone(),
        staleness: consumer.staleness,
        limiter: consumer.limiter.map(limiter),
        origins: word(&consumer.origins, &ORIGINS),
    }
}

fn from_grouping(grouping: Grouping) -> proto::Grouping {
    let (rule, least) = match grouping.rule {
        GroupRule::NextAttempt => ("next_attempt", 0),
        GroupRule::Shrink { least } => ("shrink", least),
        GroupRule::Exclude => ("exclude", 0),
    };
    let trajectory_rows = match grouping.member {
        Member::Trajectory(TrajectoryEnd::Rows(rows)) => rows,
        Member::Trajectory(TrajectoryEnd::Closed) | Member::Row => 0,
    };
    proto::Grouping {
        by: word(&grouping.by, &GROUPS),
        members: grouping.size,
        trajectories: grouping.member != Member::Row,
        trajectory_rows,
        rule: rule.to_owned(),
        least,
    }
}

/// The declaration of a consumer.
///
/// # Errors
/// `input` for words that there are not.
pub fn to_consumer(wire: proto::Consumer) -> Result<Consumer> {
    let tables = wire.tables.iter().map(String::as_str);
    let mut consumer = if wire.trainer { Consumer::trainer(tables) } else { Consumer::task(tables) };
    consumer.ready = wire.ready;
    consumer.priority = wire.priority;
    consumer.staleness = wire.staleness;
    if let Some(grouping) = wire.grouping {
        consumer = to_grouping(consumer, &grouping)?;
    }
    let purpose = |name: &String| {
        let found = Purpose::ALL.into_iter().find(|purpose| purpose.as_str() == name);
        found.ok_or_else(|| malformed(&format!("{name:?} is no purpose")))
    };
    let purposes = wire.purposes.iter().map(purpose).collect::<Result<Vec<_>>>()?;
    if wire.trainer || purposes.len() < Purpose::ALL.len() {
        consumer = consumer.purposes(purposes); // a task takes all, unless it says otherwise
    }
    for condition in &wire.conditions {
        let comparison = meant("comparison", &condition.comparison, &COMPARISONS)?;
        consumer = consumer.only(&condition.column, comparison, condition.number);
    }
    if let Some(proto::RateLimiter { samples_per_insert, min_size_to_sample, error_buffer }) = wire.limiter {
        let limiter = RateLimiter::new(samples_per_insert, min_size_to_sample, error_buffer);
        consumer = consumer.rate_limiter(limiter);
    }
    Ok(consumer.origins(meant("origin", &wire.origins, &ORIGINS)?))
}

fn to_grouping(consumer: Consumer, wire: &proto::Grouping) -> Result<Consumer> {
    let by = meant("way to group", &wire.by, &GROUPS)?;
    let rule = match wire.rule.as_str() {
        "next_attempt" => GroupRule::NextAttempt,
        "shrink" => GroupRule::Shrink { least: wire.least },
        "exclude" => GroupRule::Exclude,
        other => return Err(malformed(&format!("{other:?} is no rule of a group"))),
    };
    let end = match wire.trajectory_rows {
        0 => TrajectoryEnd::Closed,
        rows => TrajectoryEnd::Rows(rows),
    };
    let grouped = match wire.trajectories {
        false => consumer.group(by, wire.members),
        true => consumer.trajectories(by, wire.members, end),
    };
    Ok(grouped.when_a_member_fails(rule))
}

/// A consumer's name, kind and tables on the wire.
pub fn from_declared(consumer: Declared) -> proto::Declared {
    let Declared { name, kind, tables } = consumer;
    proto::Declared { name, trainer: kind == ConsumerKind::Trainer, tables }
}

/// The consumer that is meant.
pub fn to_declared(wire: proto::Declared) -> Declared {
    let proto::Declared { name, trainer, tables } = wire;
    let kind = if trainer { ConsumerKind::Trainer } else { ConsumerKind::Task };
    Declared { name, kind, tables }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_declaration_comes_back_as_it_went() {
        let plain = Consumer::task(["a", "b"]).ready(["x"]);
        let full = Consumer::trainer(["a"])
            .ready(["x", "y"])
            .purposes([Purpose::Train, Purpose::WarmUp])
            .priority("x")
            .staleness(2)
            .rate_limiter(RateLimiter::new(0.5, 3, 8.0))
            .origins(Origins::External);
        let conditions = COMPARISONS
            .iter()
            .fold(plain.clone(), |consumer, (comparison, _)| consumer.only("x", *comparison, 0.25));
        let ends = [TrajectoryEnd::Closed, TrajectoryEnd::Rows(3)];
        let rules = [GroupRule::NextAttempt, GroupRule::Shrink { least: 2 }, GroupRule::Exclude];
        let by_trajectory = ends.map(|end| plain.clone().trajectories(GroupBy::Parent, 4, end));
        let by_rule = rules.map(|rule| plain.clone().group(GroupBy::Input, 8).when_a_member_fails(rule));
        let by_group = GROUPS.map(|(by, _)| plain.clone().group(by, 2));
        let all = [plain, full, conditions].into_iter().chain(by_trajectory).chain(by_rule).chain(by_group);
        for consumer in all {
            assert_eq!(to_consumer(from_consumer(&consumer)).unwrap(), consumer);
        }
    }

    #[test]
    fn words_that_stand_for_nothing_are_refused() {
        let good =
            from_consumer(&Consumer::task(["a"]).group(GroupBy::Input, 2).only("x", Comparison::Less, 1.0));
        let wrong = |change: fn(&mut proto::Consumer)| {
            let mut wire = good.clone();
            change(&mut wire);
            to_consumer(wire).unwrap_err().to_string()
        };
        for (change, named) in [
            ((|w| w.origins.clear()) as fn(&mut proto::Consumer), "origin"),
            (|w| w.purposes.push("fun".to_owned()), "fun"),
            (|w| w.conditions[0].comparison = "~".to_owned(), "~"),
            (|w| w.grouping.as_mut().unwrap().by = "moon".to_owned(), "moon"),
            (|w| w.grouping.as_mut().unwrap().rule = "rule".to_owned(), "rule"),
        ] {
            assert!(wrong(change).contains(named));
        }
    }
}
