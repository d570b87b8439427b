//! Arrow Flight SQL, by the library's own client.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, Float64Array, RecordBatch, StringArray};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, Any, CommandGetCrossReference, CommandGetDbSchemas,
    CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo,
    CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery, CommandStatementIngest,
    CommandStatementQuery, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, FlightData, FlightDescriptor, FlightInfo, Ticket,
};
use arrow_schema::{DataType, Field, Schema};
use forebay_server::{Builder, Server, Token};
use forebay_store::{DataType as StoreType, Element};
use futures_util::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::client::{Served, loopback, samples_at, send};

pub(crate) type Client = FlightSqlServiceClient<Channel>;

/// Serves, and asks with a client that is connected.
fn with<F: Future>(builder: Builder, ask: impl FnOnce(Arc<Served>, Client) -> F) -> F::Output {
    with_served(Served::new(builder.flight(loopback())), ask)
}

/// Asks what is served already, Flight SQL too.
pub(crate) fn with_served<F: Future>(
    served: Served,
    ask: impl FnOnce(Arc<Served>, Client) -> F,
) -> F::Output {
    let served = Arc::new(served);
    // A thread for the connection: it goes on while the test waits for something else.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(channel(&served).await);
        ask(served, client).await
    })
}

pub(crate) async fn channel(served: &Served) -> Channel {
    let address = served.server.flight_address().unwrap();
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// All rows of an info as one batch, in the schema that the info promised.
pub(crate) async fn rows(client: &mut Client, info: FlightInfo) -> Result<RecordBatch, Status> {
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let promised = Arc::new(info.try_decode_schema().unwrap());
    let stream = client.do_get(ticket).await.map_err(status)?;
    let batches: Vec<RecordBatch> = stream.try_collect().await.map_err(Status::from)?;
    Ok(arrow::compute::concat_batches(&promised, &batches).unwrap())
}

pub(crate) async fn ask(client: &mut Client, sql: &str) -> Result<RecordBatch, Status> {
    let info = client.execute(sql.to_owned(), None).await.map_err(status)?;
    rows(client, info).await
}

/// The status that the client's error carries.
fn status(error: impl Into<arrow_flight::error::FlightError>) -> Status {
    match error.into() {
        arrow_flight::error::FlightError::Tonic(status) => *status,
        other => panic!("{other}"),
    }
}

pub(crate) fn texts(batch: &RecordBatch, column: usize) -> Vec<String> {
    batch.column(column).as_string::<i32>().iter().map(|text| text.unwrap_or("NULL").to_owned()).collect()
}

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
fn drivers_see_catalogs_schemas_tables_and_columns() {
    with(Server::builder(), async |served, mut client| {
        let schema = forebay_store::Schema::new().data("tokens", StoreType::list(Element::Int32));
        served.store.create_table("checker", schema).unwrap();
        let info = client.get_catalogs().await.unwrap();
        let catalogs = rows(&mut client, info).await.unwrap();
        assert_eq!(texts(&catalogs, 0), ["forebay"]);
        assert_eq!(
            catalogs.schema().fields()[0].as_ref(),
            &Field::new("catalog_name", DataType::Utf8, false)
        );
        let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
        let schemas = rows(&mut client, info).await.unwrap();
        assert_eq!(texts(&schemas, 1), ["information_schema", "public", "system"]);
        let nullable: Vec<bool> = schemas.schema().fields().iter().map(|field| field.is_nullable()).collect();
        assert_eq!(nullable, [true, false]);
        let info = client.get_table_types().await.unwrap();
        assert_eq!(texts(&rows(&mut client, info).await.unwrap(), 0), ["SYSTEM TABLE", "TABLE"]);
        let tables = async |client: &mut Client, command| {
            let info = client.get_tables(command).await.unwrap();
            rows(client, info).await.unwrap()
        };
        let of_agents = CommandGetTables {
            db_schema_filter_pattern: Some("pub%".to_owned()),
            table_types: vec!["TABLE".to_owned()],
            include_schema: true,
            ..Default::default()
        };
        let found = tables(&mut client, of_agents).await;
        assert_eq!(texts(&found, 2), ["checker", "solver"]);
        let encoded = arrow_flight::IpcMessage(found.column(4).as_binary::<i32>().value(0).to_vec().into());
        let columns = Schema::try_from(encoded).unwrap();
        assert!(matches!(columns.field_with_name("tokens").unwrap().data_type(), DataType::List(_)));
        assert_eq!(columns.field_with_name("sample_id").unwrap().data_type(), &DataType::Utf8);
        let one =
            CommandGetTables { table_name_filter_pattern: Some("claim_".to_owned()), ..Default::default() };
        assert_eq!(texts(&tables(&mut client, one).await, 2), ["claims"]);
        let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo::default()).await.unwrap();
        assert!(texts(&rows(&mut client, info).await.unwrap(), 0).contains(&"VARCHAR".to_owned()));
    });
}

