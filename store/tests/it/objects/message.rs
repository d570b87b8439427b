//! Published versions, and many keys in one call.

use super::*;

fn bytes<'a>(bytes: &'a [u8], shape: &'a [u64]) -> TensorBytes<'a> {
    TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape, bytes }
}

// FX-B19
#[test]
fn what_is_published_goes_with_one_successful_receive_and_what_is_set_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o.versions_kept(1));
    for byte in 1..=3 {
        assert_eq!(objects.publish("solver", &[bytes(&[byte; 5], &[5])]).unwrap(), u64::from(byte));
    }
    assert!(objects.get("solver", Which::Latest).is_err(), "a get does not find it");
    let take =
        || objects.receive("solver", Wait::No).map(|r| (r.tensor("w").unwrap().to_vec().unwrap()[0], r));
    let (byte, first) = take().unwrap();
    assert_eq!((byte, take().unwrap().0), (1, 2), "two receivers have two of them");
    drop(first); // not successful: it is the next one's
    for expected in 1..=3 {
        let (byte, received) = take().unwrap();
        assert_eq!(byte, expected);
        received.done().unwrap();
    }
    assert_eq!(take().unwrap_err().kind(), Kind::Retry);
    assert_eq!(objects.stats().host_bytes_taken, 0);

    let version = objects.set("solver", &[bytes(&[9; 5], &[5])]).unwrap();
    for _ in 0..2 {
        assert_eq!(objects.get("solver", Which::Latest).unwrap().version(), version);
    }
    assert_eq!(take().unwrap_err().kind(), Kind::Retry, "and a receive does not take it");
}

// FX-B19
#[test]
fn a_published_version_is_received_once_by_many_who_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let taken: Vec<u8> = std::thread::scope(|scope| {
        let receive = || {
            let received = objects.receive("solver", Wait::Forever).unwrap();
            let byte = received.tensor("w").unwrap().to_vec().unwrap()[0];
            received.done().unwrap();
            byte
        };
        let waiting: Vec<_> = (0..20).map(|_| scope.spawn(receive)).collect();
        (0..20).for_each(|byte| _ = objects.publish("solver", &[bytes(&[byte; 3], &[3])]).unwrap());
        waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = taken;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<u8>>());
}

// FX-B21
#[test]
fn many_keys_have_a_result_each_and_a_call_in_which_all_failed_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let good = [bytes(&[1, 2], &[2])];
    let bad = [bytes(&[1, 2], &[3])];
    let set = objects.set_many(&[("a", &good), ("b", &bad), ("not a key", &good), ("c", &good)]).unwrap();
    assert_eq!(set.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true]);
    let got = objects.get_many(&["a", "b", "c"], Which::Latest, &Get::default()).unwrap();
    assert_eq!(got.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert!(objects.get_many(&["b", "d"], Which::Latest, &Get::default()).is_err(), "all failed");
    assert!(objects.get_many(&[], Which::Latest, &Get::default()).unwrap().is_empty());
    assert_eq!(
        objects
            .delete_many(&[("a", 1), ("a", 2)])
            .unwrap()
            .into_iter()
            .map(Result::unwrap)
            .collect::<Vec<_>>(),
        [true, false]
    );
    let keys = vec!["c"; OBJECT_KEYS_MAX + 1];
    let error = objects.get_many(&keys, Which::Latest, &Get::default()).unwrap_err();
    assert!(error.kind() == Kind::Input && error.to_string().contains("10001"), "{error}");
    assert_eq!(objects.get_many(&keys[1..], Which::Latest, &Get::default()).unwrap().len(), OBJECT_KEYS_MAX);

    objects.publish("a", &good).unwrap();
    let received = objects.receive_many(&["a", "b"], Wait::No).unwrap();
    assert_eq!(received.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    assert!(objects.receive_many(&["b", "c"], Wait::No).is_err());
}
