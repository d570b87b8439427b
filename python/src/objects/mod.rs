//! Objects: large state under keys, in versions. What Python sees of them is in `python/forebay/objects/`; here are the calls
//! under it.
//!
//! Bytes come in as pieces that nobody can change, which Python has copied; they are summed up and put where they belong without
//! the interpreter's lock. Bytes go out where they lie ([`LeasedView`]), or, where they have to be read, in memory of their own.

mod filling;
mod held;
mod view;

use std::sync::Arc;
use std::time::Duration;

use forebay::client::{self, GetObject, HeldObject as Version};
use forebay::store::{Dtype, Expected, Layout, Tier, Which};
use pyo3::prelude::*;

pub(crate) use filling::ObjectFilling;
pub(crate) use held::HeldObject;
pub(crate) use view::LeasedView;

use crate::arguments;
use crate::failure::{Failure, Result, input, timeout};
use crate::handle::{Handle, Open};
use crate::options;
use crate::pending::{Outcome, Pending, Waiter};
use crate::wait::block_on;

/// A tensor: memory class, name, type, dimensions.
type Spec = (String, String, String, Vec<u64>);
/// A version, as a list shows it: key, version, bytes, tensors, tiers, leases, whether it was published, when (in microseconds
/// since the Unix epoch), metadata.
type Shown =
    (String, u64, u64, u32, Vec<&'static str>, u64, bool, i64, std::collections::BTreeMap<String, String>);

/// The calls of a store's objects.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct ObjectCalls(Arc<Handle>);

/// What is waited for: a version of a key by its least number, or what was published under it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    AtLeast(u64),
    Published,
}

fn layout_of(tensors: &[Spec]) -> Result<Layout> {
    let mut builder = Layout::builder();
    for (class, name, dtype, shape) in tensors {
        let known = Dtype::named(dtype).ok_or_else(|| {
            let all = Dtype::ALL.map(Dtype::name).join(", ");
            input(format!("tensor {name:?} has the type {dtype:?}; there are {all}"))
        })?;
        builder = builder.tensor(class, name, known, shape);
    }
    Ok(builder.build()?)
}

fn tier_of(tier: &str) -> Result<Tier> {
    match tier {
        "host" => Ok(Tier::Host),
        "disk" => Ok(Tier::Disk),
        other => Err(input(format!("tier is {other:?}; give 'host' or 'disk'"))),
    }
}

fn which_of(version: Option<u64>) -> Which {
    version.map_or(Which::Latest, Which::Exact)
}

/// What the newest version has to be, as Python says it: 0 for none.
fn expected_of(expected: Option<u64>) -> Expected {
    match expected {
        None => Expected::Any,
        Some(0) => Expected::Absent,
        Some(version) => Expected::Version(version),
    }
}

fn name_of(tier: Tier) -> &'static str {
    match tier {
        Tier::Host => "host",
        Tier::Disk => "disk",
    }
}

/// A version to come.
async fn coming(objects: client::Objects, key: String, wanted: Wanted, get: GetObject) -> Result<Held> {
    Ok(match wanted {
        Wanted::AtLeast(least) => Held::Kept(objects.get_async(&key, least, &get)?.await?),
        Wanted::Published => Held::Received(objects.receive_async(&key)?.await?),
    })
}

/// What a wait for an object came to.
#[derive(Debug)]
pub(crate) enum Held {
    Kept(Version),
    Received(client::ReceivedObject),
}

impl Held {
    pub(crate) fn version(&self) -> &Version {
        match self {
            Held::Kept(version) => version,
            Held::Received(received) => received,
        }
    }
}

impl ObjectCalls {
    pub(crate) fn new(handle: &Arc<Handle>) -> Self {
        ObjectCalls(handle.clone())
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Open, &client::Objects) -> Result<T> + Send,
    ) -> Result<T> {
        self.0.run(py, |open| call(open, &open.client.objects()))
    }

    fn held(&self, open: &Open, held: Held) -> HeldObject {
        HeldObject::new(&self.0, open, held)
    }
}

/// That nothing came in time.
pub(crate) fn timed_out(key: &str, wanted: Wanted, time: Duration) -> Failure {
    let seconds = time.as_secs_f64();
    timeout(match wanted {
        Wanted::AtLeast(version) => {
            format!("object {key:?} had no version {version} or later in {seconds} s")
        }
        Wanted::Published => format!("nothing was published under {key:?} in {seconds} s"),
    })
}

