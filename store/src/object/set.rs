//! What a set is given: what it expects, and bytes.

use super::catalog::newest_as_text;
use super::dtype::Dtype;
use super::layout::Layout;
use crate::error::{Cause, Result};

/// What the newest version of a key has to be for a set to go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Whatever it is.
    #[default]
    Any,
    /// There is none.
    Absent,
    /// This one.
    Version(u64),
}

/// One tensor's bytes, for [`Objects::set`](super::Objects::set).
#[derive(Clone, Copy, Debug)]
pub struct TensorBytes<'a> {
    /// Its memory class.
    pub class: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions.
    pub shape: &'a [u64],
    /// Its elements, little-endian, row by row.
    pub bytes: &'a [u8],
}

pub(super) fn too_long(tensor: &str, found: String, limit: u64) -> Cause {
    Cause::TensorLength { tensor: tensor.to_owned(), found, limit }
}

/// What the newest version is, in words.
pub(super) fn conflict(key: &str, expected: Expected, newest: Option<u64>) -> Cause {
    let expected = match expected {
        Expected::Any => "any version".to_owned(),
        Expected::Absent => "none".to_owned(),
        Expected::Version(version) => format!("version {version}"),
    };
    Cause::ObjectConflict { key: key.to_owned(), expected, found: newest_as_text(newest) }
}

impl Layout {
    /// Tensors laid out in the order in which they are given.
    ///
    /// # Errors
    /// As [`LayoutBuilder::build`](super::LayoutBuilder::build), and `input` when a tensor has another number of bytes than its
    /// shape says.
    pub fn of(tensors: &[TensorBytes<'_>]) -> Result<Layout> {
        let builder = Layout::builder();
        let layout =
            tensors.iter().fold(builder, |b, t| b.tensor(t.class, t.name, t.dtype, t.shape)).build()?;
        let mut meant = layout.tensors().iter().zip(tensors);
        match meant.find(|(meant, given)| meant.bytes != given.bytes.len() as u64) {
            None => Ok(layout),
            Some((tensor, given)) => {
                Err(too_long(&tensor.name, format!("{} bytes", given.bytes.len()), tensor.bytes).into())
            }
        }
    }
}
