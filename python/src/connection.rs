//! How a server is reached: the keyword arguments of `forebay.connect`.

use std::path::PathBuf;

use forebay::client::ConnectOptions;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::arguments;
use crate::failure::{Result, input};
use crate::options::{flag, seconds, wrong};

/// The names that `forebay.connect` takes. Times are in seconds.
const NAMES: [&str; 8] =
    ["token", "owner", "timeout", "call_timeout", "outage_timeout", "neighbour", "slabs", "tls"];
/// What `tls` may hold: PEM texts, or the paths of files with them.
const TLS_NAMES: [&str; 3] = ["authority", "certificate", "key"];

/// The options that a call gives. `None` for a value leaves the default.
pub(crate) fn options(given: Option<&Bound<'_, PyDict>>) -> Result<ConnectOptions> {
    let mut options = ConnectOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if !NAMES.contains(&name.as_str()) {
            return Err(input(format!(
                "connect has no option {name:?}; its options are {}",
                NAMES.join(", ")
            )));
        }
        if value.is_none() {
            continue;
        }
        options = match name.as_str() {
            // What was given is not shown: it may be the token, slightly wrong.
            "token" => options.token(&secret(&value)?),
            "owner" => options.owner(&text(&name, &value)?),
            "timeout" => options.connect_time_max(seconds(&name, &value)?),
            "call_timeout" => options.call_time_max(seconds(&name, &value)?),
            "outage_timeout" => options.outage_time_max(seconds(&name, &value)?),
            "neighbour" => options.neighbour(flag(&name, &value)?),
            "slabs" => options.slabs(flag(&name, &value)?),
            _ => tls(options, &value)?,
        };
    }
    Ok(options)
}

fn secret(value: &Bound<'_, PyAny>) -> Result<String> {
    value.extract().map_err(|_| input("token is a text, and something else was given"))
}

fn text(name: &str, value: &Bound<'_, PyAny>) -> Result<String> {
    value.extract().map_err(|_| wrong(name, "a text", value))
}

/// The certificates of `tls`.
fn tls(options: ConnectOptions, given: &Bound<'_, PyAny>) -> Result<ConnectOptions> {
    let expected = "a dict with authority, and certificate and key where the server asks for them";
    let given = arguments::dict("tls", expected, given)?;
    for name in given.keys() {
        if !name.extract::<String>().is_ok_and(|name| TLS_NAMES.contains(&&*name)) {
            return Err(wrong("a name in tls", "authority, certificate or key", &name));
        }
    }
    let value = |name: &str| -> Result<Option<String>> {
        let value = given.get_item(name)?.filter(|value| !value.is_none());
        value.map(|value| pem(name, &value)).transpose()
    };
    let options = match value("authority")? {
        Some(authority) => options.authority_certificate(&authority),
        None => options,
    };
    match (value("certificate")?, value("key")?) {
        (Some(certificate), Some(key)) => Ok(options.identity(&certificate, &key)),
        (None, None) => Ok(options),
        _ => Err(input("certificate and key in tls go together; give both")),
    }
}

/// A PEM text, or what the file holds that is named.
fn pem(name: &str, value: &Bound<'_, PyAny>) -> Result<String> {
    if let Ok(text) = value.cast::<PyString>()
        && text.to_string().contains("-----BEGIN")
    {
        return Ok(text.to_string());
    }
    let expected = "a PEM text or the path of a file that holds one";
    let path: PathBuf = value.extract().map_err(|_| input(format!("{name} in tls is {expected}")))?;
    std::fs::read_to_string(&path)
        .map_err(|error| input(format!("{name} in tls: {} cannot be read: {error}", path.display())))
}
