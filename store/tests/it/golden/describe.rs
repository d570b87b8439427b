//! What a store shows of itself, as lines of text.

use std::fmt::Write;

use forebay_store::*;

use crate::support::*;

/// Everything that one can see of what is stored; nothing of how it lies in the files.
pub(super) fn describe(store: &Store) -> String {
    let mut text = String::new();
    for name in store.tables() {
        describe_table(store, &store.table(&name).unwrap(), &mut text);
    }
    for policy in store.policies() {
        writeln!(text, "policy {} {} since {}", policy.name, policy.version, policy.updated_at).unwrap();
        for object in &policy.objects {
            let payload = String::from_utf8(store.object(object).unwrap()).unwrap();
            writeln!(text, "  {} {} {payload:?}", object.key, object.version).unwrap();
        }
    }
    for consumer in store.consumers() {
        let ConsumerInfo { name, kind, table, ready_rows, .. } = consumer;
        writeln!(text, "consumer {name} {kind} {table} {ready_rows}").unwrap();
    }
    for info in store.claims() {
        let ClaimInfo {
            claim,
            incarnation,
            consumer,
            table,
            owner,
            progress,
            rows,
            step,
            sequence_in_step,
            ..
        } = &info;
        writeln!(text, "claim {claim} {incarnation} {consumer} {table} {owner:?} {progress:?} {rows} {step:?} {sequence_in_step}").unwrap();
        writeln!(text, "  {} {} {:?}", info.granted_at, info.deadline, info.accumulated_at).unwrap();
    }
    for step in store.steps() {
        let StepInfo { step, progress, begun_at, rows, updates, .. } = step;
        writeln!(text, "step {step} {progress:?} {begun_at} {rows} {updates:?}").unwrap();
        for batch in store.replay(step).into_iter().flatten() {
            writeln!(text, "  {:?} {:?}", batch.gradient_id(), batch.sample_ids()).unwrap();
        }
    }
    text
}

fn describe_table(store: &Store, table: &Table, text: &mut String) {
    let schema = table.schema();
    writeln!(text, "table {} {:?} {:?}", table.name(), schema.policy_name(), table.counts()).unwrap();
    for column in schema.data_columns() {
        let DataColumn { name, data_type, shared, role, lazy, retired } = column;
        writeln!(
            text,
            "  column {name} {data_type} shared={shared} role={role:?} lazy={lazy} retired={retired}"
        )
        .unwrap();
    }
    for row in &scan(store)[table.name()] {
        let said = row.split(" | ").filter(|cell| !cell.ends_with("=null") && !cell.ends_with("=false"));
        writeln!(text, "  {}", said.collect::<Vec<_>>().join(" | ")).unwrap();
    }
    describe_rest(store, table, text);
}

/// What no scan shows: the versions that were moved out, the tokens that are not trained on, and the cells that still grow.
fn describe_rest(store: &Store, table: &Table, text: &mut String) {
    let snapshot = store.snapshot();
    let seen = snapshot.table(table.name()).unwrap();
    for version in (0..=seen.current_version()).filter(|version| seen.is_moved_out(*version)) {
        writeln!(text, "  version {version} was moved out").unwrap();
    }
    for row in pick(store, table.name(), &["policy_version", "sample_id"]) {
        let (version, sample): (u64, SampleId) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        let Some(RowInfo { row: found, trainable_from, .. }) = table.get(version, &sample) else { continue };
        if trainable_from > 0 {
            writeln!(text, "  {sample} is trained on from token {trainable_from} on").unwrap();
        }
        for column in table.schema().data_columns().iter().filter(|column| !column.retired) {
            if let Some(bytes) = table.partial(found, &column.name).ok().flatten() {
                writeln!(text, "  {sample} {} grows: {bytes:?}", column.name).unwrap();
            }
        }
    }
}
