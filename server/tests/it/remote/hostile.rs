//! Clients that lie: refused, and nobody else is touched.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use forebay_client::wire;
use forebay_client::wire::proto::*;
use forebay_client::{Ask, Changes, Client, Plan, Role};
use forebay_server::Server;
use forebay_store::{Gang, Kind, NewRow, Row, Split, Value, Wait};
use tonic::Code;

use super::raw::{Raw, insert};
use crate::conformance::*;

// A small question about large cells, again and again in one call: refused before anything of the answer is made.
#[test]
fn a_cell_that_is_asked_for_a_hundred_thousand_times_takes_no_memory() {
    let world = World::new(Way::Tcp);
    let client = world.client();
    let table = solver(&client);
    let wide = "w".repeat(1 << 20);
    let row = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", (&*wide).into())]).unwrap();
    let error = table.cells(&vec![row; 100_000], "prompt").unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::Capacity, "Answers"), "{error}");
    assert_eq!(table.cells(&[row; 3], "prompt").unwrap().len(), 3, "the rest of it is there");
    let judge = judge(&client);
    table.write(row, [("response", vec![1_i32].into())]).unwrap();
    let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
    let error = claim.cells(vec!["prompt"; 100_000]).unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::Input, "TooLarge"), "{error}");
    assert_eq!(claim.cells(["prompt"]).unwrap().len(), 1);
}

#[test]
fn rows_that_were_made_up_are_refused() {
    on_every_remote_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let real = row(&table, 0, "q_0_0", None);
        let bytes = real.to_bytes();
        for at in 0..bytes.len() {
            let mut forged = bytes;
            forged[at] ^= 0x41;
            let forged = Row::from_bytes(forged);
            let mut changes = Changes::new();
            changes.write("solver", forged, [("reward", 1.0.into())]);
            let error = client.write(&changes).unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::Input, "Unknown"), "byte {at}: {error}");
            assert!(
                table.cell(forged, "reward").is_err()
                    && table.append(forged, "response", vec![1_i32].into()).is_err()
            );
        }
        table.write(real, [("reward", 1.0.into())]).unwrap();
    });
}

fn on_every_remote_way(case: impl Fn(&World)) {
    [Way::Socket, Way::Tcp].into_iter().for_each(|way| case(&World::new(way)));
}

#[test]
fn a_message_that_is_too_large_is_refused_before_it_is_sent() {
    let world = World::new(Way::Tcp);
    let client = world.client();
    let table = solver(&client);
    let row = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", "?".into())]).unwrap();
    let numbers = vec![0_i32; 20 << 20];
    let error = table.write(row, [("response", Value::from(numbers))]).unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::Input, "TooLarge"), "{error}");
    assert!(error.to_string().contains(&wire::MESSAGE_BYTES_MAX.to_string()), "{error}");
    table.write(row, [("response", vec![1_i32].into())]).unwrap();
}

#[test]
fn calls_without_a_session_or_a_name_are_refused_and_names_are_for_one_call() {
    let world = World::new(Way::Tcp);
    let table = solver(&Client::embedded(world.store.clone()));
    let raw = Raw::connect(&world);
    let session = raw.session.clone();
    for (what, session, name, code) in [
        ("no session", &[][..], &[7; 16][..], Code::FailedPrecondition),
        ("another session", &[9; 16], &[7; 16], Code::FailedPrecondition),
        ("a long session", &[session.clone(), vec![0]].concat(), &[7; 16], Code::FailedPrecondition),
        ("no name", &session, &[], Code::InvalidArgument),
        ("a short name", &session, &[7; 15], Code::InvalidArgument),
    ] {
        assert_eq!(raw.write(insert("q_0_0"), session, name).unwrap_err(), code, "{what}");
    }
    for (what, message) in [
        ("no changes", WriteRequest::default()),
        (
            "a change of nothing",
            WriteRequest {
                changes: Some(wire::proto::Changes {
                    changes: vec![Change::default()],
                    ..Default::default()
                }),
            },
        ),
    ] {
        assert_eq!(
            raw.write(
                message,
                &session,
                what.as_bytes().first_chunk::<8>().map(|c| [*c, *c].concat()).unwrap().as_slice()
            )
            .unwrap_err(),
            Code::InvalidArgument,
            "{what}"
        );
    }
    assert_eq!(table.counts().unwrap().written, 0);
    let first = raw.write(insert("q_0_0"), &session, &[1; 16]).unwrap();
    assert_eq!(raw.write(insert("other_0_0"), &session, &[1; 16]).unwrap(), first, "the answer of the first");
    assert_eq!(table.counts().unwrap().written, 1);
    let request =
        raw.request(MaintainRequest { what: Some(maintain_request::What::Sync(true)) }, &session, &[1; 16]);
    let mut client = raw.client.clone();
    let reused = raw.runtime.block_on(async move { client.maintain(request).await });
    assert_eq!(reused.unwrap_err().code(), Code::InvalidArgument, "the name of another call");
    let request =
        raw.request(MaintainRequest { what: Some(maintain_request::What::Sync(true)) }, &session, &[2; 16]);
    let mut client = raw.client.clone();
    raw.runtime.block_on(async move { client.maintain(request).await }).unwrap();
    assert_eq!(raw.write(insert("q_0_1"), &session, &[2; 16]).unwrap_err(), Code::InvalidArgument);
}

