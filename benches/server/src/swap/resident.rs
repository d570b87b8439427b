//! The same state set and got by a process that stays.

use std::time::{Duration, Instant};

use forebay::trainer::process_group::{BatchRow, Recipe};
use forebay::trainer::states::{States, Which};
use forebay::trainer::{CpuDevice, Row, Trainer, Unit};
use forebay_benches::Outcome;

use super::Case;
use super::model::{BenchRecipe, batch, config};
use super::timings::Timings;

/// As often as processes are swapped: sets what has changed, gets all, accumulates.
pub(super) fn rounds(
    states: &dyn States,
    (size, rounds): (&str, usize),
    case: Case,
    timings: &mut Timings,
) -> Outcome<()> {
    let key = if case == Case::MidStep { "resident.midway" } else { "resident.updated" };
    let (device, mut recipe) = (CpuDevice::inline(), BenchRecipe(config(size)));
    let mut trainer = recipe.create(&device).map_err(|error| error.to_string())?;
    accumulate(&mut trainer, 0)?;
    set_trainer(states, key, &trainer)?;
    for round in 1..=rounds {
        if case == Case::Updated {
            trainer.apply()?;
        }
        let start = Instant::now();
        match case {
            Case::MidStep => set_cache(states, key, &trainer)?,
            Case::Updated => set_trainer(states, key, &trainer)?,
        }
        let mut state = states.open(key, Which::Latest, "trainer")?;
        trainer = recipe.restore(&device, &mut *state).map_err(|error| error.to_string())?;
        drop(state);
        if case == Case::MidStep {
            trainer.import_cache_from(&mut *states.open(key, Which::Latest, "cache")?)?;
        }
        let began = Instant::now();
        accumulate(&mut trainer, if case == Case::MidStep { round } else { 0 })?;
        timings.add("resident accumulate", began.elapsed());
        timings.add("resident", start.elapsed());
        let began = Instant::now();
        drop(std::hint::black_box(CpuDevice::inline()));
        timings.add("resident context", began.elapsed().max(Duration::from_nanos(1)));
    }
    Ok(())
}

fn set_trainer(states: &dyn States, key: &str, trainer: &Trainer<CpuDevice>) -> Outcome<()> {
    let number = states.find(key, Which::Latest)?.map_or(0, |newest| newest.number);
    let state = trainer.state_stream();
    let staged = states.stage_from(key, "trainer", state.bytes(), &mut |to| state.write(to))?;
    states.commit(key, number, &[staged])?;
    Ok(())
}

fn set_cache(states: &dyn States, key: &str, trainer: &Trainer<CpuDevice>) -> Outcome<()> {
    let newest = states.find(key, Which::Latest)?.ok_or("no state was set")?;
    let kept = newest.part("trainer").ok_or("no trainer was set")?.staged.clone();
    let cache = trainer.cache_stream();
    let staged = states.stage_from(key, "cache", cache.bytes(), &mut |to| cache.write(to))?;
    states.commit(key, newest.number, &[kept, staged])?;
    Ok(())
}

fn accumulate(trainer: &mut Trainer<CpuDevice>, position: usize) -> Outcome<()> {
    let version = trainer.version();
    for unit in &batch(position, version).units {
        let rows: Vec<Row<'_>> = unit.rows.iter().map(BatchRow::row).collect();
        trainer.accumulate(&Unit { position, policy: "policy", version, rows: &rows })?;
    }
    Ok(())
}
