//! Memory that another process fills, and this one copies from.
//!
//! Who shares the machine but may not open the store's files (another user) fills *slabs*: memory files that the store's side
//! makes, sealed so that nobody can make them shorter or longer, and hands over. A call names what it has put there; it is
//! copied out with `read` before anything looks at it, so what is checked is what is stored, whatever the other side does to its
//! slab meanwhile, and no fault of a mapping can come of it. A slab belongs to one client until both have let go of it.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::gathered::{Gathered, Unread};
use super::placed::{PlacedKind, Spot};
use crate::error::{Cause, Result};
use crate::value::Value;

/// A slab, as its maker has it.
#[derive(Debug)]
pub struct Slab {
    file: File,
    bytes: u32,
}

impl Slab {
    /// Makes one of so many bytes. It takes no memory until it is filled.
    ///
    /// # Errors
    /// `capacity` when the system gives none.
    pub fn make(bytes: u32) -> Result<Self> {
        let make = || -> rustix::io::Result<OwnedFd> {
            let file = memfd_create("forebay-slab", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&file, bytes.into())?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file)
        };
        let file = make().map_err(|error| Cause::io("make", "a slab", error.into()))?;
        Ok(Slab { file: file.into(), bytes })
    }

    /// How large it is.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// What to hand to the process that is to fill it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Copies a part of it.
    ///
    /// # Errors
    /// `input` when it is not so long.
    pub fn copy(&self, range: Range<u32>) -> Result<Copied> {
        let (from, bytes) = (range.start, range.end.saturating_sub(range.start));
        if range.end > self.bytes || range.start > range.end {
            return Err(misplaced(from, bytes, "the slab is not so long"));
        }
        let mut copied = vec![0; bytes as usize];
        let read = self.file.read_exact_at(&mut copied, from.into());
        read.map_err(|error| Cause::io("read", "a slab", error))?;
        Ok(Copied { from, bytes: copied })
    }
}

/// A part of a slab, as it was when it was copied.
#[derive(Debug)]
pub struct Copied {
    from: u32,
    bytes: Vec<u8>,
}

impl Copied {
    /// A value that was put into the slab, to be given to a batch.
    ///
    /// # Errors
    /// `input` when it does not lie in this part, its bytes are others, or no text where they should be.
    pub fn value(&self, kind: PlacedKind, spot: Spot) -> Result<Value<'_>> {
        let wrong = |reason| misplaced(spot.offset, spot.length, reason);
        let range = spot.offset.checked_sub(self.from).and_then(|start| {
            let start = start as usize;
            Some(start..start.checked_add(spot.length as usize)?)
        });
        let bytes = range.and_then(|range| self.bytes.get(range));
        let bytes = bytes.ok_or_else(|| wrong("nothing of it was named there"))?;
        if crate::checksum::crc32c(bytes) != spot.crc32c {
            return Err(wrong("other bytes lie there"));
        }
        Ok(match kind {
            PlacedKind::Utf8 => {
                Value::Utf8(std::str::from_utf8(bytes).map_err(|_| wrong("its bytes are no UTF-8"))?.into())
            }
            PlacedKind::Binary => Value::Binary(bytes.into()),
            PlacedKind::Numbers(element) => Value::Numbers(element, bytes.into()),
        })
    }
}

/// A slab, as the process has it that fills it.
#[derive(Debug)]
pub struct SlabFiller {
    file: File,
    gathered: Gathered,
}

impl SlabFiller {
    /// Fills that slab, of so many bytes.
    pub fn new(file: OwnedFd, bytes: u32) -> Self {
        SlabFiller { file: file.into(), gathered: Gathered::new(0, bytes as usize) }
    }

    /// Puts a value behind the others; none where there is no room. It is there after [`flush`](Self::flush).
    ///
    /// # Errors
    /// `capacity` when the system has no memory for it.
    pub fn place(&mut self, value: &[u8]) -> Result<Option<Spot>> {
        let spot = self.gathered.place(value, |_| []);
        if self.gathered.is_much() {
            self.flush()?;
        }
        Ok(spot)
    }

    /// Brings everything into the slab. After an error nothing that was placed may be named.
    ///
    /// # Errors
    /// `capacity` when the system has no memory for it.
    pub fn flush(&mut self) -> Result<()> {
        let file = &self.file;
        let flushed = self.gathered.flush(|offset, bytes| file.write_all_at(bytes, offset));
        flushed.map_err(|error| Cause::io("write to", "a slab", error).into())
    }

