//! Exact early training: members one by one, in any order, give the gradient of whole groups.

use forebay_trainer_adapter::{
    Admission, EarlyOptions, Error, ErrorKind, LossForm, Objective, OpenGroup, PolicyTerm, RewardValues, Row,
    Trainer, Trajectory, Unit,
};

use super::common::{
    self, applied_gradient, full_rows, gradient_options, ragged_config, random_groups, recorded,
    relative_error, shaken_policy, uniform,
};
use crate::{SHAPES_AGREE, TestDevice, device};

/// A group's convention: degrees of freedom and epsilon. The formula as the papers have it, in 64 bits.
fn advantages(rewards: &[f64], ddof: usize, epsilon: f64) -> Vec<f64> {
    let count = rewards.len() as f64;
    if rewards.iter().all(|reward| *reward == rewards[0]) {
        return vec![0.0; rewards.len()];
    }
    let mean = rewards.iter().sum::<f64>() / count;
    let squares: f64 = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
    let scale = (squares / (count - ddof as f64)).sqrt() + epsilon;
    rewards.iter().map(|reward| (reward - mean) / scale).collect()
}

/// What a step is made of: groups of rows, the rewards of their members, and what is done with them.
struct Step {
    groups: Vec<Vec<common::Row>>,
    rewards: Vec<Vec<f64>>,
    values: RewardValues,
    form: LossForm,
    objective: Objective,
    entropy: f32,
    ddof: usize,
}

impl Step {
    fn trainer(&self, threads: usize) -> Trainer<TestDevice> {
        let policy = shaken_policy(&ragged_config(), 3);
        let options = gradient_options(self.form, self.entropy);
        let trainer = Trainer::new(&device(threads), policy, options).unwrap();
        trainer.with_objective(self.objective).unwrap()
    }

    fn advantages(&self, group: usize) -> Vec<f64> {
        advantages(&self.rewards[group], self.ddof, 1e-6)
    }

    /// Whole groups, members side by side.
    fn whole(&self) -> Vec<f32> {
        let mut trainer = self.trainer(1);
        for position in 0..self.groups.len() {
            self.accumulate_whole(&mut trainer, position);
        }
        applied_gradient(&mut trainer)
    }

    fn accumulate_whole(&self, trainer: &mut Trainer<TestDevice>, position: usize) {
        let mut rows = full_rows(&self.groups[position]);
        for (row, advantage) in rows.iter_mut().zip(self.advantages(position)) {
            row.advantage = advantage as f32;
        }
        let version = trainer.version();
        trainer.accumulate(&Unit { position, policy: "policy", version, rows: &rows }).unwrap();
    }

    fn begin(&self, trainer: &mut Trainer<TestDevice>, position: usize) -> Admission {
        let members = self.groups[position].len();
        let (version, rewards) = (trainer.version(), self.values);
        trainer.begin_group(&OpenGroup { position, policy: "policy", version, members, rewards }).unwrap()
    }

    fn add(&self, trainer: &mut Trainer<TestDevice>, group: usize, member: usize) -> Result<usize, Error> {
        let rows = [Row { advantage: 1.0, ..self.groups[group][member].full() }];
        let reward = self.rewards[group][member];
        trainer.add_trajectory(&Trajectory { group, member, reward, rows: &rows })
    }

    /// Members in a random order over all groups; each group closes with its last member.
    fn early(&self, order_seed: u64) -> Trainer<TestDevice> {
        let mut trainer = self.trainer(1);
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (group, members) in self.groups.iter().enumerate() {
            self.begin(&mut trainer, group);
            order.extend((0..members.len()).map(|member| (group, member)));
        }
        shuffle(&mut order, order_seed);
        for (group, member) in order {
            if self.add(&mut trainer, group, member).unwrap() == 0 {
                assert_eq!(trainer.group_rewards(group).unwrap(), self.rewards[group]);
                trainer.close_group(group, &self.advantages(group)).unwrap();
            }
        }
        trainer
    }
}

fn shuffle<T>(order: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..order.len()).rev() {
        order.swap(last, (uniform(&mut state) * (last + 1) as f64) as usize);
    }
}

