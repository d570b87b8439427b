//! A small run: two agents, a trainer each, a step committed, another under way.

use forebay_query::{Format, Kind, Session};
use forebay_store::{
    Claim, Consumer, DataType, Element, GroupBy, MicroBatch, NewRow, Options, Schema, Step, StepPlan, Store,
    Table, Wait,
};
use serde_json::Value as Json;
use tempfile::TempDir;

/// An open store in a directory of its own, and a session over it.
pub(crate) struct Run {
    pub(crate) store: Store,
    pub(crate) session: Session,
    pub(crate) directory: TempDir,
}

impl Run {
    /// A store without tables.
    pub(crate) fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("store"), Options::default()).unwrap();
        let tokenizer = directory.path().join("tokenizer.json");
        std::fs::write(&tokenizer, TOKENIZER).unwrap();
        let options = forebay_query::Options::default().tokenizer("words", tokenizer);
        Run { session: Session::with_options(&store, &options).unwrap(), store, directory }
    }

    /// Tables `solver` and `checker` without rows, and their trainers.
    pub(crate) fn with_tables() -> Self {
        let run = Run::empty();
        for agent in ["solver", "checker"] {
            let schema = Schema::new()
                .data("prompt", DataType::Utf8)
                .data("response", DataType::list(Element::Int32))
                .data("reward", DataType::Float32);
            run.store.create_table(agent, schema).unwrap();
            let trainer = Consumer::trainer([agent]).ready(["response", "reward"]).group(GroupBy::Input, 2);
            run.store.create_consumer(&format!("train-{agent}"), trainer).unwrap();
        }
        run
    }

    /// As the documentation has it: step 1 trained on groups `q1` and `q2` of the solver; step 2 is open, with `q3`
    /// leased; of `q4` one row waits for its reward; one row was excluded.
    pub(crate) fn busy() -> (Self, Step, Claim) {
        let run = Run::with_tables();
        let solver = run.store.table("solver").unwrap();
        for (input, rewards) in [("q1", [1.0, 0.0]), ("q2", [0.5, 0.25])] {
            finished_group(&solver, 0, input, rewards);
        }
        run.commit_step("solver", &["q1", "q2"]);
        finished_group(&solver, 1, "q3", [1.0, 1.0]);
        solver.insert(1, "q4_0_0", [("prompt", PROMPT.into())]).unwrap();
        let cut = solver.insert(1, "q5_0_0", [("prompt", PROMPT.into())]).unwrap();
        solver.exclude(cut, "too_long").unwrap();
        let checker = run.store.table("checker").unwrap();
        finished_group(&checker, 0, "q1", [0.75, 0.75]);
        let train = run.store.consumer("train-solver").unwrap();
        let step = run.store.begin_step(StepPlan::new().groups(&train, ["q3", "q4"])).unwrap();
        let claim = step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
        (run, step, claim)
    }

    /// Trains on groups of one agent and commits.
    pub(crate) fn commit_step(&self, agent: &str, groups: &[&str]) -> u64 {
        let train = self.store.consumer(&format!("train-{agent}")).unwrap();
        let step = self.store.begin_step(StepPlan::new().groups(&train, groups.iter().copied())).unwrap();
        while let Some(claim) = step.next(&train, MicroBatch::of(2), Wait::No).unwrap() {
            claim.accumulated().unwrap();
        }
        step.commit([(agent, vec![])]).unwrap().step
    }

    /// The rows of a query, as objects.
    pub(crate) fn rows(&self, sql: &str) -> Vec<Json> {
        let answer = self.session.sql_blocking(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut document = Vec::new();
        answer.render(Format::Json, &mut document, None).unwrap();
        serde_json::from_slice(&document).unwrap()
    }

    /// The first column of a query.
    pub(crate) fn column(&self, sql: &str) -> Vec<Json> {
        self.rows(sql).iter().map(|row| row.as_object().unwrap().values().next().unwrap().clone()).collect()
    }

    /// The error of a query, which has to be of `kind`.
    pub(crate) fn error(&self, sql: &str, kind: Kind) -> String {
        let error = self.session.sql_blocking(sql).expect_err(sql);
        assert_eq!(error.kind(), kind, "{sql}: {error}");
        error.to_string()
    }
}

/// An answer as lines of CSV, names first.
pub(crate) fn lines(session: &Session, sql: &str) -> Vec<String> {
    let answer = session.sql_blocking(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut text = Vec::new();
    answer.render(Format::Csv, &mut text, None).unwrap();
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

/// The same in no order.
pub(crate) fn sorted_lines(session: &Session, sql: &str) -> Vec<String> {
    let mut lines = lines(session, sql);
    lines.sort_unstable();
    lines
}

/// Every token of the rows here is a word.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": {"type": "WordLevel", "unk_token": "zero",
    "vocab": {"zero": 0, "two": 1, "four": 2, "is": 3, "the": 4, "sum": 5, "of": 6, "and": 7, "a": 8, "b": 9, "c": 10,
        "d": 11, "e": 12, "f": 13, "g": 14, "h": 15}}}"#;

/// Long enough to lie in an extent.
pub(crate) const PROMPT: &str = "What is 2 + 2? Answer with a number.";

/// Two finished rows of one input; the checker's continue the solver's.
pub(crate) fn finished_group(table: &Table, version: u64, input: &str, rewards: [f32; 2]) {
    for (trajectory, reward) in rewards.into_iter().enumerate() {
        let id = format!("{input}_0_{trajectory}");
        let new = NewRow::new(version, &id).unwrap();
        let new = if table.name() == "checker" { new.parent(&format!("solver/{id}")) } else { new };
        let row = table.insert_row(new, [("prompt", PROMPT.into())]).unwrap();
        let tokens: Vec<i32> = (0..16).collect();
        table.write(row, [("response", tokens.into())]).unwrap();
        table.write(row, [("reward", f64::from(reward).into())]).unwrap();
    }
}
