//! Every call of the interface, as a message.

use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use forebay_store::{
    CommittedStep, ConsumerKind, Delete, Deleted, Gang, Hold, Kind, Lists, ObjectRef, PolicyInfo, Rewind,
    RewoundTo, Row, SampleId, Schema, TableCounts, Timestamp, Value, Wait,
};
use futures_util::stream;
use tonic::{Request, Response, Status, Streaming};

use super::line::{Encoded, Line};
use super::pieces::InPieces;
use super::waits::Waiting;
use super::{Again, Remote};
use crate::admin::AdminCalls;
use crate::cell::CellValue;
use crate::changes::Changes;
use crate::connection::{
    Answer, Answering, Ask, Commit, Connection, Declaration, Declared, Epoch, Granted, Granting, Plan,
    Pushing, Waited,
};
use crate::error::{Error, Result};
use crate::history::HistoryCalls;
use crate::neighbour::{self, Neighbour};
use crate::objects::ObjectCalls;
use crate::snapshots::SnapshotCalls;
use crate::wire::{self, Assembler, malformed, milliseconds, new_call, proto};
use crate::writing::Writing;

/// How much of an object the time of one call is for, in bytes: a larger one has that time as many times.
const BYTES_IN_TIME: u64 = 256 << 20;

pub(super) fn settle(claim: Epoch, how: proto::settle_request::How) -> proto::SettleRequest {
    let (incarnation, claim, member) = claim;
    proto::SettleRequest { incarnation, claim, member, how: Some(how) }
}

/// The policies of a commit, as they are sent.
fn updates_of(commit: &Commit) -> Vec<proto::PolicyUpdate> {
    let update = |(policy, objects): &(String, Vec<ObjectRef>)| proto::PolicyUpdate {
        policy: policy.clone(),
        objects: objects.iter().map(wire::from_object).collect(),
    };
    commit.updates.iter().map(update).collect()
}

/// How long a call may take that carries so many bytes, where any other call may take `time`.
fn time_for(bytes: u64, time: Duration) -> Duration {
    time.saturating_mul(u32::try_from(1 + bytes / BYTES_IN_TIME).unwrap_or(u32::MAX))
}

/// The error of an object that is not what was asked for.
fn spoilt(ObjectRef { key, version, .. }: &ObjectRef) -> Error {
    let message = format!(
        "object {key:?} version {version} came with other bytes than its checksum was made of; ask again, and verify the store"
    );
    Error::new(Kind::Corrupt, "Corrupt", message)
}

/// The next piece of an answer, which has to come in that time: a server that is there and says nothing more is late.
pub(super) async fn next_piece<T>(pieces: &mut Streaming<T>, time: Duration) -> Result<Option<T>, Status> {
    let late = |_| Status::deadline_exceeded("no more of the answer came");
    tokio::time::timeout(time, pieces.message()).await.map_err(late)?
}

/// The cells of a stream, where values are found that it names by their place.
pub(super) fn read_cells(stream: Assembler, hold: Option<&Hold>) -> Result<Vec<Vec<CellValue>>> {
    let find = |place| match hold {
        Some(hold) => neighbour::value(hold, place),
        None => Err(malformed("a place, for who asked for values")),
    };
    wire::to_cells(&stream.into_batch()?, &find)
}

impl Remote {
    fn describe(&self, what: proto::describe_request::What) -> Result<proto::DescribeReply> {
        self.call(&proto::DescribeRequest { what: Some(what) })
    }

    fn settle(&self, claim: Epoch, how: proto::settle_request::How) -> Result<proto::SettleReply> {
        let ends = !matches!(how, proto::settle_request::How::ExtendMs(_));
        if ends {
            self.along.drop(claim);
        }
        let (link, message, time) =
            (self.link.clone(), Encoded::new(&settle(claim, how)), self.link.options.call_time_max);
        let reply = self.wait(async move { link.change(new_call(), message, time).await });
        if ends {
            self.inboxes.settled(claim, &reply);
        }
        reply
    }

    /// The pieces of an answer. Sent again as a whole where it breaks.
    pub(super) fn assemble<Q: InPieces>(&self, message: Q) -> Result<Assembler> {
        self.wait(self.assembling(message))
    }

    /// The same as a future.
    pub(super) fn assembling<Q: InPieces>(
        &self,
        message: Q,
    ) -> impl Future<Output = Result<Assembler>> + Send + 'static {
        let (link, time) = (self.link.clone(), self.link.options.call_time_max);
        async move {
            let whole = |line: Line, request| async move {
                let mut pieces = line.in_pieces(request).await?;
                let mut assembler = Assembler::default();
                while let Some(piece) = pieces.next().await? {
                    assembler.push(piece);
                }
                Ok(Response::new(assembler))
            };
            link.call(new_call(), message, time, Again::Always, &whole).await
        }
    }
}

