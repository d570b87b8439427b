//! What a swap costs: an agent's state leaves one process and is trained on in the next.
//!
//! Measured from the command to suspend to the first micro-batch accumulated in a newly created process, in two cases: in the middle of
//! a step, when the gradient cache alone has changed, and after an update, when the weights and moments have. The parts of a swap are
//! medians of their own, so they need not add up. *Registration* is finding the state's parts and mapping the memory that they lie in:
//! a processor has no other, and what a GPU's driver takes to pin memory is not in it. Each row has its limit beside it, of the same
//! run: the same machine copying as many bytes, or starting a process that does nothing.
//!
//! `sizes` looks at what grows with the state and what does not. `resident` sets and gets the same state by the same calls in a process that stays. It is no swap: its memory is never free.

mod kept;
mod limits;
mod model;
mod resident;
mod sizes;
mod timings;

use std::sync::Arc;

use forebay::trainer::process_group::{GroupOptions, LocalLauncher, ProcessGroup};
use forebay::trainer::scheduler::{DeviceId, Placement};
use forebay::trainer::states::{States, Which};
use forebay_benches::{Outcome, Row};

use kept::Kept;
pub use kept::serve_rank;
use limits::Limits;
pub use limits::is_nothing;
use model::batch;
pub use sizes::{Target, measure_sizes, targets};
use timings::Timings;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Swap {
    /// Ranks of the group.
    pub ranks: usize,
    /// Whether states are objects of a store; else they are files.
    pub are_objects: bool,
    /// Models by name, each with its rounds.
    sizes: &'static [(&'static str, usize)],
}

impl Default for Swap {
    fn default() -> Self {
        Swap { ranks: 1, are_objects: true, sizes: &[("small", 21), ("large", 5)] }
    }
}

impl Swap {
    /// Only to see that it works.
    pub fn quick(self) -> Self {
        Swap { sizes: &[("tiny", 2)], ..self }
    }
}

/// Measures every row, and gives each to `print` as soon as it is known.
///
/// # Errors
/// When a process, the store or a socket fails.
pub fn measure(swap: &Swap, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    for &(size, rounds) in swap.sizes {
        let kept = Kept::new(swap.are_objects)?;
        for case in [Case::MidStep, Case::Updated] {
            let mut timings = Timings::default();
            let bytes = swaps(swap, &kept, (size, rounds), case, &mut timings)?;
            resident::rounds(&*kept.states(), (size, rounds), case, &mut timings)?;
            let limits = Limits::of(rounds, bytes, kept.folder())?;
            timings.print(case, bytes, &limits, print);
        }
    }
    Ok(())
}

/// When a group is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// In the middle of a step: the cache is set.
    MidStep,
    /// After an update: weights and moments are set, the cache is empty.
    Updated,
}

impl Case {
    fn words(self) -> &'static str {
        match self {
            Case::MidStep => "in mid-step",
            Case::Updated => "after an update",
        }
    }
}

/// What is moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    /// Out: what has changed.
    pub(crate) set: u64,
    /// In: all of the state.
    pub(crate) got: u64,
}

/// Suspended and resumed in new processes, round after round.
fn swaps(
    swap: &Swap,
    kept: &Kept,
    (size, rounds): (&str, usize),
    case: Case,
    timings: &mut Timings,
) -> Outcome<Bytes> {
    let launcher =
        kept.tell(LocalLauncher::new(std::env::current_exe()?, kept.folder().join("ranks"))?, size);
    let options = GroupOptions { world: swap.ranks, ..GroupOptions::default() };
    let agent = if case == Case::MidStep { "midway" } else { "updated" };
    let mut group = ProcessGroup::create(agent, options, Arc::new(launcher), kept.states())?;
    let devices = (0..swap.ranks).map(|rank| DeviceId(format!("cpu-{rank}"))).collect();
    let placement = Placement { node: "here".into(), devices };
    group.activate(&placement)?;
    group.accumulate(&[batch(0, 0)])?;
    for round in 1..=rounds {
        if case == Case::Updated {
            group.apply()?;
        }
        timings.swap(&mut group, &placement, round, case)?;
    }
    if case == Case::Updated {
        group.apply()?;
    }
    group.suspend()?;
    let states = kept.states();
    let version = states.find(agent, Which::Latest)?.ok_or("no state was set")?;
    let bytes = |is_set: &dyn Fn(&str) -> bool| -> u64 {
        version.parts.iter().filter(|part| is_set(&part.name)).map(|part| part.bytes).sum()
    };
    let set = bytes(&|name| (name == "trainer") == (case == Case::Updated));
    Ok(Bytes { set, got: bytes(&|_| true) })
}
