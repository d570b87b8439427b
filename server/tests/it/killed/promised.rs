//! What the processes of a campaign write, and what has to be there of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use forebay_client::{Client, Embedded};
use forebay_query::Session;
use forebay_server::Asked;
use forebay_store::{Cause, Consumer, DataType, Element, Options, Schema, Store};

use super::process::Part;

/// The tables of the two policies.
pub(super) const TABLES: [&str; 2] = ["solver", "checker"];
/// In how many parts a response grows.
pub(super) const PARTS: usize = 3;
pub(super) const REWARD: f32 = 0.5;
/// Why a sample was left out.
pub(super) const STOP: &str = "every seventh";

pub(super) fn table_of(sample: u64) -> &'static str {
    TABLES[(sample % 2) as usize]
}

pub(super) fn is_left_out(sample: u64) -> bool {
    sample % 7 == 3
}

/// The number of a sample, from its id `rMnN_0_0`.
pub(super) fn sample_of(id: &str) -> u64 {
    id.split(['n', '_']).nth(1).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{id}"))
}

pub(super) fn prompt(id: &str) -> String {
    format!("what was asked of {id} ").repeat(20)
}

/// What a response grows by.
pub(super) fn part(sample: u64, at: usize) -> Vec<i32> {
    vec![sample as i32 * 10 + at as i32; 40]
}

pub(super) fn whole(sample: u64) -> Vec<i32> {
    (0..PARTS).flat_map(|at| part(sample, at)).collect()
}

/// Makes the tables and consumers that are not there yet.
pub(super) fn declare(store: &Store) {
    let exists = |result: forebay_store::Result<()>| {
        result.or_else(|error| match error.cause() {
            Cause::Exists { .. } => Ok(()),
            _ => Err(error),
        })
    };
    let data = Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .data("reward", DataType::Float32);
    for table in TABLES {
        exists(store.create_table(table, data.clone()).map(drop)).unwrap();
        let train = Consumer::trainer([table]).ready(["reward"]).staleness(1 << 40);
        exists(store.create_consumer(&format!("train-{table}"), train).map(drop)).unwrap();
    }
    exists(store.create_table("verdicts", Schema::new().data("said", DataType::Utf8)).map(drop)).unwrap();
    exists(store.create_consumer("judge", Consumer::task(TABLES).ready(["response"])).map(drop)).unwrap();
}

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Promised {
    /// Where each rollout was heard of last: its sample, and the version under which it inserts it.
    pub(super) begun: BTreeMap<Part, String>,
    /// Who has told that there is nothing more to come.
    pub(super) at_the_end: BTreeSet<Part>,
    inserted: BTreeSet<String>,
    excluded: BTreeSet<String>,
    finalized: BTreeSet<String>,
    finished: BTreeSet<String>,
    /// What was meant to be committed last under a step's number.
    intended: BTreeMap<u64, BTreeSet<String>>,
    trained: BTreeSet<u64>,
    lines: u64,
}

impl Promised {
    pub(super) fn hear(&mut self, part: Part, line: &str) {
        self.lines += 1;
        let mut words = line.split(' ');
        let (word, mut rest) = (words.next().unwrap(), words.map(str::to_owned));
        match word {
            "serves" => {}
            "begins" => _ = self.begun.insert(part, rest.collect::<Vec<_>>().join(" ")),
            "inserted" => self.inserted.extend(rest),
            "excluded" => self.excluded.extend(rest),
            "finalized" => self.finalized.extend(rest),
            "finished" => {
                rest.for_each(|id| assert!(self.finished.insert(id.clone()), "{id} was finished twice"));
            }
            "intends" => _ = self.intended.insert(number(rest.next()), rest.collect()),
            "trained" => _ = self.trained.insert(number(rest.next())),
            "done" | "holds" => _ = self.at_the_end.insert(part),
            _ => panic!("{part:?} told {line:?}"), // `late`, among others
        }
    }

    pub(super) fn summary(&self) -> String {
        let Promised { inserted, finished, trained, lines, .. } = self;
        format!("{lines} lines, {} rows, {} tasks, {} steps", inserted.len(), finished.len(), trained.len())
    }

    /// Holds what was told against a store that nobody serves any more, where everything is judged and trained on.
    pub(super) fn check(&self, store: &Path, seed: u64) {
        let store = Store::open(store, Options::default()).unwrap();
        let asked = Asked::new(Session::new(&store).unwrap());
        let client = Client::over(Arc::new(Embedded::new(store).with_queries(Arc::new(asked))));
        self.check_rows(&client, seed);
        self.check_verdicts(&client, seed);
        self.check_steps(&client, seed);
    }