impl Remote {
    /// What is to be had before a question is asked whose answer names places, for a neighbour.
    fn hold(&self) -> Option<Hold> {
        self.neighbour.as_deref().and_then(Neighbour::hold)
    }

    /// Columns or cells of a claim as they are sent, with what holds values that are in files.
    fn stream(&self, claim: Epoch, names: &[&str], cells: bool) -> Result<(Assembler, Option<Hold>)> {
        let (hold, columns) = (self.hold(), names.iter().map(|name| (*name).to_owned()).collect());
        let ((incarnation, claim, member), placed) = (claim, hold.is_some());
        let request = proto::ColumnsRequest { incarnation, claim, member, columns, cells, placed };
        Ok((self.assemble(request)?, hold))
    }
}

impl Connection for Remote {
    fn declare(&self, name: &str, declaration: Declaration) -> Result<()> {
        use proto::declare_request::Declaration as Wire;
        let wire = match declaration {
            Declaration::Policy(policy) => Wire::Policy(wire::from_policy(&policy)),
            Declaration::Table(schema) => Wire::Table(wire::from_schema(&schema)),
            Declaration::Consumer(consumer) => Wire::Consumer(wire::from_consumer(&consumer)),
            Declaration::AddColumn(column) => Wire::AddColumn(wire::from_column(&column)),
            Declaration::RenameColumn { column, name } => {
                Wire::RenameColumn(proto::RenameColumn { column, name })
            }
            Declaration::RetireColumn { column } => Wire::RetireColumn(column),
        };
        let request = proto::DeclareRequest { name: name.to_owned(), declaration: Some(wire) };
        self.call(&request).map(drop)
    }

    fn tables(&self) -> Result<Vec<String>> {
        Ok(self.describe(proto::describe_request::What::Tables(true))?.names)
    }

    fn table(&self, name: &str) -> Result<(Schema, TableCounts)> {
        let reply = self.describe(proto::describe_request::What::Table(name.to_owned()))?;
        let (Some(schema), Some(counts)) = (reply.schema, reply.counts) else {
            return Err(malformed("a table without a schema"));
        };
        let proto::Counts { written, consumed, excluded } = counts;
        let counts = TableCounts { written, consumed, excluded: excluded.into_iter().collect() };
        Ok((wire::to_schema(schema)?, counts))
    }

    fn consumer(&self, name: &str) -> Result<ConsumerKind> {
        let reply = self.describe(proto::describe_request::What::Consumer(name.to_owned()))?;
        Ok(if reply.trainer { ConsumerKind::Trainer } else { ConsumerKind::Task })
    }

    fn consumers(&self) -> Result<Vec<Declared>> {
        let reply = self.describe(proto::describe_request::What::Consumers(true))?;
        Ok(reply.consumers.into_iter().map(wire::to_declared).collect())
    }

    fn open_groups(&self, consumer: &str) -> Result<Vec<String>> {
        Ok(self.describe(proto::describe_request::What::Groups(consumer.to_owned()))?.names)
    }

    fn policy(&self, name: &str) -> Result<PolicyInfo> {
        let reply = self.describe(proto::describe_request::What::Policy(name.to_owned()))?;
        let policy = reply.policy.ok_or_else(|| malformed("a policy that is none"))?;
        let objects = policy.objects.into_iter().map(wire::to_object).collect();
        let updated_at = Timestamp(policy.updated_at);
        Ok(PolicyInfo { name: name.to_owned(), version: policy.version, updated_at, objects })
    }

    fn write(&self, changes: &Changes<'_>) -> Result<Vec<Row>> {
        self.write_now(changes)
    }

    fn write_async(&self, changes: &Changes<'_>) -> Result<Writing> {
        self.write_later(changes)
    }

    fn grow(&self, table: &str, row: Row, column: &str, value: Option<Value<'_>>) -> Result<()> {
        let (table, column) = (table.to_owned(), column.to_owned());
        let value = value.map(|value| wire::from_value(&value));
        let request = proto::GrowRequest { table, row: wire::from_row(row), column, value };
        self.call_again(&request, Again::WithinASession).map(drop)
    }

    fn delete(&self, table: &str, rule: &Delete) -> Result<Deleted> {
        let request = proto::DeleteRequest {
            table: table.to_owned(),
            first_version: rule.versions.as_ref().map(|versions| *versions.start()),
            last_version: rule.versions.as_ref().map(|versions| *versions.end()),
            rows: rule.rows.iter().flatten().map(|row| wire::from_row(*row)).collect(),
            by_rows: rule.rows.is_some(),
            all: rule.all,
            force: rule.force,
        };
        let proto::DeleteReply { rows, open } = self.call(&request)?;
        Ok(Deleted { rows, open })
    }

