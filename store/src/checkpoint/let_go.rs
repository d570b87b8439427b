//! Lets go of memory that a checkpoint has in its files as well.
//!
//! A page that a checkpoint has stored, and that has not changed since, is put back as a window of the mapped file, as an
//! opening of the store would have it. Its first change copies it into memory again. The last chunk of a table and the
//! last page of texts are left alone: they are about to change. Readers keep what they hold.

use super::consumers;
use super::manifest::FileImage;
use super::pages::PagesReader;
use crate::error::Result;
use crate::index::{IdIndex, Run};
use crate::page::{CowArc, Page, Rows, Storable, StoredAt};
use crate::shared::Shared;
use crate::table::{Chunk, ColumnPage};
use crate::texts::TextPage;

/// Maps what lies in these files. The caller sees to it that they stay. The state is locked for a chunk or
/// a consumer at a time.
pub(super) fn let_go(shared: &Shared, files: &[FileImage]) -> Result<()> {
    let pages = PagesReader::open(&shared.directory, files)?;
    let tables = shared.state.lock().tables.len();
    for table in 0..tables {
        let full = shared.state.lock().tables[table].chunks.len().saturating_sub(1);
        for number in 0..full {
            let chunk = &mut shared.state.lock().tables[table].chunks[number];
            if let Some(mapped) = map_chunk(&pages, chunk)? {
                *chunk = CowArc::new(mapped);
            }
        }
        map_runs(&pages, &mut shared.state.lock().tables[table].index)?;
    }
    let consumers = shared.state.lock().consumers.len();
    (0..consumers).try_for_each(|at| consumers::let_go(&pages, &mut shared.state.lock(), at))?;
    let mut state = shared.state.lock();
    map_runs(&pages, &mut state.texts.index)?;
    for page in state.texts.full_pages_mut() {
        if let Some(at) = held(&**page, page.ends.heap_bytes() + page.bytes.heap_bytes()) {
            let content = TextPage { ends: pages.rows(at, 0)?, bytes: pages.rows(at, 1)? };
            *page = Page::stored(content, at);
        }
    }
    Ok(())
}

/// Where a page is stored, if it is and takes memory.
fn held(page: &dyn Storable, bytes: usize) -> Option<StoredAt> {
    page.stored_at().filter(|_| bytes > 0)
}

pub(super) fn map_runs(pages: &PagesReader<'_>, index: &mut IdIndex) -> Result<()> {
    let map = |run: &Run| {
        let mut run = run.clone();
        map_rows(pages, &mut run.entries)?;
        Ok(run)
    };
    let runs = index.runs().iter().map(map).collect::<Result<_>>()?;
    index.install(runs);
    Ok(())
}

/// True when the page was put back.
pub(super) fn map_rows<T: bytemuck::Pod>(
    pages: &PagesReader<'_>,
    page: &mut CowArc<Page<Rows<T>>>,
) -> Result<bool> {
    let Some(at) = held(&**page, page.heap_bytes()) else { return Ok(false) };
    *page = Page::stored(pages.rows(at, 0)?, at);
    Ok(true)
}

fn map_column(pages: &PagesReader<'_>, page: &mut CowArc<Page<ColumnPage>>) -> Result<bool> {
    let Some(at) = held(&**page, page.heap_bytes()) else { return Ok(false) };
    let (bytes, final_after, nulls) = (pages.rows(at, 0)?, pages.rows(at, 1)?, pages.rows(at, 2)?);
    *page = Page::stored(ColumnPage { bytes, final_after, nulls }, at);
    Ok(true)
}

/// The chunk with all that is stored of it mapped; `None` when none of that takes memory.
fn map_chunk(pages: &PagesReader<'_>, chunk: &Chunk) -> Result<Option<Chunk>> {
    let mut mapped = chunk.clone();
    let mut any = map_rows(pages, &mut mapped.meta)?;
    any |= map_rows(pages, &mut mapped.status)?;
    any |= map_rows(pages, &mut mapped.removed)?;
    for column in &mut mapped.columns {
        any |= map_column(pages, column)?;
    }
    for words in &mut mapped.words {
        any |= map_rows(pages, words)?;
    }
    Ok(any.then_some(mapped))
}
