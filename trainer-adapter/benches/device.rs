//! `cargo bench -p forebay-trainer-adapter --bench device -- [--json] [--quick]`: what a GPU takes for copies, updates, attention
//! and publishing.
//!
//! A value and its limit are taken in turns in one run, and the median of five pairs is printed. Limits are copies of the same
//! driver: one call for all bytes. Without a GPU one sentence says so, and nothing is measured. `--quick` runs the rows of publishing
//! on the stand-in, over a few values: it shows that they run, and says nothing of speed.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

#[path = "device/published.rs"]
mod published;

use std::process::ExitCode;
use std::time::Instant;

use forebay_trainer_adapter::device::cuda::{CudaBuffer, CudaHost, CudaLibraries, CudaOptions, Piece};
use forebay_trainer_adapter::device::{
    AttentionHeads, Branch, CopyRange, Exchanged, Family, Matrix, MatrixMut, SharedAttention, exchange,
};
use forebay_trainer_adapter::{AdamW, Copies, CudaDevice, Device, Error, StandInDevice, StandInOptions};

/// 1 GiB of f32.
const VALUES: usize = 1 << 28;
/// 32 MiB: one copy of a chunked transfer.
const CHUNK: usize = 1 << 23;
const REPETITIONS: usize = 5;
const TOKENS: usize = 8192;

/// One line of the result.
struct Row {
    measure: String,
    unit: &'static str,
    limit_kind: &'static str,
    value: f64,
    limit: f64,
    /// What the ratio of value and limit is to reach, where there is a goal.
    goal: Option<f64>,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.value / self.limit
    }

    fn met(&self) -> Option<bool> {
        self.goal.map(|goal| self.ratio() >= goal)
    }

    fn json(&self) -> String {
        let Self { measure, unit, limit_kind, value, limit, goal } = self;
        let ratio = self.ratio();
        let goal = goal.map_or_else(|| "null".into(), |goal| goal.to_string());
        let met = self.met().map_or_else(|| "null".into(), |met| met.to_string());
        format!(
            r#"{{"measure":"{measure}","value":{value},"unit":"{unit}","limit":{limit},"limit_kind":"{limit_kind}","ratio":{ratio},"goal":{goal},"met":{met}}}"#
        )
    }

    fn text(&self) -> String {
        let Self { measure, unit, limit_kind, value, limit, .. } = self;
        let (ratio, met) = (self.ratio(), self.met());
        let goal =
            self.goal.map_or_else(String::new, |goal| format!(", goal {goal}, met {}", met == Some(true)));
        format!(
            "{measure:<44} {value:>10.3} {unit:<6} limit {limit:>10.3} ({limit_kind}), ratio {ratio:.3}{goal}"
        )
    }
}

fn main() -> ExitCode {
    let (mut json, mut quick) = (false, false);
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--json" => json = true,
            "--quick" => quick = true,
            "--bench" => {} // what cargo adds
            other => {
                eprintln!(
                    "unknown argument {other:?}\nusage: cargo bench -p forebay-trainer-adapter --bench device -- [--json] [--quick]"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    let mut show = |row: Row| println!("{}", if json { row.json() } else { row.text() });
    if quick {
        let device = StandInDevice::new(StandInOptions::default());
        return ended(published::rows(&device, 100_000, None, &mut show));
    }
    let libraries = CudaLibraries::from_environment();
    let device = match CudaDevice::open(&CudaOptions { libraries, ..CudaOptions::default() }) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("Nothing was measured, there is no GPU to measure: {error}.");
            return ExitCode::SUCCESS;
        }
    };
    let outcome = copies(&device, &mut show)
        .and_then(|()| updates(&device, &mut show))
        .and_then(|()| attention(&device, &mut show));
    let outcome =
        outcome.map_err(Into::into).and_then(|()| published::rows(&device, VALUES, Some(0.85), &mut show));
    ended(outcome.and_then(|()| Ok(device.check()?)))
}

