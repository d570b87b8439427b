//! Changes that follow each other in one call: the same as calls of their own, whatever happens on the way.

use std::cell::RefCell;
use std::time::Duration;

use forebay_client::wire::proto::change_reply::Outcome;
use forebay_client::wire::proto::change_request::Change;
use forebay_client::wire::proto::flow_client::FlowClient;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, FLOW_BYTES_MAX, FLOW_ROWS_MAX, failure_of, new_call, to_status};
use forebay_client::{CellValue, Changes, Client, ConnectOptions};
use forebay_server::Server;
use forebay_store::{Consumer, NewRow, RateLimiter, Wait};
use futures_util::stream;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

use super::limits::until;
use super::proxy::Proxy;
use super::raw::{Raw, insert};
use crate::conformance::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Whose an answer is, and what it says.
type Answer = (u128, Result<Outcome, Status>);

/// A call of `Flow`, by hand.
struct ByHand<'r> {
    raw: &'r Raw,
    ask: mpsc::UnboundedSender<ChangeRequest>,
    answers: RefCell<Streaming<ChangeReply>>,
}

impl<'r> ByHand<'r> {
    fn begin(raw: &'r Raw, session: &[u8]) -> Result<Self, Status> {
        let (ask, mut asked) = mpsc::unbounded_channel();
        let asked = stream::poll_fn(move |context| asked.poll_recv(context));
        let request = raw.request(asked, session, &new_call().to_le_bytes());
        let mut client = FlowClient::new(raw.channel.clone());
        let answers = raw.runtime.block_on(async move { client.change(request).await })?.into_inner();
        Ok(ByHand { raw, ask, answers: RefCell::new(answers) })
    }

    fn send(&self, name: u128, change: Change) {
        let name = name.to_le_bytes().to_vec().into();
        self.ask.send(ChangeRequest { name, change: Some(change) }).unwrap();
    }

    /// The next answer; none where the call has ended.
    fn next(&self) -> Result<Option<Answer>, Status> {
        let answer = self.raw.runtime.block_on(self.answers.borrow_mut().message())?;
        Ok(answer.map(|ChangeReply { name, outcome }| {
            let name = <[u8; 16]>::try_from(&*name).map_or(0, u128::from_le_bytes);
            (
                name,
                match outcome.unwrap() {
                    Outcome::Failed(failed) => Err(to_status(failed)),
                    outcome => Ok(outcome),
                },
            )
        }))
    }

    fn answer(&self) -> Answer {
        self.next().unwrap().expect("it goes on")
    }
}

/// A served store over TCP with its usual table, and a client of its own process.
fn served() -> (World, Client) {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    let local = world.client();
    world.way = Way::Tcp;
    solver(&local);
    (world, local)
}

fn written(local: &Client) -> u64 {
    local.table("solver").unwrap().counts().unwrap().written
}

/// An insert that waits for room for so long.
fn patient(id: &str, wait: Wait) -> WriteRequest {
    let mut changes = Changes::new();
    changes.insert("solver", NewRow::new(0, id).unwrap(), [("prompt", "?".into())]).wait(wait);
    WriteRequest { changes: Some(wire::from_changes(&changes)) }
}

fn cause(answer: Result<Outcome, Status>) -> String {
    failure_of(&answer.unwrap_err()).unwrap().cause().to_owned()
}

// FX-B16
#[test]
fn a_change_is_made_once_under_its_name_in_a_flow_or_as_a_call_of_its_own() {
    let (world, local) = served();
    let raw = Raw::connect(&world);
    let flow = ByHand::begin(&raw, &raw.session).unwrap();
    for name in [1, 2, 1, 3, 2] {
        flow.send(name, Change::Write(insert(&format!("q{name}_0_0"))));
    }
    let answers: Vec<_> =
        (0..5).map(|_| flow.answer()).map(|(name, outcome)| (name, outcome.unwrap())).collect();
    assert_eq!(
        answers.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        [1, 2, 1, 3, 2],
        "small ones keep their order"
    );
    assert_eq!((&answers[0], &answers[1]), (&answers[2], &answers[4]));
    assert_eq!(written(&local), 3);
    let again = raw.write(insert("q2_0_0"), &raw.session, &2_u128.to_le_bytes()).unwrap();
    assert_eq!(answers[1].1, Outcome::Write(again));
    raw.insert("q4_0_0", "?", &4_u128.to_le_bytes()).unwrap();
    flow.send(4, Change::Write(insert("q4_0_0")));
    assert!(matches!(flow.answer(), (4, Ok(Outcome::Write(_)))));
    assert_eq!(written(&local), 4);
    drop(flow.ask);
    let answers = &mut *flow.answers.borrow_mut();
    assert_eq!(raw.runtime.block_on(answers.message()).unwrap(), None, "it ends when nothing more is asked");
}

