//! Takes a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::capture::{Capture, TableCapture, capture};
use super::consumers::ConsumerCapture;
use super::let_go::let_go;
use super::manifest::*;
use super::pages::{self, PagesWriter, image_bytes};
use super::unnamed::LookedAt;
use crate::consumer::GroupRuns;
use crate::directory::Directory;
use crate::error::Result;
use crate::index::{self, Entry, Run, entry};
use crate::numbered::Numbered;
use crate::page::{Content, CowArc, Page, Storable, StoredAt};
use crate::shared::Shared;
use crate::state::runs_of;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, Rank};
use crate::table::{CHUNK_ROWS, Chunk, Identity};
use crate::texts::{self, TextId};

/// Fewer new entries than this are left to be indexed when the store is opened.
const RUN_ENTRIES_MIN: usize = CHUNK_ROWS;

/// What is known of the last checkpoint, and the lock under which the next one is taken.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    last: Mutex<Last>,
    /// The first record that the last checkpoint does not cover.
    covered: AtomicU64,
    /// Bytes of the pages files that the last checkpoint names.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Last {
    number: u32,
    files: Vec<FileImage>,
    texts: LookedAt,
}

impl Last {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// What a checkpoint came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// How many checkpoints the store has had.
    pub number: u32,
    /// Records of the log that need no replay any more.
    pub next_sequence: u64,
    /// Bytes of page images that were written, those that had not changed not counted.
    pub bytes_written: u64,
    /// Bytes of all page images that it names.
    pub bytes_named: u64,
}

impl Checkpointer {
    /// Goes on after the checkpoint that the store was opened from.
    pub(crate) fn after(manifest: Option<&Manifest>) -> Self {
        let last = manifest.map(|manifest| Last {
            number: manifest.number,
            files: manifest.files.clone(),
            texts: LookedAt::after(manifest),
        });
        let covered = AtomicU64::new(manifest.map_or(0, |manifest| manifest.next_sequence));
        let last = last.unwrap_or_default();
        let bytes = AtomicU64::new(last.bytes());
        Checkpointer { last: Mutex::ranked(Rank::Checkpoint, last), covered, bytes }
    }

    /// Bytes of the pages files that the last checkpoint names.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many records have been logged since the last checkpoint.
    fn uncovered(&self, shared: &Shared) -> u64 {
        shared.log.next_sequence().saturating_sub(self.covered.load(Ordering::Acquire))
    }

    /// Takes a checkpoint of everything applied so far.
    pub(crate) fn take(&self, shared: &Shared) -> Result<CheckpointReport> {
        self.take_after(shared, &mut self.last.lock())
    }

    /// Takes a checkpoint, and lets go of what it holds as well.
    fn take_and_let_go(&self, shared: &Shared) -> Result<()> {
        let mut last = self.last.lock();
        self.take_after(shared, &mut last)?;
        let_go(shared, &last.files)
    }

    fn take_after(&self, shared: &Shared, last: &mut Last) -> Result<CheckpointReport> {
        let (mut captured, next_sequence) = {
            let mut state = shared.state.lock();
            (capture(&mut state), shared.log.next_sequence())
        };
        // After the state was captured: what it names may be over and used again by now, and the records that say so come with this.
        shared.sync_all_and_carried()?;
        let directory = &*shared.directory;
        let before = pages::greatest(directory)?;
        let runs = NewRuns::of(&captured);
        let mut texts = last.texts;
        let unnamed = texts.unnamed(&captured);
        captured.texts.forget(&unnamed);
        let written = write(directory, last, captured, (&runs, next_sequence));
        let (manifest, placed) = written.inspect_err(|_| remove_written(directory, last, before))?;
        shared.log.prove(next_sequence);
        placed.iter().for_each(|(page, at)| page.set_stored(*at));
        runs.install(shared, &unnamed);
        self.covered.store(next_sequence, Ordering::Release);
        let report = CheckpointReport {
            number: manifest.number,
            next_sequence,
            bytes_written: placed.iter().map(|(_, at)| image_bytes(at.parts)).sum(),
            bytes_named: manifest.files.iter().map(|file| file.bytes).sum(),
        };
        self.bytes.store(report.bytes_named, Ordering::Relaxed);
        *last = Last { number: manifest.number, files: manifest.files, texts };
        // Asked only now, when nobody who begins to read needs what is to go.
        if directory.may_give_away(next_sequence) {
            retire_pages(directory, &last.files);
            shared.log.retire(next_sequence);
        }
        tracing::info!(?report, "checkpoint taken");
        Ok(report)
    }
}

