//! Statements as deep as somebody likes to make them, by every way in: each is answered or refused, and the server goes on.

use std::sync::Arc;

use forebay_client::{Client, ConnectOptions, Embedded};
use forebay_query::Session;
use forebay_server::{Asked, Server};
use forebay_store::Kind;
use tonic::Code;

use crate::client::{Served, loopback};
use crate::flight::{self, ask};

fn chains(length: usize) -> Vec<String> {
    [
        ("1", "+1"),
        ("'a'", "||'a'"),
        ("1", "::int"),
        ("1", " IS NULL"),
        ("true", " OR reward = 7"),
        ("1", " UNION ALL SELECT 1"),
    ]
    .iter()
    .map(|(first, link)| match link.contains("reward") {
        true => format!("SELECT count(*) FROM solver WHERE {first}{}", link.repeat(length)),
        false => format!("SELECT {first}{}", link.repeat(length)),
    })
    .collect()
}

const LENGTHS: [usize; 3] = [100, 3_000, 10_000];

/// Ten thousand values, which are no chain.
fn list() -> String {
    let values: Vec<String> = (0..10_000).map(|value| value.to_string()).collect();
    format!("SELECT count(*) AS n FROM solver WHERE policy_version IN ({})", values.join(","))
}

#[test]
fn over_http() {
    let served = Served::new(Server::builder().body_bytes_max(1 << 20));
    for sql in LENGTHS.into_iter().flat_map(chains) {
        let reply = served.sql(&sql);
        if reply.status != 200 {
            assert!(reply.failure(400, "input").contains("1000 are the most"), "{reply:?}");
        }
        assert_eq!(served.get("/health").status, 200);
    }
    assert_eq!(served.sql(&list()).json()[0]["n"], 3);
}

#[test]
fn over_flight_sql_prepared_or_not() {
    let served = Served::new(Server::builder().flight(loopback()));
    flight::with_served(served, async |served, mut client| {
        for sql in LENGTHS.into_iter().flat_map(chains) {
            if let Err(status) = ask(&mut client, &sql).await {
                assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            }
            let prepared = client.prepare(sql, None).await;
            if let Ok(mut prepared) = prepared {
                prepared.execute().await.unwrap();
            }
            assert_eq!(served.get("/health").status, 200);
        }
        assert_eq!(ask(&mut client, &list()).await.unwrap().num_rows(), 1);
    });
}

#[test]
fn over_grpc_and_in_this_process() {
    let served = Served::new(Server::builder().grpc(loopback()));
    let address = format!("grpc://{}", served.server.grpc_address().unwrap());
    let remote = Client::connect(&address, &ConnectOptions::default()).unwrap();
    let asked = Asked::new(Session::new(&served.store).unwrap());
    let embedded = Embedded::new(served.store.clone()).with_queries(Arc::new(asked));
    for client in [remote, Client::over(Arc::new(embedded))] {
        for sql in LENGTHS.into_iter().flat_map(chains) {
            if let Err(error) = client.query(&sql) {
                assert_eq!(error.kind(), Kind::Input, "{error}");
            }
        }
        assert_eq!(client.query(&list()).unwrap().1[0].num_rows(), 1);
        let long = format!("SELECT '{}'", "x".repeat(2 << 20));
        assert!(client.query(&long).unwrap_err().to_string().contains("1048576"));
    }
}
