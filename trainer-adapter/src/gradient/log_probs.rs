//! What a policy gives tokens that are there: recorded once, for losses that compare with it.

use super::loss::{Loss, LossForm};
use super::objective::Objective;
use super::plan::Plan;
use super::row::Row;
use crate::device::Device;
use crate::error::Error;
use crate::policy::{Activations, Policy};

impl<D: Device> Policy<D> {
    /// The log-probability of each token of each response, in nats: [`Row::reference_log_probs`] of rows that are trained against
    /// this policy. Rows with equal prompts share the prompt's computation, as in a unit. Masks and weights are not looked at.
    ///
    /// ```
    /// use forebay_trainer_adapter::{CpuDevice, Policy, PolicyConfig, Row};
    /// # fn main() -> Result<(), forebay_trainer_adapter::Error> {
    /// let device = CpuDevice::inline();
    /// let policy = Policy::initialise(&device, &PolicyConfig::small(300), 7)?;
    /// let log_probs = policy.log_probs(&device, &[Row::new(&[5, 6], &[7, 8, 9]), Row::new(&[5, 6], &[])])?;
    /// assert_eq!((log_probs[0].len(), log_probs[1].len()), (3, 0));
    /// assert!(log_probs[0].iter().all(|log_prob| *log_prob < 0.0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::EmptyUnit`] without rows; [`Error::EmptyPrompt`], [`Error::Token`], [`Error::TooLong`] if a row cannot be computed;
    /// [`Error::Device`] if the device has failed.
    pub fn log_probs(&self, device: &D, rows: &[Row<'_>]) -> Result<Vec<Vec<f32>>, Error> {
        let bare: Vec<Row<'_>> = rows.iter().map(|row| Row::new(row.prompt, row.response)).collect();
        let loss =
            Loss { form: LossForm::TokenMean, entropy_coefficient: 0.0, objective: Objective::default() };
        let plan = Plan::new(0, &bare, self.config(), loss)?;
        let mut kept = Activations::new(device, self.config());
        let mut statistics = self.forward(device, &plan.batch, &mut kept).into_iter();
        device.check()?;
        let mut found = vec![Vec::new(); rows.len()];
        for row in plan.row_order {
            let of_row = statistics.by_ref().take(rows[row].response.len());
            found[row] = of_row.map(|token| token.log_prob).collect();
        }
        Ok(found)
    }
}