#[test]
fn drivers_are_told_what_the_server_is_and_can() {
    fn text(value: &dyn Array) -> String {
        value.as_string::<i32>().value(0).to_owned()
    }
    fn yes(value: &dyn Array) -> String {
        value.as_boolean().value(0).to_string()
    }
    fn number(value: &dyn Array) -> String {
        value.as_primitive::<Int32Type>().value(0).to_string()
    }
    type Shown = fn(&dyn Array) -> String;
    let expected: [(SqlInfo, Shown, &str); 11] = [
        (SqlInfo::FlightSqlServerName, text, "Forebay"),
        (SqlInfo::FlightSqlServerVersion, text, env!("CARGO_PKG_VERSION")),
        (SqlInfo::SqlIdentifierQuoteChar, text, "\""),
        (SqlInfo::FlightSqlServerReadOnly, yes, "true"),
        (SqlInfo::FlightSqlServerSql, yes, "true"),
        (SqlInfo::FlightSqlServerSubstrait, yes, "false"),
        (SqlInfo::FlightSqlServerCancel, yes, "true"),
        (SqlInfo::SqlDdlTable, yes, "false"),
        (SqlInfo::FlightSqlServerTransaction, number, "0"),
        (SqlInfo::FlightSqlServerStatementTimeout, number, "3600000"),
        (SqlInfo::FlightSqlServerTransactionTimeout, number, "0"),
    ];
    with(Server::builder(), async |_, mut client| {
        for (info, shown, value) in expected {
            let asked = client.get_sql_info(vec![info]).await.unwrap();
            let found = rows(&mut client, asked).await.unwrap();
            assert_eq!(found.column(0).as_primitive::<UInt32Type>().values(), &[info as u32]);
            assert_eq!(shown(&*found.column(1).as_union().value(0)), value, "{info:?}");
        }
        let all = client.get_sql_info(Vec::<SqlInfo>::new()).await.unwrap();
        assert_eq!(rows(&mut client, all).await.unwrap().num_rows(), 14);
    });
}

#[test]
fn there_are_no_keys_and_drivers_are_told_so_in_the_right_columns() {
    with(Server::builder(), async |_, mut client| {
        let (primary, foreign) =
            (CommandGetPrimaryKeys { table: "solver".to_owned(), ..Default::default() }, "solver".to_owned());
        let infos = [
            client.get_primary_keys(primary).await.unwrap(),
            client
                .get_exported_keys(CommandGetExportedKeys { table: foreign.clone(), ..Default::default() })
                .await
                .unwrap(),
            client
                .get_imported_keys(CommandGetImportedKeys { table: foreign.clone(), ..Default::default() })
                .await
                .unwrap(),
            client
                .get_cross_reference(CommandGetCrossReference {
                    pk_table: foreign.clone(),
                    fk_table: foreign,
                    ..Default::default()
                })
                .await
                .unwrap(),
        ];
        let of_foreign = "pk_catalog_name? pk_db_schema_name? pk_table_name pk_column_name fk_catalog_name? \
                          fk_db_schema_name? fk_table_name fk_column_name key_sequence fk_key_name? pk_key_name? \
                          update_rule delete_rule";
        let of_primary = "catalog_name? db_schema_name? table_name column_name key_name? key_sequence";
        for (info, columns) in infos.into_iter().zip([of_primary, of_foreign, of_foreign, of_foreign]) {
            let found = rows(&mut client, info).await.unwrap();
            let shown = |field: &Arc<Field>| {
                format!("{}{}", field.name(), if field.is_nullable() { "?" } else { "" })
            };
            assert_eq!(found.schema().fields().iter().map(shown).collect::<Vec<_>>().join(" "), columns);
            assert_eq!(found.num_rows(), 0);
        }
    });
}

