//! What a checkpoint keeps of a consumer: all that neither its declaration nor the rows' words say.
//!
//! An image is taken and restored without looking at any row. It has the queues and groups of versions that are not over,
//! so its size follows what is open and not what was ever written. Entries and groups themselves lie in pages, which are
//! taken by reference beside the image ([`PartitionPages`]); where a checkpoint has put them is in the image
//! ([`PartitionPlaces`]). So neither taking nor restoring one looks at any group.
//!
//! What the open step plans is marked in the groups' records, and is stored with them; the open step, which is restored
//! with them, marks the same ones again.

use std::collections::{BTreeMap, HashMap};

use rkyv::{Archive, Deserialize, Serialize};

use super::group::GroupName;
use super::groups::{GroupPages, GroupRuns, Groups, Trajectory};
use super::partition::Partition;
use super::queue::{Block, Queue};
use super::reindex::Said;
use super::state::ConsumerState;
use crate::checkpoint::RunImage;
use crate::heap::HeapBytes;
use crate::page::StoredAt;
use crate::table::TableState;
use crate::texts::TextId;

/// A consumer's queues and groups.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct ConsumerStateImage {
    next_ticket: u64,
    /// By table in the order of the declaration: versions before are over.
    floors: Vec<u64>,
    pub(crate) partitions: Vec<PartitionImage>,
    said: Vec<SaidImage>,
}

/// A queue and the groups of one table and one version.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct PartitionImage {
    table: u32,
    version: u64,
    /// Rows on the queue.
    rows: u64,
    /// By block: the ticket that it began with.
    tickets: Vec<u64>,
    /// Where something else than age orders the queue: entry, ticket and priority of each, in order.
    places: Vec<(u32, u64, u64)>,
    trajectories: Vec<TrajectoryImage>,
    reasons: Vec<(u32, String)>,
    /// Where the pages are.
    pub(crate) pages: PartitionPlaces,
}

/// Where the pages of a queue and of groups are stored.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct PartitionPlaces {
    /// The blocks of a queue by age, in order.
    pub(crate) blocks: Vec<StoredAt>,
    pub(crate) groups: Vec<StoredAt>,
    /// The index over the groups' names.
    pub(crate) runs: Vec<RunImage>,
}

/// The same pages in memory.
#[derive(Debug, Default)]
pub(crate) struct PartitionPages {
    pub(crate) blocks: Vec<super::queue::BlockPage>,
    pub(crate) groups: GroupPages,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
struct TrajectoryImage {
    group: u32,
    number: u32,
    rows: u32,
    waiting: u32,
    out: u32,
    replaced: u32,
    closed: bool,
}

/// What was said of a group of a version that is over. One of no size that is not closed, which no group is, has the members
/// that were deleted: their rows and trajectories in turn.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
struct SaidImage {
    table: u32,
    version: u64,
    text: u32,
    turn: u32,
    agent: u32,
    origin: u32,
    size: u16,
    closed: bool,
    trajectories: Vec<u32>,
}

impl ConsumerStateImage {
    /// The texts that it names, beside those of its pages.
    pub(crate) fn texts(&self) -> impl Iterator<Item = TextId> + '_ {
        self.said.iter().flat_map(|said| [said.text, said.agent, said.origin]).map(TextId)
    }
}

impl PartitionPages {
    /// The texts that its groups are called by.
    pub(crate) fn texts(&self) -> impl Iterator<Item = TextId> + '_ {
        let groups = self.groups.pages.iter().flat_map(|page| page.iter());
        groups.flat_map(|group| group.name.texts())
    }
}

impl ConsumerState {
    /// The image of this moment, with the pages of each partition beside it; where those are stored is left open.
    pub(crate) fn image(&mut self) -> (ConsumerStateImage, Vec<PartitionPages>) {
        let partitions = self.partitions.iter_mut();
        let (partitions, pages) =
            partitions.map(|(&(table, version), partition)| partition.image(table, version)).unzip();
        let said = self.said.iter().flat_map(|(key, said)| said.iter().map(|said| said.image(*key)));
        let deleted = self.deleted.stored().map(|(key, name, numbers)| SaidImage::of(key, name, numbers));
        let image = ConsumerStateImage {
            next_ticket: self.next_ticket,
            floors: self.tables.iter().map(|consumed| consumed.floor).collect(),
            partitions,
            said: said.chain(deleted).collect(),
        };
        (image, pages)
    }

