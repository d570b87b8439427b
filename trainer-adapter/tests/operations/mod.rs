//! Every operation of a device on random data: what it leaves in memory, so that two devices can be compared.
//!
//! Sizes are ragged on purpose: rows and columns that are no multiple of a warp, a block or a tile; views that begin inside of
//! their buffers and have gaps between rows; several key heads; families with long, short and empty branches.

mod attention;
mod flat;

use attention::{attention, cache};
use flat::{sums, update};
use forebay_trainer_adapter::Device;
use forebay_trainer_adapter::device::{AttentionHeads, Direction, Linear, Matrix, MatrixMut, RowRule};

/// An operation on data of a seed: what it leaves.
pub(crate) type Operation<D> = fn(&D, u64) -> Vec<f32>;

/// The operations by name.
pub(crate) fn all<D: Device>() -> Vec<(&'static str, Operation<D>)> {
    vec![
        ("rows", rows),
        ("gather and scatter", gather_and_scatter),
        ("rms norm", rms_norm),
        ("head norm", head_norm),
        ("rotary", rotary),
        ("swiglu", swiglu),
        ("products", products),
        ("linear", linear),
        ("attention", attention),
        ("cache", cache),
        ("tokens", tokens),
        ("sums", sums),
        ("update", update),
    ]
}

/// Random values in [-1, 1), never zero.
pub(crate) fn random(seed: u64, length: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..length).map(|_| next()).map(|value| if value == 0.0 { 0.5 } else { value }).collect()
}

pub(crate) fn buffer<D: Device>(device: &D, seed: u64, length: usize) -> D::Buffer {
    let mut buffer = device.allocate(length);
    device.upload(&random(seed, length), &mut buffer, 0);
    buffer
}

fn read<D: Device>(device: &D, buffer: &D::Buffer) -> Vec<f32> {
    let mut values = vec![0.0; device.length(buffer)];
    device.download(buffer, 0, &mut values);
    values
}

fn rows<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let (one, mut two) = (buffer(device, seed, 7 + 45 * 140), buffer(device, seed + 1, 45 * 137));
    let mut vector = device.allocate(137);
    let source = Matrix::strided(&one, 7, 45, 137, 140);
    device.add(source, MatrixMut::new(&mut two, 0, 45, 137));
    device.add_row(Matrix::new(&one, 3, 1, 137), MatrixMut::new(&mut two, 0, 45, 137));
    device.sum_rows(Matrix::strided(&two, 0, 45, 130, 137), MatrixMut::new(&mut vector, 0, 1, 130));
    let mut copied = device.allocate(45 * 137 + 2);
    device.copy(&two, &mut copied);
    device.clear(&mut copied, 5, 90);
    [read(device, &two), read(device, &vector), read(device, &copied)].concat()
}

fn gather_and_scatter<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let source = buffer(device, seed, 11 * 131);
    let picked = [3, 10, 0, 3, 3, 7, 10];
    let mut gathered = device.allocate(7 * 150);
    device.gather(
        Matrix::new(&source, 0, 11, 131),
        &picked,
        MatrixMut::strided(&mut gathered, 0, 7, 131, 150),
    );
    let mut target = buffer(device, seed + 1, 11 * 140);
    let from = Matrix::strided(&gathered, 0, 7, 131, 150);
    device.scatter_add(from, &picked, MatrixMut::strided(&mut target, 0, 11, 131, 140));
    [read(device, &gathered), read(device, &target)].concat()
}

fn rms_norm<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let (rows, columns, stride) = (37, 131, 140);
    let (input, weight) = (buffer(device, seed, rows * stride), buffer(device, seed + 1, columns));
    let (mut output, mut scales) = (device.allocate(rows * columns), device.allocate(rows));
    let (x, w) = (Matrix::strided(&input, 0, rows, columns, stride), Matrix::new(&weight, 0, 1, columns));
    device.rms_norm(x, w, 1e-5, MatrixMut::new(&mut output, 0, rows, columns), &mut scales);
    let outer = buffer(device, seed + 2, rows * columns);
    let (mut dx, mut dw) = (buffer(device, seed + 3, rows * columns), buffer(device, seed + 4, columns));
    let (dy, into) = (Matrix::new(&outer, 0, rows, columns), MatrixMut::new(&mut dx, 0, rows, columns));
    device.rms_norm_backward(x, w, &scales, dy, into, MatrixMut::new(&mut dw, 0, 1, columns));
    [&output, &scales, &dx, &dw].map(|buffer| read(device, buffer)).concat()
}

fn head_norm<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let mut all = Vec::new();
    for (queries, keys, dimension) in [(6, 3, 6), (4, 2, 40)] {
        let heads = AttentionHeads { queries, keys, dimension };
        let (rows, columns) = (23, heads.columns());
        let (input, weights) =
            (buffer(device, seed, rows * columns), buffer(device, seed + 1, 2 * dimension));
        let (mut output, mut scales) =
            (device.allocate(rows * columns), device.allocate(rows * (queries + keys)));
        let (x, w) = (Matrix::new(&input, 0, rows, columns), Matrix::new(&weights, 0, 2, dimension));
        device.head_norm(heads, x, w, 1e-5, MatrixMut::new(&mut output, 0, rows, columns), &mut scales);
        let (mut gradient, mut dw) =
            (buffer(device, seed + 2, rows * columns), device.allocate(2 * dimension));
        let into = MatrixMut::new(&mut gradient, 0, rows, columns);
        device.head_norm_backward(heads, x, w, &scales, into, MatrixMut::new(&mut dw, 0, 2, dimension));
        all.extend([&output, &scales, &gradient, &dw].map(|buffer| read(device, buffer)).concat());
    }
    all
}

