//! Many clients at once: connections that are held, and subscribers that all want the same rows.
//!
//! A member of the crowd has a connection and a session of its own. Members of one process share its runtime; the server is
//! another process, except in the small form that the tests run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use forebay_benches::Outcome;
use forebay_client::wire::proto::store_client::StoreClient;
use forebay_client::wire::proto::*;
use forebay_client::wire::{CALL, SESSION, from_micro_batch, new_call};
use forebay_store::{MicroBatch, NewRow, Store};
use futures_util::{StreamExt, stream};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

/// How many members connect at the same time.
const CONNECT_AT_ONCE: usize = 32;

/// A member: its connection, and its session, which lasts as long as the stream.
#[derive(Debug)]
struct Member {
    client: StoreClient<Channel>,
    session: Vec<u8>,
    presence: Streaming<OpenEvent>,
}

impl Member {
    async fn enter(address: &str) -> Outcome<Self> {
        let mut client = StoreClient::connect(address.replace("grpc://", "http://")).await?;
        let mut presence = client.open(OpenRequest::default()).await?.into_inner();
        match presence.message().await?.and_then(|event| event.event) {
            Some(open_event::Event::Opened(opened)) => {
                Ok(Member { client, session: opened.session.to_vec(), presence })
            }
            other => Err(format!("a session began with {other:?}").into()),
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert_bin(SESSION, MetadataValue::from_bytes(&self.session));
        request.metadata_mut().insert_bin(CALL, MetadataValue::from_bytes(&new_call().to_le_bytes()));
        request
    }

    /// Takes what is pushed, a row at a time, and counts it.
    async fn take(mut self, took: Arc<AtomicU64>) -> Outcome<()> {
        let rule = Some(from_micro_batch(&MicroBatch::of(1)));
        let subscribe = SubscribeRequest {
            consumer: "hear".to_owned(),
            rule,
            outstanding: 1,
            ..SubscribeRequest::default()
        };
        let request = self.request(subscribe);
        let mut pushed = self.client.subscribe(request).await?.into_inner();
        while let Some(granted) = pushed.message().await? {
            took.fetch_add(1, Relaxed); // before it is settled: what is settled is counted
            let how = Some(settle_request::How::Finish(Changes::default()));
            let settle = SettleRequest {
                incarnation: granted.incarnation,
                claim: granted.claim,
                how,
                ..SettleRequest::default()
            };
            let request = self.request(settle);
            self.client.settle(request).await?;
        }
        Ok(())
    }
}

/// Members that are there for as long as this is.
#[derive(Debug)]
pub(crate) struct Crowd {
    runtime: tokio::runtime::Runtime,
    members: Vec<Member>,
    took: Vec<Arc<AtomicU64>>,
}

impl Crowd {
    /// So many members connect.
    pub(crate) fn enter(address: &str, members: usize) -> Outcome<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let entering =
            stream::iter((0..members).map(|_| Member::enter(address))).buffer_unordered(CONNECT_AT_ONCE);
        let entered: Vec<Outcome<Member>> = runtime.block_on(entering.collect());
        let members = entered.into_iter().collect::<Outcome<_>>()?;
        Ok(Crowd { runtime, members, took: Vec::new() })
    }

    /// All of them subscribe.
    pub(crate) fn subscribe(&mut self) {
        for member in self.members.drain(..) {
            let took = Arc::new(AtomicU64::new(0));
            self.took.push(took.clone());
            self.runtime.spawn(async move {
                if let Err(error) = member.take(took).await {
                    eprintln!("a subscriber ended: {error}");
                }
            });
        }
    }

    /// How many rows each subscriber took.
    pub(crate) fn took(&self) -> Vec<u64> {
        self.took.iter().map(|took| took.load(Relaxed)).collect()
    }

    /// Whether the members that do not subscribe are still there: each asks something.
    pub(crate) fn is_there(&mut self) -> Outcome<()> {
        let ask = |member: &mut Member| {
            let request =
                member.request(DescribeRequest { what: Some(describe_request::What::Tables(true)) });
            let mut client = member.client.clone();
            async move { client.describe(request).await.map(drop) }
        };
        let asking: Vec<_> = self.members.iter_mut().map(ask).collect();
        let answers = stream::iter(asking).buffer_unordered(CONNECT_AT_ONCE);
        let answers: Vec<_> = self.runtime.block_on(answers.collect());
        answers.into_iter().collect::<Result<(), _>>()?;
        let broken = |member: &mut Member| {
            use futures_util::FutureExt;
            matches!(member.presence.message().now_or_never(), Some(Ok(None) | Err(_)))
        };
        let _inside = self.runtime.enter();
        match self.members.iter_mut().filter_map(|member| broken(member).then_some(())).count() {
            0 => Ok(()),
            lost => Err(format!("{lost} members lost their session").into()),
        }
    }
}

/// Inserts rows for `subscribers` to take, `share` for each, and waits until all are taken; gives the time.
pub(crate) fn feed(store: &Store, subscribers: usize, share: usize) -> Outcome<Duration> {
    let (table, rows) = (store.table("ping")?, subscribers * share);
    let before = store.stats().commits;
    let begun = Instant::now();
    for batch in (0..rows).collect::<Vec<_>>().chunks(64) {
        let mut changes = store.batch();
        for at in batch {
            let sent = i64::try_from(*at)?;
            changes.insert(
                &table,
                NewRow::new(0, &format!("c{before}x{at}_0_0"))?,
                [("sent", sent.into())],
            )?;
        }
        changes.commit()?;
    }
    loop {
        let waiting = store.consumers().into_iter().find(|place| place.name == "hear");
        let waiting = waiting.ok_or("no consumer")?;
        if waiting.ready_rows == 0 && waiting.processing_rows == 0 {
            return Ok(begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How fairly rows were spread: the fewest and the most that anybody took, as shares of the mean.
pub(crate) fn spread(took: &[u64]) -> [f64; 2] {
    let mean = took.iter().sum::<u64>() as f64 / took.len() as f64;
    [took.iter().min(), took.iter().max()].map(|took| took.map_or(f64::NAN, |took| *took as f64 / mean))
}

/// The memory that this process has, in bytes.
pub(crate) fn memory_bytes() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? * 1024.0)
}

/// Raises the limit on open files to what is allowed. Gives the limit.
///
/// # Errors
/// When the system does not tell it.
pub fn raise_open_files() -> Outcome<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}