    /// Puts stored runs in the place of what they cover, in the groups that they were made of; others may have come and
    /// gone meanwhile.
    pub(crate) fn install_runs(&mut self, runs: Vec<GroupRuns>) {
        for runs in runs {
            if let Some(partition) = self.partitions.values_mut().find(|p| p.groups.are_of(&runs)) {
                partition.groups.install(runs);
            }
        }
    }

    /// Every partition, for pages to be put back as they are stored.
    pub(crate) fn partitions_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.partitions.values_mut()
    }

    /// Puts an image into a consumer that was declared and holds nothing yet. The words of its rows are there already.
    ///
    /// # Errors
    /// What in the image does not fit the tables: it is not of this store, or damaged.
    pub(crate) fn restore(
        &mut self,
        image: ConsumerStateImage,
        pages: Vec<PartitionPages>,
        tables: &[TableState],
    ) -> Result<(), String> {
        if image.floors.len() != self.tables.len() {
            return Err(format!(
                "{} tables where {:?} reads {}",
                image.floors.len(),
                self.name,
                self.tables.len()
            ));
        }
        for (consumed, floor) in self.tables.iter_mut().zip(image.floors) {
            consumed.floor = floor;
        }
        self.next_ticket = image.next_ticket;
        self.partitions = BTreeMap::new();
        for (partition, pages) in image.partitions.into_iter().zip(pages) {
            let known = self.consumed(partition.table).and_then(|_| tables.get(partition.table as usize));
            let table =
                known.ok_or_else(|| format!("{:?} does not read table {}", self.name, partition.table))?;
            let key = (partition.table, partition.version);
            let partition = self.restored(partition, pages, table)?;
            self.partitions.insert(key, partition);
        }
        (self.said, self.deleted) = Default::default();
        for said in image.said {
            let key = (said.table, said.version);
            if said.size == 0 && !said.closed {
                self.deleted.restore(key, said.name(), &said.trajectories);
            } else {
                self.said.entry(key).or_default().push(said.restored());
            }
        }
        Ok(())
    }

    fn restored(
        &self,
        image: PartitionImage,
        pages: PartitionPages,
        table: &TableState,
    ) -> Result<Partition, String> {
        let damaged =
            |what: &str| format!("{what} of {:?} at version {} fit no row", self.name, image.version);
        let mut groups = Groups::of_pages(pages.groups).ok_or_else(|| damaged("groups"))?;
        let count = if self.grouping.is_some() { groups.len() } else { table.row_count() as usize };
        let by_priority = !self.priority.is_empty();
        let misplaced = image.places.iter().any(|(entry, ..)| *entry as usize >= count)
            || image.trajectories.iter().any(|trajectory| trajectory.group as usize >= groups.len())
            || image.tickets.len() != pages.blocks.len()
            || by_priority && !pages.blocks.is_empty()
            || !by_priority && !image.places.is_empty()
            || image.rows > u64::from(table.row_count());
        let queue = if misplaced {
            None
        } else if by_priority {
            let mut queue = Queue::new(true);
            for &(entry, ticket, priority) in &image.places {
                let rows = self.grouping.map_or(1, |_| groups.get(entry).ready);
                queue.push(entry, rows, ticket, priority);
            }
            Some(queue)
        } else {
            let blocks = image.tickets.iter().zip(pages.blocks);
            let blocks = blocks.map(|(&ticket_min, entries)| Block { ticket_min, entries });
            Queue::of_blocks(blocks.collect(), image.rows as usize)
        };
        let queue = queue.ok_or_else(|| damaged("queue entries"))?;
        groups.trajectories = image.trajectories.iter().map(TrajectoryImage::restored).collect();
        groups.reasons =
            image.reasons.into_iter().map(|(id, reason)| (id, reason.into())).collect::<HashMap<_, _>>();
        Ok(Partition { queue, groups })
    }

    /// Bytes of memory beside the rows' words.
    pub(crate) fn heap_bytes(&self) -> usize {
        let partitions = self.partitions.values();
        let partitions = partitions.map(|of| of.queue.heap_bytes() + of.groups.heap_bytes());
        let said =
            self.said.values().flatten().map(|said| size_of::<Said>() + said.trajectories.heap_bytes());
        partitions.chain(said).sum::<usize>() + self.said.heap_bytes() + self.deleted.heap_bytes()
    }
}

