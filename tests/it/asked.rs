//! `forebay sql` and `forebay serve` beside a process that writes the store: this one.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use forebay::client::{Client, ConnectOptions};
use forebay::store::{DataType, NewRow, Options, Schema, Store};

use crate::support::{Scratch, Served, forebay, small_config, stderr};

/// A store with three samples, which stays open for writing.
fn store(scratch: &Scratch) -> (Store, String) {
    let dir = scratch.path("store");
    let store = Store::open(&dir, Options::default()).unwrap();
    let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
    for (sample, reward) in [("q1_0_0", 1.0), ("q1_0_1", 0.5), ("q2_0_0", 0.0)] {
        solver.insert(0, sample, [("reward", reward.into())]).unwrap();
    }
    (store, dir)
}

fn sql(dir: &str, more: &[&str]) -> Output {
    forebay(&[&["sql", "--dir", dir], more].concat()).output().unwrap()
}

/// Asks through a pipe.
fn piped(dir: &str, more: &[&str], text: &str) -> Output {
    let mut command = forebay(&[&["sql", "--dir", dir], more].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const STATEMENTS: &str = "/* two; */ SELECT count(*) AS n FROM solver; -- the first;\nSELECT 'a;b' AS t";

#[test]
fn statements_from_a_pipe_a_file_or_an_argument_are_answered_in_order() {
    let scratch = Scratch::new();
    let (_store, dir) = store(&scratch);
    let file = scratch.path("statements.sql");
    std::fs::write(&file, STATEMENTS).unwrap();
    for output in [
        piped(&dir, &["--format", "csv"], STATEMENTS),
        sql(&dir, &["--format", "csv", "--file", &file]),
        sql(&dir, &["--format", "csv", STATEMENTS]),
    ] {
        assert_eq!(stdout(&output), "n\n3\nt\na;b\n");
    }
    let failing = piped(&dir, &["--format", "csv"], "SELECT 1 AS one; SELECT rewrd FROM solver; SELECT 2");
    assert_eq!(failing.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&failing.stdout), "one\n1\n", "what came before was answered");
    assert!(stderr(&failing).contains("did you mean reward?"), "{}", stderr(&failing));
    let nothing = piped(&dir, &[], " -- nothing\n");
    assert_eq!(nothing.status.code(), Some(2));
    assert!(stderr(&nothing).contains("no statement"), "{}", stderr(&nothing));
}

/// A tokenizer of two words.
fn tokenizer(scratch: &Scratch) -> String {
    let file = scratch.path("tokenizer.json");
    let words = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "no", "vocab": {"no": 0, "yes": 1}}}"#;
    std::fs::write(&file, words).unwrap();
    file
}

#[test]
fn tokens_are_read_with_the_tokenizers_that_are_given() {
    let scratch = Scratch::new();
    let (_store, dir) = store(&scratch);
    let file = tokenizer(&scratch);
    let statement = "SELECT detokenise([1, 0]) AS text";
    let ask = |tokenizers: &[&str], statement: &str| {
        let given = tokenizers.iter().flat_map(|tokenizer| ["--tokenizer", tokenizer]);
        sql(&dir, &given.chain(["--format", "csv", statement]).collect::<Vec<_>>())
    };
    assert_eq!(stdout(&ask(&[&file], statement)), "text\nyes no\n");
    let (one, two) = (format!("one={file}"), format!("two={file}"));
    let named = "SELECT detokenise([1], 'two') AS text";
    assert_eq!(stdout(&ask(&[&one, &two], named)), "text\nyes\n");
    let comma = scratch.path("one,two.json");
    std::fs::copy(&file, &comma).unwrap();
    assert_eq!(stdout(&ask(&[&comma], statement)), "text\nyes no\n", "a comma may be part of a path");
    for (empty, said) in [("", "names no file"), ("one=", "names no file"), ("=a.json", "is empty")] {
        let refused = ask(&[&file, empty], statement);
        assert_eq!(refused.status.code(), Some(2), "{empty:?}");
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
    }
    assert!(stderr(&ask(&[&one, &two], statement)).contains("name one of \"one\", \"two\""));
    assert!(stderr(&ask(&[], statement)).contains("--tokenizer"));
    let missing = ask(&["nowhere.json"], statement);
    assert!(stderr(&missing).contains("nowhere.json"), "{}", stderr(&missing));
}

