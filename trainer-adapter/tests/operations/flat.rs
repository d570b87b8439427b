//! Whole flat buffers: fixed-point sums, and the update.

use forebay_trainer_adapter::Device;
use forebay_trainer_adapter::device::AdamWStep;

use super::{buffer, random, read};

pub(super) fn sums<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let length = 1000;
    let (mut one, mut two) = (device.allocate_sums(length, 30, 4), device.allocate_sums(length, 30, 4));
    device.add_to_sums(0.37, &buffer(device, seed, length), &mut one);
    device.add_to_sums(-1.5, &buffer(device, seed + 1, length), &mut one);
    let mut units = vec![0; length];
    device.download_sums(&one, &mut units);
    device.upload_sums(&units, &mut two);
    // One value that no sum can hold: it is lost, whatever comes after it.
    let mut odd = random(seed + 2, length);
    odd[7] = f32::INFINITY;
    let mut extra = device.allocate(length);
    device.upload(&odd, &mut extra, 0);
    device.add_to_sums(1.0, &extra, &mut two);
    device.add_to_sums(1.0, &buffer(device, seed, length), &mut two);
    let mut output = device.allocate(length);
    device.combine_sums(&[(0.25, &one), (2.0, &two)], &mut output);
    let mut values = read(device, &output);
    assert!(values[7].is_nan(), "a lost value is no number");
    values[7] = 0.0;
    // To the bit: integers have one sum.
    values.extend(units.iter().map(|&unit| unit as f32));
    values
}

pub(super) fn update<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let length = 70_001;
    let step = AdamWStep {
        gradient_scale: 0.37,
        rate: 0.01,
        keep: 0.999,
        beta1: 0.9,
        one_minus_beta1: 0.1,
        beta2: 0.95,
        one_minus_beta2: 0.05,
        second_scale: 1.7,
        epsilon: 1e-8,
    };
    let [mut gradient, mut parameters, mut first] = [0, 1, 2].map(|plus| buffer(device, seed + plus, length));
    let mut second = device.allocate(length);
    device.upload(
        &random(seed + 3, length).iter().map(|value| value.abs()).collect::<Vec<_>>(),
        &mut second,
        0,
    );
    device.accumulate(&parameters, &mut gradient);
    let squares = device.sum_of_squares(&gradient);
    device.adamw(&step, &gradient, &mut parameters, &mut first, &mut second);
    let mut all = [&gradient, &parameters, &first, &second].map(|buffer| read(device, buffer)).concat();
    all.push((squares.sqrt() / 300.0) as f32);
    all
}
