//! A move, shared out among threads of the host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use parking_lot::Mutex;

use super::DeviceTierError;

/// Fewer pieces, on the average, are not worth another thread and the memory that it pins.
const PIECES_A_LANE: usize = 4;

/// How many lanes so many pieces are worth, of as many as there may be.
pub(super) fn worth(pieces: usize, lanes_max: usize) -> usize {
    (pieces / PIECES_A_LANE).clamp(1, lanes_max.max(1))
}

/// One of the threads that share a move: it has every so manyth piece of each part. A place on the device is one lane's, whatever comes
/// there and leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane<'a> {
    number: usize,
    count: usize,
    /// A lane has failed: nobody begins another piece.
    is_over: &'a AtomicBool,
}

impl Lane<'_> {
    /// Its share of the pieces of part `part`; every part begins with another lane, for parts that have one piece.
    pub(super) fn share<T>(self, part: usize, pieces: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let first = (self.number + part) % self.count;
        pieces.skip(first).step_by(self.count).take_while(move |_| !self.is_over.load(Ordering::Relaxed))
    }
}

/// Runs `work` for every lane, which is one for each of `tools`, one of them on this thread, and gives what they come to; where one
/// fails, its error.
pub(super) fn run<S: Send, T: Send>(
    tools: impl IntoIterator<Item = S>,
    work: impl Fn(&mut S, Lane<'_>) -> Result<T, DeviceTierError> + Sync,
) -> Result<Vec<T>, DeviceTierError> {
    let (tools, is_over): (Vec<_>, _) =
        (tools.into_iter().map(Mutex::new).collect(), &AtomicBool::new(false));
    let count = tools.len();
    let work = &|number: usize| {
        let done = work(&mut tools[number].lock(), Lane { number, count, is_over });
        if done.is_err() {
            is_over.store(true, Ordering::Relaxed);
        }
        done
    };
    thread::scope(|scope| {
        let begun = |number| {
            let thread = Builder::new().name(format!("forebay-move-{number}"));
            thread.spawn_scoped(scope, move || work(number)).map_err(|_| number)
        };
        let others: Vec<_> = (1..count).map(begun).collect();
        let first = work(0);
        let rest = others.into_iter().map(|lane| match lane {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(number) => work(number), // no thread was to be had
        });
        std::iter::once(first).chain(rest).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_one_lanes_in_every_part() {
        for (count, pieces) in [(1, 5), (3, 1), (3, 2), (3, 10), (8, 3)] {
            let shares = run(0..count, |_, lane| {
                let of = |part| lane.share(part, 0..pieces).map(move |piece| (part, piece));
                Ok((0..4).flat_map(of).collect::<Vec<_>>())
            });
            let mut all: Vec<_> = shares.expect("no lane fails").concat();
            all.sort_unstable();
            let every: Vec<_> = (0..4).flat_map(|part| (0..pieces).map(move |piece| (part, piece))).collect();
            assert_eq!(all, every, "{count} lanes, {pieces} pieces");
        }
    }

    #[test]
    fn a_lane_that_fails_ends_the_others_and_its_error_is_told() {
        let failed = run(0..4, |number, lane| match number {
            2 => Err(DeviceTierError::Damaged { reason: "two".to_owned() }),
            _ => Ok(lane.share(0, std::iter::repeat(())).count()), // for ever, were it not for the other
        });
        assert!(matches!(failed, Err(DeviceTierError::Damaged { reason }) if reason == "two"));
    }

    #[test]
    fn few_pieces_are_one_threads() {
        assert_eq!([0, 7, 8, 100].map(|pieces| worth(pieces, 6)), [1, 1, 2, 6]);
        assert_eq!(worth(100, 0), 1);
    }
}
