//! The relatives of a row: those that it continues, and those that continue it, over all tables.
//!
//! One generation at a time, so that what is held in memory is the family and not the tables: parents are looked for by
//! their sample ids, which leave out most parts and files unread; children by a condition on `parent`; rows without a parent
//! among those of their trajectory, as far as tables say which agent goes on. Every look is a query over the tables of the
//! moment, live and archived rows in one. It is made from where a plan is made, and ends with it.
//!
//! A row is one version and one attempt of a sample of a table, and comes once, at the generation that it was first met in:
//! so a family ends, also where rows name each other in a circle. Which versions belong together say `links` and `trajectory`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Column;
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use datafusion::physical_plan::collect;

use super::links::meant;
use super::member::{Member, columns, members, names_next_agents};
use super::trajectory::Trajectory;
use crate::catalog::Catalogs;

/// Where to look for relatives.
pub(super) struct Family<'a> {
    session: &'a dyn Session,
    tables: Vec<(Arc<str>, Arc<dyn TableProvider>)>,
    /// The tables in the order in which they were made, as far as that is known: an archive does not tell.
    numbered: Vec<Arc<str>>,
    /// Whether rows say which agent goes on.
    names_next_agents: bool,
}

/// An input and the number of a trajectory of it.
type Key = (String, u32);

/// The trajectories that were met so far.
type Trajectories = HashMap<Key, Trajectory>;

fn key(member: &Member) -> Key {
    (member.sample.input().to_owned(), member.sample.trajectory())
}

impl<'a> Family<'a> {
    /// The families in the tables of a query's moment.
    pub(super) fn new(session: &'a dyn Session, catalogs: &Catalogs) -> PlanResult<Self> {
        let mut tables = Vec::new();
        for name in catalogs.agent_tables() {
            if let Some(provider) = catalogs.agent_table(&name)? {
                tables.push((Arc::from(name), provider));
            }
        }
        let numbered = catalogs.moment().numbered_tables().map(Arc::from).collect();
        let names_next_agents = tables.iter().any(|(_, provider)| names_next_agents(&provider.schema()));
        Ok(Family { session, tables, numbered, names_next_agents })
    }

    /// The rows of a name, of all versions or one, their ancestors (depth below 0) and their descendants (above 0): by depth,
    /// and then in the order of tables, versions, samples and attempts.
    pub(super) async fn around(&self, row: &str, version: Option<u64>) -> PlanResult<Vec<(i32, Member)>> {
        let mut own = self.named(&HashSet::from([row.to_owned()])).await?;
        own.retain(|member| version.is_none_or(|version| member.version == version));
        let mut seen: HashSet<Member> = own.iter().cloned().collect();
        let mut found: Vec<(i32, Member)> = own.iter().map(|member| (0, member.clone())).collect();
        let mut known = HashMap::new();
        for step in [-1, 1] {
            let (mut depth, mut front) = (0, own.clone());
            while !front.is_empty() {
                depth += step;
                let next = match step {
                    1 => self.after(&front, &mut known).await?,
                    _ => self.before(&front, &mut known).await?,
                };
                front = next.into_iter().filter(|member| seen.insert(member.clone())).collect();
                found.extend(front.iter().map(|member| (depth, member.clone())));
            }
        }
        let place: BTreeMap<&str, usize> =
            self.tables.iter().enumerate().map(|(place, (name, _))| (&**name, place)).collect();
        found.sort_by_cached_key(|(depth, member)| {
            let place = place.get(&*member.table).copied();
            (*depth, place, member.version, member.sample.clone(), member.attempt)
        });
        Ok(found)
    }

    /// The rows that these continue.
    async fn before(&self, front: &[Member], known: &mut Trajectories) -> PlanResult<Vec<Member>> {
        let rows = self.named(&front.iter().filter_map(|member| member.parent.clone()).collect()).await?;
        let named = by_name(&rows);
        let of_name = |name: &String| named.get(name).map_or(&[][..], Vec::as_slice);
        let parents = front.iter().flat_map(|member| {
            member.parent.iter().flat_map(|parent| meant(member, of_name(parent))).cloned()
        });
        let mut found: Vec<Member> = parents.collect();
        let by_turn = || front.iter().filter(|member| member.parent.is_none());
        self.learn(by_turn(), known).await?;
        for member in by_turn() {
            found.extend(known.get(&key(member)).into_iter().flat_map(|rows| rows.before(member)).cloned());
        }
        Ok(found)
    }

