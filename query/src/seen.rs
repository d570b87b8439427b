//! Which tables of agents a session sees: all, or those that it was narrowed to.
//!
//! A table that is not seen is as one that is not there, under every name and in every listing: whoever may not read it
//! learns neither its columns nor that it exists. What is counted over the whole store is not seen either, as it would tell of it.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The tables that are seen. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Option<Arc<BTreeSet<String>>>);

impl Seen {
    /// These and no others, as far as they were seen before.
    pub(crate) fn narrowed(&self, names: impl IntoIterator<Item = String>) -> Self {
        Seen(Some(Arc::new(names.into_iter().filter(|name| self.table(name)).collect())))
    }

    /// Whether the table of that name is seen.
    pub(crate) fn table(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Whether all tables are, those to come as well.
    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_none()
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            None => f.write_str("all tables"),
            Some(names) if names.is_empty() => f.write_str("no table"),
            Some(names) => f.write_str(&names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seen: &Seen, names: &[&str]) -> Seen {
        seen.narrowed(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn what_is_narrowed_never_widens() {
        let all = Seen::default();
        let two = of(&all, &["judge", "solver"]);
        let one = of(&two, &["solver", "critic"]);
        let none = of(&one, &["critic"]);
        assert!(all.is_everything() && all.table("critic"));
        assert!(!two.is_everything() && two.table("judge") && !two.table("critic"));
        assert!(one.table("solver") && !one.table("judge") && !one.table("critic"));
        assert!(!none.is_everything() && !none.table("critic"));
        let told = [&all, &two, &one, &none].map(Seen::to_string);
        assert_eq!(told, ["all tables", "judge, solver", "solver", "no table"]);
    }
}
