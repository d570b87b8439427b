//! A server and its clients, each a real process, killed at random moments and independently of each other.
//!
//! The test runs itself again as a server, rollouts, judges and a trainer, half of them over a socket and half over TCP. They tell
//! over a pipe what was acknowledged, line by line ([`process`]). After a number of lines that the seed chooses somebody is
//! killed (`kill -9`), and begun again; everybody else goes on. In the end the last lives of judges and trainer are killed
//! while they hold rows: a client that comes after them must get all of it, from the same server. Then the server is
//! killed too, and what was told is held against what the store's directory says ([`promised`]).
//!
//! The long form: `FOREBAY_ROUNDS=300 FOREBAY_SEED=7 cargo test -p forebay-server --test it killed_long -- --ignored --nocapture`

mod ending;
mod judge;
mod objects;
mod process;
mod promised;
mod rollout;
mod trainer;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use forebay_store::{Randomness, SeededRandomness};

use process::{Heard, Life, Part};
use promised::Promised;

/// Everybody who may be killed.
const PARTS: [Part; 8] = [
    Part::Server,
    Part::Rollout(0),
    Part::Rollout(1),
    Part::Rollout(2),
    Part::Rollout(3),
    Part::Judge(0),
    Part::Judge(1),
    Part::Trainer,
];

/// Far longer than any call may take: who says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(240);

/// All processes of a campaign.
struct Campaign {
    seed: u64,
    dice: SeededRandomness,
    dir: tempfile::TempDir,
    /// Where the server listens over TCP, in each of its lives.
    address: String,
    says: Sender<Heard>,
    hears: Receiver<Heard>,
    lives: BTreeMap<Part, Life>,
    promised: Promised,
    killed: BTreeMap<&'static str, u64>,
}

impl Campaign {
    fn new(seed: u64) -> Self {
        let (says, hears) = channel();
        // An address of this process alone, so that nobody takes the port while the server is away.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let free = TcpListener::bind((format!("127.77.{high}.{low}"), 0)).unwrap();
        let address = free.local_addr().unwrap().to_string();
        Campaign {
            seed,
            dice: SeededRandomness::new(seed),
            dir: tempfile::tempdir().unwrap(),
            address,
            says,
            hears,
            lives: BTreeMap::new(),
            promised: Promised::default(),
            killed: BTreeMap::new(),
        }
    }

    /// Begins the next life of a part, which goes on where the last was heard of.
    fn begin(&mut self, part: Part) {
        let from = self.promised.begun.get(&part).cloned().unwrap_or_default();
        let life = Life::begin(part, self.dir.path(), &self.address, &from, self.says.clone());
        assert!(self.lives.insert(part, life).is_none());
    }

    /// Kills a part. All that it told is heard.
    fn kill(&mut self, part: Part) {
        let life = self.lives.remove(&part).unwrap();
        life.kill(self.seed);
        let told: Vec<Heard> = self.hears.try_iter().collect();
        told.iter()
            .filter(|heard| heard.line.is_some() || heard.part != part)
            .for_each(|heard| self.take(heard));
        *self.killed.entry(part.as_str()).or_default() += 1;
    }

    /// Waits for so many lines.
    fn hear(&mut self, lines: u64) {
        for _ in 0..lines {
            self.hear_one();
        }
    }

    fn hear_one(&mut self) {
        let heard = self.hears.recv_timeout(SILENCE_MAX);
        let heard = heard.unwrap_or_else(|_| panic!("seed {}: everybody hangs", self.seed));
        self.take(&heard);
    }

    fn take(&mut self, heard: &Heard) {
        let Heard { part, line } = heard;
        let line = line.as_ref().unwrap_or_else(|| panic!("seed {}: {part:?} ended by itself", self.seed));
        self.promised.hear(*part, line);
    }

    /// Somebody, more often the server.
    fn victim(&self) -> Part {
        match self.dice.next_u64() % 3 {
            0 => Part::Server,
            _ => PARTS[1 + self.dice.next_u64() as usize % (PARTS.len() - 1)],
        }
    }

    fn round(&mut self) {
        self.hear(1 + self.dice.next_u64() % 60);
        let victim = self.victim();
        self.kill(victim);
        if self.dice.next_u64().is_multiple_of(4) {
            let other = PARTS[1 + self.dice.next_u64() as usize % (PARTS.len() - 1)];
            if other != victim {
                self.kill(other);
                self.begin(other);
            }
        }
        if self.dice.next_u64().is_multiple_of(2) {
            self.hear(if victim == Part::Server { 0 } else { 10 }); // the others go on meanwhile
        }
        self.begin(victim);
    }
}

fn kill_again_and_again(seed: u64, rounds: u64) {
    let mut campaign = Campaign::new(seed);
    PARTS.into_iter().for_each(|part| campaign.begin(part));
    for _ in 0..rounds {
        campaign.round();
    }
    campaign.end();
    let Campaign { killed, promised, .. } = &campaign;
    eprintln!("seed {seed}: killed {killed:?}; {}", promised.summary());
}

#[test]
fn whoever_is_killed_what_was_told_is_there_and_what_was_held_comes_back() {
    kill_again_and_again(21, 14);
}

/// `FOREBAY_ROUNDS` rounds from `FOREBAY_SEED` on.
#[test]
#[ignore = "takes minutes"]
fn killed_long() {
    long_form(300, 30, kill_again_and_again);
}

/// So many rounds from a seed of 100 on, where the environment says nothing else, in campaigns of a directory and a seed each.
fn long_form(rounds: u64, of_a_campaign: u64, campaign: impl Fn(u64, u64)) {
    let from = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (rounds, seed) = (from("FOREBAY_ROUNDS", rounds), from("FOREBAY_SEED", 100));
    for number in 0..rounds.div_ceil(of_a_campaign) {
        campaign(seed + number, of_a_campaign.min(rounds - of_a_campaign * number));
    }
}