/// Writes the pages that have changed and the manifest that names them.
fn write(
    directory: &Directory,
    last: &Last,
    captured: Capture,
    (runs, next_sequence): (&NewRuns, u64),
) -> Result<(Manifest, Placed)> {
    let mut store = PageStore::new(directory, last, &captured)?;
    let manifest = store.manifest(captured, runs, last.number + 1, next_sequence)?;
    let (manifest, placed) = store.finish(manifest)?;
    manifest.write(directory)?;
    Ok((manifest, placed))
}

/// Removes what a checkpoint that failed has written, or the next attempts would fill the disk: pages files after `before`. They
/// stay where the manifest that names them may be in its place, and was not made sure of.
fn remove_written(directory: &Directory, last: &Last, before: u32) {
    let in_place = Manifest::read(directory).map(|manifest| manifest.map_or(0, |manifest| manifest.number));
    if in_place.is_ok_and(|number| number == last.number) {
        remove_pages(directory, |number| number > before);
    }
}

/// Removes pages files that no manifest names. What cannot be removed now is tried again after the next checkpoint.
pub(super) fn retire_pages(directory: &Directory, named: &[FileImage]) {
    remove_pages(directory, |number| named.iter().all(|file| file.number != number));
}

fn remove_pages(directory: &Directory, goes: impl Fn(u32) -> bool) {
    let Ok(files) = directory.disk.list(&directory.pages()) else { return };
    let goes = |path: &PathBuf| Numbered::Pages.number(path).is_some_and(&goes);
    for path in files.into_iter().filter(goes) {
        if let Err(error) = directory.disk.remove(&path) {
            tracing::warn!(path = %path.display(), %error, "a pages file could not be removed");
        }
    }
}

/// The runs of all indexes, what is new merged in.
struct NewRuns {
    texts: Vec<Run>,
    tables: Vec<Vec<Run>>,
    /// Over the names of groups, by consumer.
    groups: Vec<Vec<GroupRuns>>,
}

impl NewRuns {
    fn of(captured: &Capture) -> Self {
        let text = |number: u32| entry(texts::hash(captured.texts.get(TextId(number))), number);
        let fresh = runs_end(&captured.text_runs)..captured.text_count;
        // Of a page that goes with this very checkpoint too: a text of it may have been named since.
        let there = |number: u32| !captured.texts.is_gone(TextId(number).page());
        let fresh = fresh.filter(|number| there(*number));
        let texts = merge(&captured.text_runs, fresh.map(text), captured.text_count, there);
        NewRuns {
            texts,
            tables: captured.tables.iter().map(Self::of_table).collect(),
            groups: captured.consumers.iter().map(ConsumerCapture::new_runs).collect(),
        }
    }

    fn of_table(table: &TableCapture) -> Vec<Run> {
        let chunk = |row: u32| (&table.chunks[row as usize / CHUNK_ROWS], row as usize % CHUNK_ROWS);
        let alive = |row: u32| {
            let (chunk, at) = chunk(row);
            !chunk.is_removed(at)
        };
        let fresh = (runs_end(&table.runs)..table.rows).filter(|row| alive(*row)).map(|row| {
            let (chunk, at) = chunk(row);
            entry(Identity::of(&chunk.meta(at)).hash(), row)
        });
        merge(&table.runs, fresh, table.rows, alive)
    }

