//! Changes that follow each other in one call (`Flow.Change`): each is its call's message with a name before it.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::{Code, Status};

use super::inserted_in;
use super::proto::{Changes, FailedCall};

/// The longest message of such a call, in bytes: a call's own of 64 KiB, with its name before it.
pub const FLOW_BYTES_MAX: usize = (64 << 10) + 64;
/// The most changes that one of its messages may be of, and rows that these may insert: the answer names them.
pub const FLOW_ROWS_MAX: u64 = 4096;

/// What [`FLOW_ROWS_MAX`] is held against.
pub fn flow_rows_of(changes: &Changes) -> u64 {
    inserted_in(changes).max(changes.changes.len() as u64)
}

/// The number of `ChangeRequest.name`.
const NAME: u32 = 1;

/// An encoded `ChangeRequest` of that name, made of its call's encoded message, which is the field of that number.
pub(crate) fn change_message(name: u128, field: u32, message: &[u8]) -> Bytes {
    let name = name.to_le_bytes();
    let mut bytes = BytesMut::with_capacity(32 + message.len());
    for (field, content) in [(NAME, &name[..]), (field, message)] {
        encode_key(field, WireType::LengthDelimited, &mut bytes);
        encode_varint(content.len() as u64, &mut bytes);
        bytes.put(content);
    }
    bytes.freeze()
}

/// A failure as an answer tells it.
pub fn from_status(status: &Status) -> FailedCall {
    let (message, details) = (status.message().to_owned(), Bytes::copy_from_slice(status.details()));
    FailedCall { code: status.code() as i32, message, details }
}

/// The status that a call of its own would have had.
pub fn to_status(failed: FailedCall) -> Status {
    let FailedCall { code, message, details } = failed;
    Status::with_details(Code::from_i32(code), message, details)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::proto::change_request::Change;
    use super::super::proto::{ChangeRequest, SettleRequest, WriteRequest, settle_request};
    use super::super::{from_error, to_error};
    use super::*;
    use crate::Error;

    #[test]
    fn a_message_is_its_calls_with_a_name() {
        let write = WriteRequest { changes: Some(crate::wire::from_changes(&crate::Changes::new())) };
        let how = Some(settle_request::How::Release(true));
        let settle = SettleRequest { incarnation: 1, claim: 300, member: 2, how };
        let name = 7_u128 << 64 | 9;
        let cases = [
            (2, write.encode_to_vec(), Change::Write(write)),
            (3, settle.encode_to_vec(), Change::Settle(settle)),
        ];
        for (field, message, change) in cases {
            let expected =
                ChangeRequest { name: Bytes::copy_from_slice(&name.to_le_bytes()), change: Some(change) };
            assert_eq!(ChangeRequest::decode(change_message(name, field, &message)), Ok(expected));
        }
        assert!(change_message(name, 3, &[0; 64 << 10]).len() <= FLOW_BYTES_MAX, "the longest that goes so");
    }

    #[test]
    fn a_failure_is_what_its_calls_status_would_be() {
        let error = Error::input("TooLarge", "4097 rows are more than 4096");
        let back = to_error(to_status(from_status(&from_error(&error))));
        assert_eq!(
            (back.kind(), back.cause(), back.to_string()),
            (error.kind(), "TooLarge", error.to_string())
        );
        assert_eq!(to_status(FailedCall { code: 99, ..Default::default() }).code(), Code::Unknown);
    }
}
