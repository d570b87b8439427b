//! How messages are read that come from a peer: weighed first, for server and client alike.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use super::weight::{Weighed, decode};
use super::{from_error, malformed};

/// What every call of the protocol has: messages `T` are written as they are, and messages `U` read unless they take too much
/// memory ([`decode`]).
#[derive(Clone, Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        BoundedCodec(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Weighed + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> BoundedDecoder<U> {
        BoundedDecoder::default()
    }
}

/// Reads messages that do not take too much memory.
#[derive(Clone, Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U> Default for BoundedDecoder<U> {
    fn default() -> Self {
        BoundedDecoder(PhantomData)
    }
}

impl<U: Message + Default + Weighed> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let refused = |error| from_error(&error);
        if from.chunk().len() < from.remaining() {
            return decode(from.copy_to_bytes(from.remaining())).map(Some).map_err(refused);
        }
        super::weight::weigh(from.chunk(), U::SHAPE).map_err(refused)?;
        U::decode(from).map(Some).map_err(|error| refused(malformed(&error.to_string())))
    }
}