#[test]
fn a_running_query_is_cancelled_by_name_and_by_going_away() {
    let endless = "SELECT value FROM generate_series(1, 1000000000000)";
    with(Server::builder(), async |served, mut client| {
        let info = client.execute(endless.to_owned(), None).await.unwrap();
        let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        let running = |count: u64| format!("forebay_running_queries{{way=\"flight\"}} {count}");
        assert!(served.get("/metrics").body.contains(&running(1)));
        let request = CancelFlightInfoRequest::new(info.clone()).encode_to_vec();
        let cancel = Action { r#type: "CancelFlightInfo".to_owned(), body: request.into() };
        // Over another connection: on its own the unread rows leave the answer no room.
        let mut other = Client::new(channel(&served).await);
        let mut answer = other.do_action(Request::new(cancel.clone())).await.unwrap();
        let answer = answer.message().await.unwrap().unwrap();
        assert_eq!(CancelFlightInfoResult::decode(&*answer.body).unwrap().status, 1);
        let error = loop {
            if let Err(error) = stream.next().await.unwrap() {
                break Status::from(error);
            }
        };
        assert_eq!(error.code(), Code::Cancelled, "{error:?}");
        drop(stream);

        let info = client.execute(endless.to_owned(), None).await.unwrap();
        let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        drop(stream);
        while !served.get("/metrics").body.contains(&running(0)) {} // the news travels
        let gone = other.do_action(Request::new(cancel)).await.map(|_| ()).unwrap_err();
        assert!(gone.to_string().contains("does not run"), "{gone}");
    });
}

/// More of them than a server has threads: it hears its clients all the while.
#[test]
fn queries_that_give_nothing_are_cancelled_too_and_hold_nobody_up() {
    let silent = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b, \
                  generate_series(1, 100000) c WHERE a.value + b.value + c.value < 3";
    with(Server::builder(), async |served, mut client| {
        let (mut infos, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let info = client.execute(silent.to_owned(), None).await.unwrap();
            asked.push(client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap());
            infos.push(info);
        }
        let running = |count: u64| format!("forebay_running_queries{{way=\"flight\"}} {count}");
        while !served.get("/metrics").body.contains(&running(5)) {}
        let mut other = Client::new(channel(&served).await);
        for (info, mut rows) in infos.into_iter().zip(asked) {
            let request = CancelFlightInfoRequest::new(info).encode_to_vec();
            let cancel = Action { r#type: "CancelFlightInfo".to_owned(), body: request.into() };
            other.do_action(Request::new(cancel)).await.unwrap();
            let error = loop {
                if let Err(error) = rows.next().await.unwrap() {
                    break Status::from(error);
                }
            };
            assert_eq!(error.code(), Code::Cancelled, "{error:?}");
        }
        while !served.get("/metrics").body.contains(&running(0)) {}
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1, "the threads are free");
    });
}

/// As drivers of before Flight SQL 15 ask.
#[test]
fn a_running_query_is_cancelled_by_the_older_action_too() {
    with(Server::builder(), async |_, mut client| {
        let endless = "SELECT value FROM generate_series(1, 1000000000000)";
        let info = client.execute(endless.to_owned(), None).await.unwrap();
        let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        let request = ActionCancelQueryRequest { info: info.encode_to_vec().into() };
        let action =
            Action { r#type: "CancelQuery".to_owned(), body: request.as_any().encode_to_vec().into() };
        // Unread rows would fill the connection, and leave the answer no room: they are read meanwhile.
        let mut other = client.inner().clone();
        let cancelled = async {
            let mut answer = other.do_action(action).await.unwrap().into_inner();
            let answer = answer.message().await.unwrap().unwrap();
            Any::decode(&*answer.body).unwrap().unpack::<ActionCancelQueryResult>().unwrap().unwrap().result
        };
        let read_on = async {
            loop {
                if let Err(error) = stream.next().await.unwrap() {
                    break Status::from(error).code();
                }
            }
        };
        assert_eq!(futures_util::future::join(cancelled, read_on).await, (1, Code::Cancelled));
    });
}

#[test]
fn only_who_shows_the_token_is_let_in() {
    let token = || Token::new("sesame").unwrap();
    with(Server::builder().token(token()), async |served, mut client| {
        let refused = |status: &Status| status.code() == Code::Unauthenticated;
        assert!(refused(&ask(&mut client, "SELECT 1").await.unwrap_err()));
        for wrong in ["", "sesam", "sesame "] {
            assert!(client.handshake("me", wrong).await.is_err(), "{wrong:?}");
        }
        client.set_token("wrong".to_owned());
        assert!(refused(&ask(&mut client, "SELECT 1").await.unwrap_err()));
        let listed = client.inner().clone().list_actions(arrow_flight::Empty {}).await.map(|_| ());
        assert!(listed.is_err_and(|status| refused(&status)));
        client.clear_token();
        client.handshake("me", "sesame").await.unwrap();
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1, "the handshake gave the token");
        let mut other = Client::new(channel(&served).await);
        other.set_token("sesame".to_owned());
        assert_eq!(ask(&mut other, "SELECT 1").await.unwrap().num_rows(), 1);
        // HTTP has the same door.
        assert!(served.sql("SELECT 1").failure(401, "input").contains("Bearer"));
        assert_eq!(served.get("/metrics").status, 401);
        assert_eq!((served.get("/health").status, served.get("/ready").status), (200, 200));
        let shown = [("Authorization", "Bearer sesame")];
        assert_eq!(send(served.server.address().unwrap(), "POST", "/sql", &shown, b"SELECT 1").status, 200);
    });
}

#[test]
fn whatever_bytes_a_client_sends_the_server_answers_and_stays_up() {
    with(Server::builder(), async |served, mut client| {
        let mut raw = FlightServiceClient::new(channel(&served).await);
        let query = |handle: Vec<u8>| {
            let query = CommandPreparedStatementQuery { prepared_statement_handle: handle.into() };
            query.as_any().encode_to_vec()
        };
        let ticket = |handle: &[u8]| {
            TicketStatementQuery { statement_handle: handle.to_vec().into() }.as_any().encode_to_vec()
        };
        let foreign = Any { type_url: "type.googleapis.com/x.Y".to_owned(), value: vec![1, 2, 3].into() };
        let commands = [
            vec![],
            vec![0xff; 100],
            foreign.encode_to_vec(),
            query(vec![]),
            query(vec![7; 16]),
            query(vec![255; 1 << 20]),
            ticket(b""),
            ticket(&[255; 64]),
            ticket(&[0; 1 << 20]),
            CommandStatementQuery { query: "(".repeat(100_000), transaction_id: None }
                .as_any()
                .encode_to_vec(),
            CommandGetSqlInfo { info: vec![0; 1000] }.as_any().encode_to_vec(),
        ];
        for command in commands {
            let known = |result: Result<(), Status>| {
                let code = result.map_or_else(|status| status.code(), |()| Code::Ok);
                let expected = [Code::InvalidArgument, Code::NotFound, Code::Unimplemented, Code::Ok];
                assert!(expected.contains(&code), "{code:?}");
            };
            known(raw.get_flight_info(FlightDescriptor::new_cmd(command.clone())).await.map(|_| ()));
            known(raw.get_schema(FlightDescriptor::new_cmd(command.clone())).await.map(|_| ()));
            known(raw.do_get(Ticket::new(command.clone())).await.map(|_| ()));
            let put = FlightData::new().with_descriptor(FlightDescriptor::new_cmd(command.clone()));
            let put = put.with_data_header(vec![0xee; 64]).with_data_body(vec![0xff; 64]);
            known(raw.do_put(futures_util::stream::iter([put])).await.map(|_| ()));
            for action in
                ["CreatePreparedStatement", "ClosePreparedStatement", "CancelFlightInfo", "CancelQuery", "x"]
            {
                let action = Action { r#type: action.to_owned(), body: command.clone().into() };
                known(raw.do_action(action).await.map(|_| ()));
            }
        }
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1);
    });
}

#[test]
fn values_that_cannot_be_read_are_refused() {
    with(Server::builder(), async |_, mut client| {
        let prepared = client.prepare("SELECT ?".to_owned(), None).await.unwrap();
        let handle = prepared_handle(&mut client, "SELECT ?").await;
        let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.into() }.as_any();
        for (header, body) in [(vec![], vec![]), (vec![0xee; 64], vec![0xff; 64]), (vec![0; 8], vec![])] {
            let put = FlightData::new().with_descriptor(FlightDescriptor::new_cmd(command.encode_to_vec()));
            let put = put.with_data_header(header).with_data_body(body);
            let mut raw = client.inner().clone();
            let answer = raw.do_put(futures_util::stream::iter([put])).await.map(|_| ());
            assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
        }
        drop(prepared);
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1);
    });
}

