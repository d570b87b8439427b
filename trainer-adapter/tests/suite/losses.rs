//! Masks, weights and recorded log-probabilities: what counts, what does not, and what is refused.

use forebay_trainer_adapter::{
    Error, ErrorKind, LossForm, Objective, PolicyTerm, Row, Trainer, TrainerOptions, Unit, UnitReport,
};
use half::bf16;

use super::common::{
    applied_gradient, full_rows, gradient_options, ragged_config, random_groups, recorded, relative_error,
    shaken_policy,
};
use crate::{SHAPES_AGREE, TestDevice, device};

const FORMS: [LossForm; 3] = [LossForm::TokenMean, LossForm::SampleMean, LossForm::ConstantLength(8)];
const EVERYTHING: Objective = Objective { policy_term: PolicyTerm::CLIP_HIGHER, kl_coefficient: 0.04 };

fn trainer(options: TrainerOptions, objective: Objective) -> Trainer<TestDevice> {
    let policy = shaken_policy(&ragged_config(), 3);
    Trainer::new(&device(1), policy, options).unwrap().with_objective(objective).unwrap()
}

fn accumulate(
    trainer: &mut Trainer<TestDevice>,
    position: usize,
    rows: &[Row<'_>],
) -> Result<UnitReport, Error> {
    trainer.accumulate(&Unit { position, policy: "policy", version: trainer.version(), rows })
}

fn gradient(form: LossForm, rows: &[Row<'_>]) -> Vec<f32> {
    let mut trainer = trainer(gradient_options(form, 0.01), EVERYTHING);
    accumulate(&mut trainer, 0, rows).unwrap();
    applied_gradient(&mut trainer)
}

/// PL-B14: padding rows are not computed and counted nowhere: they change no bit.
#[test]
fn rows_of_weight_zero_change_no_bit() {
    let mut groups = random_groups(31, 1, 5, 37);
    recorded(&mut groups, 32);
    let rows = full_rows(&groups[0]);
    let mut padded = rows.clone();
    padded.insert(2, Row { weight: 0.0, advantage: 7.0, ..rows[4] });
    padded.push(Row { weight: 0.0, ..rows[0] });
    for form in FORMS {
        assert_eq!(gradient(form, &padded), gradient(form, &rows), "{form:?}");
    }
    let mut trainer = trainer(TrainerOptions::default(), EVERYTHING);
    let report = accumulate(&mut trainer, 0, &padded).unwrap();
    assert_eq!(report.rows, 5);
    // A unit of nothing but padding, as a rank without rows has it.
    let nothing = accumulate(&mut trainer, 1, &[Row { weight: 0.0, ..rows[0] }]).unwrap();
    assert_eq!(nothing, UnitReport::default());
    trainer.apply().unwrap();
}

/// A row of weight 2 is the row twice; weights below 1 work alike, and a common factor cancels.
#[test]
fn weights_count_in_numerator_and_denominator() {
    let mut groups = random_groups(33, 1, 4, 37);
    recorded(&mut groups, 34);
    let rows = full_rows(&groups[0]);
    let twice = [rows[0], rows[1], rows[1], rows[2], rows[3]];
    for form in FORMS {
        for factor in [1.0, 0.125, 3.0] {
            let weighted: Vec<Row<'_>> = rows
                .iter()
                .enumerate()
                .map(|(index, row)| Row { weight: if index == 1 { 2.0 * factor } else { factor }, ..*row })
                .collect();
            let error = relative_error(&gradient(form, &weighted), &gradient(form, &twice));
            assert!(error < SHAPES_AGREE, "{form:?}, factor {factor}: {error:.1e}");
        }
    }
}

/// What stands at a masked token matters to nobody, not even if it is no number; only the words themselves are read.
#[test]
fn masked_tokens_count_nowhere() {
    let mut groups = random_groups(35, 1, 4, 37);
    recorded(&mut groups, 36);
    let mut poisoned = groups[0].clone();
    for row in &mut poisoned {
        for token in 0..row.response.len() {
            if !row.mask[token] {
                (row.behaviour[token], row.reference[token]) = (f32::NAN, f32::INFINITY);
            }
        }
    }
    let tokens: usize = groups[0].iter().flat_map(|row| &row.mask).filter(|&&trained| trained).count();
    for form in FORMS {
        assert_eq!(gradient(form, &full_rows(&poisoned)), gradient(form, &full_rows(&groups[0])), "{form:?}");
    }
    let mut trainer = trainer(TrainerOptions::default(), EVERYTHING);
    let report = accumulate(&mut trainer, 0, &full_rows(&poisoned)).unwrap();
    assert_eq!((report.tokens, trainer.cache().tokens), (tokens as u64, tokens as u64));
    assert!(report.loss_numerator.is_finite() && report.mean_kl >= 0.0);
    assert_eq!(trainer.apply().unwrap().denominator, tokens as f64);
}

/// A mask of ones is no mask, to the bit.
#[test]
fn a_full_mask_changes_no_bit() {
    let mut groups = random_groups(37, 1, 4, 37);
    recorded(&mut groups, 38);
    groups[0].iter_mut().for_each(|row| row.mask.fill(true));
    let masked = full_rows(&groups[0]);
    let plain: Vec<Row<'_>> = masked.iter().map(|row| Row { loss_mask: None, ..*row }).collect();
    for form in FORMS {
        assert_eq!(gradient(form, &masked), gradient(form, &plain));
    }
}

/// PL-25: log-probabilities recorded in bf16 are as good as their eight bits say; the sum stays in 32 bits.
#[test]
fn log_probs_of_bf16_are_accumulated_in_f32() {
    let mut groups = random_groups(39, 1, 6, 37);
    recorded(&mut groups, 40);
    let exact = gradient(LossForm::TokenMean, &full_rows(&groups[0]));
    let mut rounded = groups.clone();
    for row in rounded.iter_mut().flatten() {
        for value in row.behaviour.iter_mut().chain(&mut row.reference) {
            *value = bf16::from_f32(*value).to_f32();
        }
    }
    let found = gradient(LossForm::TokenMean, &full_rows(&rounded[0]));
    let error = relative_error(&found, &exact);
    assert!(error > 1e-6 && error < 3e-2, "off by {error:.1e}");
}

/// A ratio may be infinite: of forced tokens, or where an engine says a sentinel. A row without an advantage adds nothing all the same.
#[test]
fn a_row_of_advantage_0_adds_nothing_whatever_its_ratio() {
    for policy_term in [
        PolicyTerm::CLIP_HIGHER,
        PolicyTerm::ClippedTruncated { low: 0.2, high: 0.28, cap: 2.0 },
        PolicyTerm::Truncated { cap: 2.0 },
    ] {
        let objective = Objective { policy_term, kl_coefficient: 0.0 };
        let mut trainer = trainer(TrainerOptions::default(), objective);
        let told = |value: &'static [f32]| (Some(value), Some(value));
        let row = |advantage, (behaviour_log_probs, proximal_log_probs)| Row {
            advantage,
            behaviour_log_probs,
            proximal_log_probs,
            ..Row::new(&[1], &[2, 3])
        };
        let rows = [row(0.0, told(&[-200.0, -9999.0])), row(1.0, told(&[-3.0, -3.0]))];
        trainer.accumulate(&Unit { position: 0, policy: "policy", version: 0, rows: &rows }).unwrap();
        let report = trainer.apply();
        assert!(
            report.as_ref().is_ok_and(|report| report.gradient_norm > 0.0),
            "{policy_term:?}: {report:?}"
        );
    }
}

/// Each bad row is refused by name, and the cache is as before.
#[test]
fn rows_that_do_not_fit_their_objective_are_refused() {
    let good = Row {
        behaviour_log_probs: Some(&[-1.0, -2.0]),
        reference_log_probs: Some(&[-1.0, -2.0]),
        ..Row::new(&[1, 2], &[3, 4])
    };
    let column = "behaviour_log_probs";
    let cases = [
        (
            Row { loss_mask: Some(&[true]), ..good },
            Error::ColumnLength { row: 1, column: "loss_mask", length: 1, expected: 2 },
        ),
        (Row { loss_mask: Some(&[false, false]), ..good }, Error::EmptyMask { row: 1, tokens: 2 }),
        (Row { behaviour_log_probs: None, ..good }, Error::MissingColumn { row: 1, column }),
        (
            Row { reference_log_probs: None, ..good },
            Error::MissingColumn { row: 1, column: "reference_log_probs" },
        ),
        (
            Row { behaviour_log_probs: Some(&[-1.0; 3]), ..good },
            Error::ColumnLength { row: 1, column, length: 3, expected: 2 },
        ),
        (
            Row { behaviour_log_probs: Some(&[-1.0, f32::NEG_INFINITY]), ..good },
            Error::LogProb { row: 1, column, token: 1, value: f32::NEG_INFINITY },
        ),
        (Row { weight: -1.0, ..good }, Error::Weight { row: 1, weight: -1.0 }),
        (Row { weight: f32::INFINITY, ..good }, Error::Weight { row: 1, weight: f32::INFINITY }),
    ];
    let mut trainer = trainer(TrainerOptions::default(), EVERYTHING);
    accumulate(&mut trainer, 0, &[good]).unwrap();
    let before = trainer.cache();
    for (bad, expected) in cases {
        assert_eq!(expected.kind(), ErrorKind::Input);
        assert_eq!(accumulate(&mut trainer, 1, &[good, bad]), Err(expected));
        assert_eq!(trainer.cache(), before);
    }
    let not_a_number = Row { reference_log_probs: Some(&[f32::NAN, -1.0]), ..good };
    let refused = accumulate(&mut trainer, 1, &[not_a_number]);
    assert!(matches!(refused, Err(Error::LogProb { row: 0, token: 0, value, .. }) if value.is_nan()));
}

#[test]
fn objectives_that_cannot_be_trained_with_are_named() {
    let clipped =
        |low, high| Objective { policy_term: PolicyTerm::Clipped { low, high }, kl_coefficient: 0.0 };
    let truncated = |cap| Objective { policy_term: PolicyTerm::Truncated { cap }, kl_coefficient: 0.0 };
    let both = |low, high, cap| Objective {
        policy_term: PolicyTerm::ClippedTruncated { low, high, cap },
        kl_coefficient: 0.0,
    };
    let cases = [
        ("policy_term.low", clipped(0.0, 0.2)),
        ("policy_term.low", clipped(1.5, 0.2)),
        ("policy_term.high", clipped(0.2, -0.1)),
        ("policy_term.high", clipped(0.2, f32::NAN)),
        ("policy_term.cap", truncated(-1.0)),
        ("policy_term.cap", truncated(f32::INFINITY)),
        ("policy_term.low", both(0.0, 0.2, 2.0)),
        ("policy_term.high", both(0.2, 0.0, 2.0)),
        ("policy_term.cap", both(0.2, 0.2, 0.0)),
        ("kl_coefficient", Objective { kl_coefficient: -0.1, ..Objective::default() }),
        ("kl_coefficient", Objective { kl_coefficient: f32::NAN, ..Objective::default() }),
    ];
    for (name, objective) in cases {
        let refused = objective.validate();
        assert!(matches!(refused, Err(Error::Config { field, .. }) if field == name), "{name}: {refused:?}");
    }
}

/// A term with two ratios wants both: what the sampling engine said, and what the weights say that the update begins with.
#[test]
fn rows_without_the_log_probs_of_the_weights_that_an_update_begins_with_are_refused() {
    let policy_term = PolicyTerm::ClippedTruncated { low: 0.2, high: 0.28, cap: 2.0 };
    let mut trainer = trainer(TrainerOptions::default(), Objective { policy_term, kl_coefficient: 0.0 });
    let row = Row { behaviour_log_probs: Some(&[-1.0, -2.0]), ..Row::new(&[1, 2], &[3, 4]) };
    let column = "proximal_log_probs";
    assert_eq!(accumulate(&mut trainer, 0, &[row]), Err(Error::MissingColumn { row: 0, column }));
    let short = Row { proximal_log_probs: Some(&[-1.0]), ..row };
    let refused = Error::ColumnLength { row: 0, column, length: 1, expected: 2 };
    assert_eq!(accumulate(&mut trainer, 0, &[short]), Err(refused));
    let whole = Row { proximal_log_probs: Some(&[-1.0, -1.0]), ..row };
    let report = accumulate(&mut trainer, 0, &[whole]).unwrap();
    assert!(report.clipped_tokens >= 1, "e^1 is above the cap: {report:?}");
}

/// Log-probabilities that a policy is asked for are those that a loss sees, whoever shares a prompt with whom.
#[test]
fn log_probs_are_given_in_the_order_of_the_rows() {
    let policy = shaken_policy(&ragged_config(), 3);
    let groups = random_groups(51, 3, 3, 37);
    let mut mixed: Vec<Row<'_>> = groups.iter().flat_map(|group| full_rows(group)).collect();
    mixed.swap(1, 5);
    mixed.swap(0, 8);
    let found = policy.log_probs(&device(1), &mixed).unwrap();
    for (row, found) in mixed.iter().zip(&found) {
        assert_eq!(found.len(), row.response.len());
        let alone = policy.log_probs(&device(1), &[*row]).unwrap();
        assert!(found.iter().zip(&alone[0]).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {alone:?}");
        let mut trainer = trainer(TrainerOptions::default(), Objective::default());
        let report = accumulate(&mut trainer, 0, &[Row { loss_mask: None, ..*row }]).unwrap();
        let mean = found.iter().map(|&l| f64::from(l)).sum::<f64>() / found.len() as f64;
        assert!((report.mean_log_prob - mean).abs() < 1e-5, "{report:?} {mean}");
    }
    assert!(matches!(policy.log_probs(&device(1), &[]), Err(Error::EmptyUnit { .. })));
}
