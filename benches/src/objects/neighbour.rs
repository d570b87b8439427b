//! Get from another process: it is told where a version lies, maps the segment, and has the bytes.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use forebay_store::Which;

use super::memory::size;
use super::{ObjectScale, Opened, flat, megabytes, noise, set, sum};
use crate::Outcome;
use crate::measure::{Pair, timed, typical};
use crate::row::{Goal, Row};

const VARIABLE: &str = "FOREBAY_BENCH_NEIGHBOUR";

/// Runs as the other process, when it was started as that; otherwise gives false at once.
///
/// # Errors
/// When a segment cannot be mapped.
pub fn answer_as_neighbour() -> Outcome<bool> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(false);
    }
    for line in std::io::stdin().lines() {
        let line = line?;
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok()).ok_or("no number");
        let (offset, bytes) = (number()?, number()?);
        let path = line.splitn(3, ' ').nth(2).ok_or("no path")?;
        let (mapped, held) = timed(|| map(Path::new(path)));
        let held = held?;
        let (read, found) = timed(|| black_box(sum(black_box(&held[offset..offset + bytes]))));
        let (again, _) = timed(|| black_box(sum(black_box(&held[offset..offset + bytes]))));
        println!("{} {} {} {found}", mapped.as_nanos(), (mapped + read).as_nanos(), again.as_nanos());
        std::io::stdout().flush()?;
    }
    Ok(true)
}

fn map(path: &Path) -> Outcome<memmap2::Mmap> {
    let file = File::open(path)?;
    #[allow(unsafe_code, reason = "what a neighbour does")]
    // SAFETY: the version is held by the parent while this runs, so nobody writes its bytes; segments are not cut.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(map)
}

pub(super) fn rows(scale: &ObjectScale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let Some(program) = &scale.neighbour else { return Ok(()) };
    let (bytes, layout) = (scale.state_bytes, flat(scale.state_bytes)?);
    let (opened, source) = (Opened::new(1)?, noise(bytes));
    set(&opened.objects, "solver", &layout, &source)?;
    let mut child =
        Command::new(program).env(VARIABLE, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut ask = child.stdin.take().ok_or("no input")?;
    let mut answers = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let (mut gets, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..scale.repetitions {
        let (control, held) = timed(|| opened.objects.get("solver", Which::Latest));
        let held = held?;
        let (segment, offset) = held.places()[0].ok_or("not in a segment")?;
        let segments = opened.objects.segments()?;
        let path =
            segments.iter().find(|s| s.number == segment).and_then(|s| s.path.clone()).ok_or("no path")?;
        writeln!(ask, "{offset} {bytes} {}", path.display())?;
        let answer = answers.next().ok_or("the neighbour is gone")??;
        let numbers: Vec<u64> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [mapped, first, again, found] = numbers[..] else { return Err(answer.into()) };
        if found != sum(&source) {
            return Err("the neighbour saw other bytes".into());
        }
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        gets.push(Pair {
            value: control.as_secs_f64() * 1e3 + milliseconds(mapped),
            limit: milliseconds(mapped),
        });
        let speed = |nanoseconds| megabytes(bytes, std::time::Duration::from_nanos(nanoseconds));
        reads.push(Pair { value: speed(first), limit: speed(again) });
    }
    drop(ask);
    child.wait()?;
    let digest = sum(&source) | 1;
    let (get, read, size) = (typical(gets), typical(reads), size(bytes));
    let measure = format!("get of {size} in another process");
    let kind = "opening and mapping the segment there";
    print(Row { digest, ..Row::new(measure, (get.value, "ms"), (get.limit, kind), Goal::AtMost(1.0)) });
    let measure = format!("get of {size} in another process and first read of every byte");
    let kind = "reading them there again, its pages known";
    print(Row { digest, ..Row::new(measure, (read.value, "MB/s"), (read.limit, kind), Goal::None) });
    Ok(())
}
