//! Arrays of numpy over bytes that lie somewhere else.
//!
//! An array is made by numpy's C interface, which the crate `numpy` finds in the module that Python has imported: its constructor looks at
//! words of Python for every argument, and takes three times as long. A claim of 16 rows has 16 arrays a column.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use arrow_buffer::Buffer;
use forebay::store::Element;
use numpy::npyffi::{self, NpyTypes, PY_ARRAY_API, npy_intp};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::failure::{Failure, Result, input};
use crate::packages;
use crate::view::View;

/// The types of arrays, with the name that numpy has for each. `None` is bool.
const TYPES: [(Option<Element>, &str); 12] = [
    (None, "?"),
    (Some(Element::Int8), "<i1"),
    (Some(Element::Int16), "<i2"),
    (Some(Element::Int32), "<i4"),
    (Some(Element::Int64), "<i8"),
    (Some(Element::UInt8), "<u1"),
    (Some(Element::UInt16), "<u2"),
    (Some(Element::UInt32), "<u4"),
    (Some(Element::UInt64), "<u8"),
    (Some(Element::Float16), "<f2"),
    (Some(Element::Float32), "<f4"),
    (Some(Element::Float64), "<f8"),
];

/// Sides of an array at most, as numpy 2 has it; numpy 1 refuses more than 32 itself.
const SIDES_MAX: usize = 64;

/// The name that numpy has for a type of numbers; none for bfloat16.
pub(crate) fn name_of(element: Element) -> Option<&'static str> {
    TYPES.iter().find(|(known, _)| *known == Some(element)).map(|(_, name)| *name)
}

/// The type of what says how an array's elements are laid out, from numpy's C interface.
///
/// # Errors
/// `ImportError` where there is no such interface, or one that is not known here: the crate panics for want of it.
#[allow(unsafe_code, reason = "the table of numpy's C interface has it as a pointer")]
fn type_of_descriptors<'py>(numpy: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyType>> {
    let py = numpy.py();
    // SAFETY: The thread is attached to Python, and the pointer is that of a type which lives as long as numpy's module, which is never unloaded.
    let find = || unsafe {
        let found = npyffi::get_type_object(py, NpyTypes::PyArrayDescr_Type);
        PyType::from_borrowed_type_ptr(py, found)
    };
    catch_unwind(AssertUnwindSafe(find)).map_err(|_| {
        let version =
            numpy.getattr("__version__").map_or_else(|_| "of no version".to_owned(), |at| at.to_string());
        PyImportError::new_err(format!(
            "numpy {version} has no C interface that is known here; numpy 1.26 and 2 have"
        ))
    })
}

/// What is needed of numpy, looked up once.
pub(crate) struct Numpy {
    masked_array: Py<PyAny>,
    /// In the order of [`TYPES`].
    element_types: Vec<ElementType>,
}

/// The type of an array's elements.
pub(crate) struct ElementType {
    dtype: Py<PyAny>,
    width_bytes: usize,
}

