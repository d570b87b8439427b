//! What a commit is told of a policy.

use forebay::store::ObjectRef;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyTuple};

use crate::arguments;
use crate::failure::{Result, input};
use crate::handle::Open;
use crate::options;

/// How a commit moves a policy: the version that is expected, and the objects that hold its state.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) policy: String,
    version: Option<u64>,
    objects: Vec<(String, Content)>,
}

/// What an object of a policy's state is.
#[derive(Debug)]
enum Content {
    /// These bytes, to be stored at the version that the commit makes.
    Bytes(Vec<u8>),
    /// A version that was set before.
    Set(u64),
}

const EXPECTED: &str =
    "the new version, the objects that hold it as a dict of bytes and versions, both as a tuple, or None";

impl Update {
    pub(crate) fn of(policy: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<Self> {
        let policy: String =
            policy.extract().map_err(|_| options::wrong("a policy to commit", "the name of one", policy))?;
        let wrong = || options::wrong(&policy, EXPECTED, value);
        let (version, objects) = match value.cast::<PyTuple>() {
            Ok(both) if both.len() == 2 => (Some(both.get_item(0)?), Some(both.get_item(1)?)),
            Ok(_) => return Err(wrong()),
            Err(_) if value.is_none() => (None, None),
            Err(_) if value.is_instance_of::<PyMapping>() => (None, Some(value.clone())),
            Err(_) => (Some(value.clone()), None),
        };
        let version = version.map(|version| version.extract().map_err(|_| wrong())).transpose()?;
        let named = objects.map(|objects| arguments::dict(&policy, EXPECTED, &objects)).transpose()?;
        let objects = named.into_iter().flatten().map(|(key, content)| Content::of(&policy, &key, &content));
        Ok(Update { version, objects: objects.collect::<Result<_>>()?, policy })
    }

    /// The objects as the commit names them: those that are stored with it at the version that it makes.
    pub(crate) fn named(&self, open: &Open) -> Result<Vec<ObjectRef>> {
        let next = open.client.policy(&self.policy)?.version + 1;
        if let Some(version) = self.version.filter(|version| *version != next) {
            let policy = &self.policy;
            return Err(input(format!(
                "policy {policy:?} is at version {}, so this step makes it {next} and not {version}",
                next - 1
            )));
        }
        let named = self.objects.iter().map(|(key, content)| match content {
            Content::Bytes(payload) => Ok(ObjectRef::of(key, next, payload)),
            Content::Set(version) => Ok(open.client.objects().reference(key, *version)?),
        });
        named.collect()
    }

    /// Writes the objects that are not there yet, under these names.
    pub(crate) fn bring(&self, open: &Open, named: &[ObjectRef]) -> Result<()> {
        self.objects.iter().zip(named).try_for_each(|((key, content), named)| {
            if let Content::Bytes(payload) = content {
                open.client.put_object(key, named.version, payload)?;
            }
            Ok(())
        })
    }
}

impl Content {
    /// One entry of a dict of objects.
    fn of(policy: &str, key: &Bound<'_, PyAny>, content: &Bound<'_, PyAny>) -> Result<(String, Self)> {
        let name = key.extract().map_err(|_| options::wrong("the key of an object", "a text", key))?;
        let content = match content.extract() {
            Ok(version) => Content::Set(version),
            Err(_) => Content::Bytes(content.extract().map_err(|_| {
                let object = format!("the object {key} of policy {policy:?}");
                options::wrong(&object, "bytes, or the version of it that was set", content)
            })?),
        };
        Ok((name, content))
    }
}
