//! Messages that nobody meant: every call of the protocol with bytes that were changed at random, in a session of its own
//! and outside of it, and bytes below the protocol. The server answers each, nothing panics, and whoever else is there goes on.
//!
//! The long form: `FOREBAY_ROUNDS=300000 FOREBAY_SEED=7 cargo test -p forebay-server --test it fuzzed_long -- --ignored --nocapture`

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, failure_of, new_call};
use forebay_client::{Client, Plan, ReadRows, TakeSnapshot};
use forebay_store::{
    Consumer, DataColumn, DataType, Dtype, Element, Gang, Layout, NewRow, Randomness, Schema as Columns,
    SeededRandomness,
};
use futures_util::stream;
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Status};

use super::raw::Raw;
use crate::conformance::*;

/// Messages as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// One message of each kind that a client may send, by the method that takes it; all but `Close`, whose message is empty.
fn sound(row: forebay_store::Row, claim: forebay_client::Epoch) -> Vec<(&'static str, Vec<u8>)> {
    let mut changes = forebay_client::Changes::new();
    let cells = || [("prompt", "?".into()), ("response", vec![1_i32, 2, 3].into()), ("reward", 0.5.into())];
    changes.insert("solver", NewRow::new(0, "f_0_?").unwrap().token(7).parent("q_0_0").weights("w"), cells());
    changes.insert_rollouts("solver", NewRow::new(0, "g_0_?").unwrap(), 3, cells());
    changes.write("solver", row, [("reward", 1.0.into())]).exclude("solver", row, "a reason");
    let changes = wire::from_changes(&changes);
    let mut alike = forebay_client::Changes::new();
    alike.insert("solver", NewRow::new(0, "i_0_?").unwrap(), cells());
    alike.insert("solver", NewRow::new(0, "i_0_?").unwrap(), cells());
    alike.write("solver", row, [("reward", 1.0.into())]).write("solver", row, [("reward", 1.0.into())]);
    let mut alike = wire::from_changes(&alike);
    wire::name_inserts(&mut alike, 7);
    let mut insert = forebay_client::Changes::new();
    insert.insert("solver", NewRow::new(0, "h_0_?").unwrap(), [("prompt", "?".into())]);
    let loan = forebay_store::Loan { extent: 1, generation: 0, capacity: 4096 };
    let spot = forebay_store::Spot { offset: 64, length: 100, crc32c: 7 };
    let placed = wire::from_changes_placed(&insert, &mut |_, _| {
        Some(wire::from_placed(loan, forebay_store::PlacedKind::Utf8, spot))
    });
    let consumer = Consumer::trainer(["solver"]).ready(["reward"]).staleness(3);
    let declare = |declaration| DeclareRequest { name: "more".to_owned(), declaration: Some(declaration) };
    let (incarnation, number, member) = claim;
    let settle = |how| SettleRequest { incarnation, claim: number, member, how: Some(how) };
    let object = ObjectRef { key: "w".to_owned(), version: 1, bytes: 3, crc32c: 7 };
    let plan = Plan::new().rows("train", 2).groups("train", ["q"]);
    let plan = plan.entries().map(|(consumer, groups, rows)| PlanEntry {
        consumer: consumer.to_owned(),
        groups: groups.to_vec(),
        rows,
    });
    let rule = Some(wire::from_micro_batch(&up_to(2)));
    let (table, column, row) = ("solver".to_owned(), "response".to_owned(), wire::from_row(row));
    let value = Some(wire::from_value(&vec![1_i32].into()));
    let columns = Columns::new().data("a", DataType::Tensor(Element::BFloat16, vec![2, 3])).policy("solver");
    let mut all = objects(&object);
    let evict = EvictRequest { table: table.clone(), rows: row.clone(), reason: "spoilt".to_owned() };
    all.extend([
        ("BulkHead", bulk_head().to_vec()),
        ("BulkFrame", framed().to_vec()),
        ("Overview", OverviewRequest {}.encode_to_vec()),
        (
            "ShowRow",
            ShowRowRequest { table: table.clone(), which: Some(show_row_request::Which::Row(row.clone())) }
                .encode_to_vec(),
        ),
        (
            "ShowRow",
            ShowRowRequest {
                table: table.clone(),
                which: Some(show_row_request::Which::Identity(Identity {
                    policy_version: 0,
                    sample_id: "q_0_0".to_owned(),
                })),
            }
            .encode_to_vec(),
        ),
        ("Replay", ReplayRequest { step: 1 }.encode_to_vec()),
        (
            "AskStep",
            AskStepRequest {
                step: 1,
                ask: Some(ask_step_request::Ask::ReturnLost(LostClaims {
                    claims: vec![ClaimName { incarnation, claim: number, member }],
                })),
            }
            .encode_to_vec(),
        ),
        ("Evict", evict.encode_to_vec()),
        (
            "Declare",
            declare(declare_request::Declaration::Table(wire::from_schema(&columns))).encode_to_vec(),
        ),
        (
            "Declare",
            declare(declare_request::Declaration::Consumer(wire::from_consumer(&consumer))).encode_to_vec(),
        ),
        (
            "Declare",
            declare(declare_request::Declaration::AddColumn(wire::from_column(&DataColumn::new(
                "b",
                DataType::Utf8,
            ))))
            .encode_to_vec(),
        ),
        (
            "Describe",
            DescribeRequest { what: Some(describe_request::What::Table(table.clone())) }.encode_to_vec(),
        ),
        ("Write", WriteRequest { changes: Some(changes.clone()) }.encode_to_vec()),
        (
            "Grow",
            GrowRequest { table: table.clone(), row: row.clone(), column: column.clone(), value }
                .encode_to_vec(),
        ),
        (
            "Delete",
            DeleteRequest {
                table: table.clone(),
                rows: vec![row.clone()],
                by_rows: true,
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "Find",
            FindRequest { table: table.clone(), policy_version: 0, sample_id: "q_0_0".to_owned() }
                .encode_to_vec(),
        ),
        (
            "ReadCells",
            ReadCellsRequest { table: table.clone(), rows: vec![row.clone()], column: column.clone() }
                .encode_to_vec(),
        ),
        ("ReadCell", ReadCellRequest { table, row, column: column.clone() }.encode_to_vec()),
        (
            "Query",
            QueryRequest { statement: "SELECT sample_id, reward FROM solver LIMIT 3".to_owned() }
                .encode_to_vec(),
        ),
        (
            "Claim",
            ClaimRequest {
                consumer: "judge".to_owned(),
                rule: rule.clone(),
                wait_ms: Some(0),
                columns: vec![column.clone()],
                cells: true,
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "Claim",
            ClaimRequest {
                consumer: "judge".to_owned(),
                rule: rule.clone(),
                wait_ms: Some(0),
                columns: vec![column.clone()],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "TakeSnapshot",
            wire::from_take(&TakeSnapshot::default().tables(["solver"]).owner("eval")).encode_to_vec(),
        ),
        ("HoldSnapshot", HoldSnapshotRequest { snapshot: 1, extend_ms: Some(60_000) }.encode_to_vec()),
        (
            "ReadSnapshot",
            wire::from_read(1, "solver", &ReadRows::default().columns([column.clone()]).version(0), 1)
                .encode_to_vec(),
        ),
        (
            "SnapshotVersions",
            SnapshotVersionsRequest { snapshot: 1, table: "solver".to_owned() }.encode_to_vec(),
        ),
        (
            "Subscribe",
            SubscribeRequest {
                consumer: "judge".to_owned(),
                rule,
                outstanding: 1,
                columns: vec![column.clone()],
                placed: true,
                owner: Some("judge 1".to_owned()),
                cells: true,
                attempt: 1,
                held: vec![ClaimName { incarnation, claim: number, member }],
                give_up: false,
            }
            .encode_to_vec(),
        ),
        (
            "Columns",
            ColumnsRequest {
                incarnation,
                claim: number,
                member,
                columns: vec![column],
                cells: true,
                placed: true,
            }
            .encode_to_vec(),
        ),
        (
            "Lend",
            LendRequest { policy_version: 0, bytes: 1000, back: vec![wire::from_loan(loan)] }.encode_to_vec(),
        ),
        ("Write", WriteRequest { changes: Some(placed) }.encode_to_vec()),
        ("Write", WriteRequest { changes: Some(alike) }.encode_to_vec()),
        ("Settle", settle(settle_request::How::Finish(changes)).encode_to_vec()),
        ("Settle", settle(settle_request::How::ExtendMs(10)).encode_to_vec()),
        ("BeginStep", BeginStepRequest { plan: plan.collect() }.encode_to_vec()),
        ("JoinStep", wire::from_gang(1, "train", &Gang::new("gang", 0, 2)).encode_to_vec()),
        (
            "AskStep",
            AskStepRequest { step: 1, ask: Some(ask_step_request::Ask::IsComplete("train".to_owned())) }
                .encode_to_vec(),
        ),
        (
            "EndStep",
            EndStepRequest {
                step: 1,
                commit: false,
                updates: vec![PolicyUpdate { policy: "solver".to_owned(), objects: vec![object.clone()] }],
                durability: "logged".to_owned(),
            }
            .encode_to_vec(),
        ),
        ("Rewind", RewindRequest { step: 0, exclude: true }.encode_to_vec()),
        (
            "PutObject",
            ObjectPiece { object: Some(object.clone()), bytes: vec![1, 2, 3].into() }.encode_to_vec(),
        ),
        ("GetObject", object.encode_to_vec()),
        ("Maintain", MaintainRequest { what: Some(maintain_request::What::Sync(true)) }.encode_to_vec()),
        (
            "Open",
            OpenRequest {
                owner: "me".to_owned(),
                resume: Some(vec![7; 16].into()),
                neighbour: true,
                slabs: true,
            }
            .encode_to_vec(),
        ),
    ]);
    all
}

/// The same of objects.
fn objects(named: &ObjectRef) -> Vec<(&'static str, Vec<u8>)> {
    use move_object_request::Move;
    let tensors = [("weights", "w", Dtype::Bf16, &[30_u64, 7][..]), ("moments", "first", Dtype::F32, &[300])];
    let layout = tensors
        .iter()
        .fold(Layout::builder(), |b, (class, name, dtype, shape)| b.tensor(class, name, *dtype, shape));
    let layout = layout.build().unwrap();
    let commit = wire::from_commit(
        &forebay_client::ObjectCommit { filling: 1, ..Default::default() },
        Some(&[vec![1], vec![2, 3]]),
    );
    let commit = CommitObjectsRequest { objects: vec![commit.clone(), commit], version: Some(3) };
    let hold = |which| HoldObjectsRequest {
        keys: vec!["w".into()],
        which: Some(which),
        known: vec![7],
        ..Default::default()
    };
    let of = || ObjectVersion { key: "w".to_owned(), version: Some(named.version) };
    let move_it = |named| MoveObjectRequest { r#move: Some(named) };
    let begin = BeginObjectRequest {
        key: "w".to_owned(),
        expected: Some(wire::from_expected(forebay_store::Expected::Version(1))),
        layout: Some(wire::from_layout(&layout)),
        once: false,
        placed: true,
    };
    let bytes = Bytes::from(vec![7; 512]);
    let fill = FillObjectRequest {
        filling: 1,
        payload: 0,
        offset: 0,
        crc32c: forebay_store::checksum::crc32c(&bytes),
        bytes,
    };
    vec![
        ("BeginObject", begin.encode_to_vec()),
        ("FillObject", fill.encode_to_vec()),
        ("CommitObjects", commit.encode_to_vec()),
        ("AbortObject", AbortObjectRequest { filling: 1, reason: Some("no".to_owned()) }.encode_to_vec()),
        ("HoldObjects", hold(hold_objects_request::Which::Latest(true)).encode_to_vec()),
        ("HoldObjects", hold(hold_objects_request::Which::AtLeast(2)).encode_to_vec()),
        ("ReadObject", ReadObjectRequest { lease: 1, payload: 1, start: 0, end: 100 }.encode_to_vec()),
        ("VerifyObject", VerifyObjectRequest { lease: 1 }.encode_to_vec()),
        ("ReleaseObject", ReleaseObjectRequest { lease: 1, done: true, places: None }.encode_to_vec()),
        ("ListObjects", ListObjectsRequest::default().encode_to_vec()),
        ("MoveObject", move_it(Move::Spill(of())).encode_to_vec()),
        (
            "MoveObject",
            move_it(Move::Exchange(ExchangeObjects { out: Some(of()), into: Some(of()) })).encode_to_vec(),
        ),
    ]
}

/// A message's fields, without their meaning.
#[derive(Clone, Debug)]
enum Part {
    Number(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Vec<(u64, Part)>),
}

/// The fields of a message, if it is one.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Part)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = prost::encoding::decode_varint(&mut bytes).ok()?;
        let part = match key & 7 {
            0 => Part::Number(prost::encoding::decode_varint(&mut bytes).ok()?),
            1 => Part::Fixed(bytes.split_off(..8)?.to_vec()),
            5 => Part::Fixed(bytes.split_off(..4)?.to_vec()),
            2 => {
                let length = usize::try_from(prost::encoding::decode_varint(&mut bytes).ok()?).ok()?;
                let within = bytes.split_off(..length)?;
                fields_within(within)
            }
            _ => return None,
        };
        fields.push((key, part));
    }
    Some(fields)
}

fn fields_within(bytes: &[u8]) -> Part {
    match fields(bytes) {
        Some(fields) if !fields.is_empty() => Part::Message(fields),
        _ => Part::Bytes(bytes.to_vec()),
    }
}

fn written(fields: &[(u64, Part)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, part) in fields {
        prost::encoding::encode_varint(*key, &mut bytes);
        let within = match part {
            Part::Number(number) => {
                prost::encoding::encode_varint(*number, &mut bytes);
                continue;
            }
            Part::Fixed(fixed) => {
                bytes.extend_from_slice(fixed);
                continue;
            }
            Part::Bytes(within) => within.clone(),
            Part::Message(fields) => written(fields),
        };
        prost::encoding::encode_varint(within.len() as u64, &mut bytes);
        bytes.extend(within);
    }
    bytes
}

/// What numbers and texts are replaced by.
const NUMBERS: [u64; 10] = [0, 1, 2, 13, 255, 1 << 20, 1 << 31, 1 << 53, u64::MAX - 1, u64::MAX];
const TEXTS: [&str; 12] = [
    "",
    "solver",
    "judge",
    "train",
    "response",
    "q_0_0",
    "q_0_?",
    "../../etc",
    "\0",
    "a b\u{202e}",
    "SELECT",
    "_status",
];

/// Changes one field somewhere.
fn change(fields: &mut Vec<(u64, Part)>, dice: &SeededRandomness) {
    let below = |most: usize| dice.next_u64() as usize % most.max(1);
    let at = below(fields.len());
    if fields.is_empty() {
        return; // taken out before
    }
    match below(8) {
        0 => _ = fields.remove(at),
        1 => fields.insert(at, fields[below(fields.len())].clone()),
        2 => fields[at].0 ^= 8 << below(4), // another field
        _ => match &mut fields[at].1 {
            Part::Message(within) if below(5) > 0 => change(within, dice),
            Part::Message(_) => fields[at].1 = Part::Bytes(vec![dice.next_u64() as u8; below(40)]),
            Part::Number(number) => *number = NUMBERS[below(NUMBERS.len())],
            Part::Fixed(fixed) => fixed.fill([0, 0x7F, 0xF0, 0xFF][below(4)]),
            Part::Bytes(bytes) if below(2) == 0 => *bytes = TEXTS[below(TEXTS.len())].into(),
            Part::Bytes(bytes) => *bytes = changed(bytes, b"another", dice),
        },
    }
}

/// A message that was changed: mostly still one of the protocol's.
fn meant(sound: &[u8], other: &[u8], dice: &SeededRandomness) -> Vec<u8> {
    match fields(sound) {
        Some(mut fields) if !fields.is_empty() && !dice.next_u64().is_multiple_of(6) => {
            for _ in 0..1 + dice.next_u64() % 2 {
                if !fields.is_empty() {
                    change(&mut fields, dice);
                }
            }
            written(&fields)
        }
        _ => changed(sound, other, dice),
    }
}

/// Bytes that were changed in one to four places.
fn changed(sound: &[u8], other: &[u8], dice: &SeededRandomness) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    let below = |most: usize| dice.next_u64() as usize % most.max(1);
    for _ in 0..1 + below(4) {
        let at = below(bytes.len());
        let end = bytes.len().min(at + 1 + below(8));
        match below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << below(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][below(5)],
            2 => _ = bytes.drain(at..end),
            3 => bytes = [&bytes[..at], &other[below(other.len())..]].concat(),
            4 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            5 => _ = bytes.splice(at..at, [0xFF; 9].into_iter().chain([1])), // the largest number
            _ => _ = bytes.splice(at..at, (0..below(4)).map(|_| dice.next_u64() as u8)),
        }
    }
    bytes
}

