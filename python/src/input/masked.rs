//! Masked arrays of numpy, as columns with cells that are null come out ([`output`](crate::output)): what of them is no value.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

/// What is needed of `numpy.ma`.
struct Masks {
    array: Py<PyAny>,
    /// An element that is masked, by itself.
    element: Py<PyAny>,
}

/// `numpy.ma`, if somebody has imported it: else there is no masked array.
fn masks(py: Python<'_>) -> PyResult<Option<&'static Masks>> {
    static MASKS: PyOnceLock<Masks> = PyOnceLock::new();
    static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(masks) = MASKS.get(py) {
        return Ok(Some(masks));
    }
    let modules = || Ok::<_, PyErr>(py.import("sys")?.getattr("modules")?.unbind());
    let modules = MODULES.get_or_try_init(py, modules)?.bind(py);
    if !modules.contains(intern!(py, "numpy.ma"))? {
        return Ok(None);
    }
    let module = modules.get_item(intern!(py, "numpy.ma"))?;
    let (array, element) = (module.getattr_opt("MaskedArray")?, module.getattr_opt("masked")?);
    Ok(match (array, element) {
        (Some(array), Some(element)) => {
            Some(MASKS.get_or_init(py, || Masks { array: array.unbind(), element: element.unbind() }))
        }
        _ => None, // another thread is about to import it
    })
}

/// Whether a value is what an array has in the place of an element that is masked.
pub(super) fn is_masked(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(masks(value.py())?.is_some_and(|masks| value.is(&masks.element)))
}

/// The mask of an array, a byte an element, row-major; `None` where every element is a value.
pub(super) fn mask_of(array: &Bound<'_, PyAny>) -> PyResult<Option<PyBackedBytes>> {
    let Some(masks) = masks(array.py())? else { return Ok(None) };
    if !array.is_instance(masks.array.bind(array.py()))? {
        return Ok(None);
    }
    let mask = array.py().import("numpy.ma")?.call_method1("getmaskarray", (array,))?;
    if !mask.call_method0("any")?.is_truthy()? {
        return Ok(None);
    }
    let bytes = mask.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    Ok(Some(bytes.into()))
}
