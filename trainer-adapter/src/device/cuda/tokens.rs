//! Log-softmax over the vocabulary.
#![allow(
    unsafe_code,
    reason = "launches, each with the arguments of its kernel over views that were checked"
)]

use super::CudaDevice;
use super::kernel::{Argument, Kernel};
use super::view::View;

fn check(logits: View, targets: &[u32], statistics: View) {
    assert!(targets.iter().all(|&target| (target as usize) < logits.columns), "a target is a column");
    assert!(targets.len() <= logits.rows.min(statistics.rows), "a row for every target");
    assert!(statistics.columns == 3, "three statistics a row");
}

impl CudaDevice {
    pub(super) fn token_statistics_on(&self, logits: View, targets: &[u32], statistics: View) {
        check(logits, targets, statistics);
        let table = self.queue.table(targets);
        let inputs = [logits.place(), logits.stride(), logits.columns(), Argument::Address(table.address())];
        let arguments = [&inputs[..], &[statistics.place(), statistics.stride()]].concat();
        // SAFETY: as said above; targets are columns.
        unsafe { self.queue.launch(Kernel::TokenStatistics, [targets.len(), 1, 1], &arguments) };
    }

    pub(super) fn token_gradient_on(
        &self,
        logits: View,
        targets: &[u32],
        statistics: View,
        weights: [&[f32]; 2],
    ) {
        check(logits, targets, statistics);
        assert!(weights.iter().all(|weights| weights.len() == targets.len()), "weights for every target");
        let table = self.queue.table(targets);
        let weights = weights.map(|weights| self.queue.table(weights));
        let inputs = [logits.place(), logits.stride(), logits.columns(), Argument::Address(table.address())];
        let weights_places = weights.each_ref().map(|weights| Argument::Address(weights.address()));
        let arguments = [&inputs[..], &[statistics.place(), statistics.stride()], &weights_places].concat();
        // SAFETY: as said above; targets are columns.
        unsafe { self.queue.launch(Kernel::TokenGradient, [targets.len(), 1, 1], &arguments) };
    }
}
