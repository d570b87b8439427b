//! What a program has of a store's objects.

use forebay_store::{Exchanged, Expected, Layout, ObjectRef, TensorBytes, Tier, Wait, Which};

use super::calls::{Beginning, ObjectAsk, ObjectShown, Relocated, Relocation, WhichObject};
use super::filling::ObjectFilling;
use super::held::{HeldObject, ReceivedObject};
use super::watch::ObjectWatch;
use crate::client::Client;
use crate::error::{Error, Result};

/// How an object is asked for, beyond its key and version.
///
/// ```
/// use forebay_client::GetObject;
/// use forebay_store::Tier;
/// let get = GetObject::default().tier(Tier::Disk); // by default: in the host tier, of any layout
/// ```
#[derive(Clone, Debug, Default)]
pub struct GetObject {
    tier: Tier,
    layout: Option<Layout>,
}

impl GetObject {
    /// Where its bytes are to be. It is copied there when they are not. Default: [`Tier::Host`].
    pub fn tier(mut self, tier: Tier) -> Self {
        self.tier = tier;
        self
    }

    /// What it is to be made of; another layout is refused. Default: any.
    pub fn layout(mut self, layout: &Layout) -> Self {
        self.layout = Some(layout.clone());
        self
    }

    fn ask<'a>(&self, keys: &'a [&'a str], which: WhichObject, wait: Wait) -> ObjectAsk<'a> {
        ObjectAsk {
            keys,
            which,
            wait,
            tier: self.tier,
            fingerprint: self.layout.as_ref().map(Layout::fingerprint),
        }
    }
}

/// The objects of a store, in this process or behind a server. Cheap to clone; any thread may call.
///
/// ```
/// use forebay_client::Client;
/// use forebay_store::*;
/// # let dir = tempfile::tempdir().unwrap();
/// # let options = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
/// let store = Store::open(dir.path().join("store"), Options::default().objects(options))?;
/// let objects = Client::embedded(store).objects();
/// let layout = Layout::builder().tensor("weights", "head", Dtype::F32, &[2, 2]).build()?;
///
/// let mut filling = objects.begin("solver", Expected::Absent, &layout)?;
/// filling.write("head", 0, &[1; 16])?;
/// assert_eq!(filling.commit()?, 1);
///
/// let held = objects.get("solver", Which::Latest)?; // stays as long as it is held
/// assert_eq!(held.tensor("head")?.rows(1..2)?.to_vec()?, [1; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Objects {
    client: Client,
    keeps_states: bool,
}

/// What keys of the states of process groups, and of their parts, begin with.
const RESERVED: [&str; 2] = ["state.", "part."];

fn number_of(which: Which) -> Result<Option<u64>> {
    match which {
        Which::Latest => Ok(None),
        Which::Exact(version) => Ok(Some(version)),
        Which::AtLeast(..) => {
            let message = "what is moved is there; name a version or the newest, or get it first";
            Err(Error::input("Argument", message))
        }
    }
}

impl Objects {
    pub(crate) fn new(client: Client) -> Self {
        Objects { client, keeps_states: false }
    }

    /// The same for whoever keeps the states of process groups: it may set the keys that are theirs (`state.` and `part.` and what
    /// follows), which everybody else is refused.
    pub fn for_states(self) -> Self {
        Objects { keeps_states: true, ..self }
    }

    fn check_key(&self, key: &str) -> Result<()> {
        match RESERVED.into_iter().find(|reserved| !self.keeps_states && key.starts_with(reserved)) {
            None => Ok(()),
            Some(reserved) => {
                let message = format!(
                    "{key:?} cannot be set: states of process groups are kept under keys that begin with {reserved:?}; choose another key"
                );
                Err(Error::input("Reserved", message))
            }
        }
    }

    fn calls(&self) -> &dyn super::ObjectCalls {
        self.client.connection.objects()
    }

