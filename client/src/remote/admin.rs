//! An operator's calls, as messages.

use forebay_store::{Row, VerifyProgress, VerifyReport};

use super::line::Line;
use super::{Again, Remote};
use crate::admin::{AdminCalls, Overview};
use crate::error::Result;
use crate::wire::{self, malformed, new_call, proto, to_error};

impl AdminCalls for Remote {
    fn overview(&self) -> Result<Overview> {
        Ok(wire::to_overview(self.call(&proto::OverviewRequest {})?))
    }

    fn evict(&self, table: &str, rows: &[Row], reason: &str) -> Result<()> {
        let rows: Vec<u8> = rows.iter().flat_map(|row| row.to_bytes()).collect();
        let request =
            proto::EvictRequest { table: table.to_owned(), rows: rows.into(), reason: reason.to_owned() };
        self.call(&request).map(drop)
    }

    fn verify(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
        use proto::verify_event::Event;
        let (link, time) = (self.link.clone(), self.link.options.call_time_max);
        let begin = |mut line: Line, request| async move { line.admin.verify(request).await };
        let mut events = self.wait(async move {
            link.call(new_call(), proto::VerifyRequest {}, time, Again::Always, &begin).await
        })?;
        let mut faults = Vec::new();
        loop {
            let (event, rest) = self.wait(async move {
                let event = events.message().await.map_err(to_error)?;
                Ok((event.and_then(|event| event.event), events))
            })?;
            events = rest;
            match event.ok_or_else(|| malformed("a check without an end"))? {
                Event::Progress(far) => progress(wire::to_progress(&far)?),
                Event::Fault(fault) => faults.push(wire::to_fault(fault)?),
                Event::Done(done) => return Ok(wire::to_report(done, faults)),
            }
        }
    }
}
