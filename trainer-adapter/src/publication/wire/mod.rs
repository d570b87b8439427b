//! What readers and publishers say to each other: one packet each way. Integers are little-endian, texts have their length before
//! them in two bytes.
//!
//! Whatever is no such packet is an error in words, and costs its sender the connection.

use crate::publication::catalog::{Ask, Granted, Place, Version};
use crate::publication::form::{CLASS_BYTES_MAX, CLASSES_MAX, ClassForm, Form};

/// Both sides have to have the same.
pub(in crate::publication) const PROTOCOL: u32 = 1;
const MAGIC: [u8; 4] = *b"FBPD";
/// No packet is longer: a grant of the most classes, with memories that are over.
pub(in crate::publication) const PACKET_BYTES_MAX: usize = 16 << 10;
/// Memories that are told to be over in one packet; others are in the next.
pub(in crate::publication) const OVER_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 512;

/// From a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::publication) enum Request {
    /// The first: who it is.
    Hello { device: String },
    /// A version, to be held.
    Get { key: String, ask: Ask, layout: Option<u64> },
    /// To be told once a version is there, or the time is over.
    Wait { key: String, least: u64, milliseconds: u64 },
    /// The hold is over.
    Release { hold: u64 },
    /// The last: nothing is copied any more, whatever is held, also by answers that never arrived. It is not answered.
    Bye,
}

/// From a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::publication) enum Reply {
    /// Who it is.
    Welcome { device: String },
    /// A version.
    Granted(Grant),
    /// There is no such version.
    Missing { newest: Option<u64> },
    /// The version has another layout.
    OtherLayout { version: u64, layout: u64 },
    /// What a reader waited for is there.
    There,
    /// The hold is over; the version that lay there to the end.
    Released { version: Option<u64> },
    /// It is of another user.
    OtherUser { uid: u32 },
    /// It does not keep to the protocol, or there is no room for it.
    Refused { reason: String },
}

/// A version that the reader holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::publication) struct Grant {
    pub(in crate::publication) hold: u64,
    pub(in crate::publication) version: u64,
    pub(in crate::publication) is_in_place: bool,
    pub(in crate::publication) fingerprint: Option<u64>,
    pub(in crate::publication) form: Form,
    /// One a class.
    pub(in crate::publication) places: Vec<Place>,
    /// Memories that this reader was not given before, with their values; their descriptors go along in this order.
    pub(in crate::publication) memories: Vec<(u64, u64)>,
    /// Memories that nothing lies in any more.
    pub(in crate::publication) over: Vec<u64>,
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn number(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn optional(self, value: Option<u64>) -> Self {
        self.byte(value.is_some().into()).number(value.unwrap_or(0))
    }

    /// Cut where no text of ours ends.
    fn text(mut self, value: &str) -> Self {
        let mut end = value.len().min(TEXT_BYTES_MAX);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.0.extend((end as u16).to_le_bytes());
        self.0.extend(&value.as_bytes()[..end]);
        self
    }

    fn each<T>(self, values: &[T], one: impl Fn(Self, &T) -> Self) -> Self {
        values.iter().fold(self.number(values.len() as u64), one)
    }
}

struct Input<'a>(&'a [u8]);

type Read<T> = Result<T, String>;