#[test]
fn an_answer_goes_into_a_file_in_the_format_of_its_name() {
    let scratch = Scratch::new();
    let (_store, dir) = store(&scratch);
    let select = "SELECT sample_id, reward FROM solver ORDER BY 1";
    for (name, begins, ends) in [
        ("a.parquet", &b"PAR1"[..], &b"PAR1"[..]),
        ("a.arrow", &[0xff; 4], &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
        ("a.csv", b"sample_id,reward\nq1_0_0,1.0\n", b"q2_0_0,0.0\n"),
        ("a.json", b"[{\"sample_id\":", b"}]\n"),
        ("a.txt", "┌".as_bytes(), b"3 rows\n"),
    ] {
        let file = scratch.path(name);
        assert_eq!(stdout(&sql(&dir, &["--output", &file, select])), "", "{name}");
        let bytes = std::fs::read(&file).unwrap();
        assert!(bytes.starts_with(begins) && bytes.ends_with(ends), "{name}: {bytes:?}");
    }
    // What fails on the way leaves nothing, and what was there stays.
    let file = scratch.path("a.csv");
    let before = std::fs::read(&file).unwrap();
    let failing = "SELECT 1 / (2 - value) FROM generate_series(1, 2)";
    assert_eq!(sql(&dir, &["--output", &file, failing]).status.code(), Some(2));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert!(!std::fs::exists(scratch.path("a.csv.unfinished")).unwrap());
    let two = sql(&dir, &["--format", "arrow", "SELECT 1; SELECT 2"]);
    assert_eq!(two.status.code(), Some(2));
    assert!(stderr(&two).contains("one by one"), "{}", stderr(&two));
    let texts = scratch.path("texts.csv");
    let two = sql(&dir, &["--output", &texts, "SELECT 1 AS a; SELECT 2 AS b"]);
    assert_eq!(two.status.code(), Some(2), "the second answer would take the place of the first");
    assert!(stderr(&two).contains("one by one") && !Path::new(&texts).exists(), "{}", stderr(&two));
    let piped_bytes = sql(&dir, &["--format", "parquet", select]).stdout;
    assert!(piped_bytes.starts_with(b"PAR1"), "a pipe takes bytes");
}

#[test]
fn limits_are_kept_and_told() {
    let scratch = Scratch::new();
    let (_store, dir) = store(&scratch);
    let cut = sql(&dir, &["--rows-max", "2", "--format", "csv", "SELECT sample_id FROM solver ORDER BY 1"]);
    assert_eq!(stdout(&cut), "sample_id\nq1_0_0\nq1_0_1\n");
    assert!(stderr(&cut).contains("beyond the row limit"), "{}", stderr(&cut));
    let table = sql(&dir, &["--rows-max", "2", "SELECT sample_id FROM solver"]);
    assert!(stdout(&table).ends_with("2 rows; there are more, beyond the row limit\n"));
    let none = sql(&dir, &["--rows-max", "0", "SELECT 1"]);
    assert_eq!(none.status.code(), Some(2), "0 could mean none or all");
    assert!(stderr(&none).contains("--rows-max"), "{}", stderr(&none));
    let endless = "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE value % 7 = 3";
    let late = sql(&dir, &["--time-max-s", "1", endless]);
    assert_eq!(late.status.code(), Some(2));
    assert!(stderr(&late).contains("longer than 1s"), "{}", stderr(&late));
    let sort = "SELECT value FROM generate_series(1, 3000000) ORDER BY value * 7919 % 3000017";
    let spilled = sql(&dir, &["--memory-bytes-max", "16000000", "--rows-max", "1", "--format", "csv", sort]);
    assert!(stdout(&spilled).starts_with("value\n"));
}

#[test]
fn a_store_is_served_beside_its_writer_and_shows_what_comes() {
    let scratch = Scratch::new();
    let (store, dir) = store(&scratch);
    let served = Served::new(&dir, &[], None);
    let count = "SELECT count(*) AS n FROM solver";
    assert!(served.ask(count, "").ends_with("\r\n\r\nn\n3\n"));
    store.table("solver").unwrap().insert(0, "q3_0_0", []).unwrap();
    assert!(served.ask(count, "").ends_with("\r\n\r\nn\n4\n"));
    assert!(served.ask("DELETE FROM solver", "").contains("read_only"));
}

#[test]
fn a_server_that_checks_values_gives_none_that_is_damaged() {
    let scratch = Scratch::new();
    let (store, dir) = store(&scratch);
    let text = "what is two and two?";
    let asked = store.create_table("asked", Schema::new().data("prompt", DataType::Utf8)).unwrap();
    asked.insert(0, "q1_0_0", [("prompt", text.into())]).unwrap();
    drop((asked, store));
    let extents = std::fs::read_dir(Path::new(&dir).join("extents")).unwrap();
    for file in extents.map(|file| file.unwrap().path()) {
        let mut bytes = std::fs::read(&file).unwrap();
        let found = bytes.windows(text.len()).position(|part| part == text.as_bytes());
        found.into_iter().for_each(|at| bytes[at] ^= 0x20);
        std::fs::write(&file, bytes).unwrap();
    }
    let answer = |options: &[&str]| Served::new(&dir, options, None).ask("SELECT prompt FROM asked", "");
    assert!(answer(&[]).contains("What is two"), "nobody looks");
    let clients = ["--check-values", "--socket", &scratch.path("clients.sock")];
    for checking in [&["--check-values"][..], &clients] {
        let refused = answer(checking);
        assert!(refused.contains("corrupt") && refused.contains("does not match its checksum"), "{refused}");
    }
}

#[test]
fn what_is_served_reads_tokens_by_flag_by_variable_and_by_file() {
    let scratch = Scratch::new();
    let (_store, dir) = store(&scratch);
    let file = tokenizer(&scratch);
    let named = "SELECT detokenise([1, 0], 'two') AS text";
    let several = format!("one={file},two={file}");
    let config = scratch.path("serve.toml");
    std::fs::write(&config, "tokenizer = \"two=tokenizer.json\"").unwrap();
    let (one, two) = (format!("one={file}"), format!("two={file}"));
    for words in [&["--tokenizer", &one, "--tokenizer", &two][..], &["--config", &config]] {
        let served = Served::new(&dir, words, None);
        assert!(served.ask(named, "").ends_with("\r\n\r\ntext\nyes no\n"), "{words:?}");
    }
    let mut command = forebay(&["serve", "--dir", &dir]);
    command.env("FOREBAY_SERVE_TOKENIZER", &several);
    assert!(Served::of(command).ask(named, "").ends_with("\r\n\r\ntext\nyes no\n"));
    let without = Served::new(&dir, &[], None).ask(named, "");
    assert!(without.contains("`forebay serve`") && without.contains("`forebay.open`"), "{without}");
    let refused = forebay(&["serve", "--dir", &dir, "--tokenizer", "nowhere.json"]).output().unwrap();
    assert!(stderr(&refused).contains("nowhere.json"), "{}", stderr(&refused));
    let small = small_config();
    let run = ["run", small.to_str().unwrap(), "--dir", &scratch.path("run"), "--tokenizer"];
    for (words, named) in [
        (&["nowhere.json", "--listen", "127.0.0.1:0"][..], "nowhere.json"),
        (&[file.as_str()][..], "--listen"),
    ] {
        let refused = forebay(&[&run[..], words].concat()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(named), "{}", stderr(&refused));
    }
    assert!(!Path::new(&scratch.path("run")).exists());
}

#[test]
fn a_token_comes_from_the_environment_or_a_file_and_is_asked_for() {
    let scratch = Scratch::new();
    let (_store, dir) = store(&scratch);
    let served = Served::new(&dir, &[], Some("sesame"));
    assert!(served.ask("SELECT 1", "").starts_with("HTTP/1.1 401"));
    assert!(served.ask("SELECT 1", "Authorization: Bearer sesame\r\n").starts_with("HTTP/1.1 200"));
    let file = scratch.path("token");
    std::fs::write(&file, "two words").unwrap();
    let refused = forebay(&["serve", "--dir", &dir, "--token-file", &file]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("token") && !stderr(&refused).contains("two words"));
    let open = forebay(&["serve", "--dir", &dir, "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(open.status.code(), Some(2));
    assert!(stderr(&open).contains("set a token"), "{}", stderr(&open));
}

#[test]
fn who_may_open_the_socket_is_said_with_who_may_do_what() {
    let scratch = Scratch::new();
    let (_store, dir) = store(&scratch);
    let (socket, grants) = (scratch.path("fb.sock"), scratch.path("grants.toml"));
    std::fs::write(&grants, "[rollouts]\ntoken = \"sesame\"\nscopes = [\"write\"]\n").unwrap();
    let refused = |words: &[&str], named: &str| {
        let output = forebay(&[&["serve", "--dir", &dir], words].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(named), "{words:?}: {}", stderr(&output));
    };
    refused(&["--socket-mode", "660"], "--socket");
    refused(&["--socket", &socket, "--socket-mode", "668"], "668");
}

#[test]
fn a_store_that_a_server_makes_is_its_user_s_alone() {
    let scratch = Scratch::new();
    let (dir, socket, grants) =
        (scratch.path("made/store"), scratch.path("fb.sock"), scratch.path("grants.toml"));
    std::fs::write(&grants, "[rollouts]\ntoken = \"sesame\"\nscopes = [\"write\"]\n").unwrap();
    let served =
        Served::new(&dir, &["--socket", &socket, "--grants", &grants, "--readers-without-token"], None);
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(served.ask("SELECT 1", "").starts_with("HTTP/1.1 200"), "it was told to");
    drop(served);
    // With a token of its own the doors are not open either; and what somebody else has made stays as it is.
    let dir = scratch.path("given");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o750)).unwrap();
    let served = Served::new(&dir, &["--socket", &socket, "--grants", &grants], Some("sesame"));
    assert!(served.ask("SELECT 1", "").starts_with("HTTP/1.1 401"));
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o750);
}