/// Groups of 4, 2, 5 and 1 members with rewards of the kind, one of the groups without spread.
fn step(rewards: &dyn Fn(f64) -> f64, values: RewardValues) -> Step {
    let mut groups = random_groups(51, 4, 5, 37);
    recorded(&mut groups, 52);
    let mut state = 53;
    let mut made = Vec::new();
    for (group, size) in groups.iter_mut().zip([4, 2, 5, 3]) {
        group.truncate(size);
        made.push((0..size).map(|_| rewards(uniform(&mut state))).collect::<Vec<f64>>());
    }
    (made[0][0], made[0][1]) = (rewards(0.01), rewards(0.99));
    let equal = made[3][0];
    made[3].fill(equal);
    let (form, objective) = (LossForm::TokenMean, Objective::default());
    Step { groups, rewards: made, values, form, objective, entropy: 0.0, ddof: 0 }
}

/// A kind of rewards: its name, a reward from a draw in [0, 1), and what a group is begun with.
type Kind<'a> = (&'a str, &'a dyn Fn(f64) -> f64, RewardValues);

const ANY: RewardValues = RewardValues::Any { reference: 0.0 };
const BINARY: RewardValues = RewardValues::Two { low: 0.0, high: 1.0 };

fn binary(draw: f64) -> f64 {
    f64::from(u8::from(draw > 0.5))
}

/// FX-30, FX-37 (DESIGN 5): binary, continuous and offset rewards, every loss form, both deviations, with and without the
/// terms that do not depend on the advantage: the full batch's gradient, and in any order the same bits.
#[test]
fn members_one_by_one_give_the_gradient_of_whole_groups() {
    let kl = Objective { kl_coefficient: 0.04, ..Objective::default() };
    let truncated = Objective { policy_term: PolicyTerm::Truncated { cap: 1.5 }, ..kl };
    let offset = |draw: f64| 100.0 + 0.01 * (draw - 0.5);
    let kinds: [Kind<'_>; 5] = [
        ("binary", &binary, ANY),
        ("two values", &binary, BINARY),
        ("continuous", &|draw| 3.0 * draw - 1.0, ANY),
        ("offset", &offset, ANY),
        ("offset, with a reference", &offset, RewardValues::Any { reference: 100.0 }),
    ];
    for (name, rewards, values) in kinds {
        for form in [LossForm::TokenMean, LossForm::SampleMean, LossForm::ConstantLength(8)] {
            for ddof in [0, 1] {
                for (objective, entropy) in [(Objective::default(), 0.0), (kl, 0.01), (truncated, 0.01)] {
                    let step = Step { form, ddof, objective, entropy, ..step(rewards, values) };
                    let mut trainer = step.early(1);
                    let early = applied_gradient(&mut trainer);
                    let error = relative_error(&early, &step.whole());
                    assert!(
                        error <= SHAPES_AGREE,
                        "{name}, {form:?}, ddof {ddof}, {objective:?}: {error:.1e}"
                    );
                    assert_eq!(early, applied_gradient(&mut step.early(2)), "{name}: arrival changed a bit");
                }
            }
        }
    }
}

/// DESIGN 5: with two reward values a clipped loss is exact too, since the sign is known on arrival.
#[test]
fn a_clipped_loss_is_exact_with_two_reward_values() {
    for (low, high) in [(0.0, 1.0), (-1.0, 0.25), (0.1, 0.3)] {
        for ddof in [0, 1] {
            let objective = Objective { policy_term: PolicyTerm::CLIP_HIGHER, kl_coefficient: 0.02 };
            let rewards = move |draw| if draw > 0.5 { high } else { low };
            let values = RewardValues::Two { low, high };
            let step = Step { objective, ddof, ..step(&rewards, values) };
            let mut trainer = step.early(7);
            assert!(trainer.cache().open_groups.is_empty());
            let early = applied_gradient(&mut trainer);
            let error = relative_error(&early, &step.whole());
            assert!(error <= SHAPES_AGREE, "{low}, {high}, ddof {ddof}: {error:.1e}");
            assert_eq!(early, applied_gradient(&mut step.early(8)));
        }
    }
}

