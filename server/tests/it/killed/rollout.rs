//! A rollout: inserts samples, lets their responses grow, and closes or excludes them. It goes on where its last life was.

use forebay_client::{CellValue, Error, Table};
use forebay_store::{Kind, NewRow, Row};

use super::process::{Worker, tell};
use super::promised::{PARTS, STOP, is_left_out, part, prompt, table_of};

pub(super) fn work(worker: &Worker) {
    let mut last = worker.from.split(' ').map_while(|word| word.parse::<u64>().ok());
    let (first, mut version) = (last.next().unwrap_or(0), last.next());
    for sample in first.. {
        if version.is_none() && worker.is_enough() {
            tell("done");
            loop {
                std::thread::park();
            }
        }
        let resumes = version.is_some();
        let name = table_of(sample);
        let version =
            version.take().unwrap_or_else(|| worker.insist("policy", |client| client.policy(name)).version);
        tell(&format!("begins {sample} {version}"));
        let table = worker.insist("table", |client| client.table(name));
        let id = format!("r{}n{sample}_0", worker.number);
        let new = || {
            let token = u128::from(worker.number) << 64 | u128::from(sample + 1);
            Ok::<_, Error>(NewRow::new(version, &format!("{id}_?"))?.token(token))
        };
        let row = worker.insist("insert", |_| table.insert(new()?, [("prompt", (&*prompt(&id)).into())]));
        tell(&format!("inserted {id}_0"));
        grow(worker, &table, row, sample, resumes);
        tell(&format!("{} {id}_0", if is_left_out(sample) { "excluded" } else { "finalized" }));
    }
}

/// Lets a response grow to its end. What was under way when a server died may have been done: the cell tells.
fn grow(worker: &Worker, table: &Table, row: Row, sample: u64, resumes: bool) {
    let mut known = (!resumes).then_some(0);
    loop {
        let at = match known.take() {
            Some(at) => at,
            None => match grown(&worker.insist("cell", |_| table.cell(row, "response"))) {
                Some(parts) => parts,
                None => return,
            },
        };
        let done = match at {
            at if at < PARTS => {
                worker.call("append", |_| table.append(row, "response", part(sample, at).into()))
            }
            _ if is_left_out(sample) => return worker.insist("exclude", |_| table.exclude(row, STOP)),
            _ => worker.call("finalize", |_| table.finalize(row, "response")),
        };
        match done {
            Ok(()) if at == PARTS => return,
            Ok(()) => known = Some(at + 1),
            Err(error) if error.kind() == Kind::Retry || error.cause() == "Uncertain" => {} // look again
            Err(error) => panic!("{error}"),
        }
    }
}

/// How many parts a response has; none for one that is complete.
fn grown(cell: &CellValue) -> Option<usize> {
    match cell {
        CellValue::Empty => Some(0),
        CellValue::Partial(bytes) => Some(bytes.len() / (4 * part(0, 0).len())),
        _ => None,
    }
}
