//! Makes a state of a manifest and its pages.

use std::sync::Arc;

use super::consumers;
use super::manifest::*;
use super::pages::PagesReader;
use crate::claim::{ClaimProgress, ClaimState};
use crate::clock::Timestamp;
use crate::directory::Directory;
use crate::error::{Cause, Error, Result};
use crate::extent::{Liveness, View};
use crate::index::{IdIndex, Run};
use crate::log::record::ObjectRecord;
use crate::object::ObjectRef;
use crate::page::{CowArc, Page, Rows, StoredAt};
use crate::policy::{PolicyMoment, PolicyState};
use crate::state::{Effects, State};
use crate::step::{Membership, StepBatch, StepProgress, StepState, StepUpdate};
use crate::table::{
    CHUNK_ROWS, CHUNKS_MAX, Chunk, ColumnPage, Rare, RowMeta, Summary, TableCounts, WideRowMeta,
};
use crate::texts::{TextId, TextPage, Texts};

/// The state that the manifest stands for.
///
/// # Errors
/// `corrupt` when a pages file is missing, too short or another store's, or the manifest contradicts itself.
pub(crate) fn restore(directory: &Directory, manifest: Manifest, claims_kept: usize) -> Result<State> {
    let pages = PagesReader::open(directory, &manifest.files)?;
    let corrupt = |reason: String| {
        let path = Manifest::path(directory);
        Error::from(Cause::Corrupt { path, offset: MANIFEST_HEADER_BYTES as u64, reason })
    };
    let mut state = State::new(claims_kept);
    state.texts = texts(&pages, &manifest.texts)?;
    manifest.policies.into_iter().for_each(|image| state.add_policy(policy(image)));
    for table in &manifest.tables {
        let columns = table.columns.clone();
        state.table_created(&table.name, table.policy, columns).map_err(corrupt)?;
    }
    // Consumers are declared while the tables are empty: what they made of the rows is in the words of the pages.
    for consumer in &manifest.consumers {
        let (name, declaration) = (&consumer.name, consumer.declaration.clone());
        state.consumer_created(name, declaration, &mut Effects::default()).map_err(corrupt)?;
    }
    for (number, table) in manifest.tables.into_iter().enumerate() {
        state.tables[number].tallies.restore(&table.tallies).map_err(corrupt)?;
        fill_table(&mut state, number, table, &pages, corrupt)?;
    }
    state.rewind_floor = manifest.rewind_floor;
    for step in manifest.steps {
        let (number, step) = self::step(&mut state, step).map_err(corrupt)?;
        state.steps.insert(number, step);
    }
    let claims = manifest.claims.into_iter().map(claim).collect::<Result<_, String>>().map_err(corrupt)?;
    state.claims.restore(claims, manifest.next_claim);
    for (number, consumer) in manifest.consumers.into_iter().enumerate() {
        let mapped = consumers::pages(&pages, &consumer.state)?;
        let (consumers, tables) = (&mut state.consumers, &state.tables);
        consumers[number].restore(consumer.state, mapped, tables).map_err(corrupt)?;
    }
    state.liveness = Liveness::restore(&manifest.liveness);
    state.resume_plans();
    (state.commits, state.incarnation) = (manifest.commits, manifest.incarnation);
    Ok(state)
}

fn texts(pages: &PagesReader<'_>, image: &TextsImage) -> Result<Texts> {
    let page = |at: &StoredAt| {
        let content = TextPage { ends: pages.rows(*at, 0)?, bytes: pages.rows(*at, 1)? };
        Ok(Page::stored(content, *at))
    };
    let index = index(pages, &image.runs)?;
    Ok(Texts::of_pages(image.pages.iter().map(page).collect::<Result<_>>()?, index))
}

fn index(pages: &PagesReader<'_>, runs: &[RunImage]) -> Result<IdIndex> {
    index_runs(pages, runs).map(IdIndex::of_runs)
}