impl<'a> Input<'a> {
    fn take(&mut self, bytes: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("the packet ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Read<u64> {
        let bytes = self.take(8)?.try_into().map_err(|_| "the packet ends too early")?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn flag(&mut self) -> Read<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other} is neither yes nor no")),
        }
    }

    fn optional(&mut self) -> Read<Option<u64>> {
        let (is_some, value) = (self.flag()?, self.number()?);
        Ok(is_some.then_some(value))
    }

    fn text(&mut self) -> Read<String> {
        let length = self.take(2)?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        if length > TEXT_BYTES_MAX {
            return Err(format!("a text of {length} bytes"));
        }
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| "a text is no UTF-8".to_owned())
    }

    fn each<T>(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.number()?;
        if count > most as u64 {
            return Err(format!("{count} entries where {most} may be"));
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn end<T>(self, value: T) -> Read<T> {
        if self.0.is_empty() { Ok(value) } else { Err(format!("{} bytes too many", self.0.len())) }
    }

    fn magic(&mut self) -> Read<()> {
        if self.take(4)? != MAGIC {
            return Err("it speaks another language".to_owned());
        }
        match self.number()? {
            protocol if protocol == u64::from(PROTOCOL) => Ok(()),
            other => Err(format!("it has protocol {other}, this is {PROTOCOL}")),
        }
    }
}

fn magic(kind: u8) -> Writer {
    let mut writer = Writer::default().byte(kind);
    writer.0.extend(MAGIC);
    writer.number(PROTOCOL.into())
}

impl Request {
    pub(in crate::publication) fn bytes(&self) -> Vec<u8> {
        let writer = match self {
            Self::Hello { device } => magic(0).text(device),
            Self::Get { key, ask, layout } => {
                let (kind, version) = match ask {
                    Ask::Latest => (0, 0),
                    Ask::Exact(version) => (1, *version),
                    Ask::AtLeast(version) => (2, *version),
                };
                Writer::default().byte(1).text(key).byte(kind).number(version).optional(*layout)
            }
            Self::Wait { key, least, milliseconds } => {
                Writer::default().byte(2).text(key).number(*least).number(*milliseconds)
            }
            Self::Release { hold } => Writer::default().byte(3).number(*hold),
            Self::Bye => Writer::default().byte(4),
        };
        writer.0
    }

    pub(in crate::publication) fn read(bytes: &[u8]) -> Read<Self> {
        let mut input = Input(bytes);
        let request = match input.byte()? {
            0 => {
                input.magic()?;
                Self::Hello { device: input.text()? }
            }
            1 => {
                let key = input.text()?;
                let ask = match (input.byte()?, input.number()?) {
                    (0, _) => Ask::Latest,
                    (1, version) => Ask::Exact(version),
                    (2, version) => Ask::AtLeast(version),
                    (other, _) => return Err(format!("it asks for a version in the way {other}")),
                };
                Self::Get { key, ask, layout: input.optional()? }
            }
            2 => Self::Wait { key: input.text()?, least: input.number()?, milliseconds: input.number()? },
            3 => Self::Release { hold: input.number()? },
            4 => Self::Bye,
            other => return Err(format!("no request is of kind {other}")),
        };
        input.end(request)
    }
}

impl Reply {
    pub(in crate::publication) fn bytes(&self) -> Vec<u8> {
        let of = |kind| Writer::default().byte(kind);
        let writer = match self {
            Self::Welcome { device } => magic(0).text(device),
            Self::Granted(grant) => grant.write(of(1)),
            Self::Missing { newest } => of(2).optional(*newest),
            Self::OtherLayout { version, layout } => of(3).number(*version).number(*layout),
            Self::There => of(4),
            Self::Released { version } => of(5).optional(*version),
            Self::OtherUser { uid } => of(6).number((*uid).into()),
            Self::Refused { reason } => of(7).text(reason),
        };
        writer.0
    }

    pub(in crate::publication) fn read(bytes: &[u8]) -> Read<Self> {
        let mut input = Input(bytes);
        let reply = match input.byte()? {
            0 => {
                input.magic()?;
                Self::Welcome { device: input.text()? }
            }
            1 => Self::Granted(Grant::read(&mut input)?),
            2 => Self::Missing { newest: input.optional()? },
            3 => Self::OtherLayout { version: input.number()?, layout: input.number()? },
            4 => Self::There,
            5 => Self::Released { version: input.optional()? },
            6 => Self::OtherUser { uid: input.number()? as u32 },
            7 => Self::Refused { reason: input.text()? },
            other => return Err(format!("no reply is of kind {other}")),
        };
        input.end(reply)
    }
}

impl Grant {
    /// What a reader is told of a version, with memories that he was not given before and such as are over.
    pub(in crate::publication) fn of(granted: &Granted, memories: Vec<(u64, u64)>, over: Vec<u64>) -> Self {
        let Version { number, form, fingerprint, places } = (*granted.version).clone();
        let (hold, is_in_place) = (granted.hold, granted.is_in_place);
        Self { hold, version: number, is_in_place, fingerprint, form, places, memories, over }
    }

    fn write(&self, writer: Writer) -> Writer {
        let writer = writer.number(self.hold).number(self.version).byte(self.is_in_place.into());
        let writer = writer.optional(self.fingerprint).number(self.form.layout);
        let classes: Vec<_> = self.form.classes.iter().zip(&self.places).collect();
        writer
            .each(&classes, |writer, (class, place)| {
                writer.text(&class.name).number(class.values).number(place.memory).number(place.offset)
            })
            .each(&self.memories, |writer, (memory, values)| writer.number(*memory).number(*values))
            .each(&self.over, |writer, memory| writer.number(*memory))
    }

    fn read(input: &mut Input<'_>) -> Read<Self> {
        let (hold, version, is_in_place) = (input.number()?, input.number()?, input.flag()?);
        let (fingerprint, layout) = (input.optional()?, input.number()?);
        let classes = input.each(CLASSES_MAX, |input| {
            let name = input.text()?;
            if name.len() > CLASS_BYTES_MAX {
                return Err(format!("a memory class has a name of {} bytes", name.len()));
            }
            let class = ClassForm { name, values: input.number()? };
            Ok((class, Place { memory: input.number()?, offset: input.number()? }))
        })?;
        let (classes, places) = classes.into_iter().unzip();
        let form = Form { layout, classes };
        if let Some(flaw) = form.flaw() {
            return Err(flaw);
        }
        let memories = input.each(CLASSES_MAX, |input| Ok((input.number()?, input.number()?)))?;
        let over = input.each(OVER_MAX, Input::number)?;
        Ok(Self { hold, version, is_in_place, fingerprint, form, places, memories, over })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests;
