//! Memory of a publisher's, mapped on the reader's device.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::catalog::Place;
use super::domain::Link;
use super::error::PublicationError;
use super::form::ClassForm;
use super::wire::Grant;
use crate::device::Share;

/// Memory of the publisher's that is mapped here, and how many values it has.
pub(super) type Mapped<D> = HashMap<u64, (Arc<<D as Share>::Imported>, u64)>;

/// Maps what came along, lets go of what is over, and finds what each class lies in.
pub(super) fn map_all<D: Share>(
    device: &D,
    link: &Link,
    mapped: &mut Mapped<D>,
    grant: &Grant,
    files: Vec<OwnedFd>,
) -> Result<Vec<Arc<D::Imported>>, PublicationError> {
    grant.over.iter().for_each(|memory| _ = mapped.remove(memory));
    if files.len() != grant.memories.len() {
        let reason = format!("{} memories with {} descriptors", grant.memories.len(), files.len());
        return Err(link.protocol(reason));
    }
    for ((memory, values), file) in grant.memories.iter().zip(files) {
        let length = usize::try_from(*values).unwrap_or(usize::MAX);
        mapped.insert(*memory, (Arc::new(device.import(file, length)?), *values));
    }
    let class = |(class, place): (&ClassForm, &Place)| {
        let (name, memory) = (&class.name, place.memory);
        let missing =
            || link.protocol(format!("class {name:?} lies in memory {memory}, which it did not give"));
        let (imported, values) = mapped.get(&memory).ok_or_else(missing)?;
        match place.offset.checked_add(class.values).is_some_and(|end| end <= *values) {
            true => Ok(Arc::clone(imported)),
            false => {
                let (count, offset) = (class.values, place.offset);
                let reason = format!("{count} values of class {name:?} at {offset} of a memory of {values}");
                Err(link.protocol(reason))
            }
        }
    };
    grant.form.classes.iter().zip(&grant.places).map(class).collect()
}
