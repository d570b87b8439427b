//! What a checkpoint keeps of a consumer: all that neither its declaration nor the rows' words say.
//!
//! An image is taken and restored without looking at any row. It holds the queues and groups of versions that are not
//! over, as plain bytes, so its size follows what is open and not what was ever written.

use std::collections::{BTreeMap, HashMap};

use rkyv::{Archive, Deserialize, Serialize};

use super::group::{Group, GroupName};
use super::groups::{Groups, Trajectory};
use super::partition::Partition;
use super::queue::Queue;
use super::reindex::Said;
use super::state::ConsumerState;
use crate::table::TableState;
use crate::texts::TextId;

/// A consumer's queues and groups.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct ConsumerStateImage {
    next_ticket: u64,
    /// By table in the order of the declaration: versions before are over.
    floors: Vec<u64>,
    partitions: Vec<PartitionImage>,
    said: Vec<SaidImage>,
}

/// A queue and the groups of one table and one version.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
struct PartitionImage {
    table: u32,
    version: u64,
    /// Rows, or numbers of groups, in the order of the queue.
    entries: Vec<u32>,
    tickets: Vec<u64>,
    /// By entry; empty where age orders them.
    priorities: Vec<u64>,
    /// [`Group`]s by number, as they lie in memory.
    groups: Vec<u8>,
    trajectories: Vec<TrajectoryImage>,
    reasons: Vec<(u32, String)>,
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

/// What was said of a group of a version that is over.
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

impl ConsumerState {
    /// The image of this moment.
    pub(crate) fn image(&self, tables: &[TableState]) -> ConsumerStateImage {
        let partitions = self.partitions.iter().map(|(&(table, version), partition)| {
            let state = &tables[table as usize];
            self.partition_image(state, version, partition)
        });
        let said = self.said.iter().flat_map(|(key, said)| said.iter().map(|said| said.image(*key)));
        ConsumerStateImage {
            next_ticket: self.next_ticket,
            floors: self.tables.iter().map(|consumed| consumed.floor).collect(),
            partitions: partitions.collect(),
            said: said.collect(),
        }
    }

    fn partition_image(&self, table: &TableState, version: u64, partition: &Partition) -> PartitionImage {
        let slot = self.consumed(table.id).map_or(0, |(_, consumed)| consumed.slot);
        let entries = partition.queue.entries(|entry| self.ticket_of(partition, table, slot, entry));
        let by_priority = !self.priority.is_empty();
        let mut records = partition.groups.records().to_vec();
        records.iter_mut().for_each(|group| group.set_planned(false)); // the open step says which are
        let mut trajectories: Vec<TrajectoryImage> =
            partition.groups.trajectories.iter().map(|(key, t)| TrajectoryImage::new(*key, t)).collect();
        trajectories.sort_unstable_by_key(|trajectory| (trajectory.group, trajectory.number));
        let mut reasons: Vec<(u32, String)> =
            partition.groups.reasons.iter().map(|(id, reason)| (*id, reason.to_string())).collect();
        reasons.sort_unstable();
        PartitionImage {
            table: table.id,
            version,
            tickets: entries.iter().map(|(_, ticket, _)| *ticket).collect(),
            priorities: entries.iter().filter(|_| by_priority).map(|(.., priority)| *priority).collect(),
            entries: entries.into_iter().map(|(entry, ..)| entry).collect(),
            groups: bytemuck::cast_slice(&records).to_vec(),
            trajectories,
            reasons,
        }
    }

    /// Puts an image into a consumer that was declared and holds nothing yet. The words of its rows are there already.
    ///
    /// # Errors
    /// What in the image does not fit the tables: it is not of this store, or damaged.
    pub(crate) fn restore(&mut self, image: ConsumerStateImage, tables: &[TableState]) -> Result<(), String> {
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
        for partition in image.partitions {
            let known = self.consumed(partition.table).and_then(|_| tables.get(partition.table as usize));
            let table =
                known.ok_or_else(|| format!("{:?} does not read table {}", self.name, partition.table))?;
            let key = (partition.table, partition.version);
            let partition = self.restored(partition, table)?;
            self.partitions.insert(key, partition);
        }
        self.said = BTreeMap::new();
        for said in image.said {
            self.said.entry((said.table, said.version)).or_default().push(said.restored());
        }
        Ok(())
    }

