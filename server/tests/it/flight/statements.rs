//! Statements: asked, prepared and refused.

use forebay_server::{Grant, Scope};

use super::*;

#[test]
fn a_statement_is_answered_in_types_that_every_driver_reads() {
    with(Server::builder(), async |served, mut client| {
        let sql = "SELECT sample_id, reward, prompt, [prompt] AS listed FROM solver ORDER BY sample_id";
        let batch = ask(&mut client, sql).await.unwrap();
        assert_eq!(texts(&batch, 0), ["q1_0_0", "q2_0_0", "q3_0_0"]);
        assert_eq!(texts(&batch, 2)[0], "longer than what fits into a view");
        assert_eq!(batch.schema().field(2).data_type(), &DataType::Utf8);
        assert!(batch.column(1).is_null(2), "a cell that is not final is NULL");
        let later = served.store.table("solver").unwrap();
        later.insert(1, "q4_0_0", []).unwrap();
        assert_eq!(ask(&mut client, "SELECT sample_id FROM solver").await.unwrap().num_rows(), 4);
        let none = ask(&mut client, "SELECT sample_id FROM solver WHERE false").await.unwrap();
        assert_eq!((none.num_rows(), none.num_columns()), (0, 1));
    });
}

#[test]
fn failures_have_codes_and_our_words() {
    with(Server::builder(), async |_, mut client| {
        for (sql, words) in [
            ("SELECT rewrd FROM solver", "did you mean reward?"),
            ("SELEC 1", "SELEC"),
            ("", "no statement"),
            ("DELETE FROM solver", "Table::delete"),
            ("SELECT ?", "1 parameters"),
            ("SELECT policy_version / 0 FROM solver", "zero"),
        ] {
            let status = ask(&mut client, sql).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{sql}: {status:?}");
            assert!(status.message().contains(words), "{sql}: {status:?}");
        }
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1, "the server stays up");
    });
}

#[test]
fn a_query_without_an_end_ends_in_its_time() {
    with(Server::builder().stream_time_max(Duration::from_millis(50)), async |_, mut client| {
        let endless = "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE value % 7 = 3";
        let status = ask(&mut client, endless).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        assert!(status.message().contains("statement_time_max"), "{status:?}");
    });
}

#[test]
fn what_would_write_is_refused_with_the_call_that_does_it() {
    with(Server::builder(), async |_, mut client| {
        let update =
            client.execute_update("UPDATE solver SET reward = 1".to_owned(), None).await.unwrap_err();
        assert!(update.to_string().contains("Table::write"), "{update}");
        let select = client.execute_update("SELECT 1".to_owned(), None).await.unwrap_err();
        assert!(select.to_string().contains("reads"), "{select}");
        let prepared = client.prepare("INSERT INTO solver VALUES (1)".to_owned(), None).await.map(|_| ());
        assert!(prepared.unwrap_err().to_string().contains("Table::insert"));
        let batch = RecordBatch::try_from_iter([("a", Arc::new(StringArray::from(vec!["x"])) as _)]).unwrap();
        let ingest = CommandStatementIngest { table: "solver".to_owned(), ..Default::default() };
        let ingest =
            client.execute_ingest(ingest, futures_util::stream::iter([Ok(batch)])).await.unwrap_err();
        assert!(ingest.to_string().contains("Table::insert"), "{ingest}");
        assert!(client.begin_transaction().await.is_err(), "there are no transactions");
    });
}