/// A batch as its messages of Flight: the schema, and the rows.
async fn messages(options: arrow_ipc::writer::IpcWriteOptions) -> [FlightData; 2] {
    let numbers = Arc::new(arrow_array::Int64Array::from_iter_values(0..1000));
    let batch = RecordBatch::try_from_iter([("a", numbers as _)]).unwrap();
    let encoder = arrow_flight::encode::FlightDataEncoderBuilder::new().with_options(options);
    let messages = encoder.build(futures_util::stream::iter([Ok(batch)])).try_collect::<Vec<_>>().await;
    messages.unwrap().try_into().unwrap()
}

/// Gives these as the values of a prepared `SELECT ?`, behind a message that names it and has no other.
async fn put(client: &mut Client, messages: impl IntoIterator<Item = FlightData>) -> Result<(), Status> {
    let handle = prepared_handle(client, "SELECT ?").await;
    let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.into() }.as_any();
    let first = FlightData::new().with_descriptor(FlightDescriptor::new_cmd(command.encode_to_vec()));
    let all: Vec<FlightData> = [first].into_iter().chain(messages).collect();
    let answer = client.inner().clone().do_put(futures_util::stream::iter(all)).await?;
    answer.into_inner().message().await.map(drop)
}

fn refused_for(result: Result<(), Status>, words: &str) {
    let status = result.unwrap_err();
    assert!(status.code() == Code::InvalidArgument && status.message().contains(words), "{status:?}");
}

