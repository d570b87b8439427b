//! Queries that end before their answer does, and what is counted of them.

use super::*;

#[test]
fn a_running_query_is_cancelled_by_name_and_by_going_away() {
    let endless = "SELECT value FROM generate_series(1, 1000000000000)";
    with(Server::builder(), async |served, mut client| {
        let info = client.execute(endless.to_owned(), None).await.unwrap();
        let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        let running = |count: u64| format!("forebay_running_queries{{way=\"flight\"}} {count}");
        assert!(served.get("/metrics").body.contains(&running(1)));
        let request = CancelFlightInfoRequest::new(info.clone()).encode_to_vec();
        let cancel = Action { r#type: "CancelFlightInfo".to_owned(), body: request.into() };
        // Over another connection: on its own the unread rows leave the answer no room.
        let mut other = Client::new(channel(&served).await);
        let mut answer = other.do_action(Request::new(cancel.clone())).await.unwrap();
        let answer = answer.message().await.unwrap().unwrap();
        assert_eq!(CancelFlightInfoResult::decode(&*answer.body).unwrap().status, 1);
        let error = loop {
            if let Err(error) = stream.next().await.unwrap() {
                break Status::from(error);
            }
        };
        assert_eq!(error.code(), Code::Cancelled, "{error:?}");
        drop(stream);

        let info = client.execute(endless.to_owned(), None).await.unwrap();
        let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        drop(stream);
        while !served.get("/metrics").body.contains(&running(0)) {} // the news travels
        let gone = other.do_action(Request::new(cancel)).await.map(|_| ()).unwrap_err();
        assert!(gone.to_string().contains("does not run"), "{gone}");
    });
}

/// More of them than a server has threads: it hears its clients all the while.
#[test]
fn queries_that_give_nothing_are_cancelled_too_and_hold_nobody_up() {
    let silent = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b, \
                  generate_series(1, 100000) c WHERE a.value + b.value + c.value < 3";
    with(Server::builder(), async |served, mut client| {
        let (mut infos, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let info = client.execute(silent.to_owned(), None).await.unwrap();
            asked.push(client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap());
            infos.push(info);
        }
        let running = |count: u64| format!("forebay_running_queries{{way=\"flight\"}} {count}");
        while !served.get("/metrics").body.contains(&running(5)) {}
        let mut other = Client::new(channel(&served).await);
        for (info, mut rows) in infos.into_iter().zip(asked) {
            let request = CancelFlightInfoRequest::new(info).encode_to_vec();
            let cancel = Action { r#type: "CancelFlightInfo".to_owned(), body: request.into() };
            other.do_action(Request::new(cancel)).await.unwrap();
            let error = loop {
                if let Err(error) = rows.next().await.unwrap() {
                    break Status::from(error);
                }
            };
            assert_eq!(error.code(), Code::Cancelled, "{error:?}");
        }
        while !served.get("/metrics").body.contains(&running(0)) {}
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1, "the threads are free");
    });
}

/// As drivers of before Flight SQL 15 ask.
#[test]
fn a_running_query_is_cancelled_by_the_older_action_too() {
    with(Server::builder(), async |_, mut client| {
        let endless = "SELECT value FROM generate_series(1, 1000000000000)";
        let info = client.execute(endless.to_owned(), None).await.unwrap();
        let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        let request = ActionCancelQueryRequest { info: info.encode_to_vec().into() };
        let action =
            Action { r#type: "CancelQuery".to_owned(), body: request.as_any().encode_to_vec().into() };
        // Unread rows would fill the connection, and leave the answer no room: they are read meanwhile.
        let mut other = client.inner().clone();
        let cancelled = async {
            let mut answer = other.do_action(action).await.unwrap().into_inner();
            let answer = answer.message().await.unwrap().unwrap();
            Any::decode(&*answer.body).unwrap().unpack::<ActionCancelQueryResult>().unwrap().unwrap().result
        };
        let read_on = async {
            loop {
                if let Err(error) = stream.next().await.unwrap() {
                    break Status::from(error).code();
                }
            }
        };
        assert_eq!(futures_util::future::join(cancelled, read_on).await, (1, Code::Cancelled));
    });
}

#[test]
fn queries_are_counted_by_way_and_by_kind_of_failure() {
    with(Server::builder(), async |served, mut client| {
        ask(&mut client, "SELECT 1").await.unwrap();
        let info = client.execute("SELECT policy_version / 0 FROM solver".to_owned(), None).await.unwrap();
        rows(&mut client, info).await.unwrap_err();
        served.sql("SELECT 1");
        served.sql("DROP TABLE solver");
        let page = served.get("/metrics").body;
        for line in [
            "forebay_queries_total{way=\"flight\"} 2",
            "forebay_queries_total{way=\"http\"} 2",
            "forebay_queries_failed_total{way=\"flight\",kind=\"input\"} 1",
            "forebay_queries_failed_total{way=\"http\",kind=\"read_only\"} 1",
            "forebay_running_queries{way=\"http\"} 0",
        ] {
            assert!(page.lines().any(|there| there == line), "{line}:\n{page}");
        }
    });
}

#[test]
fn a_server_stops_while_clients_are_connected() {
    let served = Served::new(Server::builder().flight(loopback()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut client = runtime.block_on(async { Client::new(channel(&served).await) });
    runtime.block_on(ask(&mut client, "SELECT 1")).unwrap();
    served.server.stopper().stop();
    served.server.wait();
    assert!(runtime.block_on(ask(&mut client, "SELECT 1")).is_err());
}

#[test]
fn readers_of_flight_sql_who_stop_give_their_turns_back() {
    let builder = Server::builder().flight(loopback()).piece_time_max(Duration::from_millis(300));
    with_served(Served::new(builder), async |served, mut client| {
        let large = "SELECT value, repeat('x', 1000) AS text FROM generate_series(1, 40000)";
        let mut held = Vec::new();
        for _ in 0..16 {
            let mut slow = Client::new(channel(&served).await);
            let info = slow.execute(large.to_owned(), None).await.unwrap();
            let ticket = info.endpoint[0].ticket.clone().unwrap();
            held.push((slow.inner_mut().do_get(ticket).await.unwrap().into_inner(), slow));
        }
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1);
        let metrics = samples_at(served.server.address().unwrap());
        assert!(metrics["forebay_answers_abandoned_total"] >= 1.0, "{metrics:?}");
        let (mut slow, _client) = held.swap_remove(0);
        let ended = loop {
            match slow.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(status) => break Some(status.code()),
            }
        };
        assert_eq!(ended, Some(Code::DeadlineExceeded), "no answer that is cut off looks whole");
    });
}
