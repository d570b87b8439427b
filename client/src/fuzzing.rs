//! Ways into what is made of messages for whoever throws bytes at it: the targets in `fuzz/`, and the test that replays their
//! corpus. Not part of the interface.
//!
//! Each function takes any bytes and panics only where this crate is wrong.

use prost::Message;

use crate::wire::proto::*;
use crate::wire::{self, Lent};

/// The most bytes that a message may be made larger by what it is turned into, per byte of it.
const GROWTH_MAX: usize = 256;

/// What a client sends: the first byte says which message the others are.
pub fn request(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 5 {
        0 => decoded(bytes, |message: WriteRequest| message.changes.iter().for_each(changes)),
        1 => decoded(bytes, |message: SettleRequest| {
            if let Some(settle_request::How::Finish(finish)) = &message.how {
                changes(finish);
            }
        }),
        2 => decoded(bytes, declaration),
        3 => decoded(bytes, |message: ClaimRequest| {
            let _ = wire::to_micro_batch(message.rule.as_ref());
        }),
        _ => decoded(bytes, |message: JoinStepRequest| {
            let gang = wire::to_gang(&message);
            assert_eq!(wire::to_gang(&wire::from_gang(message.step, &message.consumer, &gang)), gang);
        }),
    }
}

/// What a server answers: the first byte says which message the others are.
pub fn reply(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 4 {
        0 => decoded(bytes, |message: ClaimReply| {
            let Some(Ok(granted)) = message.granted.map(wire::to_granted) else { return };
            assert_eq!(granted.rows.len(), granted.samples.len(), "each row has its sample");
            assert_eq!(wire::to_granted(wire::from_granted(granted.clone())).ok(), Some(granted));
        }),
        1 => decoded(bytes, |message: WriteReply| {
            let Ok(rows) = wire::to_rows(&message.rows) else { return };
            assert!(rows.iter().zip(&message.rows).all(|(row, name)| wire::from_row(*row) == *name));
        }),
        2 => decoded(bytes, |message: DescribeReply| {
            let _ = message.schema.map(wire::to_schema);
            message.consumers.into_iter().map(wire::to_declared).for_each(drop);
        }),
        _ => decoded(bytes, |message: ReadCellReply| {
            if let Ok(cell) = wire::to_cell(message) {
                assert_eq!(wire::to_cell(wire::from_cell(cell.clone())).ok(), Some(cell));
            }
        }),
    }
}

fn decoded<M: Message + Default>(bytes: &[u8], then: impl FnOnce(M)) {
    if let Ok(message) = M::decode(bytes) {
        then(message);
    }
}

/// Changes that are taken can be said again, and are taken then.
fn changes(message: &Changes) {
    let (nothing, mut named) = (Lent::default(), message.clone());
    wire::name_inserts(&mut named, u128::MAX);
    for (slab, part) in wire::parts_of_slabs(message) {
        assert!(part.start <= part.end, "slab {slab}");
    }
    for message in [message, &named] {
        let Ok(taken) = wire::to_changes(message, &nothing) else { continue };
        let again = wire::from_changes(&taken);
        assert!(again.encoded_len() <= GROWTH_MAX * (1 + message.encoded_len()), "it grows");
        assert!(wire::to_changes(&again, &nothing).is_ok(), "what was taken is taken again");
    }
}

