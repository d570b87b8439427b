//! Waits of callers whose thread others need: each is run aside, by what the caller gives for it.
//!
//! The store knows no async runtime, and a call that may have to wait for room is one call all the same: whether it has to is not
//! known before it is under way. So who may not be held up says how a wait is to be run, and pays for that only where there is one.

/// How waits are run: as they are, unless something else is said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside(Option<fn(&mut dyn FnMut())>);

impl Aside {
    /// Each through `by`, which has to run what it is given, once.
    pub(crate) fn by(by: fn(&mut dyn FnMut())) -> Self {
        Aside(Some(by))
    }

    /// Runs something that may wait.
    pub(crate) fn run<T>(self, wait: impl FnOnce() -> T) -> T {
        let Some(by) = self.0 else { return wait() };
        let (mut wait, mut outcome) = (Some(wait), None);
        by(&mut || {
            if let Some(wait) = wait.take() {
                outcome = Some(wait());
            }
        });
        match (outcome, wait) {
            (Some(outcome), _) => outcome,
            (None, Some(wait)) => wait(), // `by` did not: then here
            (None, None) => unreachable!("a wait that was run has an outcome"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_run_once_however_it_is_run() {
        let twice = |wait: &mut dyn FnMut()| (wait(), wait()).1;
        for way in [Aside::default(), Aside::by(|wait| wait()), Aside::by(twice), Aside::by(|_| ())] {
            let mut runs = 0;
            let outcome = way.run(|| {
                runs += 1;
                "done"
            });
            assert_eq!((outcome, runs), ("done", 1), "{way:?}");
        }
    }
}
