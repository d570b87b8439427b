//! How a store is opened: the keyword arguments of `forebay.open`, by the names of [`Options`].

use std::path::PathBuf;
use std::time::Duration;

use forebay::store::{Durability, HostFolder, ObjectOptions, Options, Retention};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::asking;
use crate::failure::{Result, input};

/// The names that `forebay.open` takes for the store. Times are in seconds.
const NAMES: [&str; 21] = [
    "durability",
    "read_only",
    "create",
    "lease",
    "sync_interval",
    "extent_bytes",
    "free_extent_bytes_max",
    "disk_bytes_max",
    "memory_bytes_max",
    "capacity_wait",
    "snapshot_age_max",
    "check_values",
    "segment_bytes_max",
    "checkpoint_records",
    "object_versions_kept",
    "host_bytes_max",
    "host_folder",
    "host_versions_kept",
    "pageable_bytes_max",
    "versions_kept",
    "consumed_kept",
];

/// The options of the store that a call gives; those for questions are `asking`'s. `None` for a value leaves the default.
pub(crate) fn options(given: Option<&Bound<'_, PyDict>>) -> Result<Options> {
    let (mut options, mut retention) = (Options::default(), Retention::default());
    let mut objects = ObjectOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if asking::NAMES.contains(&name.as_str()) {
            continue;
        }
        if !NAMES.contains(&name.as_str()) {
            let all = [&NAMES[..], &asking::NAMES].concat().join(", ");
            return Err(input(format!("open has no option {name:?}; its options are {all}")));
        }
        if value.is_none() {
            continue;
        }
        options = match name.as_str() {
            "durability" => options.durability(durability(&value)?),
            "read_only" => options.read_only(flag(&name, &value)?),
            "create" => options.create(flag(&name, &value)?),
            "lease" => options.lease(seconds(&name, &value)?),
            "sync_interval" => options.sync_interval(seconds(&name, &value)?),
            "extent_bytes" => {
                let pair: (usize, usize) =
                    value.extract().map_err(|_| wrong(&name, "two numbers of bytes", &value))?;
                options.extent_bytes(pair.0, pair.1)
            }
            "free_extent_bytes_max" => options.free_extent_bytes_max(number(&name, &value)?),
            "disk_bytes_max" => options.disk_bytes_max(number(&name, &value)?),
            "memory_bytes_max" => options.memory_bytes_max(number(&name, &value)?),
            "capacity_wait" => options.capacity_wait(seconds(&name, &value)?),
            "snapshot_age_max" => options.snapshot_age_max(seconds(&name, &value)?),
            "check_values" => options.check_values(flag(&name, &value)?),
            "segment_bytes_max" => options.segment_bytes_max(number(&name, &value)?),
            "checkpoint_records" => options.checkpoint_records(number(&name, &value)?),
            "object_versions_kept" => {
                options.object_versions_kept(usize::try_from(number(&name, &value)?).unwrap_or(usize::MAX))
            }
            "host_bytes_max" | "host_folder" | "host_versions_kept" | "pageable_bytes_max" => {
                objects = object_option(objects, &name, &value)?;
                options
            }
            "versions_kept" => {
                retention = retention.versions(number(&name, &value)?);
                options
            }
            _ => {
                retention = retention.consumed_for(seconds(&name, &value)?);
                options
            }
        };
    }
    Ok(options.retention(retention).objects(objects))
}

/// One of the options of objects.
fn object_option(options: ObjectOptions, name: &str, value: &Bound<'_, PyAny>) -> Result<ObjectOptions> {
    Ok(match name {
        "host_bytes_max" => options.host_bytes_max(number(name, value)?),
        "pageable_bytes_max" => options.pageable_bytes_max(number(name, value)?),
        "host_versions_kept" => {
            options.versions_kept(usize::try_from(number(name, value)?).unwrap_or(usize::MAX))
        }
        _ => {
            let path: PathBuf =
                value.extract().map_err(|_| wrong(name, "a path, or \"\" for none", value))?;
            let is_none = path.as_os_str().is_empty();
            options.host_folder(if is_none { HostFolder::Anonymous } else { HostFolder::At(path) })
        }
    })
}

/// One of the levels, by its word.
pub(crate) fn durability(value: &Bound<'_, PyAny>) -> Result<Durability> {
    let word = value.extract::<String>().ok();
    let level = Durability::ALL.into_iter().find(|level| word.as_deref() == Some(level.as_str()));
    level.ok_or_else(|| wrong("durability", "\"memory\", \"logged\" or \"synced\"", value))
}

/// A length of time in seconds; infinity is as long as it takes.
pub(crate) fn seconds(name: &str, value: &Bound<'_, PyAny>) -> Result<Duration> {
    let seconds: f64 = value.extract().map_err(|_| wrong(name, "a number of seconds", value))?;
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong(name, "a number of seconds, 0 or more", value))
}

/// A time-out: `None` waits as long as it takes.
pub(crate) fn timeout(value: Option<&Bound<'_, PyAny>>) -> Result<Option<Duration>> {
    let given = value.map(|value| seconds("timeout", value)).transpose()?;
    Ok(given.filter(|time| *time != Duration::MAX))
}

pub(crate) fn flag(name: &str, value: &Bound<'_, PyAny>) -> Result<bool> {
    value.extract().map_err(|_| wrong(name, "True or False", value))
}

pub(crate) fn number(name: &str, value: &Bound<'_, PyAny>) -> Result<u64> {
    value.extract().map_err(|_| wrong(name, "a whole number, 0 or more", value))
}

/// The error for an argument of another kind.
pub(crate) fn wrong(name: &str, expected: &str, found: &Bound<'_, PyAny>) -> crate::failure::Failure {
    let shown = found.repr().map_or_else(|_| "something else".to_owned(), |text| text.to_string());
    input(format!("{name} is {expected}, not {}", shorten(&shown)))
}

/// A value as a message shows it.
fn shorten(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}...", &text[..at]),
    }
}
