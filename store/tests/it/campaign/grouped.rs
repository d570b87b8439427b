//! The calls of a life in groups: members that come with their group's size and without, spans and masks, rows of peers, columns that
//! come and go, and micro-batches that two ranks take as one and hold for longer.

use std::time::Duration;

use forebay_store::*;

use super::workload::{Told, Workload};

const TEAM: &str = "team";
/// What a group has where nobody said anything of it.
const MEMBERS: u32 = 2;

/// A row of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    row: Row,
    version: u64,
    group: u64,
}

/// Makes what is not there yet.
pub(super) fn declare_team(store: &Store, told: &mut dyn FnMut(&Store)) -> Result<()> {
    let columns = Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .data("reward", DataType::Float32);
    let trainer = Consumer::trainer([TEAM]).ready(["response", "reward"]).group(GroupBy::Input, MEMBERS);
    let trainer = trainer.staleness(1).origins(Origins::All);
    let mut made = |result: Result<()>| match result {
        Err(error) if !matches!(error.cause(), Cause::Exists { .. }) => Err(error),
        _ => {
            told(store);
            Ok(())
        }
    };
    made(store.create_policy(TEAM, 0, &[]))?;
    made(store.create_table(TEAM, columns).map(drop))?;
    made(store.create_consumer("train-team", trainer).map(drop))
}

/// Whether a call was made; one that is refused for what it says or what there is changes nothing.
fn unless_refused(result: Result<()>) -> Result<bool> {
    match result {
        Err(error) if error.kind() == Kind::Input => Ok(false),
        result => Workload::unless_state(result),
    }
}

