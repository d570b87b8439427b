//! The trainer: what is accumulated, what an update does, and that order and threads change no bit.

use super::common::{
    Row, accumulate, applied_gradient, gradient_options, ragged_config, random_groups, relative_error,
    sequences, shaken_policy, uniform,
};
use crate::{SHAPES_AGREE, STEPS, TestDevice, device};
use forebay_trainer_adapter::{ErrorKind, LossForm, Sequence, Trainer, TrainerOptions, Unit};

const VOCABULARY: usize = 37;

fn trainer(options: TrainerOptions) -> Trainer<TestDevice> {
    Trainer::new(&device(1), shaken_policy(&ragged_config(), 3), options).unwrap()
}

/// The gradient of a step in which the rows arrive as the given units.
fn gradient_of(units: &[Vec<Row>], form: LossForm) -> Vec<f32> {
    let mut trainer = trainer(gradient_options(form, 0.01));
    accumulate(&mut trainer, units, &(0..units.len()).collect::<Vec<_>>());
    applied_gradient(&mut trainer)
}

/// FX-29: parameters do not move during micro-batches.
#[test]
fn weights_stand_still_until_the_update() {
    let mut trainer = trainer(TrainerOptions::default());
    let groups = random_groups(1, 4, 4, VOCABULARY);
    let before = trainer.weights_sha256();
    for position in 0..4 {
        accumulate(&mut trainer, &groups, &[position]);
        assert_eq!(trainer.weights_sha256(), before);
    }
    let old = trainer.policy();
    trainer.apply().unwrap();
    assert_ne!(trainer.weights_sha256(), before);
    assert_eq!(old.sha256(&device(1)), before, "who holds the old version keeps it");
}

/// FX-30, PL-18: four micro-batches of 16 are the batch of 64.
#[test]
fn micro_batches_add_up_to_the_full_batch() {
    for form in [LossForm::TokenMean, LossForm::SampleMean, LossForm::ConstantLength(8)] {
        for seed in 1..4 {
            let rows: Vec<Row> = random_groups(seed, 8, 8, VOCABULARY).concat();
            let full = gradient_of(std::slice::from_ref(&rows), form);
            let parts: Vec<Vec<Row>> = rows.chunks(16).map(<[Row]>::to_vec).collect();
            let error = relative_error(&gradient_of(&parts, form), &full);
            assert!(error <= SHAPES_AGREE, "seed {seed}, {form:?}: {error:.1e}");
        }
    }
}

/// FX-30: with a token mean and unequal token counts, the mean of the micro-batches' means is another gradient; the mean
/// weighted by tokens is the right one.
#[test]
fn the_mean_of_micro_batch_means_is_not_the_gradient() {
    let mut rows: Vec<Row> = random_groups(2, 8, 8, VOCABULARY).concat();
    rows.sort_by_key(|row| row.response.len());
    let parts: Vec<Vec<Row>> = rows.chunks(16).map(<[Row]>::to_vec).collect();
    let full = gradient_of(std::slice::from_ref(&rows), LossForm::TokenMean);
    let tokens = |rows: &[Row]| rows.iter().map(|row| row.response.len()).sum::<usize>() as f32;
    let mix = |weight: &dyn Fn(&[Row]) -> f32| {
        let mut sum = vec![0.0; full.len()];
        for part in &parts {
            let gradient = gradient_of(std::slice::from_ref(part), LossForm::TokenMean);
            sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += weight(part) * value);
        }
        sum
    };
    let plain = relative_error(&mix(&|_| 1.0 / parts.len() as f32), &full);
    let weighted = relative_error(&mix(&|part| tokens(part) / tokens(&rows)), &full);
    assert!(plain > 1e-2, "plain averaging was off by {plain:.1e} only");
    assert!(weighted <= SHAPES_AGREE, "token-weighted averaging was off by {weighted:.1e}");
}