/// The runs of an index, mapped.
pub(super) fn index_runs(pages: &PagesReader<'_>, runs: &[RunImage]) -> Result<Vec<Run>> {
    let run = |image: &RunImage| {
        let entries = Page::stored(pages.rows(image.entries, 0)?, image.entries);
        Ok(Run { end: image.end, entries })
    };
    runs.iter().map(run).collect()
}

fn policy(image: PolicyImage) -> PolicyState {
    PolicyState {
        name: image.name.into(),
        version: image.version,
        updated_at: Timestamp(image.updated_at),
        objects: objects(image.objects),
        first: PolicyMoment {
            version: image.first.0,
            updated_at: Timestamp(image.first.1),
            objects: objects(image.first.2),
        },
        state_keys: image.state_keys.iter().map(|key| Arc::from(key.as_str())).collect(),
    }
}

fn objects(records: Vec<ObjectRecord>) -> Vec<ObjectRef> {
    records.into_iter().map(ObjectRef::from_record).collect()
}

/// Rows are found by their number: every chunk is full but the last, which has a row at least.
fn check_chunks(chunks: &[CowArc<Chunk>]) -> Result<(), String> {
    let full = |chunk: &Chunk| chunk.len() == CHUNK_ROWS;
    let Some((last, before)) = chunks.split_last() else { return Ok(()) };
    let wrong = before.iter().position(|chunk| !full(chunk));
    let wrong = wrong.or_else(|| (!(1..=CHUNK_ROWS).contains(&last.len())).then_some(before.len()));
    wrong.map_or(Ok(()), |number| {
        Err(format!("chunk {number} has {} rows, and {CHUNK_ROWS} make a full one", chunks[number].len()))
    })
}

fn fill_table(
    state: &mut State,
    number: usize,
    image: TableImage,
    pages: &PagesReader<'_>,
    corrupt: impl Fn(String) -> Error,
) -> Result<()> {
    let there = image.chunks.iter().map(|chunk| self::chunk(pages, chunk).map(CowArc::new));
    let chunks = with_gone(there.collect::<Result<Vec<_>>>()?, &image.gone).map_err(&corrupt)?;
    check_chunks(&chunks).map_err(&corrupt)?;
    let table = &mut state.tables[number];
    table.counts = TableCounts {
        written: image.written,
        consumed: image.consumed,
        excluded: image.excluded.into_iter().collect(),
    };
    for partial in image.partials {
        let views = partial.views.into_iter().map(View).collect();
        table.partials.insert((partial.row, partial.column), views);
    }
    table.rare = Rare::of(image.rare);
    table.set_schema(table.schema.at_version(image.schema_version));
    table.restore(chunks, index(pages, &image.runs)?);
    table.find_ahead();
    Ok(())
}

/// All chunks: those that are there, and between them those that are gone.
fn with_gone(there: Vec<CowArc<Chunk>>, gone: &[(u32, u32)]) -> Result<Vec<CowArc<Chunk>>, String> {
    let (mut there, mut chunks, nothing) = (there.into_iter(), Vec::new(), CowArc::new(Chunk::gone()));
    for &(first, last) in gone {
        let before = (first as usize).checked_sub(chunks.len());
        let wrong = || format!("chunks {first} to {last} are gone, which the others leave no room for");
        chunks.extend(there.by_ref().take(before.ok_or_else(wrong)?));
        if first > last || last as usize >= CHUNKS_MAX || chunks.len() != first as usize {
            return Err(wrong());
        }
        chunks.resize(last as usize + 1, nothing.clone());
    }
    chunks.extend(there);
    Ok(chunks)
}