impl Partition {
    fn image(&mut self, table: u32, version: u64) -> (PartitionImage, PartitionPages) {
        let mut trajectories: Vec<TrajectoryImage> =
            self.groups.trajectories.iter().map(|(key, t)| TrajectoryImage::new(*key, t)).collect();
        trajectories.sort_unstable_by_key(|trajectory| (trajectory.group, trajectory.number));
        let mut reasons: Vec<(u32, String)> =
            self.groups.reasons.iter().map(|(id, reason)| (*id, reason.to_string())).collect();
        reasons.sort_unstable();
        let (tickets, blocks) =
            self.queue.blocks().into_iter().map(|block| (block.ticket_min, block.entries)).unzip();
        let image = PartitionImage {
            table,
            version,
            rows: self.queue.rows() as u64,
            tickets,
            places: self.queue.places(),
            trajectories,
            reasons,
            pages: PartitionPlaces::default(),
        };
        (image, PartitionPages { blocks, groups: self.groups.capture() })
    }
}

impl TrajectoryImage {
    fn new((group, number): (u32, u32), trajectory: &Trajectory) -> Self {
        let Trajectory { rows, waiting, out, replaced, closed } = *trajectory;
        TrajectoryImage { group, number, rows, waiting, out, replaced, closed }
    }

    fn restored(&self) -> ((u32, u32), Trajectory) {
        let &TrajectoryImage { group, number, rows, waiting, out, replaced, closed } = self;
        ((group, number), Trajectory { rows, waiting, out, replaced, closed })
    }
}

impl Said {
    fn image(&self, key: (u32, u64)) -> SaidImage {
        let Said { name, size, closed, .. } = *self;
        SaidImage { size, closed, ..SaidImage::of(key, name, self.trajectories.clone()) }
    }
}

impl SaidImage {
    fn of((table, version): (u32, u64), name: GroupName, trajectories: Vec<u32>) -> Self {
        let GroupName { text, turn, agent, origin } = name;
        let (text, agent, origin) = (text.0, agent.0, origin.0);
        SaidImage { table, version, text, turn, agent, origin, size: 0, closed: false, trajectories }
    }

    fn name(&self) -> GroupName {
        let (text, agent, origin) = (TextId(self.text), TextId(self.agent), TextId(self.origin));
        GroupName { text, turn: self.turn, agent, origin }
    }

