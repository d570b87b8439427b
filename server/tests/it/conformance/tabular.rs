//! Record batches both ways: what a claim gave, another table takes.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::{Array, RecordBatch};
use forebay_store::Value;

use super::*;

#[test]
fn what_a_claim_gave_as_arrow_another_table_takes() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        for at in 0..5 {
            row(&table, 0, &format!("q{at}_0_0"), (at != 2).then_some(0.5));
        }
        let all = |consumer: &ConsumerHandle| -> RecordBatch {
            let claim = consumer.claim(up_to(8), Wait::No).unwrap().unwrap();
            let batch = claim.columns(["sample_id", "prompt", "response", "reward"]).unwrap();
            claim.finish(&Changes::new()).unwrap();
            batch
        };
        let batch = all(&judge(&client));
        let copy = client.create_table("copy", solver_schema().policy("copy")).unwrap();
        let copied = Consumer::task(["copy"]).ready(["response"]);
        let copied = client.create_consumer("copied", copied).unwrap();
        assert_eq!(copy.insert_batch(0, &batch).unwrap().len(), 5);
        assert_eq!(all(&copied), batch);
        // All or none: one of them is there.
        let error = copy.insert_batch(0, &batch.slice(4, 1)).unwrap_err();
        assert!(error.to_string().contains("q4_0_0"), "{error}");
        let rows: Vec<Row> = (0..5)
            .map(|at| copy.insert(NewRow::new(0, &format!("later{at}_0_0")).unwrap(), []).unwrap())
            .collect();
        copy.write_batch(&rows, &batch.project(&[1, 2, 3]).unwrap()).unwrap();
        let later = all(&copied);
        assert_eq!(later.project(&[1, 2, 3]).unwrap(), batch.project(&[1, 2, 3]).unwrap());
    });
}

/// How long the texts and lists of a row are: nothing, a little, or much.
fn length(at: usize) -> usize {
    [0, 3, 40_000, 200_000, 7][at % 5]
}

#[test]
fn columns_that_travel_in_many_pieces_are_those_that_were_written() {
    const ROWS: usize = 40;
    on_every_way(|world| {
        let client = world.client();
        let schema = Schema::new()
            .data("text", DataType::Utf8)
            .data("image", DataType::Binary)
            .data("tokens", DataType::list(Element::Int32))
            .data("tensor", DataType::Tensor(Element::Float32, vec![2, 3]))
            .data("sure", DataType::Bool);
        client.create_table("solver", schema).unwrap();
        let read = client.create_consumer("read", Consumer::task(["solver"]).ready(["tensor"])).unwrap();
        let mut changes = Changes::new();
        for at in 0..ROWS {
            let new = NewRow::new(0, &format!("q{at:02}_0_0")).unwrap();
            let image = Value::Binary(vec![at as u8; length(at + 1)].into());
            let tokens: Vec<i32> = (0..length(at + 2) as i32 / 4).map(|token| token * at as i32).collect();
            let cells =
                [("text", "x".repeat(length(at)).into()), ("image", image), ("tokens", tokens.into())];
            let cells = cells.into_iter().filter(|_| !at.is_multiple_of(9)); // of some there is nothing
            let always = [("tensor", vec![at as f32; 6].into()), ("sure", Value::from(at.is_multiple_of(2)))];
            changes.insert("solver", new, cells.chain(always));
        }
        client.write(&changes).unwrap();
        let claim = read.claim(up_to(ROWS), Wait::No).unwrap().unwrap();
        let columns = claim.columns(["sample_id", "text", "image", "tokens", "tensor", "sure"]).unwrap();
        assert_eq!(columns.num_rows(), ROWS);
        for (row, id) in claim.sample_ids().iter().enumerate() {
            let at: usize = id.input()[1..].parse().unwrap();
            assert_eq!(columns.column(0).as_string_view().value(row), format!("q{at:02}_0_0"));
            assert_eq!(columns.column(4).as_fixed_size_list().value(row).len(), 6);
            let tensor = columns.column(4).as_fixed_size_list().value(row);
            assert_eq!(tensor.as_primitive::<Float32Type>().values(), &[at as f32; 6]);
            assert_eq!(columns.column(5).as_boolean().value(row), at.is_multiple_of(2));
            let [text, image, tokens] = [1, 2, 3].map(|column| columns.column(column));
            assert_eq!([text, image, tokens].map(|column| column.is_null(row)), [at.is_multiple_of(9); 3]);
            if at.is_multiple_of(9) {
                continue;
            }
            assert_eq!(text.as_string_view().value(row), "x".repeat(length(at)));
            assert_eq!(image.as_binary_view().value(row), vec![at as u8; length(at + 1)]);
            let tokens = tokens.as_list::<i32>().value(row);
            let tokens = tokens.as_primitive::<Int32Type>().values();
            assert_eq!(tokens.len(), length(at + 2) / 4);
            assert!(tokens.iter().enumerate().all(|(number, token)| *token == (number * at) as i32));
        }
        claim.finish(&Changes::new()).unwrap();
    });
}

#[test]
fn lists_that_stay_where_they_are_hold_what_lists_do_on_every_way() {
    on_every_way(|world| {
        let client = world.client();
        let schema = Schema::new()
            .data("tokens", DataType::list(Element::Int32))
            .data("half", DataType::list(Element::BFloat16))
            .data("tensor", DataType::Tensor(Element::Float32, vec![2, 3]));
        let table = client.create_table("solver", schema).unwrap();
        let read = client.create_consumer("read", Consumer::task(["solver"]).ready(["tensor"])).unwrap();
        for at in 0..12 {
            let half = vec![at as u8; 2 * at];
            let cells = [
                ("tokens", vec![at as i32; at * 100].into()),
                ("half", Value::Numbers(Element::BFloat16, half.into())),
                ("tensor", vec![at as f32; 6].into()),
            ];
            let cells = cells.into_iter().skip(usize::from(at % 5 == 4)); // of some there is nothing
            table.insert(NewRow::new(0, &format!("q{at:02}_0_0")).unwrap(), cells).unwrap();
        }
        let claim = read.claim(up_to(12), Wait::No).unwrap().unwrap();
        let names = ["sample_id", "tokens", "half", "tensor", "version_spans"];
        let (together, in_place) = (claim.columns(names).unwrap(), claim.columns_in_place(names).unwrap());
        for at in [0, 4] {
            assert_eq!(in_place.column(at), together.column(at));
        }
        for at in [1, 2] {
            assert!(
                in_place
                    .column(at)
                    .as_list_view::<i32>()
                    .iter()
                    .eq(together.column(at).as_list::<i32>().iter())
            );
        }
        assert!(
            in_place
                .column(3)
                .as_list_view::<i32>()
                .iter()
                .eq(together.column(3).as_fixed_size_list().iter())
        );
        let copy = client.create_table(
            "copy",
            Schema::new().data("tokens", DataType::list(Element::Int32)).policy("copy"),
        );
        assert_eq!(copy.unwrap().insert_batch(0, &in_place.project(&[0, 1]).unwrap()).unwrap().len(), 12);
    });
}
