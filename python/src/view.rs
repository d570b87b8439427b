//! Bytes that Python sees where they lie.

use std::ffi::c_int;
use std::ops::Deref;

use arrow_buffer::Buffer;
use bytes::Bytes;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Read-only bytes of one value: what the arrays and memory views of a batch stand on.
///
/// It has the buffer protocol. As long as it lives its extent is neither used again nor given up, and the store's directory
/// stays locked, so the bytes never change: not when the claim ends, the store is closed, or its rows are deleted.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct View(Lying);

#[derive(Debug)]
enum Lying {
    /// In an extent, or as it came from a server.
    Value(Bytes),
    /// Gathered.
    Buffer(Buffer),
}

impl View {
    /// A value where it lies.
    pub(crate) fn of_value(bytes: Bytes) -> Self {
        View(Lying::Value(bytes))
    }

    /// What was gathered for a record batch.
    pub(crate) fn of_buffer(buffer: Buffer) -> Self {
        View(Lying::Buffer(buffer))
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Lying::Value(bytes) => bytes,
            Lying::Buffer(buffer) => buffer,
        }
    }
}

#[pymethods]
impl View {
    fn __len__(&self) -> usize {
        self.len()
    }

    #[allow(unsafe_code, reason = "the buffer protocol is a C interface")]
    /// # Safety
    /// Called by Python alone, with a `Py_buffer` to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes: &[u8] = slf.get();
        let length = isize::try_from(bytes.len()).map_err(|_| PyBufferError::new_err("too long"))?;
        const READ_ONLY: c_int = 1;
        // SAFETY: Python gives a `Py_buffer` to fill. The bytes stay where they are and as they are for as long as `slf`
        // lives: `Bytes` and `Buffer` hold their owner (for an extent's, what keeps it mapped and as it is), and neither is
        // moved in or out of an object that is never changed (`frozen`). The filled buffer holds a reference to `slf`, and is marked as
        // read-only, so Python hands out no way to write.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                buffer,
                slf.as_ptr(),
                bytes.as_ptr().cast_mut().cast(),
                length,
                READ_ONLY,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        format!("<{} bytes of a store>", self.len())
    }
}