    /// From here on lookups use the runs, and texts that nobody names are gone.
    fn install(self, shared: &Shared, unnamed: &[u32]) {
        let mut state = shared.state.lock();
        state.texts.index.install(self.texts);
        state.texts.forget(unnamed);
        for (table, runs) in state.tables.iter_mut().zip(self.tables) {
            table.index.install(runs);
        }
        for (consumer, runs) in state.consumers.iter_mut().zip(self.groups) {
            consumer.install_runs(runs);
        }
    }
}

fn runs_end(runs: &[Run]) -> u32 {
    runs.last().map_or(0, |run| run.end)
}

pub(super) fn merge(
    runs: &[Run],
    fresh: impl Iterator<Item = Entry>,
    end: u32,
    alive: impl Fn(u32) -> bool,
) -> Vec<Run> {
    if ((end - runs_end(runs)) as usize) < RUN_ENTRIES_MIN {
        return runs.to_vec();
    }
    index::merged(runs, fresh.collect(), end, alive)
}

type Placed = Vec<(Box<dyn Storable + Send + Sync>, StoredAt)>;

/// Brings pages to where the manifest will name them.
pub(super) struct PageStore<'a> {
    writer: PagesWriter<'a>,
    files: Vec<FileImage>,
    /// Files of which so little is left that the rest is written anew.
    emptied: BTreeSet<u32>,
    used: BTreeSet<u32>,
    placed: Placed,
}

impl<'a> PageStore<'a> {
    fn new(directory: &'a Directory, last: &Last, captured: &Capture) -> Result<Self> {
        let mut live: BTreeMap<u32, u64> = BTreeMap::new();
        let mut count = |at: Option<StoredAt>| {
            let at = at.unwrap_or_default();
            *live.entry(at.file).or_default() += image_bytes(at.parts);
        };
        captured.texts.pages().iter().for_each(|page| count(page.stored_at()));
        captured.text_runs.iter().for_each(|run| count(run.entries.stored_at()));
        captured.consumers.iter().flat_map(ConsumerCapture::stored).for_each(|at| count(Some(at)));
        for table in &captured.tables {
            table.runs.iter().for_each(|run| count(run.entries.stored_at()));
            let chunks = table.chunks.iter().filter(|chunk| !chunk.is_gone());
            chunks.flat_map(|chunk| chunk.pages()).for_each(|page| count(page.stored_at()));
        }
        let little = |file: &&FileImage| live.get(&file.number).copied().unwrap_or(0) * 4 < file.bytes;
        Ok(PageStore {
            writer: PagesWriter::new(directory)?,
            emptied: last.files.iter().filter(little).map(|file| file.number).collect(),
            files: last.files.clone(),
            used: BTreeSet::new(),
            placed: Vec::new(),
        })
    }

