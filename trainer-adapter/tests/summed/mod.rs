//! Checksums that a device takes of its own memory: the same with every device, and as the definition has them.

use forebay_trainer_adapter::Copies;

const VALUES: usize = 40_000;

/// Bit by bit, as RFC 3720 has it.
fn by_definition(values: &[f32]) -> u32 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    !bytes.fold(!0, |register: u32, byte| {
        (0..8).fold(register ^ u32::from(byte), |register, _| match register & 1 {
            1 => (register >> 1) ^ 0x82F6_3B78,
            _ => register >> 1,
        })
    })
}

/// Runs of every kind: none, one value, shorter and longer than what blocks and threads take, cut off and not.
pub(crate) fn sums_are_those_of_the_definition<D: Copies>(device: &D) {
    let values: Vec<f32> =
        (0..VALUES as u32).map(|at| f32::from_bits(at.wrapping_mul(0x9E37_79B9) & 0x7F7F_FFFF)).collect();
    let mut buffer = device.allocate(VALUES);
    device.upload(&values, &mut buffer, 0);
    let (stream, mut host) = (device.stream().unwrap(), device.allocate_host(300).unwrap());
    device.stream_after(&stream, &device.computed());
    let cases = [
        (0..0, 5),
        (0..1, 1),
        (7..8, 100),
        (0..127, 127),
        (1..130, 128),
        (3..1_030, 129),
        (11..2_100, 2_089),
        (5..20_005, 10_000),
        (0..VALUES, 16_384),
        (1..VALUES, VALUES),
        (VALUES..VALUES, 1),
    ];
    for (range, run) in cases {
        device.write_host(&[-1.0; 300], &mut host, 0);
        let sums = range.len().div_ceil(run);
        let event = device.sum_up_async(&stream, &buffer, (range.clone(), run), &mut host, 3);
        device.wait(&event).unwrap();
        let mut found = [0.0; 300];
        device.read_host(&host, 0, &mut found);
        let expected: Vec<u32> = values[range.clone()].chunks(run).map(by_definition).collect();
        let there: Vec<u32> = found[3..3 + sums].iter().map(|sum| sum.to_bits()).collect();
        assert_eq!(there, expected, "{range:?} in runs of {run}");
        assert!(found[..3].iter().chain(&found[3 + sums..]).all(|value| *value == -1.0), "nothing beside");
    }
}
