//! A version from device to device: publishing it, and getting it, beside one copy of the device of the same bytes.
//!
//! Publisher and reader are of one process here, and of one GPU; what they say to each other goes through the same socket. With the
//! fingerprint either side reads the values once more, which is where the ratio of those rows comes from.

use std::error::Error;
use std::time::Instant;

use forebay_trainer_adapter::device::{Copies, Share};
use forebay_trainer_adapter::publication::{
    PublishedPart, Publisher, PublisherOptions, Reader, ReaderOptions, TargetPart, Wanted,
};

use super::{REPETITIONS, Row, gigabytes, median};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Seconds of `work`, with everything that it has given to the device.
fn seconds<D: Copies>(device: &D, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    device.wait(&device.computed())?;
    let start = Instant::now();
    work()?;
    device.wait(&device.computed())?;
    Ok(start.elapsed().as_secs_f64())
}

/// Bytes a second of `work`, beside those of a copy, in turns.
fn pair<D: Copies>(
    device: &D,
    values: usize,
    mut work: impl FnMut() -> Outcome<()>,
    (source, target): (&D::Buffer, &mut D::Buffer),
) -> Outcome<(f64, f64)> {
    let mut copy = || {
        seconds(device, || {
            device.copy(source, target);
            Ok(())
        })
    };
    copy()?;
    work()?; // what is made and mapped once
    work()?;
    let mut rates = || {
        let worked = seconds(device, &mut work)?;
        Ok::<_, Box<dyn Error>>((gigabytes(values) / worked, gigabytes(values) / copy()?))
    };
    Ok(median((0..REPETITIONS).map(|_| rates()).collect::<Outcome<_>>()?))
}

/// The rows, over so many values; what looks at the version alone is to reach `goal`.
pub(super) fn rows<D: Share>(
    device: &D,
    values: usize,
    goal: Option<f64>,
    show: &mut dyn FnMut(Row),
) -> Outcome<()> {
    let [source, mut target, mut own] = [(); 3].map(|()| device.allocate(values));
    device.check()?;
    for (fingerprint, words) in [(false, "version checked"), (true, "version and fingerprint checked")] {
        let folder = std::env::temp_dir().join(format!("forebay-bench-{}", std::process::id()));
        let options = PublisherOptions::default().fingerprint(fingerprint);
        let publisher = Publisher::open(device.clone(), &folder, options)?;
        let reader = Reader::open(device.clone(), &folder, ReaderOptions::default())?;
        let mut version = 0;
        let publish = || {
            version += 1;
            let part = PublishedPart { class: "weights", buffer: &source, offset: 0, values };
            Ok(publisher.publish("solver", version, 0, &[part])?)
        };
        let published = pair(device, values, publish, (&source, &mut target))?;
        let get = || {
            let part = TargetPart { class: "weights", buffer: &mut own, offset: 0 };
            Ok(reader.get_into(&Wanted::latest("solver"), &mut [part]).map(drop)?)
        };
        let got = pair(device, values, get, (&source, &mut target))?;
        let goal = goal.filter(|_| !fingerprint);
        for (what, (value, limit)) in [("publish, a snapshot", published), ("get", got)] {
            let (measure, limit_kind) = (format!("{what}, {words}"), "one copy on the device");
            show(Row { measure, unit: "GB/s", limit_kind, value, limit, goal });
        }
        drop((publisher, reader));
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}
