//! Tokens, scopes, tables, TLS, sockets.

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use forebay_client::{
    Ask, Changes, Client, Commit, ConnectOptions, Error, GetObject, Plan, ReadRows, Role, TakeSnapshot,
};
use forebay_server::{Builder, Grant, Scope, Server, Token};
use forebay_store::{
    BackupOptions, Consumer, DataType, Delete, Dtype, Expected, Gang, Kind, Layout, NewRow, ObjectRef,
    Options, Peek, Retention, Rewind, Row, Schema, Store, TensorBytes, Wait, Which,
};

use crate::conformance::*;

fn token(word: &str) -> Token {
    Token::new(word).unwrap()
}

/// A served store for the holders of these tokens, with its usual table and consumers and another table; where it is, and a client of its own
/// process.
fn served(grants: impl IntoIterator<Item = Grant>) -> (World, String, Client) {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    let builder = grants.into_iter().fold(builder, Builder::grant);
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("grpc://{}", server.grpc_address().unwrap());
    world.server = Some(server);
    let local = Client::embedded(world.store.clone());
    solver(&local);
    judge(&local);
    trainer(&local);
    local.create_table("checker", Schema::new().data("verdict", DataType::Utf8)).unwrap();
    (world, address, local)
}

/// A served store with a table and a row, whose boss has made them.
fn granted() -> (World, String) {
    let grants = [
        Grant::new("boss", token("boss-token")),
        Grant::new("looker", token("looker-token")).scopes([Scope::Read]),
        Grant::new("rollouts", token("rollouts-token")).scopes([Scope::Write]).tables(["solver"]),
        Grant::new("trainer", token("trainer-token")).scopes([Scope::Train]),
    ];
    let (world, address, local) = served(grants);
    row(&local.table("solver").unwrap(), 0, "q_0_0", Some(1.0));
    (world, address)
}

fn connect(address: &str, token: &str) -> Result<Client, Error> {
    Client::connect(address, &ConnectOptions::default().token(token).outage_time_max(Duration::ZERO))
}

type Call = fn(&Client) -> Result<(), Error>;

