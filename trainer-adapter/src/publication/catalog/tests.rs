//! Single calls, and random ones.

use super::*;
use crate::publication::form::{ClassForm, Form};

fn version(number: u64) -> Version {
    let classes = vec![ClassForm { name: "weights".into(), values: 5 }];
    let places = vec![Place { memory: 1, offset: 0 }];
    Version { number, form: Form { layout: 7, classes }, fingerprint: None, places }
}

fn publish(catalog: &mut Catalog, number: u64) -> Result<usize, NoSlot> {
    let slot = catalog.take_slot("solver", number)?;
    catalog.fill("solver", slot, version(number));
    Ok(slot)
}

#[test]
fn slots_rotate_and_the_newest_is_never_the_one_that_is_taken() {
    let mut catalog = Catalog::default();
    let slots: Vec<usize> = (1..=5).map(|number| publish(&mut catalog, number).unwrap()).collect();
    assert_eq!(slots, [0, 1, 0, 1, 0]);
    let has = |ask| catalog.find("solver", ask).map(|version| version.number);
    assert_eq!((has(Ask::Latest), has(Ask::Exact(4)), has(Ask::Exact(3))), (Some(5), Some(4), None));
    assert_eq!((has(Ask::AtLeast(4)), has(Ask::AtLeast(6))), (Some(5), None));
    assert_eq!(catalog.take_slot("solver", 5), Err(NoSlot::Old(5)));
}

// A slot whose filling failed is the next to be tried, and the version before it goes on being served.
#[test]
fn a_slot_that_was_taken_and_not_filled_costs_no_version_but_the_one_it_had() {
    let mut catalog = Catalog::default();
    (1..=2).for_each(|number| _ = publish(&mut catalog, number));
    assert_eq!(catalog.take_slot("solver", 3), Ok(0));
    assert_eq!(catalog.newest("solver"), Some(2));
    assert!(catalog.find("solver", Ask::Exact(1)).is_none(), "what it had is gone");
    assert_eq!(publish(&mut catalog, 3), Ok(0));
}

#[test]
fn a_slot_is_not_taken_while_anybody_holds_it() {
    let mut catalog = Catalog::default();
    publish(&mut catalog, 1).unwrap();
    let one = catalog.grant("solver", Ask::Latest, (1, 100)).unwrap();
    let two = catalog.grant("solver", Ask::Latest, (2, 90)).unwrap();
    publish(&mut catalog, 2).unwrap();
    assert_eq!(catalog.take_slot("solver", 3), Err(NoSlot::Held(vec![90, 100])));
    assert_eq!(catalog.release(one.hold, 2), Err(()), "it is not his");
    assert_eq!(catalog.release(one.hold, 1), Ok(Some(1)));
    assert_eq!(catalog.release(one.hold, 1), Err(()), "once");
    assert_eq!(catalog.take_slot("solver", 3), Err(NoSlot::Held(vec![90])));
    assert!(catalog.holds_of(2) == 1 && catalog.release_all(2) && !catalog.release_all(2));
    assert_eq!(catalog.release(two.hold, 2), Err(()));
    assert_eq!(catalog.take_slot("solver", 3), Ok(0));
    assert_eq!(catalog.counts().holds, 0);
}

#[test]
fn a_barrier_that_is_over_is_told_to_who_still_read() {
    let mut catalog = Catalog::default();
    publish(&mut catalog, 1).unwrap();
    catalog.open_barrier("solver", version(2));
    let [early, late] = [1, 2].map(|c| catalog.grant("solver", Ask::Latest, (c, 100)).unwrap());
    assert!(early.is_in_place && early.version.number == 2);
    assert_eq!(catalog.release(early.hold, 1), Ok(Some(2)));
    assert_eq!(catalog.close_barrier("solver"), [100]);
    assert_eq!(catalog.newest("solver"), Some(1), "nobody begins any more");
    catalog.remove_barrier("solver");
    catalog.open_barrier("solver", version(3));
    assert_eq!(catalog.release(late.hold, 2), Ok(None), "another barrier is not his");
    assert_eq!(catalog.check_new("solver", 3), Err(NoSlot::Old(3)));
}

// A reader's use ends with the key's life in which it began: it says nothing of the slots of the next.
#[test]
fn a_hold_from_before_a_withdrawal_is_not_counted_off_the_next_life_of_the_key() {
    let mut catalog = Catalog::default();
    publish(&mut catalog, 1).unwrap();
    let early = catalog.grant("solver", Ask::Latest, (1, 100)).unwrap();
    assert!(catalog.forget("solver"));
    publish(&mut catalog, 1).unwrap();
    let late = catalog.grant("solver", Ask::Latest, (2, 90)).unwrap();
    assert_eq!(catalog.release(early.hold, 1), Ok(None), "it is told that what it read has ended");
    publish(&mut catalog, 2).unwrap();
    assert_eq!(catalog.take_slot("solver", 3), Err(NoSlot::Held(vec![90])));
    assert_eq!(catalog.release(late.hold, 2), Ok(Some(1)));
    assert_eq!(catalog.take_slot("solver", 3), Ok(0));
}

/// Random calls: who holds a version finds it where it was, and the newest snapshot can always be had.
#[test]
fn no_order_of_calls_writes_what_is_held() {
    for seed in 0..200_u64 {
        let (mut catalog, mut random, mut newest, mut next) = (Catalog::default(), seed, 0, 1);
        let mut held: Vec<(u64, u64, Option<u64>)> = Vec::new();
        for _ in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match random >> 61 {
                0..=2 if publish(&mut catalog, next).is_ok() => (newest, next) = (next, next + 1),
                0..=2 => {}
                3..=4 => {
                    let connection = random >> 20 & 3;
                    if let Some(granted) = catalog.grant("solver", Ask::Latest, (connection, 1)) {
                        held.push((granted.hold, connection, Some(granted.version.number)));
                    }
                }
                5 if random >> 30 & 3 == 0 => {
                    assert_eq!(catalog.forget("solver"), newest > 0, "seed {seed}");
                    held.iter_mut().for_each(|(_, _, version)| *version = None);
                    newest = 0;
                }
                5 => {
                    let connection = random >> 20 & 3;
                    let any = held.iter().any(|(_, owner, _)| *owner == connection);
                    assert_eq!(catalog.release_all(connection), any, "seed {seed}");
                    held.retain(|(_, owner, _)| *owner != connection);
                }
                _ if held.is_empty() => {}
                _ => {
                    let (hold, owner, version) = held.swap_remove((random >> 20) as usize % held.len());
                    assert_eq!(catalog.release(hold, owner), Ok(version), "seed {seed}");
                }
            }
            assert_eq!(catalog.newest("solver").unwrap_or(0), newest, "seed {seed}");
            assert_eq!(catalog.counts().holds, held.len());
        }
    }
}
