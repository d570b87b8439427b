//! Large writes over a wire: their larger values come in frames behind the message.
//!
//! A value is copied once, from where the caller has it into the frame that it is sent in ([`Framing`]); the frames are kept for
//! the next write ([`Buffers`]).

mod buffers;
mod framing;

pub(crate) use buffers::Buffers;
pub(crate) use framing::{Framed, Framing, Packing, bytes_for_frames};
