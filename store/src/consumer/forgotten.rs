//! Groups of peers' rows that are forgotten.
//!
//! A version of this run is over when its policy has left it, and its groups go with it. Rows of peers are of no version
//! that is ever over, so their groups go one by one: when no row of them is left, which says that they were trained on, left
//! out or retired, and deleted since. A group with rows stays, for a rewind may bring these back, and a row that comes when
//! the group has all its members is to be surplus.
//!
//! Groups are numbered by where they lie, so that some go means that all are numbered anew. It is done when half of them can
//! go, so that a group costs no more than a few looks in its life; the record says of which table, and the rest follows.

use std::collections::HashSet;

use super::group::{Group, GroupName, Standing};
use super::groups::{GroupId, Groups};
use super::state::ConsumerState;
use crate::origin::EXTERNAL_VERSION;
use crate::table::TableState;

impl ConsumerState {
    /// How many groups of peers' rows there are of a table.
    pub(crate) fn groups_of_peers(&self, table: u32) -> usize {
        self.partitions.get(&(table, EXTERNAL_VERSION)).map_or(0, |partition| partition.groups.len())
    }

    /// How many of those can go.
    pub(crate) fn groups_to_forget(&self, table: &TableState) -> usize {
        let Some(partition) = self.partitions.get(&(table.id, EXTERNAL_VERSION)) else { return 0 };
        let stays = self.stays(table);
        partition.groups.iter().filter(|group| !stays(group)).count()
    }

    /// Forgets those.
    pub(crate) fn forget_groups_of_peers(&mut self, table: &TableState) {
        let (lane, stays) = ((table.id, EXTERNAL_VERSION), self.stays(table));
        let Some(partition) = self.partitions.get_mut(&lane) else { return };
        let numbers = partition.groups.numbered_anew(stays);
        let new = |id: GroupId| numbers.get(id as usize).copied().flatten();
        partition.groups.keep(&numbers);
        // Whoever is queued has rows, and stays, and so does whoever is planned.
        partition.queue.renumber(|id| new(id).unwrap_or(id));
        if let Some(plan) = &mut self.plan {
            plan.renumber(lane, |id| new(id).unwrap_or(id));
        }
        let groups = &partition.groups;
        self.deleted.forget_groups(lane, |name| groups.find(name).is_none());
    }

    /// Whether a group stays: a row of it is there, the open step takes it, or something was said of it that
    /// holds for rows to come.
    fn stays(&self, table: &TableState) -> impl Fn(&Group) -> bool + use<> {
        let grouping = self.grouping;
        let there: HashSet<GroupName> = grouping.map_or_else(HashSet::new, |grouping| {
            let rows = table.rows_where(|chunk| chunk.summary.version_max == EXTERNAL_VERSION);
            let rows = rows.filter(|&row| !table.is_removed(row) && table.meta(row).is_external());
            rows.map(|row| grouping.by.name(&table.meta(row))).collect()
        });
        move |group| {
            let said = grouping.is_none_or(|grouping| {
                let open = group.standing(&grouping) != Standing::Over;
                open && (grouping.counts_trajectories() || u32::from(group.size) != grouping.size)
            });
            group.members == 0 || group.is_planned() || said || there.contains(&group.name)
        }
    }
}

impl Groups {
    /// The new numbers of the groups that stay.
    fn numbered_anew(&self, stays: impl Fn(&Group) -> bool) -> Vec<Option<GroupId>> {
        let mut next = 0;
        let number = |group| {
            stays(group).then(|| {
                next += 1;
                next - 1
            })
        };
        self.iter().map(number).collect()
    }