/// FX-31: one update a full batch, one version an update.
#[test]
fn versions_count_updates() {
    let mut trainer = trainer(TrainerOptions::default());
    let groups = random_groups(3, 4, 16, VOCABULARY);
    for version in 0..5 {
        assert_eq!(trainer.version(), version);
        accumulate(&mut trainer, &groups, &[0, 1, 2, 3]);
        let report = trainer.apply().unwrap();
        assert_eq!((report.version, report.units, report.rows), (version + 1, 4, 64));
        let tokens: usize = groups.concat().iter().map(|row| row.response.len()).sum();
        assert_eq!((report.tokens, report.denominator), (tokens as u64, tokens as f64));
    }
}

/// Steps of eight groups; `order` gives the positions in order of arrival, cut into calls.
fn steps(threads: usize, order: impl Fn(u64) -> Vec<Vec<usize>>) -> Vec<String> {
    let options = TrainerOptions { entropy_coefficient: 0.01, ..TrainerOptions::default() };
    let policy = shaken_policy(&ragged_config(), 3);
    let mut trainer = Trainer::new(&device(threads), policy, options).unwrap();
    let step = |step| {
        let groups = random_groups(100 + step, 8, 4, VOCABULARY);
        let rows: Vec<Vec<Sequence<'_>>> = groups.iter().map(|group| sequences(group)).collect();
        for call in order(step) {
            let unit =
                |&position: &usize| Unit { position, policy: "policy", version: step, rows: &rows[position] };
            trainer.accumulate_many(&call.iter().map(unit).collect::<Vec<_>>()).unwrap();
        }
        trainer.apply().unwrap();
        trainer.weights_sha256()
    };
    (0..STEPS).map(step).collect()
}

/// FX-35: weights after synchronous training and after micro-batches in any order are the same bits; with any number of
/// threads.
#[test]
fn arrival_order_and_threads_change_no_bit() {
    let together = |_| vec![(0..8).collect()];
    let expected = steps(1, together);
    for threads in [1, 2, 3] {
        assert_eq!(steps(threads, together), expected, "{threads} threads");
        let permuted = |step| {
            let mut state = step * 31 + threads as u64;
            let mut order: Vec<usize> = (0..8).collect();
            for last in (1..8).rev() {
                order.swap(last, (uniform(&mut state) * (last + 1) as f64) as usize);
            }
            let cut = 1 + (uniform(&mut state) * 7.0) as usize;
            vec![order[..cut].to_vec(), order[cut..].to_vec()]
        };
        assert_eq!(steps(threads, permuted), expected, "{threads} threads, permuted");
    }
}

/// A sum over planned places: leaving one out shifts no other.
#[test]
fn positions_with_gaps_are_summed_in_one_order_too() {
    let groups = random_groups(8, 11, 3, VOCABULARY);
    let hash = |positions: &[usize]| {
        let mut trainer = trainer(TrainerOptions::default());
        accumulate(&mut trainer, &groups, positions);
        trainer.apply().unwrap();
        trainer.weights_sha256()
    };
    let expected = hash(&[0, 2, 3, 5, 9, 10]);
    for order in [[10, 9, 5, 3, 2, 0], [5, 0, 10, 2, 9, 3], [3, 2, 0, 10, 9, 5]] {
        assert_eq!(hash(&order), expected, "{order:?}");
    }
}

/// AW-13: a group whose rewards are all equal has advantages of zero. It adds nothing, breaks nothing, and counts.
#[test]
fn a_group_without_spread_adds_nothing_and_counts() {
    let mut groups = random_groups(4, 3, 4, VOCABULARY);
    groups[1].iter_mut().for_each(|row| row.advantage = 0.0);
    let mut trainer = trainer(gradient_options(LossForm::SampleMean, 0.0));
    accumulate(&mut trainer, &groups, &[0, 1, 2]);
    let with = applied_gradient(&mut trainer);
    let without = gradient_of_rows(&[groups[0].clone(), groups[2].clone()]);
    let scaled: Vec<f32> = without.iter().map(|value| value * 8.0 / 12.0).collect();
    assert!(with.iter().all(|value| value.is_finite()));
    assert!(relative_error(&with, &scaled) < 1e-6);
}

