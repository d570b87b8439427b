//! Flat payloads as streams: safetensors whose values are written out of a device's buffers and read into them, each once, without the
//! whole payload ever lying anywhere in between.
//!
//! The bytes are those that the `safetensors` crate makes of the same tensors: wider types first, then by name. So a stream can be kept
//! as a file that any reader opens, and a file be read as a stream.

mod incoming;
mod outgoing;

pub(super) use incoming::Incoming;
pub use outgoing::FlatStream;
pub(super) use outgoing::Run;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::*;
    use crate::device::cpu::CpuBuffer;
    use crate::device::{CpuDevice, Device};
    use crate::error::Error;

    fn runs(buffer: &CpuBuffer) -> Vec<Run<'_, CpuDevice>> {
        vec![
            Run::text("name", "solver"),
            Run::buffer("b", buffer, 5),
            Run::words("words", &[1, u64::MAX]),
            Run::buffer("a", buffer, 3),
        ]
    }

    #[test]
    fn a_stream_is_what_the_stock_writer_makes_and_comes_back() {
        let device = CpuDevice::inline();
        let mut buffer = device.allocate(5);
        device.upload(&[1.5, -2.0, f32::MIN_POSITIVE, 4.0, 5.0], &mut buffer, 0);
        let stream = FlatStream::new(&device, runs(&buffer));
        let bytes = stream.to_vec();
        assert_eq!(stream.bytes(), bytes.len() as u64);
        let flat: &[u8] = bytemuck::cast_slice(&buffer[..]);
        let words: Vec<u8> = [1, u64::MAX].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let view = |dtype, length, bytes| TensorView::new(dtype, vec![length], bytes).unwrap();
        let stock = [
            ("a", view(Dtype::F32, 3, &flat[..12])),
            ("b", view(Dtype::F32, 5, flat)),
            ("name", view(Dtype::U8, 6, b"solver")),
            ("words", view(Dtype::U64, 2, &words)),
        ];
        assert_eq!(bytes, safetensors::serialize(stock, None).unwrap());

        let mut from = &bytes[..];
        let mut incoming = Incoming::open(&mut from).unwrap();
        let mut seen = Vec::new();
        while let Some(head) = incoming.next() {
            if head.dtype == Dtype::F32 {
                let length = head.values;
                let read = incoming.buffer(&device, &head, length, "test").unwrap();
                assert_eq!(read[..], buffer[..length]);
            } else {
                incoming.bytes(&head).unwrap();
            }
            seen.push(head.name);
        }
        incoming.finish().unwrap();
        assert_eq!(seen, ["words", "a", "b", "name"]);
    }

    #[test]
    fn a_stream_that_is_cut_or_goes_on_is_refused() {
        let device = CpuDevice::inline();
        let buffer = device.allocate(5);
        let bytes = FlatStream::new(&device, runs(&buffer)).to_vec();
        let read = |mut from: &[u8]| -> Result<(), Error> {
            let mut incoming = Incoming::open(&mut from)?;
            while let Some(head) = incoming.next() {
                incoming.bytes(&head)?;
            }
            incoming.finish()
        };
        read(&bytes).unwrap();
        for length in 0..bytes.len() {
            assert!(matches!(read(&bytes[..length]), Err(Error::Payload { .. })), "cut to {length}");
        }
        assert!(read(&[&bytes[..], b"x"].concat()).is_err());
        assert!(read(&u64::MAX.to_le_bytes()).is_err());
    }
}