// The library would make room for what a packed buffer says that it holds, and end the process where there is none.
#[test]
fn values_that_are_packed_are_refused_before_they_are_unpacked() {
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::IpcWriteOptions;
    with(Server::builder(), async |_, mut client| {
        let packed =
            IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
        let [schema, mut rows] = messages(packed).await;
        let mut body = rows.data_body.to_vec();
        body[..8].copy_from_slice(&(1_i64 << 46).to_le_bytes());
        rows.data_body = body.into();
        refused_for(put(&mut client, [schema, rows]).await, "packed");
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1);
    });
}

#[test]
fn values_beyond_their_message_are_refused_and_messages_with_metadata_alone_are_none() {
    with(Server::builder(), async |_, mut client| {
        let [schema, rows] = messages(Default::default()).await;
        let metadata = |bytes| FlightData::new().with_app_metadata(vec![7; bytes]);
        let sound = [metadata(10), schema.clone(), metadata(10), rows.clone(), metadata(10)];
        put(&mut client, sound).await.unwrap();
        let mut cut = rows.clone();
        cut.data_body.truncate(rows.data_body.len() / 2);
        refused_for(put(&mut client, [schema.clone(), cut]).await, "of a body of");
        let endless = (0..20).map(|_| metadata(1 << 20));
        refused_for(put(&mut client, [schema].into_iter().chain(endless)).await, "too many values");
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1);
    });
}

