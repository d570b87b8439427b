//! The calls of the protocol, each turned into what is done.
//!
//! A call that changes something runs to its end once it has begun, whoever is still there to hear of it, and its answer is
//! kept under its name. A wait for rows ends with its client.

use std::sync::Arc;

use forebay_client::wire::proto::store_server::Store as Protocol;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, SESSION, from_error, malformed};
use forebay_client::{Commit, Declaration, Error, Plan, consumers, declare, grow, read};
use forebay_store::{ConsumerKind, Delete, Kind, Rewind};
use futures_util::{StreamExt, stream};
use tonic::{Request, Response, Streaming};

use super::bulk::Brought;
use super::call::{
    ADMIN, READ, Reply, Service, TRAIN, WORK, WRITE, binary, is_of_this_machine, is_own_user, process_of,
};
use super::granting::pushing::{self, Pushing};
use super::quick;
use super::sending::{Part, messages};
use super::sessions::{Local, check_gang, check_owner};
use super::slabs::SLAB_BYTES;
use super::streams::{self, Answers};
use super::turns::Turning;
use crate::access::{Caller, Scope};
use crate::asked::failure;

fn to_declaration(declaration: Option<declare_request::Declaration>) -> Result<Declaration, Error> {
    use declare_request::Declaration as Wire;
    Ok(match declaration.ok_or_else(|| malformed("a declaration of nothing"))? {
        Wire::Policy(policy) => Declaration::Policy(wire::to_policy(policy)),
        Wire::Table(schema) => Declaration::Table(wire::to_schema(schema)?),
        Wire::Consumer(consumer) => Declaration::Consumer(Box::new(wire::to_consumer(consumer)?)),
        Wire::AddColumn(column) => Declaration::AddColumn(wire::to_column(column)?),
        Wire::RenameColumn(RenameColumn { column, name }) => Declaration::RenameColumn { column, name },
        Wire::RetireColumn(column) => Declaration::RetireColumn { column },
    })
}

fn to_updates(updates: Vec<PolicyUpdate>) -> Vec<(String, Vec<forebay_store::ObjectRef>)> {
    let update =
        |update: PolicyUpdate| (update.policy, update.objects.into_iter().map(wire::to_object).collect());
    updates.into_iter().map(update).collect()
}

impl Service {
    /// Columns of a claim.
    pub(super) async fn columns_sent(&self, request: Request<ColumnsRequest>) -> Reply<Answers<Part>> {
        let call = self.enter(&request, WORK)?;
        let ColumnsRequest { incarnation, claim, columns: names, cells, placed, member } =
            request.into_inner();
        let wanted = streams::Wanted { names, cells, placed: placed && call.session.loans.is_some() };
        let (reader, epoch) = (self.reader(&call), (incarnation, claim, member));
        let rows =
            call.session.holder.look(epoch, forebay_store::Claim::len).map_err(|error| from_error(&error))?;
        let is_quick = quick::tells_places(&self.store, rows, &wanted);
        let sends_on = reader.clone();
        let stream = move || streams::answer_of_claim(&call.session.holder, epoch, &wanted, &sends_on);
        self.answer(match is_quick {
            true => stream().map_err(|error| from_error(&error))?,
            false => reader.read(stream).await?,
        })
    }

    /// Refuses a declaration that reaches beyond the tables that the caller's token is for.
    fn check_declaration(&self, caller: &Caller, name: &str, declaration: &Declaration) -> Result<(), Error> {
        match declaration {
            Declaration::Policy(_) => caller.check_all_tables(),
            Declaration::Consumer(consumer) => {
                consumer.tables.iter().try_for_each(|table| caller.check_table(table))
            }
            Declaration::Table(schema) => {
                caller.check_table(name)?;
                // Whose versions a table carries, that policy its holders reach.
                let other = schema.policy_name().filter(|policy| *policy != name);
                other.map_or(Ok(()), |policy| self.check_policy(caller, policy))
            }
            Declaration::AddColumn(_)
            | Declaration::RenameColumn { .. }
            | Declaration::RetireColumn { .. } => caller.check_table(name),
        }
    }

    /// What is to be pushed to a caller who may have it.
    fn pushing(&self, caller: &Caller, asked: SubscribeRequest) -> Result<Pushing, Error> {
        let SubscribeRequest { consumer, rule, outstanding, columns, placed, owner, cells, .. } = asked;
        self.check_consumer(caller, &consumer)?;
        check_owner(owner.as_deref().unwrap_or_default())?;
        streams::check_columns(&columns)?;
        let ask = ClaimRequest { consumer, rule, columns, placed, owner, cells, ..ClaimRequest::default() };
        Ok(Pushing { ask, outstanding: outstanding.max(1) as usize })
    }

