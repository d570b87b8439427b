//! How claimers learn that there is something for them, whether they poll, block or await.
//!
//! A [`Signal`] stands beside a consumer and outside of the state's lock. It holds one number, how many rows could be
//! claimed now, so that a look at an empty queue is one load. Those who wait stand in line by how many rows they need;
//! as many are woken as there is work for, once a micro-batch and not once a row.
//!
//! # No wake-up is lost
//! A claimer stands in line first and looks at the number afterwards; who changes the state sets the number first and
//! looks for a line afterwards, both in the one order of sequentially consistent operations. So either the claimer sees
//! the rows, or it is seen. Who needs a number of rows claims when there are as many, so as many are woken as that goes into what is
//! ready. Of others (see [`Need`]) nobody but they themselves can say whether they find something: all of them are woken, for one
//! who looks in vain stays in line, and would have used up what another waits for. A claimer that leaves the line without having claimed hands its wake-up on: a listener that
//! is dropped does so by itself, one that was woken and goes empty-handed calls [`Signal::announce`] again. One that
//! leaves with a claim uses its wake-up up, and announces what is left.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::throttle::Throttle;
use crate::state::Ask;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Event, EventListener, Mutex, Rank};

/// How a consumer stands, for those who want to claim of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// How many rows could be claimed now; [`Readiness::LOOK`] when whoever waits is to look for himself.
    pub(crate) rows: usize,
    /// The same for those who do not wait until groups are complete.
    pub(crate) early: usize,
    /// The [word](crate::step::Begun::word) of the step that is open, 0 for none.
    pub(crate) step: u64,
}

impl Readiness {
    /// There is something to see that is not told in rows: a plan is complete, its last micro-batch is short, a step has
    /// ended.
    pub(crate) const LOOK: usize = usize::MAX;
}

/// What a claimer needs for a look to be worth it. Those who need the same stand in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// So many rows.
    Rows(usize),
    /// Rows whose lengths fit a budget: any may.
    Budget,
    /// Rows of groups that need not be complete, of as many groups as he has begun, or may begin.
    Early,
}

impl Need {
    /// How many are to be woken of those who need it.
    fn to_wake(self, rows: usize, early: usize) -> usize {
        match self {
            Need::Rows(need) => rows / need.max(1),
            Need::Budget => {
                if rows > 0 {
                    usize::MAX
                } else {
                    0
                }
            }
            Need::Early => {
                if early > 0 {
                    usize::MAX
                } else {
                    0
                }
            }
        }
    }
}

/// What claimers of one consumer look at and wait on.
#[derive(Debug)]
pub(crate) struct Signal {
    rows: AtomicUsize,
    early: AtomicUsize,
    step: AtomicU64,
    /// How many stand in line.
    waiting: AtomicUsize,
    /// Those in line, by what they need.
    lines: Mutex<BTreeMap<Need, Line>>,
    /// Those who wait for any change.
    anything: Event,
    /// Those who wait to insert.
    throttle: Throttle,
}

#[derive(Debug, Default)]
struct Line {
    event: Arc<Event>,
    length: usize,
}

impl Default for Signal {
    fn default() -> Self {
        Signal {
            rows: AtomicUsize::new(0),
            early: AtomicUsize::new(0),
            step: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            lines: Mutex::ranked(Rank::Lines, BTreeMap::new()),
            anything: Event::new(),
            throttle: Throttle::default(),
        }
    }
}

impl Signal {
    /// Tells how the consumer stands. Called with the state locked, in the order of its changes.
    pub(crate) fn publish(&self, readiness: Readiness) {
        self.step.store(readiness.step, Ordering::SeqCst);
        self.early.store(readiness.early, Ordering::SeqCst);
        self.rows.store(readiness.rows, Ordering::SeqCst);
    }

    /// Whether it is worth looking, in a step or outside of one (0).
    pub(crate) fn is_worth_a_look(&self, need: Need, step: u64) -> bool {
        let is_there = match need {
            Need::Early => self.early.load(Ordering::SeqCst) > 0,
            Need::Budget => self.rows.load(Ordering::SeqCst) > 0,
            Need::Rows(need) => self.rows.load(Ordering::SeqCst) >= need,
        };
        is_there || (step != 0 && self.step.load(Ordering::SeqCst) != step)
    }

