//! An archive in a real S3-compatible server: `moto_server`, from PyPI.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use forebay_query::{Archive, ArchiveRule, Archiver, Kind};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::prefix::PrefixStore;

use super::fixture::*;
use super::python;

/// A server of its own; it ends with the test.
struct Server {
    process: Child,
    port: u16,
}

const PROGRAM: &str = "
import sys, threading, boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=int(sys.argv[1]), verbose=False)
server.start()
boto3.client('s3', endpoint_url=f'http://127.0.0.1:{sys.argv[1]}', region_name='us-east-1', aws_access_key_id='a', \
aws_secret_access_key='b').create_bucket(Bucket='runs')
print('ready', flush=True)
sys.stdin.read()
";

impl Server {
    fn start() -> Option<Self> {
        if !(python::has("moto.server") && python::has("boto3")) {
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut process = Command::new(python::python())
            .args(["-c", PROGRAM, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Server { process, port })
    }

    fn bucket(&self, port: u16) -> AmazonS3 {
        AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{port}"))
            .with_allow_http(true)
            .with_bucket_name("runs")
            .with_region("us-east-1")
            .with_access_key_id("a")
            .with_secret_access_key("b")
            .with_retry(object_store::RetryConfig {
                max_retries: 0,
                retry_timeout: Duration::from_secs(5),
                ..Default::default()
            })
            .build()
            .unwrap()
    }

    fn archive(&self, prefix: &str) -> Archive {
        let objects = PrefixStore::new(self.bucket(self.port), prefix);
        Archive::in_store(&format!("s3://runs/{prefix}"), Arc::new(objects))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_archive_in_s3_is_written_and_read() {
    let Some(server) = Server::start() else { return };
    let run = stepped();
    let all = rows(&run.session, EVERYTHING);
    let archive = server.archive("job-17");
    let moved = move_all(&run.store, &archive);
    assert_eq!(moved.len() as u64, OVER);
    assert_eq!(rows(&session(&run.store, &server.archive("job-17")), EVERYTHING), all);
    let archiver = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    assert_eq!(archiver.clean(Duration::ZERO).unwrap().files, 0);
    let foreign = stepped();
    let refused = Archiver::new(&foreign.store, &archive, ArchiveRule::keep_versions(1)).unwrap_err();
    assert!(refused.to_string().contains("archive of store"), "{refused}");
    let none = error(&session(&run.store, &server.archive("nothing")), "SELECT 1", Kind::Archive);
    assert!(none.contains("there is no archive"), "{none}");
}

/// As the command and the documentation name it: by a URL and the usual variables. They are a process's, so a process of its own
/// asks.
#[test]
fn an_archive_in_s3_is_opened_by_its_address() {
    let Some(server) = Server::start() else { return };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "archive::s3::opened_by_its_address", "--ignored", "--nocapture"])
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", server.port))
        .envs([("AWS_ALLOW_HTTP", "true"), ("AWS_REGION", "us-east-1")])
        .envs([("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "what `an_archive_in_s3_is_opened_by_its_address` runs in a process of its own"]
fn opened_by_its_address() {
    let run = stepped();
    let all = rows(&run.session, EVERYTHING);
    let open = || Archive::open("s3://runs/by/address").unwrap();
    assert_eq!(move_all(&run.store, &open()).len() as u64, OVER);
    assert_eq!(rows(&session(&run.store, &open()), EVERYTHING), all);
    let none = Archive::open("s3://no-such-bucket/x").unwrap();
    assert_eq!(
        Archiver::new(&run.store, &none, ArchiveRule::keep_versions(1)).unwrap_err().kind(),
        Kind::Archive
    );
}

/// Nobody answers at that port: the archive is out of reach, and the store goes on.
#[test]
fn a_server_that_does_not_answer_is_told() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Server { process: Command::new("true").spawn().unwrap(), port };
    let run = stepped();
    let archive = server.archive("job-17");
    let error = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap_err();
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    assert_eq!(error.kind(), Kind::Archive);
    step(&run, STEPS);
}