    /// How a neighbour finds the store's files.
    fn neighbourhood(&self) -> Neighbourhood {
        let directory =
            std::path::absolute(self.store.path()).unwrap_or_else(|_| self.store.path().to_owned());
        let directory = directory.to_string_lossy().into_owned();
        Neighbourhood { directory, commits: self.store.commits(), check_values: self.store.checks_values() }
    }
}

#[tonic::async_trait]
impl Protocol for Service {
    type OpenStream = Answers<OpenEvent>;
    type QueryStream = Answers<ArrowPiece>;
    type SubscribeStream = Answers<Granted>;
    type ColumnsStream = Answers<ArrowPiece>;
    type ReadCellsStream = Answers<ArrowPiece>;
    type ReadSnapshotStream = Answers<ArrowPiece>;
    type GetObjectStream = Answers<ObjectPiece>;

    async fn open(&self, request: Request<OpenRequest>) -> Reply<Self::OpenStream> {
        use open_event::Event;
        let open = async {
            let caller = self.caller(&request)?;
            let OpenRequest { owner, resume, neighbour, slabs } = request.get_ref();
            check_owner(owner)?;
            let is_neighbour = *neighbour && is_own_user(&request);
            let slabs = *slabs && is_of_this_machine(&request) && self.limits.slab_bytes_max > 0;
            let process = (is_neighbour || slabs).then(|| process_of(&request)).flatten();
            let local = Local { neighbour: is_neighbour, process, slabs };
            let resume = resume.as_ref().and_then(|id| id.as_ref().try_into().ok());
            let entered = self.sessions.let_in(&caller.name, owner, resume, local.clone()).await?;
            Ok::<_, Error>((entered, local))
        };
        let ((id, present, resumed), local) = open.await.map_err(|error| from_error(&error))?;
        let first = Opened {
            session: id.to_vec().into(),
            store_id: self.store.id(),
            lease_ms: self.store.lease().as_millis() as u64,
            grace_ms: self.sessions.grace.as_millis() as u64,
            message_bytes_max: self.limits.message_bytes_max as u64,
            resumed,
            neighbourhood: local.neighbour.then(|| self.neighbourhood()),
            slab_bytes: if local.slabs { SLAB_BYTES } else { 0 },
            bulk_bytes_max: self.limits.bulk_bytes_max,
        };
        let first = OpenEvent { event: Some(Event::Opened(first)) };
        let alive = || OpenEvent { event: Some(Event::Alive(true)) };
        Ok(Response::new(streams::presence(first, alive, present, self.stopper.told())))
    }

    async fn close(&self, request: Request<CloseRequest>) -> Reply<CloseReply> {
        let call = self.enter(&request, READ)?;
        drop(call);
        self.sessions.end(&binary(request.metadata(), SESSION)).await?;
        Ok(Response::new(CloseReply {}))
    }

    async fn declare(&self, request: Request<DeclareRequest>) -> Reply<DeclareReply> {
        let call = self.enter(&request, WRITE)?;
        let DeclareRequest { name, declaration } = request.into_inner();
        let (service, caller) = (self.clone(), call.caller.clone());
        self.once(call, move |holder| {
            let declaration = to_declaration(declaration)?;
            service.check_declaration(&caller, &name, &declaration)?;
            declare(holder.store(), &name, declaration)?;
            Ok(DeclareReply {})
        })
        .await
    }