    fn find(&self, table: &str, identities: &[(u64, &SampleId)]) -> Result<Vec<Option<Row>>> {
        self.found(table, identities)
    }

    fn cell(&self, table: &str, row: Row, column: &str) -> Result<CellValue> {
        let (table, column) = (table.to_owned(), column.to_owned());
        let request = proto::ReadCellRequest { table, row: wire::from_row(row), column };
        wire::to_cell(self.call(&request)?)
    }

    fn read(&self, table: &str, rows: &[Row], column: &str) -> Result<Vec<CellValue>> {
        let (table, column) = (table.to_owned(), column.to_owned());
        let rows = rows.iter().map(|row| wire::from_row(*row)).collect();
        let request = proto::ReadCellsRequest { table, rows, column };
        let stream = self.assemble(request)?;
        read_cells(stream, None)?.pop().ok_or_else(|| malformed("no cells"))
    }

    fn query(&self, statement: &str) -> Result<Answer> {
        let request = proto::QueryRequest { statement: statement.to_owned() };
        self.assemble(request)?.into_batches()
    }

    fn query_async(&self, statement: &str) -> Result<Answering> {
        self.answering(statement)
    }

    fn claim(&self, ask: &Ask<'_>, wait: Wait) -> Result<Option<Granted>> {
        let waiting = Waiting::new(self, ask, wait);
        Ok(match self.wait(async move { waiting.run().await })? {
            Waited::Claimed(granted) => Some(granted),
            Waited::Complete | Waited::TimedOut => None,
        })
    }

    fn claim_async(&self, ask: &Ask<'_>, wait: Wait) -> Result<Granting> {
        self.granting(ask, wait)
    }

    fn subscribe(&self, ask: &Ask<'_>, outstanding: usize) -> Result<Box<dyn Pushing>> {
        self.subscribed(ask, outstanding)
    }

    fn columns(&self, claim: Epoch, names: &[&str], lists: Lists) -> Result<RecordBatch> {
        let (stream, hold) = match self.along.take(claim, names) {
            Some((stream, hold)) => (Assembler::of(stream), hold),
            None => self.stream(claim, names, false)?,
        };
        neighbour::columns(hold.as_ref(), stream.into_batch()?, lists)
    }

    fn cells(&self, claim: Epoch, names: &[&str]) -> Result<Vec<Vec<CellValue>>> {
        if let Some(cells) = self.along.cells(claim, names) {
            self.check_open()?;
            return Ok(cells);
        }
        let (stream, hold) = self.stream(claim, names, true)?;
        read_cells(stream, hold.as_ref())
    }

    fn finish(&self, claim: Epoch, changes: &Changes<'_>) -> Result<Vec<Row>> {
        self.along.drop(claim);
        let finish = move |changes| settle(claim, proto::settle_request::How::Finish(changes));
        let reply = self.change(changes, finish);
        self.inboxes.settled(claim, &reply);
        wire::to_rows(&reply?.rows)
    }

    fn release(&self, claim: Epoch) -> Result<()> {
        self.settle(claim, proto::settle_request::How::Release(true)).map(drop)
    }

    fn accumulated(&self, claim: Epoch) -> Result<()> {
        self.settle(claim, proto::settle_request::How::Accumulated(true)).map(drop)
    }

    fn extend(&self, claim: Epoch, time: Duration) -> Result<Timestamp> {
        let how = proto::settle_request::How::ExtendMs(milliseconds(time));
        Ok(Timestamp(self.settle(claim, how)?.deadline))
    }

    fn begin_step(&self, plan: &Plan) -> Result<u64> {
        let entry = |(consumer, groups, rows): (&str, &[String], u64)| proto::PlanEntry {
            consumer: consumer.to_owned(),
            groups: groups.to_vec(),
            rows,
        };
        let request = proto::BeginStepRequest { plan: plan.entries().map(entry).collect() };
        Ok(self.call(&request)?.step)
    }

    fn join_step(&self, step: u64, consumer: &str, gang: &Gang) -> Result<u64> {
        Ok(self.call(&wire::from_gang(step, consumer, gang))?.member)
    }

    fn is_complete(&self, step: u64, consumer: &str) -> Result<bool> {
        let ask = proto::ask_step_request::Ask::IsComplete(consumer.to_owned());
        Ok(self.call(&proto::AskStepRequest { step, ask: Some(ask) })?.yes)
    }

