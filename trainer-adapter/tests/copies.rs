//! Copies beside the arithmetic: what is ordered is right in every seed, what is not shows in every seed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use forebay_trainer_adapter::device::stand_in::{CopyWay, POISON_BITS, StandInBuffer, TraceEntry};
use forebay_trainer_adapter::device::{CopyRange, Exchanged, exchange};
use forebay_trainer_adapter::{
    Copies, CpuDevice, Device, Error, GenerateOptions, GenerateRequest, Generation, OpenGroup, Policy,
    PolicyConfig, RewardValues, Row, SampleKey, StandInDevice, StandInOptions, Trainer, TrainerOptions,
    Trajectory, Unit, generate,
};

#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod pinned;
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod summed;

const LENGTH: usize = 100;
const SEEDS: u64 = 40;

fn stand_in(seed: u64) -> StandInDevice {
    StandInDevice::new(StandInOptions { seed, ..StandInOptions::default() })
}

/// Values that name their state and place.
fn values(state: usize, length: usize) -> Vec<f32> {
    (0..length).map(|index| (1000 * state + index) as f32).collect()
}

fn on_device<D: Copies>(device: &D, values: &[f32]) -> D::Buffer {
    let mut buffer = device.allocate(values.len());
    device.upload(values, &mut buffer, 0);
    buffer
}

fn on_host<D: Copies>(device: &D, values: &[f32]) -> D::Host {
    let mut host = device.allocate_host(values.len()).unwrap();
    device.write_host(values, &mut host, 0);
    host
}

fn downloaded<D: Copies>(device: &D, buffer: &D::Buffer) -> Vec<f32> {
    let mut values = vec![0.0; device.length(buffer)];
    device.download(buffer, 0, &mut values);
    values
}

fn host_values<D: Copies>(device: &D, host: &D::Host, length: usize) -> Vec<f32> {
    let mut values = vec![0.0; length];
    device.read_host(host, 0, &mut values);
    values
}

fn is_poisoned(values: &[f32]) -> bool {
    values.iter().any(|value| value.to_bits() == POISON_BITS)
}

/// Old values out, new values in, over two buffers of a state; what each place holds afterwards.
fn exchanged<D: Copies>(device: &D, chunk_values: usize) -> Result<[Vec<f32>; 5], Error> {
    let (mut one, mut two) = (on_device(device, &values(1, LENGTH)), on_device(device, &values(2, 33)));
    let (in_one, in_two) = (on_host(device, &values(3, LENGTH)), on_host(device, &values(4, 33)));
    let (mut out_one, mut out_two) =
        (device.allocate_host(LENGTH).unwrap(), device.allocate_host(33).unwrap());
    let mut state = [
        Exchanged { buffer: &mut one, outgoing: &mut out_one, incoming: &in_one, length: LENGTH },
        Exchanged { buffer: &mut two, outgoing: &mut out_two, incoming: &in_two, length: 33 },
    ];
    let result = exchange(device, &mut state, chunk_values);
    assert_eq!(host_values(device, &in_one, LENGTH), values(3, LENGTH), "what comes in is only read");
    result?;
    Ok([
        host_values(device, &out_one, LENGTH),
        host_values(device, &out_two, 33),
        downloaded(device, &one),
        downloaded(device, &two),
        host_values(device, &in_two, 33),
    ])
}

/// FX-58: out and in at once, in chunks that divide the length and in chunks that do not, in every order of completion.
#[test]
fn an_exchange_moves_every_value_whatever_ends_first() {
    let expected = [values(1, LENGTH), values(2, 33), values(3, LENGTH), values(4, 33), values(4, 33)];
    for chunk_values in [1, 7, 25, 1000] {
        assert_eq!(exchanged(&CpuDevice::inline(), chunk_values).unwrap(), expected);
        for seed in 0..SEEDS {
            assert_eq!(exchanged(&stand_in(seed), chunk_values).unwrap(), expected, "seed {seed}");
        }
    }
    assert!(matches!(exchanged(&stand_in(0), 0), Err(Error::Config { field: "chunk_values", .. })));
}