/// AW-13: equal rewards of 0.1 add nothing, by exact comparison, even where the estimator's rounding made advantages.
#[test]
fn equal_rewards_add_nothing_and_count() {
    let mut step = step(&binary, ANY);
    step.rewards = step.groups.iter().map(|group| vec![0.1; group.len()]).collect();
    let mut trainer = step.trainer(1);
    for group in 0..4 {
        step.begin(&mut trainer, group);
        let members = step.groups[group].len();
        (0..members).for_each(|member| assert!(step.add(&mut trainer, group, member).is_ok()));
        // What a mean with rounding and no epsilon makes of equal rewards.
        let report = trainer.close_group(group, &vec![1.0; members]).unwrap();
        assert_eq!((report.loss_numerator, report.rows), (0.0, members as u64));
    }
    assert_eq!(trainer.cache().rows, 14);
    let report = trainer.apply().unwrap();
    assert_eq!((report.gradient_norm, report.rows), (0.0, 14));
}

/// AJ-B27: a single member has nothing to be compared with; the advantage that its estimator gives is its advantage.
#[test]
fn a_single_member_has_the_advantage_that_it_is_given() {
    let mut step = step(&binary, ANY);
    step.groups = vec![step.groups[0][..1].to_vec()];
    step.rewards = vec![vec![0.7]];
    let mut trainer = step.trainer(1);
    step.begin(&mut trainer, 0);
    step.add(&mut trainer, 0, 0).unwrap();
    trainer.close_group(0, &[0.7]).unwrap();
    let early = applied_gradient(&mut trainer);
    let mut whole = step.trainer(1);
    let rows = [Row { advantage: 0.7, ..step.groups[0][0].full() }];
    whole.accumulate(&Unit { position: 0, policy: "policy", version: 0, rows: &rows }).unwrap();
    assert!(relative_error(&early, &applied_gradient(&mut whole)) <= SHAPES_AGREE);
}

/// A member that fails leaves numerator and denominator, and its group is compared without it; an excluded group leaves
/// everything, and its place may be taken again.
#[test]
fn what_never_comes_leaves_no_trace() {
    let mut step = step(&|draw| draw, ANY);
    let mut trainer = step.trainer(1);
    for group in 0..3 {
        step.begin(&mut trainer, group);
    }
    // Group 0 loses its member 2, group 1 is excluded with one of two members in it.
    for (group, member) in [(0, 3), (1, 0), (2, 4), (0, 0), (2, 0), (2, 1), (0, 1), (2, 3), (2, 2)] {
        step.add(&mut trainer, group, member).unwrap();
    }
    assert_eq!(trainer.apply(), Err(Error::OpenGroups { positions: vec![0, 1, 2] }));
    assert_eq!(trainer.close_group(0, &[0.0; 3]), Err(Error::GroupIncomplete { position: 0, missing: 1 }));
    assert_eq!(trainer.exclude_member(0, 2), Ok(0));
    let report = trainer.cache();
    assert_eq!(report.open_groups.iter().map(|group| group.arrived).collect::<Vec<_>>(), [3, 1, 5]);
    assert_eq!((report.rows, report.tokens), (0, 0), "an open group counts nowhere");
    trainer.exclude_group(1).unwrap();
    step.groups[0].remove(2);
    step.rewards[0].remove(2);
    for group in [0, 2] {
        trainer.close_group(group, &step.advantages(group)).unwrap();
    }
    assert_eq!(trainer.cache().open_bytes, 0);
    let early = applied_gradient(&mut trainer);

    let mut whole = step.trainer(1);
    for group in [0, 2] {
        step.accumulate_whole(&mut whole, group);
    }
    assert!(relative_error(&early, &applied_gradient(&mut whole)) <= SHAPES_AGREE);
}

