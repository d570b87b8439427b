//! Tokens, scopes, tables, TLS, sockets.

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use forebay_client::{Changes, Client, ConnectOptions, Error, Plan};
use forebay_server::{Builder, Grant, Scope, Server, Token};
use forebay_store::{
    BackupOptions, DataType, Delete, Dtype, Expected, Kind, Layout, NewRow, Options, Peek, Retention, Rewind,
    Row, Schema, Store, Wait,
};

use crate::conformance::*;

fn token(word: &str) -> Token {
    Token::new(word).unwrap()
}

/// A served store with a table and a row, whose boss has made them.
fn granted() -> (World, String) {
    let mut world = World::new(Way::Embedded);
    let grants = [
        Grant::new("boss", token("boss-token")),
        Grant::new("looker", token("looker-token")).scopes([Scope::Read]),
        Grant::new("rollouts", token("rollouts-token")).scopes([Scope::Write]).tables(["solver"]),
        Grant::new("trainer", token("trainer-token")).scopes([Scope::Train]),
    ];
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    let builder = grants.into_iter().fold(builder, Builder::grant);
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("grpc://{}", server.grpc_address().unwrap());
    world.server = Some(server);
    let local = Client::embedded(world.store.clone());
    let table = solver(&local);
    judge(&local);
    trainer(&local);
    local.create_table("checker", Schema::new().data("verdict", DataType::Utf8)).unwrap();
    row(&table, 0, "q_0_0", Some(1.0));
    (world, address)
}

fn connect(address: &str, token: &str) -> Result<Client, Error> {
    Client::connect(address, &ConnectOptions::default().token(token).outage_time_max(Duration::ZERO))
}

type Call = fn(&Client) -> Result<(), Error>;

/// Calls, and who may make them beside the boss.
const CALLS: [(&str, &[&str], Call); 24] = [
    ("look at a table", &["looker", "rollouts", "trainer"], |client| client.table("solver").map(drop)),
    ("look at objects", &["looker", "rollouts", "trainer"], |client| client.objects().list().map(drop)),
    ("begin an object", &["trainer"], |client| {
        let layout = Layout::builder().tensor("weights", "w", Dtype::F32, &[1]).build()?;
        client.objects().begin("solver", Expected::Any, &layout).map(drop)
    }),
    ("move an object", &["trainer"], |client| client.objects().delete("solver", 1).map(drop)),
    ("ask", &["looker"], |client| client.query("SELECT count(*) FROM solver").map(drop)),
    ("write", &["rollouts"], |client| {
        let row = NewRow::new(0, "q_0_?")?;
        client.table("solver")?.insert(row, [("prompt", "?".into())]).map(drop)
    }),
    ("write in frames", &["rollouts"], |client| {
        let row = NewRow::new(0, "q_0_?")?;
        client.table("solver")?.insert(row, [("prompt", "long".repeat(50_000).into())]).map(drop)
    }),
    ("write another table", &[], |client| {
        let row = NewRow::new(0, "q_0_?")?;
        client.table("checker")?.insert(row, [("verdict", "?".into())]).map(drop)
    }),
    ("write another table in frames", &[], |client| {
        let row = NewRow::new(0, "q_0_?")?;
        client.table("checker")?.insert(row, [("verdict", "long".repeat(50_000).into())]).map(drop)
    }),
    ("declare a table", &[], |client| client.create_table("more", Schema::new()).map(drop)),
    ("do a task", &["rollouts", "trainer"], |client| {
        client.consumer("judge")?.claim(up_to(1), Wait::No).map(drop)
    }),
    ("begin a step", &["trainer"], |client| client.begin_step(&Plan::new().rows("train", 1)).map(drop)),
    ("store an object", &["trainer"], |client| client.put_object("w", 1, b"bytes").map(drop)),
    ("take a checkpoint", &["rollouts", "trainer"], Client::checkpoint),
    ("look at all of it", &[], |client| client.admin().overview().map(drop)),
    ("check every byte", &[], |client| client.admin().verify(&mut |_| ControlFlow::Continue(())).map(drop)),
    ("evict", &[], |client| {
        let row = client.table_named("solver").find(0, &"q_0_0".parse()?).ok().flatten();
        client.admin().evict("solver", &row.map_or(Vec::new(), |row| vec![row]), "spoilt")
    }),
    ("peek", &[], |client| client.admin().peek("solver", &Peek::new()).map(drop)),
    ("look at budgets", &[], |client| client.admin().budgets().map(drop)),
    ("change retention", &[], |client| client.admin().change_retention(Retention::default())),
    ("compact", &[], |client| client.admin().compact().map(drop)),
    ("copy", &[], |client| {
        // Refused by its scope before anybody looks where to.
        let copied =
            client.admin().backup("../out", BackupOptions::default(), &mut |_| ControlFlow::Break(()));
        match copied {
            Err(error) if error.cause() == "NoBackupFolder" => Ok(()),
            outcome => outcome.map(drop),
        }
    }),
    ("delete", &[], |client| client.table("solver")?.delete(&Delete::versions_up_to(0).force()).map(drop)),
    ("go back", &[], |client| client.rewind(0, Rewind::TrainAgain).map(drop)),
];

#[test]
fn everybody_may_what_the_token_says_and_nothing_else() {
    let (_world, address) = granted();
    for name in ["looker", "rollouts", "trainer", "boss"] {
        let client = connect(&address, &format!("{name}-token")).unwrap();
        for (what, who, call) in CALLS {
            let outcome = call(&client);
            if name == "boss" || who.contains(&name) {
                outcome.unwrap_or_else(|error| panic!("{name} may {what}: {error}"));
            } else {
                let error = outcome.expect_err(what);
                assert_eq!(
                    (error.kind(), error.cause()),
                    (Kind::Input, "Forbidden"),
                    "{name}, {what}: {error}"
                );
                assert!(error.to_string().contains(name), "{error}");
            }
        }
    }
}

