//! Queries.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use forebay_store::Kind;

use super::*;

#[test]
fn a_query_sees_every_row_that_was_written_before_it() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        (0..2_000)
            .for_each(|at| _ = table.insert(NewRow::new(0, &format!("q{at}_0_0")).unwrap(), []).unwrap());
        let long = "a prompt that is longer than a view ".repeat(1_000);
        (0..100).for_each(|at| {
            let row = NewRow::new(0, &format!("long{at}_0_0")).unwrap();
            table.insert(row, [("prompt", (&*long).into())]).unwrap();
        });
        let (_, counted) = client.query("SELECT count(*) AS rows FROM solver").unwrap();
        assert_eq!(counted[0].column(0).as_primitive::<Int64Type>().value(0), 2_100);
        let (schema, rows) =
            client.query("SELECT sample_id, prompt FROM solver WHERE prompt IS NOT NULL").unwrap();
        assert_eq!(schema.fields().len(), 2);
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 100);
        let texts = rows.iter().flat_map(|batch| batch.column(1).as_string_view().iter());
        assert!(texts.flatten().all(|text| text == long), "several megabytes, in pieces");
        let (schema, none) = client.query("SELECT reward FROM solver WHERE false").unwrap();
        assert_eq!(
            (schema.field(0).name().as_str(), none.iter().map(RecordBatch::num_rows).sum()),
            ("reward", 0)
        );
    });
}

#[test]
fn bad_queries_are_refused_alike() {
    on_every_way(|world| {
        let client = world.client();
        solver(&client);
        for (statement, named) in [
            ("SELECT rewrd FROM solver", "reward"),
            ("SELEC 1", "SELEC"),
            ("DELETE FROM solver", "delete"),
            ("SELECT 1 / 0", "zero"),
        ] {
            let error = client.query(statement).unwrap_err();
            assert_eq!(error.kind(), Kind::Input, "{statement}: {error}");
            assert!(error.to_string().to_lowercase().contains(&named.to_lowercase()), "{statement}: {error}");
        }
    });
}