fn ended(outcome: Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Seconds of `work`, with everything that it has given to the device.
fn seconds(device: &CudaDevice, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    device.wait(&device.computed())?;
    let start = Instant::now();
    work()?;
    device.wait(&device.computed())?;
    Ok(start.elapsed().as_secs_f64())
}

/// Of some pairs of a value and its limit the one with the median ratio.
fn typical(mut pair: impl FnMut() -> Result<(f64, f64), Error>) -> Result<(f64, f64), Error> {
    Ok(median((0..REPETITIONS).map(|_| pair()).collect::<Result<_, _>>()?))
}

fn median(mut pairs: Vec<(f64, f64)>) -> (f64, f64) {
    pairs.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    pairs[pairs.len() / 2]
}

fn gigabytes(values: usize) -> f64 {
    (values * size_of::<f32>()) as f64 / 1e9
}

fn copies_of(
    device: &CudaDevice,
    to_host: bool,
    chunk: usize,
    buffer: &mut CudaBuffer,
    host: &mut CudaHost,
) -> Result<f64, Error> {
    let stream = device.stream()?;
    seconds(device, || {
        let mut last = None;
        for first in (0..VALUES).step_by(chunk) {
            let range =
                CopyRange { device_offset: first, host_offset: first, length: chunk.min(VALUES - first) };
            last = Some(if to_host {
                device.copy_to_host_async(&stream, buffer, host, range)
            } else {
                device.copy_to_device_async(&stream, host, buffer, range)
            });
        }
        last.map_or(Ok(()), |event| device.wait(&event))
    })
}

/// Chunked copies against one call, and an exchange against out and then in.
fn copies(device: &CudaDevice, show: &mut dyn FnMut(Row)) -> Result<(), Error> {
    let mut buffer = device.allocate(VALUES);
    let (mut out, mut back) = (device.allocate_host(VALUES)?, device.allocate_host(VALUES)?);
    device.check()?;
    for (measure, to_host) in
        [("device to host, chunks of 32 MiB", true), ("host to device, chunks of 32 MiB", false)]
    {
        let mut rates = |chunk| {
            copies_of(device, to_host, chunk, &mut buffer, &mut out).map(|time| gigabytes(VALUES) / time)
        };
        let (value, limit) = typical(|| Ok((rates(CHUNK)?, rates(VALUES)?)))?;
        let limit_kind = "one copy of the driver";
        show(Row { measure: measure.into(), unit: "GB/s", limit_kind, value, limit, goal: Some(0.9) });
    }
    let (value, limit) = typical(|| {
        let serial = copies_of(device, true, VALUES, &mut buffer, &mut out)?
            + copies_of(device, false, VALUES, &mut buffer, &mut back)?;
        let part = Exchanged { buffer: &mut buffer, outgoing: &mut out, incoming: &back, length: VALUES };
        let time = seconds(device, || exchange(device, &mut [part], CHUNK))?;
        Ok((2.0 * gigabytes(VALUES) / time, 2.0 * gigabytes(VALUES) / serial))
    })?;
    let limit_kind = "out, then in, one copy each";
    show(Row {
        measure: "exchange, both directions".into(),
        unit: "GB/s",
        limit_kind,
        value,
        limit,
        goal: Some(1.5),
    });
    Ok(())
}

/// What moves 4-byte values: the update of a step, and packing, against a copy on the device of the same bytes.
fn updates(device: &CudaDevice, show: &mut dyn FnMut(Row)) -> Result<(), Error> {
    let [gradient, mut cache, mut parameters, mut first, mut second] =
        [(); 5].map(|()| device.allocate(VALUES));
    device.check()?;
    // Reads and writes: a copy moves 2 values for each; accumulate 3, the norm 1, AdamW 7.
    let (value, limit) = typical(|| {
        let copied = seconds(device, || {
            device.copy(&gradient, &mut cache);
            Ok(())
        })?;
        let updated = seconds(device, || {
            device.accumulate(&gradient, &mut cache);
            let _norm = device.sum_of_squares(&cache);
            device.adamw(&AdamW::default().step(1, 1.0), &cache, &mut parameters, &mut first, &mut second);
            Ok(())
        })?;
        Ok((11.0 * gigabytes(VALUES) / updated, 2.0 * gigabytes(VALUES) / copied))
    })?;
    let (measure, limit_kind) = ("accumulate, norm and AdamW, bytes moved", "bytes that a device copy moves");
    show(Row { measure: measure.into(), unit: "GB/s", limit_kind, value, limit, goal: None });
    for tensors in [10, 100, 579, 5000] {
        let length = VALUES / 8 / tensors;
        let pieces: Vec<_> = (0..tensors)
            .map(|index| {
                (&gradient, Piece { source_offset: index * length, target_offset: index * length, length })
            })
            .collect();
        let (value, limit) = typical(|| {
            let together = seconds(device, || {
                device.copy_pieces(&pieces, &mut parameters);
                Ok(())
            })?;
            let one_by_one = seconds(device, || {
                pieces.iter().for_each(|piece| device.copy_pieces(std::slice::from_ref(piece), &mut cache));
                Ok(())
            })?;
            Ok((1.0 / together, 1.0 / one_by_one))
        })?;
        let measure = format!("packing {tensors} tensors, times a second");
        let limit_kind = "one launch a tensor";
        show(Row { measure, unit: "1/s", limit_kind, value, limit, goal: None });
    }
    Ok(())
}

/// Attention of 8,192 tokens, 16 heads over 8 of 128 columns: forward and backward, with the memory that it takes.
fn attention(device: &CudaDevice, show: &mut dyn FnMut(Row)) -> Result<(), Error> {
    let heads = AttentionHeads { queries: 16, keys: 8, dimension: 128 };
    let branches = vec![Branch { first: TOKENS / 2, rows: TOKENS / 2 }];
    let shape = SharedAttention { heads, families: vec![Family { first: 0, prompt: TOKENS / 2, branches }] };
    let memory = device.attention_memory(&shape);
    let [qkv, mut gradient] = [(); 2].map(|()| device.allocate(TOKENS * heads.columns()));
    let [mut output, outer] = [(); 2].map(|()| device.allocate(TOKENS * heads.query_columns()));
    let (mut kept, mut scratch) = (device.allocate(memory.kept), device.allocate(memory.scratch));
    device.check()?;
    let input = Matrix::new(&qkv, 0, TOKENS, heads.columns());
    let mut forward = || {
        let into = MatrixMut::new(&mut output, 0, TOKENS, heads.query_columns());
        seconds(device, || {
            device.attention(&shape, input, &mut kept, into);
            Ok(())
        })
    };
    forward()?;
    let forward = forward()?;
    let made = Matrix::new(&output, 0, TOKENS, heads.query_columns());
    let outer = Matrix::new(&outer, 0, TOKENS, heads.query_columns());
    let backward = seconds(device, || {
        let into = MatrixMut::new(&mut gradient, 0, TOKENS, heads.columns());
        device.attention_backward(&shape, input, &kept, made, outer, &mut scratch, into);
        Ok(())
    })?;
    // Multiplications and additions of the causal half: 2 products forward, 5 backward.
    let product = (TOKENS * TOKENS * heads.dimension * heads.queries) as f64;
    let (unit, limit_kind) = ("TF/s", "67 TF/s of f32, an H200's data sheet");
    for (name, products, time) in [("forward", 2.0, forward), ("backward", 5.0, backward)] {
        let measure = format!("attention {name}, {TOKENS} tokens");
        show(Row {
            measure,
            unit,
            limit_kind,
            value: products * product / time / 1e12,
            limit: 67.0,
            goal: None,
        });
    }
    let (value, limit) =
        (gigabytes(memory.kept + memory.scratch), gigabytes(heads.queries * TOKENS * TOKENS));
    let measure = format!("attention memory beside q, k, v, {TOKENS} tokens");
    show(Row { measure, unit: "GB", limit_kind: "a matrix of weights a head", value, limit, goal: None });
    Ok(())
}