    /// Wakes as many of those in line as there is work for.
    pub(crate) fn announce(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (rows, early) = (self.rows.load(Ordering::SeqCst), self.early.load(Ordering::SeqCst));
        let mut told = Need::Rows(0);
        while let Some((need, event)) = self.next_line(told, rows) {
            event.notify(need.to_wake(rows, early));
            told = need;
        }
    }

    /// The line behind that of `told` of those whom so many rows may suffice. Nobody is woken with the lock held: he needs it.
    fn next_line(&self, told: Need, rows: usize) -> Option<(Need, Arc<Event>)> {
        let lines = self.lines.lock();
        let counted =
            (told <= Need::Rows(rows)).then_some((Bound::Excluded(told), Bound::Included(Need::Rows(rows))));
        let counted = counted.and_then(|range| lines.range(range).next());
        let others = (Bound::Excluded(told.max(Need::Rows(usize::MAX))), Bound::Unbounded);
        let next = counted.or_else(|| lines.range(others).next());
        next.map(|(need, line)| (*need, line.event.clone()))
    }

    /// Something changed that may matter to those who wait for any change.
    pub(crate) fn changed(&self) {
        self.anything.notify(usize::MAX);
    }

    /// Those who wait to insert.
    pub(crate) fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Wakes everyone.
    pub(crate) fn wake_all(&self) {
        self.anything.notify(usize::MAX);
        self.throttle.wake_all();
        let lines: Vec<Arc<Event>> = self.lines.lock().values().map(|line| line.event.clone()).collect();
        lines.iter().for_each(|event| _ = event.notify(usize::MAX));
    }

    /// A listener for any change.
    pub(crate) fn listen(&self) -> EventListener {
        self.anything.listen()
    }

    /// Stands in line for what is needed. Look again before waiting.
    pub(crate) fn stand_in_line(self: &Arc<Self>, need: Need) -> InLine {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut lines = self.lines.lock();
        let line = lines.entry(need).or_default();
        line.length += 1;
        let (event, listener) = (line.event.clone(), line.event.listen());
        drop(lines);
        InLine { signal: self.clone(), need, event, listener: Some(listener), ask: None }
    }

    /// Stands in line for what was asked for. Look again before waiting.
    pub(crate) fn stand_in_line_for(self: &Arc<Self>, ask: Ask) -> InLine {
        let mut place = self.stand_in_line(ask.rule.need());
        place.ask = self.throttle.stands_in_line(ask).then_some(ask);
        place
    }
}

/// A place in line. Dropping it gives it up; a wake-up that was meant for it goes to the next.
#[derive(Debug)]
pub(crate) struct InLine {
    signal: Arc<Signal>,
    need: Need,
    event: Arc<Event>,
    listener: Option<EventListener>,
    ask: Option<Ask>,
}

impl InLine {
    /// What to wait on. After it has been taken and waited on, the next is a new one at the end of the line: look again
    /// before waiting on that.
    pub(crate) fn listener(&mut self) -> &mut Option<EventListener> {
        if self.listener.is_none() {
            self.listener = Some(self.event.listen());
        }
        &mut self.listener
    }