/// The handle of a statement that was prepared by hand.
pub(crate) async fn prepared_handle(client: &mut Client, sql: &str) -> Vec<u8> {
    use arrow_flight::sql::{ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult};
    let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id: None };
    let body = request.as_any().encode_to_vec().into();
    let action = Action { r#type: "CreatePreparedStatement".to_owned(), body };
    let mut answer = client.do_action(Request::new(action)).await.unwrap();
    let answer = answer.message().await.unwrap().unwrap();
    let result = Any::decode(&*answer.body).unwrap().unpack::<ActionCreatePreparedStatementResult>();
    result.unwrap().unwrap().prepared_statement_handle.to_vec()
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
fn queries_are_counted_by_way_and_by_kind_of_failure() {
    with(Server::builder(), async |served, mut client| {
        ask(&mut client, "SELECT 1").await.unwrap();
        let info = client.execute("SELECT policy_version / 0 FROM solver".to_owned(), None).await.unwrap();
        rows(&mut client, info).await.unwrap_err();
        served.sql("SELECT 1");
        served.sql("DROP TABLE solver");
        let page = served.get("/metrics").body;
        for line in [
            "forebay_queries_total{way=\"flight\"} 2",
            "forebay_queries_total{way=\"http\"} 2",
            "forebay_queries_failed_total{way=\"flight\",kind=\"input\"} 1",
            "forebay_queries_failed_total{way=\"http\",kind=\"read_only\"} 1",
            "forebay_running_queries{way=\"http\"} 0",
        ] {
            assert!(page.lines().any(|there| there == line), "{line}:\n{page}");
        }
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
fn a_server_stops_while_clients_are_connected() {
    let served = Served::new(Server::builder().flight(loopback()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut client = runtime.block_on(async { Client::new(channel(&served).await) });
    runtime.block_on(ask(&mut client, "SELECT 1")).unwrap();
    served.server.stopper().stop();
    served.server.wait();
    assert!(runtime.block_on(ask(&mut client, "SELECT 1")).is_err());
}

#[test]
fn readers_of_flight_sql_who_stop_give_their_turns_back() {
    let builder = Server::builder().flight(loopback()).piece_time_max(Duration::from_millis(300));
    with_served(Served::new(builder), async |served, mut client| {
        let large = "SELECT value, repeat('x', 1000) AS text FROM generate_series(1, 40000)";
        let mut held = Vec::new();
        for _ in 0..16 {
            let mut slow = Client::new(channel(&served).await);
            let info = slow.execute(large.to_owned(), None).await.unwrap();
            let ticket = info.endpoint[0].ticket.clone().unwrap();
            held.push((slow.inner_mut().do_get(ticket).await.unwrap().into_inner(), slow));
        }
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1);
        let metrics = samples_at(served.server.address().unwrap());
        assert!(metrics["forebay_answers_abandoned_total"] >= 1.0, "{metrics:?}");
        let (mut slow, _client) = held.swap_remove(0);
        let ended = loop {
            match slow.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(status) => break Some(status.code()),
            }
        };
        assert_eq!(ended, Some(Code::DeadlineExceeded), "no answer that is cut off looks whole");
    });
}
