//! Suspended in the middle of a step, resumed elsewhere: the gradient cache is part of the state.

use std::collections::BTreeMap;

use forebay_trainer_adapter::trainer::{FlatStream, FlatTensor, FlatType};
use forebay_trainer_adapter::{
    CachePayload, Error, ErrorKind, LossForm, Objective, OpenGroup, RewardValues, Row, Trainer,
    TrainerOptions, Trajectory,
};

use super::common::{self, accumulate, ragged_config, random_groups, shaken_policy, uniform};
use crate::{TestDevice, device};

const OBJECTIVE: Objective =
    Objective { policy_term: forebay_trainer_adapter::PolicyTerm::Score, kl_coefficient: 0.0 };

fn options() -> TrainerOptions {
    // Without clipping: a gradient cut to a norm does not show a wrong denominator.
    TrainerOptions { entropy_coefficient: 0.01, clip_norm: f64::INFINITY, ..TrainerOptions::default() }
}

fn trainer() -> Trainer<TestDevice> {
    Trainer::new(&device(1), shaken_policy(&ragged_config(), 3), options()).unwrap()
}

/// State and cache as bytes, and a trainer made of nothing else.
fn elsewhere(trainer: &Trainer<TestDevice>) -> Trainer<TestDevice> {
    let (state, cache) = (trainer.state(), trainer.export_cache().to_bytes());
    let mut resumed = Trainer::restore(&device(2), &ragged_config(), options(), &state).unwrap();
    let payload = CachePayload::from_bytes(&cache).unwrap();
    resumed.import_cache(&payload).unwrap();
    assert_eq!(resumed.export_cache().to_bytes(), cache, "the same cache is the same bytes");
    assert_eq!(resumed.cache(), trainer.cache());
    let streamed = elsewhere_by_stream(trainer);
    assert_eq!(streamed.state(), state, "a stream is the same bytes");
    assert_eq!(streamed.export_cache().to_bytes(), cache);
    streamed
}

fn written(stream: FlatStream<'_, TestDevice>) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.write(&mut bytes).unwrap();
    assert_eq!(stream.bytes(), bytes.len() as u64);
    bytes
}

/// The same by streams.
fn elsewhere_by_stream(trainer: &Trainer<TestDevice>) -> Trainer<TestDevice> {
    let (state, cache) = (written(trainer.state_stream()), written(trainer.cache_stream()));
    let mut resumed =
        Trainer::restore_from(&device(2), &ragged_config(), options(), &mut &state[..]).unwrap();
    resumed.import_cache_from(&mut &cache[..]).unwrap();
    assert_eq!(written(resumed.cache_stream()), cache);
    resumed
}

/// FX-57, FX-58: suspend after 2 of 4 micro-batches (and after each other number), resume elsewhere: weights, moments and
/// cache go on bit for bit, over several steps.
#[test]
fn a_step_suspended_anywhere_ends_with_the_same_bits() {
    let groups = |version: u64| random_groups(60 + version, 16, 4, 37);
    // Micro-batches of four groups, in an order that leaves gaps in the tree.
    let batches = [[9, 1, 14, 4], [0, 15, 7, 2], [11, 3, 5, 12], [13, 6, 10, 8]];
    let run = |suspend_after: Option<usize>| {
        let mut trainer = trainer();
        for step in 0..2 {
            for (index, batch) in batches.iter().enumerate() {
                if suspend_after == Some(index) {
                    trainer = elsewhere(&trainer);
                }
                accumulate(&mut trainer, &groups(step), batch);
            }
            trainer.apply().unwrap();
        }
        trainer.state()
    };
    let expected = run(None);
    for suspend_after in 0..4 {
        assert!(run(Some(suspend_after)) == expected, "suspended after {suspend_after} micro-batches");
    }
}

fn open_a_group(trainer: &mut Trainer<TestDevice>, rewards: RewardValues) {
    let group = OpenGroup { position: 5, policy: "policy", version: 0, members: 4, rewards };
    trainer.begin_group(&group).unwrap();
    trainer.exclude_member(5, 3).unwrap();
}

fn add_member(trainer: &mut Trainer<TestDevice>, rows: &[common::Row], member: usize) {
    let rows = [Row { advantage: 1.0, ..rows[member].full() }];
    let reward = [1.0, 0.0, 1.0][member];
    trainer.add_trajectory(&Trajectory { group: 5, member, reward, rows: &rows }).unwrap();
}