/// Early and whole groups in one step, over several threads: the same bits.
#[test]
fn threads_and_neighbours_change_no_bit() {
    let step = step(&|draw| draw, ANY);
    let run = |threads: usize, together: bool| {
        let mut trainer = step.trainer(threads);
        step.accumulate_whole(&mut trainer, 1);
        step.begin(&mut trainer, 2);
        let rows: Vec<[Row<'_>; 1]> =
            step.groups[2].iter().map(|row| [Row { advantage: 1.0, ..row.full() }]).collect();
        let member = |member: usize| Trajectory {
            group: 2,
            member,
            reward: step.rewards[2][member],
            rows: &rows[member],
        };
        let members: Vec<Trajectory<'_, Row<'_>>> = (0..5).rev().map(member).collect();
        let missing = if together {
            trainer.add_trajectories(&members).unwrap().pop()
        } else {
            members.iter().map(|member| trainer.add_trajectory(member).unwrap()).last()
        };
        assert_eq!(missing, Some(0));
        trainer.close_group(2, &step.advantages(2)).unwrap();
        applied_gradient(&mut trainer)
    };
    let expected = run(1, false);
    for threads in [1, 2, 3] {
        assert_eq!(run(threads, true), expected, "{threads} threads");
    }
}

/// FX-35: twenty steps of trajectories in any order end with the same bits, and near those of whole groups.
#[test]
fn twenty_steps_in_any_order_end_with_the_same_bits() {
    let step = step(&|draw| draw, ANY);
    let weights = |order_seed: Option<u64>| {
        let mut trainer = step.trainer(1);
        for version in 0..20 {
            for position in 0..4 {
                match order_seed {
                    None => step.accumulate_whole(&mut trainer, position),
                    Some(_) => assert!(matches!(step.begin(&mut trainer, position), Admission::Open { .. })),
                }
            }
            let members =
                |(group, rows): (usize, &Vec<_>)| (0..rows.len()).map(move |member| (group, member));
            let mut order: Vec<(usize, usize)> = step.groups.iter().enumerate().flat_map(members).collect();
            shuffle(&mut order, order_seed.unwrap_or_default() * 31 + version);
            for (group, member) in order.into_iter().filter(|_| order_seed.is_some()) {
                if step.add(&mut trainer, group, member).unwrap() == 0 {
                    trainer.close_group(group, &step.advantages(group)).unwrap();
                }
            }
            trainer.apply().unwrap();
        }
        trainer.policy().values(&device(1))
    };
    let expected = weights(Some(1));
    assert_eq!(weights(Some(2)), expected);
    assert_eq!(weights(Some(3)), expected);
    let error = relative_error(&expected, &weights(None));
    assert!(error < 1e-3, "whole groups ended {error:.1e} away");
}

/// At the budget the answer is to train whole groups; nothing else changes, and a closed group makes room.
#[test]
fn a_budget_of_sums_sends_groups_back_to_be_trained_whole() {
    let step = step(&binary, ANY);
    let parameters = shaken_policy(&ragged_config(), 3).layout().length() as u64;
    let of_group = 16 * parameters;
    let options = EarlyOptions { budget_bytes: 2 * of_group, ..EarlyOptions::default() };
    let mut trainer = step.trainer(1).with_early_options(options).unwrap();
    assert_eq!(step.begin(&mut trainer, 0), Admission::Open { bytes: of_group });
    assert_eq!(step.begin(&mut trainer, 1), Admission::Open { bytes: of_group });
    let full = Admission::WholeGroups { bytes: 3 * of_group, budget_bytes: 2 * of_group };
    assert_eq!(step.begin(&mut trainer, 2), full);
    assert_eq!(trainer.cache().open_bytes, 2 * of_group);
    step.accumulate_whole(&mut trainer, 2);
    trainer.exclude_group(0).unwrap();
    assert_eq!(step.begin(&mut trainer, 3), Admission::Open { bytes: of_group });
}

#[test]
fn what_cannot_be_trained_early_is_refused_with_its_reason() {
    let mut step = step(&binary, BINARY);
    step.objective.policy_term = PolicyTerm::CLIP_HIGHER;
    let mut trainer = step.trainer(1);
    let group = OpenGroup { position: 0, policy: "policy", version: 0, members: 4, rewards: BINARY };
    let any = trainer.begin_group(&OpenGroup { rewards: ANY, ..group });
    assert!(matches!(any, Err(Error::NotLinear { position: 0, .. })), "{any:?}");
    for rewards in [
        RewardValues::Two { low: 1.0, high: 1.0 },
        RewardValues::Two { low: f64::NAN, high: 1.0 },
        RewardValues::Any { reference: f64::INFINITY },
    ] {
        let refused = trainer.begin_group(&OpenGroup { rewards, ..group }).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Input), "{rewards:?}");
    }
    let crowd = trainer.begin_group(&OpenGroup { members: usize::MAX, ..group });
    assert!(matches!(crowd, Err(Error::Config { field: "members", .. })), "{crowd:?}");
    assert_eq!(
        trainer.begin_group(&OpenGroup { members: 0, ..group }),
        Err(Error::EmptyUnit { position: 0 })
    );
    assert_eq!(step.add(&mut trainer, 0, 0), Err(Error::NoGroup { position: 0 }));
    trainer.begin_group(&group).unwrap();
    assert_eq!(trainer.begin_group(&group), Err(Error::PositionTaken { position: 0 }));
    let rows = [Row::new(&[1], &[2])];
    let unit = Unit { position: 0, policy: "policy", version: 0, rows: &rows };
    assert_eq!(trainer.accumulate(&unit).map_err(|error| error.kind()), Err(ErrorKind::State));

    let row = step.groups[0][0].clone();
    let good = [Row { advantage: 1.0, ..row.full() }];
    let bad = [Row { advantage: 0.5, ..row.full() }];
    let at = |member, reward, rows| Trajectory { group: 0, member, reward, rows };
    let refused = [
        (at(4, 1.0, &good), Error::Member { position: 0, member: 4, reason: "is not planned" }),
        (at(0, 0.5, &good), Error::Reward { position: 0, member: 0, reward: 0.5 }),
        (at(0, 1.0, &bad), Error::RowAdvantage { row: 0, advantage: 0.5 }),
    ];
    for (trajectory, expected) in refused {
        assert_eq!(trainer.add_trajectory(&trajectory), Err(expected));
    }
    let twice = Error::Member { position: 0, member: 1, reason: "is given twice" };
    assert_eq!(trainer.add_trajectories(&[at(1, 1.0, &good), at(1, 0.0, &good)]), Err(twice));
    for (member, reward) in [(0, 1.0), (1, 0.0), (2, 1.0)] {
        trainer.add_trajectory(&at(member, reward, &good)).unwrap();
    }
    let again = Error::Member { position: 0, member: 0, reason: "has arrived already" };
    assert_eq!(trainer.add_trajectory(&at(0, 1.0, &good)), Err(again));
    assert!(matches!(trainer.exclude_member(0, 1), Err(Error::Member { .. })));
    trainer.exclude_member(0, 3).unwrap();
    let late = Error::Member { position: 0, member: 3, reason: "was excluded" };
    assert_eq!(trainer.add_trajectory(&at(3, 1.0, &good)), Err(late));
    // Too few; no number; not on a line; the wrong way round for a clip, at both rewards or at one.
    let wrong =
        [[1.0, f64::NAN, 1.0], [1.0, -2.0, 0.9], [-1.0, 2.0, -1.0], [-1.0, -2.0, -1.0], [2.0, 1.0, 2.0]];
    for advantages in std::iter::once(&[1.0, -1.0][..]).chain(wrong.iter().map(|three| &three[..])) {
        let refused = trainer.close_group(0, advantages);
        assert!(matches!(refused, Err(Error::GroupAdvantages { position: 0, .. })), "{advantages:?}");
    }
    trainer.close_group(0, &[1.0, -2.0, 1.0]).unwrap();
    assert_eq!(trainer.close_group(0, &[1.0]), Err(Error::NoGroup { position: 0 }));
}

/// A reward far from the reference leaves the range of the sums: an error, never a wrong gradient.
#[test]
fn rewards_beyond_the_range_are_refused_when_the_group_closes() {
    let mut step = step(&binary, ANY);
    step.groups.truncate(1);
    step.rewards = vec![vec![1e30, 0.0, 0.0, 1.0]];
    let mut trainer = step.trainer(1);
    step.begin(&mut trainer, 0);
    (0..4).for_each(|member| assert!(step.add(&mut trainer, 0, member).is_ok()));
    let refused = trainer.close_group(0, &step.advantages(0));
    assert_eq!(refused, Err(Error::SumRange { position: 0 }));
    trainer.exclude_group(0).unwrap();
    let options = EarlyOptions { fraction_bits: 60, ..EarlyOptions::default() };
    assert!(matches!(step.trainer(1).with_early_options(options), Err(Error::Config { .. })));
}
