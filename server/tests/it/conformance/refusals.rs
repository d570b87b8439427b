//! Bad calls: the same kind, the same cause and the same words on every way.

use forebay_client::{Changes, Client, Error, Plan};
use forebay_store::{GroupBy, NewRow, RateLimiter};

use super::*;

type Call = fn(&Client) -> Result<(), Error>;

/// Calls that are refused, each with its kind and its cause.
const REFUSED: [(&str, &str, &str, Call); 18] = [
    ("an unknown table", "input", "Unknown", |client| client.table("solvr").map(drop)),
    ("an unknown consumer", "input", "Unknown", |client| client.consumer("jugde").map(drop)),
    ("an unknown policy", "input", "Unknown", |client| client.policy("solve").map(drop)),
    ("a table that is there", "input", "Exists", |client| {
        client.create_table("solver", Schema::new()).map(drop)
    }),
    ("a name that is none", "input", "Name", |client| client.create_table("1 2", Schema::new()).map(drop)),
    ("a column that is taken", "input", "ColumnReserved", |client| {
        client.create_table("other", Schema::new().data("sample_id", DataType::Utf8)).map(drop)
    }),
    ("an unknown column", "input", "Unknown", |client| {
        client.table("solver")?.insert(NewRow::new(0, "a_0_0")?, [("rewrd", 1.0.into())]).map(drop)
    }),
    ("a value of another type", "input", "TypeMismatch", |client| {
        client.table("solver")?.insert(NewRow::new(0, "a_0_0")?, [("reward", "much".into())]).map(drop)
    }),
    ("a column twice", "input", "ColumnTwice", |client| {
        let cells = [("reward", 1.0.into()), ("reward", 1.0.into())];
        client.table("solver")?.insert(NewRow::new(0, "a_0_0")?, cells).map(drop)
    }),
    ("no rollouts", "input", "Argument", |client| {
        client.table("solver")?.insert_rollouts(NewRow::new(0, "a_0_?")?, 0, []).map(drop)
    }),
    ("a reason that is none", "input", "Argument", |client| {
        let row = client.table("solver")?.find(0, &"there_0_0".parse()?)?.expect("it is there");
        client.table("solver")?.exclude(row, "")
    }),
    ("a second trainer", "input", "Argument", |client| {
        let again = client.create_consumer("again", Consumer::trainer(["solver"]));
        again.map(drop)
    }),
    ("groups without members", "input", "Argument", |client| {
        let none = Consumer::task(["solver"]).group(GroupBy::Input, 0);
        client.create_consumer("none", none).map(drop)
    }),
    ("a limiter that could never move", "input", "Argument", |client| {
        let stuck = Consumer::task(["solver"]).rate_limiter(RateLimiter::new(0.0, 1, 1.0));
        client.create_consumer("stuck", stuck).map(drop)
    }),
    ("a claim of nothing", "input", "Argument", |client| {
        client.consumer("judge")?.claim(MicroBatch::of(0), Wait::No).map(drop)
    }),
    ("a trainer's rows without a step", "state", "ConsumerKind", |client| {
        client.consumer("train")?.claim(up_to(1), Wait::No).map(drop)
    }),
    ("a step of nobody", "input", "Unknown", |client| {
        client.begin_step(&Plan::new().rows("trian", 1)).map(drop)
    }),
    ("a member of no group", "state", "ConsumerKind", |client| {
        let mut changes = Changes::new();
        changes.expect_group("judge", "solver", 0, "q", 2);
        client.write(&changes).map(drop)
    }),
];

/// A store with a row, a task and a trainer in it.
fn prepared(client: &Client) -> Table {
    let table = solver(client);
    judge(client);
    trainer(client);
    row(&table, 0, "there_0_0", None);
    table
}

#[test]
fn bad_calls_are_refused_alike_wherever_the_store_is() {
    let said = std::cell::RefCell::new(Vec::new());
    on_every_way(|world| {
        let client = world.client();
        let table = prepared(&client);
        let written = table.counts().unwrap();
        let mut words = Vec::new();
        for (what, kind, cause, call) in REFUSED {
            let error = call(&client).expect_err(what);
            assert_eq!((error.kind().as_str(), error.cause()), (kind, cause), "{what}: {error}");
            words.push(error.to_string());
        }
        assert_eq!(table.counts().unwrap(), written, "nothing has changed");
        said.borrow_mut().push(words);
    });
    let said = said.into_inner();
    assert!(said.iter().all(|words| *words == said[0]), "{said:#?}");
}

#[test]
fn a_store_that_is_closed_says_so() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        world.store.close("the disk is gone");
        let error = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", "?".into())]).unwrap_err();
        assert_eq!((error.kind().as_str(), error.cause()), ("closed", "Closed"), "{error}");
        assert!(error.to_string().contains("the disk is gone"));
    });
}