fn gradient_of_rows(units: &[Vec<Row>]) -> Vec<f32> {
    let mut trainer = trainer(gradient_options(LossForm::SampleMean, 0.0));
    accumulate(&mut trainer, units, &(0..units.len()).collect::<Vec<_>>());
    applied_gradient(&mut trainer)
}

/// AW-13: a step of nothing but such groups moves no weight and is a step.
#[test]
fn a_step_without_any_spread_is_an_update_of_nothing() {
    let mut groups = random_groups(4, 2, 4, VOCABULARY);
    groups.iter_mut().flatten().for_each(|row| row.advantage = 0.0);
    let mut trainer = trainer(TrainerOptions::default());
    let before = trainer.weights_sha256();
    accumulate(&mut trainer, &groups, &[0, 1]);
    let report = trainer.apply().unwrap();
    assert_eq!((report.gradient_norm, report.version, report.rows), (0.0, 1, 8));
    assert_eq!(trainer.weights_sha256(), before);
}

#[test]
fn an_empty_response_counts_as_a_row() {
    let mut group = random_groups(4, 1, 4, VOCABULARY).concat();
    group[2].response.clear();
    let mut trainer = trainer(gradient_options(LossForm::SampleMean, 0.0));
    accumulate(&mut trainer, &[group], &[0]);
    assert_eq!(trainer.cache().rows, 4);
    assert!(applied_gradient(&mut trainer).iter().all(|value| value.is_finite()));
}

#[test]
fn a_dropped_cache_leaves_no_trace() {
    let groups = random_groups(5, 4, 4, VOCABULARY);
    let hash = |positions: &[usize]| {
        let mut trainer = trainer(TrainerOptions::default());
        accumulate(&mut trainer, &groups, positions);
        trainer.drop_cache();
        accumulate(&mut trainer, &groups, &[0, 1, 2, 3]);
        trainer.apply().unwrap();
        trainer.weights_sha256()
    };
    assert_eq!(hash(&[]), hash(&[1, 3]));
}

#[test]
fn a_long_gradient_is_cut_to_the_clip_norm() {
    let groups = random_groups(5, 2, 4, VOCABULARY);
    let norm = |clip_norm: f64| {
        let mut trainer = trainer(TrainerOptions { clip_norm, ..gradient_options(LossForm::TokenMean, 0.0) });
        accumulate(&mut trainer, &groups, &[0, 1]);
        let gradient = applied_gradient(&mut trainer);
        gradient.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
    };
    let free = norm(f64::INFINITY);
    assert!((norm(free / 3.0) * 3.0 / free - 1.0).abs() < 1e-6);
    assert!((norm(free * 3.0) / free - 1.0).abs() < 1e-6);
}

#[test]
fn a_restored_trainer_goes_on_bit_for_bit() {
    let (config, options) = (ragged_config(), TrainerOptions::default());
    let mut original = trainer(options.clone());
    let step = |trainer: &mut Trainer<TestDevice>| {
        accumulate(trainer, &random_groups(trainer.version(), 3, 4, VOCABULARY), &[0, 1, 2]);
        trainer.apply().unwrap();
    };
    (0..3).for_each(|_| step(&mut original));
    let state = original.state();
    let mut restored = Trainer::restore(&device(1), &config, options.clone(), &state).unwrap();
    assert_eq!((restored.version(), restored.weights_sha256()), (3, original.weights_sha256()));
    assert_eq!(restored.state(), state, "the same state is the same bytes");
    (0..3).for_each(|_| step(&mut original));
    (0..3).for_each(|_| step(&mut restored));
    assert_eq!(restored.state(), original.state());

    let mut other = config.clone();
    other.rope_theta += 1.0;
    let refused = Trainer::restore(&device(1), &other, options, &state);
    assert_eq!(refused.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
}