/// What is known of each row of a chunk; in memory where the checkpoint has an older form of it.
fn meta(pages: &PagesReader<'_>, image: &ChunkImage) -> Result<CowArc<Page<Rows<RowMeta>>>> {
    let bytes = image.meta.parts[0] as usize;
    if bytes != image.rows as usize * size_of::<WideRowMeta>() {
        return Ok(Page::stored(pages.all_rows(image.meta, image.rows)?, image.meta));
    }
    let wide = pages.all_rows::<WideRowMeta>(image.meta, image.rows)?;
    let narrow: Option<Vec<RowMeta>> = wide.iter().map(WideRowMeta::narrow).collect();
    let narrow =
        narrow.ok_or_else(|| pages.corrupt(image.meta, "a row's attempt or purpose is none".to_owned()))?;
    Ok(Page::new(Rows::Owned(narrow)))
}

fn chunk(pages: &PagesReader<'_>, image: &ChunkImage) -> Result<Chunk> {
    let words = |at: &StoredAt| Ok(Page::stored(pages.rows(*at, 0)?, *at));
    let column = |at: &StoredAt| {
        let (bytes, final_after, nulls) = (pages.rows(*at, 0)?, pages.rows(*at, 1)?, pages.rows(*at, 2)?);
        Ok(Page::stored(ColumnPage { bytes, final_after, nulls }, *at))
    };
    Ok(Chunk {
        rows: image.rows as usize,
        meta: meta(pages, image)?,
        status: Page::stored(pages.all_rows(image.status, image.rows)?, image.status),
        removed: Page::stored(pages.rows(image.removed, 0)?, image.removed),
        columns: image.columns.iter().map(column).collect::<Result<_>>()?,
        words: image.words.iter().map(words).collect::<Result<_>>()?,
        summary: Summary {
            open: image.open,
            removed: image.removed_rows,
            version_min: image.version_min,
            version_max: image.version_max,
        },
        ..Chunk::default()
    })
}

fn claim(image: ClaimImage) -> Result<(u64, ClaimState), String> {
    let progress = ClaimProgress::ALL.get(usize::from(image.progress));
    let progress = *progress.ok_or_else(|| format!("claim {} is in no known state", image.number))?;
    let claim = ClaimState {
        consumer: image.consumer as usize,
        table: image.table,
        rows: image.rows,
        row_count: image.row_count,
        owner: TextId(image.owner),
        incarnation: image.incarnation,
        granted_at: Timestamp(image.granted_at),
        deadline: Timestamp(image.deadline),
        accumulated_at: image.accumulated_at.map(Timestamp),
        ended_at: image.ended_at.map(Timestamp),
        step: image.step,
        sequence_in_step: image.sequence_in_step,
        gang: image.gang,
        ranks_done: image.ranks_done,
        progress,
    };
    Ok((image.number, claim))
}

fn step(state: &mut State, image: StepImage) -> Result<(u64, StepState), String> {
    let progress = StepProgress::ALL.get(usize::from(image.progress));
    let progress = *progress.ok_or_else(|| format!("step {} is in no known state", image.number))?;
    let mut planned = Vec::with_capacity(image.planned.len());
    for entry in image.planned {
        let mut restored = state.planned(entry.plan)?;
        (restored.claims, restored.held) = (entry.claims, entry.held);
        planned.push(restored);
    }
    let updates = image.updates.into_iter().map(|update| StepUpdate {
        policy: update.policy as usize,
        version: update.version,
        objects: objects(update.objects),
    });
    let batches = image.batches.into_iter().map(|batch| StepBatch {
        claim: batch.claim,
        consumer: batch.consumer as usize,
        table: batch.table,
        sequence: batch.sequence,
    });
    let dropped = image.caches_dropped.into_iter().map(|(policy, count)| (policy as usize, count));
    let membership = Membership {
        planned,
        claims: image.claims,
        batches: batches.collect(),
        first_cache_epoch: image.first_cache_epoch,
        caches_dropped: dropped.collect(),
    };
    let mut step = StepState {
        progress,
        begun_at: Timestamp(image.begun_at),
        ended_at: image.ended_at.map(Timestamp),
        membership: Some(Box::new(membership)),
        rows: image.rows,
        deleted_rows: image.deleted_rows,
        updates: updates.collect(),
    };
    step.forget_if_over(image.number, state.rewind_floor);
    Ok((image.number, step))
}
