//! Clients that use the store's files: no value goes through the socket, and what they do to their files hurts nobody else.

use std::fs;

use forebay_client::{CellValue, Changes, Client, ConnectOptions, Table};
use forebay_server::Server;
use forebay_store::{Consumer, HostFolder, Kind, NewRow, ObjectOptions, Options, Row, Store, Wait};

use crate::conformance::*;

fn connect(world: &World) -> Client {
    Client::connect(&world.address(), &ConnectOptions::default().outage_time_max(HOUR)).unwrap()
}

const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

fn long(at: usize) -> String {
    format!("prompt {at} ").repeat(1000)
}

fn insert(table: &Table, at: usize) -> Row {
    table.insert(NewRow::new(0, &format!("q{at}_0_0")).unwrap(), [("prompt", long(at).into())]).unwrap()
}

/// The numbers of the extents that were lent.
fn lent(world: &World) -> Vec<u32> {
    let Ok(files) = fs::read_dir(world.store.path().join("fillers")) else { return Vec::new() };
    let number = |path: std::path::PathBuf| path.file_stem()?.to_str()?.parse().ok();
    let mut lent: Vec<u32> = files.filter_map(|file| number(file.unwrap().path())).collect();
    lent.sort_unstable();
    lent
}

/// The file that an address of this process is mapped from.
fn mapped_from(bytes: &[u8]) -> String {
    let address = bytes.as_ptr().addr();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let found = maps.lines().find(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let at = |text| usize::from_str_radix(text, 16).unwrap();
        (at(start)..at(end)).contains(&address)
    });
    found.unwrap().split_whitespace().nth(5).unwrap_or_default().to_owned()
}

fn bytes_of(cell: &CellValue) -> &[u8] {
    let CellValue::Bytes(bytes) = cell else { panic!("{cell:?}") };
    bytes
}

#[test]
fn values_lie_where_the_client_put_them_and_are_read_from_there() {
    let world = World::new(Way::Neighbour);
    let client = connect(&world);
    let table = solver(&client);
    let read = client.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    (0..8).for_each(|at| _ = insert(&table, at));
    let lent = lent(&world);
    assert_eq!(lent.len(), 1, "one client at a time writes values of one version");
    let live = |number: u32| {
        let extents = world.store.extents();
        extents.iter().find(|extent| extent.number == number).map_or(0, |extent| extent.live_bytes)
    };
    assert!(live(lent[0]) >= (0..8).map(|at| long(at).len() as u64).sum());
    let claim = read.claim(up_to(8), Wait::No).unwrap().unwrap();
    let cells = claim.cells(["prompt"]).unwrap().remove(0);
    for cell in &cells {
        assert!(mapped_from(bytes_of(cell)).ends_with(&format!("{:08}.extent", lent[0])));
    }
    let columns = claim.columns(["prompt"]).unwrap();
    let views = arrow_array::cast::AsArray::as_string_view(columns.column(0));
    assert!(mapped_from(views.value(3).as_bytes()).ends_with(".extent"), "texts are not copied");
    // What was read outlives the claim, the client, the server and the store.
    drop((claim, read, table, client));
    drop(world.server);
    world.store.table("solver").unwrap().delete(&forebay_store::Delete::all_confirmed().force()).unwrap();
    world.store.close("it is over");
    assert!(cells.iter().enumerate().all(|(at, cell)| bytes_of(cell) == long(at).as_bytes()));
}

#[test]
fn what_was_lent_goes_back_when_the_client_goes() {
    let world = World::new(Way::Neighbour);
    let client = connect(&world);
    let table = solver(&client);
    insert(&table, 0);
    let number = lent(&world)[0];
    let is_open = || world.store.extents().iter().any(|extent| extent.number == number && !extent.sealed);
    assert!(is_open());
    drop((table, client));
    assert!(!is_open(), "a client that goes says so, and has its answer");
}

/// The server ends with its store, and another has both.
pub(crate) fn serve_again(world: &mut World) {
    drop(world.server.take());
    let path = world.store.path().to_owned();
    let none = Store::open(world.dir.path().join("none"), Options::default()).unwrap();
    drop(std::mem::replace(&mut world.store, none)); // the store's process is over
    let objects = ObjectOptions::default().host_folder(HostFolder::At(world.dir.path().join("host")));
    world.store = Store::open(path, Options::default().objects(objects)).unwrap();
    let builder = Server::builder().grpc_socket(world.dir.path().join("grpc.sock"));
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
}

#[test]
fn a_server_that_was_restarted_lends_anew_and_nothing_is_lost() {
    let mut world = World::new(Way::Neighbour);
    let client = connect(&world);
    let table = solver(&client);
    insert(&table, 0);
    for round in 1..4 {
        serve_again(&mut world);
        insert(&table, round);
    }
    // Values that were put into extents which nobody knows any more when they are named.
    insert(&table, 4); // so that there is an extent which can be filled while nobody is there to lend another
    drop(world.server.take());
    let begin = |at: usize| {
        let mut changes = Changes::new();
        changes.insert(
            "solver",
            NewRow::new(0, &format!("q{at}_0_0")).unwrap(),
            [("prompt", long(at).into())],
        );
        client.write_async(&changes).unwrap()
    };
    let first = begin(5);
    serve_again(&mut world);
    let under_way = [first, begin(6), begin(7)];
    under_way.into_iter().for_each(|write| _ = write.wait().unwrap());
    let table = world.store.table("solver").unwrap();
    for at in 0..8 {
        let row = table.find(0, &format!("q{at}_0_0").parse().unwrap()).unwrap();
        assert_eq!(bytes_of(&table.cell(row, "prompt").unwrap().into()), long(at).as_bytes());
    }
}

#[test]
fn who_is_no_neighbour_is_lent_nothing_and_who_is_has_only_his_own() {
    use forebay_client::wire::proto::*;
    use forebay_client::wire::{NOT_LENT, failure_of, from_placed};
    use forebay_store::{Loan, PlacedKind, Spot};

    let world = World::new(Way::Tcp);
    let client = world.client();
    let table = solver(&client);
    let raw = super::raw::Raw::connect(&world);
    let status = raw.lend(LendRequest { policy_version: 0, bytes: 100, back: Vec::new() }).unwrap_err();
    let refused = failure_of(&status).unwrap();
    assert_eq!((refused.kind(), refused.cause()), (Kind::State, "NotNeighbour"));
    let theirs = world.store.lend_extent(0, 1000).unwrap();
    let Loan { extent, generation, .. } = theirs.loan();
    for loan in [theirs.loan(), Loan { extent, generation: generation + 1, capacity: 1 }] {
        let spot = Spot { offset: 64, length: 0, crc32c: 0 };
        let value = Some(from_placed(loan, PlacedKind::Utf8, spot));
        let mut message = super::raw::insert("q_0_0");
        let change = &mut message.changes.as_mut().unwrap().changes[0];
        let Some(change::Change::Insert(insert)) = &mut change.change else { panic!("{change:?}") };
        insert.cells[0].value = value;
        let status = raw.try_write(message).unwrap_err();
        assert_eq!(failure_of(&status).unwrap().cause(), NOT_LENT);
    }
    assert_eq!(table.counts().unwrap().written, 0);
}