    /// Leaves the line with a claim: the wake-up that led to it is used up. Whoever else there is work for is woken.
    pub(crate) fn leave(mut self) {
        if let Some(listener) = self.listener.take() {
            listener.discard();
        }
        self.signal.announce();
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        drop(self.listener.take()); // hands a wake-up on
        self.ask.into_iter().for_each(|ask| self.signal.throttle.leaves_line(ask));
        let mut lines = self.signal.lines.lock();
        if let Some(line) = lines.get_mut(&self.need) {
            line.length -= 1;
            if line.length == 0 {
                lines.remove(&self.need);
            }
        }
        drop(lines);
        self.signal.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::atomic::AtomicUsize;

    use super::*;

    fn is_woken(place: &mut InLine) -> bool {
        let listener = place.listener().take();
        listener.is_some_and(|listener| listener.wait_timeout(std::time::Duration::ZERO).is_some())
    }

    fn ready(signal: &Signal, rows: usize) {
        signal.publish(Readiness { rows, early: rows, step: 0 });
        signal.announce();
    }

    #[test]
    fn as_many_are_woken_as_there_is_work_for() {
        let cases = [
            (3, [false; 3]),
            (4, [true, false, false]),
            (9, [true, true, false]),
            (Readiness::LOOK, [true; 3]),
        ];
        for (rows, expected) in cases {
            let signal = Arc::new(Signal::default());
            let mut places = [4, 4, 4].map(|need| signal.stand_in_line(Need::Rows(need)));
            (1..=rows.min(9)).for_each(|rows| ready(&signal, rows));
            ready(&signal, rows);
            assert_eq!(places.each_mut().map(is_woken), expected, "{rows} rows");
        }
    }

    #[test]
    fn a_wake_up_goes_to_who_needs_no_more_than_there_is() {
        let signal = Arc::new(Signal::default());
        let mut places = [8, 2].map(|need| signal.stand_in_line(Need::Rows(need)));
        ready(&signal, 3);
        assert_eq!(places.each_mut().map(is_woken), [false, true]);
    }

    #[test]
    fn who_takes_parts_of_groups_is_woken_for_what_others_have_no_use_of() {
        let signal = Arc::new(Signal::default());
        let mut places = [Need::Early, Need::Rows(1)].map(|need| signal.stand_in_line(need));
        signal.publish(Readiness { rows: 0, early: 1, step: 0 });
        signal.announce();
        assert_eq!(
            (signal.is_worth_a_look(Need::Early, 0), signal.is_worth_a_look(Need::Rows(1), 0)),
            (true, false)
        );
        assert_eq!(places.each_mut().map(is_woken), [true, false]);
    }

    #[test]
    fn of_those_who_may_look_in_vain_all_are_woken() {
        for need in [Need::Budget, Need::Early] {
            let signal = Arc::new(Signal::default());
            let mut places =
                [need, need, Need::Rows(1), Need::Rows(1)].map(|need| signal.stand_in_line(need));
            ready(&signal, 1);
            assert_eq!(places.each_mut().map(is_woken), [true, true, true, false], "{need:?}");
            ready(&signal, 0);
            assert_eq!(places.each_mut().map(is_woken), [false; 4], "{need:?}");
        }
    }

    #[test]
    fn who_leaves_the_line_hands_his_wake_up_on() {
        let signal = Arc::new(Signal::default());
        let (first, mut second) = (signal.stand_in_line(Need::Rows(1)), signal.stand_in_line(Need::Rows(1)));
        ready(&signal, 1);
        drop(first);
        assert!(is_woken(&mut second));
        drop(second);
        assert_eq!((signal.waiting.load(Ordering::SeqCst), signal.lines.lock().len()), (0, 0));
    }

    /// Producers add work and announce it, consumers stand in line for it: all of it is taken, whoever sleeps when.
    #[test]
    fn no_wake_up_is_lost_between_threads() {
        const EACH: usize = 2_000;
        let (signal, work, taken) = (Arc::new(Signal::default()), Mutex::new(0_usize), AtomicUsize::new(0));
        let publish = |work: usize| signal.publish(Readiness { rows: work, early: work, step: 0 });
        let take = || {
            let mut place: Option<InLine> = None;
            loop {
                if signal.is_worth_a_look(Need::Rows(1), 0) {
                    let mut work = work.lock();
                    if let Some(left) = work.checked_sub(1) {
                        *work = left;
                        publish(left);
                        drop(work);
                        signal.announce();
                        return;
                    }
                }
                match &mut place {
                    None => place = Some(signal.stand_in_line(Need::Rows(1))),
                    Some(place) => {
                        let listener = place.listener().take();
                        listener.unwrap().wait();
                        place.listener();
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    (0..EACH).for_each(|_| {
                        take();
                        taken.fetch_add(1, Ordering::SeqCst);
                    });
                });
            }
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let mut work = work.lock();
                        *work += 1;
                        publish(*work);
                        drop(work);
                        signal.announce();
                    }
                });
            }
        });
        assert_eq!(taken.load(Ordering::SeqCst), 3 * EACH);
    }
}
