//! Messages that were changed at random: their fields, or their bytes.

use forebay_store::{Randomness, SeededRandomness};

/// A message's fields, without their meaning.
#[derive(Clone, Debug)]
enum Part {
    Number(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Vec<(u64, Part)>),
}

/// The fields of a message, if it is one.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Part)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = prost::encoding::decode_varint(&mut bytes).ok()?;
        let part = match key & 7 {
            0 => Part::Number(prost::encoding::decode_varint(&mut bytes).ok()?),
            1 => Part::Fixed(bytes.split_off(..8)?.to_vec()),
            5 => Part::Fixed(bytes.split_off(..4)?.to_vec()),
            2 => {
                let length = usize::try_from(prost::encoding::decode_varint(&mut bytes).ok()?).ok()?;
                let within = bytes.split_off(..length)?;
                fields_within(within)
            }
            _ => return None,
        };
        fields.push((key, part));
    }
    Some(fields)
}

fn fields_within(bytes: &[u8]) -> Part {
    match fields(bytes) {
        Some(fields) if !fields.is_empty() => Part::Message(fields),
        _ => Part::Bytes(bytes.to_vec()),
    }
}

fn written(fields: &[(u64, Part)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, part) in fields {
        prost::encoding::encode_varint(*key, &mut bytes);
        let within = match part {
            Part::Number(number) => {
                prost::encoding::encode_varint(*number, &mut bytes);
                continue;
            }
            Part::Fixed(fixed) => {
                bytes.extend_from_slice(fixed);
                continue;
            }
            Part::Bytes(within) => within.clone(),
            Part::Message(fields) => written(fields),
        };
        prost::encoding::encode_varint(within.len() as u64, &mut bytes);
        bytes.extend(within);
    }
    bytes
}

/// What numbers and texts are replaced by.
const NUMBERS: [u64; 10] = [0, 1, 2, 13, 255, 1 << 20, 1 << 31, 1 << 53, u64::MAX - 1, u64::MAX];
const TEXTS: [&str; 12] = [
    "",
    "solver",
    "judge",
    "train",
    "response",
    "q_0_0",
    "q_0_?",
    "../../etc",
    "\0",
    "a b\u{202e}",
    "SELECT",
    "_status",
];

/// Changes one field somewhere.
fn change(fields: &mut Vec<(u64, Part)>, dice: &SeededRandomness) {
    let below = |most: usize| dice.next_u64() as usize % most.max(1);
    let at = below(fields.len());
    if fields.is_empty() {
        return; // taken out before
    }
    match below(8) {
        0 => _ = fields.remove(at),
        1 => fields.insert(at, fields[below(fields.len())].clone()),
        2 => fields[at].0 ^= 8 << below(4), // another field
        _ => match &mut fields[at].1 {
            Part::Message(within) if below(5) > 0 => change(within, dice),
            Part::Message(_) => fields[at].1 = Part::Bytes(vec![dice.next_u64() as u8; below(40)]),
            Part::Number(number) => *number = NUMBERS[below(NUMBERS.len())],
            Part::Fixed(fixed) => fixed.fill([0, 0x7F, 0xF0, 0xFF][below(4)]),
            Part::Bytes(bytes) if below(2) == 0 => *bytes = TEXTS[below(TEXTS.len())].into(),
            Part::Bytes(bytes) => *bytes = changed(bytes, b"another", dice),
        },
    }
}

/// A message that was changed: mostly still one of the protocol's.
pub(super) fn meant(sound: &[u8], other: &[u8], dice: &SeededRandomness) -> Vec<u8> {
    match fields(sound) {
        Some(mut fields) if !fields.is_empty() && !dice.next_u64().is_multiple_of(6) => {
            for _ in 0..1 + dice.next_u64() % 2 {
                if !fields.is_empty() {
                    change(&mut fields, dice);
                }
            }
            written(&fields)
        }
        _ => changed(sound, other, dice),
    }
}

/// Bytes that were changed in one to four places.
pub(super) fn changed(sound: &[u8], other: &[u8], dice: &SeededRandomness) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    let below = |most: usize| dice.next_u64() as usize % most.max(1);
    for _ in 0..1 + below(4) {
        let at = below(bytes.len());
        let end = bytes.len().min(at + 1 + below(8));
        match below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << below(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][below(5)],
            2 => _ = bytes.drain(at..end),
            3 => bytes = [&bytes[..at], &other[below(other.len())..]].concat(),
            4 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            5 => _ = bytes.splice(at..at, [0xFF; 9].into_iter().chain([1])), // the largest number
            _ => _ = bytes.splice(at..at, (0..below(4)).map(|_| dice.next_u64() as u8)),
        }
    }
    bytes
}
