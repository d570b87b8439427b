//! What a trainer refuses, and that a refusal leaves everything as it was.

use super::common::{accumulate, ragged_config, random_groups, shaken_policy};
use crate::{TestDevice, device};
use forebay_trainer_adapter::{Error, ErrorKind, LossForm, Row, Sequence, Trainer, TrainerOptions, Unit};

const VOCABULARY: usize = 37;

fn trainer(options: TrainerOptions) -> Trainer<TestDevice> {
    Trainer::new(&device(1), shaken_policy(&ragged_config(), 3), options).unwrap()
}

/// FX-93: a micro-batch mixes no agents; and each refusal leaves everything as it was.
#[test]
fn what_does_not_belong_in_the_cache_is_refused() {
    let mut trainer = trainer(TrainerOptions { policy: "solver".into(), ..TrainerOptions::default() });
    let good = Sequence { prompt: &[1, 2], response: &[3, 4], advantage: 1.0 };
    let long = [1; 63];
    let one = [good];
    let cases: [(&str, u64, usize, &[Sequence<'_>], Error); 8] = [
        (
            "checker",
            0,
            1,
            &one,
            Error::OtherPolicy { position: 1, expected: "solver".into(), found: "checker".into() },
        ),
        ("solver", 1, 1, &one, Error::OtherVersion { position: 1, current: 0, found: 1 }),
        ("solver", 0, 0, &one, Error::PositionTaken { position: 0 }),
        ("solver", 0, 1, &[], Error::EmptyUnit { position: 1 }),
        ("solver", 0, 1, &[good, Sequence { prompt: &[], ..good }], Error::EmptyPrompt { row: 1 }),
        (
            "solver",
            0,
            1,
            &[Sequence { response: &[3, 37], ..good }],
            Error::Token { row: 0, token: 37, vocab_size: 37 },
        ),
        (
            "solver",
            0,
            1,
            &[Sequence { response: &long, ..good }],
            Error::TooLong { row: 0, length: 65, limit: 64 },
        ),
        (
            "solver",
            0,
            1,
            &[Sequence { advantage: f32::INFINITY, ..good }],
            Error::Advantage { row: 0, advantage: f32::INFINITY },
        ),
    ];
    let beside = |position| Unit { position, policy: "solver", version: 0, rows: &one };
    trainer.accumulate(&beside(0)).unwrap();
    let before = (trainer.cache(), trainer.weights_sha256());
    for (policy, version, position, rows, expected) in cases {
        let unit = Unit { position, policy, version, rows };
        assert_eq!(trainer.accumulate(&unit), Err(expected.clone()));
        assert_eq!(trainer.accumulate_many(&[beside(7), unit]), Err(expected), "all units of a call or none");
        assert_eq!((trainer.cache(), trainer.weights_sha256()), before);
    }
    let twice = [beside(4), beside(4)];
    assert_eq!(trainer.accumulate_many(&twice), Err(Error::PositionTaken { position: 4 }));
}

#[test]
fn an_update_needs_something_to_apply() {
    let mut trainer = trainer(TrainerOptions::default());
    let before = trainer.weights_sha256();
    assert_eq!(trainer.apply().map_err(|error| error.kind()), Err(ErrorKind::State));
    accumulate(&mut trainer, &random_groups(1, 2, 2, VOCABULARY), &[0, 1]);
    trainer.drop_cache();
    assert_eq!(trainer.apply(), Err(Error::EmptyCache));
    assert_eq!((trainer.cache().positions.len(), trainer.version()), (0, 0));
    assert_eq!(trainer.weights_sha256(), before);
}

#[test]
fn a_gradient_that_is_not_finite_moves_nothing() {
    let mut trainer = trainer(TrainerOptions::default());
    let before = trainer.weights_sha256();
    let row = Sequence { prompt: &[1], response: &[2, 3], advantage: f32::MAX };
    let rows = [row; 4];
    trainer.accumulate(&Unit { position: 0, policy: "policy", version: 0, rows: &rows }).unwrap();
    let refused = trainer.apply();
    assert!(matches!(refused, Err(Error::NotFinite { .. })), "{refused:?}");
    assert_eq!((trainer.weights_sha256(), trainer.cache().rows), (before, 0));
}

/// What the loss counts may be next to nothing: the factor that divides by it is finite in 64 bits, and infinite in 32.
#[test]
fn a_step_whose_factors_are_infinite_in_32_bits_moves_nothing() {
    let mut trainer = trainer(TrainerOptions::default());
    let before = trainer.weights_sha256();
    let rows = [Row { weight: 1e-42, ..Row::new(&[1], &[2, 3]) }];
    trainer.accumulate(&Unit { position: 0, policy: "policy", version: 0, rows: &rows }).unwrap();
    let refused = trainer.apply();
    assert!(matches!(refused, Err(Error::NotFinite { .. })), "{refused:?}");
    assert_eq!((trainer.weights_sha256(), trainer.cache().rows), (before, 0));
}

#[test]
fn options_that_cannot_be_trained_with_are_named() {
    let with = |change: &dyn Fn(&mut TrainerOptions)| {
        let mut options = TrainerOptions::default();
        change(&mut options);
        options
    };
    let cases = [
        ("learning_rate", with(&|options| options.adamw.learning_rate = f64::NAN)),
        ("beta1", with(&|options| options.adamw.beta1 = 1.0)),
        ("beta2", with(&|options| options.adamw.beta2 = -0.1)),
        ("learning_rate", with(&|options| options.adamw.learning_rate = 1e39)),
        ("epsilon", with(&|options| options.adamw.epsilon = 0.0)),
        ("epsilon", with(&|options| options.adamw.epsilon = 1e-50)),
        ("weight_decay", with(&|options| options.adamw.weight_decay = -1.0)),
        ("weight_decay", with(&|options| options.adamw.weight_decay = 1e300)),
        ("clip_norm", with(&|options| options.clip_norm = 0.0)),
        ("entropy_coefficient", with(&|options| options.entropy_coefficient = f32::NAN)),
        ("loss_form.constant_length", with(&|options| options.loss_form = LossForm::ConstantLength(0))),
    ];
    for (name, options) in cases {
        let refused = options.validate();
        assert!(matches!(refused, Err(Error::Config { field, .. }) if field == name), "{name}: {refused:?}");
    }
}
