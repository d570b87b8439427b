//! How much memory a message takes, found out before it is made of its bytes.
//!
//! A message of two bytes may stand for a structure of hundreds, so how long the bytes are says little: those of the largest message
//! could stand for more than ten gigabytes. They are walked by the protocol's own schema, which `build.rs` writes down, and what
//! would take more than [`WEIGHT_MAX`] is refused. The walk makes nothing, and every byte of it is looked at once.
//!
//! A short message takes no room of those that a server has for messages, so there may be very many of them, and each may stand for
//! so much more than it is and no more ([`WEIGHT_OF_BYTE_MAX`]): small changes weigh 13 times their length, and the smallest that mean
//! something less than half of that.

use bytes::Buf;
use prost::Message;

use super::{MESSAGE_BYTES_MAX, malformed, proto};
use crate::error::{Error, Result};

/// The most memory that a message may take beside the bytes of its texts, in bytes.
pub const WEIGHT_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// The most memory that a message may take for each of its bytes, beside what every message may.
const WEIGHT_OF_BYTE_MAX: usize = 64;
/// What every message may take, in bytes.
const WEIGHT_MIN: usize = 64 << 10;

/// The most that a message of so many bytes may take.
fn most_of(bytes: usize) -> usize {
    WEIGHT_MAX.min(WEIGHT_MIN.saturating_add(bytes.saturating_mul(WEIGHT_OF_BYTE_MAX)))
}

/// What a text or bytes take beside their content, wherever they lie.
const TEXT_BYTES: usize = 32;
/// What a number takes.
const NUMBER_BYTES: usize = 8;
/// What an entry of a map takes, beside its key and its value.
const ENTRY_BYTES: usize = 128;
/// How deep messages may lie in one another: as deep as they are read.
const DEPTH_MAX: usize = 100;

/// A message of the protocol, as it is weighed.
#[derive(Debug)]
pub struct Shape {
    name: &'static str,
    /// What it takes where it lies in a list.
    bytes: usize,
    /// What is neither a text nor a single number, by the number of the field.
    fields: &'static [(u64, Content)],
}

