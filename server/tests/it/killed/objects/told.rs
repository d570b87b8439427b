//! What the processes told, and what has to hold of all of it together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::killed::process::Part;

pub(super) struct Told {
    campaign: u64,
    begun: BTreeSet<u64>,
    read: BTreeSet<u64>,
    received: BTreeSet<u64>,
    seeds: BTreeMap<u64, u64>,
    newest_set: u64,
    in_the_middle: BTreeSet<Part>,
    killed: BTreeMap<&'static str, (u64, u64)>,
}

impl Told {
    pub(super) fn new(campaign: u64) -> Self {
        Told {
            campaign,
            begun: BTreeSet::new(),
            read: BTreeSet::new(),
            received: BTreeSet::new(),
            seeds: BTreeMap::new(),
            newest_set: 0,
            in_the_middle: BTreeSet::new(),
            killed: BTreeMap::new(),
        }
    }

    pub(super) fn hear(&mut self, part: Part, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number =
            |at: usize| words[at].parse::<u64>().unwrap_or_else(|_| panic!("{part:?} told {line:?}"));
        self.in_the_middle.remove(&part);
        match words[0] {
            "serves" => {}
            "half" | "copies" => _ = self.in_the_middle.insert(part),
            "sets" => assert!(self.begun.insert(number(1))),
            "set" => {
                self.of_version(number(1), number(2));
                self.newest_set = self.newest_set.max(number(1));
            }
            "published" => {}
            "read" => {
                self.of_version(number(1), number(2));
                self.read.insert(number(2));
            }
            "received" => {
                let seed = number(1);
                assert!(self.received.insert(seed), "seed {}: {seed} was received twice", self.campaign);
            }
            _ => panic!("{part:?} told {line:?}"),
        }
    }

    /// A number stands for one set, whoever says so and when.
    pub(super) fn of_version(&mut self, version: u64, seed: u64) {
        let known = *self.seeds.entry(version).or_insert(seed);
        assert_eq!(known, seed, "seed {}: version {version} is two", self.campaign);
    }

    pub(super) fn is_in_the_middle(&self, part: Part) -> bool {
        self.in_the_middle.contains(&part)
    }

    pub(super) fn killed(&mut self, part: Part) {
        let in_the_middle = u64::from(self.in_the_middle.remove(&part));
        let (kills, middles) = self.killed.entry(part.as_str()).or_default();
        (*kills, *middles) = (*kills + 1, *middles + in_the_middle);
    }

    pub(super) fn killed_in_the_middle(&self) -> u64 {
        self.killed.values().map(|(_, middles)| middles).sum()
    }

    pub(super) fn newest_set(&self) -> u64 {
        self.newest_set
    }

    /// What was read was set by somebody.
    pub(super) fn check(&self) {
        let of_nobody: Vec<&u64> =
            self.read.union(&self.received).filter(|seed| !self.begun.contains(seed)).collect();
        assert!(of_nobody.is_empty(), "seed {}: nobody has set {of_nobody:?}", self.campaign);
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { begun, read, received, killed, .. } = self;
        let (begun, read, received) = (begun.len(), read.len(), received.len());
        write!(
            f,
            "{begun} sets begun, {read} versions read, {received} received; killed, and in the middle: {killed:?}"
        )
    }
}
