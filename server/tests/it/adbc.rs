//! Arrow Flight SQL by the driver that people use: `adbc-driver-flightsql` from PyPI, as it comes.
//!
//! Where the Python of `FOREBAY_PYTHON` (default `python3`) does not have it the test says so and is skipped, or fails
//! where `FOREBAY_REQUIRE_PYTHON` is set; what it holds
//! is held by `flight` too, by the library's client.

use std::process::Command;

use forebay_server::{Server, Token};

use crate::client::{Served, loopback};
use crate::secured::{certified, encrypted, granting};

/// A Python that has the driver; none where the test is skipped.
fn python() -> Option<String> {
    let python = std::env::var("FOREBAY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import adbc_driver_flightsql, pyarrow"]).output();
    if has.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let missing =
        format!("{python} has no adbc-driver-flightsql and pyarrow; set FOREBAY_PYTHON to one that has");
    assert!(std::env::var_os("FOREBAY_REQUIRE_PYTHON").is_none(), "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}

fn runs(python: &str, script: &str, arguments: &[&str]) {
    let output = Command::new(python).args(["-c", script]).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_drivers_of_python_work_as_they_come() {
    let Some(python) = python() else { return };
    let builder = Server::builder().flight(loopback()).token(Token::new("sesame").unwrap());
    let served = Served::new(builder);
    let address = served.server.flight_address().unwrap().to_string();
    runs(&python, include_str!("adbc.py"), &[&address]);
}

#[test]
fn the_drivers_of_python_show_tokens_and_certificates() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let [server, client, stranger] =
        [("server", "localhost"), ("client", "client"), ("stranger", "stranger")].map(|(file, name)| {
            let made = certified(name);
            std::fs::write(dir.path().join(format!("{file}.pem")), made.cert.pem()).unwrap();
            std::fs::write(dir.path().join(format!("{file}.key")), made.signing_key.serialize_pem()).unwrap();
            made
        });
    drop(stranger);
    let served = encrypted(granting(Server::builder()), &server, Some(&client));
    let [flight, http] =
        [served.server.flight_address(), served.server.address()].map(|at| at.unwrap().port().to_string());
    runs(&python, include_str!("adbc_secured.py"), &[&flight, &http, dir.path().to_str().unwrap()]);
}
