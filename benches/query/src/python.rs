//! Engines that come as Python packages: DuckDB on tables of its own and on Parquet, polars. `peers.py` holds them; it is
//! asked by lines of JSON, and takes the time of each answer itself, so that the pipe costs nobody anything.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::data::Data;
use crate::questions::QUESTIONS;
use crate::{Answered, Engine, Outcome, Scale};

struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn call(&mut self, request: &Json) -> Outcome<Json> {
        writeln!(self.input, "{request}")?;
        self.input.flush()?;
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("peers.py ended".into());
        }
        let reply: Json = serde_json::from_str(&line)?;
        match reply.get("error").and_then(Json::as_str) {
            Some(error) => Err(error.to_owned().into()),
            None => Ok(reply),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Peer {
    name: String,
    process: Rc<RefCell<Process>>,
}

/// The engines that the interpreter has; says which it lacks.
pub(crate) fn peers(
    scale: &Scale,
    data: &Data,
    tell: &mut dyn FnMut(String),
) -> Outcome<Vec<Box<dyn Engine>>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers.py");
    let spawned =
        Command::new(&scale.python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            tell(format!("no Python engines: {}: {error}", scale.python));
            return Ok(Vec::new());
        }
    };
    let pipes = child.stdin.take().zip(child.stdout.take());
    let Some((input, output)) = pipes else { return Err("peers.py has no pipes".into()) };
    let mut process = Process { child, input, output: BufReader::new(output) };
    let reply = process.call(&json!({"load": data.files()}))?;
    let words = |field: &str| -> Vec<String> {
        let list = reply.get(field).and_then(Json::as_array).cloned().unwrap_or_default();
        list.iter().filter_map(Json::as_str).map(str::to_owned).collect()
    };
    words("said").into_iter().for_each(&mut *tell);
    let process = Rc::new(RefCell::new(process));
    let peer = |name| Box::new(Peer { name, process: process.clone() }) as Box<dyn Engine>;
    Ok(words("engines").into_iter().map(peer).collect())
}

impl Engine for Peer {
    fn name(&self) -> &str {
        &self.name
    }

    fn add(&mut self, file: &Path) -> Outcome<()> {
        self.process.borrow_mut().call(&json!({"engine": self.name, "add": file}))?;
        Ok(())
    }

    fn ask(&mut self, question: usize) -> Outcome<Answered> {
        let question = &QUESTIONS[question];
        let request = json!({"engine": self.name, "sql": question.sql, "duckdb": question.duckdb, "name": question.name});
        let reply = self.process.borrow_mut().call(&request)?;
        let number = |field: &str| {
            reply.get(field).and_then(Json::as_f64).ok_or_else(|| format!("no {field}: {reply}"))
        };
        Ok(Answered {
            time: Duration::from_secs_f64(number("seconds")?),
            rows: number("rows")? as usize,
            sum: number("sum")?,
        })
    }
}