/// A length that some memory has no room for is the caller's, and refused before anything is copied.
#[test]
fn an_exchange_beyond_a_memory_is_refused_with_its_name_and_copies_nothing() {
    fn refused<D: Copies>(device: &D, lengths: [usize; 3]) -> String {
        let [buffer, outgoing, incoming] = lengths;
        let (mut one, whole) = (on_device(device, &values(1, buffer)), on_host(device, &values(2, 9)));
        let mut two = on_device(device, &values(3, 9));
        let [mut out_one, mut out_two] = [9, outgoing].map(|length| device.allocate_host(length).unwrap());
        let short = on_host(device, &values(4, incoming));
        let mut state = [
            Exchanged { buffer: &mut two, outgoing: &mut out_one, incoming: &whole, length: 9 },
            Exchanged { buffer: &mut one, outgoing: &mut out_two, incoming: &short, length: 9 },
        ];
        let error = exchange(device, &mut state, 4).unwrap_err();
        assert!(matches!(error, Error::Config { field: "length", .. }), "{error}");
        assert_eq!(downloaded(device, &two), values(3, 9), "nothing was copied");
        error.to_string()
    }
    let cases = [
        ([8, 9, 9], "buffer has 8"),
        ([9, 0, 9], "outgoing memory has 0"),
        ([9, 9, 5], "incoming memory has 5"),
    ];
    for (lengths, expected) in cases {
        for error in [refused(&CpuDevice::inline(), lengths), refused(&stand_in(0), lengths)] {
            assert!(error.contains(expected) && error.contains("length = 9 (part 1"), "{error}");
        }
    }
}

fn overlap(one: &TraceEntry, other: &TraceEntry) -> bool {
    one.ticks.0 <= other.ticks.1 && other.ticks.0 <= one.ticks.1
}

/// The trace shows both directions at work at once, and no chunk coming in before its place was free. With one chunk there
/// is nothing to overlap.
#[test]
fn an_exchange_overlaps_both_directions() {
    for seed in 0..SEEDS {
        let device = stand_in(seed);
        exchanged(&device, 5).unwrap();
        let trace = device.trace();
        let (out, back): (Vec<_>, Vec<_>) = trace.iter().partition(|entry| entry.way == CopyWay::ToHost);
        assert_eq!((out.len(), back.len()), (27, 27));
        for (left, came) in out.iter().zip(&back) {
            assert_eq!(left.range, came.range);
            assert!(left.ticks.1 < came.ticks.0, "seed {seed}: {came:?} before {left:?} was done");
        }
        let beside = back.iter().filter(|came| out.iter().any(|left| overlap(left, came))).count();
        assert!(
            beside * 2 > back.len(),
            "seed {seed}: {beside} of {} beside a copy the other way",
            back.len()
        );
        let serial: u64 = trace.iter().map(|entry| entry.ticks.1 - entry.ticks.0 + 1).sum();
        let taken = trace.iter().map(|entry| entry.ticks.1).max().unwrap();
        assert!(taken < serial, "seed {seed}: {taken} ticks, one after the other {serial}");
    }
    let device = stand_in(1);
    let (mut buffer, incoming) = (on_device(&device, &values(1, 9)), on_host(&device, &values(2, 9)));
    let mut outgoing = device.allocate_host(9).unwrap();
    let whole = Exchanged { buffer: &mut buffer, outgoing: &mut outgoing, incoming: &incoming, length: 9 };
    exchange(&device, &mut [whole], 9).unwrap();
    let trace = device.trace();
    assert!(!overlap(&trace[0], &trace[1]));
}

const WHOLE: CopyRange = CopyRange { device_offset: 0, host_offset: 0, length: LENGTH };

