//! A payload on its way in.

use std::collections::VecDeque;
use std::io::Read;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use crate::device::Device;
use crate::error::Error;
use crate::policy::PIECE_VALUES;

/// The longest header that readers of the format take.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// A run that is next in a stream.
pub(in crate::trainer) struct Head {
    pub(in crate::trainer) name: String,
    pub(in crate::trainer) dtype: Dtype,
    pub(super) values: usize,
    bytes: usize,
}

impl Head {
    fn refuse(&self, reason: String) -> Error {
        Error::Tensor { name: self.name.clone(), reason }
    }
}

/// A payload that is being read.
pub(in crate::trainer) struct Incoming<'r> {
    from: &'r mut dyn Read,
    heads: VecDeque<Head>,
}

impl<'r> Incoming<'r> {
    /// Reads the header.
    pub(in crate::trainer) fn open(from: &'r mut dyn Read) -> Result<Self, Error> {
        let mut length = [0; 8];
        from.read_exact(&mut length).map_err(|error| ended("the length of its header", &error))?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_BYTES_MAX {
            let reason = format!("a header of {length} bytes, at most {HEADER_BYTES_MAX} are taken");
            return Err(Error::Payload { reason });
        }
        let text = taken(from, length).map_err(|error| ended("its header", &error))?;
        let read: Result<Metadata, _> = serde_json::from_slice(&text);
        let metadata = read.map_err(|error| Error::Payload { reason: error.to_string() })?;
        let head = |name: String| {
            let TensorInfo { dtype, shape, data_offsets: (begin, end) } = metadata.info(&name)?.clone();
            // The lengths were checked against the shapes, products included.
            Some(Head { name, dtype, values: shape.iter().product(), bytes: end - begin })
        };
        let heads = metadata.offset_keys().into_iter().filter_map(head).collect();
        Ok(Self { from, heads })
    }

    /// The run that comes next. It has to be read by one of the calls below before the one after it.
    pub(in crate::trainer) fn next(&mut self) -> Option<Head> {
        self.heads.pop_front()
    }

    /// All bytes of a run. Memory grows with what comes, not with what the header claims.
    pub(in crate::trainer) fn bytes(&mut self, head: &Head) -> Result<Vec<u8>, Error> {
        taken(self.from, head.bytes as u64).map_err(|error| ended(&head.name, &error))
    }

    /// A run of exactly `length` values, put into a new buffer.
    pub(in crate::trainer) fn buffer<D: Device>(
        &mut self,
        device: &D,
        head: &Head,
        length: usize,
        owner: &str,
    ) -> Result<D::Buffer, Error> {
        if head.dtype != Dtype::F32 {
            return Err(head.refuse(format!("stored as {:?}", head.dtype)));
        }
        if head.values != length {
            return Err(head.refuse(format!("{} values, the {owner} has {length}", head.values)));
        }
        let mut buffer = device.try_allocate(length)?;
        if let Some(values) = device.in_host_memory_mut(&mut buffer) {
            self.values(head, &mut values[..length])?;
            return Ok(buffer);
        }
        let mut piece = vec![0.0; PIECE_VALUES.min(length)];
        for first in (0..length).step_by(PIECE_VALUES) {
            let values = &mut piece[..PIECE_VALUES.min(length - first)];
            self.values(head, values)?;
            device.upload(values, &mut buffer, first);
        }
        Ok(buffer)
    }

    fn values(&mut self, head: &Head, values: &mut [f32]) -> Result<(), Error> {
        let read = self.from.read_exact(bytemuck::cast_slice_mut(values));
        read.map_err(|error| ended(&head.name, &error))?;
        if cfg!(target_endian = "big") {
            values.iter_mut().for_each(|value| *value = f32::from_bits(value.to_bits().swap_bytes()));
        }
        Ok(())
    }

    /// Refuses what comes behind the last run. Reading up to here is also what a checksum over all of it waits for.
    pub(in crate::trainer) fn finish(self) -> Result<(), Error> {
        match self.from.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Error::Payload { reason: "bytes come behind the last tensor".into() }),
            Err(error) => Err(ended("its end", &error)),
        }
    }
}

fn taken(from: &mut dyn Read, length: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match from.take(length).read_to_end(&mut bytes)? as u64 {
        read if read == length => Ok(bytes),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// What was being read, and what its source said.
fn ended(what: &str, error: &std::io::Error) -> Error {
    let mut reason = format!("{what} cannot be read: {error}");
    let mut cause = error.get_ref().and_then(|inner| inner.source());
    while let Some(inner) = cause {
        reason.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    Error::Payload { reason }
}
