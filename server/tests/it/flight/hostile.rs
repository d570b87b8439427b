//! Who is let in, and what they cannot do.

use std::convert::Infallible;

use bytes::Bytes;
use forebay_server::Grant;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request as HttpRequest, Uri, Version, header};

use super::*;

/// Longer than anything here takes, on any machine.
const LONG: Duration = Duration::from_secs(60);

/// What a call is told that says how long its message is, and sends none of it.
async fn announces(mut channel: Channel, token: &str, bytes: u32) -> Status {
    let head = [&[0_u8][..], &bytes.to_be_bytes()].concat();
    let sent = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(head)))]).chain(stream::pending());
    let mut request = HttpRequest::new(Body::new(StreamBody::new(sent)));
    (*request.method_mut(), *request.version_mut()) = ("POST".parse().unwrap(), Version::HTTP_2);
    *request.uri_mut() = Uri::from_static("/arrow.flight.protocol.FlightService/GetFlightInfo");
    request.headers_mut().insert(header::CONTENT_TYPE, "application/grpc".parse().unwrap());
    request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    let response = channel.call(request).await.unwrap();
    Status::from_header_map(response.headers()).expect("it is refused at once")
}

/// The same of a short message.
async fn told_without_a_message(served: &Served, token: &str) -> Status {
    let told = announces(channel(served).await, token, 256);
    timeout(LONG, told).await.expect("it is waited for what does not come")
}

#[test]
fn who_may_not_come_in_hears_it_before_anything_of_a_message_has_come() {
    let builder = || Server::builder().token(Token::new("sesame").unwrap()).piece_time_max(10 * LONG);
    with(builder(), async |served, _| {
        assert_eq!(told_without_a_message(&served, "wrong").await.code(), Code::Unauthenticated);
    });
}

#[test]
fn who_sends_a_part_and_then_nothing_is_ended() {
    with(Server::builder().piece_time_max(Duration::from_millis(200)), async |served, mut client| {
        assert_eq!(told_without_a_message(&served, "any").await.code(), Code::DeadlineExceeded);
        let handle = prepared_handle(&mut client, "SELECT ?").await;
        let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.into() }.as_any();
        let first = FlightData::new().with_descriptor(FlightDescriptor::new_cmd(command.encode_to_vec()));
        let [schema, _] = messages(Default::default()).await;
        let mut raw = client.inner().clone();
        let put = raw.do_put(stream::iter([first, schema]).chain(stream::pending()));
        let put = timeout(LONG, put).await.expect("it is waited for what does not come");
        assert_eq!(put.map(drop).unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1);
    });
}

#[test]
fn messages_that_are_announced_and_do_not_come_keep_out_neither_other_callers_nor_short_messages() {
    let grant = |name: &str| Grant::new(name, Token::new(name).unwrap());
    let builder = Server::builder().room_time_max(Duration::from_secs(1)).piece_time_max(10 * LONG);
    with(builder.grant(grant("greedy")).grant(grant("other")), async |served, mut client| {
        let mut other = Client::new(channel(&served).await);
        client.set_token("greedy".to_owned());
        other.set_token("other".to_owned());
        let long = format!("SELECT 1{}", " ".repeat(100 << 10));
        ask(&mut client, &long).await.unwrap();
        // One caller has room for 16 of the longest.
        let apart = channel(&served).await;
        let announced: Vec<_> =
            (0..20).map(|_| tokio::spawn(announces(apart.clone(), "greedy", 4 << 20))).collect();
        let refused = async {
            loop {
                if let Err(status) = ask(&mut client, &long).await {
                    break status;
                }
            }
        };
        let refused = timeout(LONG, refused).await.expect("there is room without end");
        assert!(refused.message().contains("hold the room in memory"), "{refused:?}");
        assert_eq!(refused.code(), Code::Unavailable);
        assert_eq!(ask(&mut client, "SELECT 1").await.unwrap().num_rows(), 1, "it is short");
        assert_eq!(ask(&mut other, &long).await.unwrap().num_rows(), 1);
        announced.iter().for_each(tokio::task::JoinHandle::abort);
        let again = async { while ask(&mut client, &long).await.is_err() {} }; // until the server sees that they are gone
        timeout(LONG, again).await.expect("calls that are gone keep their room");
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
            known(raw.do_put(stream::iter([put])).await.map(|_| ()));
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
            let answer = raw.do_put(stream::iter([put])).await.map(|_| ());
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
    let messages = encoder.build(stream::iter([Ok(batch)])).try_collect::<Vec<_>>().await;
    messages.unwrap().try_into().unwrap()
}

/// Gives these as the values of a prepared `SELECT ?`, behind a message that names it and has no other.
async fn put(client: &mut Client, messages: impl IntoIterator<Item = FlightData>) -> Result<(), Status> {
    let handle = prepared_handle(client, "SELECT ?").await;
    let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.into() }.as_any();
    let first = FlightData::new().with_descriptor(FlightDescriptor::new_cmd(command.encode_to_vec()));
    let all: Vec<FlightData> = [first].into_iter().chain(messages).collect();
    let answer = client.inner().clone().do_put(stream::iter(all)).await?;
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