/// What a field holds.
#[derive(Debug)]
enum Content {
    /// A list of these, each of which takes room of its own.
    Messages(&'static Shape),
    /// One, which lies in the message that it belongs to.
    Message(&'static Shape),
    /// Numbers, which may be a byte each where they lie side by side.
    Numbers,
}

/// A message of the protocol.
pub trait Weighed {
    /// What it is made of.
    const SHAPE: &'static Shape;
}

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

/// The message that the bytes are, unless it takes too much memory.
///
/// # Errors
/// `input`: `TooLarge` where it does, and `Protocol` for bytes that are none.
pub fn decode<M: Message + Default + Weighed>(bytes: impl Buf + Clone) -> Result<M> {
    weigh(bytes.clone(), M::SHAPE)?;
    M::decode(bytes).map_err(|error| malformed(&error.to_string()))
}

/// What the message that the bytes are takes, in bytes; refused where that is too much, and where they are none.
pub(super) fn weigh(bytes: impl Buf, shape: &Shape) -> Result<usize> {
    let left = bytes.remaining();
    let mut walk = Walk { bytes, read: 0, left, weight: 0, most: most_of(left), of: shape.name };
    walk.add(shape.bytes)?;
    walk.message(shape, 0, 0)?;
    Ok(walk.weight)
}

/// On its way through the bytes of a message.
struct Walk<B> {
    bytes: B,
    /// How much of the present chunk was read.
    read: usize,
    /// How much of all was not.
    left: usize,
    weight: usize,
    most: usize,
    of: &'static str,
}

impl<B: Buf> Walk<B> {
    /// Goes through a message behind which so many bytes are left.
    fn message(&mut self, shape: &Shape, behind: usize, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(malformed(&format!("messages in one another, deeper than {DEPTH_MAX}")));
        }
        while self.left > behind {
            let key = self.number()?;
            match key & 7 {
                0 => _ = self.number()?,
                1 => self.skip(8)?,
                5 => self.skip(4)?,
                2 => {
                    let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
                    let after = self.left.checked_sub(length).filter(|after| *after >= behind);
                    self.content(shape, key >> 3, length, after.ok_or_else(cut_off)?, depth)?;
                    continue;
                }
                _ => return Err(malformed("a group, which no message of the protocol has")),
            }
            self.add(NUMBER_BYTES)?;
        }
        if self.left < behind { Err(cut_off()) } else { Ok(()) }
    }

    /// Goes through a field of that length.
    fn content(
        &mut self,
        shape: &Shape,
        number: u64,
        length: usize,
        behind: usize,
        depth: usize,
    ) -> Result<()> {
        let content = shape.fields.iter().find(|(field, _)| *field == number).map(|(_, content)| content);
        match content {
            Some(Content::Messages(one)) => {
                self.add(one.bytes)?;
                self.message(one, behind, depth + 1)
            }
            Some(Content::Message(one)) => self.message(one, behind, depth + 1),
            Some(Content::Numbers) => {
                self.add(length.saturating_mul(NUMBER_BYTES))?;
                self.skip(length)
            }
            None => {
                self.add(TEXT_BYTES)?;
                self.skip(length)
            }
        }
    }

    fn add(&mut self, bytes: usize) -> Result<()> {
        self.weight = self.weight.saturating_add(bytes);
        if self.weight <= self.most {
            return Ok(());
        }
        let message = format!(
            "a message ({}) of so many parts that it takes more than {} bytes of memory, which are the most for one of its length; make several smaller calls",
            self.of, self.most
        );
        Err(Error::input("TooLarge", message))
    }

    /// The next number, as it is written in a message: seven bits a byte, low ones first.
    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(malformed("a number that has no end"))
    }

    fn byte(&mut self) -> Result<u8> {
        if self.read == self.bytes.chunk().len() {
            self.bytes.advance(self.read);
            self.read = 0;
        }
        let byte = *self.bytes.chunk().get(self.read).ok_or_else(cut_off)?;
        (self.read, self.left) = (self.read + 1, self.left - 1);
        Ok(byte)
    }

    fn skip(&mut self, length: usize) -> Result<()> {
        self.left = self.left.checked_sub(length).ok_or_else(cut_off)?;
        self.read += length;
        if self.read > self.bytes.chunk().len() {
            self.bytes.advance(self.read);
            self.read = 0;
        }
        Ok(())
    }
}

