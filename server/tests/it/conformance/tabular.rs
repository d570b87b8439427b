//! Record batches both ways: what a claim gave, another table takes.

use arrow_array::RecordBatch;

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