/// FX-57: open groups go with it: members that have come, are excluded, and are still to come.
#[test]
fn an_open_group_goes_on_elsewhere() {
    let groups = random_groups(71, 6, 4, 37);
    for rewards in [RewardValues::Any { reference: 0.5 }, RewardValues::Two { low: 0.0, high: 1.0 }] {
        let run = |suspend_after: usize| {
            let mut trainer = trainer();
            accumulate(&mut trainer, &groups, &[0, 2]);
            open_a_group(&mut trainer, rewards);
            for (index, member) in [2, 0, 1].into_iter().enumerate() {
                if index == suspend_after {
                    trainer = elsewhere(&trainer);
                }
                add_member(&mut trainer, &groups[5], member);
            }
            let of_group = trainer.close_group(5, &[0.7, -1.4, 0.7]).unwrap();
            let of_step = trainer.apply().unwrap();
            (of_group, of_step, trainer.state())
        };
        let expected = run(3);
        for suspend_after in 0..3 {
            assert!(run(suspend_after) == expected, "{rewards:?}, suspended after {suspend_after} members");
        }
    }
}

/// Runs that were kept one by one come back the same; a changed, lost or exchanged byte is found whatever it means.
#[test]
fn damaged_payloads_are_refused_and_change_nothing() {
    let mut source = trainer();
    accumulate(&mut source, &random_groups(72, 6, 4, 37), &[0, 2, 3]);
    open_a_group(&mut source, RewardValues::Any { reference: 0.0 });
    let payload = source.export_cache();
    assert_eq!(CachePayload::from_tensors(payload.tensors().clone()).unwrap(), payload);
    let damaged = |change: &dyn Fn(&mut BTreeMap<String, FlatTensor>)| {
        let mut tensors = payload.tensors().clone();
        change(&mut tensors);
        CachePayload::from_tensors(tensors)
    };
    for name in payload.tensors().keys() {
        let flipped = damaged(&|tensors| tensors.get_mut(name).unwrap().bytes[0] ^= 1);
        let cut = damaged(&|tensors| tensors.get_mut(name).unwrap().bytes.truncate(1));
        let lost = damaged(&|tensors| assert!(tensors.remove(name).is_some()));
        for (what, refused) in [("flipped", flipped), ("cut", cut), ("lost", lost)] {
            assert!(matches!(refused, Err(Error::Tensor { .. })), "{what} {name}: {refused:?}");
        }
    }
    let bytes = payload.to_bytes();
    let mut seed = 73;
    println!("seed {seed}");
    for _ in 0..300 {
        let mut changed = bytes.clone();
        let at = (uniform(&mut seed) * bytes.len() as f64) as usize;
        changed[at] ^= 1 << ((uniform(&mut seed) * 8.0) as u8);
        match CachePayload::from_bytes(&changed) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
            // Some bytes of a header mean nothing: its padding.
            Ok(read) => assert_eq!(read, payload, "byte {at}"),
        }
    }
    for bytes in [&b""[..], &[0; 64], &bytes[..bytes.len() / 2]] {
        assert!(CachePayload::from_bytes(bytes).is_err());
    }
}

/// A stream that ends early, anywhere, is an error and changes nothing; what its bytes are is for whoever keeps it to check.
#[test]
fn streams_that_end_early_are_refused_and_change_nothing() {
    let mut source = trainer();
    accumulate(&mut source, &random_groups(76, 6, 4, 37), &[0, 2, 3]);
    open_a_group(&mut source, RewardValues::Any { reference: 0.0 });
    let (state, cache) = (written(source.state_stream()), written(source.cache_stream()));
    let mut trainer = trainer();
    for part in 0..40 {
        let refused = trainer.import_cache_from(&mut &cache[..cache.len() * part / 40]);
        assert!(matches!(refused, Err(Error::Payload { .. })), "{part}: {refused:?}");
        assert_eq!(trainer.cache().positions.len() + trainer.cache().open_groups.len(), 0);
        let cut = &state[..state.len() * part / 40];
        let refused = Trainer::restore_from(&device(1), &ragged_config(), options(), &mut &cut[..]);
        assert!(matches!(refused.map(drop), Err(Error::Payload { .. })), "{part}");
    }
    let longer = [&cache[..], b"x"].concat();
    assert!(trainer.import_cache_from(&mut &longer[..]).is_err());
    trainer.import_cache_from(&mut &cache[..]).unwrap();
    assert_eq!(trainer.export_cache(), source.export_cache());
}