    /// Keeps the groups that have a new number.
    fn keep(&mut self, numbers: &[Option<GroupId>]) {
        let new = |id: GroupId| numbers.get(id as usize).copied().flatten();
        let mut kept = Groups::default();
        for (group, _) in self.iter().zip(numbers).filter(|(_, number)| number.is_some()) {
            let (id, _) = kept.find_or_create(group.name, group.size.into());
            *kept.get_mut(id) = *group;
        }
        let trajectories = std::mem::take(&mut self.trajectories).into_iter();
        kept.trajectories = trajectories.filter_map(|((id, n), of)| Some(((new(id)?, n), of))).collect();
        let reasons = std::mem::take(&mut self.reasons).into_iter();
        kept.reasons = reasons.filter_map(|(id, reason)| Some((new(id)?, reason))).collect();
        *self = kept;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::*;

    fn open(disk: &SimulatedDisk) -> Store {
        Store::open("/store", Options::default().disk(Arc::new(disk.clone()))).unwrap()
    }

    fn declared(store: &Store) -> (Table, ConsumerHandle) {
        let table = store.create_table("t", Schema::new().data("reward", DataType::Float32)).unwrap();
        let by_input =
            |consumer: Consumer| consumer.ready(["reward"]).group(GroupBy::Input, 2).origins(Origins::All);
        store.create_consumer("judge", by_input(Consumer::task(["t"]))).unwrap();
        (table, store.create_consumer("train", by_input(Consumer::trainer(["t"]))).unwrap())
    }

    fn origin(round: u64) -> Origin {
        Origin { peer: "berlin".to_owned(), round }
    }

    fn receive(table: &Table, round: u64, trajectory: u32) -> Row {
        let new = NewRow::new(0, &format!("q{round}_0_{trajectory}")).unwrap();
        table.insert_row(new.external(&origin(round)), [("reward", 1.0.into())]).unwrap()
    }

    fn groups(store: &Store) -> [usize; 2] {
        let state = store.0.state.lock();
        [0, 1].map(|consumer| state.consumers[consumer].groups_of_peers(0))
    }

    fn key(round: u64) -> String {
        origin(round).group(&format!("q{round}"))
    }

    /// A round of a peer is received, judged, trained on and deleted; the newest stays.
    fn live(store: &Store, table: &Table, train: &ConsumerHandle, rounds: std::ops::Range<u64>) -> Vec<Row> {
        let judge = store.consumer("judge").unwrap();
        let mut rows = Vec::new();
        for round in rounds {
            table.delete(&Delete::rows(std::mem::take(&mut rows)).force()).unwrap();
            store.run_once().unwrap();
            rows.extend((0..3).map(|trajectory| receive(table, round, trajectory)));
            judge.claim(MicroBatch::of(2), "me", Wait::No).unwrap().unwrap().finish(|_| Ok(())).unwrap();
            let step = store.begin_step(StepPlan::new().groups(train, [key(round)])).unwrap();
            store.run_once().unwrap();
            step.next(train, MicroBatch::of(2), Wait::No).unwrap().unwrap().accumulated().unwrap();
            step.commit([("t", vec![])]).unwrap();
            assert!(table.counts().excluded["surplus"] > 0);
        }
        rows
    }

    #[test]
    fn groups_of_peers_are_as_many_as_have_rows_whatever_came_and_went() {
        let disk = SimulatedDisk::default();
        let mut store = open(&disk);
        let (table, train) = declared(&store);
        let rows = live(&store, &table, &train, 0..100);
        assert!(groups(&store).into_iter().all(|groups| (1..20).contains(&groups)), "{:?}", groups(&store));
        table.delete(&Delete::rows(rows[..1].iter().copied()).force()).unwrap();
        assert_eq!(receive(&table, 99, 7), table.find(0, &"q99_0_7".parse().unwrap()).unwrap());
        assert_eq!(table.counts().excluded["surplus"], 101, "a group that has rows left is not begun again");
        let told = (groups(&store), table.counts(), store.consumers());
        drop((table, train));
        for way in ["from the log", "from a checkpoint"] {
            std::mem::forget(store);
            disk.restart();
            store = open(&disk);
            assert_eq!(
                (groups(&store), store.table("t").unwrap().counts(), store.consumers()),
                told,
                "{way}"
            );
            store.checkpoint().unwrap();
        }
        let (table, train) = (store.table("t").unwrap(), store.consumer("train").unwrap());
        live(&store, &table, &train, 200..300);
        assert!(groups(&store).into_iter().all(|groups| groups < 20), "{:?}", groups(&store));
    }

    #[test]
    fn what_waits_and_what_a_step_takes_stays_as_it_is_when_others_are_forgotten() {
        let store = open(&SimulatedDisk::default());
        let (table, train) = declared(&store);
        let mut gone = Vec::new();
        for round in 0..40 {
            gone.push(receive(&table, round, 0));
        }
        let ready = [50, 51].map(|round| [receive(&table, round, 0), receive(&table, round, 1)]);
        let half = receive(&table, 52, 0);
        train.expect_group(&table, 0, &key(53), 1).unwrap();
        let step = store.begin_step(StepPlan::new().groups(&train, [50, 51, 52, 53].map(key))).unwrap();
        table.delete(&Delete::rows(gone)).unwrap();
        assert_eq!(groups(&store), [43, 44]);
        store.run_once().unwrap();
        assert_eq!(groups(&store), [3, 4]);
        let take = || step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
        let taken = [take(), take()];
        assert_eq!(
            taken.each_ref().map(|claim| claim.rows().to_vec()),
            ready.map(Vec::from),
            "in their order"
        );
        assert!(
            step.next(&train, MicroBatch::up_to(2), Wait::No).unwrap().is_none() && !step.is_complete(&train)
        );
        let last = [receive(&table, 52, 1), receive(&table, 53, 0)];
        let rest = step.next(&train, MicroBatch::up_to(4), Wait::No).unwrap().unwrap();
        assert_eq!(rest.rows(), [half, last[0], last[1]]);
        assert!(step.is_complete(&train));
    }
}
