//! The update of a step, beside the time that its bytes take at the device's own rate.

use forebay::trainer::AdamW;
use forebay::trainer::device::Share;
use forebay_benches::{Goal, Outcome, Pair, Row, typical};

use super::device::{REPETITIONS, gigabytes, seconds};

/// Values that are read or written for a parameter: 3 to accumulate, 1 for the norm that clips, 7 for AdamW.
const VALUES_MOVED: usize = 11;
/// Values that a copy reads and writes.
const VALUES_COPIED: usize = 2;

/// Accumulate, clip and AdamW over so many parameters, all in f32: the weights that others sample from are these, so the 2 bytes of
/// a copy in bf16 are not written.
pub(super) fn row<D: Share>(device: &D, parameters: usize, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let [gradient, mut cache, mut weights, mut first, mut second] =
        [(); 5].map(|()| device.allocate(parameters));
    device.check()?;
    let mut pairs = Vec::new();
    for _ in 0..=REPETITIONS {
        let copied = seconds(device, || {
            device.copy(&gradient, &mut cache);
            Ok(())
        })?;
        let updated = seconds(device, || {
            device.accumulate(&gradient, &mut cache);
            let norm = device.sum_of_squares(&cache).sqrt();
            let scale = if norm > 1.0 { 1.0 / norm } else { 1.0 };
            let step = AdamW::default().step(1, scale);
            device.adamw(&step, &cache, &mut weights, &mut first, &mut second);
            Ok(device.check()?)
        })?;
        let rate = VALUES_COPIED as f64 * gigabytes(parameters) / copied;
        let limit = VALUES_MOVED as f64 * gigabytes(parameters) / rate;
        pairs.push(Pair { value: updated * 1e3, limit: limit * 1e3 });
    }
    pairs.remove(0); // memory that was not touched before
    let pair = typical(pairs);
    let measure = format!("accumulate, clip and AdamW over {parameters} parameters");
    let limit = (pair.limit, "those bytes at the rate of a copy on the device");
    print(Row::new(measure, (pair.value, "ms"), limit, Goal::RatioAtMost(1.3)));
    Ok(())
}