fn cut_off() -> Error {
    malformed("it ends before all that it begins")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use forebay_store::{NewRow, Randomness, Row, SeededRandomness};

    use super::super::{Rope, from_changes};
    use super::proto::*;
    use super::*;

    /// A write of rows with a few cells each, none like the one before, and of one large value.
    fn write(rows: usize) -> WriteRequest {
        let mut changes = crate::Changes::new();
        for at in 0..rows {
            let tokens: Vec<i32> = (0..at as i32 % 5).collect();
            let cells = [("prompt", "2 + 2".into()), ("response", tokens.into()), ("reward", 0.5.into())];
            let row = NewRow::new(at as u64, &format!("q{at}_0_0")).unwrap().token(at as u128 + 1);
            changes.insert("solver", row, cells.into_iter().take(1 + at % 3));
        }
        changes.write("solver", Row::from_bytes([7; 24]), [("response", vec![1_i32; 100_000].into())]);
        WriteRequest { changes: Some(from_changes(&changes)) }
    }

    /// Two bytes each.
    fn empty_changes(number: usize) -> Vec<u8> {
        let mut bytes = vec![0x0A];
        prost::encoding::encode_varint(2 * number as u64, &mut bytes);
        bytes.extend([0x0A, 0].repeat(number));
        bytes
    }

    fn cause(result: Result<impl Sized>) -> String {
        result.err().map(|error| error.cause().to_owned()).unwrap_or_default()
    }

    #[test]
    fn a_message_whose_parts_take_more_than_may_be_is_refused_by_name() {
        // So many that the one bound tells, or the other.
        for (number, most) in [(32_000, "4161792"), (4_000_000, "268435456")] {
            let error = decode::<WriteRequest>(&*empty_changes(number)).unwrap_err();
            assert_eq!(error.cause(), "TooLarge");
            let words = error.to_string();
            assert!(
                ["WriteRequest", most, "several smaller calls"].iter().all(|word| words.contains(word)),
                "{words}"
            );
        }
        let few = decode::<WriteRequest>(&*empty_changes(100)).unwrap();
        assert_eq!(few.changes.unwrap().changes.len(), 100);
    }

    #[test]
    fn changes_that_mean_something_weigh_less_than_half_of_what_they_may_however_small_they_are() {
        let row = Row::from_bytes([7; 24]);
        let alike = |change: &dyn Fn(&mut crate::Changes<'static>, usize)| {
            let mut changes = crate::Changes::new();
            (0..1_000).for_each(|at| change(&mut changes, at));
            from_changes(&changes)
        };
        let id = |at: usize| NewRow::new(0, &format!("{at}_0_0")).unwrap();
        let cases = [
            alike(&|changes, at| _ = changes.insert("t", id(at), [("c", forebay_store::Value::Null)])),
            alike(&|changes, at| _ = changes.insert("t", id(at).token(at as u128), [("c", 1.into())])),
            alike(&|changes, _| _ = changes.write("t", row, [("c", forebay_store::Value::Null)])),
            alike(&|changes, _| _ = changes.write("t", row, [("c", "".into())])),
            alike(&|changes, _| _ = changes.exclude("t", row, "x")),
            alike(&|changes, _| _ = changes.span("t", row, 1, 1)),
            alike(&|changes, _| _ = changes.close_group("t", "c", 0, "k")),
        ];
        for (at, changes) in cases.into_iter().enumerate() {
            let bytes = changes.encode_to_vec();
            let weight = weigh(&*bytes, Changes::SHAPE).unwrap();
            assert!(
                2 * weight <= WEIGHT_OF_BYTE_MAX * bytes.len(),
                "case {at}: {weight} for {} bytes",
                bytes.len()
            );
        }
    }

    #[test]
    fn what_lies_in_a_list_weighs_what_it_takes_there() {
        let none = weigh(&*empty_changes(0), WriteRequest::SHAPE).unwrap();
        let three = weigh(&*empty_changes(3), WriteRequest::SHAPE).unwrap();
        assert_eq!((none, three - none), (size_of::<WriteRequest>(), 3 * size_of::<Change>()));
        let base = size_of::<ObjectManifest>();
        let manifest = ObjectManifest {
            key: "k".to_owned(),
            version: 7,
            fingerprint: 9,
            metadata: [("a".to_owned(), "b".to_owned())].into(),
            ..Default::default()
        };
        let weight = weigh(&*manifest.encode_to_vec(), ObjectManifest::SHAPE).unwrap();
        assert_eq!(weight - base, 3 * TEXT_BYTES + 2 * NUMBER_BYTES + ENTRY_BYTES);
        let shape = TensorSpec { shape: vec![1; 1_000], ..Default::default() }.encode_to_vec();
        let weight = weigh(&*shape, TensorSpec::SHAPE).unwrap();
        assert_eq!(weight - size_of::<TensorSpec>(), 1_000 * NUMBER_BYTES);
    }

    #[test]
    fn a_hundred_thousand_rows_in_one_message_are_read() {
        let message = write(100_000);
        assert_eq!(decode::<WriteRequest>(&*message.encode_to_vec()).unwrap(), message);
    }

    #[test]
    fn bytes_that_are_cut_off_are_no_message() {
        let bytes = write(20).encode_to_vec();
        let cuts = (1..bytes.len() - 400_000).chain(bytes.len() - 20..bytes.len());
        for at in cuts {
            assert_eq!(cause(weigh(&bytes[..at], WriteRequest::SHAPE)), "Protocol", "{at} bytes");
        }
        for bytes in
            [&[0x0A, 0x02, 0x0A][..], &[0x0A, 2, 0x0A, 1, 0], &[0xFF; 20], &[0x0B, 0x0C], &[8], &[9, 1]]
        {
            assert_eq!(cause(weigh(bytes, WriteRequest::SHAPE)), "Protocol", "{bytes:02x?}");
        }
    }

    #[test]
    fn messages_in_one_another_have_an_end() {
        static ENDLESS: Shape =
            Shape { name: "Endless", bytes: 8, fields: &[(1, Content::Message(&ENDLESS))] };
        let mut bytes = Vec::new();
        for depth in 1..200 {
            let mut outer = vec![0x0A];
            prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
            outer.extend(&bytes);
            bytes = outer;
            assert_eq!(weigh(&*bytes, &ENDLESS).is_ok(), depth <= DEPTH_MAX, "{depth}");
        }
    }

    /// The same bytes in parts as they may have come.
    fn in_parts(bytes: &Bytes, dice: &SeededRandomness) -> Rope {
        let (mut rope, mut at) = (Rope::default(), 0);
        while at < bytes.len() {
            let end = bytes.len().min(at + 1 + dice.next_u64() as usize % 9_000);
            rope.push(bytes.slice(at..end));
            at = end;
        }
        rope
    }

    #[test]
    fn a_message_in_parts_weighs_as_much_as_in_one_piece() {
        let (bytes, dice) = (Bytes::from(write(3_000).encode_to_vec()), SeededRandomness::new(5));
        let whole = weigh(&*bytes, WriteRequest::SHAPE).unwrap();
        for _ in 0..10 {
            let rope = in_parts(&bytes, &dice);
            assert_eq!(weigh(rope.clone(), WriteRequest::SHAPE).unwrap(), whole);
            assert_eq!(decode::<WriteRequest>(rope).unwrap(), decode(bytes.clone()).unwrap());
        }
    }

    // What can be read is weighed, however it was changed, and weighs the same in parts. `FOREBAY_SEED` takes another seed.
    #[test]
    fn whatever_can_be_read_can_be_weighed() {
        let seed = std::env::var("FOREBAY_SEED").map_or(11, |text| text.parse().unwrap());
        let dice = SeededRandomness::new(seed);
        let below = |most: usize| dice.next_u64() as usize % most.max(1);
        let sound = write(6).changes.unwrap().changes;
        let sound: Vec<Vec<u8>> = sound.iter().take(6).map(Message::encode_to_vec).collect();
        let mut read = 0;
        for round in 0..20_000 {
            let mut bytes = sound[below(sound.len())].clone();
            for _ in 0..1 + below(3) {
                let at = below(bytes.len());
                bytes[at] = [0, 1, 2, 0x0A, 0x12, 0x7F, 0x80, 0xFF, dice.next_u64() as u8][below(9)];
            }
            if below(4) == 0 {
                bytes.truncate(below(bytes.len()));
            }
            let bytes = Bytes::from(bytes);
            let (message, weight) = (Change::decode(bytes.clone()), weigh(&*bytes, Change::SHAPE));
            read += usize::from(message.is_ok());
            let is_group = weight.as_ref().is_err_and(|error| error.to_string().contains("a group"));
            assert!(
                message.is_err() || weight.is_ok() || is_group,
                "seed {seed}, round {round}: {bytes:02x?}"
            );
            let (first, second) = bytes.split_at(below(bytes.len()));
            let parts = weigh(first.chain(second), Change::SHAPE);
            assert_eq!(parts.ok(), weight.ok(), "seed {seed}, round {round}");
        }
        assert!(read > 0, "seed {seed}: nothing was read, so nothing was tried");
    }
}
