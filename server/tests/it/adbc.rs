//! Arrow Flight SQL by the driver that people use: `adbc-driver-flightsql` from PyPI, as it comes.
//!
//! Where the Python of `FOREBAY_PYTHON` (default `python3`) does not have it the test says so and is skipped, or fails
//! where `FOREBAY_REQUIRE_PYTHON` is set; what it holds
//! is held by `flight` too, by the library's client.

use std::process::Command;

use forebay_server::{Server, Token};

use crate::client::{Served, loopback};

const SCRIPT: &str = include_str!("adbc.py");

#[test]
fn the_drivers_of_python_work_as_they_come() {
    let python = std::env::var("FOREBAY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import adbc_driver_flightsql, pyarrow"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        let missing =
            format!("{python} has no adbc-driver-flightsql and pyarrow; set FOREBAY_PYTHON to one that has");
        assert!(std::env::var_os("FOREBAY_REQUIRE_PYTHON").is_none(), "{missing}");
        eprintln!("SKIPPED: {missing}");
        return;
    }
    let builder = Server::builder().flight(loopback()).token(Token::new("sesame").unwrap());
    let served = Served::new(builder);
    let address = served.server.flight_address().unwrap().to_string();
    let output = Command::new(&python).args(["-c", SCRIPT, &address]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stdout));
}