/// A payload whose digest is right but whose parts do not fit is refused too.
#[test]
fn payloads_that_contradict_themselves_are_refused() {
    let mut source = trainer();
    accumulate(&mut source, &random_groups(74, 6, 4, 37), &[0, 1, 4]);
    open_a_group(&mut source, RewardValues::Any { reference: 0.0 });
    let good = source.export_cache();
    let words = |words: &[u64]| FlatTensor {
        flat_type: FlatType::U64,
        bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
    };
    let short = FlatTensor { flat_type: FlatType::F32, bytes: vec![0; 16] };
    let cases = [
        ("nodes", words(&[1, 0, 1])),
        ("nodes", words(&[1, 0, 1, 0, 4, 1, 0, 9, 0])),
        ("nodes", words(&[70, 0, 1, 0, 4, 1])),
        ("nodes", words(&[1, u64::MAX, 0, 0, 4, 1])),
        ("nodes", words(&[0, 0, 0, 0, 1, 0, 0, 4, 1])),
        ("nodes", words(&[1, 0])),
        ("node.1.0", short.clone()),
        ("units", words(&[0, 4, 4, 0, 0])),
        ("groups", words(&[4, 4, 0, 0, 0, 1])),
        ("groups", words(&[5, 3, 0, 0, 0, 1])),
        ("group.5.first", short),
    ];
    for (name, tensor) in cases {
        let mut tensors = good.tensors().clone();
        tensors.insert(name.into(), tensor.clone());
        let payload = sealed(tensors);
        let mut trainer = trainer();
        let refused = trainer.import_cache(&payload);
        assert!(refused.is_err(), "{name} {tensor:?}");
        assert_eq!(trainer.cache().positions.len() + trainer.cache().open_groups.len(), 0);
    }
}

/// Writes the digest that the tensors should have, as the format says.
fn sealed(mut tensors: BTreeMap<String, FlatTensor>) -> CachePayload {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for (name, tensor) in tensors.iter().filter(|(name, _)| *name != "digest") {
        for part in [name.as_bytes(), &[tensor.flat_type as u8], &tensor.bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    let digest = FlatTensor { flat_type: FlatType::U8, bytes: hash.finalize().to_vec() };
    tensors.insert("digest".into(), digest);
    CachePayload::from_tensors(tensors).unwrap()
}

/// A cache belongs to one policy, one version, one set of weights and one loss.
#[test]
fn a_foreign_cache_is_refused_by_what_differs() {
    let groups = random_groups(75, 2, 4, 37);
    let mut source = trainer();
    accumulate(&mut source, &groups, &[0]);
    let (payload, stream) = (source.export_cache(), written(source.cache_stream()));
    let with = |options: TrainerOptions, seed: u64, objective: Objective| {
        let policy = shaken_policy(&ragged_config(), seed);
        Trainer::new(&device(1), policy, options).unwrap().with_objective(objective).unwrap()
    };
    let mut later = trainer();
    accumulate(&mut later, &groups, &[0]);
    later.apply().unwrap();
    let kl = Objective { kl_coefficient: 0.1, ..OBJECTIVE };
    let cases = [
        ("policy", with(TrainerOptions { policy: "other".into(), ..options() }, 3, OBJECTIVE)),
        ("version", later),
        ("weights", with(options(), 4, OBJECTIVE)),
        ("loss", with(TrainerOptions { loss_form: LossForm::SampleMean, ..options() }, 3, OBJECTIVE)),
        ("loss", with(options(), 3, kl)),
    ];
    for (expected, mut trainer) in cases {
        let refused = trainer.import_cache(&payload);
        assert!(matches!(refused, Err(Error::Foreign { field, .. }) if field == expected), "{refused:?}");
        let refused = trainer.import_cache_from(&mut &stream[..]);
        assert!(matches!(refused, Err(Error::Foreign { field, .. }) if field == expected), "{refused:?}");
        assert_eq!(trainer.cache().rows, 0);
    }
    assert_eq!(source.import_cache_from(&mut &stream[..]), Err(Error::CacheNotEmpty { units: 1 }));
    assert_eq!(source.merge_cache_from(&mut &stream[..]), Err(Error::PositionTaken { position: 0 }));
    assert_eq!(source.import_cache(&payload), Err(Error::CacheNotEmpty { units: 1 }));
    assert_eq!(source.merge_cache(&payload), Err(Error::PositionTaken { position: 0 }));
    source.drop_cache();
    source.import_cache(&payload).unwrap();
    assert_eq!(source.export_cache(), payload);
}