    /// The bytes of a value that was placed and flushed.
    ///
    /// # Errors
    /// `input` when it was not placed here since the slab was cleared last.
    pub fn read(&self, spot: Spot) -> Result<Vec<u8>> {
        let read = self.gathered.read(spot, |bytes, offset| self.file.read_exact_at(bytes, offset));
        read.map_err(|unread| match unread {
            Unread::Misplaced(reason) => misplaced(spot.offset, spot.length, reason),
            Unread::Io(error) => Cause::io("read", "a slab", error).into(),
        })
    }

    /// Begins anew: what lies there was copied, and is not needed any more.
    pub fn clear(&mut self) {
        self.gathered.restart(0);
    }
}

fn misplaced(offset: u32, bytes: u32, reason: &'static str) -> crate::Error {
    Cause::NotInSlab { offset, bytes, reason }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::schema::Element;

    fn pair(bytes: u32) -> (Slab, SlabFiller) {
        let slab = Slab::make(bytes).unwrap();
        let filler = SlabFiller::new(slab.fd().try_clone_to_owned().unwrap(), bytes);
        (slab, filler)
    }

    #[test]
    fn what_is_put_into_a_slab_comes_out_as_it_went() {
        let (slab, mut filler) = pair(1 << 20);
        for _ in 0..2 {
            let texts: Vec<String> = (0..40).map(|at| format!("{at} ").repeat(at * 300)).collect();
            let spots: Vec<Spot> =
                texts.iter().map(|text| filler.place(text.as_bytes()).unwrap().unwrap()).collect();
            assert!(filler.place(&[0; 1 << 20]).unwrap().is_none(), "there is no room");
            assert!(filler.read(*spots.last().unwrap()).is_err(), "not yet");
            filler.flush().unwrap();
            let end = spots.last().map(|spot| spot.offset + spot.length).unwrap();
            let copied = slab.copy(0..end).unwrap();
            for (text, spot) in texts.iter().zip(spots) {
                assert!(spot.offset.is_multiple_of(64));
                assert_eq!(copied.value(PlacedKind::Utf8, spot).unwrap(), Value::from(&**text));
                assert_eq!(filler.read(spot).unwrap(), text.as_bytes());
            }
            filler.clear();
        }
    }

    #[test]
    fn nobody_changes_its_length_and_what_is_changed_after_the_copy_does_not_matter() {
        let (slab, mut filler) = pair(4096);
        let other = File::from(slab.fd().try_clone_to_owned().unwrap());
        assert!(other.set_len(0).is_err() && other.set_len(8192).is_err());
        let spot = filler.place(&[7; 100]).unwrap().unwrap();
        filler.flush().unwrap();
        let copied = slab.copy(0..100).unwrap();
        other.write_all_at(&[8; 100], 0).unwrap();
        let numbers = PlacedKind::Numbers(Element::Int8);
        assert_eq!(copied.value(numbers, spot).unwrap(), Value::Numbers(Element::Int8, [7; 100][..].into()));
        let scribbled = slab.copy(0..100).unwrap();
        assert_eq!(scribbled.value(numbers, spot).unwrap_err().kind(), Kind::Input);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let (slab, mut filler) = pair(4096);
        let spot = filler.place(&[0xff; 100]).unwrap().unwrap();
        filler.flush().unwrap();
        for (start, end) in [(0, 4097), (u32::MAX, u32::MAX), (4097, 4097), (100, 99)] {
            let range = start..end;
            assert_eq!(slab.copy(range).unwrap_err().kind(), Kind::Input, "{start}..{end}");
        }
        let copied = slab.copy(64..200).unwrap();
        let spots =
            [spot, Spot { offset: 64, length: 137, ..spot }, Spot { offset: 64, length: u32::MAX, ..spot }];
        for wrong in spots {
            assert!(copied.value(PlacedKind::Binary, wrong).is_err(), "{wrong:?}");
        }
        let whole = slab.copy(0..100).unwrap();
        assert!(
            whole.value(PlacedKind::Utf8, spot).is_err() && whole.value(PlacedKind::Binary, spot).is_ok()
        );
    }
}
