//! A payload on its way out.

use std::io::Write;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use crate::device::Device;
use crate::policy::{PIECE_VALUES, each_piece, f32_bytes};

/// What a run's values are written from.
pub(in crate::trainer) enum Source<'a, D: Device> {
    Bytes(Vec<u8>),
    Buffer(&'a D::Buffer),
    Sums(&'a D::Sums),
}

/// A named run of values.
pub(in crate::trainer) struct Run<'a, D: Device> {
    pub(in crate::trainer) name: String,
    pub(in crate::trainer) dtype: Dtype,
    pub(in crate::trainer) values: usize,
    pub(in crate::trainer) source: Source<'a, D>,
}

impl<'a, D: Device> Run<'a, D> {
    pub(in crate::trainer) fn words(name: impl Into<String>, words: &[u64]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Self { name: name.into(), dtype: Dtype::U64, values: words.len(), source: Source::Bytes(bytes) }
    }

    pub(in crate::trainer) fn text(name: &str, text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        Self { name: name.into(), dtype: Dtype::U8, values: bytes.len(), source: Source::Bytes(bytes) }
    }

    pub(in crate::trainer) fn buffer(name: impl Into<String>, buffer: &'a D::Buffer, values: usize) -> Self {
        Self { name: name.into(), dtype: Dtype::F32, values, source: Source::Buffer(buffer) }
    }

    pub(in crate::trainer) fn sums(name: impl Into<String>, sums: &'a D::Sums, values: usize) -> Self {
        Self { name: name.into(), dtype: Dtype::I64, values, source: Source::Sums(sums) }
    }

    fn bytes(&self) -> usize {
        self.values * self.dtype.bitsize() / 8
    }

    pub(in crate::trainer) fn write(
        &self,
        device: &D,
        to: &mut (impl Write + ?Sized),
    ) -> std::io::Result<()> {
        match self.source {
            Source::Bytes(ref bytes) => to.write_all(bytes),
            Source::Buffer(buffer) => {
                each_piece(device, buffer, self.values, |values| to.write_all(&f32_bytes(values)))
            }
            Source::Sums(sums) => {
                let mut units = vec![0; self.values];
                device.download_sums(sums, &mut units);
                let mut pieces = units.chunks(PIECE_VALUES);
                pieces.try_for_each(|piece| {
                    let bytes: Vec<u8> = piece.iter().flat_map(|unit: &i64| unit.to_le_bytes()).collect();
                    to.write_all(&bytes)
                })
            }
        }
    }
}

/// A payload that is written straight from a trainer's memory: [`crate::Trainer::state_stream`], [`crate::Trainer::cache_stream`].
pub struct FlatStream<'a, D: Device> {
    device: D,
    runs: Vec<Run<'a, D>>,
    header: Vec<u8>,
}

impl<'a, D: Device> FlatStream<'a, D> {
    pub(in crate::trainer) fn new(device: &D, mut runs: Vec<Run<'a, D>>) -> Self {
        runs.sort_by(|one, other| other.dtype.cmp(&one.dtype).then_with(|| one.name.cmp(&other.name)));
        let mut end = 0;
        let infos = runs.iter().map(|run| {
            let begin = end;
            end += run.bytes();
            let info = TensorInfo { dtype: run.dtype, shape: vec![run.values], data_offsets: (begin, end) };
            (run.name.clone(), info)
        });
        let metadata = Metadata::new(None, infos.collect()).expect("the offsets were made from the lengths");
        let mut text = serde_json::to_vec(&metadata).expect("names and numbers can be written");
        text.resize(text.len().next_multiple_of(size_of::<u64>()), b' ');
        let mut header = (text.len() as u64).to_le_bytes().to_vec();
        header.append(&mut text);
        Self { device: device.clone(), runs, header }
    }

    /// How many bytes [`Self::write`] writes.
    pub fn bytes(&self) -> u64 {
        (self.header.len() + self.runs.iter().map(Run::bytes).sum::<usize>()) as u64
    }

    /// Writes all of it, in order: of a device whose memory is the host's in one piece a buffer, else in pieces of 4 MiB.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut (impl Write + ?Sized)) -> std::io::Result<()> {
        to.write_all(&self.header)?;
        self.runs.iter().try_for_each(|run| run.write(&self.device, to))
    }

    pub(in crate::trainer) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes() as usize);
        self.write(&mut bytes).expect("a vector takes everything");
        bytes
    }
}
