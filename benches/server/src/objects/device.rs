//! States out of a device's memory and into it, beside the driver's own copies of as many bytes, in the same run.

use std::str::FromStr;
use std::time::Instant;

use forebay::trainer::Copies;
use forebay::trainer::device::cuda::{CudaDevice, CudaLibraries, CudaOptions, gpus};
use forebay::trainer::device::{CopyRange, Share, StandInDevice, StandInOptions};
use forebay::{DevicePart, DevicePartMut, DeviceTier};
use forebay_benches::{Goal, Outcome, Pair, Row, typical};
use forebay_store::{Dtype, Expected, Layout, Which};

use super::between::Served;
use super::{NotRun, update, version};

pub(super) const REPETITIONS: usize = 5;
const CLASS: &str = "weights";
/// What a bus of PCIe Gen5 x16 carries in one direction at the least; 63 on the wire.
const GEN5_GIGABYTES: f64 = 40.0;

/// The device whose rows are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceRows {
    /// The GPU of this number among those that the process sees.
    Cuda(usize),
    /// Host memory that behaves like a GPU's: to see that the rows run.
    StandIn,
}

impl FromStr for DeviceRows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
        match (text, number) {
            ("stand-in", _) => Ok(DeviceRows::StandIn),
            (_, Some(number)) => Ok(DeviceRows::Cuda(number)),
            _ => Err(format!("{text:?} is no device; give cuda:0 or stand-in")),
        }
    }
}

/// How many values are moved.
struct Sizes {
    /// With the least part of the driver's rate.
    swaps: [(usize, f64); 2],
    exchanged: usize,
    published: usize,
    updated: usize,
    /// All of a 3B model's: 14 bytes a parameter.
    state: usize,
}

const FULL: Sizes = Sizes {
    swaps: [(1 << 28, 0.9), (1 << 24, 0.8)],
    exchanged: 1 << 28,
    published: 1 << 28,
    updated: 1_000_000_000,
    state: 43_000_000_000 / size_of::<f32>(),
};
const TINY: Sizes = Sizes {
    swaps: [(300_000, 0.9), (70_000, 0.8)],
    exchanged: 300_000,
    published: 100_000,
    updated: 10_000,
    state: 600_000,
};

/// Measures the rows of a device. Gives what could not be measured, and why.
///
/// # Errors
/// When a device that is there fails.
pub fn device_rows(asked: &DeviceRows, is_quick: bool, print: &mut dyn FnMut(Row)) -> Outcome<Vec<NotRun>> {
    let DeviceRows::Cuda(number) = asked else {
        return rows(&StandInDevice::new(StandInOptions::default()), &TINY, print);
    };
    let (libraries, device) = (CudaLibraries::from_environment(), format!("cuda:{number}"));
    let found = match gpus(&libraries) {
        Ok(found) => found,
        Err(source) => return Ok(vec![NotRun::NoDevice { device, source }]),
    };
    let Some(gpu) = found.get(*number) else {
        return Ok(vec![NotRun::NoSuch { device, found: found.len() }]);
    };
    match CudaDevice::open(&CudaOptions { uuid: Some(gpu.uuid), libraries, ..CudaOptions::default() }) {
        Ok(opened) => rows(&opened, if is_quick { &TINY } else { &FULL }, print),
        Err(source) => Ok(vec![NotRun::NoDevice { device, source }]),
    }
}

fn rows<D: Share>(device: &D, sizes: &Sizes, print: &mut dyn FnMut(Row)) -> Outcome<Vec<NotRun>> {
    let mut bus = 0.0_f64;
    for (values, goal) in sizes.swaps {
        for way in [Way::Pieces, Way::Threads, Way::Pinned] {
            bus = bus.max(swaps(device, (values, goal), way, print)?);
        }
    }
    for way in [Way::Pieces, Way::Threads, Way::Pinned] {
        exchange(device, sizes.exchanged, way, print)?;
    }
    version::rows(device, sizes.published, print)?;
    update::row(device, sizes.updated, print)?;
    // At the end: a device that has once had no room has failed.
    Ok(state(device, sizes.state, bus, print)?.into_iter().collect())
}

/// Seconds of `work`, with everything that it has given to the device.
pub(super) fn seconds<D: Copies>(device: &D, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    device.wait(&device.computed())?;
    let start = Instant::now();
    work()?;
    device.wait(&device.computed())?;
    Ok(start.elapsed().as_secs_f64())
}

pub(super) fn gigabytes(values: usize) -> f64 {
    (values * size_of::<f32>()) as f64 / 1e9
}

fn size(values: usize) -> String {
    let bytes = values * size_of::<f32>();
    let (unit, shift) = match bytes {
        0..0x10_0000 => ("KiB", 10),
        0x10_0000..0x4000_0000 => ("MiB", 20),
        _ => ("GiB", 30),
    };
    format!("{} {unit}", bytes >> shift)
}