/// A store with a little of everything, behind a server, and somebody who minds the protocol.
fn fuzz(seed: u64, rounds: u64) {
    let world = World::new(Way::Tcp);
    let honest = world.client();
    let table = solver(&honest);
    judge(&honest);
    trainer(&honest);
    let raw = Raw::connect(&world);
    let mut sound = Vec::new();
    let (dice, mut codes) = (SeededRandomness::new(seed), BTreeMap::new());
    for round in 0..rounds {
        if round % 100 == 0 {
            let version = honest.policy("solver").unwrap().version;
            let fresh = row(&table, version, &format!("honest{round}_0_0"), Some(1.0));
            sound = self::sound(
                fresh,
                raw.claim("judge").map_or((1, 1, 0), |(incarnation, number)| (incarnation, number, 0)),
            );
        }
        let pick = || &sound[dice.next_u64() as usize % sound.len()];
        let ((method, message), (_, other)) = (pick(), pick());
        let bytes =
            if dice.next_u64().is_multiple_of(20) { message.clone() } else { meant(message, other, &dice) };
        let code = match call(&raw, method, bytes.clone().into()) {
            Ok(()) => Code::Ok,
            Err(status) => {
                let answered = failure_of(&status).is_some() || status.code() == Code::Internal;
                let panicked = status.message().contains("panic");
                assert!(
                    (answered || wire::is_late(&status)) && !panicked,
                    "seed {seed}, round {round}: {method} with {bytes:02x?} ended as {status:?}"
                );
                status.code()
            }
        };
        *codes.entry(format!("{code:?}")).or_insert(0_u64) += 1;
    }
    eprintln!("seed {seed}, {rounds} messages: {codes:?}");
    drop(raw);
    let counts = honest.table("solver").unwrap().counts().unwrap();
    assert_eq!(counts.written, counts.consumed + counts.excluded.values().sum::<u64>() + counts.open());
}

