//! Waiting for versions.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use super::*;

// FX-66
#[test]
fn a_get_before_the_commit_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let filling = objects.begin("solver", Expected::Any, &layout()).unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    objects.get("solver", Which::AtLeast(1, Wait::Forever)).map(|held| check(&held))
                })
            })
            .collect();
        fill(&filling, 1);
        filling.commit().unwrap();
        waiting.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
    assert_eq!(objects.get("solver", Which::AtLeast(1, Wait::No)).unwrap().version(), 1);
}

// FX-66
#[test]
fn who_waits_hears_that_the_copy_failed() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let filling = objects.begin("solver", Expected::Any, &layout()).unwrap();
    let mut waiting = pin!(objects.get_async("solver", 1, Get::default()));
    assert!(poll(waiting.as_mut(), &Arc::default()).is_pending());
    filling.fail("the device was lost");
    let Poll::Ready(Err(error)) = poll(waiting.as_mut(), &Arc::default()) else { panic!("it still waits") };
    assert_eq!(error.kind(), Kind::Retry);
    assert!(error.to_string().contains("the device was lost"), "{error}");
    set(&objects, "solver"); // who asks later is not told of what is over
    check(&objects.get("solver", Which::AtLeast(1, Wait::Forever)).unwrap());
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_when_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::new(Timestamp(0)));
    let objects = ObjectOptions::default().host_folder(HostFolder::Anonymous);
    let store =
        Store::open(dir.path().join("store"), Options::default().objects(objects).clock(clock.clone()))
            .unwrap();
    let objects = store.objects().unwrap();
    let wait = |objects: &Objects| objects.get("solver", Which::AtLeast(3, RECEIVE_WAIT)).unwrap_err();
    assert_eq!(wait(&objects).kind(), Kind::Input, "there is no such key");
    set(&objects, "solver");
    assert_eq!(wait(&objects).kind(), Kind::Retry);
    assert_eq!(clock.now(), Timestamp(40_000_000), "20 seconds each");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| objects.get("solver", Which::AtLeast(3, Wait::Forever)));
        store.close("the test is over");
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Closed);
    });
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>, woken: &Arc<Woken>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&woken.clone().into()))
}

#[test]
fn a_future_is_woken_by_the_version_that_it_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let woken = Arc::new(Woken::default());
    let mut future = pin!(objects.get_async("solver", 2, Get::default()));
    assert!(poll(future.as_mut(), &woken).is_pending());
    set(&objects, "solver");
    assert!(woken.0.load(Ordering::SeqCst) == 1 && poll(future.as_mut(), &woken).is_pending());
    set(&objects, "judge");
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "another key wakes nobody");
    set(&objects, "solver");
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    let Poll::Ready(held) = poll(future.as_mut(), &woken) else { panic!("it still waits") };
    check(&held.unwrap());
}

#[test]
fn a_watch_tells_the_newest_version_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let mut early = objects.watch("solver");
    set(&objects, "solver");
    let mut watch = objects.watch("solver");
    let next = |watch: &mut Watch| watch.next(Wait::No).unwrap().map(|manifest| manifest.version);
    assert_eq!((next(&mut early), next(&mut watch)), (Some(1), None));
    (0..3).for_each(|_| _ = set(&objects, "solver"));
    assert_eq!((next(&mut early), next(&mut early), next(&mut watch)), (Some(4), None, Some(4)));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watch.next(Wait::For(Duration::from_secs(60))).unwrap());
        set(&objects, "solver");
        assert_eq!(waiting.join().unwrap().unwrap().version, 5);
    });
}

#[test]
fn who_waits_for_a_key_that_was_never_set_is_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = anonymous(dir.path(), |o| o);
    let woken = Arc::new(Woken::default());
    let mut future = pin!(objects.get_async("solver", 1, Get::default()));
    assert!(poll(future.as_mut(), &woken).is_pending());
    store.run_once().unwrap(); // forgets keys that nobody waits for
    set(&objects, "solver");
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(held) = poll(future.as_mut(), &woken) else { panic!("it still waits") };
    check(&held.unwrap());
}

#[test]
fn a_wait_that_begins_while_the_store_closes_ends() {
    for _ in 0..30 {
        let dir = tempfile::tempdir().unwrap();
        let (store, objects) = anonymous(dir.path(), |o| o);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| objects.get("solver", Which::AtLeast(1, Wait::Forever)));
            store.close("the test is over");
            assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Closed);
        });
    }
}
