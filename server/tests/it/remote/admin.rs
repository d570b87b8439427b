//! What only an operator of a store behind a server can meet: tokens of some tables, places that are not allowed, lines that break.

use std::ops::ControlFlow;
use std::time::Duration;

use forebay_client::{Client, ConnectOptions, Error};
use forebay_server::{Grant, Server, Token};
use forebay_store::{BackupOptions, BudgetChange, Kind, Options, Peek, verify};

use super::proxy::Proxy;
use crate::conformance::*;

const HOUR: Duration = Duration::from_secs(3600);

fn copy(client: &Client, to: &str) -> Result<forebay_store::BackupReport, Error> {
    client.admin().backup(to, BackupOptions::default(), &mut |_| ControlFlow::Continue(()))
}

#[test]
fn a_token_of_some_tables_looks_at_those_and_changes_nothing_that_is_of_all() {
    let mut world = World::new(Way::Embedded);
    let token = |word: &str| Token::new(word).unwrap();
    let some = Grant::new("some", token("some-token")).tables(["solver"]);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap()).grant(some);
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("grpc://{}", server.grpc_address().unwrap());
    world.server = Some(server);
    let local = Client::embedded(world.store.clone());
    row(&solver(&local), 0, "q_0_0", None);
    local.create_table("checker", solver_schema()).unwrap();
    let client = Client::connect(&address, &ConnectOptions::default().token("some-token")).unwrap();
    let admin = client.admin();
    assert_eq!(admin.peek("solver", &Peek::new()).unwrap().num_rows(), 1);
    let refused: [(&str, Result<(), Error>); 7] = [
        ("peek", admin.peek("checker", &Peek::new()).map(drop)),
        ("overview", admin.overview().map(drop)),
        ("budgets", admin.change_budgets(&BudgetChange::new()).map(drop)),
        ("retention", admin.retention().map(drop)),
        ("compact", admin.compact().map(drop)),
        ("backup", copy(&client, "one").map(drop)),
        ("verify", admin.verify(&mut |_| ControlFlow::Continue(())).map(drop)),
    ];
    for (call, outcome) in refused {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "Forbidden"), "{call}: {error}");
    }
}

#[test]
fn a_copy_goes_nowhere_but_beneath_what_the_operator_allows() {
    let world = World::new(Way::Tcp);
    let client = world.client();
    row(&solver(&client), 0, "q_0_0", None);
    let (root, copies) = (world.dir.path(), world.dir.path().join(COPIES));
    std::os::unix::fs::symlink(root, copies.join("link")).unwrap();
    let before = std::fs::read_dir(root).unwrap().count();
    let absolute = root.join("beside");
    for asked in
        ["", ".", "..", "../beside", "a/../../beside", "link/beside", "/", absolute.to_str().unwrap()]
    {
        let error = copy(&client, asked).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "OutsideBackupFolder"), "{asked:?}: {error}");
    }
    assert_eq!(std::fs::read_dir(root).unwrap().count(), before, "nothing was made anywhere");
    assert_eq!(copy(&client, "one").unwrap().to, copies.canonicalize().unwrap().join("one"));

    let bare = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    let bare = bare.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("grpc://{}", bare.grpc_address().unwrap());
    let client = Client::connect(&address, &ConnectOptions::default()).unwrap();
    let error = copy(&client, "one").unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::State, "NoBackupFolder"), "{error}");
    assert!(error.to_string().contains("--backup-dir"), "{error}");
}

// A copy is found again under its name: a second one would find its place taken.
#[test]
fn a_copy_whose_line_breaks_anywhere_is_made_once() {
    let mut world = World::new(Way::Embedded);
    let copies = world.dir.path().join(COPIES);
    let builder = Server::builder().session_grace(HOUR).backup_folder(&copies);
    let builder = builder.grpc("127.0.0.1:0".parse().unwrap());
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = Proxy::to(server.grpc_address().unwrap());
    world.server = Some(server);
    let client = Client::connect(&proxy.address(), &ConnectOptions::default().outage_time_max(HOUR)).unwrap();
    let table = solver(&client);
    (0..20).for_each(|at| _ = row(&table, 0, &format!("q_0_{at}"), Some(1.0)));
    for bytes in (0..200).step_by(10) {
        let to = format!("cut-{bytes}");
        proxy.cut_after(bytes);
        let report = copy(&client, &to).unwrap();
        proxy.cut_after(bytes);
        client.admin().compact().unwrap();
        proxy.cut_after(u64::MAX);
        assert!(report.to.ends_with(&to), "after {bytes} bytes");
        let checked = verify(copies.join(&to), &Options::default(), &mut |_| ControlFlow::Continue(()));
        assert!(checked.unwrap().is_sound(), "after {bytes} bytes");
    }
}
