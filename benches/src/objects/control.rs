//! What a version costs beside its bytes.

use std::fs::OpenOptions;
use std::io::Write;

use forebay_store::{Dtype, Expected, Layout, Which};

use super::{ObjectScale, Opened, set, sum};
use crate::Outcome;
use crate::measure::{Pair, Times, timed, typical};
use crate::row::{Goal, Row};

/// Bytes of a tensor: so few that moving them takes no time.
const TENSOR_BYTES: usize = 256;

pub(super) fn rows(scale: &ObjectScale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    for (at, &tensors) in scale.tensors.iter().enumerate() {
        let goal = if at + 1 == scale.tensors.len() { Goal::RatioAtMost(0.05) } else { Goal::None };
        print(flat_against_single(scale, tensors, goal)?);
    }
    print(round_trip(scale)?);
    Ok(())
}

/// A state of so many tensors: set and got as one version, beside one version a tensor.
fn flat_against_single(scale: &ObjectScale, tensors: usize, goal: Goal) -> Outcome<Row> {
    let names: Vec<String> = (0..tensors).map(|at| format!("layers.{at}.weight")).collect();
    let shape = [TENSOR_BYTES as u64];
    let layout = names
        .iter()
        .fold(Layout::builder(), |b, name| b.tensor("weights", name, Dtype::U8, &shape))
        .build()?;
    let single = Layout::builder().tensor("weights", "flat", Dtype::U8, &shape).build()?;
    let source = super::noise(tensors * TENSOR_BYTES);
    let (together, apart) = (Opened::new(1)?, Opened::new(1)?);
    // What it is read into is there already, as for one tensor after the other: pages that a process has never touched may take
    // longer than all that is measured.
    let mut all = vec![1; source.len()];
    let mut flat = || -> Outcome<u64> {
        let filling = together.objects.begin("solver", Expected::Any, &layout)?;
        filling.write_class("weights", 0, &source)?;
        filling.commit()?;
        together.objects.get("solver", Which::Latest)?.read_class("weights", 0, &mut all)?;
        Ok(sum(&all))
    };
    let one_by_one = || -> Outcome<u64> {
        let mut all = 0_u64;
        for (name, bytes) in names.iter().zip(source.chunks(TENSOR_BYTES)) {
            set(&apart.objects, name, &single, bytes)?;
            let held = apart.objects.get(name, Which::Latest)?;
            all = all.wrapping_add(sum(&held.tensor("flat")?.to_vec()?));
        }
        Ok(all)
    };
    flat()?; // memory is mapped
    one_by_one()?;
    let mut pairs = Vec::new();
    for _ in 0..scale.repetitions {
        let (value, found) = timed(&mut flat);
        let (limit, meant) = timed(one_by_one);
        if found? != meant? {
            return Err("both ways do not give the same bytes".into());
        }
        pairs.push(Pair { value: value.as_secs_f64() * 1e3, limit: limit.as_secs_f64() * 1e3 });
    }
    let pair = typical(pairs);
    let measure = format!("control of a state of {tensors} tensors, flat");
    let row = Row::new(measure, (pair.value, "ms"), (pair.limit, "one version a tensor"), goal);
    Ok(Row { digest: sum(&source) | 1, ..row })
}

/// A version of a few bytes: set, committed, got and let go.
fn round_trip(scale: &ObjectScale) -> Outcome<Row> {
    let opened = Opened::new(2)?;
    let layout = super::flat(TENSOR_BYTES)?;
    let bytes = super::noise(TENSOR_BYTES);
    let bare_folder = tempfile::tempdir_in("/dev/shm")?;
    let mut bare = OpenOptions::new().create(true).append(true).open(bare_folder.path().join("bare"))?;
    let (mut times, mut limits) = (Times::default(), Times::default());
    for _ in 0..scale.round_trips {
        let (time, done) = timed(|| -> Outcome<u64> {
            set(&opened.objects, "solver", &layout, &bytes)?;
            Ok(opened.objects.get("solver", Which::Latest)?.version())
        });
        done?;
        times.add(time);
        let (time, written) = timed(|| bare.write_all(&bytes));
        written?;
        limits.add(time);
    }
    let (value, limit) = (times.percentile(50), limits.percentile(50));
    let (measure, kind) = (
        "round trip of metadata: set and get of a tiny version, p50",
        "appending 256 bytes to a file in memory",
    );
    let row = Row::new(measure.to_owned(), (value, "us"), (limit, kind), Goal::AtMost(50.0));
    Ok(Row { digest: sum(&bytes) | 1, ..row })
}