/// A device, a buffer of state 1, host memory of state 2, and host memory to copy out to.
struct Scene {
    device: StandInDevice,
    buffer: StandInBuffer,
    incoming: StandInBuffer,
    outgoing: StandInBuffer,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let device = stand_in(seed);
        let (buffer, incoming) =
            (on_device(&device, &values(1, LENGTH)), on_host(&device, &values(2, LENGTH)));
        let outgoing = device.allocate_host(LENGTH).unwrap();
        Self { device, buffer, incoming, outgoing }
    }

    /// Everything that can be seen once all copies are done.
    fn all(&self) -> Vec<f32> {
        let hosts = [&self.incoming, &self.outgoing].map(|host| host_values(&self.device, host, LENGTH));
        [downloaded(&self.device, &self.buffer), hosts.concat()].concat()
    }
}

/// Each broken order leaves poison with every seed; the same with its order kept leaves none with any.
#[test]
fn a_wrong_order_shows_in_every_seed_and_a_right_one_in_none() {
    type Order = fn(&mut Scene, bool) -> Vec<f32>;
    let cases: [(&str, Order); 7] = [
        ("a new chunk over an old one that is still leaving", |scene, right| {
            let Scene { device, buffer, incoming, outgoing } = scene;
            let (out, back) = (device.stream().unwrap(), device.stream().unwrap());
            let left = device.copy_to_host_async(&out, buffer, outgoing, WHOLE);
            if right {
                device.stream_after(&back, &left);
            }
            let came = device.copy_to_device_async(&back, incoming, buffer, WHOLE);
            device.wait(&left).unwrap();
            device.wait(&came).unwrap();
            scene.all()
        }),
        ("reading what has not come", |scene, right| {
            let Scene { device, buffer, outgoing, .. } = scene;
            let left = device.copy_to_host_async(&device.stream().unwrap(), buffer, outgoing, WHOLE);
            if right {
                device.wait(&left).unwrap();
            }
            host_values(device, outgoing, LENGTH)
        }),
        ("arithmetic on what has not come", |scene, right| {
            let Scene { device, buffer, incoming, .. } = scene;
            let came = device.copy_to_device_async(&device.stream().unwrap(), incoming, buffer, WHOLE);
            if right {
                device.compute_after(&came).unwrap();
            }
            let mut sum = device.allocate(LENGTH);
            device.accumulate(buffer, &mut sum);
            device.wait(&came).unwrap();
            downloaded(device, &sum)
        }),
        ("arithmetic over what is still leaving", |scene, right| {
            let Scene { device, buffer, outgoing, .. } = scene;
            let left = device.copy_to_host_async(&device.stream().unwrap(), buffer, outgoing, WHOLE);
            if right {
                device.compute_after(&left).unwrap();
            }
            device.clear(buffer, 0, LENGTH);
            device.wait(&left).unwrap();
            scene.all()
        }),
        ("host memory filled again while it is read", |scene, right| {
            let Scene { device, buffer, incoming, .. } = scene;
            let came = device.copy_to_device_async(&device.stream().unwrap(), incoming, buffer, WHOLE);
            if right {
                device.wait(&came).unwrap();
            }
            device.write_host(&values(5, LENGTH), incoming, 0);
            device.wait(&came).unwrap();
            scene.all()
        }),
        ("two copies into one place", |scene, right| {
            let Scene { device, buffer, incoming, .. } = scene;
            let other = on_host(device, &values(6, LENGTH));
            let one = device.stream().unwrap();
            let two = if right { one } else { device.stream().unwrap() };
            let first = device.copy_to_device_async(&one, incoming, buffer, WHOLE);
            let second = device.copy_to_device_async(&two, &other, buffer, WHOLE);
            device.wait(&first).unwrap();
            device.wait(&second).unwrap();
            scene.all()
        }),
        ("an event of another copy", |scene, right| {
            let Scene { device, buffer, incoming, outgoing } = scene;
            let (out, back) = (device.stream().unwrap(), device.stream().unwrap());
            let half = |first| CopyRange { device_offset: first, host_offset: first, length: LENGTH / 2 };
            let first = device.copy_to_host_async(&out, buffer, outgoing, half(0));
            let second = device.copy_to_host_async(&out, buffer, outgoing, half(LENGTH / 2));
            device.stream_after(&back, if right { &second } else { &first });
            let came = device.copy_to_device_async(&back, incoming, buffer, half(LENGTH / 2));
            for event in [&first, &second, &came] {
                device.wait(event).unwrap();
            }
            scene.all()
        }),
    ];
    for (name, order) in cases {
        for seed in 0..SEEDS {
            assert!(is_poisoned(&order(&mut Scene::new(seed), false)), "{name}, seed {seed}: not caught");
            assert!(!is_poisoned(&order(&mut Scene::new(seed), true)), "{name}, seed {seed}: a false alarm");
        }
    }
}

