//! Which locks a thread holds, and that it takes them in the order of their [`Rank`]s.
//!
//! Debug builds keep them in the thread, and panic before one is taken out of order: such a thread could come to wait for
//! ever, and does so only when another is at the wrong place at that moment. A lock that was tried and had counts too, for
//! what is taken under it waits. In other builds, and with the models of shuttle, whose threads share one of the machine's, nothing
//! is kept and nothing costs anything.

use std::ops::{Deref, DerefMut};

use super::rank::Rank;

#[cfg(all(debug_assertions, not(feature = "shuttle")))]
pub(super) use checked::{Held, Order};
#[cfg(not(all(debug_assertions, not(feature = "shuttle"))))]
pub(super) use unchecked::{Held, Order};

/// What a lock guards, for whoever holds it.
#[must_use = "the lock is held for as long as this is kept"]
pub(crate) struct Guarded<G> {
    // Given back first.
    pub(super) inner: G,
    pub(super) held: Held,
}

impl<G: Deref> Deref for Guarded<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guarded<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

#[cfg(all(debug_assertions, not(feature = "shuttle")))]
mod checked {
    use std::cell::RefCell;

    use super::Rank;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Where a lock stands among the others.
    #[derive(Clone, Copy)]
    pub(in crate::sync) struct Order(Rank);

    /// A lock that this thread holds, or is about to.
    #[must_use = "it is held for as long as this is kept"]
    pub(in crate::sync) struct Held(Rank);

    impl Order {
        pub(in crate::sync) const fn of(rank: Rank) -> Self {
            Order(rank)
        }

