//! `forebay admin`, and `verify` and `backup` of a store that a server has.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Output;

use forebay::store::{Consumer, DataType, Options, Schema, Store};

use crate::support::{Scratch, Served, forebay, last_json, sql, stderr};

/// A store with a few rows, in a directory.
fn made(scratch: &Scratch) -> String {
    let dir = scratch.path("store");
    let store = Store::open(&dir, Options::default()).unwrap();
    let solver = store.create_table("solver", Schema::new().data("prompt", DataType::Utf8)).unwrap();
    store.create_consumer("judge", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    for row in 0..5 {
        solver.insert(0, &format!("q{row}_0_0"), [("prompt", "why?".into())]).unwrap();
    }
    dir
}

fn run(words: &[&str]) -> Output {
    forebay(words).output().unwrap()
}

fn worked(words: &[&str]) -> Output {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(words: &[&str], named: &str) {
    let output = run(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output));
    assert!(stderr(&output).contains(named), "{words:?}: {}", stderr(&output));
}

#[test]
fn a_served_store_is_looked_after_from_another_process() {
    let scratch = Scratch::new();
    let (dir, socket, copies) = (made(&scratch), scratch.path("fb.sock"), scratch.path("copies"));
    std::fs::create_dir(&copies).unwrap();
    let _served = Served::new(&dir, &["--socket", &socket, "--backup-dir", &copies], None);
    let url = format!("unix://{socket}");
    let admin = |words: &[&str]| worked(&[&["admin", words[0], "--connect", &url], &words[1..]].concat());

    let overview = last_json(&admin(&["overview", "--json"]));
    assert_eq!(overview["depths"][0]["ready_rows"], 5, "{overview}");
    assert!(text(&admin(&["overview"])).contains("judge of solver"));

    let shown =
        text(&admin(&["peek", "solver", "--rows", "2", "--columns", "sample_id,prompt", "--format", "csv"]));
    assert_eq!(shown, "sample_id,prompt\nq0_0_0,why?\nq1_0_0,why?\n");
    let newest = ["peek", "solver", "--newest", "--rows", "1", "--columns", "sample_id", "--format", "csv"];
    assert_eq!(text(&admin(&newest)), "sample_id\nq4_0_0\n");

    let words = ["evict", "solver", "q0_0_0", "q1_0_0", "--policy-version", "0", "--reason", "spoilt"];
    assert!(text(&admin(&words)).contains("2 rows"));
    let ready = text(&admin(&[
        "peek",
        "solver",
        "--ready-for",
        "judge",
        "--columns",
        "sample_id",
        "--format",
        "csv",
    ]));
    assert_eq!(ready, "sample_id\nq2_0_0\nq3_0_0\nq4_0_0\n");

    assert_eq!(text(&admin(&["budgets", "--memory", "4GiB"])), "memory  4GiB\ndisk    none\n");
    let budgets = last_json(&admin(&["budgets", "--disk", "1073741824", "--json"]));
    assert_eq!(
        (&budgets["memory_bytes_max"], &budgets["disk_bytes_max"]),
        (&(4_u64 << 30).into(), &(1 << 30).into())
    );
    assert!(text(&admin(&["budgets", "--memory", "none"])).starts_with("memory  none"));
    assert!(text(&admin(&["retention", "--versions", "3"])).starts_with("versions kept  3\n"));
    let kept = last_json(&admin(&["retention", "--consumed-for", "60", "--json"]));
    assert_eq!((&kept["versions"], &kept["consumed_for_s"]), (&serde_json::Value::Null, &60.0.into()));
    assert!(text(&admin(&["retention", "--all"])).contains("for ever"));

    let compacted = last_json(&admin(&["compact", "--json"]));
    assert!(compacted["bytes_after"].as_u64() <= compacted["bytes_before"].as_u64(), "{compacted}");
    assert!(text(&admin(&["backup", "--to", "nightly/1"])).contains("nightly/1"));
    let copy = format!("{copies}/nightly/1");
    assert_eq!(sql(&copy, "SELECT count(*) AS n FROM solver")[0]["n"], 5);
    assert!(text(&worked(&["verify", "--connect", &url])).ends_with("sound\n"));
    assert!(text(&worked(&["verify", "--dir", &copy])).ends_with("sound\n"));

    let admin = |words: &[&str], named: &str| {
        refused(&[&["admin", words[0], "--connect", &url], &words[1..]].concat(), named);
    };
    admin(&["budgets", "--memory", "1"], "at least");
    admin(&["budgets", "--memory", "much"], "1GiB");
    admin(&["retention", "--versions", "0"], "--versions");
    admin(&["retention", "--versions", "1", "--all"], "--all");
    admin(&["peek", "solvr"], "solver");
    admin(&["peek", "solver", "--rows", "0"], "1 to 1000");
    admin(&["peek", "solver", "--format", "parquet"], "forebay sql");
    admin(&["evict", "solver", "q9_0_0", "--policy-version", "0", "--reason", "x"], "nothing was evicted");
    admin(&["backup", "--to", "../beside"], "beneath");
    admin(&["backup", "--to", "nightly/1"], "not empty");
    refused(&["admin", "compact", "--dir", &dir], "--connect");
}

#[test]
fn a_store_that_nobody_serves_is_looked_after_where_it_lies() {
    let scratch = Scratch::new();
    let dir = made(&scratch);
    let overview = last_json(&worked(&["admin", "overview", "--dir", &dir, "--json"]));
    assert_eq!(overview["depths"][0]["consumer"], "judge", "{overview}");
    worked(&[
        "admin",
        "evict",
        "solver",
        "q0_0_0",
        "--policy-version",
        "0",
        "--reason",
        "spoilt",
        "--dir",
        &dir,
    ]);
    assert_eq!(sql(&dir, "SELECT count(*) AS n FROM solver WHERE state = 'excluded'")[0]["n"], 1);
    assert!(text(&worked(&["admin", "peek", "solver", "--dir", &dir])).contains("q4_0_0"));
    assert!(text(&worked(&["admin", "compact", "--dir", &dir])).contains("bytes"));
    worked(&["admin", "backup", "--dir", &dir, "--to", &scratch.path("copy")]);
    assert!(text(&worked(&["admin", "verify", "--dir", &scratch.path("copy")])).ends_with("sound\n"));
    for what in ["budgets", "retention"] {
        refused(&["admin", what, "--dir", &dir], "--connect URL");
    }
    refused(&["admin", "overview", "--dir", &scratch.path("nowhere")], "no Forebay store");
    refused(&["admin", "overview"], "--connect");
    refused(&["admin", "overview", "--dir", &dir, "--connect", "unix:///x"], "cannot be used with");
    refused(&["serve", "--dir", &dir, "--backup-dir", &dir], "--grpc or --socket");
    let socket = scratch.path("fb.sock");
    refused(&["serve", "--dir", &dir, "--socket", &socket, "--backup-dir", &dir], "outside of the store");
}

#[test]
fn a_server_wants_a_token_with_the_scope_admin_from_a_file_or_the_environment() {
    let scratch = Scratch::new();
    let (dir, grants) = (made(&scratch), scratch.path("grants.toml"));
    std::fs::write(
        &grants,
        "[boss]\ntoken = \"sesame\"\nscopes = [\"admin\"]\n[looker]\ntoken = \"glass\"\nscopes = [\"read\"]\n",
    )
    .unwrap();
    let words = ["--grpc", "127.0.0.1:0", "--grants", &grants, "--readers-without-token"];
    let mut served = Served::new(&dir, &words, None);
    let url = served.clients();
    let token = |word: &str| {
        let file = scratch.path(word);
        std::fs::write(&file, format!("{word}\n")).unwrap();
        file
    };
    let overview = ["admin", "overview", "--connect", &url];
    worked(&[&overview[..], &["--token-file", &token("sesame")]].concat());
    refused(&[&overview[..], &["--token-file", &token("glass")]].concat(), "has no scope admin");
    refused(&overview, "show a token");
    let of_environment = forebay(&overview).env("FOREBAY_TOKEN", "sesame").output().unwrap();
    assert!(of_environment.status.success(), "{}", stderr(&of_environment));
    let backup = ["admin", "backup", "--to", "x", "--connect", &url, "--token-file", &token("sesame")];
    refused(&backup, "--backup-dir");
}

/// A server that ends in the middle of a call leaves the same error of a pipe as a reader who has seen enough; only the latter is
/// a success.
#[test]
fn a_connection_that_ends_is_a_failure_and_a_reader_who_goes_is_none() {
    let scratch = Scratch::new();
    let socket = scratch.path("ends.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0]; // an empty SETTINGS frame of HTTP/2
            _ = connection.write_all(&settings).and_then(|()| connection.read(&mut [0; 256]));
        }
    });
    let (url, copy) = (format!("unix://{socket}"), scratch.path("copy"));
    for words in [
        vec!["verify", "--connect", &url],
        vec!["admin", "overview", "--connect", &url],
        vec!["backup", "--connect", &url, "--to", &copy],
    ] {
        let output = run(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output));
        assert!(stderr(&output).starts_with("error: "), "{words:?}: {}", stderr(&output));
    }

    let dir = made(&scratch);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command =
        forebay(&["sql", "--dir", &dir, "--format", "csv", "SELECT * FROM generate_series(1, 100000)"]);
    let output = command.stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}