    async fn describe(&self, request: Request<DescribeRequest>) -> Reply<DescribeReply> {
        use describe_request::What;
        let caller = self.enter(&request, READ)?.caller;
        let (store, what) = (self.store.clone(), request.into_inner().what);
        let describe = move || -> Result<DescribeReply, Error> {
            let none = DescribeReply::default();
            Ok(match what.ok_or_else(|| malformed("a question about nothing"))? {
                What::Tables(_) => {
                    let mut names = store.tables();
                    names.retain(|table| caller.sees_table(table));
                    DescribeReply { names, ..none }
                }
                What::Groups(consumer) => {
                    self.check_tables_of(&caller, &consumer)?;
                    DescribeReply { names: store.consumer(&consumer)?.open_groups(), ..none }
                }
                What::Consumer(name) => {
                    self.check_tables_of(&caller, &name)?;
                    DescribeReply { trainer: store.consumer(&name)?.kind() == ConsumerKind::Trainer, ..none }
                }
                What::Consumers(_) => {
                    let mut all = consumers(&store);
                    all.retain(|declared| declared.tables.iter().all(|table| caller.sees_table(table)));
                    DescribeReply { consumers: all.into_iter().map(wire::from_declared).collect(), ..none }
                }
                What::Table(name) => {
                    caller.check_table(&name)?;
                    let table = store.table(&name)?;
                    let counts = table.counts();
                    let excluded = counts.excluded.into_iter().collect();
                    let counts = Counts { written: counts.written, consumed: counts.consumed, excluded };
                    let schema = Some(wire::from_schema(table.schema()));
                    DescribeReply { schema, counts: Some(counts), number: Some(table.id()), ..none }
                }
                What::Policy(name) => {
                    self.check_policy(&caller, &name)?;
                    let info = store.policy(&name)?;
                    let objects = info.objects.iter().map(wire::from_object).collect();
                    let (version, updated_at) = (info.version, info.updated_at.0);
                    let policy = Policy { version, objects, state_keys: Vec::new(), updated_at };
                    DescribeReply { policy: Some(policy), ..none }
                }
            })
        };
        // Looks at memory alone, so it may run here.
        describe().map(Response::new).map_err(|error| from_error(&error))
    }

    async fn write(&self, request: Request<WriteRequest>) -> Reply<WriteReply> {
        let call = self.enter(&request, WRITE)?;
        self.written(call, request.into_inner(), Brought::default()).await
    }

    async fn grow(&self, request: Request<GrowRequest>) -> Reply<GrowReply> {
        let call = self.enter(&request, WORK)?;
        let GrowRequest { table, row, column, value } = request.into_inner();
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        self.once_in_turn(call, Turning::Write, move |holder| {
            let row = wire::to_row(&row)?;
            holder.store().check_rows(&[row])?;
            let none = wire::Lent::default();
            let value = value.as_ref().map(|value| wire::to_value(Some(value), &none)).transpose()?;
            grow(holder.store(), &table, row, &column, value)?;
            Ok(GrowReply {})
        })
        .await
    }