#[test]
fn a_prepared_statement_is_asked_with_other_values_each_time() {
    with(Server::builder(), async |_, mut client| {
        let sql = "SELECT sample_id FROM solver WHERE reward > ? ORDER BY 1";
        let mut prepared = client.prepare(sql.to_owned(), None).await.unwrap();
        assert_eq!(prepared.parameter_schema().unwrap().fields().len(), 1);
        assert_eq!(prepared.dataset_schema().unwrap().field(0).name(), "sample_id");
        for (least, expected) in [(0.0, &["q1_0_0", "q2_0_0"][..]), (0.7, &["q1_0_0"]), (2.0, &[])] {
            let values = Float64Array::from(vec![least]);
            let values = RecordBatch::try_from_iter([("0", Arc::new(values) as _)]).unwrap();
            prepared.set_parameters(values).unwrap();
            let info = prepared.execute().await.unwrap();
            assert_eq!(texts(&rows(&mut client, info).await.unwrap(), 0), expected, "{least}");
        }
        prepared.close().await.unwrap();
        // The type of the answer is known with the value only.
        let mut prepared = client.prepare("SELECT ? AS it".to_owned(), None).await.unwrap();
        let values =
            RecordBatch::try_from_iter([("0", Arc::new(StringArray::from(vec!["x", "y"])) as _)]).unwrap();
        prepared.set_parameters(values).unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(texts(&rows(&mut client, info).await.unwrap(), 0), ["x", "y"], "a row of values each");
    });
}

#[test]
fn large_answers_come_in_messages_that_drivers_take() {
    with(Server::builder(), async |_, mut client| {
        let sql = "SELECT value, repeat('x', 10000) AS text FROM generate_series(1, 4000)";
        let info = client.execute(sql.to_owned(), None).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let mut raw = client.inner().clone().max_decoding_message_size(usize::MAX);
        let mut messages = raw.do_get(ticket).await.unwrap().into_inner();
        let mut sizes = Vec::new();
        while let Some(message) = messages.message().await.unwrap() {
            sizes.push(message.encoded_len());
        }
        assert!(sizes.iter().sum::<usize>() > 40_000_000, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size < 6 << 20), "{sizes:?}");
        let rows = ask(&mut client, "SELECT count(*) AS n FROM generate_series(1, 4000)").await.unwrap();
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), 4000);
        let status =
            ask(&mut client, "SELECT repeat('x', value * 20000000) AS text FROM generate_series(1, 1)")
                .await
                .unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("substr"), "{status:?}");
    });
}

#[test]
fn tokens_are_read_with_the_tokenizers_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokenizer.json");
    let words = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "no", "vocab": {"no": 0, "yes": 1}}}"#;
    std::fs::write(&file, words).unwrap();
    let sql = "SELECT detokenise([1, 0]) AS text";
    with(Server::builder().tokenizer("words", &file), async |served, mut client| {
        assert_eq!(texts(&ask(&mut client, sql).await.unwrap(), 0), ["yes no"]);
        assert_eq!(served.sql(sql).json(), serde_json::json!([{"text": "yes no"}]));
    });
    with(Server::builder(), async |_, mut client| {
        let status = ask(&mut client, sql).await.unwrap_err();
        assert!(status.message().contains("server's `Builder`"), "{status:?}");
    });
    let store = forebay_store::Store::open(directory.path().join("store"), Default::default()).unwrap();
    let missing = Server::builder().tokenizer("words", directory.path().join("nowhere.json"));
    let refused = missing.bind(store, loopback()).unwrap_err();
    assert!(refused.to_string().contains("nowhere.json"), "{refused}");
}

#[test]
fn who_prepares_very_many_statements_pushes_out_none_of_others() {
    let grant = |name: &str| Grant::new(name, Token::new(name).unwrap()).scopes([Scope::Read]);
    let builder = Server::builder().grant(grant("greedy")).grant(grant("other"));
    with(builder, async |served, mut greedy| {
        greedy.set_token("greedy".to_owned());
        let mut other = Client::new(channel(&served).await);
        other.set_token("other".to_owned());
        let mut kept = other.prepare("SELECT 7 AS n".to_owned(), None).await.unwrap();
        for _ in 0..1_000 {
            prepared_handle(&mut greedy, "SELECT 1").await;
        }
        let info = kept.execute().await.unwrap();
        assert_eq!(rows(&mut other, info).await.unwrap().num_rows(), 1);
    });
}
