//! Bytes of an object that Python sees where they lie.

use std::ffi::c_int;

use forebay::client::LeasedBytes;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Read-only bytes of a tensor in the host tier. As long as it lives its version is held, whatever becomes of the store.
///
/// Another process that this one trusts may have the same memory mapped, so that nothing in Rust refers to the bytes: they are
/// handed on by their address.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct LeasedView(LeasedBytes);

impl LeasedView {
    pub(crate) fn new(bytes: LeasedBytes) -> Self {
        LeasedView(bytes)
    }
}

#[pymethods]
impl LeasedView {
    fn __len__(&self) -> usize {
        self.0.length()
    }

    #[allow(unsafe_code, reason = "the buffer protocol is a C interface")]
    /// # Safety
    /// Called by Python alone, with a `Py_buffer` to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let leased = &slf.get().0;
        let length = isize::try_from(leased.length()).map_err(|_| PyBufferError::new_err("too long"))?;
        let start = std::ptr::with_exposed_provenance_mut::<u8>(leased.address());
        const READ_ONLY: c_int = 1;
        // SAFETY: Python gives a `Py_buffer` to fill. The memory stays mapped for as long as `slf` lives, which the filled
        // buffer holds a reference to; it is marked as read-only, so Python hands out no way to write.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(buffer, slf.as_ptr(), start.cast(), length, READ_ONLY, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        format!("<{} bytes of an object>", self.0.length())
    }
}