// FX-B16: a flow answers thousands a second, and a value that is appended has no token.
#[test]
fn an_append_that_is_sent_again_is_made_once_however_many_changes_were_answered_meanwhile() {
    let (world, local) = served();
    let table = local.table("solver").unwrap();
    let row = table.insert(NewRow::new(0, "grown_0_0").unwrap(), [("prompt", "?".into())]).unwrap();
    let raw = Raw::connect(&world);
    let part = wire::from_value(&vec![1_i32, 2].into());
    let append = || {
        let (table, column) = ("solver".to_owned(), "response".to_owned());
        let message = GrowRequest { table, row: wire::from_row(row), column, value: Some(part.clone()) };
        let (mut client, request) = (raw.client.clone(), raw.request(message, &raw.session, &[9; 16]));
        raw.runtime.block_on(async move { client.grow(request).await }).unwrap();
    };
    append();
    let flow = ByHand::begin(&raw, &raw.session).unwrap();
    for name in 0..1_100 {
        flow.send(name, Change::Write(insert(&format!("q{name}_0_0"))));
        assert!(flow.answer().1.is_ok());
    }
    append();
    let grown = table.cell(row, "response").unwrap();
    assert!(matches!(&grown, CellValue::Partial(bytes) if bytes.len() == 8), "{grown:?}");
    flow.send(0, Change::Write(insert("q0_0_0")));
    assert!(flow.answer().1.is_ok());
    assert_eq!(written(&local), 1_101, "nor is a change forgotten that was made a moment ago");
}

// AW-B09, FX-B12
#[test]
fn what_is_refused_in_a_flow_hurts_nothing_else_there() {
    let (world, local) = served();
    let raw = Raw::connect(&world);
    let flow = ByHand::begin(&raw, &raw.session).unwrap();
    let rollouts = |rows: u64| {
        let mut changes = Changes::new();
        changes.insert_rollouts("solver", NewRow::new(0, "many_0_?").unwrap(), rows as u32, []);
        wire::from_changes(&changes)
    };
    let settle = |how| SettleRequest { incarnation: 1, claim: 1, how, member: 0 };
    let finish = settle_request::How::Finish;
    let cases = [
        (Some(Change::Write(WriteRequest { changes: None })), "Protocol"),
        (None, "Protocol"),
        (Some(Change::Write(WriteRequest { changes: Some(rollouts(FLOW_ROWS_MAX + 1)) })), "TooLarge"),
        (Some(Change::Settle(settle(Some(finish(rollouts(FLOW_ROWS_MAX + 1)))))), "TooLarge"),
        (Some(Change::Settle(settle(None))), "Protocol"),
    ];
    for (at, (change, expected)) in cases.into_iter().enumerate() {
        let name = new_call();
        flow.ask.send(ChangeRequest { name: name.to_le_bytes().to_vec().into(), change }).unwrap();
        let (answered, outcome) = flow.answer();
        assert_eq!((answered, cause(outcome).as_str()), (name, expected), "case {at}");
    }
    let nameless = ChangeRequest { name: "short".into(), change: Some(Change::Write(insert("q_0_0"))) };
    flow.ask.send(nameless).unwrap();
    assert_eq!(cause(flow.answer().1), "Protocol");
    assert_eq!(written(&local), 0);
    flow.send(1, Change::Write(WriteRequest { changes: Some(rollouts(FLOW_ROWS_MAX)) }));
    assert!(flow.answer().1.is_ok());
    assert_eq!(written(&local), FLOW_ROWS_MAX);
}

// AW-B10
#[test]
fn a_change_that_is_too_long_ends_its_flow_and_no_other() {
    let (world, local) = served();
    let raw = Raw::connect(&world);
    let [flow, other] = [(); 2].map(|()| ByHand::begin(&raw, &raw.session).unwrap());
    let long = |bytes: usize| {
        let mut changes = Changes::new();
        let (row, prompt) = (NewRow::new(0, "long_0_0").unwrap(), "x".repeat(bytes));
        changes.insert("solver", row, [("prompt", prompt.into())]);
        Change::Write(WriteRequest { changes: Some(wire::from_changes(&changes)) })
    };
    flow.send(1, Change::Write(insert("q_0_0")));
    assert!(flow.answer().1.is_ok());
    flow.send(2, long(FLOW_BYTES_MAX));
    assert_eq!(flow.next().unwrap_err().code(), Code::OutOfRange, "it ends, and says why");
    until(&world, "forebay_calls_failed_total{cause=\"TooLarge\"}", 1.0);
    other.send(3, long(FLOW_BYTES_MAX - 200));
    assert!(other.answer().1.is_ok());
    assert_eq!(written(&local), 2);
}