impl Numpy {
    pub(crate) fn get(py: Python<'_>) -> Result<&'static Self> {
        static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
        let import = || -> PyResult<Numpy> {
            let numpy = packages::numpy(py)?;
            let descriptor = type_of_descriptors(&numpy)?;
            let element_types = TYPES.iter().map(|(element, name)| {
                let width_bytes = element.map_or(1, Element::width_bytes);
                let dtype = numpy.getattr("dtype")?.call1((*name,))?;
                if dtype.is_instance(&descriptor)?
                    && dtype.getattr("itemsize")?.extract::<usize>()? == width_bytes
                {
                    Ok(ElementType { dtype: dtype.unbind(), width_bytes })
                } else {
                    Err(PyImportError::new_err(format!(
                        "numpy.dtype({name:?}) gives {dtype}, which is no type of numpy's with {width_bytes} bytes; something \
                         has taken the place of numpy.dtype"
                    )))
                }
            });
            Ok(Numpy {
                masked_array: numpy.getattr("ma")?.getattr("MaskedArray")?.unbind(),
                element_types: element_types.collect::<PyResult<_>>()?,
            })
        };
        Ok(NUMPY.get_or_try_init(py, import)?)
    }

    /// The type of the elements, `None` for bools. Arrow has no bfloat16, so there is none to show.
    pub(crate) fn element_type(&self, element: Option<Element>) -> Result<&ElementType> {
        let at = TYPES.iter().position(|(known, _)| *known == element);
        at.map(|at| &self.element_types[at])
            .ok_or_else(|| input(format!("numpy has no type for {element:?}")))
    }

    /// An array over bytes, in a shape, that nobody can write to.
    #[allow(unsafe_code, reason = "numpy's way to make an array over somebody else's bytes is a C interface")]
    pub(crate) fn array<'py>(
        &self,
        py: Python<'py>,
        sides: &[usize],
        of: &ElementType,
        view: View,
    ) -> Result<Bound<'py, PyAny>> {
        let mut shape = [0 as npy_intp; SIDES_MAX];
        let elements = sides.iter().try_fold(1_usize, |elements, side| elements.checked_mul(*side));
        let fits = elements.and_then(|elements| elements.checked_mul(of.width_bytes)) == Some(view.len());
        if sides.len() > SIDES_MAX {
            return Err(input(format!(
                "numpy has no array of {} sides; take the column from batch.arrow()",
                sides.len()
            )));
        }
        if !fits {
            let (length, width) = (view.len(), of.width_bytes);
            let message = format!(
                "a value has {length} bytes, where {sides:?} elements of {width} bytes should be; verify the store"
            );
            return Err(Failure::Here("CorruptError", message));
        }
        // No side is greater than the number of bytes, unless another is 0; and a slice has no more bytes than this type holds.
        for (into, side) in shape.iter_mut().zip(sides) {
            *into = npy_intp::try_from(*side).map_err(|_| input(format!("an array has a side of {side}")))?;
        }
        let view = Bound::new(py, view)?;
        let bytes: &[u8] = view.get();
        // SAFETY: The thread is attached to Python (`py`), and `Numpy` was made by importing numpy, whose table of functions this is and
        // of whose types `dtype` is one, as wide as it says (`Numpy::get` asks). `shape`
        // has as many numbers as are said, and numpy copies them. It takes a reference to `dtype`, one that is made for it, whether it succeeds
        // or not. The shape covers the bytes, no more and no less (checked above); they stay where they are and as they are for as
        // long as `view` lives (see `View::__getbuffer__`), to which numpy is given the array's own reference below. Without
        // `NPY_ARRAY_WRITEABLE` nobody is handed a way to write, and numpy refuses to set that flag over a base whose buffer is
        // read-only. Whether they are aligned numpy finds out itself, of all arrays. Of an array that failed there is no pointer, and its error is Python's.
        unsafe {
            let array = PY_ARRAY_API.PyArray_NewFromDescr(
                py,
                npyffi::get_type_object(py, NpyTypes::PyArray_Type),
                of.dtype.clone_ref(py).into_ptr().cast(),
                sides.len() as i32,
                shape.as_mut_ptr(),
                ptr::null_mut(),
                bytes.as_ptr().cast_mut().cast(),
                0,
                ptr::null_mut(),
            );
            let array = Bound::from_owned_ptr_or_err(py, array)?;
            if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), view.into_ptr()) == 0 {
                Ok(array)
            } else {
                Err(PyErr::fetch(py).into())
            }
        }
    }

    /// An array of numbers, masked where a byte of `nulls` is 1.
    pub(crate) fn column<'py>(
        &self,
        py: Python<'py>,
        element: Option<Element>,
        bytes: Buffer,
        nulls: Option<Buffer>,
    ) -> Result<Bound<'py, PyAny>> {
        let of = self.element_type(element)?;
        let sides = [bytes.len() / of.width_bytes];
        let array = self.array(py, &sides, of, View::of_buffer(bytes))?;
        let Some(nulls) = nulls else { return Ok(array) };
        let mask = self.array(py, &sides, self.element_type(None)?, View::of_buffer(nulls))?;
        let how = PyDict::new(py);
        how.set_item("mask", mask)?;
        Ok(self.masked_array.bind(py).call((array,), Some(&how))?)
    }
}
