//! Memory that somebody else has mapped, and copies to and from it where it lies: the same with every device.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use forebay_trainer_adapter::device::{CopyRange, ForeignMemory};
use forebay_trainer_adapter::{Copies, Error};
use memmap2::{MmapMut, MmapRaw};

/// A mapping, which the test reads and writes by copies as a store does.
pub(crate) struct Mapped(Arc<MmapRaw>);

impl Mapped {
    pub(crate) fn new(length: usize) -> Self {
        Self(Arc::new(MmapRaw::from(MmapMut::map_anon(4 * length).unwrap())))
    }

    #[allow(unsafe_code, reason = "the memory is the test's own")]
    pub(crate) fn foreign(&self, is_writable: bool) -> ForeignMemory {
        let keep: Arc<dyn Any + Send + Sync> = self.0.clone();
        // SAFETY: so long, readable and writable, mapped as long as `keep` is; nothing here makes references to it.
        unsafe {
            ForeignMemory::new(NonNull::new(self.0.as_mut_ptr()).unwrap(), self.0.len(), is_writable, keep)
        }
    }

    #[allow(unsafe_code, reason = "the memory is the test's own")]
    pub(crate) fn write(&self, values: &[f32]) {
        // SAFETY: as many values lie there; every copy of a device was waited for.
        unsafe { self.0.as_mut_ptr().cast::<f32>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    #[allow(unsafe_code, reason = "the memory is the test's own")]
    pub(crate) fn read(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.0.len() / 4];
        // SAFETY: as above.
        unsafe { self.0.as_ptr().cast::<f32>().copy_to_nonoverlapping(values.as_mut_ptr(), values.len()) };
        values
    }

    /// Whether it is mapped still: whether anybody has it.
    pub(crate) fn let_go(self) -> Weak<MmapRaw> {
        Arc::downgrade(&self.0)
    }
}

/// Out of the device into the middle of a mapping, and from there into another place of the device.
pub(crate) fn values_go_out_and_in<D: Copies>(device: &D) {
    let values: Vec<f32> = (0..100).map(|index| index as f32 + 0.5).collect();
    let (mut source, mut target) = (device.allocate(100), device.allocate(100));
    device.upload(&values, &mut source, 0);
    let mapped = Mapped::new(1000);
    mapped.write(&[-1.0; 1000]);
    let pinned = device.pin(mapped.foreign(true)).unwrap();
    let (stream, length) = (device.stream().unwrap(), 60);
    device.stream_after(&stream, &device.computed());
    let out = CopyRange { device_offset: 30, host_offset: 500, length };
    let left = device.copy_to_pinned_async(&stream, &source, &pinned, out);
    device.wait(&left).unwrap();
    let there = mapped.read();
    assert_eq!(there[500..560], values[30..90]);
    assert!(there[..500].iter().chain(&there[560..]).all(|value| *value == -1.0), "nothing else was written");
    let back = CopyRange { device_offset: 7, host_offset: 500, length };
    let came = device.copy_from_pinned_async(&stream, &pinned, &mut target, back);
    // Copies keep what they use.
    let left_mapped = mapped.let_go();
    drop((pinned, stream));
    device.wait(&came).unwrap();
    let mut now = vec![0.0; 100];
    device.download(&target, 0, &mut now);
    assert_eq!(now[7..67], values[30..90]);
    assert!(now[..7].iter().chain(&now[67..]).all(|value| *value == 0.0));
    assert!(left_mapped.upgrade().is_none(), "nobody has the mapping any more");
}

/// What a device will not pin is said to be so, and it goes on.
pub(crate) fn is_refused<D: Copies>(device: &D, memory: ForeignMemory) -> String {
    match device.pin(memory).map(drop) {
        Err(Error::Pin { reason }) => reason,
        other => panic!("{other:?}"),
    }
}