    fn restored(self) -> Said {
        let name = self.name();
        Said { name, size: self.size, closed: self.closed, trajectories: self.trajectories }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::group::Group;
    use super::*;
    use crate::log::record::Event;
    use crate::page::{Page, Rows};
    use crate::table::Progress;
    use crate::*;

    /// A consumer that was declared like this one and holds nothing.
    fn emptied(consumer: &ConsumerState) -> ConsumerState {
        let tables =
            consumer.tables.iter().map(|consumed| super::super::ConsumedTable { floor: 0, ..*consumed });
        ConsumerState {
            name: consumer.name.clone(),
            kind: consumer.kind,
            tables: tables.collect(),
            grouping: consumer.grouping,
            purposes: consumer.purposes,
            origins: consumer.origins,
            conditions: consumer.conditions.clone(),
            priority: consumer.priority.clone(),
            limiter: consumer.limiter,
            partitions: BTreeMap::new(),
            said: BTreeMap::new(),
            deleted: Default::default(),
            next_ticket: 1,
            plan: None,
        }
    }

    /// What a consumer's limiter goes by is what the words of its rows say.
    fn check_tally(state: &state::State, index: usize) {
        let (consumer, mut counted) = (&state.consumers[index], (0, 0));
        for consumed in &consumer.tables {
            let table = &state.tables[consumed.table as usize];
            let counts = |row: &u32| table.meta(*row).lane() >= consumed.floor;
            for row in (0..table.row_count()).filter(counts) {
                let progress = table.word(consumed.slot, row).progress;
                let held = matches!(progress, Progress::Leased | Progress::Accumulated | Progress::Done);
                counted.0 += u64::from(progress != Progress::Out);
                counted.1 += u64::from(held);
            }
        }
        let tally = state.tally(index);
        if consumer.limiter.is_some() {
            assert_eq!((tally.inserted, tally.handed_out), counted, "{}", consumer.name);
        }
    }

    /// The same pages, as if they had been stored and read: whole copies, and an index made anew.
    fn copied(pages: &[PartitionPages]) -> Vec<PartitionPages> {
        let copy = |partition: &PartitionPages| PartitionPages {
            blocks: partition.blocks.iter().map(|page| Page::new(Rows::Owned(page.to_vec()))).collect(),
            groups: GroupPages::stored(
                partition.groups.pages.iter().map(|page| Page::new(Rows::Owned(page.to_vec()))).collect(),
                Vec::new(),
            ),
        };
        pages.iter().map(copy).collect()
    }

    /// An image and all that its pages hold.
    fn content(consumer: &mut ConsumerState) -> (ConsumerStateImage, String, Vec<PartitionPages>) {
        let (image, pages) = consumer.image();
        let shown: Vec<_> = pages.iter().map(|pages| (&pages.blocks, &pages.groups.pages)).collect();
        (image, format!("{shown:?}"), pages)
    }

    /// Every consumer of a store equals what its image, stored and read again, makes of an empty one.
    fn check(store: &Store) {
        let state = &mut *store.0.state.lock();
        for index in 0..state.consumers.len() {
            check_tally(state, index);
            let (image, shown, pages) = content(&mut state.consumers[index]);
            let consumer = &state.consumers[index];
            let bytes = rkyv::to_bytes::<rkyv::rancor::Error>(&image).unwrap();
            let read = rkyv::from_bytes::<ConsumerStateImage, rkyv::rancor::Error>(&bytes).unwrap();
            let mut restored = emptied(consumer);
            restored.restore(read, copied(&pages), &state.tables).unwrap();
            let again = content(&mut restored);
            assert_eq!((again.0, again.1), (image, shown));
            for consumed in &consumer.tables {
                let versions = state.claimable_versions(index, consumed.table);
                assert_eq!(
                    restored.ready_rows(consumed.table, versions.clone())
                        + restored.external_ready_rows(consumed.table),
                    consumer.ready_rows(consumed.table, versions)
                        + consumer.external_ready_rows(consumed.table)
                );
            }
            let open = state.open_step().map(|number| &state.steps[&number]);
            let planned = open.into_iter().flat_map(|step| &step.membership().planned);
            for planned in planned.filter(|planned| planned.consumer == index && !planned.groups.is_empty()) {
                let versions =
                    consumer.tables.iter().map(|t| (t.table, state.claimable_versions(index, t.table)));
                restored.begin_plan(planned.groups.iter().copied(), versions.collect());
                assert_eq!(restored.outstanding(), consumer.outstanding());
            }
            for rows in 1..4 {
                let rule = MicroBatch::up_to(rows);
                let choice = super::super::Choice { rule, planned: false, flush: false };
                let select = |consumer: &ConsumerState| {
                    consumer.select(&state.tables, |table| state.claimable_versions(index, table), &choice)
                };
                assert_eq!(select(&restored), select(consumer));
            }
        }
    }

    type Op = (u8, u32, u32, u32);

    fn run(window: u64, ops: &[Op]) {
        let disk = SimulatedDisk::default();
        let store = Store::open("/store", Options::default().disk(Arc::new(disk))).unwrap();
        let schema = Schema::new().data("reward", DataType::Float32);
        let table = store.create_table("t", schema).unwrap();
        let plenty = RateLimiter::new(1.0, 1, 1e9); // it counts and holds nobody back
        let declared = [
            Consumer::trainer(["t"])
                .ready(["reward"])
                .group(GroupBy::Input, 2)
                .staleness(window)
                .origins(Origins::All)
                .rate_limiter(plenty),
            Consumer::task(["t"]).ready(["reward"]).rate_limiter(plenty),
            Consumer::task(["t"]).priority("reward"),
            Consumer::task(["t"])
                .trajectories(GroupBy::Input, 2, TrajectoryEnd::Closed)
                .when_a_member_fails(GroupRule::Exclude)
                .rate_limiter(plenty),
        ];
        let consumers = ["train", "fifo", "best", "whole"].into_iter().zip(declared);
        let consumers: Vec<_> = consumers.map(|(name, c)| store.create_consumer(name, c).unwrap()).collect();
        let mut claims = Vec::new();
        let mut step = None;
        for &(what, input, trajectory, turn) in ops {
            let version = store.policy("t").unwrap().version.saturating_sub(u64::from(what == 1) * window);
            let id: SampleId = format!("q{input}_{turn}_{trajectory}").parse().unwrap();
            let row = table.find(version, &id);
            // What cannot be done now is refused, which changes nothing.
            match (what, row) {
                (0 | 1, None) => _ = table.insert_row(NewRow::of(version, id), []),
                (18, None) => {
                    let origin = Origin { peer: "p".to_owned(), round: 1 };
                    _ = table.insert_row(NewRow::of(version, id).external(&origin), []);
                }
                (14, Some(row)) => _ = table.span(row, turn + 1, version + 1),
                (15, Some(row)) => _ = table.trainable_from(row, turn + 1),
                (0..4, Some(row)) => _ = table.write(row, [("reward", f64::from(turn).into())]),
                (4, Some(row)) => _ = table.exclude(row, "lost"),
                (5, Some(_)) => _ = table.insert_row(NewRow::of(version, id).next_attempt(), []),
                (6, _) => {
                    _ = consumers[3].close_trajectory(&table, version, &format!("q{input}"), trajectory);
                }
                (7, _) => {
                    let consumer = &consumers[1 + trajectory as usize];
                    claims.extend(consumer.claim(MicroBatch::up_to(2), "me", Wait::No).unwrap());
                }
                (8, _) => _ = claims.pop(),
                (9, _) => _ = claims.pop().map(|claim| claim.finish(|_| Ok(()))),
                (10, _) if step.is_none() => {
                    let theirs = Origin { peer: "p".to_owned(), round: 1 }.group("q0");
                    let plan = StepPlan::new().groups(&consumers[0], ["q0", "q1", &theirs]);
                    step = Some(store.begin_step(plan).unwrap());
                }
                (11, _) => {
                    if let Some(step) = &step
                        && let Some(claim) = step.next(&consumers[0], MicroBatch::up_to(2), Wait::No).unwrap()
                    {
                        claim.accumulated().unwrap();
                    }
                }
                (12, _) => _ = step.take().map(|step| step.commit([("t", vec![])])),
                (16, _) => _ = store.rewind(u64::from(turn), Rewind::TrainAgain),
                (17, Some(row)) => _ = table.delete(&Delete::rows([row]).force()),
                (19, _) => {
                    let forgotten = |consumer| Event::GroupsForgotten { consumer, table: 0 };
                    let of = if turn == 0 { 0 } else { 3 };
                    store.0.submit(|_| Ok((forgotten(of), ()))).unwrap();
                }
                (13, _) => _ = consumers[0].close_group(&table, version, &format!("q{input}")),
                _ => {}
            }
            check(&store);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn an_image_is_all_of_a_consumer(
            window in 0..2_u64,
            ops in prop::collection::vec((0..20_u8, 0..2_u32, 0..3_u32, 0..2_u32), 1..60),
        ) {
            run(window, &ops);
        }

        #[test]
        fn hostile_images_are_errors(
            groups in prop::collection::vec(any::<u8>(), 0..100),
            entries in prop::collection::vec(0..4_u32, 0..4),
            tickets in prop::collection::vec(0..4_u64, 0..3),
            places in prop::collection::vec((0..4_u32, 0..4_u64, 0..4_u64), 0..2),
            rows in 0..2_u64,
        ) {
            let store = Store::open("/store", Options::default().disk(Arc::new(SimulatedDisk::default()))).unwrap();
            store.create_table("t", Schema::new()).unwrap();
            store.create_consumer("c", Consumer::task(["t"]).group(GroupBy::Input, 2)).unwrap();
            let state = store.0.state.lock();
            let partition = PartitionImage {
                table: 0,
                version: 0,
                rows,
                tickets,
                places,
                trajectories: Vec::new(),
                reasons: Vec::new(),
                pages: PartitionPlaces::default(),
            };
            let records = groups.chunks_exact(size_of::<Group>()).map(bytemuck::pod_read_unaligned).collect();
            let pages = PartitionPages {
                blocks: vec![Page::new(Rows::Owned(entries))],
                groups: GroupPages::stored(vec![Page::new(Rows::Owned(records))], Vec::new()),
            };
            let image = ConsumerStateImage { floors: vec![0], partitions: vec![partition], ..Default::default() };
            let mut consumer = emptied(&state.consumers[0]);
            if consumer.restore(image, vec![pages], &state.tables).is_ok() {
                let choice = super::super::Choice { rule: MicroBatch::up_to(4), planned: false, flush: true };
                let rows = consumer.select(&state.tables, |_| 0..=9, &choice);
                prop_assert!(rows.is_none_or(|rows| rows.rows.is_empty()), "there is no row");
            }
        }
    }
}
