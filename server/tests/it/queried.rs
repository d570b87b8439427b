//! `POST /sql`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use forebay_server::{Grant, Server, Token};
use serde_json::json;

use crate::client::{Served, send};

/// Longer than anything here takes, on any machine.
const LONG: Duration = Duration::from_secs(60);
const SQL: &str = "SELECT sample_id, reward, excluded_reason FROM solver ORDER BY sample_id";

#[test]
fn an_answer_comes_in_the_form_that_was_asked_for() {
    let served = Served::new(Server::builder());
    let reply = served.sql(SQL);
    assert_eq!((reply.status, reply.content_type.as_str()), (200, "application/json"));
    let expected = json!([
        {"sample_id": "q1_0_0", "reward": 1.0, "excluded_reason": null},
        {"sample_id": "q2_0_0", "reward": 0.5, "excluded_reason": null},
        {"sample_id": "q3_0_0", "reward": null, "excluded_reason": "too \"long\""},
    ]);
    assert_eq!(reply.json(), expected);

    let reply = served.sql_as("text/csv", SQL);
    assert!(reply.content_type.starts_with("text/csv"));
    assert_eq!(
        reply.body,
        "sample_id,reward,excluded_reason\nq1_0_0,1.0,\nq2_0_0,0.5,\nq3_0_0,,\"too \"\"long\"\"\"\n"
    );
    let reply = served.sql_as("text/plain", SQL);
    assert!(reply.body.contains("│ q1_0_0") && reply.body.ends_with("3 rows\n"), "{}", reply.body);
    assert!(served.sql_as("image/png", SQL).failure(406, "input").contains("text/csv"));
}

#[test]
fn a_failed_query_says_what_to_do_next() {
    let served = Served::new(Server::builder());
    assert!(served.sql("SELECT rewrd FROM solver").failure(400, "input").contains("did you mean reward?"));
    assert!(served.sql("SELEC 1").failure(400, "input").contains("SELEC"));
    assert!(served.sql("").failure(400, "input").contains("no statement"));
    assert!(served.sql("DELETE FROM solver").failure(403, "read_only").contains("Table::delete"));
    let to = served.server.address().unwrap();
    assert!(send(to, "POST", "/sql", &[], b"SELECT '\xff'").failure(400, "input").contains("UTF-8"));
    assert!(send(to, "GET", "/sql", &[], b"").failure(405, "input").contains("POST"));
    assert!(served.get("/").failure(404, "input").contains("/metrics"));
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let served = Served::new(Server::builder().body_bytes_max(100));
    served.sql(&format!("SELECT '{}'", "x".repeat(200))).failure(413, "input");
    assert_eq!(served.sql("SELECT 1").status, 200);
}

const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE value % 7 = 3";

/// It gives nothing, and never comes back to whoever polls it.
const SILENT: &str = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b, \
                      generate_series(1, 100000) c WHERE a.value + b.value + c.value < 3";

#[test]
fn a_query_that_takes_too_long_is_ended() {
    let served = Served::new(Server::builder().query_time_max(Duration::from_millis(50)));
    for endless in [ENDLESS, SILENT] {
        assert!(served.sql(endless).failure(503, "capacity").contains("query_time_max"));
    }
    let running = "forebay_running_queries{way=\"http\"} 0";
    while !served.get("/metrics").body.contains(running) {} // its place is free once nobody computes any more
}

#[test]
fn a_query_beyond_the_memory_budget_is_ended() {
    let served = Served::new(Server::builder().query_memory_bytes_max(1 << 20).query_spill_bytes_max(0));
    let sql = "SELECT value % 1000 AS v, value FROM generate_series(1, 1000000) ORDER BY v DESC";
    assert!(served.sql(sql).failure(503, "capacity").contains("memory_bytes_max"));
}

#[test]
fn busy_queries_leave_room_for_health() {
    let served = Served::new(Server::builder().query_time_max(Duration::from_secs(2)));
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..4).map(|_| scope.spawn(|| served.sql(ENDLESS))).collect();
        while !busy.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert_eq!(served.get("/health").status, 200);
        }
        for query in busy {
            query.join().unwrap().failure(503, "capacity");
        }
    });
}

/// Asks with that token, and leaves the answer where it is.
fn asked(to: SocketAddr, token: &str, sql: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    let (shown, bytes) = (format!("Authorization: Bearer {token}"), sql.len());
    let request =
        format!("POST /sql HTTP/1.1\r\nHost: {to}\r\n{shown}\r\nContent-Length: {bytes}\r\n\r\n{sql}");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Whether there is an answer, and no refusal, in good time.
fn is_answered(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).is_ok() && status == *b"HTTP/1.1 200"
}

#[test]
fn one_caller_keeps_no_turn_from_others_and_who_goes_gives_his_back() {
    let grant = |name: &str| Grant::new(name, Token::new(name).unwrap());
    let builder = Server::builder().query_time_max(10 * LONG);
    let served = Served::new(builder.grant(grant("greedy")).grant(grant("other")));
    let (to, shown) = (served.server.address().unwrap(), [("Authorization", "Bearer other")]);
    let metrics = || send(to, "GET", "/metrics", &shown, b"").body;
    let running = |count: u64| format!("forebay_running_queries{{way=\"http\"}} {count}\n");
    let greedy: Vec<TcpStream> = (0..8).map(|_| asked(to, "greedy", ENDLESS)).collect();
    let until = |count| {
        let since = Instant::now();
        while !metrics().contains(&running(count)) {
            assert!(since.elapsed() < LONG, "not {count} run");
        }
    };
    until(8); // those that wait for their turn among them
    assert!(is_answered(asked(to, "other", "SELECT 1 AS one")));
    assert!(!metrics().contains("forebay_queries_failed_total{way=\"http\""), "nobody's time was over");
    drop(greedy);
    until(0);
    assert!(is_answered(asked(to, "greedy", "SELECT 1 AS one")));
}

#[test]
fn an_answer_over_http_takes_no_more_memory_than_queries_may() {
    let served = Served::new(Server::builder().query_memory_bytes_max(16 << 20));
    let message = served
        .sql("SELECT value, repeat('x', 1000) AS text FROM generate_series(1, 40000)")
        .failure(503, "capacity");
    assert!(message.contains("16777216") && message.contains("Flight"), "{message}");
    let few = served.sql("SELECT value, repeat('x', 1000) AS text FROM generate_series(1, 1000)");
    assert_eq!(few.json().as_array().unwrap().len(), 1000, "what the other took is free");
    // What is written out is counted, too: numbers are longer in a document than in memory.
    let wide = "SELECT value + 1000000000000 AS a_column_whose_name_is_long FROM generate_series(1, 400000)";
    assert!(served.sql(wide).failure(503, "capacity").contains("together"));
}
