//! Rows that are looked for by policy version and sample id: the same on every way.

use forebay_client::CellValue;
use forebay_store::SampleId;

use super::*;

// More than a server finds in one call, by names that are longer than what says them in one.
#[test]
fn many_rows_are_found_in_the_order_in_which_they_are_asked_for() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let long = "i".repeat(200);
        let first = NewRow::new(0, &format!("{long}_0_?")).unwrap();
        let rows = table.insert_rollouts(first, 10_500, [("prompt", "p".into())]).unwrap();
        let sample = |trajectory: usize| -> SampleId { format!("{long}_0_{trajectory}").parse().unwrap() };
        let samples: Vec<SampleId> = (0..10_501).map(sample).collect();
        let later = table.insert(NewRow::new(1, &samples[7].to_string()).unwrap(), []).unwrap();
        let mut asked: Vec<(u64, &SampleId)> = samples.iter().rev().map(|sample| (0, sample)).collect();
        let mut meant: Vec<Option<Row>> = rows.iter().rev().copied().map(Some).collect();
        meant.insert(0, None); // there is one fewer
        asked.splice(3..3, [(1, &samples[7]), (1, &samples[8]), (0, &samples[7])]);
        meant.splice(3..3, [Some(later), None, Some(rows[7])]);
        assert!(table.find_all(&asked).unwrap() == meant);
        assert_eq!(table.find_all(&asked[..5]).unwrap(), meant[..5]);
        assert!(table.find_all(&[]).unwrap().is_empty());
        table.delete(&forebay_store::Delete::rows([later])).unwrap();
        assert_eq!(table.find_all(&asked[2..6]).unwrap(), [meant[2], None, None, meant[5]]);
        assert_eq!(client.table_named("gone").find_all(&asked[..1]).unwrap_err().cause(), "Unknown");
    });
}

// Where a neighbour puts values into its own extent, each row of several has one of its own all the same.
#[test]
fn rollouts_of_one_row_have_their_values_however_long_these_are() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        for bytes in [5, 1_000, 5_000, 300_000] {
            let prompt = "p".repeat(bytes);
            let new = NewRow::new(bytes as u64, "q_0_?").unwrap();
            let rows = table.insert_rollouts(new, 3, [("prompt", prompt.as_str().into())]).unwrap();
            for row in &rows {
                let cell = table.cell(*row, "prompt").unwrap();
                assert!(matches!(&cell, CellValue::Bytes(text) if **text == *prompt.as_bytes()), "{bytes}");
            }
        }
    });
}
