//! An operator's calls, as messages.
//!
//! Those that take long are answered by streams, which the caller's thread reads: it waits for one event at a time, so that who
//! watches is told on that thread. Such a call has no deadline as a whole; it fails when nothing comes for as long as another call
//! may take. The server says every few seconds that it is there.

use std::future::Future;
use std::ops::ControlFlow;
use std::path::Path;

use arrow_array::RecordBatch;
use forebay_store::{
    BackupOptions, BackupProgress, BackupReport, BudgetChange, Budgets, Cause, CompactReport, Peek,
    Retention, Row, VerifyProgress, VerifyReport,
};
use tonic::{Request, Response, Status, Streaming};

use super::line::Line;
use super::{Again, Remote, hitch, told};
use crate::admin::{AdminCalls, Overview, Watch};
use crate::error::{Error, Result};
use crate::wire::{self, malformed, new_call, proto};

/// How often work whose connection breaks is asked for again, where nothing is heard of it in between.
const ASKED_MOST: u32 = 10;

/// A call that is answered by a stream of events.
trait Begins<Q, E, F>: Fn(Line, Request<Q>) -> F + Copy + Send + Sync + 'static {}

impl<Q, E, F, C> Begins<Q, E, F> for C
where
    C: Fn(Line, Request<Q>) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Result<Response<Streaming<E>>, Status>> + Send + 'static,
{
}

/// An event of a stream, none at its end, and the stream.
type Next<E> = (Result<Option<E>, Status>, Streaming<E>);

impl Remote {
    /// The next event; as a status where there is none in time.
    fn next_event<E: Send + 'static>(&self, mut events: Streaming<E>) -> Result<Next<E>> {
        let time = self.link.options.call_time_max;
        self.wait(async move {
            let next = tokio::time::timeout(time, events.message()).await;
            let late = |_| Err(Status::deadline_exceeded("nothing came"));
            Ok((next.unwrap_or_else(late), events))
        })
    }

    fn told(&self, status: Status) -> Error {
        told::call_error(&self.link.address, self.link.options.call_time_max, status)
    }

    fn begin_events<Q, E, F>(
        &self,
        name: u128,
        message: Q,
        begin: impl Begins<Q, E, F>,
    ) -> Result<Streaming<E>>
    where
        Q: Clone + Send + Sync + 'static,
        E: Send + 'static,
        F: Future<Output = Result<Response<Streaming<E>>, Status>> + Send + 'static,
    {
        let (link, time) = (self.link.clone(), self.link.options.call_time_max);
        self.wait(async move { link.call(name, message, time, Again::Always, &begin).await })
    }

    /// Has work done that goes on where its connection breaks, and is found again under its name.
    fn work<Q, F>(
        &self,
        message: Q,
        begin: impl Begins<Q, proto::WorkEvent, F>,
        progress: Watch<'_, BackupProgress>,
    ) -> Result<proto::work_event::Event>
    where
        Q: Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response<Streaming<proto::WorkEvent>>, Status>> + Send + 'static,
    {
        use proto::work_event::Event;
        let (name, mut asked) = (new_call(), 0);
        let mut events = self.begin_events(name, message.clone(), begin)?;
        loop {
            let (event, rest) = self.next_event(events)?;
            events = rest;
            match event {
                Ok(Some(proto::WorkEvent { event: Some(Event::Progress(far)) })) => {
                    asked = 0;
                    goes_on("copy", progress(wire::to_work_progress(&far)))?;
                }
                Ok(Some(proto::WorkEvent { event: Some(done) })) => return Ok(done),
                Ok(Some(_) | None) => return Err(malformed("work without an end")),
                Err(status) if hitch(&status).is_some() && asked < ASKED_MOST => {
                    asked += 1;
                    events = self.begin_events(name, message.clone(), begin)?;
                }
                Err(status) => return Err(self.told(status)),
            }
        }
    }
}

/// The error of what is not to go on.
fn goes_on(what: &'static str, said: ControlFlow<()>) -> Result<()> {
    match said {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::from(forebay_store::Error::from(Cause::Stopped { what }))),
    }
}

impl AdminCalls for Remote {
    fn overview(&self) -> Result<Overview> {
        Ok(wire::to_overview(self.call(&proto::OverviewRequest {})?))
    }

    fn peek(&self, table: &str, peek: &Peek) -> Result<RecordBatch> {
        self.assemble(wire::from_peek(table, peek))?.into_batch()
    }

    fn evict(&self, table: &str, rows: &[Row], reason: &str) -> Result<()> {
        let rows = wire::from_rows(rows.iter().copied());
        let request = proto::EvictRequest { table: table.to_owned(), rows, reason: reason.to_owned() };
        self.call(&request).map(drop)
    }

    fn change_budgets(&self, change: &BudgetChange) -> Result<Budgets> {
        Ok(wire::to_budgets(&self.call(&wire::from_budget_change(change))?))
    }

    fn change_retention(&self, rule: Option<Retention>) -> Result<Retention> {
        let request = proto::RetentionRequest { rule: rule.map(wire::from_retention) };
        let reply = self.call(&request)?.rule.ok_or_else(|| malformed("a retention of nothing"))?;
        Ok(wire::to_retention(&reply))
    }

    fn compact(&self) -> Result<CompactReport> {
        let begin = |mut line: Line, request| async move { line.admin.compact(request).await };
        match self.work(proto::CompactRequest {}, begin, &mut |_| ControlFlow::Continue(()))? {
            proto::work_event::Event::Compacted(done) => Ok(wire::to_compact_report(&done)),
            _ => Err(malformed("a compaction that ends as something else")),
        }
    }

    fn backup(
        &self,
        to: &Path,
        options: BackupOptions,
        progress: Watch<'_, BackupProgress>,
    ) -> Result<BackupReport> {
        let begin = |mut line: Line, request| async move { line.admin.backup(request).await };
        match self.work(wire::from_backup(to, options)?, begin, progress)? {
            proto::work_event::Event::Copied(done) => Ok(wire::to_backup_report(done)),
            _ => Err(malformed("a copy that ends as something else")),
        }
    }

    fn verify(&self, progress: Watch<'_, VerifyProgress>) -> Result<VerifyReport> {
        use proto::verify_event::Event;
        let begin = |mut line: Line, request| async move { line.admin.verify(request).await };
        let mut events = self.begin_events(new_call(), proto::VerifyRequest {}, begin)?;
        let mut faults = Vec::new();
        loop {
            let (event, rest) = self.next_event(events)?;
            events = rest;
            let event = event.map_err(|status| self.told(status))?.and_then(|event| event.event);
            match event.ok_or_else(|| malformed("a check without an end"))? {
                Event::Progress(far) => goes_on("check", progress(wire::to_progress(&far)?))?,
                Event::Fault(fault) => faults.push(wire::to_fault(fault)?),
                Event::Done(done) => return Ok(wire::to_report(done, faults)),
            }
        }
    }
}