    fn drop_cache(&self, step: u64, table: &str) -> Result<()> {
        let ask = proto::ask_step_request::Ask::DropCache(table.to_owned());
        self.call(&proto::AskStepRequest { step, ask: Some(ask) }).map(drop)
    }

    fn return_lost(&self, step: u64, claims: &[Epoch]) -> Result<u64> {
        let name = |&(incarnation, claim, member): &Epoch| proto::ClaimName { incarnation, claim, member };
        let lost = proto::LostClaims { claims: claims.iter().map(name).collect() };
        let ask = proto::ask_step_request::Ask::ReturnLost(lost);
        Ok(self.call(&proto::AskStepRequest { step, ask: Some(ask) })?.rows)
    }

    fn check_commit(&self, step: u64, commit: &Commit) -> Result<()> {
        let ask = proto::ask_step_request::Ask::Check(proto::PolicyUpdates { updates: updates_of(commit) });
        self.call(&proto::AskStepRequest { step, ask: Some(ask) }).map(drop)
    }

    fn commit_step(&self, step: u64, commit: &Commit) -> Result<CommittedStep> {
        let updates = updates_of(commit);
        let durability = commit.durability.map_or(String::new(), |level| level.as_str().to_owned());
        let request = proto::EndStepRequest { step, commit: true, updates, durability };
        Ok(CommittedStep { step, rows: self.call(&request)?.rows })
    }

    fn abandon_step(&self, step: u64) -> Result<()> {
        let request = proto::EndStepRequest { step, ..Default::default() };
        self.call(&request).map(drop)
    }

    fn rewind(&self, step: u64, rows: Rewind) -> Result<RewoundTo> {
        let request = proto::RewindRequest { step, exclude: rows == Rewind::Exclude };
        let proto::RewindReply { step, steps_undone, rows } = self.call(&request)?;
        Ok(RewoundTo { step, steps_undone, rows })
    }

    fn history(&self) -> &dyn HistoryCalls {
        self
    }

    fn admin(&self) -> &dyn AdminCalls {
        self
    }

    fn objects(&self) -> &dyn ObjectCalls {
        self
    }

    fn snapshots(&self) -> &dyn SnapshotCalls {
        self
    }

    fn put_object(&self, key: &str, version: u64, payload: &[u8]) -> Result<ObjectRef> {
        let (bytes, link) = (payload.len() as u64, self.link.clone());
        let time = time_for(bytes, link.options.call_time_max);
        let object = proto::ObjectRef { key: key.to_owned(), version, bytes, crc32c: 0 };
        let put = |mut line: Line, request: Request<(proto::ObjectRef, Bytes)>| async move {
            let pieces = request.map(|(object, payload)| {
                let first = proto::ObjectPiece { object: Some(object), bytes: Bytes::new() };
                let rest = wire::pieces(payload).map(|bytes| proto::ObjectPiece { object: None, bytes });
                stream::iter(std::iter::once(first).chain(rest))
            });
            line.streams.put_object(pieces).await
        };
        let message = (object, Bytes::copy_from_slice(payload));
        let put = async move { link.call(new_call(), message, time, Again::Always, &put).await };
        self.wait(put).map(wire::to_object)
    }

    fn object(&self, object: &ObjectRef) -> Result<Vec<u8>> {
        let (link, time, bytes) = (self.link.clone(), self.link.options.call_time_max, object.bytes);
        let whole_time = time_for(bytes, time);
        let whole = move |mut line: Line, request: Request<proto::ObjectRef>| async move {
            let mut pieces = line.streams.get_object(request).await?.into_inner();
            let mut payload = Vec::new();
            while let Some(piece) = next_piece(&mut pieces, time).await? {
                payload.extend_from_slice(&piece.bytes);
                if payload.len() as u64 > bytes {
                    break; // refused below
                }
            }
            Ok(Response::new(payload))
        };
        let request = wire::from_object(object);
        let payload = self
            .wait(async move { link.call(new_call(), request, whole_time, Again::Always, &whole).await })?;
        match forebay_store::checksum::crc32c(&payload) == object.crc32c && payload.len() as u64 == bytes {
            true => Ok(payload),
            false => Err(spoilt(object)),
        }
    }

    fn sync(&self) -> Result<()> {
        let what = Some(proto::maintain_request::What::Sync(true));
        self.call(&proto::MaintainRequest { what }).map(drop)
    }

    fn checkpoint(&self) -> Result<()> {
        let what = Some(proto::maintain_request::What::Checkpoint(true));
        self.call(&proto::MaintainRequest { what }).map(drop)
    }

    fn close(&self) -> Result<()> {
        self.check_process()?;
        self.end();
        Ok(())
    }
}
