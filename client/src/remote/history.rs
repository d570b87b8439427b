//! What became of rows, as messages.

use forebay_store::{Row, SampleId};
use prost::Message;
use tonic::{Request, Response};

use super::calls::next_piece;
use super::line::Line;
use super::{Again, Remote};
use crate::error::Result;
use crate::history::{HistoryCalls, RowShown, TrainedBatch};
use crate::wire::proto::show_rows_request::Which;
use crate::wire::{self, FOUND_ROWS_MAX, SHOWN_ROWS_MAX, malformed, new_call, proto};

/// How many bytes say what is to be found at once, at most, if it is more than one.
const FIND_BYTES: usize = 256 << 10;

impl Remote {
    /// The live attempt of each row, where there is one: so many at a time as a message names.
    pub(super) fn found(&self, table: &str, identities: &[(u64, &SampleId)]) -> Result<Vec<Option<Row>>> {
        let bytes_max = FIND_BYTES.min(self.link.message_bytes_max as usize / 2);
        let (mut found, mut left) = (Vec::with_capacity(identities.len()), identities.iter().peekable());
        loop {
            let (mut asked, mut bytes) = (Vec::new(), 0);
            while let Some((policy_version, sample)) = left.peek().filter(|_| asked.len() < FOUND_ROWS_MAX) {
                let identity = wire::from_identity(*policy_version, sample);
                bytes += identity.encoded_len();
                if bytes > bytes_max && !asked.is_empty() {
                    break;
                }
                asked.push(identity);
                left.next();
            }
            let count = asked.len();
            let reply = self.call(&proto::FindRequest { table: table.to_owned(), identities: asked })?;
            found.append(&mut wire::to_found(&reply, count)?);
            if left.peek().is_none() {
                return Ok(found);
            }
        }
    }

    fn shown(&self, table: &str, which: Which) -> Result<Vec<proto::RowShown>> {
        let request = proto::ShowRowsRequest { table: table.to_owned(), which: Some(which) };
        Ok(self.call(&request)?.rows)
    }
}

impl HistoryCalls for Remote {
    fn get(&self, table: &str, policy_version: u64, sample: &SampleId) -> Result<Option<RowShown>> {
        let found = self.shown(table, Which::Identity(wire::from_identity(policy_version, sample)))?;
        found.into_iter().next().map(wire::to_row_shown).transpose()
    }

    fn show(&self, table: &str, rows: &[Row]) -> Result<Vec<RowShown>> {
        let mut shown = Vec::with_capacity(rows.len());
        while let Some(left) = rows.get(shown.len()..).filter(|left| !left.is_empty()) {
            let asked = left.iter().copied().take(SHOWN_ROWS_MAX);
            let some = self.shown(table, Which::Rows(wire::from_rows(asked)))?;
            if !(1..=left.len().min(SHOWN_ROWS_MAX)).contains(&some.len()) {
                return Err(malformed(&format!("{} rows are shown of {}", some.len(), left.len())));
            }
            for row in some {
                shown.push(wire::to_row_shown(row)?);
            }
        }
        Ok(shown)
    }

    fn replay(&self, step: u64) -> Result<Vec<TrainedBatch>> {
        let (link, time) = (self.link.clone(), self.link.options.call_time_max);
        let whole = move |mut line: Line, request: Request<proto::ReplayRequest>| async move {
            let mut batches = line.history.replay(request).await?.into_inner();
            let mut all = Vec::new();
            while let Some(batch) = next_piece(&mut batches, time).await? {
                all.push(batch);
            }
            Ok(Response::new(all))
        };
        let replay = async move {
            link.call(new_call(), proto::ReplayRequest { step }, time, Again::Always, &whole).await
        };
        self.wait(replay)?.into_iter().map(wire::to_trained).collect()
    }
}
