//! Objects under `kill -9`: processes that set versions and processes that copy them, killed in the middle, and the server among them.
//!
//! Every byte of a version follows from its seed, which its metadata name, so that a reader can say of each byte whether it belongs
//! there: a version that is made of two, or of half of one, would be seen by the first reader who copies it. Readers copy through
//! mappings, through the wire and, as processes beside the server, through the store's files. What they tell is put together here:
//! a number stands for one seed for ever, no version is older than one that was acknowledged before, and what was published is
//! received once.
//!
//! The long form: `FOREBAY_ROUNDS=1000 FOREBAY_SEED=7 cargo test -p forebay-server --test it killed_objects_long -- --ignored --nocapture`

mod content;
mod reader;
mod setter;
mod told;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use forebay_store::{Options, Randomness, SeededRandomness, Store, Which};

use super::SILENCE_MAX;
use super::process::{Heard, Life, Part, host_memory};
use told::Told;

pub(super) use reader::read;
pub(super) use setter::set;

/// So many of the newest versions stay, whoever holds them: the default.
const VERSIONS_KEPT: u64 = 2;

/// Even numbers use mappings, odd ones the wire; the last reader is a process beside the server.
const PARTS: [Part; 6] = [
    Part::Server,
    Part::Setter(0),
    Part::Setter(1),
    Part::Reader(0),
    Part::Reader(1),
    Part::Reader(reader::BESIDE),
];

struct Campaign {
    seed: u64,
    dice: SeededRandomness,
    dir: tempfile::TempDir,
    address: String,
    says: Sender<Heard>,
    hears: Receiver<Heard>,
    lives: BTreeMap<Part, Life>,
    told: Told,
}

impl Campaign {
    fn new(seed: u64) -> Self {
        let (says, hears) = channel();
        // An address of this process alone, so that nobody takes the port while the server is away.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let free = TcpListener::bind((format!("127.78.{high}.{low}"), 0)).unwrap();
        let address = free.local_addr().unwrap().to_string();
        let dir = tempfile::tempdir().unwrap();
        let (dice, told) = (SeededRandomness::new(seed), Told::new(seed));
        Campaign { seed, dice, dir, address, says, hears, lives: BTreeMap::new(), told }
    }

    fn begin(&mut self, part: Part) {
        let life = Life::begin(part, self.dir.path(), &self.address, "", self.says.clone());
        assert!(self.lives.insert(part, life).is_none());
    }

    /// Kills a part. All that it told is heard.
    fn kill(&mut self, part: Part) {
        self.lives.remove(&part).unwrap().kill(self.seed);
        let told: Vec<Heard> = self.hears.try_iter().collect();
        told.iter()
            .filter(|heard| heard.line.is_some() || heard.part != part)
            .for_each(|heard| self.take(heard));
        self.told.killed(part);
    }

    fn hear_one(&mut self) -> Part {
        let heard = self.hears.recv_timeout(SILENCE_MAX);
        let heard = heard.unwrap_or_else(|_| panic!("seed {}: everybody hangs", self.seed));
        self.take(&heard);
        heard.part
    }

    fn take(&mut self, heard: &Heard) {
        let Heard { part, line } = heard;
        let line = line.as_ref().unwrap_or_else(|| panic!("seed {}: {part:?} ended by itself", self.seed));
        self.told.hear(*part, line);
    }

    /// Somebody is killed, mostly as soon as he is heard to be in the middle of something.
    fn round(&mut self) {
        for _ in 0..self.dice.next_u64() % 20 {
            self.hear_one();
        }
        let victim = PARTS[self.dice.next_u64() as usize % PARTS.len()];
        if victim != Part::Server {
            let begun = Instant::now();
            while self.hear_one() != victim || !self.told.is_in_the_middle(victim) {
                let seed = self.seed;
                assert!(begun.elapsed() < SILENCE_MAX, "seed {seed}: {victim:?} gets nowhere, others do");
            }
        }
        self.kill(victim);
        for _ in 0..self.dice.next_u64() % 4 * u64::from(victim != Part::Server) {
            self.hear_one(); // the others go on meanwhile
        }
        self.begin(victim);
    }

    /// Kills everybody, and looks at what is there.
    fn end(mut self) -> Told {
        let clients: Vec<Part> = self.lives.keys().copied().filter(|part| *part != Part::Server).collect();
        clients.into_iter().for_each(|part| self.kill(part));
        self.kill(Part::Server);
        self.told.check();
        // Whoever opens the store next finds what was acknowledged, whole, and no memory that belongs to the dead.
        let options = || Options::default().objects(host_memory(self.dir.path()));
        for _ in 0..2 {
            let store = Store::open(self.dir.path().join("store"), options()).unwrap();
            let objects = store.objects().unwrap();
            let newest = objects.get(content::KEY, Which::Latest).unwrap();
            assert!(
                newest.version() >= self.told.newest_set(),
                "seed {}: an acknowledged set is lost",
                self.seed
            );
            for shown in objects.list() {
                if shown.once {
                    continue; // published, and received by nobody
                }
                let version = shown.manifest.version;
                let held = match objects.get(&shown.manifest.key, Which::Exact(version)) {
                    // A reader that is dead held it, and since it was listed that is known.
                    Err(_) if version + VERSIONS_KEPT <= newest.version() => continue,
                    held => held.unwrap(),
                };
                held.verify().unwrap();
                let seed = content::seed_of(held.manifest()).unwrap();
                self.told.of_version(held.version(), seed);
                content::check(seed, |tensor, buffer| held.tensor(tensor).unwrap().read(buffer).unwrap());
            }
            objects.run_once().unwrap();
            assert_eq!(objects.stats().quarantine_bytes, 0, "seed {}: the dead keep memory", self.seed);
        }
        self.told
    }
}

fn kill_again_and_again(seed: u64, rounds: u64) {
    let mut campaign = Campaign::new(seed);
    PARTS.into_iter().for_each(|part| campaign.begin(part));
    for _ in 0..rounds {
        campaign.round();
    }
    let told = campaign.end();
    eprintln!("seed {seed}: {told}");
    assert!(told.killed_in_the_middle() >= rounds / 3, "seed {seed}: {told}");
}

// FX-69: no partial object is ever visible
#[test]
fn whoever_is_killed_in_the_middle_no_version_is_mixed_and_none_is_lost() {
    kill_again_and_again(31, 16);
}

/// `FOREBAY_ROUNDS` rounds from `FOREBAY_SEED` on.
#[test]
#[ignore = "takes minutes"]
fn killed_objects_long() {
    super::long_form(500, 50, kill_again_and_again);
}