        /// To be called before the lock is waited for.
        ///
        /// # Panics
        /// When it is out of order.
        pub(in crate::sync) fn take(self) -> Held {
            let taken = self.0;
            let before = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let before = held.iter().copied().filter(|held| is_refused(*held, taken)).max();
                held.push(taken);
                before
            });
            let held = Held(taken);
            // Where the thread ends or unwinds nothing is to be gained by a second panic.
            if let Some(before) = before.ok().flatten().filter(|_| !std::thread::panicking()) {
                panic!("the lock {taken:?} is taken with {before:?} held: not in the order of `sync::rank`");
            }
            held
        }
    }

    /// Whether a lock may not be taken with another held.
    fn is_refused(held: Rank, taken: Rank) -> bool {
        held > taken || held == taken && !taken.nests() || held.is_leaf()
    }

    impl Held {
        /// Given back and taken again, as a wait for a condition does.
        ///
        /// # Panics
        /// When it is out of order by now.
        pub(in crate::sync) fn again(self) -> Self {
            let order = Order(self.0);
            drop(self);
            order.take()
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // Not there any more where the thread ends.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|held| *held == self.0) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(not(all(debug_assertions, not(feature = "shuttle"))))]
mod unchecked {
    use super::Rank;

    /// Where a lock stands among the others: of no interest here.
    #[derive(Clone, Copy)]
    pub(in crate::sync) struct Order;

    /// A lock that is held.
    pub(in crate::sync) struct Held;

    impl Order {
        pub(in crate::sync) const fn of(_rank: Rank) -> Self {
            Order
        }

        #[inline]
        pub(in crate::sync) fn take(self) -> Held {
            Held
        }
    }

    impl Held {
        #[inline]
        pub(in crate::sync) fn again(self) -> Self {
            self
        }
    }
}

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::standard;
    use super::super::{Mutex, RwLock};
    use super::Rank;

    fn refusal(taken: impl FnOnce()) -> String {
        let panic = catch_unwind(AssertUnwindSafe(taken)).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    }

    fn assert_refused(taken: impl FnOnce(), names: [&str; 2]) {
        let refusal = refusal(taken);
        assert!(names.iter().all(|name| refusal.contains(name)), "{refusal}");
    }

    #[test]
    fn locks_are_taken_in_their_order_and_given_back_in_any() {
        let (state, buffer) = (Mutex::ranked(Rank::State, 1), Mutex::ranked(Rank::LogBuffer, 2));
        let (extents, leaf) = (RwLock::ranked(Rank::Extents, 3), Mutex::new(4));
        for _ in 0..2 {
            let held = state.lock();
            assert_eq!((*held, *buffer.lock()), (1, 2));
            let extents = extents.read();
            assert_eq!((*extents, *leaf.lock()), (3, 4));
            drop(held);
            assert_eq!(*leaf.lock(), 4);
            drop(extents);
            *state.try_lock().unwrap() = 1;
        }
    }

    #[test]
    fn a_lock_that_is_out_of_order_is_refused_with_the_names_of_both() {
        let (state, file) = (Mutex::ranked(Rank::State, ()), Mutex::ranked(Rank::LogFile, ()));
        let extents = RwLock::ranked(Rank::Extents, ());
        {
            let _held = state.lock();
            assert_refused(|| drop(file.lock()), ["LogFile", "State"]);
            assert_refused(|| drop(file.try_lock()), ["LogFile", "State"]);
            drop(extents.write()); // what was refused is not held
        }
        let reads = extents.read();
        assert_refused(|| drop(state.lock()), ["State", "Extents"]);
        drop(reads);
        let writes = extents.write();
        assert_refused(|| drop(state.lock()), ["State", "Extents"]);
        drop(writes);
        drop(state.lock());
    }

    #[test]
    fn two_of_one_rank_are_never_held_together() {
        let [one, other] = [1, 2].map(|number| RwLock::ranked(Rank::Extents, number));
        let _held = one.read();
        assert_refused(|| drop(other.read()), ["Extents is taken", "with Extents held"]);
        // A reader would wait behind a writer that waits for him.
        assert_refused(|| drop(one.read()), ["Extents is taken", "with Extents held"]);
    }

    /// A copy tells its caller how far it is, who may copy another store there.
    #[test]
    fn several_stores_may_be_read_at_once_and_anything_be_asked_meanwhile() {
        let [one, other] = [1, 2].map(|number| Mutex::ranked(Rank::Reading, number));
        let checkpoint = Mutex::ranked(Rank::Checkpoint, 3);
        let (one, other) = (one.lock(), other.lock());
        assert_eq!((*one, *other, *checkpoint.lock()), (1, 2, 3));
        drop(one);
        assert_eq!(*checkpoint.lock(), 3);
    }

    #[test]
    fn nothing_is_taken_under_a_leaf() {
        let buffer = Mutex::ranked(Rank::LogBuffer, ());
        let leaves = [Mutex::new(()), Mutex::default()];
        {
            let _held = leaves[0].lock();
            assert_refused(|| drop(leaves[1].lock()), ["Leaf is taken", "with Leaf held"]);
        }
        let _held = buffer.lock();
        assert_refused(|| drop(leaves[1].lock()), ["Leaf", "LogBuffer"]);
    }

    #[test]
    fn what_another_thread_holds_is_its_own() {
        let state = Mutex::ranked(Rank::State, ());
        let leaf = Mutex::new(());
        let _held = leaf.lock();
        std::thread::scope(|scope| scope.spawn(|| drop(state.lock())).join().unwrap());
    }

    #[test]
    fn who_waits_for_a_condition_gives_its_lock_back_and_takes_it_again() {
        let turn = standard::Mutex::ranked(Rank::LogFile, 0);
        let (state, changed) = (Mutex::ranked(Rank::State, ()), standard::Condvar::new());
        let held = changed.wait_timeout(turn.lock(), Duration::ZERO);
        assert_eq!(*held, 0);
        let held_too = state.lock();
        assert_refused(|| drop(changed.wait_timeout(held, Duration::ZERO)), ["LogFile", "State"]);
        drop(held_too);
        assert_eq!(*turn.lock(), 0, "what was refused is not held");
    }

    #[test]
    fn a_thread_that_unwinds_or_ends_is_not_stopped_a_second_time() {
        struct TakesLate(Arc<Mutex<()>>);
        impl Drop for TakesLate {
            fn drop(&mut self) {
                drop(self.0.lock());
            }
        }
        let state = Arc::new(Mutex::ranked(Rank::State, ()));
        let refusal = refusal(|| {
            let leaf = Mutex::new(());
            let _late = TakesLate(state.clone());
            let _held = leaf.lock();
            let _early = TakesLate(state.clone());
            panic!("the first of {}", Arc::strong_count(&state));
        });
        assert_eq!(refusal, "the first of 3");
    }
}
