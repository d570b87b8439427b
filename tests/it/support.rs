//! Runs the built command and reads what it prints.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};

use forebay::client::{Client, Objects};
use forebay::server::Server;
use forebay::store::{HostFolder, ObjectOptions, Options, Store};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A configuration whose run takes about a second.
pub(crate) fn small_config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/small.toml")
}

pub(crate) fn forebay(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A directory that is gone with the test.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// The small configuration with some of its text replaced, next to the data it names.
    pub(crate) fn config(&self, replace: &[(&str, &str)]) -> String {
        self.config_named("config", replace)
    }

    /// The small configuration with policies that solve about half of their problems, so that groups have a spread: those of the
    /// example, warmed up. `text` stands behind its sections, `of_checker` behind its last agent.
    pub(crate) fn warm_config(&self, name: &str, text: &str, of_checker: &str) -> String {
        let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/warm_up");
        let warm = |role: &str, more: &str| {
            let path = weights.join(format!("{role}.safetensors"));
            format!("role = \"{role}\"\nwarm_weights = {path:?}\n{more}")
        };
        self.config_named(
            name,
            &[
                ("hidden_size = 32", "hidden_size = 128"),
                ("intermediate_size = 64", "intermediate_size = 344"),
                ("num_hidden_layers = 1", "num_hidden_layers = 2"),
                ("role = \"solver\"", &warm("solver", "")),
                ("role = \"checker\"", &warm("checker", of_checker)),
                ("[policy]", &format!("{text}\n[policy]")),
            ],
        )
    }

    /// The same in a file of that name.
    pub(crate) fn config_named(&self, name: &str, replace: &[(&str, &str)]) -> String {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        let mut text = std::fs::read_to_string(small_config()).unwrap();
        text = text.replace("../../data", data.to_str().unwrap());
        for (from, to) in replace {
            assert!(text.contains(from), "{from:?} is not in the configuration");
            text = text.replace(from, to);
        }
        let path = self.path(&format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Runs the small job in `dir` and gives its JSON.
pub(crate) fn run_small(dir: &str, more: &[&str]) -> Value {
    run_config(small_config().to_str().unwrap(), dir, more)
}

/// Runs a job in `dir` and gives its JSON.
pub(crate) fn run_config(config: &str, dir: &str, more: &[&str]) -> Value {
    let base = ["run", config, "--dir", dir, "--json", "--quiet"];
    let output = forebay(&[&base, more].concat()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    last_json(&output)
}

/// Starts the small job in `dir`.
pub(crate) fn start_small(dir: &str, more: &[&str]) -> Child {
    start_config(small_config().to_str().unwrap(), dir, more)
}

/// Starts a job in `dir`, which says how it went when it was asked for its output.
pub(crate) fn start_config(config: &str, dir: &str, more: &[&str]) -> Child {
    let base = ["run", config, "--dir", dir, "--json", "--quiet"];
    forebay(&[&base, more].concat()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// How many bytes of log a run has written.
pub(crate) fn log_bytes(dir: &str) -> u64 {
    let files = std::fs::read_dir(Path::new(dir).join("log")).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

pub(crate) fn last_json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The weights that a run ended with, policy by policy.
pub(crate) fn weights(summary: &Value) -> Vec<String> {
    let policies = summary["policies"].as_array().unwrap().iter();
    policies.map(|policy| policy["weights_sha256"].as_str().unwrap().to_owned()).collect()
}

/// The rows that a statement gives.
pub(crate) fn sql(dir: &str, statement: &str) -> Vec<Value> {
    let output = forebay(&["sql", "--dir", dir, "--format", "json", statement]).output().unwrap();
    assert!(output.status.success(), "{statement}: {}", stderr(&output));
    serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().unwrap().clone()
}

/// A store of this process and its server at a socket; gone with the test.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
    _server: Server,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let objects = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
        let store = Store::open(dir.path().join("store"), Options::default().objects(objects)).unwrap();
        let server = Server::builder().grpc_socket(dir.path().join("grpc.sock"));
        let server = server.bind(store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
        World { dir, store, _server: server }
    }

    /// Where clients find the server.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.dir.path().join("grpc.sock").display())
    }

    /// The objects, from this process.
    pub(crate) fn embedded(&self) -> Objects {
        Client::embedded(self.store.clone()).objects()
    }
}

/// A process that serves a store; gone with the test.
pub(crate) struct Served {
    process: Child,
    address: String,
    said: Lines<BufReader<ChildStderr>>,
}

impl Served {
    /// `forebay serve`
    pub(crate) fn new(dir: &str, more: &[&str], token: Option<&str>) -> Self {
        let mut command = forebay(&[&["serve", "--dir", dir], more].concat());
        if let Some(token) = token {
            command.env("FOREBAY_TOKEN", token);
        }
        Self::of(command)
    }

    /// Any command that serves, at ports that are free.
    pub(crate) fn of(mut command: Command) -> Self {
        command.args(["--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut line = || said.next().unwrap().unwrap();
        let address = line().strip_prefix("listening on http://").unwrap().to_owned();
        assert!(line().starts_with("Flight SQL on grpc://127.0.0.1:"));
        Served { process, address, said }
    }

    /// Where it answers clients over gRPC.
    pub(crate) fn clients(&mut self) -> String {
        self.said.next().unwrap().unwrap().strip_prefix("clients on ").unwrap().to_owned()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        self.process.wait().unwrap()
    }

    /// The whole reply to a statement, as CSV.
    pub(crate) fn ask(&self, statement: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = statement.len();
        let head = format!(
            "POST /sql HTTP/1.1\r\nHost: localhost\r\nAccept: text/csv\r\nConnection: close\r\n{header}"
        );
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{statement}").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// The values of the one row that answers a statement.
    pub(crate) fn numbers(&self, statement: &str) -> Vec<u64> {
        let reply = self.ask(statement, "");
        assert!(reply.starts_with("HTTP/1.1 200"), "{statement}: {reply}");
        let row = reply.lines().last().unwrap_or_default();
        row.split(',').map(|number| number.parse().unwrap_or_else(|_| panic!("{reply}"))).collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
