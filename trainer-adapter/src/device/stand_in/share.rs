//! Shared memory of the stand-in: memory files, copied from as late as any other.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::StandInDevice;
use super::copies::place;
use super::memory::StandInBuffer;
use super::place::{Place, Values};
use super::schedule::{CopyWay, StandInEvent};
use crate::device::cpu::CpuBuffer;
use crate::device::cpu::shared::ImportedMemory;
use crate::device::{Device, DeviceRange, Share, share};
use crate::error::Error;

/// Memory of another stand-in, in this process or another.
#[derive(Debug)]
pub struct StandInImported {
    id: u64,
    memory: Arc<ImportedMemory>,
}

fn refused(error: &io::Error) -> Error {
    Error::Share { reason: error.to_string() }
}

/// The part of a name before its colon.
fn kind(identity: &str) -> &str {
    identity.split(':').next().unwrap_or_default()
}

impl Share for StandInDevice {
    type Imported = StandInImported;

    fn identity(&self) -> String {
        self.shared.identity.clone()
    }

    fn reaches(&self, identity: &str) -> bool {
        kind(identity) == kind(&self.shared.identity)
    }

    fn allocate_shared(&self, length: usize) -> Result<StandInBuffer, Error> {
        let values = CpuBuffer::shared(length).map_err(|error| refused(&error))?;
        Ok(StandInBuffer::new(self.next_id(), values))
    }

    fn export(&self, buffer: &StandInBuffer) -> Result<OwnedFd, Error> {
        match buffer.read().shown() {
            Some(memory) => memory.export().map_err(|error| refused(&error)),
            None => Err(Error::not_shared()),
        }
    }

    fn import(&self, memory: OwnedFd, length: usize) -> Result<StandInImported, Error> {
        let memory = ImportedMemory::open(memory, length).map_err(|error| refused(&error))?;
        Ok(StandInImported { id: self.next_id(), memory: Arc::new(memory) })
    }

    fn copy_async(
        &self,
        stream: &usize,
        source: &StandInBuffer,
        target: &mut StandInBuffer,
        range: DeviceRange,
    ) -> StandInEvent {
        range.check(source.read().len(), target.read().len());
        let from = place(source, range.source_offset, range.length);
        let into = place(target, range.target_offset, range.length);
        self.queue(*stream, CopyWay::OnDevice, from, into)
    }

    fn copy_imported_async(
        &self,
        stream: &usize,
        source: &StandInImported,
        target: &mut StandInBuffer,
        range: DeviceRange,
    ) -> StandInEvent {
        range.check(source.memory.length(), target.read().len());
        let first = range.source_offset;
        let values = Values::Imported(Arc::clone(&source.memory));
        let from = Place { id: source.id, values, range: first..first + range.length };
        let into = place(target, range.target_offset, range.length);
        self.queue(*stream, CopyWay::OnDevice, from, into)
    }

    fn fingerprint(&self, buffer: &StandInBuffer, values: Range<usize>, first: u64) -> Result<u64, Error> {
        self.check()?;
        Ok(share::fingerprint(&self.seen(buffer)[values], first))
    }
}
