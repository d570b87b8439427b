//! What a version is made of: runs of values by memory class.

use super::error::PublicationError;
use crate::device::Device;

/// Where classes begin in a slot: at multiples of so many values, 256 bytes.
const ALIGN_VALUES: u64 = 64;
/// More classes than any state has; a version's descriptors go in one packet.
pub(super) const CLASSES_MAX: usize = 32;
/// The longest name of a class.
pub(super) const CLASS_BYTES_MAX: usize = 64;

/// A memory class of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassForm {
    /// Its name, for instance `weights`.
    pub name: String,
    /// Its number of values.
    pub values: u64,
}

/// What a version is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Fingerprint of the layout that says which tensors lie in the classes: `Layout::fingerprint` of a store's.
    pub layout: u64,
    /// The memory classes, in the publisher's order.
    pub classes: Vec<ClassForm>,
}

impl Form {
    /// All values.
    pub fn values(&self) -> u64 {
        self.classes.iter().map(|class| class.values).sum()
    }

    /// Where each class begins when all lie behind each other, and where the last one ends. `None` when no memory is as long.
    pub(super) fn places(&self) -> Option<(Vec<u64>, u64)> {
        let mut end = 0_u64;
        let mut firsts = Vec::with_capacity(self.classes.len());
        for class in &self.classes {
            let first = end.checked_next_multiple_of(ALIGN_VALUES)?;
            firsts.push(first);
            end = first.checked_add(class.values)?;
        }
        Some((firsts, end))
    }

    /// What is wrong with it, if it comes from somebody else.
    pub(super) fn flaw(&self) -> Option<String> {
        let named_twice = |at: usize| self.classes[..at].iter().any(|c| c.name == self.classes[at].name);
        if self.classes.is_empty() || self.classes.len() > CLASSES_MAX {
            return Some(format!("{} memory classes; there may be 1 to {CLASSES_MAX}", self.classes.len()));
        }
        for (at, class) in self.classes.iter().enumerate() {
            if class.name.is_empty() || class.name.len() > CLASS_BYTES_MAX {
                return Some(format!("a memory class has a name of {} bytes", class.name.len()));
            }
            if named_twice(at) {
                return Some(format!("memory class {:?} is named twice", class.name));
            }
        }
        self.places().is_none().then(|| "its values have no address".to_owned())
    }
}

/// A memory class of a version that is published, and where its values lie.
#[derive(Debug)]
pub struct PublishedPart<'a, D: Device> {
    /// The memory class.
    pub class: &'a str,
    /// Device memory.
    pub buffer: &'a D::Buffer,
    /// The first value.
    pub offset: usize,
    /// How many values.
    pub values: usize,
}

/// A memory class of a version that is got, and where its values go.
#[derive(Debug)]
pub struct TargetPart<'a, D: Device> {
    /// The memory class.
    pub class: &'a str,
    /// Device memory.
    pub buffer: &'a mut D::Buffer,
    /// Where its first value goes.
    pub offset: usize,
}

/// Checks what is to be published. Gives its form.
pub(super) fn published_form<D: Device>(
    device: &D,
    layout: u64,
    parts: &[PublishedPart<'_, D>],
) -> Result<Form, PublicationError> {
    for part in parts {
        let length = device.length(part.buffer);
        if part.offset.checked_add(part.values).is_none_or(|end| end > length) {
            let (values, offset) = (part.values, part.offset);
            let reason = format!("{values} values from {offset} on do not lie in a buffer of {length}");
            return Err(PublicationError::Part { class: part.class.to_owned(), reason });
        }
    }
    let class =
        |part: &PublishedPart<'_, D>| ClassForm { name: part.class.to_owned(), values: part.values as u64 };
    let form = Form { layout, classes: parts.iter().map(class).collect() };
    match form.flaw() {
        None => Ok(form),
        Some(reason) => {
            let class = form.classes.last().map_or_else(String::new, |class| class.name.clone());
            Err(PublicationError::Part { class, reason })
        }
    }
}

/// Which target each class goes to: every class has one, and room in it.
pub(super) fn targets_of<D: Device>(
    device: &D,
    form: &Form,
    targets: &[TargetPart<'_, D>],
) -> Result<Vec<usize>, PublicationError> {
    let wrong = |class: &str, reason: String| PublicationError::Part { class: class.to_owned(), reason };
    for (at, target) in targets.iter().enumerate() {
        if !form.classes.iter().any(|class| class.name == target.class) {
            let has: Vec<&str> = form.classes.iter().map(|class| &*class.name).collect();
            return Err(wrong(target.class, format!("the version has no such class; it has {has:?}")));
        }
        if targets[..at].iter().any(|other| other.class == target.class) {
            return Err(wrong(target.class, "is named twice; name each memory class once".to_owned()));
        }
    }
    let found = form.classes.iter().map(|class| {
        let missing = || wrong(&class.name, "has no part; give one for each memory class".to_owned());
        let at = targets.iter().position(|target| target.class == class.name).ok_or_else(missing)?;
        let (length, offset) = (device.length(targets[at].buffer), targets[at].offset);
        let end = usize::try_from(class.values).ok().and_then(|values| offset.checked_add(values));
        if end.is_none_or(|end| end > length) {
            let values = class.values;
            let reason = format!("{values} values from {offset} on do not lie in a buffer of {length}");
            return Err(wrong(&class.name, reason));
        }
        Ok(at)
    });
    found.collect()
}

/// Keys are plain words, as names of objects in a store are.
pub(super) fn check_key(key: &str) -> Result<(), PublicationError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let starts = key.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    if starts && key.len() <= 64 && key.chars().all(legal) {
        return Ok(());
    }
    Err(PublicationError::Key { key: key.to_owned() })
}