    fn restored(&self, image: PartitionImage, table: &TableState) -> Result<Partition, String> {
        let damaged =
            |what: &str| format!("{what} of {:?} at version {} fit no row", self.name, image.version);
        let records = image.groups.chunks_exact(size_of::<Group>());
        let records: Vec<Group> = records.map(bytemuck::pod_read_unaligned).collect();
        if !image.groups.len().is_multiple_of(size_of::<Group>())
            || records.iter().any(|group| group.head > table.row_count())
        {
            return Err(damaged("groups"));
        }
        let entries_max = if self.grouping.is_some() { records.len() } else { table.row_count() as usize };
        let ordered = if self.priority.is_empty() { 0 } else { image.entries.len() };
        if image.entries.iter().any(|entry| *entry as usize >= entries_max)
            || image.tickets.len() != image.entries.len()
            || image.priorities.len() != ordered
            || image.trajectories.iter().any(|trajectory| trajectory.group as usize >= records.len())
        {
            return Err(damaged("queue entries"));
        }
        let mut queue = Queue::new(!self.priority.is_empty());
        for (at, (&entry, &ticket)) in image.entries.iter().zip(&image.tickets).enumerate() {
            let rows = self.grouping.map_or(1, |_| records[entry as usize].ready);
            queue.push(entry, rows, ticket, image.priorities.get(at).copied().unwrap_or_default());
        }
        let mut groups = Groups::from_records(records);
        groups.trajectories = image.trajectories.iter().map(TrajectoryImage::restored).collect();
        groups.reasons =
            image.reasons.into_iter().map(|(id, reason)| (id, reason.into())).collect::<HashMap<_, _>>();
        Ok(Partition { queue, groups })
    }

    /// Bytes of memory beside the rows' words.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.partitions
            .values()
            .map(|partition| partition.queue.heap_bytes() + partition.groups.heap_bytes())
            .sum()
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
    fn image(&self, (table, version): (u32, u64)) -> SaidImage {
        let Said { name: GroupName { text, turn, agent, origin }, size, closed, .. } = *self;
        let (text, agent, origin, trajectories) = (text.0, agent.0, origin.0, self.trajectories.clone());
        SaidImage { table, version, text, turn, agent, origin, size, closed, trajectories }
    }
}

impl SaidImage {
    fn restored(self) -> Said {
        let (text, agent, origin) = (TextId(self.text), TextId(self.agent), TextId(self.origin));
        let name = GroupName { text, turn: self.turn, agent, origin };
        Said { name, size: self.size, closed: self.closed, trajectories: self.trajectories }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
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

    /// Every consumer of a store equals what its image, stored and read again, makes of an empty one.
    fn check(store: &Store) {
        let state = store.0.state.lock();
        for (index, consumer) in state.consumers.iter().enumerate() {
            check_tally(&state, index);
            let image = consumer.image(&state.tables);
            let bytes = rkyv::to_bytes::<rkyv::rancor::Error>(&image).unwrap();
            let read = rkyv::from_bytes::<ConsumerStateImage, rkyv::rancor::Error>(&bytes).unwrap();
            let mut restored = emptied(consumer);
            restored.restore(read, &state.tables).unwrap();
            assert_eq!(restored.image(&state.tables), image);
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
            let planned = open.into_iter().flat_map(|step| &step.planned);
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
            ops in prop::collection::vec((0..19_u8, 0..2_u32, 0..3_u32, 0..2_u32), 1..60),
        ) {
            run(window, &ops);
        }

        #[test]
        fn hostile_images_are_errors(
            groups in prop::collection::vec(any::<u8>(), 0..100),
            entries in prop::collection::vec(0..4_u32, 0..4),
        ) {
            let store = Store::open("/store", Options::default().disk(Arc::new(SimulatedDisk::default()))).unwrap();
            store.create_table("t", Schema::new()).unwrap();
            store.create_consumer("c", Consumer::task(["t"]).group(GroupBy::Input, 2)).unwrap();
            let state = store.0.state.lock();
            let partition = PartitionImage {
                table: 0,
                version: 0,
                tickets: vec![1; entries.len()],
                entries,
                priorities: Vec::new(),
                groups,
                trajectories: Vec::new(),
                reasons: Vec::new(),
            };
            let image = ConsumerStateImage { floors: vec![0], partitions: vec![partition], ..Default::default() };
            let _ = emptied(&state.consumers[0]).restore(image, &state.tables);
        }
    }
}