/// What a copy writes is right once it has been waited for, though it was poison before; a poll says when.
#[test]
fn poison_goes_when_the_event_is_done() {
    let Scene { device, buffer, mut outgoing, .. } = Scene::new(3);
    let left = device.copy_to_host_async(&device.stream().unwrap(), &buffer, &mut outgoing, WHOLE);
    drop(buffer);
    let mut polls = 0;
    while !device.is_done(&left).unwrap() {
        assert!(is_poisoned(&host_values(&device, &outgoing, LENGTH)));
        polls += 1;
    }
    assert!(polls > 0, "seed 3 was chosen for a copy that takes a while");
    assert_eq!(host_values(&device, &outgoing, LENGTH), values(1, LENGTH));
}

/// FX-69: whichever copy fails, the exchange says so, what was to come in is unharmed, and it can be made again.
#[test]
fn a_failed_copy_is_an_error_and_can_be_made_again() {
    // Three chunks, each out and in.
    for fault in 0..6 {
        let device = StandInDevice::new(StandInOptions { faults: vec![fault], ..StandInOptions::default() });
        let refused = exchanged(&device, 50);
        assert!(matches!(refused, Err(Error::Copy { .. })), "copy {fault}: {refused:?}");
        assert!(exchanged(&device, 50).is_ok());
    }
}

/// A length that the host has no memory for, or no addresses, is told to who asks, and the device goes on.
#[test]
fn memory_that_no_host_has_is_told_to_who_asks() {
    fn is_refused<D: Copies>(device: &D) {
        for length in [1 << 60, usize::MAX / 4, usize::MAX - 1, usize::MAX] {
            for refused in [device.allocate_host(length).map(drop), device.try_allocate(length).map(drop)] {
                let is_told = matches!(&refused, Err(Error::HostMemory { values, .. }) if *values == length);
                assert!(is_told, "{length}: {refused:?}");
            }
        }
        assert_eq!(
            (device.check(), downloaded(device, &device.try_allocate(3).unwrap())),
            (Ok(()), vec![0.0; 3])
        );
    }
    is_refused(&CpuDevice::inline());
    is_refused(&stand_in(0));
}

/// Three steps with whole and early groups: the state of the trainer, and what its policy then says.
fn trained<D: Device>(device: &D) -> (Vec<u8>, Vec<Generation>) {
    let policy = Policy::initialise(device, &PolicyConfig::small(40), 7).unwrap();
    let options = TrainerOptions { entropy_coefficient: 0.01, ..TrainerOptions::default() };
    let mut trainer = Trainer::new(device, policy, options).unwrap();
    for version in 0..3 {
        let rows: Vec<Row<'_>> = [(&[3, 4][..], 0.5), (&[5][..], -1.0), (&[6, 7, 8][..], 0.5)]
            .map(|(response, advantage)| Row { advantage, ..Row::new(&[1, 2], response) })
            .to_vec();
        trainer.accumulate(&Unit { position: 1, policy: "policy", version, rows: &rows }).unwrap();
        let rewards = RewardValues::Any { reference: 0.0 };
        let group = OpenGroup { position: 0, policy: "policy", version, members: 3, rewards };
        trainer.begin_group(&group).unwrap();
        for (member, row) in rows.iter().enumerate() {
            let rows = [Row { advantage: 1.0, ..*row }];
            let reward = member as f64;
            trainer.add_trajectory(&Trajectory { group: 0, member, reward, rows: &rows }).unwrap();
        }
        trainer.close_group(0, &[-1.0, 0.0, 1.0]).unwrap();
        trainer.apply().unwrap();
    }
    let key = |sample| SampleKey { sample, ..SampleKey::default() };
    let requests: Vec<_> =
        (0..5).map(|sample| GenerateRequest { prompt: &[1, 2, 3], key: key(sample) }).collect();
    let said = generate(device, &trainer.policy(), &requests, &GenerateOptions::default()).unwrap();
    (trainer.state(), said)
}

