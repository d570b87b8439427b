//! Arrow on its way out, by the C data interface: what pyarrow, polars, DuckDB and others take without a copy.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{Array, StructArray};
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::failure::{Failure, Result};

/// A record batch. `pyarrow.record_batch(x)`, `polars.from_arrow(x)` and their like take it as it is.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct RecordBatch(arrow_array::RecordBatch);

impl RecordBatch {
    pub(crate) fn new(batch: arrow_array::RecordBatch) -> Self {
        RecordBatch(batch)
    }
}

/// The error for what Arrow cannot express.
pub(crate) fn not_arrow(error: ArrowError) -> Failure {
    Failure::Here("Error", format!("this cannot be given as Arrow: {error}"))
}

/// A schema, in the capsule that the interface names.
pub(crate) fn schema_capsule<'py>(
    py: Python<'py>,
    schema: &arrow_schema::Schema,
) -> Result<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(not_arrow)?;
    Ok(PyCapsule::new_with_value(py, schema, c"arrow_schema")?)
}

#[pymethods]
impl RecordBatch {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.0.schema())
    }

    /// The schema that is asked for is a wish, and is not heeded: whoever asks casts by himself.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTuple>> {
        let _ = requested_schema;
        let schema = schema_capsule(py, &self.0.schema())?;
        let array = FFI_ArrowArray::new(&StructArray::from(self.0.clone()).to_data());
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        Ok(PyTuple::new(py, [schema, array])?)
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<record batch of {} rows and {} columns>", self.0.num_rows(), self.0.num_columns())
    }
}