/// Calls, and who may make them beside the boss.
const CALLS: [(&str, &[&str], Call); 30] = [
    ("look at a table", &["looker", "rollouts", "trainer"], |client| client.table("solver").map(drop)),
    ("look at objects", &["looker", "rollouts", "trainer"], |client| client.objects().list().map(drop)),
    ("look what became of a row", &["looker", "rollouts", "trainer"], |client| {
        client.table_named("solver").get(0, &"q_0_0".parse()?).map(drop)
    }),
    ("look what made a step", &["looker", "rollouts", "trainer"], |client| {
        // Refused by its scope before anybody looks whether there is one.
        match client.replay(9) {
            Err(error) if error.cause() == "Unknown" => Ok(()),
            outcome => outcome.map(drop),
        }
    }),
    ("give lost rows back", &["trainer"], |client| {
        is_of_the_step(client.open_step(9).return_lost(&[(1, 1, 0)]).map(drop))
    }),
    ("begin an object", &["trainer"], |client| {
        let layout = Layout::builder().tensor("weights", "w", Dtype::F32, &[1]).build()?;
        client.objects().begin("solver", Expected::Any, &layout).map(drop)
    }),
    ("move an object", &["trainer"], |client| client.objects().delete("solver", 1).map(drop)),
    ("ask", &["looker"], |client| client.query("SELECT count(*) FROM solver").map(drop)),
    ("take a snapshot", &["looker"], |client| {
        let snapshot = client.snapshot(&TakeSnapshot::default())?;
        snapshot.table("solver")?.read(ReadRows::default()).try_for_each(|batch| batch.map(drop))
    }),
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
    ("take rows back", &["rollouts"], |client| {
        let row = client.table("solver")?.insert(NewRow::new(0, "q_0_?")?, [("prompt", "?".into())])?;
        client.table("solver")?.delete(&Delete::rows([row])).map(drop)
    }),
    ("take rows from who holds them", &[], |client| {
        let row = client.table("solver")?.insert(NewRow::new(0, "q_0_?")?, [("prompt", "?".into())])?;
        client.table("solver")?.delete(&Delete::rows([row]).force()).map(drop)
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

/// A served store of two agents, whose grants are for one of them: with no object named, and with some.
fn of_two_agents() -> (World, String) {
    let all = [Scope::Read, Scope::Write, Scope::Train];
    let grants = [
        Grant::new("tabled", token("tabled-token")).scopes(all).tables(["solver"]),
        Grant::new("named", token("named-token")).scopes(all).tables(["solver"]).objects(["solver*"]),
        Grant::new("chief", token("chief-token")).tables(["solver"]).objects(["solver*"]),
        Grant::new("weights", token("weights-token")).scopes([Scope::Read]).objects(["secret-state"]),
    ];
    let (world, address, local) = served(grants);
    local.create_consumer("checks", Consumer::task(["checker"]).ready(["verdict"])).unwrap();
    local.put_object("solver-state", 1, b"weights").unwrap();
    local.put_object("secret-state", 1, b"secret weights").unwrap();
    for key in ["solver-w", "secret"] {
        let bytes =
            TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[3], bytes: &[1, 2, 3] };
        local.objects().set(key, &[bytes]).unwrap();
    }
    (world, address)
}

fn state(key: &str, bytes: &[u8]) -> ObjectRef {
    ObjectRef::of(key, 1, bytes)
}

fn begin(client: &Client, key: &str) -> Result<(), Error> {
    let layout = Layout::builder().tensor("weights", "w", Dtype::F32, &[1]).build()?;
    client.objects().begin(key, Expected::Any, &layout).map(drop)
}

fn commit(client: &Client, policy: &str, objects: Vec<ObjectRef>) -> Result<(), Error> {
    let commit = Commit { updates: vec![(policy.to_owned(), objects)], durability: None };
    client.connection().commit_step(1, &commit).map(drop)
}

/// What is refused of the step itself: whoever comes so far may commit what he names.
fn is_of_the_step(outcome: Result<(), Error>) -> Result<(), Error> {
    outcome.or_else(|error| if error.cause() == "StepClosed" { Ok(()) } else { Err(error) })
}

/// Calls of who is bound to the table `solver`, and whether its token has to name objects for them: none where nothing helps.
const BOUND: [(&str, Option<bool>, Call); 28] = [
    ("look at its table", Some(false), |client| client.table("solver").map(drop)),
    ("look what became of a row of it", Some(false), |client| {
        client.table_named("solver").get(0, &"q_0_0".parse()?).map(drop)
    }),
    ("look what became of a row of another", None, |client| {
        client.table_named("checker").get(0, &"q_0_0".parse()?).map(drop)
    }),
    ("look at another table", None, |client| client.table("checker").map(drop)),
    ("ask of its table", Some(false), |client| client.query("SELECT count(*) FROM solver").map(drop)),
    ("find its consumer", Some(false), |client| client.consumer("judge").map(drop)),
    ("find another consumer", None, |client| client.consumer("checks").map(drop)),
    ("ask for its groups", Some(false), |client| client.connection().open_groups("train").map(drop)),
    ("ask for other groups", None, |client| client.connection().open_groups("checks").map(drop)),
    ("look at its policy", Some(false), |client| client.policy("solver").map(drop)),
    ("look at another policy", None, |client| client.policy("checker").map(drop)),
    ("look at a policy that is none", None, |client| client.policy("nobody").map(drop)),
    ("read its state", Some(true), |client| client.object(&state("solver-state", b"weights")).map(drop)),
    ("read another state", None, |client| client.object(&state("secret-state", b"secret weights")).map(drop)),
    ("put its state", Some(true), |client| client.put_object("solver-next", 1, b"w").map(drop)),
    ("put another state", None, |client| client.put_object("secret-state", 1, b"w").map(drop)),
    ("begin its object", Some(true), |client| begin(client, "solver-new")),
    ("begin another object", None, |client| begin(client, "secret")),
    ("hold its object", Some(true), |client| client.objects().get("solver-w", Which::Latest).map(drop)),
    ("hold another object", None, |client| client.objects().get("secret", Which::Latest).map(drop)),
    ("hold both", None, |client| {
        client.objects().get_together(&["solver-w", "secret"], &GetObject::default()).map(drop)
    }),
    ("spill its object", Some(true), |client| client.objects().spill("solver-w", Which::Latest).map(drop)),
    ("spill another", None, |client| client.objects().spill("secret", Which::Latest).map(drop)),
    ("exchange its object for another", None, |client| {
        client.objects().exchange(("solver-w", Which::Latest), ("secret", Which::Latest)).map(drop)
    }),
    ("delete another", None, |client| client.objects().delete("secret", 1).map(drop)),
    ("commit its state", Some(true), |client| {
        is_of_the_step(commit(client, "solver", vec![state("solver-state", b"weights")]))
    }),
    ("commit another's state as its own", None, |client| {
        is_of_the_step(commit(client, "solver", vec![state("secret-state", b"secret weights")]))
    }),
    ("commit another policy", None, |client| is_of_the_step(commit(client, "checker", vec![]))),
];

#[test]
fn who_is_bound_to_tables_reaches_those_and_the_objects_that_are_named() {
    let (_world, address) = of_two_agents();
    for name in ["tabled", "named"] {
        let client = connect(&address, &format!("{name}-token")).unwrap();
        for (what, needs, call) in BOUND {
            let may = needs.is_some_and(|needs_objects| !needs_objects || name == "named");
            match call(&client) {
                Ok(()) => assert!(may, "{name} may not {what}"),
                Err(error) => assert!(!may && error.cause() == "Forbidden", "{name}, {what}: {error}"),
            }
        }
        assert_eq!(client.tables().unwrap(), ["solver"], "{name}");
        for table in ["checker", "system.objects"] {
            let hidden = client.query(&format!("SELECT * FROM {table}")).unwrap_err();
            assert!(hidden.kind() == Kind::Input && hidden.to_string().contains(table), "{name}: {hidden}");
        }
        let (_, shown) = client.query("SELECT table_name FROM system.tables").unwrap();
        assert_eq!(shown.iter().fold(0, |sum, rows| sum + rows.num_rows()), 1, "{name} is shown one table");
        let consumers: Vec<String> = client.consumers().unwrap().into_iter().map(|c| c.name).collect();
        assert_eq!(consumers, ["judge", "train"], "{name}");
        let keys: Vec<String> = client.objects().list().unwrap().into_iter().map(|shown| shown.key).collect();
        let expected: &[&str] = if name == "named" { &["solver-w"] } else { &[] };
        assert_eq!(keys, expected, "{name}");
    }
    let chief = connect(&address, "chief-token").unwrap();
    assert_eq!(chief.rewind(0, Rewind::TrainAgain).unwrap_err().cause(), "Forbidden", "it undoes all tables");
    let weights = connect(&address, "weights-token").unwrap();
    assert_eq!(weights.tables().unwrap(), ["solver", "checker"], "bound to no tables");
    weights.object(&state("secret-state", b"secret weights")).unwrap();
    let error = weights.object(&state("solver-state", b"weights")).unwrap_err();
    assert!(
        error.to_string().contains("\"solver-state\"") && error.to_string().contains("`objects`"),
        "{error}"
    );
}

#[test]
fn who_is_bound_to_tables_is_told_of_a_step_what_it_has_of_them_and_gives_back_nothing_of_others() {
    let all = [Scope::Read, Scope::Write, Scope::Train];
    let (_world, address, local) =
        served([Grant::new("tabled", token("tabled-token")).scopes(all).tables(["solver"])]);
    let (solver, checker) = (local.table("solver").unwrap(), local.table("checker").unwrap());
    let checks = Consumer::trainer(["checker"]).ready(["verdict"]);
    let checks = local.create_consumer("checks", checks).unwrap();
    let train = local.consumer("train").unwrap();
    let client = connect(&address, "tabled-token").unwrap();
    let plan = Plan::new().rows("train", 1).rows("checks", 1);
    for version in 0..2 {
        row(&solver, version, "q_0_0", Some(1.0));
        let cells = [("verdict", "right".into())];
        let foreign = checker.insert(NewRow::new(version, "q_0_0").unwrap(), cells).unwrap();
        let mut step = local.begin_step(&plan).unwrap();
        let claims =
            [&train, &checks].map(|consumer| step.next(consumer, up_to(1), Wait::No).unwrap().unwrap());
        let epochs = claims.each_ref().map(forebay_client::Claim::epoch);
        claims.into_iter().for_each(|claim| claim.accumulated().unwrap());
        let open = client.open_step(step.number());
        for reached in [&epochs[1..], &epochs[..]] {
            let refused = open.return_lost(reached).unwrap_err();
            assert_eq!((refused.kind(), refused.cause()), (Kind::Input, "Forbidden"), "{refused}");
            assert!(refused.to_string().contains("\"checker\""), "{refused}");
        }
        assert!(step.is_complete(&train).unwrap() && step.is_complete(&checks).unwrap(), "nothing went back");
        assert_eq!(client.table_named("solver").show(foreign).unwrap_err().kind(), Kind::Input);
        step.commit([("solver", vec![]), ("checker", vec![])]).unwrap();
        let told = client.replay(step.number()).unwrap();
        assert_eq!(told.iter().map(|batch| &*batch.table).collect::<Vec<_>>(), ["solver"]);
        assert_eq!(local.replay(step.number()).unwrap().len(), 2);
    }
}

type Named = fn(&Client, &str) -> Result<(), Error>;

/// What is asked of a consumer by its name.
const OF_A_CONSUMER: [(&str, Named); 7] = [
    ("find it", |client, name| client.consumer(name).map(drop)),
    ("ask for its groups", |client, name| client.connection().open_groups(name).map(drop)),
    ("claim", |client, consumer| {
        let ask = Ask { consumer, rule: up_to(1), role: Role::Task, owner: None, columns: &[] };
        client.connection().claim(&ask, Wait::No).map(drop)
    }),
    ("begin a step", |client, name| client.begin_step(&Plan::new().rows(name, 1)).map(drop)),
    ("join a step", |client, name| {
        client.connection().join_step(9, name, &Gang::new("ranks", 0, 2)).map(drop)
    }),
    ("ask whether it has all", |client, name| client.connection().is_complete(9, name).map(drop)),
    ("expect a group", |client, name| {
        let mut changes = Changes::new();
        changes.expect_group(name, "solver", 0, "q_0", 2);
        client.connection().write(&changes).map(drop)
    }),
];

#[test]
fn who_is_bound_to_tables_is_not_told_whether_a_consumer_of_others_is_there() {
    let (world, address) = of_two_agents();
    let local = Client::embedded(world.store.clone());
    local.create_consumer("trains", Consumer::trainer(["checker"]).ready(["verdict"])).unwrap();
    let client = connect(&address, "tabled-token").unwrap();
    for (what, ask) in OF_A_CONSUMER {
        // Two that are there, and such as have names like theirs or like nobody's.
        let told = ["checks", "trains", "check", "nobody"].map(|name| {
            let error = ask(&client, name).unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::Input, "Forbidden"), "{what}, {name}: {error}");
            error.to_string().replace(name, "?")
        });
        assert!(told.iter().all(|other| *other == told[0]), "{what}: {told:?}");
    }
    for (what, ask) in &OF_A_CONSUMER[..2] {
        ask(&client, "train").unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn who_is_bound_to_one_of_a_policy_s_tables_gives_nothing_back_of_the_others() {
    let all = [Scope::Read, Scope::Write, Scope::Train];
    let (_world, address, local) = served([
        Grant::new("tabled", token("tabled-token")).scopes(all).tables(["solver"]),
        Grant::new("both", token("both-token")).scopes(all).tables(["solver", "critic"]),
    ]);
    let critic = Schema::new().data("verdict", DataType::Utf8).policy("solver");
    let critic = local.create_table("critic", critic).unwrap();
    let judged = Consumer::trainer(["critic"]).ready(["verdict"]);
    let judged = local.create_consumer("train_critic", judged).unwrap();
    critic.insert(NewRow::new(0, "q_0_0").unwrap(), [("verdict", "right".into())]).unwrap();
    let step = local.begin_step(&Plan::new().rows("train_critic", 1)).unwrap();
    step.next(&judged, up_to(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    let drop_cache =
        |token| connect(&address, token).unwrap().connection().drop_cache(step.number(), "solver");
    let refused = drop_cache("tabled-token").unwrap_err();
    assert_eq!((refused.kind(), refused.cause()), (Kind::Input, "Forbidden"), "{refused}");
    assert!(!refused.to_string().contains("critic"), "{refused}");
    assert!(step.is_complete(&judged).unwrap(), "nothing went back");
    drop_cache("both-token").unwrap();
    assert!(!step.is_complete(&judged).unwrap(), "it went back");
}

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

// A table that is declared carries the version of a policy, and who has the table reaches that.
#[test]
fn who_is_bound_to_tables_reaches_no_policy_by_declaring_a_table_that_carries_it() {
    let all = [Scope::Read, Scope::Write, Scope::Train];
    let grants =
        [Grant::new("tabled", token("tabled-token")).scopes(all).tables(["solver", "mine", "yours", "ours"])];
    let (_world, address, local) = served(grants);
    local.create_table("hidden", Schema::new().policy("secret")).unwrap();
    let client = connect(&address, "tabled-token").unwrap();
    for policy in ["secret", "checker", "nobody"] {
        let error = client.create_table("mine", Schema::new().policy(policy)).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "Forbidden"), "{policy}: {error}");
        assert!(error.to_string().contains(&format!("{policy:?}")), "{error}");
        assert_eq!(client.policy(policy).unwrap_err().cause(), "Forbidden", "{policy}");
        is_of_the_step(commit(&client, policy, vec![])).unwrap_err();
    }
    for (table, policy) in [("mine", Some("mine")), ("yours", Some("mine")), ("ours", None)] {
        let schema = policy.into_iter().fold(Schema::new(), Schema::policy);
        client.create_table(table, schema).unwrap();
        assert_eq!(client.policy(policy.unwrap_or(table)).unwrap().version, 0, "{table}");
    }
    client.create_table("hidden", Schema::new().policy("secret")).unwrap_err();
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

// A snapshot of all tables is one of those that the token is for.
#[test]
fn a_snapshot_shows_the_tables_of_its_token() {
    let (_world, address) = of_two_agents();
    let client = connect(&address, "tabled-token").unwrap();
    let snapshot = client.snapshot(&TakeSnapshot::default()).unwrap();
    let names: Vec<String> = snapshot.tables().map(|table| table.name().to_owned()).collect();
    assert_eq!(names, ["solver"]);
    let refused = client.snapshot(&TakeSnapshot::default().tables(["solver", "checker"])).unwrap_err();
    assert_eq!((refused.kind(), refused.cause()), (Kind::Input, "Forbidden"), "{refused}");
    let calls = client.connection().snapshots();
    for refused in [
        calls.read(1, "checker", &ReadRows::default(), 0).map(drop).unwrap_err(),
        calls.versions(1, "checker").map(drop).unwrap_err(),
    ] {
        assert_eq!((refused.kind(), refused.cause()), (Kind::Input, "Forbidden"), "{refused}");
    }
    // Nobody reads or ends what is another's.
    let other = connect(&address, "named-token").unwrap();
    let none = other.connection().snapshots();
    for refused in
        [none.read(1, "solver", &ReadRows::default(), 0).map(drop).unwrap_err(), none.release(1).unwrap_err()]
    {
        assert_eq!((refused.kind(), refused.cause()), (Kind::State, "SnapshotOver"), "{refused}");
    }
    assert!(snapshot.table("solver").unwrap().versions().is_ok());
}
