//! `cargo bench --bench objects -- [--json] [--quick] [--device cuda:0 [--alone]]`: what setting and getting agents' state takes.

use std::process::ExitCode;

use forebay_benches::{Machine, ObjectScale, Outcome, Row, run_objects, table};
use forebay_server_benches::objects::{DeviceRows, NotRun, answer_as_other, between, device_rows};

const USAGE: &str =
    "usage: cargo bench --bench objects -- [--json] [--quick] [--device cuda:0|stand-in [--alone]]
  --json      one JSON object a line instead of a table
  --quick     tiny sizes: shows that every row runs, says nothing of speed
  --device    adds the rows of a GPU; of the stand-in, in tiny sizes, to see that they run
  --alone     with --device: its rows alone";

/// What is to be measured.
#[derive(Default)]
struct Asked {
    is_json: bool,
    is_quick: bool,
    is_alone: bool,
    device: Option<DeviceRows>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome =
        answer_as_other(&words).and_then(|answered| if answered { Ok(()) } else { measure(&words) });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn asked(words: &[String]) -> Outcome<Asked> {
    let (mut asked, mut words) = (Asked::default(), words.iter());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => asked.is_json = true,
            "--quick" => asked.is_quick = true,
            "--alone" => asked.is_alone = true,
            "--device" => {
                let name = words.next().ok_or_else(|| format!("--device needs a name\n{USAGE}"))?;
                asked.device = Some(name.parse().map_err(|error| format!("{error}\n{USAGE}"))?);
            }
            "--bench" => {} // what cargo adds
            other => return Err(format!("unknown argument {other:?}\n{USAGE}").into()),
        }
    }
    if asked.is_alone && asked.device.is_none() {
        return Err(format!("--alone leaves no rows without --device\n{USAGE}").into());
    }
    Ok(asked)
}

fn measure(words: &[String]) -> Outcome<()> {
    let asked = asked(words)?;
    let scale = if asked.is_quick { ObjectScale::quick() } else { ObjectScale::full() };
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    let (mut rows, mut not_run): (Vec<Row>, Vec<NotRun>) = Default::default();
    let mut print = |row: Row| {
        if asked.is_json {
            println!("{}", row.json());
        } else {
            eprintln!("{}", row.json());
        }
        rows.push(row);
    };
    if !asked.is_alone {
        run_objects(&scale, &mut print)?;
        between(&scale, &mut print)?;
    }
    if let Some(device) = &asked.device {
        not_run = device_rows(device, asked.is_quick, &mut print)?;
    }
    if !asked.is_json {
        print!("{}", table(&rows));
    }
    for reason in &not_run {
        if asked.is_json {
            println!("{}", reason.json());
        }
        eprintln!("{reason}");
    }
    eprintln!("{machine}; load {load} before, {} after", Machine::load());
    Ok(())
}
