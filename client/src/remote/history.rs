//! What became of rows, as messages.

use tonic::{Request, Response};

use super::calls::next_piece;
use super::line::Line;
use super::{Again, Remote};
use crate::error::Result;
use crate::history::{HistoryCalls, RowShown, TrainedBatch, WhichRow};
use crate::wire::{self, new_call, proto};

impl HistoryCalls for Remote {
    fn show(&self, table: &str, which: &WhichRow<'_>) -> Result<Option<RowShown>> {
        use proto::show_row_request::Which;
        let which = match *which {
            WhichRow::Row(row) => Which::Row(wire::from_row(row)),
            WhichRow::Identity(policy_version, sample) => {
                Which::Identity(proto::Identity { policy_version, sample_id: sample.to_string() })
            }
        };
        let reply = self.call(&proto::ShowRowRequest { table: table.to_owned(), which: Some(which) })?;
        reply.row.map(wire::to_row_shown).transpose()
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
