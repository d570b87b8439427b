//! Many keys of objects in one call: the same on every way.

use forebay_client::{Error, GetObject, HeldObject};
use forebay_store::{Kind, OBJECT_KEYS_MAX, TensorBytes, Which};

use super::objects::small;
use super::*;

fn are_ok<T>(results: &[Result<T, Error>]) -> Vec<bool> {
    results.iter().map(Result::is_ok).collect()
}

// FX-B21
#[test]
fn many_keys_have_a_result_each_and_a_call_in_which_all_failed_fails() {
    on_every_way(|world| {
        let objects = world.client().objects();
        let (good, bad) = (small(1), [TensorBytes { shape: &[4], ..small(1)[0] }]);
        let set = objects.set_many(&[("a", &good), ("b", &bad), ("not a key", &good), ("c", &small(3))]);
        assert_eq!(are_ok(&set.unwrap()), [true, false, false, true]);
        assert!(objects.set_many(&[("b", &bad)]).is_err() && objects.set_many(&[]).unwrap().is_empty());

        let got = objects.get_many(&["a", "b", "c"], Which::Latest, &GetObject::default()).unwrap();
        assert_eq!(are_ok(&got), [true, false, true]);
        let byte = |held: &HeldObject| held.tensor("w").unwrap().to_vec().unwrap()[0];
        assert_eq!([byte(got[0].as_ref().unwrap()), byte(got[2].as_ref().unwrap())], [1, 3]);
        assert!(got[1].as_ref().unwrap_err().to_string().contains("\"b\""));
        let none = objects.get_many(&["b", "d"], Which::Latest, &GetObject::default()).unwrap_err();
        assert!(none.to_string().contains("\"b\""), "the first of them: {none}");

        objects.publish("a", &small(5)).unwrap();
        let received = objects.receive_many(&["b", "a"], Wait::For(Duration::from_millis(20))).unwrap();
        assert_eq!(are_ok(&received), [false, true]);
        received.into_iter().flatten().for_each(|received| received.done().unwrap());
        assert!(objects.receive_many(&["a", "b"], Wait::No).is_err(), "it was removed");

        let deleted = objects.delete_many(&[("a", 1), ("a", 9), ("c", 1)]).unwrap();
        assert_eq!(deleted.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [true, false, true]);
        let keys = vec!["a"; OBJECT_KEYS_MAX + 1];
        let error = objects.get_many(&keys, Which::Latest, &GetObject::default()).unwrap_err();
        assert!(error.kind() == Kind::Input && error.to_string().contains("10001"), "{error}");
    });
}