/// The first message of a write in frames, and the second.
fn bulk_head() -> Bytes {
    let mut insert = forebay_client::Changes::new();
    for _ in 0..2 {
        insert.insert("solver", NewRow::new(0, "k_0_?").unwrap(), [("prompt", "?".into())]);
    }
    let mut at = 0..;
    let changes = wire::from_changes_placed(&insert, &mut |_, _| {
        at.next().map(|at| wire::from_framed(0, at, forebay_store::PlacedKind::Utf8))
    });
    let write = Some(WriteRequest { changes: Some(changes) });
    BulkPiece { write, bytes: 4_024, ..Default::default() }.encode_to_vec().into()
}

fn framed() -> Bytes {
    let frame = wire::frame_of(&[&[b'a'; 3_000], &[b'b'; 1_000]], true);
    BulkPiece { frame, ..Default::default() }.encode_to_vec().into()
}

/// Sends one message as a call of its own, and reads a little of the answer.
fn call(raw: &Raw, method: &str, message: Bytes) -> Result<(), Status> {
    let (service, method, messages) = match method {
        "BulkHead" => ("Bulk", "Write", vec![message, framed()]),
        "BulkFrame" => ("Bulk", "Write", vec![bulk_head(), message]),
        "Overview" | "Evict" => ("Admin", method, vec![message]),
        "ShowRow" | "Replay" => ("History", method, vec![message]),
        "PutObject" | "GetObject" => ("Store", method, vec![message]),
        _ if method.contains("Object") => ("Objects", method, vec![message]),
        _ => ("Store", method, vec![message]),
    };
    let path: PathAndQuery = format!("/forebay.v1.{service}/{method}").parse().unwrap();
    let mut request = raw.request(stream::iter(messages), &raw.session, &new_call().to_le_bytes());
    request.set_timeout(Duration::from_millis(500));
    let mut client = tonic::client::Grpc::new(raw.channel.clone());
    raw.runtime.block_on(async move {
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut answer = client.streaming(request, path, Plain).await?.into_inner();
        let endless = ["Open", "Subscribe"].contains(&method);
        while !endless && answer.message().await?.is_some() {}
        Ok(())
    })
}

