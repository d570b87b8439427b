//! Writes that are large and are sent: in pieces, as calls of `Bulk`.
//!
//! A piece is with the transport as it was made; nothing on the way copies it. The transport sends as much as the server has room
//! for, and the rest when it has taken that.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::codec::Streaming;
use tonic::{Request, Response, Status};

use super::line::Line;
use super::pieces::{PREFIX_BYTES, put_prefix};
use super::writing::{SHORT_BYTES, sized, write_of};
use super::{Again, Link, Remote};
use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::frames::{Framed, Framing, bytes_for_frames};
use crate::wire::{self, BoundedDecoder, MESSAGE_BYTES_MAX, Parts, new_call, proto};

const PATH: &str = "/forebay.v1.Bulk/Write";
/// The number of `BulkPiece.frame`.
const FRAME: u32 = 3;

/// A write that goes in pieces.
pub(super) struct Bulk {
    link: Link,
    name: u128,
    pieces: Parts,
}

impl Bulk {
    /// In bytes.
    pub(super) fn length(&self) -> usize {
        self.pieces.length()
    }

    /// Sends it.
    pub(super) async fn send(self) -> Result<proto::WriteReply> {
        let Bulk { link, name, pieces } = self;
        link.call(name, pieces, link.options.call_time_max, Again::Always, &Line::bulk_write).await
    }
}

impl Remote {
    /// Changes as a call of `Bulk`; none where they are small, or their values are not sent.
    pub(super) fn bulk(&self, changes: &Changes<'_>) -> Result<Option<Bulk>> {
        self.check_open()?;
        let (link, is_local) = (&self.link, self.neighbour.is_some() || self.slabs.is_some());
        if is_local || link.bulk_bytes_max == 0 || bytes_for_frames(changes) < SHORT_BYTES {
            return Ok(None);
        }
        let (mut message, framed) = Framing::message(changes, &link.buffers, &link.packing);
        if framed.bytes > link.bulk_bytes_max {
            let (bytes, most) = (framed.bytes, link.bulk_bytes_max);
            let message = format!(
                "the changes bring {bytes} bytes and the server takes {most} at once; make fewer of them at once"
            );
            return Err(Error::input("TooLarge", message));
        }
        let name = new_call();
        wire::name_inserts(&mut message, name);
        let message = sized(message, link.message_bytes_max)?;
        Ok(Some(Bulk { link: link.clone(), name, pieces: parts_of(message, framed) }))
    }
}

/// What is sent: each part is a message or a part of one.
fn parts_of(changes: proto::Changes, framed: Framed) -> Parts {
    let first =
        proto::BulkPiece { write: Some(write_of(changes)), bytes: framed.bytes, ..Default::default() };
    let mut head = BytesMut::with_capacity(PREFIX_BYTES + first.encoded_len());
    put_prefix(&mut head, first.encoded_len());
    first.encode_raw(&mut head);
    let frames = framed.frames.into_iter().flat_map(|frame| [before(&frame), frame]);
    std::iter::once(head.freeze()).chain(frames).collect()
}

/// What stands before a frame to make a message of it.
fn before(frame: &Bytes) -> Bytes {
    let mut field = BytesMut::with_capacity(16);
    encode_key(FRAME, WireType::LengthDelimited, &mut field);
    encode_varint(frame.len() as u64, &mut field);
    let mut whole = BytesMut::with_capacity(PREFIX_BYTES + field.len());
    put_prefix(&mut whole, field.len() + frame.len());
    whole.put(field);
    whole.freeze()
}

impl Line {
    /// Sends a write in pieces.
    async fn bulk_write(mut self, request: Request<Parts>) -> Result<Response<proto::WriteReply>, Status> {
        let response = Line::posted(&mut self.bulk, PATH, request).await?;
        let (status, body) = (response.status(), response.into_body());
        let decoder = BoundedDecoder::<proto::WriteReply>::default();
        let mut answers = Streaming::new_response(decoder, body, status, None, Some(MESSAGE_BYTES_MAX));
        let answer = answers.message().await?.ok_or_else(|| Status::internal("a write without an answer"))?;
        answers.trailers().await?; // whether it went well stands behind it
        Ok(Response::new(answer))
    }
}
