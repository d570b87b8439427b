//! Other programs read the files of an archive.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::fixture::*;
use super::python;
use crate::fixture::Run;

/// What every reader is asked for: a line of JSON a row, in the order of sample ids.
fn expected(run: &Run) -> String {
    let sql = "SELECT sample_id, policy_version, response, reward, reward_status, excluded_reason, version_spans \
               FROM solver WHERE policy_version < 5 ORDER BY sample_id";
    let mut lines = String::new();
    for mut row in run.rows(sql) {
        let spans = row["version_spans"].as_array().unwrap().len();
        let row = row.as_object_mut().unwrap();
        row.remove("version_spans");
        row.insert("spans".to_owned(), spans.into());
        writeln!(lines, "{}", serde_json::to_string(row).unwrap()).unwrap();
    }
    lines
}

/// The lines that a reader prints, with the keys in the order of this crate's.
fn check(printed: &str, expected: &str) {
    let parse =
        |lines: &str| lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Json>>();
    assert_eq!(parse(printed), parse(expected));
}

const PYARROW: &str = "
import json, sys, pyarrow.parquet as parquet
table = parquet.read_table(sys.argv[1]).sort_by('sample_id')
for row in table.to_pylist():
    row['spans'] = len(row['version_spans'])
    keys = ['sample_id', 'policy_version', 'response', 'reward', 'reward_status', 'excluded_reason', 'spans']
    print(json.dumps({key: row[key] for key in keys}))
";

const PANDAS: &str = "
import json, sys, math, pandas
frame = pandas.read_parquet(sys.argv[1]).sort_values('sample_id')
for row in frame.to_dict('records'):
    row['spans'] = len(row['version_spans'])
    row['response'] = None if row['response'] is None else [int(token) for token in row['response']]
    row['reward'] = None if math.isnan(row['reward']) else row['reward']
    reason = row['excluded_reason']
    row['excluded_reason'] = reason if isinstance(reason, str) else None
    keys = ['sample_id', 'policy_version', 'response', 'reward', 'reward_status', 'excluded_reason', 'spans']
    print(json.dumps({key: row[key] for key in keys}))
";

const DUCKDB: &str = "
import json, sys, duckdb
names = ['sample_id', 'policy_version', 'response', 'reward', 'reward_status', 'excluded_reason', 'spans']
columns = ', '.join(names[:-1]) + ', len(version_spans) AS spans'
source = f\"read_parquet('{sys.argv[1]}/*/*.parquet')\"
for row in duckdb.sql(f'SELECT {columns} FROM {source} ORDER BY sample_id').fetchall():
    print(json.dumps(dict(zip(names, row))))
";

#[test]
fn pyarrow_pandas_and_duckdb_read_the_same_rows() {
    let run = stepped();
    let expected = expected(&run);
    let (archive, path) = in_directory(&run);
    move_all(&run.store, &archive);
    for (package, program) in [("pyarrow", PYARROW), ("pandas", PANDAS), ("duckdb", DUCKDB)] {
        if python::has(package) && python::has("pyarrow") {
            check(&python::run(program, &[&path.join("solver")]), &expected);
        }
    }
}

/// DuckDB probes the bloom filter of the sample ids, and finds that no row group has one.
#[test]
fn duckdb_leaves_out_row_groups_by_bloom_filter() {
    if !python::has("duckdb") {
        return;
    }
    let run = stepped();
    let (archive, path) = in_directory(&run);
    move_all(&run.store, &archive);
    let program = "
import sys, json, duckdb
rows = duckdb.sql(f\"\"\"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{sys.argv[1]}/*/*.parquet', 'sample_id', \
'eval2_0_11')\"\"\").fetchall()
there = duckdb.sql(f\"\"\"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{sys.argv[1]}/at_version=2/*.parquet', \
'sample_id', 'eval2_0_10')\"\"\").fetchall()
print(json.dumps([[row[0] for row in rows], [row[0] for row in there]]))
";
    let printed: Json = serde_json::from_str(&python::run(program, &[&path.join("solver")])).unwrap();
    assert_eq!(printed, json!([vec![true; OVER as usize], [false]]));
}
