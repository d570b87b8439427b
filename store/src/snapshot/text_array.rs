//! Texts that the engine keeps itself (names, ids, keys) as arrays of views: a short one lies in its view and costs no
//! string of its own, and engines compare and group views faster than strings.

use std::fmt::{Display, Write};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::StringViewBuilder;

/// The texts of keys. Neighbours with the same key, which is what most columns have, share one look-up.
pub(super) fn repeated<K: PartialEq + Copy, T: AsRef<str>>(
    keys: impl Iterator<Item = Option<K>>,
    text: impl Fn(K) -> T,
) -> ArrayRef {
    let mut builder = StringViewBuilder::with_capacity(keys.size_hint().0);
    let mut last: Option<(K, T)> = None;
    for key in keys {
        let Some(key) = key else {
            builder.append_null();
            continue;
        };
        let known = last.take().filter(|(of, _)| *of == key);
        let (_, text) = last.insert(known.unwrap_or_else(|| (key, text(key))));
        builder.append_value(text);
    }
    Arc::new(builder.finish())
}

/// Texts that are written out, without a string each.
pub(super) fn written(values: impl Iterator<Item = impl Display>) -> ArrayRef {
    let mut builder = StringViewBuilder::with_capacity(values.size_hint().0);
    let mut text = String::new();
    for value in values {
        text.clear();
        let _ = write!(text, "{value}"); // writing to memory does not fail
        builder.append_value(&text);
    }
    Arc::new(builder.finish())
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;

    use super::*;

    #[test]
    fn neighbours_with_one_key_are_looked_up_once() {
        let looked_up = std::cell::Cell::new(0);
        let text = |key: u32| {
            looked_up.set(looked_up.get() + 1);
            format!("a text that is longer than a view: {key}")
        };
        let keys = [Some(1), Some(1), None, Some(1), Some(2), Some(2)];
        let array = repeated(keys.into_iter(), text);
        let texts: Vec<_> = array.as_string_view().iter().map(|text| text.map(str::len)).collect();
        assert_eq!(texts, [Some(36), Some(36), None, Some(36), Some(36), Some(36)]);
        assert_eq!(array.as_string_view().value(5), "a text that is longer than a view: 2");
        assert_eq!(looked_up.get(), 2, "once for neighbours, also with nothing between them");
    }

    #[test]
    fn what_is_written_out_is_told_apart() {
        let array = written([1, 22, 333].into_iter());
        assert_eq!(array.as_string_view().iter().flatten().collect::<Vec<_>>(), ["1", "22", "333"]);
    }
}
