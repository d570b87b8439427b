//! The end of a campaign: who holds something dies, and somebody else gets all of it.

use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use forebay_client::{Client, Plan, Step};
use forebay_store::{MicroBatch, Wait};

use super::process::{Part, connect, socket};
use super::promised::TABLES;
use super::{Campaign, PARTS, SILENCE_MAX, judge, trainer};

impl Campaign {
    /// Lets rollouts finish what they are at, kills the others while they hold rows, takes everything, and looks at it.
    pub(super) fn end(&mut self) {
        std::fs::write(self.dir.path().join("enough"), "").unwrap();
        let clients: Vec<Part> = PARTS.into_iter().filter(|part| *part != Part::Server).collect();
        while !clients.iter().all(|part| self.promised.at_the_end.contains(part)) {
            self.hear_one();
        }
        clients.into_iter().for_each(|part| self.kill(part));
        let client = connect(&socket(self.dir.path()));
        judge_the_rest(&client);
        while self.train_the_rest(&client) {}
        assert_eq!(count(&client, "system.claims WHERE state IN ('leased', 'accumulated')"), 0);
        self.kill(Part::Server);
        drop(client);
        self.promised.check(&self.dir.path().join("store"), self.seed);
    }

    /// One step over what is left; whether there was anything.
    fn train_the_rest(&mut self, client: &Client) -> bool {
        let left = TABLES
            .map(|table| count(client, &format!("{table} WHERE step IS NULL AND excluded_reason IS NULL")));
        if left == [0, 0] {
            return false;
        }
        let name = |table| format!("train-{table}");
        let plan = TABLES.into_iter().zip(left).filter(|(_, rows)| *rows > 0);
        let plan = plan.fold(Plan::new(), |plan, (table, rows)| plan.rows(&name(table), rows));
        let mut step = self.begin_step(client, &plan);
        let trained = TABLES.map(|table| {
            let consumer = client.consumer(&name(table)).unwrap();
            let mut taken = Vec::new();
            while !step.is_complete(&consumer).unwrap() {
                let claim = step.next(&consumer, MicroBatch::up_to(50), Wait::For(SILENCE_MAX)).unwrap();
                let claim = claim.unwrap_or_else(|| panic!("seed {}: rows of {table} are gone", self.seed));
                taken.extend(claim.sample_ids().iter().map(ToString::to_string));
                claim.accumulated().unwrap();
            }
            taken
        });
        let promised = &mut self.promised;
        let number = trainer::commit(client, &mut step, &trained, |line| promised.hear(Part::Trainer, line));
        self.promised.hear(Part::Trainer, &format!("trained {}", number.unwrap()));
        true
    }

    /// Begins a step as soon as that of the dead trainer is given up.
    fn begin_step(&self, client: &Client, plan: &Plan) -> Step {
        let begun = Instant::now();
        loop {
            match client.begin_step(plan) {
                Ok(step) => return step,
                Err(error) => assert_eq!(error.cause(), "StepOpen", "{error}"),
            }
            assert!(begun.elapsed() < SILENCE_MAX, "seed {}: a dead trainer's step stays open", self.seed);
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Judges what no judge has: also what the dead ones held.
fn judge_the_rest(client: &Client) {
    let judge = client.consumer("judge").unwrap();
    let unjudged = || {
        let of =
            |table| count(client, &format!("{table} WHERE NOT reward_status AND excluded_reason IS NULL"));
        TABLES.map(of).iter().sum::<u64>()
    };
    while unjudged() > 0 {
        let claim = judge.claim(MicroBatch::up_to(50), Wait::For(SILENCE_MAX)).unwrap();
        judge::finish(claim.expect("what dead judges held comes back")).unwrap();
    }
}

fn count(client: &Client, of: &str) -> u64 {
    let (_, rows) = client.query(&format!("SELECT count(*) AS n FROM {of}")).unwrap();
    rows[0].column(0).as_primitive::<Int64Type>().value(0) as u64
}
