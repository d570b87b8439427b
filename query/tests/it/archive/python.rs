//! Programs in Python that some tests need.

use std::path::Path;
use std::process::{Command, Output};

/// The interpreter: that of `FOREBAY_PYTHON`, else `python3`.
pub(super) fn python() -> String {
    std::env::var("FOREBAY_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Whether a package is there. Says so loudly where it is not: what needs it is skipped, or fails where `FOREBAY_REQUIRE_PYTHON` is
/// set.
pub(super) fn has(package: &str) -> bool {
    let found = Command::new(python()).args(["-c", &format!("import {package}")]).output();
    let there = found.is_ok_and(|output| output.status.success());
    let missing =
        format!("{} has no package {package}; give another interpreter by FOREBAY_PYTHON", python());
    assert!(there || std::env::var_os("FOREBAY_REQUIRE_PYTHON").is_none(), "{missing}");
    if !there {
        eprintln!("SKIPPED: {missing}");
    }
    there
}

/// What a program prints.
pub(super) fn run(program: &str, arguments: &[&Path]) -> String {
    let Output { status, stdout, stderr } =
        Command::new(python()).arg("-c").arg(program).args(arguments).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}
