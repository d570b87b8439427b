//! A version from device to device, beside one copy on the device.

use forebay::trainer::device::Share;
use forebay::trainer::publication::{
    PublishedPart, Publisher, PublisherOptions, Reader, ReaderOptions, TargetPart, Wanted,
};
use forebay_benches::{Goal, Outcome, Pair, Row, typical};

use super::device::{REPETITIONS, gigabytes, seconds};

/// Publishing a snapshot, and getting it; publisher and reader are of one process, and speak over the same socket as two would.
pub(super) fn rows<D: Share>(device: &D, values: usize, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let [source, mut target, mut own] = [(); 3].map(|()| device.allocate(values));
    device.check()?;
    let folder = tempfile::tempdir()?;
    let options = PublisherOptions::default().fingerprint(false);
    let publisher = Publisher::open(device.clone(), folder.path(), options)?;
    let reader = Reader::open(device.clone(), folder.path(), ReaderOptions::default())?;
    let mut copy = || {
        seconds(device, || {
            device.copy(&source, &mut target);
            Ok(())
        })
    };
    let (mut number, mut published, mut got) = (0, Vec::new(), Vec::new());
    for round in 0..REPETITIONS + 2 {
        number += 1;
        let part = PublishedPart { class: "weights", buffer: &source, offset: 0, values };
        let publish = seconds(device, || Ok(publisher.publish("solver", number, 0, &[part]).map(drop)?))?;
        let part = TargetPart { class: "weights", buffer: &mut own, offset: 0 };
        let get =
            seconds(device, || Ok(reader.get_into(&Wanted::latest("solver"), &mut [part]).map(drop)?))?;
        let copied = copy()?;
        if round < 2 {
            continue; // what is made and mapped once
        }
        let rate = |seconds: f64| gigabytes(values) / seconds;
        published.push(Pair { value: rate(publish), limit: rate(copied) });
        got.push(Pair { value: rate(get), limit: rate(copied) });
    }
    for (measure, pairs) in [("D2D publish, a snapshot", published), ("D2D get of a version", got)] {
        let (pair, kind) = (typical(pairs), "one copy on the device");
        let row =
            Row::new(measure.to_owned(), (pair.value, "GB/s"), (pair.limit, kind), Goal::RatioAtLeast(0.85));
        print(row);
    }
    Ok(())
}