    /// The rows that continue these.
    async fn after(&self, front: &[Member], known: &mut Trajectories) -> PlanResult<Vec<Member>> {
        let children = self.continuing(&front.iter().map(Member::name).collect()).await?;
        let rows = self.named(&children.iter().filter_map(|child| child.parent.clone()).collect()).await?;
        let named = by_name(&rows);
        let of_name = |name: &String| named.get(name).map_or(&[][..], Vec::as_slice);
        let own: HashSet<&Member> = front.iter().collect();
        let of_front = |child: &Member| {
            let mut parents = child.parent.iter().flat_map(|parent| meant(child, of_name(parent)));
            parents.any(|parent| own.contains(parent))
        };
        let mut found: Vec<Member> = children.iter().filter(|child| of_front(child)).cloned().collect();
        let by_turn = || front.iter().filter(|member| member.next.is_some());
        self.learn(by_turn(), known).await?;
        for member in by_turn() {
            found.extend(known.get(&key(member)).into_iter().flat_map(|rows| rows.after(member)).cloned());
        }
        Ok(found)
    }

    /// The rows of these names, each `TABLE/SAMPLE_ID`.
    async fn named(&self, names: &HashSet<String>) -> PlanResult<Vec<Member>> {
        let mut found = Vec::new();
        for (table, provider) in &self.tables {
            let of_table = |name: &String| name.strip_prefix(&**table)?.strip_prefix('/').map(str::to_owned);
            let samples: HashSet<String> = names.iter().filter_map(of_table).collect();
            found.extend(self.look(table, provider, one_of("sample_id", &samples)).await?);
        }
        Ok(found)
    }

    /// The rows of all tables that continue rows of these names.
    async fn continuing(&self, names: &HashSet<String>) -> PlanResult<Vec<Member>> {
        let mut found = Vec::new();
        for (table, provider) in &self.tables {
            found.extend(self.look(table, provider, one_of("parent", names)).await?);
        }
        Ok(found)
    }

    /// Reads these rows' trajectories, each once; nothing where no row says which agent goes on.
    async fn learn(&self, of: impl Iterator<Item = &Member>, known: &mut Trajectories) -> PlanResult<()> {
        let keys: HashSet<Key> = of.map(key).filter(|key| !known.contains_key(key)).collect();
        if !self.names_next_agents || keys.is_empty() {
            return Ok(());
        }
        let inputs: HashSet<String> = keys.iter().map(|(input, _)| input.clone()).collect();
        let numbers: HashSet<u32> = keys.iter().map(|(_, trajectory)| *trajectory).collect();
        let mut found: HashMap<Key, Vec<Member>> = HashMap::new();
        for (table, provider) in &self.tables {
            let both = one_of("input_id", &inputs).zip(one_of("trajectory_id", &numbers));
            let both = both.map(|(input, trajectory)| input.and(trajectory));
            for member in self.look(table, provider, both).await? {
                found.entry(key(&member)).or_default().push(member);
            }
        }
        let asked = found.into_iter().filter(|(key, _)| keys.contains(key));
        known.extend(asked.map(|(key, rows)| (key, Trajectory::new(rows, &self.numbered))));
        Ok(())
    }

    /// The rows of a table that a condition lets through; without one there is nothing to look for.
    async fn look(
        &self,
        table: &Arc<str>,
        provider: &Arc<dyn TableProvider>,
        condition: Option<Expr>,
    ) -> PlanResult<Vec<Member>> {
        let Some(condition) = condition else { return Ok(Vec::new()) };
        let plan = LogicalPlanBuilder::scan(&**table, provider_as_source(provider.clone()), None)?
            .filter(condition)?
            .project(columns(&provider.schema()))?
            .build()?;
        let plan = self.session.create_physical_plan(&plan).await?;
        let batches = collect(plan, self.session.task_ctx()).await?;
        Ok(batches.iter().flat_map(|batch| members(table, batch)).collect())
    }
}

fn by_name(rows: &[Member]) -> HashMap<String, Vec<&Member>> {
    let mut named: HashMap<String, Vec<&Member>> = HashMap::new();
    rows.iter().for_each(|row| named.entry(row.name()).or_default().push(row));
    named
}

/// Whether a column has one of the values; `None` for none.
fn one_of<'v, T: 'v + Clone + datafusion::logical_expr::Literal>(
    column: &str,
    values: impl IntoIterator<Item = &'v T>,
) -> Option<Expr> {
    let values: Vec<Expr> = values.into_iter().cloned().map(lit).collect();
    let column = Expr::Column(Column::from_name(column));
    (!values.is_empty()).then(|| Expr::InList(InList::new(Box::new(column), values, false)))
}
