//! One message of each kind that a client may send.

use bytes::Bytes;
use forebay_client::wire;
use forebay_client::wire::proto::*;
use forebay_client::{Plan, ReadRows, TakeSnapshot};
use forebay_store::{
    Consumer, DataColumn, DataType, Dtype, Element, Gang, Layout, NewRow, Schema as Columns,
};
use prost::Message;

use crate::conformance::*;

/// One message of each kind that a client may send, by the method that takes it; all but `Close`, whose message is empty.
pub(super) fn sound(row: forebay_store::Row, claim: forebay_client::Epoch) -> Vec<(&'static str, Vec<u8>)> {
    let mut changes = forebay_client::Changes::new();
    let cells = || [("prompt", "?".into()), ("response", vec![1_i32, 2, 3].into()), ("reward", 0.5.into())];
    changes.insert(
        "solver",
        NewRow::new(0, "f_0_?").unwrap().token(7).parent("q_0_0").weights("w").span(1, 2).trainable_from(1),
        cells(),
    );
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
    let claim = ClaimRequest {
        consumer: "judge".to_owned(),
        rule: rule.clone(),
        wait_ms: Some(0),
        columns: vec![column.clone()],
        ..Default::default()
    };
    let mut all = objects(&object);
    let evict = EvictRequest { table: table.clone(), rows: row.clone(), reason: "spoilt".to_owned() };
    all.extend([
        ("BulkHead", bulk_head().to_vec()),
        ("BulkFrame", framed().to_vec()),
        ("Overview", OverviewRequest {}.encode_to_vec()),
        (
            "ShowRows",
            ShowRowsRequest {
                table: table.clone(),
                which: Some(show_rows_request::Which::Rows(row.clone())),
            }
            .encode_to_vec(),
        ),
        (
            "ShowRows",
            ShowRowsRequest {
                table: table.clone(),
                which: Some(show_rows_request::Which::Identity(Identity {
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
            FindRequest {
                table: table.clone(),
                identities: vec![Identity { policy_version: 0, sample_id: "q_0_0".to_owned() }; 2],
            }
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
        ("Claim", ClaimRequest { cells: true, ..claim.clone() }.encode_to_vec()),
        ("Claim", claim.encode_to_vec()),
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

/// The first message of a write in frames, and the second.
pub(super) fn bulk_head() -> Bytes {
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

pub(super) fn framed() -> Bytes {
    let frame = wire::frame_of(&[&[b'a'; 3_000], &[b'b'; 1_000]], true);
    BulkPiece { frame, ..Default::default() }.encode_to_vec().into()
}