// AW-B10
#[test]
fn a_row_of_another_table_is_not_reached_under_the_name_of_one_s_own() {
    let (world, address) = granted();
    let checker = world.store.table("checker").unwrap();
    let foreign = checker.insert(0, "q_0_0", []).unwrap();
    let client = connect(&address, "rollouts-token").unwrap();
    type Ask = fn(&mut Changes<'_>, Row);
    let asks: [(&str, Ask); 4] = [
        ("exclude", |changes, row| _ = changes.exclude("solver", row, "spoilt")),
        ("write", |changes, row| _ = changes.write("solver", row, [("prompt", "?".into())])),
        ("span", |changes, row| _ = changes.span("solver", row, 1, 9)),
        ("mask", |changes, row| _ = changes.trainable_from("solver", row, 1)),
    ];
    for (what, ask) in asks {
        let mut changes = Changes::default();
        ask(&mut changes, foreign);
        let error = client.write(&changes).expect_err(what);
        assert_eq!(error.kind(), Kind::Input, "{what}: {error}");
        assert!(error.to_string().contains("is not a row of \"solver\""), "{what}: {error}");
    }
    let row = checker.get(0, &"q_0_0".parse().unwrap()).unwrap();
    assert!(row.excluded.is_none(), "{row:?}");
}

#[test]
fn who_shows_no_token_or_a_wrong_one_is_not_let_in() {
    let (_world, address) = granted();
    for wrong in ["", "boss-toke", "boss-token-", "Boss-token", "looker-token boss-token"] {
        let error = connect(&address, wrong).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "Unauthenticated"), "{wrong:?}: {error}");
    }
    let none = Client::connect(&address, &ConnectOptions::default()).unwrap_err();
    assert_eq!(none.cause(), "Unauthenticated");
    let options = ConnectOptions::default().token("very-secret");
    assert!(!format!("{options:?}").contains("very-secret"));
}

#[test]
fn an_address_that_others_reach_is_served_with_tokens_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    let bind = |builder: Builder| builder.bind(store.clone(), "127.0.0.1:0".parse().unwrap());
    let open = Server::builder().grpc("0.0.0.0:0".parse().unwrap());
    let error = bind(open.clone()).unwrap_err();
    assert!(error.to_string().contains("0.0.0.0"), "{error}");
    bind(open.grant(Grant::new("boss", token("t")))).unwrap();
}

#[test]
fn a_socket_is_its_user_s_alone_and_replaces_only_one_that_is_dead() {
    let world = World::new(Way::Socket);
    let path = world.dir.path().join("grpc.sock");
    for path in [&path, &world.dir.path().join("grpc.sock.slabs")] {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let again = || {
        let builder = Server::builder().grpc_socket(&path);
        builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap())
    };
    let error = again().unwrap_err();
    assert!(error.to_string().contains("grpc.sock"), "{error}");
    let files = std::fs::read_dir(world.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(
        files.filter(|name| name.to_string_lossy().contains("sock")).count(),
        2,
        "nothing is left of the second, and the first has its two"
    );
    assert!(world.client().tables().unwrap().is_empty(), "the first serves on");
    let dead = world.dir.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let server =
        Server::builder().grpc_socket(&dead).bind(world.store.clone(), "127.0.0.1:0".parse().unwrap());
    let client = Client::connect(&format!("unix://{}", dead.display()), &ConnectOptions::default()).unwrap();
    assert!(client.tables().unwrap().is_empty());
    drop(client);
    server.unwrap().shutdown();
    let slabs = world.dir.path().join("dead.sock.slabs");
    assert!(!dead.exists() && !slabs.exists(), "a server takes its sockets with it");
}

#[test]
fn what_goes_over_the_wire_is_encrypted_where_it_is_said() {
    let certified = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        rcgen::generate_simple_self_signed(names).unwrap()
    };
    let (server, client, stranger) =
        (certified(&["localhost"]), certified(&["client"]), certified(&["stranger"]));
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    let (certificate, key) = (server.cert.pem(), server.signing_key.serialize_pem());
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    let served =
        builder.tls(&certificate, &key, Some(&client.cert.pem())).bind(store, "127.0.0.1:0".parse().unwrap());
    let served = served.unwrap();
    let port = served.grpc_address().unwrap().port();
    let quick =
        || ConnectOptions::default().connect_time_max(Duration::from_secs(5)).outage_time_max(Duration::ZERO);
    let connect = |options: ConnectOptions| Client::connect(&format!("grpcs://localhost:{port}"), &options);
    let identity = |options: ConnectOptions, of: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        options.identity(&of.cert.pem(), &of.signing_key.serialize_pem())
    };
    let trusting = || quick().authority_certificate(&certificate);
    let known = connect(identity(trusting(), &client)).unwrap();
    assert!(known.tables().unwrap().is_empty());
    for (what, options) in [
        ("no certificate", trusting()),
        ("a certificate of nobody's", identity(trusting(), &stranger)),
        ("another authority", identity(quick().authority_certificate(&stranger.cert.pem()), &client)),
        ("no authority", quick()),
    ] {
        assert!(connect(options).is_err(), "{what}");
    }
    assert!(Client::connect(&format!("grpc://localhost:{port}"), &quick()).is_err(), "no TLS");
}