fn declaration(message: DeclareRequest) {
    use declare_request::Declaration as Wire;
    match message.declaration {
        Some(Wire::Policy(policy)) => drop(wire::to_policy(policy)),
        Some(Wire::Table(schema)) => {
            if let Ok(schema) = wire::to_schema(schema) {
                assert_eq!(wire::to_schema(wire::from_schema(&schema)).ok(), Some(schema));
            }
        }
        Some(Wire::Consumer(consumer)) => {
            if let Ok(consumer) = wire::to_consumer(consumer) {
                assert!(wire::to_consumer(wire::from_consumer(&consumer)).is_ok());
            }
        }
        Some(Wire::AddColumn(column)) => drop(wire::to_column(column)),
        Some(Wire::RenameColumn(_) | Wire::RetireColumn(_)) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forebay_store::{Consumer, DataType, Element, Gang, GroupBy, MicroBatch, NewRow, Row, Schema};

    use super::*;

    type Target = (&'static str, fn(&[u8]));
    const TARGETS: [Target; 2] = [("request", request), ("reply", reply)];

    fn seed(which: u8, message: &impl Message) -> Vec<u8> {
        [&[which][..], &message.encode_to_vec()].concat()
    }

    /// What clients and servers say.
    fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
        let (row, mut changes) = (Row::from_bytes([7; 24]), crate::Changes::new());
        for id in ["q1_0_0", "q1_0_1"] {
            let tokens: Vec<i32> = (0..20).collect();
            let cells = [("prompt", "2 + 2".into()), ("response", tokens.into())];
            changes.insert("solver", NewRow::new(3, id).unwrap(), cells);
        }
        changes.write("solver", row, [("reward", 1.0.into())]).span("solver", row, 4, 4);
        changes.exclude("solver", row, "too long").expect_group("train", "solver", 3, "q1", 8);
        let changes = wire::from_changes(&changes);
        let schema = Schema::new()
            .data("prompt", DataType::Utf8)
            .data("image", DataType::Tensor(Element::UInt8, vec![8, 8]));
        let consumer = Consumer::trainer(["solver"]).ready(["prompt"]).group(GroupBy::Input, 8);
        let declare =
            |declaration| DeclareRequest { name: "solver".to_owned(), declaration: Some(declaration) };
        let granted = Granted {
            incarnation: 1,
            claim: 2,
            table: "solver".to_owned(),
            rows: vec![wire::from_row(row)],
            sample_ids: vec!["q1_0_0".to_owned()],
            ..Default::default()
        };
        let rule = wire::from_micro_batch(&MicroBatch::up_to(16));
        let how = Some(settle_request::How::Finish(changes.clone()));
        vec![
            ("request", "write", seed(0, &WriteRequest { changes: Some(changes) })),
            ("request", "finish", seed(1, &SettleRequest { how, ..Default::default() })),
            (
                "request",
                "table",
                seed(2, &declare(declare_request::Declaration::Table(wire::from_schema(&schema)))),
            ),
            (
                "request",
                "consumer",
                seed(2, &declare(declare_request::Declaration::Consumer(wire::from_consumer(&consumer)))),
            ),
            ("request", "claim", seed(3, &ClaimRequest { rule: Some(rule), ..Default::default() })),
            ("request", "join", seed(4, &wire::from_gang(1, "train", &Gang::new("gang", 1, 2)))),
            ("reply", "claim", seed(0, &ClaimReply { granted: Some(granted), complete: false })),
            ("reply", "rows", seed(1, &WriteReply { rows: vec![wire::from_row(row)] })),
            (
                "reply",
                "table",
                seed(2, &DescribeReply { schema: Some(wire::from_schema(&schema)), ..Default::default() }),
            ),
            ("reply", "cell", seed(3, &wire::from_cell(crate::CellValue::Inline(7)))),
        ]
    }

    /// Every file of the corpus is harmless, and so is everything that differs from one in a byte or is cut short.
    /// `FOREBAY_WRITE_CORPUS=1` writes the seeds anew, after a change of the protocol.
    #[test]
    fn every_file_of_the_corpus_is_harmless() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        if std::env::var_os("FOREBAY_WRITE_CORPUS").is_some() {
            for (target, name, bytes) in seeds() {
                std::fs::create_dir_all(corpus.join(target)).unwrap();
                std::fs::write(corpus.join(target).join(name), bytes).unwrap();
            }
        }
        for (target, run) in TARGETS {
            let files: Vec<_> = std::fs::read_dir(corpus.join(target)).unwrap().collect();
            assert!(!files.is_empty(), "{target} has no corpus");
            for file in files {
                let bytes = std::fs::read(file.unwrap().path()).unwrap();
                run(&bytes);
                for at in 0..bytes.len() {
                    run(&bytes[..at]);
                    for flip in [1, 0x80, 0xff] {
                        let mut changed = bytes.clone();
                        changed[at] ^= flip;
                        run(&changed);
                    }
                }
            }
        }
    }
}
