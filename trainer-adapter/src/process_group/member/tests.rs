#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};

use super::*;
use crate::process_group::launcher::{Link, RankProcess};
use crate::scheduler::DeviceId;

/// A rank that sends an answer byte by byte, and each in time.
struct Dripping {
    begun: Vec<u8>,
    given: usize,
}

impl Read for Dripping {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(first) = bytes.first_mut() else { return Ok(0) };
        *first = self.begun.get(self.given).copied().unwrap_or_default();
        self.given += 1;
        Ok(1)
    }
}

impl Write for Dripping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link for Dripping {
    fn set_time_limit(&self, _limit: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

struct Nobody;

impl RankProcess for Nobody {
    fn pid(&self) -> u32 {
        0
    }

    fn wait(&mut self, _limit: Duration) -> io::Result<Option<(Option<i32>, Option<i32>)>> {
        Ok(Some((None, None)))
    }

    fn kill(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Launcher for Nobody {
    /// The answer would have 64 MiB: at a byte a read that takes much longer than the test gives it.
    fn spawn(&self, _place: &RankPlace) -> io::Result<Launched> {
        let begun = [b"FBPG".as_slice(), &[18], &(64_u64 << 20).to_le_bytes()].concat();
        Ok(Launched { process: Box::new(Nobody), link: Box::new(Dripping { begun, given: 0 }) })
    }

    fn folder(&self, _node: &str) -> PathBuf {
        PathBuf::new()
    }
}

#[test]
fn a_rank_that_answers_byte_by_byte_is_lost_when_the_time_of_the_command_is_over() {
    let place = RankPlace {
        agent: "solver".into(),
        rank: 0,
        world: 1,
        node: "a".into(),
        device: DeviceId("a-0".into()),
        socket: PathBuf::new(),
    };
    let limit = Duration::from_millis(20);
    let mut asked = Member::spawn(&Nobody, &place).unwrap();
    let fault = asked.ask(&Command::Forget { position: None }, limit).map(drop).unwrap_err();
    assert_eq!(fault.reason, "it did not answer in time");
    let mut greeted = Member::spawn(&Nobody, &place).unwrap();
    assert_eq!(greeted.greet(limit).unwrap_err().reason, "it did not answer in time");
}