    /// Begins a version: see [`forebay_store::Objects::begin`].
    ///
    /// # Errors
    /// As there; `input` (`Reserved`) for a key that is for the states of process groups.
    pub fn begin(&self, key: &str, expected: Expected, layout: &Layout) -> Result<ObjectFilling> {
        self.check_key(key)?;
        let number = self.calls().begin(key, layout, Beginning::Kept(expected))?;
        Ok(ObjectFilling::new(self.client.clone(), number, key, layout))
    }

    /// Begins a version for the first who [receives](Self::receive) it.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub fn begin_published(&self, key: &str, layout: &Layout) -> Result<ObjectFilling> {
        self.check_key(key)?;
        let number = self.calls().begin(key, layout, Beginning::Published)?;
        Ok(ObjectFilling::new(self.client.clone(), number, key, layout))
    }

    /// Sets the next version of a key, whole, and gives its number.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::set`].
    pub fn set(&self, key: &str, tensors: &[TensorBytes<'_>]) -> Result<u64> {
        fill(self.begin(key, Expected::Any, &Layout::of(tensors)?)?, tensors)
    }

    /// Sets the next version of a key for the first who [receives](Self::receive) it. Gets do not find it.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn publish(&self, key: &str, tensors: &[TensorBytes<'_>]) -> Result<u64> {
        fill(self.begin_published(key, &Layout::of(tensors)?)?, tensors)
    }

    /// Commits fillings of different keys under one number, all or none: see [`forebay_store::Objects::commit_together`].
    ///
    /// # Errors
    /// As there; the fillings are given back then.
    pub fn commit_together(&self, fillings: Vec<ObjectFilling>) -> Result<u64, (Error, Vec<ObjectFilling>)> {
        let objects: Vec<_> = fillings.iter().map(ObjectFilling::said).collect();
        match self.calls().commit(&objects, None) {
            Ok(version) => {
                fillings.into_iter().for_each(ObjectFilling::committed);
                Ok(version)
            }
            Err(error) => Err((error, fillings)),
        }
    }

    /// Gets a version in the host tier.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::get`].
    pub fn get(&self, key: &str, which: Which) -> Result<HeldObject> {
        self.get_with(key, which, &GetObject::default())
    }

    /// As [`get`](Self::get), in the tier and under the conditions of `get`.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::get_with`].
    pub fn get_with(&self, key: &str, which: Which, get: &GetObject) -> Result<HeldObject> {
        let (which, wait) = match which {
            Which::Latest => (WhichObject::Latest, Wait::No),
            Which::Exact(version) => (WhichObject::Exact(version), Wait::No),
            Which::AtLeast(version, wait) => (WhichObject::AtLeast(version), wait),
        };
        self.hold_one(&get.ask(&[key], which, wait))
    }

    fn hold_one(&self, ask: &ObjectAsk<'_>) -> Result<HeldObject> {
        one(&self.client, self.calls().hold(ask)?)
    }

    /// A version to come, on any async runtime: the newest, once it is `least` or a later one. There is no time-out in it.
    ///
    /// # Errors
    /// `closed` when the store is; what else can be is said by the future.
    pub fn get_async(
        &self,
        key: &str,
        least: u64,
        get: &GetObject,
    ) -> Result<impl Future<Output = Result<HeldObject>> + Send + 'static + use<>> {
        let coming = self.calls().hold_async(&get.ask(&[key], WhichObject::AtLeast(least), Wait::Forever))?;
        let client = self.client.clone();
        Ok(async move { one(&client, coming.await?) })
    }

    /// Gets the newest versions of these keys that were [committed together](Self::commit_together), of each.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::get_together`].
    pub fn get_together(&self, keys: &[&str], get: &GetObject) -> Result<Vec<HeldObject>> {
        let held = self.calls().hold(&get.ask(keys, WhichObject::Together, Wait::No))?;
        Ok(held.into_iter().map(|leased| HeldObject::new(&self.client, leased)).collect())
    }

    /// Takes the oldest published version of a key that nobody is receiving, in the host tier.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::receive`].
    pub fn receive(&self, key: &str, wait: Wait) -> Result<ReceivedObject> {
        self.hold_one(&GetObject::default().ask(&[key], WhichObject::Once, wait)).map(ReceivedObject)
    }

    /// The same to come, on any async runtime. There is no time-out in it.
    ///
    /// # Errors
    /// As for [`get_async`](Self::get_async).
    pub fn receive_async(
        &self,
        key: &str,
    ) -> Result<impl Future<Output = Result<ReceivedObject>> + Send + 'static + use<>> {
        let ask = GetObject::default();
        let coming = self.calls().hold_async(&ask.ask(&[key], WhichObject::Once, Wait::Forever))?;
        let client = self.client.clone();
        Ok(async move { one(&client, coming.await?).map(ReceivedObject) })
    }

    /// Tells of new versions of a key, from now on.
    ///
    /// # Errors
    /// `retry` when the server cannot be reached.
    pub fn watch(&self, key: &str) -> Result<ObjectWatch> {
        ObjectWatch::begin(self.clone(), key)
    }

    /// Every version that can be had, by key and number.
    ///
    /// # Errors
    /// `retry` when the server cannot be reached.
    pub fn list(&self) -> Result<Vec<ObjectShown>> {
        self.calls().list()
    }

    /// Every version that can be had of the keys that begin with `prefix`, by key and number.
    ///
    /// # Errors
    /// `retry` when the server cannot be reached.
    pub fn list_of(&self, prefix: &str) -> Result<Vec<ObjectShown>> {
        self.calls().list_of(prefix)
    }

    fn relocate(&self, relocation: &Relocation<'_>) -> Result<Relocated> {
        self.calls().relocate(relocation)
    }

    /// Removes a version; false when there is none. Whoever holds it keeps it.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::delete`].
    pub fn delete(&self, key: &str, version: u64) -> Result<bool> {
        Ok(self.relocate(&Relocation::Delete { key, version })?.there)
    }

    /// Brings a version to the disk as well, on stable storage, and gives its number.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::spill`].
    pub fn spill(&self, key: &str, which: Which) -> Result<u64> {
        Ok(self.relocate(&Relocation::Spill { key, version: number_of(which)? })?.version)
    }

    /// Brings a version to the disk, and takes it out of memory.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::demote`].
    pub fn demote(&self, key: &str, which: Which) -> Result<u64> {
        Ok(self.relocate(&Relocation::Demote { key, version: number_of(which)? })?.version)
    }

    /// One version goes to the disk while another comes from there.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::exchange`].
    pub fn exchange(&self, out: (&str, Which), into: (&str, Which)) -> Result<Exchanged> {
        let (out, into) = ((out.0, number_of(out.1)?), (into.0, number_of(into.1)?));
        let Relocated { version, into, overlapped, .. } =
            self.relocate(&Relocation::Exchange { out, into })?;
        Ok(Exchanged { out: version, into, overlapped })
    }

    /// What a step calls a version by, so that a commit can name it.
    ///
    /// # Errors
    /// As [`forebay_store::Objects::reference`].
    pub fn reference(&self, key: &str, version: u64) -> Result<ObjectRef> {
        let reference = self.relocate(&Relocation::Reference { key, version })?.reference;
        reference.ok_or_else(|| crate::wire::malformed("a reference to nothing"))
    }
}

fn fill(mut filling: ObjectFilling, tensors: &[TensorBytes<'_>]) -> Result<u64> {
    tensors.iter().try_for_each(|tensor| filling.write(tensor.name, 0, tensor.bytes))?;
    filling.commit()
}

fn one(client: &Client, held: Vec<super::LeasedObject>) -> Result<HeldObject> {
    let leased = held.into_iter().next();
    leased.map(|leased| HeldObject::new(client, leased)).ok_or_else(|| crate::wire::malformed("no version"))
}
