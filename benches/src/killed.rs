//! Stores whose process was killed.
//!
//! What is opened is a store that another process wrote: the program `killed`, built beside the benchmark. It does one
//! [`Errand`], says that it has, and waits with the store open until it is killed with SIGKILL.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::machine::resident_bytes;
use crate::{Outcome, large, reopen};

/// What the program says when its errand is done.
const DONE: &str = "done";

/// What is done to a store before its process is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Errand {
    /// A new store of so many rows.
    Fill { rows: usize },
    /// A new store of [`large`], with so many rows a table.
    FillLarge { rows: usize },
    /// Opened, no more.
    Open,
    /// So many records more, of one row each, in a store of [`large`] with so many rows a table.
    More { rows: usize, records: usize },
}

impl Errand {
    fn words(self) -> [String; 3] {
        match self {
            Errand::Fill { rows } => ["fill".to_owned(), rows.to_string(), "0".to_owned()],
            Errand::FillLarge { rows } => ["fill-large".to_owned(), rows.to_string(), "0".to_owned()],
            Errand::Open => ["open".to_owned(), "0".to_owned(), "0".to_owned()],
            Errand::More { rows, records } => ["more".to_owned(), rows.to_string(), records.to_string()],
        }
    }

    fn read(words: &[String]) -> Outcome<Self> {
        let [what, rows, records] = words else { return Err("want DIR WHAT ROWS RECORDS".into()) };
        let (rows, records) = (rows.parse()?, records.parse()?);
        match what.as_str() {
            "fill" => Ok(Errand::Fill { rows }),
            "fill-large" => Ok(Errand::FillLarge { rows }),
            "open" => Ok(Errand::Open),
            "more" => Ok(Errand::More { rows, records }),
            other => Err(format!("no errand is named {other:?}").into()),
        }
    }
}

/// The program that is killed.
#[derive(Clone, Debug)]
pub struct Killed(PathBuf);

impl Killed {
    /// The program at this path: `env!("CARGO_BIN_EXE_killed")`.
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Killed(program.into())
    }

    /// Has an errand done in a folder by a process that is dead when this returns. Gives how much memory it had then, in bytes.
    pub(crate) fn after(&self, folder: &Path, errand: Errand) -> Outcome<u64> {
        let mut command = Command::new(&self.0);
        command.arg(folder).args(errand.words());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        let told = process.stdout.take().ok_or("no output")?;
        BufReader::new(told).read_line(&mut said)?;
        let resident = resident_bytes(process.id());
        process.kill()?;
        process.wait()?;
        if said.trim_end() == DONE { Ok(resident) } else { Err(format!("{errand:?} was not done").into()) }
    }
}

/// What the program `killed` does with its arguments: a folder and an errand.
///
/// # Errors
/// Where the errand fails, or nobody kills it and its input ends.
pub fn be_killed(words: &[String]) -> Outcome<()> {
    let (folder, errand) = words.split_first().ok_or("want DIR WHAT ROWS RECORDS")?;
    let folder = Path::new(folder);
    let store = match Errand::read(errand)? {
        Errand::Fill { rows } => reopen::fill(folder, rows)?,
        Errand::FillLarge { rows } => large::fill(folder, rows)?,
        Errand::Open => crate::workload::open(folder)?,
        Errand::More { rows, records } => large::more(folder, rows, records)?,
    };
    println!("{DONE}");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(store);
    Err("nobody killed this process".into())
}
