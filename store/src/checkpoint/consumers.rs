//! What a checkpoint does with the queues and groups of consumers: their pages, and the index over the names of groups.

use super::manifest::{ConsumerImage, RunImage};
use super::pages::PagesReader;
use super::restore::index_runs;
use super::take::{PageStore, merge};
use crate::consumer::{ConsumerStateImage, GroupPages, GroupRuns, PartitionImage, PartitionPages};
use crate::error::Result;
use crate::page::{CowArc, Page, Rows, Storable, StoredAt};
use crate::state::State;
use crate::texts::TextId;

/// A consumer at one instant.
pub(super) struct ConsumerCapture {
    /// Without the places of its pages.
    image: ConsumerImage,
    /// By partition.
    pages: Vec<PartitionPages>,
}

/// Called with the state locked. Copies no page.
pub(super) fn capture(state: &mut State) -> Vec<ConsumerCapture> {
    let consumers = state.consumers.iter_mut().zip(&state.declarations);
    let consumers = consumers.map(|(consumer, declaration)| {
        let (state, pages) = consumer.image();
        let (name, declaration) = (consumer.name.to_string(), declaration.clone());
        ConsumerCapture { image: ConsumerImage { name, declaration, state }, pages }
    });
    consumers.collect()
}

impl ConsumerCapture {
    /// Where its pages are stored that are.
    pub(super) fn stored(&self) -> impl Iterator<Item = StoredAt> + '_ {
        self.pages.iter().flat_map(|partition| {
            let blocks = partition.blocks.iter().map(Storable::stored_at);
            let groups = partition.groups.pages.iter().map(Storable::stored_at);
            let runs = partition.groups.runs.iter().map(|run| run.entries.stored_at());
            blocks.chain(groups).chain(runs).flatten()
        })
    }

    /// The texts that it names.
    pub(super) fn texts(&self) -> impl Iterator<Item = TextId> + '_ {
        self.image.state.texts().chain(self.pages.iter().flat_map(PartitionPages::texts))
    }

    /// The index over its groups, what is new merged in, by partition.
    pub(super) fn new_runs(&self) -> Vec<GroupRuns> {
        let runs = self.pages.iter().map(|partition| {
            let (groups, count) = (&partition.groups, partition.groups.count() as u32);
            let from = groups.runs.last().map_or(0, |run| run.end);
            groups.with_runs(merge(&groups.runs, groups.entries_since(from), count, |_| true))
        });
        runs.collect()
    }
}

impl PageStore<'_> {
    /// Places the pages of a consumer, and says where they are.
    pub(super) fn consumer(&mut self, capture: ConsumerCapture, runs: &[GroupRuns]) -> Result<ConsumerImage> {
        let mut image = capture.image;
        let partitions = image.state.partitions.iter_mut().zip(&capture.pages).zip(runs);
        for ((image, pages), runs) in partitions {
            image.pages.blocks = self.place_all(&pages.blocks)?;
            image.pages.groups = self.place_all(&pages.groups.pages)?;
            image.pages.runs = self.runs(&runs.runs)?;
        }
        Ok(image)
    }
}

/// The pages that an image names, mapped.
pub(super) fn pages(pages: &PagesReader<'_>, image: &ConsumerStateImage) -> Result<Vec<PartitionPages>> {
    image.partitions.iter().map(|partition| partition_pages(pages, partition)).collect()
}

fn partition_pages(pages: &PagesReader<'_>, image: &PartitionImage) -> Result<PartitionPages> {
    let blocks = image.pages.blocks.iter().map(|at| Ok(Page::stored(pages.rows(*at, 0)?, *at)));
    let groups = image.pages.groups.iter().map(|at| Ok(Page::stored(pages.rows(*at, 0)?, *at)));
    let runs = index_runs(pages, &image.pages.runs)?;
    let groups = GroupPages::stored(groups.collect::<Result<_>>()?, runs);
    Ok(PartitionPages { blocks: blocks.collect::<Result<_>>()?, groups })
}

/// Every image of a consumer's pages that a manifest names.
pub(crate) fn images(image: &ConsumerStateImage) -> impl Iterator<Item = StoredAt> + '_ {
    image.partitions.iter().flat_map(|PartitionImage { pages, .. }| {
        let runs = pages.runs.iter().map(|RunImage { entries, .. }| *entries);
        pages.blocks.iter().chain(&pages.groups).copied().chain(runs)
    })
}

/// Puts pages back as windows of the files that they are stored in: of one consumer.
pub(super) fn let_go(pages: &PagesReader<'_>, state: &mut State, consumer: usize) -> Result<()> {
    let Some(consumer) = state.consumers.get_mut(consumer) else { return Ok(()) };
    for partition in consumer.partitions_mut() {
        partition.queue.blocks_mut().try_for_each(|block| map(pages, &mut block.entries))?;
        partition.groups.full_pages_mut().iter_mut().try_for_each(|page| map(pages, page))?;
        super::let_go::map_runs(pages, partition.groups.index_mut())?;
    }
    Ok(())
}

fn map<T: bytemuck::Pod>(pages: &PagesReader<'_>, page: &mut CowArc<Page<Rows<T>>>) -> Result<()> {
    super::let_go::map_rows(pages, page).map(drop)
}
