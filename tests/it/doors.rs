//! Where `forebay serve` answers: at a socket alone where that is wanted, and no port is open then.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use forebay::client::{Client, ConnectOptions};

use crate::support::{Scratch, forebay, stderr};

/// A process, gone with the test.
struct Gone(Child);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// How many TCP ports a process listens at.
fn ports_of(process: u32) -> usize {
    let listening: HashSet<String> = ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(format!("/proc/{process}/net/{table}")).ok())
        .flat_map(|table| table.lines().skip(1).map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields[3] == "0A").then(|| format!("socket:[{}]", fields[9])) // LISTEN
        })
        .collect();
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    targets.filter(|target| listening.contains(&*target.to_string_lossy())).count()
}

#[test]
fn a_socket_alone_is_served_however_that_is_said_and_no_port_is_open() {
    let none = ["--listen", "none", "--flight", "none"];
    type Say = fn(&mut Command, &str);
    let ways: [(&str, usize, Say); 4] = [
        ("nothing", 2, |command, _| _ = command.args(["--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0"])),
        ("flags", 0, |command, _| _ = command.args(["--listen", "none", "--flight=none"])),
        ("variables", 0, |command, _| {
            command.env("FOREBAY_SERVE_LISTEN", "none").env("FOREBAY_SERVE_FLIGHT", "none");
        }),
        ("a file", 0, |command, file| {
            std::fs::write(file, "listen = \"none\"\nflight = \"none\"").unwrap();
            command.args(["--config", file]);
        }),
    ];
    for (way, ports, say) in ways {
        let scratch = Scratch::new();
        let socket = scratch.path("fb.sock");
        let mut command = forebay(&["serve", "--dir", &scratch.path("store"), "--socket", &socket]);
        say(&mut command, &scratch.path("serve.toml"));
        let mut served = Gone(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let said = BufReader::new(served.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said: Vec<String> = said.take(1 + ports).collect();
        let address = said.last().unwrap().strip_prefix("clients on ").unwrap();
        let client = Client::connect(address, &ConnectOptions::default()).unwrap();
        assert!(client.tables().unwrap().is_empty(), "{way}");
        assert_eq!(ports_of(served.0.id()), ports, "{way}: {said:?}");
    }
    let dir = Scratch::new();
    let nowhere = forebay(&[&["serve", "--dir", &dir.path("store")][..], &none].concat()).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("--socket"), "{}", stderr(&nowhere));
}