fn layout(values: usize) -> Outcome<Layout> {
    Ok(Layout::builder().tensor(CLASS, "flat", Dtype::F32, &[values as u64]).build()?)
}

/// The driver's copy between pinned host memory and the device, in one call: seconds.
fn bare<D: Copies>(
    device: &D,
    is_out: bool,
    buffer: &mut D::Buffer,
    host: &mut D::Host,
    values: usize,
) -> Outcome<f64> {
    let (stream, range) = (device.stream()?, CopyRange { device_offset: 0, host_offset: 0, length: values });
    seconds(device, || {
        let event = match is_out {
            true => device.copy_to_host_async(&stream, buffer, host, range),
            false => device.copy_to_device_async(&stream, host, buffer, range),
        };
        Ok(device.wait(&event)?)
    })
}

/// Of the host, where several share a move.
const THREADS: usize = 8;

/// How a state moves.
#[derive(Clone, Copy)]
enum Way {
    /// Through pieces of host memory that one thread looks at.
    Pieces,
    /// The same, by [`THREADS`].
    Threads,
    /// Straight to and from where the object lies.
    Pinned,
}

impl Way {
    fn tier<D: Copies>(self, tier: DeviceTier<D>) -> DeviceTier<D> {
        match self {
            Way::Pieces => tier,
            Way::Threads => tier.host_threads(THREADS),
            Way::Pinned => tier.pin_objects(u64::MAX),
        }
    }

    /// What a row is called beside the way that is usual.
    fn name(self) -> String {
        match self {
            Way::Pieces => String::new(),
            Way::Threads => format!(", up to {THREADS} threads of the host"),
            Way::Pinned => ", objects pinned".to_owned(),
        }
    }
}

/// Set and get of one state, and whether they pin anything after the first. Gives the driver's rate in GB/s.
fn swaps<D: Share>(
    device: &D,
    (values, goal): (usize, f64),
    way: Way,
    print: &mut dyn FnMut(Row),
) -> Outcome<f64> {
    let served = Served::new(16 << 30)?;
    let tier = way.tier(DeviceTier::new(device.clone(), served.objects.clone()));
    let all_pinned = || tier.pinned_bytes() as u64 + tier.stats().mapping_bytes;
    let way = way.name();
    let (layout, mut buffer, mut host) =
        (layout(values)?, device.allocate(values), device.allocate_host(values)?);
    device.check()?;
    let set = |buffer: &D::Buffer| -> Outcome<()> {
        Ok(tier.set("state", Expected::Any, &layout, &[DevicePart::of(CLASS, buffer)]).map(drop)?)
    };
    set(&buffer)?;
    tier.get("state", Which::Latest, &mut [DevicePartMut::of(CLASS, &mut buffer)])?;
    set(&buffer)?; // the memory of one version, and that of the next
    let (pinned, mut outs, mut backs, rate) = (all_pinned(), Vec::new(), Vec::new(), gigabytes(values));
    for _ in 0..REPETITIONS {
        let value = rate / seconds(device, || set(&buffer))?;
        outs.push(Pair { value, limit: rate / bare(device, true, &mut buffer, &mut host, values)? });
        let got = seconds(device, || {
            let part = DevicePartMut::of(CLASS, &mut buffer);
            Ok(tier.get("state", Which::Latest, &mut [part]).map(drop)?)
        })?;
        backs.push(Pair {
            value: rate / got,
            limit: rate / bare(device, false, &mut buffer, &mut host, values)?,
        });
    }
    let bus = outs.iter().chain(&backs).map(|pair| pair.limit).fold(0.0, f64::max);
    let kind = "one copy of the driver, pinned";
    for (what, pairs) in [("D2H set", outs), ("H2D get", backs)] {
        let (pair, measure) = (typical(pairs), format!("{what} of {}, checked{way}", size(values)));
        print(Row::new(measure, (pair.value, "GB/s"), (pair.limit, kind), Goal::RatioAtLeast(goal)));
    }
    let grown = (all_pinned() - pinned) as f64;
    let measure = format!("bytes pinned by the second and later swaps of {}{way}", size(values));
    let limit = (pinned as f64, "bytes pinned by the first");
    print(Row::new(measure, (grown, "B"), limit, Goal::AtMost(0.0)));
    Ok(bus)
}

