//! What a store promises, asked of a client on every way that there is: in this process, as a neighbour that uses the
//! store's files, with slabs, over a socket, over TCP.
//!
//! A case is written once and run on all ways ([`on_every_way`]); whatever differs between them is a fault.

mod admin;
mod asked;
mod bounded;
mod chosen;
mod claims;
mod found;
mod fresh;
mod gangs;
mod history;
mod keeper;
mod many;
pub(crate) mod objects;
mod partial;
mod refusals;
mod rows;
mod snapshots;
mod sound;
mod steps;
mod subscribed;
mod survived;
mod tabular;
pub(crate) mod waits;

use std::sync::Arc;
use std::time::Duration;

use forebay_client::{Changes, Claim, Client, ConnectOptions, ConsumerHandle, Embedded, Table};
use forebay_query::Session;
use forebay_server::{Asked, Server};
use forebay_store::{
    Consumer, DataType, Element, HostFolder, MicroBatch, NewRow, ObjectOptions, Options, Row, Schema, Store,
    Wait,
};

/// Longer than anything here takes.
pub(crate) const LONG: Wait = Wait::For(Duration::from_secs(30));

/// Where a world's server copies its store to.
pub(crate) const COPIES: &str = "copies";

/// How a client gets at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Embedded,
    Neighbour,
    /// Over a socket, with values in slabs.
    Slabs,
    /// Over a socket, with values sent.
    Socket,
    Tcp,
    /// Over TCP, with everything packed.
    Packed,
}

impl Way {
    pub(crate) const ALL: [Way; 6] =
        [Way::Embedded, Way::Neighbour, Way::Slabs, Way::Socket, Way::Tcp, Way::Packed];

    /// How a client connects that goes this way to a server.
    pub(crate) fn options(self) -> ConnectOptions {
        ConnectOptions::default()
            .neighbour(self == Way::Neighbour)
            .slabs(self == Way::Slabs)
            .compress(self == Way::Packed)
    }
}

/// A store and a server in front of it.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) server: Option<Server>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) way: Way,
}

impl World {
    pub(crate) fn new(way: Way) -> Self {
        Self::with(way, Options::default())
    }

    pub(crate) fn with(way: Way, options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let objects = ObjectOptions::default()
            .host_folder(HostFolder::At(dir.path().join("host")))
            .host_bytes_max(256 << 20)
            .pageable_bytes_max(0);
        let store = Store::open(dir.path().join("store"), options.objects(objects)).unwrap();
        let copies = dir.path().join(COPIES);
        std::fs::create_dir(&copies).unwrap();
        let builder = Server::builder().backup_folder(copies);
        let builder = match way {
            Way::Embedded => None,
            Way::Neighbour | Way::Slabs | Way::Socket => {
                Some(builder.grpc_socket(dir.path().join("grpc.sock")))
            }
            Way::Tcp | Way::Packed => Some(builder.grpc("127.0.0.1:0".parse().unwrap())),
        };
        let server =
            builder.map(|builder| builder.bind(store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
        World { store, server, dir, way }
    }

    pub(crate) fn address(&self) -> String {
        match self.way {
            Way::Neighbour | Way::Slabs | Way::Socket => {
                format!("unix://{}", self.dir.path().join("grpc.sock").display())
            }
            _ => format!("grpc://{}", self.server.as_ref().unwrap().grpc_address().unwrap()),
        }
    }

    /// Another process, as far as the store can tell.
    pub(crate) fn client(&self) -> Client {
        match self.way {
            Way::Embedded => {
                let asked = Asked::new(Session::new(&self.store).unwrap());
                let embedded = Embedded::new(self.store.clone()).with_queries(Arc::new(asked));
                Client::over(Arc::new(embedded))
            }
            way => Client::connect(&self.address(), &way.options()).unwrap(),
        }
    }
}

/// Runs a case on every way, each with a store of its own.
pub(crate) fn on_every_way(case: impl Fn(&World)) {
    for way in Way::ALL {
        eprintln!("on the way {way:?}"); // shown when the case fails
        case(&World::new(way));
    }
}

/// The usual columns.
pub(crate) fn solver_schema() -> Schema {
    Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .data("reward", DataType::Float32)
}

/// The usual table.
pub(crate) fn solver(client: &Client) -> Table {
    client.create_table("solver", solver_schema()).unwrap()
}

/// A task that waits for responses.
pub(crate) fn judge(client: &Client) -> ConsumerHandle {
    client.create_consumer("judge", Consumer::task(["solver"]).ready(["response"])).unwrap()
}

/// A trainer that waits for rewards.
pub(crate) fn trainer(client: &Client) -> ConsumerHandle {
    client.create_consumer("train", Consumer::trainer(["solver"]).ready(["response", "reward"])).unwrap()
}

/// A row with a response, and with a reward if there is one.
pub(crate) fn row(table: &Table, version: u64, id: &str, reward: Option<f32>) -> Row {
    let row = table.insert(NewRow::new(version, id).unwrap(), [("prompt", id.into())]).unwrap();
    let tokens = vec![1_i32, 2, i32::from(id.len() as u8)];
    table.write(row, [("response", tokens.into())]).unwrap();
    if let Some(reward) = reward {
        table.write(row, [("reward", reward.into())]).unwrap();
    }
    row
}

pub(crate) fn ids(claim: &Claim) -> Vec<String> {
    claim.sample_ids().iter().map(ToString::to_string).collect()
}

/// What a judge says of each row of a claim.
pub(crate) fn verdicts(claim: &Claim, reward: f32) -> Changes<'static> {
    let mut changes = Changes::new();
    claim.rows().iter().for_each(|row| _ = changes.write("solver", *row, [("reward", reward.into())]));
    changes
}

pub(crate) fn up_to(rows: usize) -> MicroBatch {
    MicroBatch::up_to(rows)
}
