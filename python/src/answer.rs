//! What a question in SQL answers.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use forebay::client;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow::schema_capsule;
use crate::failure::Result;
use crate::packages;

/// The rows that a question gave. `pyarrow.table(x)`, `polars.from_arrow(x)` and DuckDB take it as it is.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Answer {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Answer {
    pub(crate) fn new((schema, batches): client::Answer) -> Self {
        Answer { schema, batches }
    }
}

#[pymethods]
impl Answer {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The answer as a `pyarrow.Table`.
    pub(crate) fn arrow<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        Ok(packages::pyarrow(slf.py())?.getattr("table")?.call1((slf,))?)
    }

    /// The answer as a `pandas.DataFrame`.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        Ok(Self::arrow(slf)?.getattr("to_pandas")?.call0()?)
    }

    /// The answer as a list with one dict a row.
    fn to_pylist<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        Ok(Self::arrow(slf)?.getattr("to_pylist")?.call0()?)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }

    /// The schema that is asked for is a wish, and is not heeded: whoever asks casts by himself.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, self.schema.clone());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        Ok(PyCapsule::new_with_value(py, stream, c"arrow_array_stream")?)
    }

    fn __repr__(&self) -> String {
        format!("<answer of {} rows: {}>", self.__len__(), self.columns().join(", "))
    }
}
