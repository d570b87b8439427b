//! Device memory that other processes of the machine can map: what a publish from device to device is made of.
//!
//! Ordinary buffers are the process's own. A *shared* buffer is used like any other by the arithmetic, and can be *exported* as a
//! file descriptor; another process *imports* it, and copies out of it. Nothing but copies reads what was imported, and nothing
//! writes it, so whoever owns a buffer is the only one who can change it.
//!
//! Whether the owner changes it during a copy is between the two processes: see [`crate::publication`]. The rules of
//! [`super::copies`] hold for the copies here too.

use std::ops::Range;
use std::os::fd::OwnedFd;

use super::Copies;
use super::copies::lies_in;
use crate::error::Error;

/// A run of values in one memory of a device and one of the same length in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRange {
    /// First value of what is read.
    pub source_offset: usize,
    /// First value of what is written.
    pub target_offset: usize,
    /// Number of values.
    pub length: usize,
}

impl DeviceRange {
    /// Refuses a copy that does not lie in both memories: a bug of the caller inside this crate.
    pub(super) fn check(self, source_length: usize, target_length: usize) {
        let Self { source_offset, target_offset, length } = self;
        assert!(lies_in(source_offset, length, source_length), "a copy lies in its source");
        assert!(lies_in(target_offset, length, target_length), "a copy lies in its target");
    }
}

/// A device whose memory can be shared with other processes.
pub trait Share: Copies {
    /// Memory of another process (or of this one, once more), to be copied from.
    type Imported: Send + Sync;

    /// Which device this is: the same name in every process of the machine, whatever it sees of it.
    fn identity(&self) -> String;
    /// Whether memory of the device of that name can be imported here.
    fn reaches(&self, identity: &str) -> bool;

    /// A buffer of `length` zeros that can be exported.
    ///
    /// # Errors
    /// [`Error::Share`] if there is no such memory. The device goes on.
    fn allocate_shared(&self, length: usize) -> Result<Self::Buffer, Error>;
    /// A descriptor by which another process can import the buffer. It keeps the memory, also when the buffer is gone.
    ///
    /// # Errors
    /// [`Error::Share`] if the buffer is not from [`Self::allocate_shared`], or the system refuses.
    fn export(&self, buffer: &Self::Buffer) -> Result<OwnedFd, Error>;
    /// The memory behind a descriptor that another process has exported, of `length` values.
    ///
    /// # Errors
    /// [`Error::Share`] if the descriptor is of something else or of a shorter memory. The device goes on.
    fn import(&self, memory: OwnedFd, length: usize) -> Result<Self::Imported, Error>;

    /// Queues a copy from one buffer to another.
    fn copy_async(
        &self,
        stream: &Self::Stream,
        source: &Self::Buffer,
        target: &mut Self::Buffer,
        range: DeviceRange,
    ) -> Self::Event;
    /// Queues a copy out of imported memory.
    fn copy_imported_async(
        &self,
        stream: &Self::Stream,
        source: &Self::Imported,
        target: &mut Self::Buffer,
        range: DeviceRange,
    ) -> Self::Event;

    /// [`fingerprint`] of values of a buffer, after all arithmetic that the device was given before.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has failed.
    fn fingerprint(&self, buffer: &Self::Buffer, values: Range<usize>, first: u64) -> Result<u64, Error>;
}

/// What values add up to, each mixed with its place; the first has the place `first`.
///
/// The sum is modulo 2^64, so parts may be added up in any order and on any device. Values are compared by their bits. It finds
/// what goes wrong by itself, and is no protection against somebody who wants two versions to look the same.
pub fn fingerprint(values: &[f32], first: u64) -> u64 {
    let places = first..;
    places.zip(values).fold(0, |sum, (place, value)| sum.wrapping_add(mixed(place, value.to_bits())))
}

/// The kernel of the same name does the same.
fn mixed(place: u64, bits: u32) -> u64 {
    const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;
    let mut word = place.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(bits);
    word = (word ^ (word >> 32)).wrapping_mul(FACTOR);
    word = (word ^ (word >> 32)).wrapping_mul(FACTOR);
    word ^ (word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_knows_each_bit_and_each_place_and_adds_up() {
        let values: Vec<f32> = (0..100).map(|index| index as f32 / 7.0 - 3.0).collect();
        let whole = fingerprint(&values, 5);
        let parts = [(40..100, 45), (0..40, 5)].map(|(range, first)| fingerprint(&values[range], first));
        assert_eq!(whole, parts[0].wrapping_add(parts[1]));
        for place in 0..values.len() {
            for bit in [0, 13, 31] {
                let mut other = values.clone();
                other[place] = f32::from_bits(values[place].to_bits() ^ (1 << bit));
                assert_ne!(whole, fingerprint(&other, 5), "bit {bit} of value {place}");
            }
        }
        let mut swapped = values.clone();
        swapped.swap(3, 90);
        assert_ne!(whole, fingerprint(&swapped, 5));
        assert_ne!(fingerprint(&[0.0; 8], 0), fingerprint(&[0.0; 9], 0));
    }
}
