//! Micro-batches that are pushed.

use forebay_client::Client;
use forebay_client::wire::proto::store_client::StoreClient;
use forebay_client::wire::proto::*;
use forebay_client::wire::{CALL, SESSION, from_micro_batch, read_stream};
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::conformance::*;

#[test]
fn claims_come_by_themselves_and_never_more_than_are_taken() {
    let world = World::new(Way::Tcp);
    let local = Client::embedded(world.store.clone());
    let table = solver(&local);
    judge(&local);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = StoreClient::connect(world.address().replace("grpc://", "http://")).await.unwrap();
        let mut presence = client.open(OpenRequest::default()).await.unwrap().into_inner();
        let Some(open_event::Event::Opened(opened)) = presence.message().await.unwrap().unwrap().event else {
            panic!()
        };
        let named = |name: u8| {
            let session = opened.session.clone();
            move |metadata: &mut tonic::metadata::MetadataMap| {
                metadata.insert_bin(SESSION, MetadataValue::from_bytes(&session));
                metadata.insert_bin(CALL, MetadataValue::from_bytes(&[name; 16]));
            }
        };
        let mut subscribe = Request::new(SubscribeRequest {
            consumer: "judge".to_owned(),
            rule: Some(from_micro_batch(&up_to(1))),
            outstanding: 2,
            columns: vec!["sample_id".to_owned()],
            placed: false,
        });
        named(1)(subscribe.metadata_mut());
        let mut pushed = client.subscribe(subscribe).await.unwrap().into_inner();
        tokio::task::block_in_place(|| (0..4).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None)));
        let mut held = Vec::new();
        for _ in 0..2 {
            let granted = pushed.message().await.unwrap().unwrap();
            let (_, batches) = read_stream(granted.columns.clone()).unwrap();
            assert_eq!((batches[0].num_rows(), granted.sample_ids.len()), (1, 1));
            held.push(granted);
        }
        let leased =
            || world.store.claims().iter().filter(|claim| claim.progress.as_str() == "leased").count();
        assert_eq!(leased(), 2, "two are unsettled, and no third is taken for this client");
        for (name, granted) in held.drain(..).enumerate() {
            let how = settle_request::How::Finish(Changes::default());
            let (incarnation, claim) = (granted.incarnation, granted.claim);
            let mut settle = Request::new(SettleRequest { incarnation, claim, how: Some(how), member: 0 });
            named(name as u8 + 2)(settle.metadata_mut());
            client.settle(settle).await.unwrap();
            let next = pushed.message().await.unwrap().unwrap();
            assert_eq!(next.rows.len(), 1);
            assert!(leased() <= 2);
        }
        drop(presence);
    });
}
