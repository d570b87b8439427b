//! Host memory that somebody else has, given to copies: a mapping of shared memory, where states lie.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::copies::lies_in;

const VALUE: usize = size_of::<f32>();

/// A run of bytes that somebody else has mapped, for [`super::Copies::pin`]. What lies there is read and written by copies alone; no
/// reference is made to it.
pub struct ForeignMemory {
    place: NonNull<u8>,
    bytes: usize,
    is_writable: bool,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an address range without thread affinity; who made it has promised what accesses need.
#[allow(unsafe_code, reason = "plain bytes; see `ForeignMemory::new`")]
unsafe impl Send for ForeignMemory {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "plain bytes; see `ForeignMemory::new`")]
unsafe impl Sync for ForeignMemory {}

impl ForeignMemory {
    /// The memory at this address.
    ///
    /// # Safety
    /// So many bytes are mapped there, to be read, and to be written where `is_writable` says so, for as long as `keep` is held. No
    /// reference of Rust is ever made to bytes that a copy writes before that is done. `place` is a multiple of four.
    #[allow(unsafe_code, reason = "the caller knows the memory")]
    pub unsafe fn new(
        place: NonNull<u8>,
        bytes: usize,
        is_writable: bool,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { place, bytes, is_writable, _keep: keep }
    }

    /// Where it begins.
    pub fn place(&self) -> *mut u8 {
        self.place.as_ptr()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many whole values it has.
    pub fn length(&self) -> usize {
        self.bytes / VALUE
    }

    /// Whether copies may write it.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Copies values from `offset` on.
    ///
    /// # Panics
    /// If they do not lie in the memory.
    #[allow(unsafe_code, reason = "a copy out of memory that others may be changing")]
    pub(super) fn read(&self, offset: usize, values: &mut [f32]) {
        assert!(lies_in(offset, values.len(), self.length()), "values lie in foreign memory");
        let first = self.place().wrapping_add(VALUE * offset);
        // SAFETY: inside of memory that is mapped as long as `keep` is; every pattern of bits is an f32.
        unsafe {
            std::ptr::copy_nonoverlapping(first, values.as_mut_ptr().cast::<u8>(), size_of_val(values));
        }
    }

    /// Copies values to `offset`.
    ///
    /// # Panics
    /// If they do not lie in the memory, or it is not to be written.
    #[allow(unsafe_code, reason = "a copy into memory that others may be reading")]
    pub(super) fn write(&self, offset: usize, values: &[f32]) {
        assert!(
            self.is_writable && lies_in(offset, values.len(), self.length()),
            "values lie in foreign memory"
        );
        let first = self.place().wrapping_add(VALUE * offset);
        // SAFETY: as in `read`, of memory that is mapped to be written.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), first, size_of_val(values)) };
    }
}

impl fmt::Debug for ForeignMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignMemory({} bytes)", self.bytes)
    }
}