#[pymethods]
impl ObjectCalls {
    /// Begins a version.
    #[pyo3(signature = (key, tensors, expected, published))]
    fn begin(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::object_key)] key: String,
        tensors: Vec<Spec>,
        expected: Option<u64>,
        published: bool,
    ) -> Result<ObjectFilling> {
        let layout = layout_of(&tensors)?;
        self.run(py, |open, objects| {
            let filling = match published {
                true => objects.begin_published(&key, &layout)?,
                false => objects.begin(&key, expected_of(expected), &layout)?,
            };
            Ok(ObjectFilling::new(&self.0, open, filling))
        })
    }

    /// Commits versions of several keys under one number, all or none.
    fn commit_together(&self, py: Python<'_>, fillings: Vec<Py<ObjectFilling>>) -> Result<u64> {
        self.run(py, |_, objects| {
            let mut taken = Vec::with_capacity(fillings.len());
            let put_back = |back: Vec<client::ObjectFilling>| {
                fillings.iter().zip(back).for_each(|(filling, back)| filling.get().put_back(back));
            };
            for filling in &fillings {
                match filling.get().take() {
                    Ok(filling) => taken.push(filling),
                    Err(failure) => {
                        put_back(taken);
                        return Err(failure);
                    }
                }
            }
            objects.commit_together(taken).map_err(|(error, back)| {
                put_back(back);
                error.into()
            })
        })
    }

    /// A version that is there.
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::object_key)] key: String,
        version: Option<u64>,
        #[pyo3(from_py_with = arguments::tier)] tier: String,
    ) -> Result<HeldObject> {
        let get = GetObject::default().tier(tier_of(&tier)?);
        self.run(py, |open, objects| {
            let held = objects.get_with(&key, which_of(version), &get)?;
            Ok(self.held(open, Held::Kept(held)))
        })
    }

    /// The newest version that all of these keys have, of each.
    fn get_together(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::keys)] keys: Vec<String>,
    ) -> Result<Vec<HeldObject>> {
        self.run(py, |open, objects| {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let held = objects.get_together(&keys, &GetObject::default())?;
            Ok(held.into_iter().map(|held| self.held(open, Held::Kept(held))).collect())
        })
    }

    /// Waits for a version, or for what is published where `at_least` is none.
    #[pyo3(signature = (key, at_least, tier, timeout))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::object_key)] key: String,
        at_least: Option<u64>,
        #[pyo3(from_py_with = arguments::tier)] tier: String,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> Result<HeldObject> {
        let (wanted, get) = (wanted_of(at_least), GetObject::default().tier(tier_of(&tier)?));
        let time = options::timeout(timeout)?;
        self.run(py, |open, objects| {
            let held = coming(objects.clone(), key.clone(), wanted, get);
            match block_on(held, time)? {
                Some(held) => Ok(self.held(open, held?)),
                None => Err(timed_out(&key, wanted, time.unwrap_or_default())),
            }
        })
    }

    /// The same for an event loop.
    #[pyo3(signature = (key, at_least, tier, timeout))]
    fn wait_async<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::object_key)] key: String,
        at_least: Option<u64>,
        #[pyo3(from_py_with = arguments::tier)] tier: String,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let (wanted, get) = (wanted_of(at_least), GetObject::default().tier(tier_of(&tier)?));
        let time = options::timeout(timeout)?;
        let pending = self.run(py, |open, objects| {
            let held = coming(objects.clone(), key.clone(), wanted, get);
            let coming = Box::pin(async { Ok(Outcome::Held(Box::new(held.await?))) });
            let waiter = Waiter::Holder(key.into(), wanted);
            Ok(Pending::new(&self.0, open, coming, waiter, time))
        })?;
        pending.awaited(py, "wait")
    }

    /// Every version that can be had.
    fn list(&self, py: Python<'_>) -> Result<Vec<Shown>> {
        let all = self.run(py, |_, objects| Ok(objects.list()?))?;
        let shown = |o: client::ObjectShown| {
            let tiers = o.tiers.iter().copied().map(name_of).collect();
            (o.key, o.version, o.bytes, o.tensors, tiers, o.leases, o.once, o.created_at.0, o.metadata)
        };
        Ok(all.into_iter().map(shown).collect())
    }

    fn delete(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::object_key)] key: String,
        #[pyo3(from_py_with = arguments::version)] version: u64,
    ) -> Result<bool> {
        self.run(py, |_, objects| Ok(objects.delete(&key, version)?))
    }

    fn spill(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::object_key)] key: String,
        version: Option<u64>,
    ) -> Result<u64> {
        self.run(py, |_, objects| Ok(objects.spill(&key, which_of(version))?))
    }

    fn demote(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::object_key)] key: String,
        version: Option<u64>,
    ) -> Result<u64> {
        self.run(py, |_, objects| Ok(objects.demote(&key, which_of(version))?))
    }

    /// Gives the version that went out, the one that came in, and whether both went on at once.
    fn exchange(
        &self,
        py: Python<'_>,
        out: (String, Option<u64>),
        into: (String, Option<u64>),
    ) -> Result<(u64, u64, bool)> {
        self.run(py, |_, objects| {
            let done = objects.exchange((&out.0, which_of(out.1)), (&into.0, which_of(into.1)))?;
            Ok((done.out, done.into, done.overlapped))
        })
    }
}

fn wanted_of(at_least: Option<u64>) -> Wanted {
    at_least.map_or(Wanted::Published, Wanted::AtLeast)
}