#[test]
fn what_came_before_a_message_that_cannot_be_read_is_answered_before_its_flow_ends() {
    let (world, local) = served();
    let limited = Consumer::task(["solver"]).ready(["prompt"]).rate_limiter(RateLimiter::new(1.0, 1, 1.0));
    local.create_consumer("read", limited).unwrap();
    let raw = Raw::connect(&world);
    let flow = ByHand::begin(&raw, &raw.session).unwrap();
    let none = WriteRequest { changes: Some(Default::default()) };
    let nothing = wire::proto::Change::default();
    let many = WriteRequest {
        changes: Some(wire::proto::Changes {
            changes: vec![nothing; FLOW_BYTES_MAX / 4],
            ..Default::default()
        }),
    };
    flow.send(1, Change::Write(patient("q_0_0", Wait::No)));
    flow.send(2, Change::Write(none));
    flow.send(3, Change::Write(many));
    let mut answered = [flow.answer().0, flow.answer().0];
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);
    assert_eq!(failure_of(&flow.next().unwrap_err()).unwrap().cause(), "TooLarge");
    until(&world, "forebay_calls_failed_total{cause=\"TooLarge\"}", 1.0);
}

#[test]
fn a_session_has_so_many_flows_and_another_when_one_has_ended() {
    let (world, _) = served();
    let raw = Raw::connect(&world);
    let begin = || {
        let flow = ByHand::begin(&raw, &raw.session)?;
        flow.send(1, Change::Write(insert("q_0_0")));
        assert!(flow.answer().1.is_ok());
        Ok::<_, Status>(flow)
    };
    let mut flows: Vec<_> = (0..4).map(|_| begin().unwrap()).collect();
    let refused = begin().map(|_| ()).unwrap_err();
    assert_eq!(failure_of(&refused).unwrap().cause(), "Busy");
    let another = Raw::connect(&world);
    assert!(ByHand::begin(&another, &another.session).is_ok(), "others have their own");
    drop(flows.pop());
    while begin().is_err() {} // until the server sees that it has ended
}

#[test]
fn a_change_that_waits_for_room_holds_up_nothing_that_comes_behind_it() {
    let (world, local) = served();
    let limited = Consumer::task(["solver"]).ready(["prompt"]).rate_limiter(RateLimiter::new(1.0, 1, 2.0));
    local.create_consumer("read", limited).unwrap();
    let raw = Raw::connect(&world);
    let flow = ByHand::begin(&raw, &raw.session).unwrap();
    let mut inserted = 0;
    loop {
        flow.send(inserted, Change::Write(patient(&format!("q{inserted}_0_0"), Wait::No)));
        match flow.answer().1 {
            Ok(_) => inserted += 1,
            refused => break assert_eq!(cause(refused), "HeldBack"),
        }
    }
    let (incarnation, claim) = raw.claim("read").unwrap();
    flow.send(1_000, Change::Write(patient("held_0_0", Wait::For(HOUR))));
    let finish = settle_request::How::Finish(wire::from_changes(&Changes::new()));
    flow.send(1_001, Change::Settle(SettleRequest { incarnation, claim, how: Some(finish), member: 0 }));
    let mut answers = [flow.answer(), flow.answer()].map(|(name, outcome)| (name, outcome.is_ok()));
    answers.sort_unstable();
    assert_eq!(answers, [(1_000, true), (1_001, true)]);
    assert_eq!(written(&local), inserted as u64 + 1);
}

#[test]
fn so_many_may_be_under_way_in_a_flow_and_more_are_sent_away_and_not_held_up() {
    let (world, local) = served();
    let limited = Consumer::task(["solver"]).ready(["prompt"]).rate_limiter(RateLimiter::new(1.0, 1, 1.0));
    local.create_consumer("read", limited).unwrap();
    let raw = Raw::connect(&world);
    let flow = ByHand::begin(&raw, &raw.session).unwrap();
    let under_way = 256; // and one or two that find room
    for name in 0..under_way + 16 {
        flow.send(name, Change::Write(patient(&format!("q{name}_0_0"), Wait::For(HOUR))));
    }
    let sent_away = (0..16).map(|_| flow.answer()).filter(|(_, outcome)| outcome.is_err());
    let sent_away: Vec<_> = sent_away.map(|(name, outcome)| (name, cause(outcome))).collect();
    assert!(sent_away.len() >= 13, "{sent_away:?}");
    assert!(sent_away.iter().all(|(name, cause)| *name >= under_way && cause == "Busy"), "{sent_away:?}");
    until(&world, "forebay_calls_failed_total{cause=\"Busy\"}", sent_away.len() as f64);
}

