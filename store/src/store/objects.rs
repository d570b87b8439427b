//! Objects of a store: those that steps name, which are put whole, and the doors to those that are set and got.

use super::Store;
use crate::error::{Cause, Error, Result};
use crate::object::{self, Core, ObjectPut, ObjectReader, ObjectRef, ObjectStats, Objects, Unnamed};
use crate::schema::check_name;

impl Store {
    /// Writes one version of an object, whole. It is part of the store once a step's commit names it.
    ///
    /// # Errors
    /// `capacity` when the disk is full; `input` when the key is not a legal name, or when a step that stands names this
    /// version of the object with other bytes, also one that was committed while these were written.
    pub fn put_object(&self, key: &str, version: u64, payload: &[u8]) -> Result<ObjectRef> {
        self.0.check_writable("write objects")?;
        let there = self.0.state.lock().committed_object(key, version).cloned();
        match there {
            Some(there) if there != ObjectRef::of(key, version, payload) => {
                return Err(exists(key, version));
            }
            Some(there) if object::check(&self.0.directory, &there).is_ok() => return Ok(there),
            Some(_) => {} // retired, and wanted again
            None => self.check_unset(key, version)?,
        }
        let mut unnamed = self.0.puts.begin(&self.0.directory, (key, version))?;
        unnamed.append(payload)?;
        self.finish_put(unnamed)
    }

    /// As [`put_object`](Self::put_object), in parts: for an object that is not in memory as a whole.
    ///
    /// # Errors
    /// `capacity` when the disk is full; `input` when the key is not a legal name, or the version was set.
    pub fn begin_put(&self, key: &str, version: u64) -> Result<ObjectPut> {
        self.0.check_writable("write objects")?;
        let is_named = self.0.state.lock().committed_object(key, version).is_some();
        if !is_named {
            self.check_unset(key, version)?;
        }
        Ok(ObjectPut::new(self.clone(), self.0.puts.begin(&self.0.directory, (key, version))?))
    }

    /// Gives a version that was written its name, unless its file is there already under it.
    pub(crate) fn finish_put(&self, unnamed: Unnamed) -> Result<ObjectRef> {
        let ObjectRef { key, version, .. } = unnamed.object().clone();
        let there = self.0.state.lock().committed_object(&key, version).cloned();
        // A file that was synced is not replaced by one that was not.
        if let Some(there) = there.filter(|there| there == unnamed.object())
            && object::check(&self.0.directory, &there).is_ok()
        {
            return Ok(there);
        }
        self.name_put(unnamed)
    }

    /// Gives a version that was written its name, unless a step has come to name the version meanwhile: then with other bytes it is
    /// refused, and with these its file stays, which was synced or is about to be. The name is noted as unsynced before the state is
    /// let go of, for a commit may rest on it from then on.
    fn name_put(&self, unnamed: Unnamed) -> Result<ObjectRef> {
        let ObjectRef { key, version, .. } = unnamed.object().clone();
        loop {
            let settled = self.0.settle_undone(&key, version)?;
            let state = self.0.state.lock();
            match state.committed_object(&key, version) {
                Some(there) if there != unnamed.object() => return Err(exists(&key, version)),
                Some(there) if object::check(&self.0.directory, there).is_ok() => return Ok(there.clone()),
                _ => {}
            }
            if settled || !state.was_named(&key, version) {
                let object = self.0.puts.name(unnamed)?;
                self.0.unsynced.note(object::path_of(&self.0.directory, &object));
                return Ok(object);
            }
        }
    }

    /// Refuses a version that was set, which never changes.
    pub(crate) fn check_unset(&self, key: &str, version: u64) -> Result<()> {
        check_name("object", key)?;
        let path = object::path_in(&self.0.directory.objects(), key, version);
        let is_set = match self.0.objects_if_open() {
            Some(core) => !core.take_number(key, version, path),
            None => object::check_ours(&*self.0.directory.disk, &path)?,
        };
        if is_set {
            return Err(exists(key, version));
        }
        Ok(())
    }

    /// The objects that are set and got. What earlier processes have left of them is found out by the first call.
    ///
    /// # Errors
    /// `state` when the store is read only (see [`object_reader`](Self::object_reader)); `input` when
    /// [`ObjectOptions`](crate::ObjectOptions) do not fit together.
    pub fn objects(&self) -> Result<Objects> {
        self.0.check_writable("set and lease objects, or read them with `Store::object_reader`")?;
        let mut opened = self.0.objects.lock();
        let is_first = opened.is_none();
        let core = match &*opened {
            Some(core) => core.clone(),
            None => opened.insert(Core::open(&self.0.directory, &self.0.options)?).clone(),
        };
        drop(opened);
        let objects = Objects::new(self.clone(), core);
        if is_first {
            objects.bury_deleted();
        }
        Ok(objects)
    }

    /// The objects that are set, for whoever only reads, also beside the process that sets them: each version as a copy of its
    /// own, or as a file that stays open. It sees what was committed when it looks, without a [`refresh`](Self::refresh): the
    /// files of the disk tier, and the host tier where this machine's process has a folder for it and this store was opened with
    /// the same [`HostFolder`](crate::HostFolder).
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// let host = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
    /// let options = Options::default().objects(host);
    /// let store = Store::open(dir.path().join("store"), options.clone())?;
    /// let bytes = TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[3], bytes: &[1, 2, 3] };
    /// store.objects()?.set("solver", &[bytes])?;
    /// // In another process:
    /// let beside = Store::open(dir.path().join("store"), options.read_only(true))?;
    /// let solver = beside.object_reader()?.newest("solver")?;
    /// assert_eq!((solver.version(), solver.tensor("w")?), (1, vec![1, 2, 3]));
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `state` in a forked child.
    pub fn object_reader(&self) -> Result<ObjectReader> {
        self.0.check_process()?;
        Ok(ObjectReader::new(self.0.directory.clone(), self.0.options.objects.host_folder.clone()))
    }

    /// What its objects have done since it was opened; `None` where nobody has asked for them yet.
    pub fn object_stats(&self) -> Option<ObjectStats> {
        let core = self.0.objects.lock().clone()?;
        Some(Objects::new(self.clone(), core).stats())
    }

    /// Reads an object, every byte checked.
    pub fn object(&self, object: &ObjectRef) -> Result<Vec<u8>> {
        object::read(&self.0.directory, object)
    }
}

/// A version of an object is there, with other bytes than are to be put.
pub(crate) fn exists(key: &str, version: u64) -> Error {
    Cause::Exists { what: "object", name: format!("{key} version {version}") }.into()
}