/// The command, which may open so many files at most.
fn with_handles(count: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let run = format!("ulimit -n {count}; exec \"$0\" \"$@\"");
    command.args(["-c", &run, env!("CARGO_BIN_EXE_forebay")]).args(arguments).stdin(Stdio::null());
    command
}

#[test]
fn connections_that_say_nothing_leave_the_store_its_files() {
    let scratch = Scratch::new();
    let (dir, socket) = (scratch.path("store"), scratch.path("fb.sock"));
    let words = ["serve", "--dir", &dir, "--socket", &socket, "--first-call-time-max", "3600"];
    let served = Served::of(with_handles(128, &words));
    let client =
        Client::connect(&format!("unix://{socket}"), &ConnectOptions::default().neighbour(false)).unwrap();
    let table = client.create_table("solver", Schema::new().data("prompt", DataType::Utf8)).unwrap();
    let silent: Vec<UnixStream> = (0..300).map_while(|_| UnixStream::connect(&socket).ok()).collect();
    let is_closed = |silent: &&UnixStream| {
        silent.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut silent = *silent;
        matches!(silent.read(&mut [0]), Ok(0)) || silent.write(&[0]).is_err()
    };
    let patience = Instant::now() + Duration::from_secs(60);
    while silent.iter().filter(is_closed).count() < 150 {
        assert!(Instant::now() < patience, "of {}", silent.len());
    }
    let large = "x".repeat(1 << 20);
    for at in 0..40 {
        let row = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
        table.insert(row, [("prompt", large.as_str().into())]).unwrap();
    }
    client.checkpoint().unwrap();
    assert_eq!(table.counts().unwrap().written, 40);
    drop(served);
}
