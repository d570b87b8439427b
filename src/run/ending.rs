//! How threads that depend on each other end together: nobody is left waiting, and the right error is told.

use anyhow::Result;
use forebay_store::Kind;

/// Does something when it is dropped, also by a panic.
pub(super) struct OnDrop<F: FnMut()>(Option<F>);

impl<F: FnMut()> OnDrop<F> {
    pub(super) fn new(then: F) -> Self {
        OnDrop(Some(then))
    }

    /// All went well: it is not needed.
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(then) = &mut self.0 {
            then();
        }
    }
}

/// The failure that began it: a closed store is what the others met after it.
pub(super) fn first_failure(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut failures: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
    let cause = failures.iter().position(|error| !is_closed(error)).unwrap_or(0);
    if failures.is_empty() { Ok(()) } else { Err(failures.swap_remove(cause)) }
}

fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let store = cause.downcast_ref().map(forebay_store::Error::kind);
        let pipeline = cause.downcast_ref().map(forebay_pipeline::Error::kind);
        let rollout = cause.downcast_ref().map(forebay_rollout_adapter::Error::kind);
        [store, pipeline, rollout].contains(&Some(Kind::Closed))
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use forebay_store::Cause;

    use super::*;

    #[test]
    fn a_guard_acts_on_a_panic_and_not_when_disarmed() {
        let acted = Cell::new(0);
        OnDrop::new(|| acted.set(acted.get() + 1)).disarm();
        assert_eq!(acted.get(), 0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = OnDrop::new(|| acted.set(acted.get() + 1));
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(acted.get(), 1);
    }

    #[test]
    fn the_failure_is_told_and_not_the_closed_store_that_others_met() {
        let closed =
            || Err(forebay_store::Error::from(Cause::Closed { reason: "worker 1 failed".into() }).into());
        let through_pipeline = || {
            let inner = forebay_store::Error::from(Cause::Closed { reason: "worker 1 failed".into() });
            Err(forebay_pipeline::Error::from(inner).into())
        };
        let fire = || Err(anyhow::anyhow!("the server is on fire"));
        let told =
            first_failure([Ok(()), through_pipeline(), closed(), fire()]).map_err(|error| error.to_string());
        assert_eq!(told, Err("the server is on fire".to_owned()));
        assert!(first_failure([Ok(()), closed()]).is_err());
        assert!(first_failure([Ok(())]).is_ok());
    }
}