// AW-B06: what goes on in the name of a session ends with it.
#[test]
fn a_flow_ends_with_its_session_and_is_of_one_that_there_is() {
    let (world, local) = served();
    let raw = Raw::connect(&world);
    let refused = ByHand::begin(&raw, &[7; 16]).map(|_| ()).unwrap_err();
    assert_eq!(failure_of(&refused).unwrap().cause(), "SessionLost");
    let flow = ByHand::begin(&raw, &raw.session).unwrap();
    flow.send(1, Change::Write(insert("q_0_0")));
    assert!(flow.answer().1.is_ok());
    let (mut client, close) = (raw.client.clone(), raw.request(CloseRequest {}, &raw.session, &[1; 16]));
    raw.runtime.block_on(async move { client.close(close).await }).unwrap();
    match flow.next() {
        Ok(None) => {}
        other => panic!("it goes on: {other:?}"),
    }
    assert_eq!(written(&local), 1);
}

#[test]
fn a_server_that_stops_waits_for_no_flow() {
    let (mut world, _) = served();
    let client =
        Client::connect(&world.address(), &ConnectOptions::default().outage_time_max(Duration::ZERO))
            .unwrap();
    let table = client.table("solver").unwrap();
    let insert = |at: usize| table.insert(NewRow::new(0, &format!("q{at}_0_0")).unwrap(), []);
    (0..10).for_each(|at| _ = insert(at).unwrap());
    let begun = std::time::Instant::now();
    drop(world.server.take());
    assert!(begun.elapsed() < Duration::from_secs(4), "it waited for its grace: {:?}", begun.elapsed());
    assert_eq!(insert(10).unwrap_err().cause(), "Connection");
}

// FX-B16: whatever of the flow or of its answers was cut off, every row is there once.
#[test]
fn changes_are_made_once_whenever_their_flow_is_cut() {
    let (world, local) = served();
    let proxy = Proxy::to(world.server.as_ref().unwrap().grpc_address().unwrap());
    let client = Client::connect(&proxy.address(), &ConnectOptions::default().outage_time_max(HOUR)).unwrap();
    let table = client.table("solver").unwrap();
    let mut rows = 0;
    let mut insert = |count: usize| {
        let under_way: Vec<_> = (0..count)
            .map(|_| {
                let mut changes = Changes::new();
                changes.insert(
                    "solver",
                    NewRow::new(0, &format!("q{rows}_0_0")).unwrap(),
                    [("prompt", "?".into())],
                );
                rows += 1;
                client.write_async(&changes).unwrap()
            })
            .collect();
        under_way.into_iter().for_each(|write| assert_eq!(write.wait().unwrap().len(), 1));
    };
    for bytes in (0..2_000).step_by(61) {
        for of_client in [true, false] {
            insert(8); // the flow is there again
            match of_client {
                true => proxy.cut_after_sent(bytes),
                false => proxy.cut_after(bytes / 2),
            }
            while proxy.is_cut_ahead() {
                insert(8);
            }
        }
    }
    assert_eq!(table.counts().unwrap().written, rows as u64);
    assert_eq!(written(&local), rows as u64);
}

#[test]
fn changes_without_the_right_to_them_are_refused_one_by_one() {
    use forebay_server::{Builder, Grant, Scope, Token};
    let mut world = World::new(Way::Embedded);
    let grant = |name: &str| Grant::new(name, Token::new(&format!("{name}-token")).unwrap());
    let grants = [grant("look").scopes([Scope::Read]), grant("train").scopes([Scope::Train])];
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    let builder = grants.into_iter().fold(builder, Builder::grant);
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    let local = world.client();
    solver(&local);
    judge(&local);
    world.way = Way::Tcp;
    row(&local.table("solver").unwrap(), 0, "q_0_0", None);
    let connect = |name: &str| {
        let options = ConnectOptions::default().token(&format!("{name}-token"));
        Client::connect(&world.address(), &options).unwrap()
    };
    let (look, train) = (connect("look"), connect("train"));
    let judge = train.consumer("judge").unwrap();
    for round in 0..10 {
        for client in [&look, &train] {
            let row = NewRow::new(0, &format!("r{round}_0_0")).unwrap();
            assert_eq!(client.table("solver").unwrap().insert(row, []).unwrap_err().cause(), "Forbidden");
        }
        judge.claim(up_to(1), Wait::No).unwrap().unwrap().release().unwrap();
    }
    assert_eq!(written(&local), 1);
}
