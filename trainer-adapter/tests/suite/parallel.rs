//! Ranks on threads, joined by Unix sockets: the same bits whatever the ranks are, and failures that harm nobody.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use forebay_trainer_adapter::{Error, OpenGroup, RankLinks, RewardValues, Trainer, TrainerOptions};

use super::common::{Row, accumulate, ragged_config, random_groups, shaken_policy};
use crate::{TestDevice, device};

fn trainer() -> Trainer<TestDevice> {
    // Without clipping: a gradient cut to a norm does not show a wrong denominator.
    let clip_norm = f64::INFINITY;
    let options = TrainerOptions { entropy_coefficient: 0.01, clip_norm, ..TrainerOptions::default() };
    Trainer::new(&device(1), shaken_policy(&ragged_config(), 3), options).unwrap()
}

fn groups(step: u64) -> Vec<Vec<Row>> {
    random_groups(80 + step, 11, 4, 37)
}

/// Three steps of a rank with the given units in each; its state at the end.
fn three_steps(mut group: RankLinks<UnixStream>, positions: &[Vec<usize>]) -> Vec<u8> {
    let mut trainer = trainer();
    for (step, positions) in (0..3).zip(positions) {
        accumulate(&mut trainer, &groups(step), positions);
        group.exchange(&mut trainer).unwrap();
        let report = trainer.apply().unwrap();
        assert_eq!((report.version, report.units, report.rows), (step + 1, 11, 44));
    }
    trainer.state()
}

/// Ranks 0.. of a group, and what each gives.
pub(crate) fn ranks<T: Send>(world: usize, work: impl Fn(RankLinks<UnixStream>) -> T + Sync) -> Vec<T> {
    let pairs: Vec<_> = (1..world).map(|_| UnixStream::pair().unwrap()).collect();
    let (near, far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    std::thread::scope(|scope| {
        let work = &work;
        let members = far.into_iter().enumerate();
        let members: Vec<_> = members
            .map(|(index, link)| scope.spawn(move || work(RankLinks::member(index + 1, link))))
            .collect();
        let mut results = vec![work(RankLinks::first(near))];
        results.extend(members.into_iter().map(|member| member.join().unwrap()));
        results
    })
}

/// DESIGN 7: 1, 2 and 3 ranks, ragged, a rank without rows, other shares in every step: the same bits on every rank.
#[test]
fn any_number_of_ranks_makes_the_same_update() {
    let all = vec![(0..11).collect::<Vec<usize>>(); 3];
    let expected = three_steps(RankLinks::first(Vec::new()), &all);
    // How many ranks, and which of them takes a unit, by step and position.
    type Share = fn(usize, usize) -> usize;
    let shares: [(usize, Share); 5] = [
        (2, |_, position| position % 2),
        (2, |step, position| usize::from(position + step > 3)),
        (3, |_, position| position % 3),
        (3, |step, position| [0, 0, 2][(position * 5 + step) % 3]),
        (3, |_, _| 2),
    ];
    for (index, (world, share)) in shares.into_iter().enumerate() {
        let states = ranks(world, |group| {
            let rank = group.rank();
            let mine = |step| (0..11).rev().filter(|&position| share(step, position) == rank).collect();
            let positions: Vec<Vec<usize>> = (0..3).map(mine).collect();
            three_steps(group, &positions)
        });
        for (rank, state) in states.iter().enumerate() {
            assert!(*state == expected, "share {index}, rank {rank} of {world}");
        }
    }
}

/// Ranks that do not belong together are refused on every side, and every cache is as it was.
#[test]
fn ranks_that_do_not_belong_together_change_nothing() {
    type Spoil = fn(&mut Trainer<TestDevice>);
    let cases: [(&str, Spoil); 3] = [
        ("a unit twice", |trainer| accumulate(trainer, &groups(0), &[0])),
        ("another version", |trainer| {
            accumulate(trainer, &groups(0), &[9]);
            trainer.apply().unwrap();
        }),
        ("an open group", |trainer| {
            let rewards = RewardValues::Any { reference: 0.0 };
            let open = OpenGroup { position: 7, policy: "policy", version: 0, members: 2, rewards };
            trainer.begin_group(&open).unwrap();
        }),
    ];
    for ((name, spoil), odd) in cases.into_iter().zip([1, 2, 1]).chain([(cases[2], 0)]) {
        let results = ranks(3, |mut group| {
            let mut trainer = trainer();
            accumulate(&mut trainer, &groups(0), &[[0, 4], [1, 5], [2, 6]][group.rank()]);
            if group.rank() == odd {
                trainer.drop_cache();
                spoil(&mut trainer);
            }
            let before = trainer.export_cache();
            let refused = group.exchange(&mut trainer);
            assert_eq!(trainer.export_cache(), before, "{name}");
            refused.unwrap_err()
        });
        let told = |error: &Error| matches!(error, Error::RankFailed { rank, .. } if *rank == odd);
        assert!(results[1..].iter().all(told), "{name}, rank {odd}: {results:?}");
    }
}

/// A rank that sends something else, half a cache, or nothing is lost; the others go on without it and end with the bits
/// that they would have had.
#[test]
fn a_lost_rank_harms_nobody_and_its_units_are_recomputed() {
    let all = vec![(0..11).collect::<Vec<usize>>(); 3];
    let expected = three_steps(RankLinks::first(Vec::new()), &all[..1]);
    type Break = fn(UnixStream, Vec<u8>);
    let ways: [(&str, Break); 4] = [
        ("gone", |_, _| {}),
        ("half", |mut link, frame| link.write_all(&frame[..frame.len() / 2]).unwrap()),
        ("noise", |mut link, _| link.write_all(&[7; 64]).unwrap()),
        ("damaged", |mut link, mut frame| {
            let at = frame.len() - 40;
            frame[at] ^= 1;
            link.write_all(&frame).unwrap();
            // Stays until it is told.
            let _ = link.read(&mut [0; 1]);
        }),
    ];
    for (name, spoil) in ways {
        let (near, far) = UnixStream::pair().unwrap();
        let (to_lost, lost) = UnixStream::pair().unwrap();
        let (one, two) = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut trainer = trainer();
                accumulate(&mut trainer, &groups(0), &[2, 5, 8]);
                let body = trainer.export_cache().to_bytes();
                let head = [&b"FBRX\x01"[..], &(body.len() as u64).to_le_bytes()].concat();
                spoil(lost, [head, body].concat());
            });
            let survivor = scope.spawn(|| after_a_loss(RankLinks::member(1, far), &[1, 4, 7, 10], &[]));
            let first = after_a_loss(RankLinks::first(vec![near, to_lost]), &[0, 3, 6, 9], &[8, 2, 5]);
            (first, survivor.join().unwrap())
        });
        assert!(one == expected && two == expected, "{name}");
    }
}

/// One step in which rank 2 is lost and this rank takes over some of its units.
fn after_a_loss(mut group: RankLinks<UnixStream>, own: &[usize], taken_over: &[usize]) -> Vec<u8> {
    let mut trainer = trainer();
    accumulate(&mut trainer, &groups(0), own);
    let before = trainer.export_cache();
    let refused = group.exchange(&mut trainer);
    assert!(matches!(refused, Err(Error::RankFailed { rank: 2, .. })), "{refused:?}");
    assert_eq!(trainer.export_cache(), before);
    group.remove(2);
    accumulate(&mut trainer, &groups(0), taken_over);
    group.exchange(&mut trainer).unwrap();
    trainer.apply().unwrap();
    trainer.state()
}