#[test]
fn bytes_that_are_no_protocol_disturb_nobody() {
    let world = World::new(Way::Tcp);
    let client = world.client();
    let table = solver(&client);
    let address = world.server.as_ref().unwrap().grpc_address().unwrap();
    for noise in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\0\0\0\0",
        &[0xff; 4096],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff",
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = stream.write_all(noise);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer); // whatever it says, it ends
        row(&table, 0, &format!("n{}_0_?", noise.len()), None);
    }
    assert_eq!(table.counts().unwrap().written, 4);
}

#[test]
fn one_connection_more_than_may_be_is_closed_and_the_others_are_not() {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap()).connections_max(2);
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    world.way = Way::Tcp;
    let options = || {
        forebay_client::ConnectOptions::default()
            .connect_time_max(Duration::from_secs(2))
            .outage_time_max(Duration::ZERO)
    };
    let connect = || Client::connect(&world.address(), &options());
    let (one, other) = (connect().unwrap(), connect().unwrap());
    assert_eq!(connect().unwrap_err().kind(), Kind::Retry);
    let table = solver(&one);
    let judge = judge(&other);
    row(&table, 0, "q_0_0", None);
    assert!(judge.claim(up_to(1), Wait::No).unwrap().is_some());
}

// Columns of a claim are refused that would be gathered again and again, or more of them than a table has, before anybody waits.
#[test]
fn a_column_that_is_asked_for_twice_is_refused_and_so_are_too_many_before_a_wait_begins() {
    let world = World::new(Way::Tcp);
    let client = world.client();
    let (table, judge) = (solver(&client), judge(&client));
    row(&table, 0, "q_0_0", Some(1.0));
    let twice = ["response", "prompt", "response"];
    let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
    for error in [
        claim.columns(twice).unwrap_err(),
        claim.cells(twice).unwrap_err(),
        judge.claim_with(up_to(1), LONG, &twice).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "ColumnTwice"), "{error}");
        assert!(error.to_string().contains("\"response\""), "{error}");
    }
    assert_eq!(claim.columns(["response", "prompt"]).unwrap().num_columns(), 2);
    let many: Vec<String> = (0..257).map(|at| format!("c{at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = judge.claim_with(up_to(1), LONG, &many).unwrap_err(); // nothing is there to be claimed
    assert_eq!((error.kind(), error.cause()), (Kind::Input, "TooLarge"), "{error}");
    assert!(error.to_string().contains("257") && error.to_string().contains("256"), "{error}");
    let raw = Raw::connect(&world);
    let subscribe = SubscribeRequest {
        consumer: "judge".to_owned(),
        rule: Some(wire::from_micro_batch(&up_to(1))),
        columns: many.iter().map(|name| (*name).to_owned()).collect(),
        ..SubscribeRequest::default()
    };
    let (mut client, request) = (raw.client.clone(), raw.request(subscribe, &raw.session, &[1; 16]));
    let refused = raw.runtime.block_on(async move { client.subscribe(request).await }).unwrap_err();
    assert_eq!(wire::failure_of(&refused).unwrap().cause(), "TooLarge", "{refused}");
}

#[test]
fn the_name_of_an_owner_is_kept_so_it_is_short() {
    let world = World::new(Way::Tcp);
    let options = |bytes: usize| {
        forebay_client::ConnectOptions::default().owner(&"o".repeat(bytes)).outage_time_max(Duration::ZERO)
    };
    let client = Client::connect(&world.address(), &options(256)).unwrap();
    let (table, judge) = (solver(&client), judge(&client));
    row(&table, 0, "q_0_0", None);
    let long = "o".repeat(257);
    let ask = |owner| Ask { consumer: "judge", rule: up_to(1), role: Role::Task, owner, columns: &[] };
    for error in [
        Client::connect(&world.address(), &options(257)).unwrap_err(),
        client.connection().claim(&ask(Some(&long)), LONG).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "TooLarge"), "{error}");
        assert!(error.to_string().contains("257") && error.to_string().contains("256"), "{error}");
    }
    assert!(judge.claim(up_to(1), Wait::No).unwrap().is_some(), "who was refused has taken nothing");
    assert_eq!(world.store.claims().len(), 1);
}

#[test]
fn a_gang_has_a_short_name_and_no_more_ranks_than_rows_can_be_dealt_out_to() {
    let world = World::new(Way::Tcp);
    let client = world.client();
    let table = solver(&client);
    trainer(&client);
    row(&table, 0, "q_0_0", Some(1.0));
    let step = client.begin_step(&Plan::new().rows("train", 1)).unwrap();
    let join = |name: &str, world| {
        let gang = Gang::new(name, 0, world).split(Split::Balanced);
        client.connection().join_step(step.number(), "train", &gang)
    };
    let error = join(&"g".repeat(257), 2).unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::Input, "TooLarge"), "{error}");
    assert!(error.to_string().contains("257") && error.to_string().contains("256"), "{error}");
    let error = join("ranks", u32::MAX).unwrap_err();
    assert_eq!(error.kind(), Kind::Input, "{error}");
    assert!(error.to_string().contains("4294967295 ranks") && error.to_string().contains("65536"), "{error}");
    let member = join(&"g".repeat(256), 1 << 16).unwrap();
    let role = Role::Member(member);
    let ask = Ask { consumer: "train", rule: up_to(1), role, owner: None, columns: &[] };
    assert!(client.connection().claim(&ask, Wait::No).unwrap().is_some());
}
