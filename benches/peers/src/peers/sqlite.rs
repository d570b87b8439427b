//! SQLite: write-ahead log, prepared statements, a connection a thread.
//!
//! One table a stage, for an update of a row writes all of its ten kilobytes anew. What is ready and not taken stands in
//! a partial index; a taker marks rows in one transaction and reads them in the next. SQLite knows no queue for its one
//! writer's lock, only sleeping and trying again, with which a busy writer starves the taker: here both take turns.

use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, TransactionBehavior};

use crate::Outcome;
use crate::columns::{Buffers, Columns};
use crate::peer::{Level, Native, Peer, Taker, Writer};
use crate::workload::{BATCH, MICRO_BATCH, Workload};

pub(crate) const PEER: Native = Native {
    name: "SQLite",
    version: || Ok(rusqlite::version().to_owned()),
    levels: &[Level::Logged, Level::Synced],
    note: |level| match level {
        Level::Synced => "WAL, synchronous=FULL (OFF for takes); no lease: rows of a dead taker stay marked",
        _ => {
            "WAL, synchronous=OFF: a power failure may corrupt it; no lease: rows of a dead taker stay marked"
        }
    },
    open: |workload, directory, level| Ok(Box::new(Sqlite::open(workload, directory, level)?)),
};

const TABLES: &str = "
    CREATE TABLE prompt (id INTEGER PRIMARY KEY, prompt BLOB NOT NULL);
    CREATE TABLE response (id INTEGER PRIMARY KEY, response BLOB NOT NULL, logprobs BLOB NOT NULL);
    CREATE TABLE reward (id INTEGER PRIMARY KEY, reward REAL NOT NULL, taken INTEGER NOT NULL);
    CREATE INDEX ready ON reward (id) WHERE taken = 0;";
const TAKE: &str = "UPDATE reward SET taken = 1 WHERE id IN
    (SELECT id FROM reward INDEXED BY ready WHERE taken = 0 ORDER BY id LIMIT ?) RETURNING id";
const READ: &str = "SELECT prompt, response, logprobs, reward
    FROM reward JOIN response USING (id) JOIN prompt USING (id) WHERE reward.id = ?";

struct Sqlite<'a> {
    workload: &'a Workload,
    path: PathBuf,
    level: Level,
    /// Held by whoever writes, and handed to whoever has waited longest.
    turn: Mutex<()>,
}

impl<'a> Sqlite<'a> {
    fn open(workload: &'a Workload, directory: &Path, level: Level) -> Outcome<Self> {
        let sqlite = Sqlite { workload, path: directory.join("samples.sqlite"), level, turn: Mutex::new(()) };
        sqlite.connect(false)?.execute_batch(TABLES)?;
        Ok(sqlite)
    }

    fn connect(&self, waits_for_disk: bool) -> Outcome<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.pragma_update(None, "page_size", 16_384)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", if waits_for_disk { "FULL" } else { "OFF" })?;
        connection.pragma_update(None, "cache_size", -262_144)?; // 256 MiB
        connection.pragma_update(None, "mmap_size", 8_i64 << 30)?;
        connection.pragma_update(None, "wal_autocheckpoint", 4_096)?; // every 64 MiB
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(connection)
    }
}

impl Peer for Sqlite<'_> {
    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        let connection = self.connect(self.level == Level::Synced)?;
        Ok(Box::new(In { sqlite: self, connection }))
    }

    fn taker(&self) -> Outcome<Box<dyn Taker + '_>> {
        Ok(Box::new(Out { sqlite: self, connection: self.connect(false)?, buffers: Buffers::default() }))
    }
}

struct In<'a> {
    sqlite: &'a Sqlite<'a>,
    connection: Connection,
}

impl Writer for In<'_> {
    fn write(&mut self, first: usize) -> Outcome<()> {
        let samples = || (first..first + BATCH).map(|row| (row as i64, self.sqlite.workload.sample(row)));
        let turn = self.sqlite.turn.lock();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut insert = transaction.prepare_cached("INSERT INTO prompt VALUES (?, ?)")?;
        for (row, sample) in samples() {
            insert.execute((row, &sample.prompt[..]))?;
        }
        drop(insert);
        transaction.commit()?;
        MutexGuard::unlock_fair(turn);
        let turn = self.sqlite.turn.lock();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut insert = transaction.prepare_cached("INSERT INTO response VALUES (?, ?, ?)")?;
        for (row, sample) in samples() {
            insert.execute((row, &sample.response[..], &sample.logprobs[..]))?;
        }
        drop(insert);
        transaction.commit()?;
        MutexGuard::unlock_fair(turn);
        let turn = self.sqlite.turn.lock();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut insert = transaction.prepare_cached("INSERT INTO reward VALUES (?, ?, 0)")?;
        for (row, sample) in samples() {
            insert.execute((row, sample.reward))?;
        }
        drop(insert);
        transaction.commit()?;
        MutexGuard::unlock_fair(turn);
        Ok(())
    }
}

struct Out<'a> {
    sqlite: &'a Sqlite<'a>,
    connection: Connection,
    buffers: Buffers,
}

impl Taker for Out<'_> {
    fn take(&mut self, read: &mut dyn FnMut(Columns<'_>)) -> Outcome<usize> {
        let turn = self.sqlite.turn.lock();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut take = transaction.prepare_cached(TAKE)?;
        let rows = take.query_map([MICRO_BATCH as i64], |row| row.get::<_, i64>(0))?;
        let rows = rows.collect::<Result<Vec<i64>, _>>()?;
        drop(take);
        transaction.commit()?;
        MutexGuard::unlock_fair(turn);

        let transaction = self.connection.transaction()?;
        let mut select = transaction.prepare_cached(READ)?;
        self.buffers.clear();
        for &id in &rows {
            let buffers = &mut self.buffers;
            select.query_row([id], |row| {
                let [prompt, response, logprobs] = [0, 1, 2].map(|column| row.get_ref(column));
                let lists = [prompt?.as_blob()?, response?.as_blob()?, logprobs?.as_blob()?];
                buffers.push(id as u64, lists, row.get(3)?);
                Ok(())
            })?;
        }
        if !rows.is_empty() {
            read(self.buffers.columns());
        }
        Ok(rows.len())
    }
}
