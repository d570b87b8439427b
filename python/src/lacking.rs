//! Why a wait for rows came to nothing, as far as a look at the store tells: for the message of who waited.

use arrow_array::Array;
use forebay::client::Depth;
use forebay::store::Peek;

use crate::handle::Open;

/// What keeps the rows of a consumer from being handed out, to be said behind a message; empty where it cannot be told (a token
/// without the scope `admin` may not look).
pub(crate) fn reason(open: &Open, consumer: &str) -> String {
    let depths = open.client.admin().overview().map_or_else(|_| Vec::new(), |overview| overview.depths);
    let told: Vec<String> =
        depths.iter().filter(|depth| depth.consumer == consumer).map(|depth| of_table(open, depth)).collect();
    if told.is_empty() { String::new() } else { format!("; {}", told.join("; ")) }
}

/// Rows of versions to come, of all trainers: what a step finds that finds nothing.
pub(crate) fn to_come(open: &Open) -> String {
    let depths = open.client.admin().overview().map_or_else(|_| Vec::new(), |overview| overview.depths);
    let waiting = depths.iter().filter(|depth| depth.future_rows > 0);
    let mut told: Vec<String> = waiting.map(|depth| of_future(open, depth)).collect();
    told.dedup();
    if told.is_empty() { String::new() } else { format!("; {}", told.join("; ")) }
}

fn of_table(open: &Open, depth: &Depth) -> String {
    let table = &depth.table;
    let written = open.table(table).counts().map(|counts| (counts.written, counts.open()));
    let mut told = Vec::new();
    if depth.future_rows > 0 {
        told.push(of_future(open, depth));
    }
    if depth.ready_rows > 0 {
        told.push(format!("{} ready, which is fewer than was asked for", are(depth.ready_rows)));
    }
    if depth.processing_rows > 0 {
        told.push(format!("{} in somebody's hands", are(depth.processing_rows)));
    }
    match written {
        _ if !told.is_empty() => {}
        Ok((0, _)) => told.push("it has no rows".to_owned()),
        Ok((_, 0)) => told.push("all of its rows are consumed or excluded".to_owned()),
        Ok((_, open)) if depth.group_members.is_some() => told.push(format!(
            "{} open, and no group of them is complete with all the columns that it needs (policy at version {})",
            are(open),
            depth.current_version
        )),
        Ok((_, open)) => told.push(format!(
            "{} open, and each lacks a column that is needed, or is of a version other than {}, the policy's",
            are(open),
            depth.current_version
        )),
        Err(_) => told.push("it cannot be looked at".to_owned()),
    }
    format!("table {table:?}: {}", told.join(", "))
}

/// Rows that the policy has yet to reach, and how it comes there.
fn of_future(open: &Open, depth: &Depth) -> String {
    let Depth { table, future_rows, current_version, .. } = depth;
    let newest =
        newest_version(open, table).map_or(String::new(), |version| format!(" (the newest is of {version})"));
    format!(
        "in {table:?} {} of a version that is still to come{newest}, for its policy is at {current_version}: insert rows of \
         version {current_version}, or begin with create_policy(..., version=...) before the table is created",
        are(*future_rows)
    )
}

fn newest_version(open: &Open, table: &str) -> Option<u64> {
    let columns = Some(vec!["policy_version".to_owned()]);
    let peek = Peek { columns, rows_max: 1, newest: true, ready_for: None };
    let rows = open.client.admin().peek(table, &peek).ok()?;
    let versions =
        rows.column_by_name("policy_version")?.as_any().downcast_ref::<arrow_array::UInt64Array>()?;
    (!versions.is_empty()).then(|| versions.value(0))
}

/// So many rows, and the verb.
fn are(count: u64) -> String {
    if count == 1 { "1 row is".to_owned() } else { format!("{count} rows are") }
}