/// One state out while another comes in, against one after the other.
fn exchange<D: Share>(device: &D, values: usize, way: Way, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let served = Served::new(16 << 30)?;
    let (tier, way) = (way.tier(DeviceTier::new(device.clone(), served.objects.clone())), way.name());
    let (layout, mut buffer) = (layout(values)?, device.allocate(values));
    device.check()?;
    for key in ["a", "b", "a", "b"] {
        tier.set(key, Expected::Any, &layout, &[DevicePart::of(CLASS, &buffer)])?;
    }
    let exchanged = |buffer: &mut D::Buffer| {
        seconds(device, || {
            let (out, into) = (("a", Expected::Any, &layout), ("b", Which::Latest));
            Ok(tier.exchange(out, into, &mut [DevicePartMut::of(CLASS, buffer)]).map(drop)?)
        })
    };
    exchanged(&mut buffer)?; // a second ring
    let mut pairs = Vec::new();
    for _ in 0..REPETITIONS {
        let value = 2.0 * gigabytes(values) / exchanged(&mut buffer)?;
        let serial = seconds(device, || {
            tier.set("a", Expected::Any, &layout, &[DevicePart::of(CLASS, &buffer)])?;
            tier.get("b", Which::Latest, &mut [DevicePartMut::of(CLASS, &mut buffer)])?;
            Ok(())
        })?;
        pairs.push(Pair { value, limit: 2.0 * gigabytes(values) / serial });
    }
    let (pair, measure) = (typical(pairs), format!("exchange of {} out and in{way}", size(values)));
    let limit = (pair.limit, "set, then get");
    print(Row::new(measure, (pair.value, "GB/s"), limit, Goal::RatioAtLeast(1.5)));
    Ok(())
}

/// The whole state of a 3B model out, and in, to and from where the object lies.
fn state<D: Share>(
    device: &D,
    values: usize,
    bus: f64,
    print: &mut dyn FnMut(Row),
) -> Outcome<Option<NotRun>> {
    let bytes = (values * size_of::<f32>()) as u64;
    let mut buffer = device.allocate(values);
    if let Err(source) = device.check() {
        return Ok(Some(NotRun::NoRoom { bytes, source }));
    }
    let served = Served::new(2 * bytes + (64 << 20))?;
    let tier = DeviceTier::new(device.clone(), served.objects.clone()).pin_objects(u64::MAX);
    let layout = layout(values)?;
    let set =
        |buffer: &D::Buffer| tier.set("state", Expected::Any, &layout, &[DevicePart::of(CLASS, buffer)]);
    let get =
        |buffer: &mut D::Buffer| tier.get("state", Which::Latest, &mut [DevicePartMut::of(CLASS, buffer)]);
    if let Err(source) = set(&buffer).and_then(|_| get(&mut buffer)) {
        return Ok(Some(NotRun::NotMoved { bytes, source })); // the memory is made and pinned here, and not timed
    }
    let deleted = served.objects.list_of("state")?;
    for shown in deleted {
        served.objects.delete(&shown.key, shown.version)?; // its memory is for the next: there may not be room for two
    }
    let out = seconds(device, || Ok(set(&buffer).map(drop)?))?;
    let back = seconds(device, || Ok(get(&mut buffer).map(drop)?))?;
    let goal = if bus >= GEN5_GIGABYTES { Goal::AtMost(1.0) } else { Goal::None };
    let limit = (gigabytes(values) / bus, "the driver's rate of this run");
    for (words, took) in [("out", out), ("in", back)] {
        let measure = format!("a state of {:.3} GB {words}, objects pinned", gigabytes(values));
        print(Row::new(measure, (took, "s"), limit, goal));
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops where its benchmark fails")]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_a_device_runs_on_the_stand_in() {
        let mut rows = Vec::new();
        let not_run = device_rows(&DeviceRows::StandIn, true, &mut |row| rows.push(row)).unwrap();
        assert!(not_run.is_empty(), "{not_run:?}");
        assert_eq!(rows.len(), 26);
        for row in &rows {
            assert!(row.ratio().is_finite() && row.ratio() >= 0.0, "{row:?}");
        }
        let pinned: Vec<_> = rows.iter().filter(|row| row.measure().contains("bytes pinned")).collect();
        assert!(pinned.len() == 6 && pinned.iter().all(|row| row.met() == Some(true)), "{pinned:?}");
    }

    #[test]
    fn a_device_that_is_not_there_is_said_to_have_measured_nothing() {
        let mut rows = 0;
        let not_run = device_rows(&"cuda:1000".parse().unwrap(), true, &mut |_| rows += 1).unwrap();
        assert_eq!(rows, 0);
        assert!(matches!(not_run[..], [NotRun::NoDevice { .. } | NotRun::NoSuch { .. }]), "{not_run:?}");
        assert!(not_run[0].to_string().starts_with("the rows of cuda:1000 have not run"));
        for name in ["gpu", "cuda", "cuda:-1", "cuda:x", ""] {
            assert!(name.parse::<DeviceRows>().is_err(), "{name:?}");
        }
    }
}