#[test]
fn whatever_a_message_holds_it_is_answered_and_nobody_else_is_touched() {
    fuzz(31, 4_000);
}

#[test]
#[ignore = "takes minutes"]
fn fuzzed_long() {
    let from = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (rounds, seed) = (from("FOREBAY_ROUNDS", 300_000), from("FOREBAY_SEED", 100));
    (0..u64::div_ceil(rounds, 20_000)).for_each(|at| fuzz(seed + at, 20_000.min(rounds - at * 20_000)));
}

/// The first bytes of a client: preface, settings, the head of a call, and its message.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x24\x01\x04\0\0\0\x01\x83\x86\x44\x16/forebay.v1.Store/Open\x5f\x10application/grpc\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0";

#[test]
fn whatever_comes_below_the_protocol_disturbs_nobody() {
    for way in [Way::Tcp, Way::Socket] {
        let world = World::new(way);
        let honest = world.client();
        let table = solver(&honest);
        let dice = SeededRandomness::new(41);
        for round in 0..150 {
            say(&world, &changed(BEGINNING, BEGINNING, &dice));
            if round % 50 == 0 {
                row(&table, 0, &format!("q{round}_0_0"), None);
            }
        }
        assert_eq!(table.counts().unwrap().written, 3);
        let other: Client = world.client();
        assert_eq!(other.tables().unwrap(), ["solver"]);
    }
}

/// Says something over a connection of its own, and waits until the server has ended it.
fn say(world: &World, bytes: &[u8]) {
    fn over(mut stream: impl Read + Write, bytes: &[u8], close: impl Fn()) {
        let _ = stream.write_all(bytes); // it may have been ended before
        close();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    match world.way {
        Way::Socket => {
            let stream = std::os::unix::net::UnixStream::connect(world.dir.path().join("grpc.sock")).unwrap();
            over(&stream, bytes, || _ = stream.shutdown(std::net::Shutdown::Write));
        }
        _ => {
            let address = world.server.as_ref().unwrap().grpc_address().unwrap();
            let stream = TcpStream::connect(address).unwrap();
            over(&stream, bytes, || _ = stream.shutdown(std::net::Shutdown::Write));
        }
    }
}