/// The stand-in computes what the processor computes, bit for bit.
#[test]
fn training_on_the_stand_in_has_the_bits_of_the_processor() {
    let expected = trained(&CpuDevice::inline());
    for seed in 0..3 {
        assert!(trained(&stand_in(seed)) == expected, "seed {seed}");
    }
}

/// FX-66: memory of somebody else's that is pinned where it lies, in every order of completion; beyond its limit a device says no.
#[test]
fn copies_go_to_and_from_memory_that_others_have_mapped() {
    for seed in 0..SEEDS {
        let device = stand_in(seed);
        pinned::values_go_out_and_in(&device);
        assert_eq!(device.pinned_bytes(), 0, "seed {seed}");
    }
    let device = StandInDevice::new(StandInOptions { pinned_bytes_max: 1000, ..StandInOptions::default() });
    let (some, more) = (pinned::Mapped::new(200), pinned::Mapped::new(100));
    let kept = device.pin(some.foreign(true)).unwrap();
    let reason = pinned::is_refused(&device, more.foreign(true));
    assert!(reason.contains("400 bytes beside 800") && reason.contains("1000"), "{reason}");
    drop(kept);
    device.pin(more.foreign(false)).unwrap();
    let reason = pinned::is_refused(&CpuDevice::inline(), more.foreign(true));
    assert!(reason.contains("the processor"), "{reason}");
}

/// A copy into pinned memory that fails leaves poison there, and says so.
#[test]
fn a_failed_copy_into_pinned_memory_is_told() {
    let device = StandInDevice::new(StandInOptions { faults: vec![0], ..StandInOptions::default() });
    let (buffer, mapped) = (on_device(&device, &values(1, LENGTH)), pinned::Mapped::new(LENGTH));
    let memory = device.pin(mapped.foreign(true)).unwrap();
    let event = device.copy_to_pinned_async(&device.stream().unwrap(), &buffer, &memory, WHOLE);
    assert!(matches!(device.wait(&event), Err(Error::Copy { .. })));
    assert!(is_poisoned(&mapped.read()));
}

/// FX-69: the checksum is of what lies on the device, and comes late as copies do.
#[test]
fn sums_of_a_devices_memory_are_those_of_the_definition_in_every_seed() {
    summed::sums_are_those_of_the_definition(&CpuDevice::inline());
    for seed in 0..SEEDS {
        summed::sums_are_those_of_the_definition(&stand_in(seed));
    }
}

/// What is copied away while it is summed up is summed up as it was; what is overwritten without an order is poison.
#[test]
fn a_sum_that_races_with_a_copy_shows_in_every_seed() {
    for seed in 0..SEEDS {
        for is_ordered in [true, false] {
            let device = stand_in(seed);
            let mut buffer = on_device(&device, &values(1, LENGTH));
            let (mut sums, next) = (device.allocate_host(1).unwrap(), on_host(&device, &values(2, LENGTH)));
            let [one, other] = [device.stream().unwrap(), device.stream().unwrap()];
            let summed = device.sum_up_async(&one, &buffer, (0..LENGTH, LENGTH), &mut sums, 0);
            if is_ordered {
                device.stream_after(&other, &summed);
            }
            let all = CopyRange { device_offset: 0, host_offset: 0, length: LENGTH };
            let came = device.copy_to_device_async(&other, &next, &mut buffer, all);
            device.wait(&summed).unwrap();
            device.wait(&came).unwrap();
            let found = host_values(&device, &sums, 1)[0].to_bits();
            let expected = forebay_trainer_adapter::device::crc32c(&values(1, LENGTH));
            assert_eq!(found, if is_ordered { expected } else { POISON_BITS }, "seed {seed}");
        }
    }
}