    /// Every row that was told is there, once and whole; and there is no other.
    fn check_rows(&self, client: &Client, seed: u64) {
        let mut found = BTreeSet::new();
        for table in TABLES {
            let columns = "sample_id, prompt, array_to_string(response, ' '), excluded_reason, \
                           CAST(reward AS VARCHAR), CAST(step AS VARCHAR)";
            for row in texts(client, &format!("SELECT {columns} FROM {table}")) {
                let [id, asked, response, excluded, reward, step] = &row[..] else { panic!("{row:?}") };
                let sample = sample_of(id);
                let asked_for = prompt(id.strip_suffix("_0").unwrap()); // its input and turn
                assert_eq!((asked, table), (&asked_for, table_of(sample)), "seed {seed}: {id}");
                match is_left_out(sample) {
                    true => assert_eq!(excluded, STOP, "seed {seed}: {id}"),
                    false => {
                        let numbers: Vec<String> = whole(sample).iter().map(ToString::to_string).collect();
                        assert_eq!(response, &numbers.join(" "), "seed {seed}: {id}");
                        assert_eq!((excluded.as_str(), reward.as_str()), ("", "0.5"), "seed {seed}: {row:?}");
                        assert!(!step.is_empty(), "seed {seed}: {id} was not trained on");
                    }
                }
                assert!(found.insert(id.clone()), "seed {seed}: {id} twice");
            }
        }
        assert_eq!(found, self.inserted, "seed {seed}");
        let ended: BTreeSet<String> = self.finalized.union(&self.excluded).cloned().collect();
        assert_eq!(found, ended, "seed {seed}");
    }

    /// Every task was finished once: also where nobody heard of it.
    fn check_verdicts(&self, client: &Client, seed: u64) {
        let verdicts = texts(client, "SELECT sample_id, said FROM verdicts");
        let said: BTreeSet<String> = verdicts.iter().map(|row| row[1].clone()).collect();
        assert_eq!(said.len(), verdicts.len(), "seed {seed}: a row has two verdicts in {verdicts:?}");
        assert_eq!(said, self.finalized, "seed {seed}");
        assert!(self.finished.is_subset(&said), "seed {seed}");
    }

    /// The rows of every committed step are those that its trainer meant; no row is in two.
    fn check_steps(&self, client: &Client, seed: u64) {
        let mut rows: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for table in TABLES {
            for row in texts(
                client,
                &format!("SELECT sample_id, CAST(step AS VARCHAR) FROM {table} WHERE step IS NOT NULL"),
            ) {
                rows.entry(row[1].parse().unwrap()).or_default().insert(row[0].clone());
            }
        }
        for (step, rows) in &rows {
            assert_eq!(self.intended.get(step), Some(rows), "seed {seed}: step {step}");
        }
        let committed: BTreeSet<u64> = rows.keys().copied().collect();
        assert!(self.trained.is_subset(&committed), "seed {seed}: {:?} of {committed:?}", self.trained);
        for policy in TABLES {
            let [object] = &client.policy(policy).unwrap().objects[..] else {
                panic!("seed {seed}: {policy}")
            };
            let weights = String::from_utf8(client.object(object).unwrap()).unwrap();
            let trained: BTreeSet<&str> = weights.split(' ').filter(|id| !id.is_empty()).collect();
            let last = rows.last_key_value().unwrap().1;
            let of_policy = last.iter().filter(|id| table_of(sample_of(id)) == policy);
            assert_eq!(trained, of_policy.map(String::as_str).collect(), "seed {seed}: {policy}");
        }
    }
}

fn number(word: Option<String>) -> u64 {
    word.unwrap().parse().unwrap()
}

/// The rows of an answer whose columns are texts; NULL is the empty one.
fn texts(client: &Client, statement: &str) -> Vec<Vec<String>> {
    let (_, batches) = client.query(statement).unwrap();
    let text = |array: &dyn arrow_array::Array, at: usize| match array.is_null(at) {
        true => String::new(),
        false => match array.as_string_view_opt() {
            Some(texts) => texts.value(at).to_owned(),
            None => array.as_string::<i32>().value(at).to_owned(),
        },
    };
    let row = |batch: &arrow_array::RecordBatch, at| {
        batch.columns().iter().map(|array| text(array.as_ref(), at)).collect::<Vec<_>>()
    };
    batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|at| row(batch, at)).collect::<Vec<_>>())
        .collect()
}