    async fn lend(&self, request: Request<LendRequest>) -> Reply<Loan> {
        let call = self.enter(&request, WORK)?;
        let LendRequest { policy_version, bytes, back } = request.into_inner();
        let session = call.session.clone();
        self.once_in_turn(call, Turning::Write, move |holder| {
            let loans = session.loans.as_ref().ok_or_else(|| {
                let message = "extents are lent to processes of the server's own user alone; send the values";
                Error::new(Kind::State, "NotNeighbour", message)
            })?;
            let back: Vec<_> = back.iter().map(wire::to_loan).collect();
            Ok(wire::from_loan(loans.lend(holder.store(), policy_version, bytes, &back)?))
        })
        .await
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Reply<DeleteReply> {
        let asked = request.get_ref();
        let by_rule = asked.all || asked.first_version.is_some() || asked.last_version.is_some();
        // Whoever writes may take back rows that nobody holds.
        let call = self.enter(&request, if by_rule || asked.force { ADMIN } else { WRITE })?;
        let message = request.into_inner();
        call.caller.check_table(&message.table).map_err(|error| from_error(&error))?;
        self.once(call, move |holder| {
            let mut rule = Delete::default();
            rule.versions = message.first_version.zip(message.last_version).map(|(first, last)| first..=last);
            rule.rows = message.by_rows.then(|| wire::to_rows(&message.rows)).transpose()?;
            (rule.all, rule.force) = (message.all, message.force);
            holder.store().check_rows(rule.rows.as_deref().unwrap_or_default())?;
            let deleted = holder.store().table(&message.table)?.delete(&rule)?;
            Ok(DeleteReply { rows: deleted.rows, open: deleted.open })
        })
        .await
    }

    async fn find(&self, request: Request<FindRequest>) -> Reply<FindReply> {
        self.rows_found(request).await
    }

    async fn read_cell(&self, request: Request<ReadCellRequest>) -> Reply<ReadCellReply> {
        let call = self.enter(&request, READ)?;
        let ReadCellRequest { table, row, column } = request.into_inner();
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        let (store, reader) = (self.store.clone(), self.reader(&call));
        let reply = reader.read(move || {
            let row = wire::to_row(&row)?;
            store.check_rows(&[row])?;
            Ok(wire::from_cell(store.table(&table)?.cell(row, &column)?.into()))
        });
        reply.await.map(Response::new)
    }

    async fn read_cells(&self, request: Request<ReadCellsRequest>) -> Reply<Self::ReadCellsStream> {
        let call = self.enter(&request, READ)?;
        let ReadCellsRequest { table, rows, column } = request.into_inner();
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        let (store, reader) = (self.store.clone(), self.reader(&call));
        let room = reader.answers.clone();
        let cells = reader.read(call.holding(move || {
            let rows = wire::to_rows(&rows)?;
            store.check_rows(&rows)?;
            let cells = read(&store, &table, &rows, &column)?.into_iter().map(wire::SentCell::Held);
            streams::Whole::of_cells(&[cells.collect()], &room)
        }));
        self.answer(messages(cells.await?.parts()))
    }

    async fn query(&self, request: Request<QueryRequest>) -> Reply<Self::QueryStream> {
        let call = self.enter(&request, &[Scope::Read])?;
        let query = Arc::new(self.queries.begin("grpc", None));
        let turn = self.turns.query(&call.session.reading, &call.caller).await?;
        let (session, statement) = (call.caller.session(&self.queryable), request.into_inner().statement);
        match self.threads.run(async move { session.stream(&statement).await }).await {
            Ok(rows) => {
                let rows = rows.driven_by(&self.threads, (turn, query.clone()));
                self.answer(streams::rows(rows, query)?)
            }
            Err(error) => {
                query.failed(error.kind().as_str());
                Err(from_error(&failure(&error)))
            }
        }
    }

    async fn take_snapshot(&self, request: Request<TakeSnapshotRequest>) -> Reply<TakeSnapshotReply> {
        self.snapshot_taken(request).await
    }

    async fn hold_snapshot(&self, request: Request<HoldSnapshotRequest>) -> Reply<HoldSnapshotReply> {
        self.snapshot_held(request).await
    }

    async fn read_snapshot(&self, request: Request<ReadSnapshotRequest>) -> Reply<Self::ReadSnapshotStream> {
        self.snapshot_read(request).await.map(|sent| sent.map(messages))
    }

    async fn snapshot_versions(
        &self,
        request: Request<SnapshotVersionsRequest>,
    ) -> Reply<SnapshotVersionsReply> {
        self.snapshot_versions_of(request).await
    }

    async fn claim(&self, request: Request<ClaimRequest>) -> Reply<ClaimReply> {
        let call = self.enter(&request, WORK)?;
        self.check_consumer(&call.caller, &request.get_ref().consumer).map_err(|error| from_error(&error))?;
        self.granted(&call, request.get_ref()).await.map(Response::new)
    }

    async fn subscribe(&self, request: Request<SubscribeRequest>) -> Reply<Self::SubscribeStream> {
        let call = self.enter(&request, WORK)?;
        let asked = request.into_inner();
        let held = pushing::named(&asked.held);
        if asked.give_up {
            call.session.give_up_subscription(call.name, &held);
            return Ok(Response::new(stream::empty().boxed()));
        }
        let attempt = asked.attempt;
        let pushing = self.pushing(&call.caller, asked).map_err(|error| from_error(&error))?;
        let is_live = |claim| call.session.is_live(claim);
        let turn = call.session.subscriptions.begin(call.name, attempt, &held, is_live);
        let pushed = match turn.map_err(|error| from_error(&error))? {
            Some(turn) => self.clone().pushed(call, pushing, turn).take_until(self.stopper.told()).boxed(),
            None => stream::empty().boxed(),
        };
        Ok(Response::new(pushed))
    }

    async fn columns(&self, request: Request<ColumnsRequest>) -> Reply<Self::ColumnsStream> {
        self.columns_sent(request).await.map(|sent| sent.map(messages))
    }

    async fn settle(&self, request: Request<SettleRequest>) -> Reply<SettleReply> {
        let call = self.enter(&request, WORK)?;
        self.settled(call, request.into_inner()).await
    }

    async fn begin_step(&self, request: Request<BeginStepRequest>) -> Reply<BeginStepReply> {
        let call = self.enter(&request, TRAIN)?;
        let entries = request.into_inner().plan;
        let allowed = entries.iter().try_for_each(|entry| self.check_consumer(&call.caller, &entry.consumer));
        allowed.map_err(|error| from_error(&error))?;
        self.once(call, move |holder| {
            let plan = entries.into_iter().fold(Plan::new(), |plan, entry| match entry.groups.is_empty() {
                true => plan.rows(&entry.consumer, entry.rows),
                false => plan.groups(&entry.consumer, entry.groups),
            });
            Ok(BeginStepReply { step: holder.begin_step(&plan)? })
        })
        .await
    }

    async fn join_step(&self, request: Request<JoinStepRequest>) -> Reply<JoinStepReply> {
        let call = self.enter(&request, TRAIN)?;
        let message = request.into_inner();
        self.check_consumer(&call.caller, &message.consumer)
            .and_then(|()| check_gang(&message.gang))
            .map_err(|error| from_error(&error))?;
        self.once(call, move |holder| {
            let member = holder.join_step(message.step, &message.consumer, wire::to_gang(&message))?;
            Ok(JoinStepReply { member })
        })
        .await
    }

    async fn ask_step(&self, request: Request<AskStepRequest>) -> Reply<AskStepReply> {
        use ask_step_request::Ask;
        let call = self.enter(&request, TRAIN)?;
        let AskStepRequest { step, ask } = request.into_inner();
        let allowed = match &ask {
            Some(Ask::DropCache(table)) => self.check_cache(&call.caller, table),
            Some(Ask::Check(commit)) => self.check_updates(&call.caller, &commit.updates),
            Some(Ask::ReturnLost(lost)) => self.check_claims(&call.caller, lost),
            Some(Ask::IsComplete(consumer)) => self.check_tables_of(&call.caller, consumer),
            None => Ok(()),
        };
        allowed.map_err(|error| from_error(&error))?;
        self.once(call, move |holder| {
            let yes = AskStepReply { yes: true, ..AskStepReply::default() };
            Ok(match ask.ok_or_else(|| malformed("a question about nothing"))? {
                Ask::IsComplete(consumer) => {
                    AskStepReply { yes: holder.is_complete(step, &consumer)?, ..AskStepReply::default() }
                }
                Ask::DropCache(table) => holder.drop_cache(step, &table).map(|()| yes)?,
                Ask::ReturnLost(LostClaims { claims }) => {
                    let claims = claims.iter().map(|name| (name.incarnation, name.claim, name.member));
                    AskStepReply { rows: holder.return_lost(step, &claims.collect::<Vec<_>>())?, ..yes }
                }
                Ask::Check(PolicyUpdates { updates }) => {
                    let commit = Commit { updates: to_updates(updates), durability: None };
                    holder.check_commit(step, &commit).map(|()| yes)?
                }
            })
        })
        .await
    }

    async fn end_step(&self, request: Request<EndStepRequest>) -> Reply<EndStepReply> {
        let call = self.enter(&request, TRAIN)?;
        let EndStepRequest { step, commit, updates, durability } = request.into_inner();
        self.check_updates(&call.caller, &updates).map_err(|error| from_error(&error))?;
        self.once(call, move |holder| {
            if !commit {
                holder.abandon_step(step)?;
                return Ok(EndStepReply::default());
            }
            let durability = wire::to_durability(&durability)?;
            let commit = Commit { updates: to_updates(updates), durability };
            Ok(EndStepReply { rows: holder.commit_step(step, &commit)?.rows })
        })
        .await
    }

    async fn rewind(&self, request: Request<RewindRequest>) -> Reply<RewindReply> {
        let call = self.enter(&request, ADMIN)?;
        call.caller.check_all_tables().map_err(|error| from_error(&error))?;
        let RewindRequest { step, exclude } = request.into_inner();
        self.once(call, move |holder| {
            let rows = if exclude { Rewind::Exclude } else { Rewind::TrainAgain };
            let done = holder.store().rewind(step, rows)?;
            Ok(RewindReply { step: done.step, steps_undone: done.steps_undone, rows: done.rows })
        })
        .await
    }

    async fn put_object(&self, request: Request<Streaming<ObjectPiece>>) -> Reply<ObjectRef> {
        let call = self.enter(&request, TRAIN)?;
        self.put(call, request).await
    }

    async fn get_object(&self, request: Request<ObjectRef>) -> Reply<Self::GetObjectStream> {
        let call = self.enter(&request, READ)?;
        let object = wire::to_object(request.into_inner());
        call.caller.check_object(&object.key).map_err(|error| from_error(&error))?;
        self.answer(self.parts_of(object, &call).await?)
    }

    async fn maintain(&self, request: Request<MaintainRequest>) -> Reply<MaintainReply> {
        use maintain_request::What;
        let call = self.enter(&request, WORK)?;
        let what = request.into_inner().what;
        self.once(call, move |holder| {
            match what.ok_or_else(|| malformed("nothing to do"))? {
                What::Sync(_) => holder.store().sync()?,
                What::Checkpoint(_) => _ = holder.store().checkpoint()?,
            }
            Ok(MaintainReply {})
        })
        .await
    }
}
