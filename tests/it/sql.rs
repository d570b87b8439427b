//! What one sees of a run with SQL.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::support::{Scratch, forebay, run_small, small_config, sql, stderr};

// FX-36
#[test]
fn the_first_micro_batch_leaves_before_the_rollouts_of_its_step_end() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    let summary = run_small(&dir, &["--workers", "1"]);
    let early = sql(
        &dir,
        "SELECT c.step, min(c.granted_at) AS first_dispatch, max(r.reward_at) AS rollout_end \
         FROM system.claims c JOIN checker r ON c.step = r.step \
         WHERE c.consumer LIKE 'train-%' GROUP BY c.step HAVING min(c.granted_at) < max(r.reward_at)",
    );
    assert!(!early.is_empty(), "no step was dispatched early");
    let overlap = &summary["overlap"];
    assert!(overlap["training_during_rollout_s"].as_f64().unwrap() > 0.0, "{overlap}");
    assert!(
        overlap["training_s"].as_f64().unwrap() >= overlap["training_during_rollout_s"].as_f64().unwrap()
    );
}

// FX-16, FX-19, FX-20, PL-12
#[test]
fn a_trajectory_can_be_followed_from_agent_to_agent() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    run_small(&dir, &["--steps", "2"]);
    let pairs = sql(
        &dir,
        "SELECT count(*) AS n FROM solver s JOIN checker c ON c.parent = 'solver/' || s.sample_id \
         AND c.policy_version = s.policy_version AND c.input_id = s.input_id \
         AND c.trajectory_id = s.trajectory_id AND c.turn = s.turn + 1 WHERE s.next_agent_id = 1",
    );
    assert_eq!(pairs[0]["n"], 32);
    let ends =
        sql(&dir, "SELECT count(*) AS n FROM checker WHERE next_agent_id IS NULL AND next_agent_id_status");
    assert_eq!(ends[0]["n"], 32);
    let lengths =
        sql(&dir, "SELECT count(*) AS n FROM solver WHERE array_length(response) <> array_length(logprobs)");
    assert_eq!(lengths[0]["n"], 0);
    let staged = sql(
        &dir,
        "SELECT count(*) AS n FROM solver WHERE NOT (prompt_at <= response_at AND response_at <= reward_at)",
    );
    assert_eq!(staged[0]["n"], 0);
}

#[test]
fn the_question_of_the_readme_is_answered_in_every_format() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    run_small(&dir, &["--steps", "2"]);
    let statement = "SELECT policy_version, count(*), avg(reward) FROM solver GROUP BY 1 ORDER BY 1";
    for (format, expected) in
        [("table", "policy_version"), ("csv", "policy_version,"), ("json", "[{\"policy_version\":0,")]
    {
        let output = forebay(&["sql", "--dir", &dir, "--format", format, statement]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(expected), "{format}: {text} {}", stderr(&output));
    }
}

#[test]
fn the_question_is_answered_inside_the_running_process() {
    let scratch = Scratch::new();
    let config = small_config();
    let arguments =
        ["run", config.to_str().unwrap(), "--dir", &scratch.path("run"), "--quiet", "--steps", "1000000"];
    let mut child =
        forebay(&[&arguments[..], &["--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0"]].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = told.next().unwrap().strip_prefix("listening on http://").unwrap().to_owned();
    let flight = told.next().unwrap().strip_prefix("Flight SQL on grpc://").unwrap().to_owned();
    TcpStream::connect(flight).unwrap();
    let ask = |statement: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let length = statement.len();
        write!(stream, "POST /sql HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{statement}").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    // The run goes on: sooner or later a version has been trained on.
    let statement = "SELECT policy_version, count(*) AS n, avg(reward) AS reward FROM solver WHERE state = 'consumed' GROUP BY 1 ORDER BY 1";
    while !ask(statement).contains("\"policy_version\":1,\"n\":16,") {
        assert!(child.try_wait().unwrap().is_none(), "the run ended early");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn bad_statements_are_refused_with_a_way_out() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    run_small(&dir, &["--steps", "1"]);
    let cases = [
        ("SELECT rewrd FROM solver", "reward"),
        ("SELECT * FROM solvr", "solver"),
        ("SELEC 1", "SELEC"),
        ("DELETE FROM solver", "read"),
        ("DROP TABLE solver", "read"),
    ];
    for (statement, expected) in cases {
        let output = forebay(&["sql", "--dir", &dir, statement]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{statement}");
        assert!(stderr(&output).contains(expected), "{statement}: {}", stderr(&output));
    }
    let missing = forebay(&["sql", "--dir", &scratch.path("nowhere"), "SELECT 1"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("no Forebay store"), "{}", stderr(&missing));
}