fn rotary<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let (mut matrix, table) = (buffer(device, seed, 9 * 50), buffer(device, seed + 1, 20 * 6));
    let positions = [0, 1, 2, 19, 19, 4, 11, 3, 2];
    let angles = Matrix::new(&table, 0, 20, 6);
    device.rotary(MatrixMut::strided(&mut matrix, 2, 9, 42, 48), &positions, angles, Direction::Forward);
    let mut all = read(device, &matrix);
    device.rotary(MatrixMut::strided(&mut matrix, 2, 9, 24, 48), &positions, angles, Direction::Backward);
    all.extend(read(device, &matrix));
    all
}

fn swiglu<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let (gate_up, outer) = (buffer(device, seed, 13 * 2 * 150), buffer(device, seed + 1, 13 * 150));
    let (mut output, mut gradient) = (device.allocate(13 * 150), device.allocate(13 * 2 * 150));
    let inputs = Matrix::new(&gate_up, 0, 13, 2 * 150);
    device.swiglu(inputs, MatrixMut::new(&mut output, 0, 13, 150));
    let into = MatrixMut::new(&mut gradient, 0, 13, 2 * 150);
    device.swiglu_backward(inputs, Matrix::new(&outer, 0, 13, 150), into);
    [read(device, &output), read(device, &gradient)].concat()
}

fn products<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let (left, right) = (buffer(device, seed, 40 * 40), buffer(device, seed + 1, 40 * 40));
    let mut all = Vec::new();
    for (transposed_left, transposed_right) in [(false, false), (true, false), (false, true), (true, true)] {
        let view = |buffer, rows: usize, columns: usize, transposed: bool| {
            let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
            let stored = Matrix::strided(buffer, 5, rows, columns, 37);
            if transposed { stored.transposed() } else { stored }
        };
        let mut output = buffer(device, seed + 2, 21 * 35);
        let (a, b) = (view(&left, 21, 29, transposed_left), view(&right, 29, 33, transposed_right));
        device.multiply(0.7, a, b, 0.3, MatrixMut::strided(&mut output, 0, 21, 33, 35));
        all.extend(read(device, &output));
        device.multiply(1.0, a, b, 0.0, MatrixMut::strided(&mut output, 0, 21, 33, 35));
        all.extend(read(device, &output));
        // One row, one column, one value between them.
        device.multiply(
            1.0,
            view(&left, 1, 29, transposed_left),
            b,
            0.0,
            MatrixMut::strided(&mut output, 0, 1, 33, 35),
        );
        device.multiply(
            1.0,
            a,
            view(&right, 29, 1, transposed_right),
            1.0,
            MatrixMut::strided(&mut output, 0, 21, 1, 35),
        );
        let (a, b) = (view(&left, 21, 1, transposed_left), view(&right, 1, 33, transposed_right));
        device.multiply(1.0, a, b, 1.0, MatrixMut::strided(&mut output, 0, 21, 33, 35));
        all.extend(read(device, &output));
    }
    all
}

fn linear<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let parameters = buffer(device, seed, 4000);
    let linears =
        [Linear { offset: 3, outputs: 17, inputs: 29 }, Linear { offset: 700, outputs: 33, inputs: 21 }];
    let prepared = device.prepare(&parameters, &linears);
    let mut all = Vec::new();
    for (index, linear) in linears.iter().enumerate() {
        for rule in [RowRule::Together, RowRule::Alone] {
            let rows = 11_usize;
            let room = rows.next_multiple_of(D::ROW_TILE);
            let (input, mut output) = (buffer(device, seed + 1, room * 29), device.allocate(room * 40));
            let from = Matrix::new(&input, 0, rows, linear.inputs);
            device.linear(
                &prepared,
                index,
                from,
                MatrixMut::strided(&mut output, 0, rows, linear.outputs, 40),
                rule,
            );
            let values = read(device, &output);
            all.extend(values.chunks(40).take(rows).flat_map(|row| row[..linear.outputs].to_vec()));
        }
    }
    all
}

fn tokens<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let (rows, vocabulary, stride) = (9, 301, 304);
    let mut logits = buffer(device, seed, rows * stride);
    let targets = [0, 300, 17, 5, 5, 128, 127, 129, 1];
    let mut statistics = device.allocate(rows * 3);
    let view = Matrix::strided(&logits, 0, rows, vocabulary, stride);
    device.token_statistics(view, &targets, MatrixMut::new(&mut statistics, 0, rows, 3));
    let (weights, entropies) = (random(seed + 1, rows), random(seed + 2, rows));
    let into = MatrixMut::strided(&mut logits, 0, rows, vocabulary, stride);
    device.token_gradient(into, &targets, Matrix::new(&statistics, 0, rows, 3), &weights, &entropies);
    [read(device, &statistics), read(device, &logits)].concat()
}
