//! The protocol itself, without a client that minds it.

use forebay_client::Changes;
use forebay_client::wire::proto::store_client::StoreClient;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, CALL, SESSION};
use forebay_store::NewRow;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::conformance::World;

pub(crate) struct Raw {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) client: StoreClient<Channel>,
    pub(crate) channel: Channel,
    pub(crate) session: Vec<u8>,
    _presence: Streaming<OpenEvent>,
}

impl Raw {
    pub(crate) fn connect(world: &World) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = world.address().replace("grpc://", "http://");
        let (client, channel, presence, session) = runtime.block_on(async {
            let channel = Endpoint::new(address).unwrap().connect().await.unwrap();
            let mut client = StoreClient::new(channel.clone());
            let asked = OpenRequest { slabs: true, ..OpenRequest::default() };
            let mut presence = client.open(asked).await.unwrap().into_inner();
            let first = presence.message().await.unwrap().unwrap().event.unwrap();
            let open_event::Event::Opened(opened) = first else { panic!("{first:?}") };
            (client, channel, presence, opened.session.to_vec())
        });
        Raw { runtime, client, channel, session, _presence: presence }
    }

    pub(crate) fn request<T>(&self, message: T, session: &[u8], name: &[u8]) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert_bin(SESSION, MetadataValue::from_bytes(session));
        request.metadata_mut().insert_bin(CALL, MetadataValue::from_bytes(name));
        request
    }

    pub(crate) fn write(
        &self,
        message: WriteRequest,
        session: &[u8],
        name: &[u8],
    ) -> Result<WriteReply, Code> {
        let (mut client, request) = (self.client.clone(), self.request(message, session, name));
        let reply = self.runtime.block_on(async move { client.write(request).await });
        reply.map(tonic::Response::into_inner).map_err(|status| status.code())
    }

    pub(crate) fn insert(&self, id: &str, prompt: &str, name: &[u8]) -> Result<WriteReply, Code> {
        self.write(insert_of(id, prompt), &self.session, name)
    }

    pub(crate) fn lend(&self, message: LendRequest) -> Result<Loan, Status> {
        let (mut client, request) = (self.client.clone(), self.request(message, &self.session, &[1; 16]));
        let reply = self.runtime.block_on(async move { client.lend(request).await });
        reply.map(tonic::Response::into_inner)
    }

    pub(crate) fn try_write(&self, message: WriteRequest) -> Result<WriteReply, Status> {
        let name = wire::new_call().to_le_bytes();
        let (mut client, request) = (self.client.clone(), self.request(message, &self.session, &name));
        let reply = self.runtime.block_on(async move { client.write(request).await });
        reply.map(tonic::Response::into_inner)
    }

    /// A claim of whatever is there; its name.
    pub(crate) fn claim(&self, consumer: &str) -> Option<(u64, u64)> {
        let rule = Some(wire::from_micro_batch(&forebay_store::MicroBatch::up_to(1)));
        let message =
            ClaimRequest { consumer: consumer.to_owned(), rule, wait_ms: Some(0), ..Default::default() };
        let request = self.request(message, &self.session, &wire::new_call().to_le_bytes());
        let mut client = self.client.clone();
        let reply = self.runtime.block_on(async move { client.claim(request).await }).unwrap().into_inner();
        reply.granted.map(|granted| (granted.incarnation, granted.claim))
    }

    /// Sends the first piece of an object, and then nothing more.
    pub(crate) fn put_object_and_stop(&self, first: ObjectPiece) -> Result<ObjectRef, Status> {
        let pieces = stream::iter([first]).chain(stream::pending());
        let (mut client, request) = (self.client.clone(), self.request(pieces, &self.session, &[99; 16]));
        self.runtime
            .block_on(async move { client.put_object(request).await })
            .map(tonic::Response::into_inner)
    }

    /// The beginning of an answer.
    pub(crate) fn query(&self, statement: &str, name: &[u8]) -> Streaming<ArrowPiece> {
        let message = QueryRequest { statement: statement.to_owned() };
        let (mut client, request) = (self.client.clone(), self.request(message, &self.session, name));
        self.runtime.block_on(async move { client.query(request).await }).unwrap().into_inner()
    }

    /// The rests of answers, side by side: they share what a connection may carry unread.
    pub(crate) fn read_on(&self, answers: Vec<Streaming<ArrowPiece>>) -> Vec<Result<(), Status>> {
        let rest = |mut answer: Streaming<ArrowPiece>| async move {
            while answer.message().await?.is_some() {}
            Ok(())
        };
        self.runtime.block_on(join_all(answers.into_iter().map(rest)))
    }
}

pub(crate) fn insert(id: &str) -> WriteRequest {
    insert_of(id, "?")
}

fn insert_of(id: &str, prompt: &str) -> WriteRequest {
    let mut changes = Changes::new();
    changes.insert("solver", NewRow::new(0, id).unwrap(), [("prompt", prompt.into())]);
    WriteRequest { changes: Some(wire::from_changes(&changes)) }
}
