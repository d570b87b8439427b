//! LMDB: a memory-mapped B+ tree with one writer at a time.
//!
//! One tree a stage, for a value that grows later would have to be written anew; a response and its log-probabilities are
//! one value, for they come together and long values begin on pages of their own. Keys ascend, so puts append. A
//! fourth tree holds the rows that are ready: a taker removes them in a write transaction, and then reads their values
//! straight from the map.

use std::path::Path;

use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64, Unit};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags};

use crate::Outcome;
use crate::columns::{Buffers, Columns};
use crate::peer::{Level, Native, Peer, Taker, Writer};
use crate::workload::{BATCH, MICRO_BATCH, Workload};

/// Address space only: blocks are taken as they are written.
const MAP_BYTES: usize = 8 << 30;

pub(crate) const PEER: Native = Native {
    name: "LMDB",
    version: || {
        let heed::LmdbVersion { major, minor, patch, .. } = heed::lmdb_version();
        Ok(format!("{major}.{minor}.{patch}"))
    },
    levels: &[Level::Logged, Level::Synced],
    note: |level| match level {
        Level::Synced => {
            "a take is a commit that waits for the disk; no lease: rows of a dead taker are gone; no checksums"
        }
        _ => {
            "MDB_NOSYNC and MDB_WRITEMAP: a power failure may corrupt it all, not only lose the end; no lease: rows of a dead taker are gone; \
             no checksums"
        }
    },
    open: |workload, directory, level| Ok(Box::new(Lmdb::open(workload, directory, level)?)),
};

type Tree<V> = Database<U64<BigEndian>, V>;

struct Lmdb<'a> {
    workload: &'a Workload,
    env: Env,
    prompts: Tree<Bytes>,
    responses: Tree<Bytes>,
    rewards: Tree<Bytes>,
    ready: Tree<Unit>,
}

impl<'a> Lmdb<'a> {
    fn open(workload: &'a Workload, directory: &Path, level: Level) -> Outcome<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_dbs(4);
        if level != Level::Synced {
            #[allow(unsafe_code, reason = "LMDB's own words for not waiting for the disk")]
            // SAFETY: without syncs a crash of the machine may leave a corrupt file. This one is deleted after the run.
            unsafe {
                options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP);
            }
        }
        #[allow(unsafe_code, reason = "LMDB maps its file")]
        // SAFETY: the directory was made for this repetition, and nobody else opens, truncates or writes what is in it.
        let env = unsafe { options.open(directory)? };
        let mut transaction = env.write_txn()?;
        let prompts = env.create_database(&mut transaction, Some("prompts"))?;
        let responses = env.create_database(&mut transaction, Some("responses"))?;
        let rewards = env.create_database(&mut transaction, Some("rewards"))?;
        let ready = env.create_database(&mut transaction, Some("ready"))?;
        transaction.commit()?;
        Ok(Lmdb { workload, env, prompts, responses, rewards, ready })
    }

    fn value<'t>(transaction: &'t heed::RoTxn<'_>, tree: Tree<Bytes>, row: u64) -> Outcome<&'t [u8]> {
        Ok(tree.get(transaction, &row)?.ok_or_else(|| format!("row {row} is ready and has no value"))?)
    }
}

impl Peer for Lmdb<'_> {
    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        Ok(Box::new(Hand { lmdb: self, buffers: Buffers::default() }))
    }

    fn taker(&self) -> Outcome<Box<dyn Taker + '_>> {
        Ok(Box::new(Hand { lmdb: self, buffers: Buffers::default() }))
    }
}

struct Hand<'a> {
    lmdb: &'a Lmdb<'a>,
    buffers: Buffers,
}

impl Writer for Hand<'_> {
    fn write(&mut self, first: usize) -> Outcome<()> {
        let Lmdb { workload, env, prompts, responses, rewards, ready } = self.lmdb;
        let samples = || (first..first + BATCH).map(|row| (row as u64, workload.sample(row)));
        let mut transaction = env.write_txn()?;
        for (row, sample) in samples() {
            prompts.put_with_flags(&mut transaction, PutFlags::APPEND, &row, &sample.prompt)?;
        }
        transaction.commit()?;
        let mut transaction = env.write_txn()?;
        for (row, sample) in samples() {
            let bytes = sample.response.len() + sample.logprobs.len();
            responses.put_reserved(&mut transaction, &row, bytes, |space| {
                std::io::Write::write_all(space, &sample.response)?;
                std::io::Write::write_all(space, &sample.logprobs)
            })?;
        }
        transaction.commit()?;
        let mut transaction = env.write_txn()?;
        for (row, sample) in samples() {
            rewards.put_with_flags(&mut transaction, PutFlags::APPEND, &row, &sample.reward.to_le_bytes())?;
            ready.put_with_flags(&mut transaction, PutFlags::APPEND, &row, &())?;
        }
        transaction.commit()?;
        Ok(())
    }
}

impl Taker for Hand<'_> {
    fn take(&mut self, read: &mut dyn FnMut(Columns<'_>)) -> Outcome<usize> {
        let Lmdb { env, prompts, responses, rewards, ready, .. } = self.lmdb;
        let transaction = env.read_txn()?;
        if ready.is_empty(&transaction)? {
            return Ok(0); // without waiting for the writer's transaction
        }
        drop(transaction);
        let mut transaction = env.write_txn()?;
        let mut rows = Vec::with_capacity(MICRO_BATCH);
        for entry in ready.iter(&transaction)?.take(MICRO_BATCH) {
            rows.push(entry?.0);
        }
        for row in &rows {
            ready.delete(&mut transaction, row)?;
        }
        transaction.commit()?;

        let transaction = env.read_txn()?;
        self.buffers.clear();
        for row in rows {
            let prompt = Lmdb::value(&transaction, *prompts, row)?;
            let both = Lmdb::value(&transaction, *responses, row)?;
            let (response, logprobs) = both.split_at(both.len() / 2);
            let reward = Lmdb::value(&transaction, *rewards, row)?;
            self.buffers.push(row, [prompt, response, logprobs], f32::from_le_bytes(reward.try_into()?));
        }
        read(self.buffers.columns());
        Ok(self.buffers.rows.len())
    }
}