impl Workload<'_> {
    pub(super) fn group(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        match self.dice.below(14) {
            0..4 => self.insert_members(store, told),
            4 => self.expect(store, told),
            5 => self.close(store, told),
            6..9 => self.score_members(store, told),
            9 => self.go_on_under_another(store, told),
            10 => self.mask(store, told),
            11 => self.change_columns(store, told),
            _ => self.train_groups(store, told),
        }
    }

    /// A group that there is, or is to come.
    fn any_group(&self) -> u64 {
        self.dice.below(self.groups + 2)
    }

    fn member(&self) -> Option<Member> {
        (!self.members.is_empty()).then(|| self.members[self.dice.below(self.members.len() as u64) as usize])
    }

    fn insert_members(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let (table, version) = (store.table(TEAM)?, store.policy(TEAM)?.version);
        let level = self.life.level(&self.dice);
        let peer = Origin { peer: "peer".to_owned(), round: self.dice.below(3) };
        let mut batch = store.batch();
        batch.durability(level);
        let mut groups = Vec::new();
        for _ in 0..=self.dice.below(3) {
            let group = if self.dice.below(3) == 0 { self.any_group() } else { self.groups };
            self.groups = self.groups.max(group + self.dice.below(2));
            let new = NewRow::next_trajectory(version, &format!("team{group}"), 0)?;
            let new = if self.dice.below(6) == 0 { new.external(&peer) } else { new };
            batch.insert(&table, new, [("prompt", (&*self.text()).into())])?;
            groups.push(group);
        }
        let rows = batch.commit()?;
        told(store, level);
        for (row, group) in rows.into_iter().zip(groups) {
            self.members.push(Member { row, version, group });
            self.rows.push((row, TEAM));
        }
        Ok(())
    }

    fn expect(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let (train, table) = (store.consumer("train-team")?, store.table(TEAM)?);
        let (key, version) = (format!("team{}", self.any_group()), store.policy(TEAM)?.version);
        if unless_refused(train.expect_group(&table, version, &key, 1 + self.dice.below(3) as u32))? {
            told(store, self.level);
        }
        Ok(())
    }

    fn close(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let Some(Member { version, group, .. }) = self.member() else { return Ok(()) };
        let (train, table) = (store.consumer("train-team")?, store.table(TEAM)?);
        if unless_refused(train.close_group(&table, version, &format!("team{group}")))? {
            told(store, self.level);
        }
        Ok(())
    }

    /// Cells of some members, those of columns that came later among them.
    fn score_members(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let table = store.table(TEAM)?;
        let extra = table
            .schema()
            .data_columns()
            .iter()
            .rev()
            .find(|column| column.data_type == DataType::Int64 && !column.retired);
        let extra = extra.map(|column| column.name.clone());
        let level = self.life.level(&self.dice);
        let mut batch = store.batch();
        batch.durability(level);
        let first = self.dice.below(self.members.len().max(1) as u64) as usize;
        for Member { row, .. } in self.members[first.min(self.members.len())..].iter().take(5) {
            if Self::is_empty(&table, *row, "reward")? {
                batch.write(&table, *row, [("reward", (self.dice.below(8) as f64 / 4.0).into())])?;
            }
            if Self::is_empty(&table, *row, "response")? {
                batch.write(&table, *row, [("response", (&self.tokens()).into())])?;
            }
            if let Some(extra) = &extra
                && Self::is_empty(&table, *row, extra)?
            {
                batch.write(&table, *row, [(&**extra, (self.dice.below(100) as i64).into())])?;
            }
        }
        if Self::unless_state(batch.commit().map(drop))? {
            told(store, level);
        }
        Ok(())
    }

    fn go_on_under_another(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let Some(Member { row, version, .. }) = self.member() else { return Ok(()) };
        let (start, later) = (1 + self.dice.below(40) as u32, version + 1 + self.dice.below(2));
        if unless_refused(store.table(TEAM)?.span(row, start, later))? {
            told(store, self.level);
        }
        Ok(())
    }

    fn mask(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let Some(Member { row, .. }) = self.member() else { return Ok(()) };
        if unless_refused(store.table(TEAM)?.trainable_from(row, self.dice.below(60) as u32))? {
            told(store, self.level);
        }
        Ok(())
    }

    /// A column comes, has another name, or goes.
    fn change_columns(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let (table, next) = (store.table(TEAM)?, self.columns);
        let last = next.checked_sub(1).map(|last| format!("extra{last}"));
        let changed = match (self.dice.below(3), last) {
            (0, Some(last)) => table.rename_column(&last, &format!("renamed{next}")),
            (1, Some(last)) => table.retire_column(&last),
            _ => {
                self.columns += 1;
                table.add_column(DataColumn::new(&format!("extra{next}"), DataType::Int64))
            }
        };
        if unless_refused(changed)? {
            told(store, self.level);
        }
        Ok(())
    }

    /// One step over every group that was begun, by two ranks.
    fn train_groups(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let train = store.consumer("train-team")?;
        let groups = train.open_groups();
        if groups.is_empty() {
            return Ok(());
        }
        let step = store.begin_step(StepPlan::new().groups(&train, groups))?;
        told(store, self.level);
        let split = self.dice.one_of(&[Split::Same, Split::Balanced]);
        let join = |rank| step.join(&train, Gang::new("dp", rank, 2).split(split));
        let ranks = [join(0)?, join(1)?];
        let mut trained = false;
        loop {
            let next = |rank: &GangMember| rank.next(MicroBatch::up_to(4), Wait::No);
            let (Some(first), Some(second)) = (next(&ranks[0])?, next(&ranks[1])?) else { break };
            told(store, Durability::Memory);
            if self.dice.below(2) == 0 {
                first.extend(Duration::from_secs(600))?;
                told(store, Durability::Memory);
            }
            if self.dice.below(6) == 0 {
                first.release()?; // lost by one, lost for both
                drop(second);
                told(store, Durability::Memory);
                continue;
            }
            first.accumulated()?;
            told(store, Durability::Memory);
            second.accumulated()?;
            told(store, self.level);
            trained = true;
        }
        if !trained {
            step.abandon()?;
            told(store, Durability::Memory);
            return Ok(());
        }
        let version = store.policy(TEAM)?.version + 1;
        let weights = store.put_object(TEAM, version, &vec![version as u8; self.dice.one_of(&[10, 3000])])?;
        step.commit([(TEAM, vec![weights])])?;
        self.trained += 1;
        told(store, self.level);
        Ok(())
    }
}