    fn place<C: Content + Send + Sync + 'static>(&mut self, page: &CowArc<Page<C>>) -> Result<StoredAt> {
        if let Some(at) = page.stored_at().filter(|at| !self.emptied.contains(&at.file)) {
            self.used.insert(at.file);
            return Ok(at);
        }
        let at = self.writer.write(&page.image())?;
        self.used.insert(at.file);
        self.placed.push((Box::new(page.clone()), at));
        Ok(at)
    }

    pub(super) fn place_all<C: Content + Send + Sync + 'static>(
        &mut self,
        pages: &[CowArc<Page<C>>],
    ) -> Result<Vec<StoredAt>> {
        pages.iter().map(|page| self.place(page)).collect()
    }

    pub(super) fn runs(&mut self, runs: &[Run]) -> Result<Vec<RunImage>> {
        let image = |run: &Run| Ok(RunImage { end: run.end, entries: self.place(&run.entries)? });
        runs.iter().map(image).collect()
    }

    fn chunk(&mut self, chunk: &Chunk) -> Result<ChunkImage> {
        Ok(ChunkImage {
            rows: chunk.rows as u32,
            open: chunk.summary.open,
            removed_rows: chunk.summary.removed,
            version_min: chunk.summary.version_min,
            version_max: chunk.summary.version_max,
            meta: self.place(&chunk.meta)?,
            status: self.place(&chunk.status)?,
            removed: self.place(&chunk.removed)?,
            columns: self.place_all(&chunk.columns)?,
            words: self.place_all(&chunk.words)?,
        })
    }

    fn table(&mut self, table: TableCapture, runs: &[Run]) -> Result<TableImage> {
        let (gone, there): (Vec<_>, Vec<_>) =
            table.chunks.iter().zip(0..).partition(|(chunk, _)| chunk.is_gone());
        let gone: Vec<u32> = gone.into_iter().map(|(_, number)| number).collect();
        let chunks = there.into_iter().map(|(chunk, _)| self.chunk(chunk)).collect::<Result<_>>()?;
        Ok(TableImage {
            name: table.name,
            policy: table.policy,
            columns: table.columns,
            written: table.counts.written,
            consumed: table.counts.consumed,
            excluded: table.counts.excluded.into_iter().collect(),
            gone: runs_of(&gone),
            chunks,
            runs: self.runs(runs)?,
            partials: table.partials,
            rare: table.rare,
            tallies: table.tallies,
            schema_version: table.schema_version,
        })
    }

    /// Places every page and says where all of them are.
    fn manifest(
        &mut self,
        captured: Capture,
        runs: &NewRuns,
        number: u32,
        next_sequence: u64,
    ) -> Result<Manifest> {
        let texts =
            TextsImage { pages: self.place_all(captured.texts.pages())?, runs: self.runs(&runs.texts)? };
        let tables = captured.tables.into_iter().zip(&runs.tables);
        let tables = tables.map(|(table, runs)| self.table(table, runs)).collect::<Result<_>>()?;
        let consumers = captured.consumers.into_iter().zip(&runs.groups);
        let consumers = consumers.map(|(consumer, runs)| self.consumer(consumer, runs));
        Ok(Manifest {
            number,
            next_sequence,
            commits: captured.commits,
            rewind_floor: captured.rewind_floor,
            incarnation: captured.incarnation,
            files: Vec::new(),
            policies: captured.policies,
            texts,
            tables,
            consumers: consumers.collect::<Result<_>>()?,
            claims: captured.claims,
            next_claim: captured.next_claim,
            steps: captured.steps,
            liveness: captured.liveness,
        })
    }

    /// Makes the pages stable and completes the manifest with the files that it names.
    fn finish(self, mut manifest: Manifest) -> Result<(Manifest, Placed)> {
        let written = self.writer.finish()?;
        let files = self.files.into_iter().chain(written);
        manifest.files = files.filter(|file| self.used.contains(&file.number)).collect();
        Ok((manifest, self.placed))
    }
}

impl Shared {
    /// Takes a checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<CheckpointReport> {
        self.check_writable("take a checkpoint")?;
        self.checkpointer.take(self)
    }

    /// Takes a checkpoint, and maps its pages instead of holding them.
    pub(crate) fn checkpoint_and_map(&self) -> Result<()> {
        self.check_writable("take a checkpoint")?;
        self.checkpointer.take_and_let_go(self)
    }

    /// Takes a checkpoint when enough has happened since the last one, unless somebody takes one now: false then.
    pub(crate) fn checkpoint_if_due(&self) -> Result<bool> {
        let is_due = || self.checkpointer.uncovered(self) >= self.options.checkpoint_records;
        if !is_due() {
            return Ok(true);
        }
        let Some(mut last) = self.checkpointer.last.try_lock() else { return Ok(false) };
        if is_due() {
            self.checkpointer.take_after(self, &mut last)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use crate::{Options, Store};

    #[test]
    fn a_checkpoint_that_somebody_takes_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default().checkpoint_records(1)).unwrap();
        store.create_table("solver", crate::Schema::default()).unwrap();
        let taking = store.0.checkpointer.last.lock();
        let beside = |store: &Store| (store.checkpoint_if_due(), store.run_once());
        let (due, others) = std::thread::scope(|scope| scope.spawn(|| beside(&store)).join().unwrap());
        assert!(!due.unwrap(), "it is under way");
        others.unwrap();
        drop(taking);
        assert!(store.checkpoint_if_due().unwrap());
    }
}
