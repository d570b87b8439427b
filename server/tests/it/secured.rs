//! The doors of those who read: tokens with scopes and tables, TLS, and the certificates of clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, CommandPreparedStatementQuery, ProstMessageExt,
};
use arrow_flight::{Action, CancelFlightInfoRequest, Ticket};
use forebay_server::{Builder, Grant, Scope, Server, Token};
use futures_util::{StreamExt, TryStreamExt};
use prost::Message;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request};

use crate::client::{Served, loopback, send};
use crate::flight::{Client, ask, prepared_handle, rows, texts, with_served};

pub(crate) type Made = rcgen::CertifiedKey<rcgen::KeyPair>;

pub(crate) fn certified(name: &str) -> Made {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

/// Tokens of every kind, each the name of its grant.
pub(crate) fn granting(builder: Builder) -> Builder {
    let grant = |name: &str| Grant::new(name, Token::new(name).unwrap());
    let grants = [
        grant("boss"),
        grant("looker").scopes([Scope::Read]),
        grant("rollouts").scopes([Scope::Write, Scope::Train]),
        grant("tabled").scopes([Scope::Read]).tables(["solver"]),
        grant("old").until(SystemTime::UNIX_EPOCH),
    ];
    grants.into_iter().fold(builder, Builder::grant)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Answered,
    Unknown,
    Forbidden,
}
use Outcome::{Answered, Forbidden, Unknown};

/// Whether they may ask, and look at what is counted of all tables.
const WHO: [(&str, Outcome, Outcome); 8] = [
    ("", Unknown, Unknown),
    ("nobody", Unknown, Unknown),
    ("old", Unknown, Unknown),
    ("rollouts", Forbidden, Forbidden),
    ("tabled", Answered, Forbidden),
    ("looker", Answered, Answered),
    ("boss", Answered, Answered),
    ("shared", Answered, Answered), // the server's own
];

fn over_http(to: SocketAddr, method: &str, path: &str, token: &str) -> Outcome {
    let authorization = format!("Bearer {token}");
    let shown = [("Authorization", authorization.as_str())];
    let reply = send(to, method, path, if token.is_empty() { &[] } else { &shown }, b"SELECT 1");
    match reply.status {
        200 => Answered,
        401 => Unknown,
        403 => {
            assert!(reply.failure(403, "input").contains(token), "{reply:?}");
            Forbidden
        }
        _ => panic!("{reply:?}"),
    }
}

fn of_status<T>(outcome: Result<T, tonic::Status>) -> Outcome {
    match outcome.map_err(|status| status.code()) {
        Ok(_) => Answered,
        Err(Code::Unauthenticated) => Unknown,
        Err(Code::PermissionDenied) => Forbidden,
        Err(code) => panic!("{code}"),
    }
}

#[test]
fn a_grant_says_who_reads_over_http_and_flight_sql() {
    let builder = granting(Server::builder().flight(loopback()).token(Token::new("shared").unwrap()));
    with_served(Served::new(builder), async |served, mut client| {
        let http = served.server.address().unwrap();
        for (name, outcome, counts) in WHO {
            assert_eq!(over_http(http, "POST", "/sql", name), outcome, "{name} asks over HTTP");
            assert_eq!(over_http(http, "GET", "/metrics", name), counts, "{name} looks at metrics");
            assert_eq!(over_http(http, "GET", "/health", name), Answered, "{name} asks for health");
            assert_eq!(over_http(http, "GET", "/ready", name), Answered, "{name} asks whether it is ready");
            client.set_token(name.to_owned());
            assert_eq!(of_status(ask(&mut client, "SELECT 1").await), outcome, "{name} asks over Flight SQL");
            client.clear_token();
            let greeted = client.handshake("anybody", name).await.map_err(|error| error.to_string());
            assert_eq!(greeted.is_ok(), outcome == Answered, "{name} as password: {greeted:?}");
            if outcome == Answered {
                assert_eq!(of_status(ask(&mut client, "SELECT 1").await), Answered, "{name} was greeted");
            }
        }
    });
}

/// A second agent beside the solver.
fn with_judge(served: &Served) {
    let schema = forebay_store::Schema::new().data("verdict", forebay_store::DataType::Utf8);
    let judge = served.store.create_table("judge", schema).unwrap();
    judge.insert(0, "q1_0_0", [("verdict", "right".into())]).unwrap();
}

#[test]
fn who_is_bound_to_tables_asks_of_those_alone() {
    with_served(Served::new(granting(Server::builder().flight(loopback()))), async |served, mut client| {
        with_judge(&served);
        let http = served.server.address().unwrap();
        for (name, sees) in [("looker", true), ("tabled", false)] {
            let authorization = format!("Bearer {name}");
            let over_http =
                |sql: &str| send(http, "POST", "/sql", &[("Authorization", &authorization)], sql.as_bytes());
            client.set_token(name.to_owned());
            assert_eq!(over_http("SELECT count(*) AS n FROM solver").body, "[{\"n\":3}]\n", "{name}");
            assert_eq!(over_http("SHOW TABLES").body.contains("judge"), sees, "{name}");
            let tables = client.get_tables(Default::default()).await.unwrap();
            let listed = texts(&rows(&mut client, tables).await.unwrap(), 2);
            assert!(listed.contains(&"solver".to_owned()), "{listed:?}");
            assert_eq!(listed.contains(&"judge".to_owned()), sees, "{name}: {listed:?}");
            for sql in ["SELECT * FROM judge", "SELECT * FROM system.stats"] {
                let answers = [
                    over_http(sql).status == 200,
                    ask(&mut client, sql).await.is_ok(),
                    client.prepare(sql.to_owned(), None).await.is_ok(),
                ];
                assert_eq!(answers, [sees; 3], "{name}: {sql}");
            }
            if !sees {
                let told = over_http("SELECT * FROM judge").failure(400, "input");
                assert!(
                    told.contains("no table is named judge among those that this session sees"),
                    "{told}"
                );
                let told = ask(&mut client, "SELECT * FROM judge").await.unwrap_err();
                assert_eq!(told.code(), Code::InvalidArgument, "{told}");
            }
        }
    });
}

/// Handles count up, so another reader can guess them.
#[test]
fn what_one_reader_prepared_or_asked_is_no_other_s() {
    with_served(Served::new(granting(Server::builder().flight(loopback()))), async |served, mut looker| {
        with_judge(&served);
        looker.set_token("looker".to_owned());
        let handle = prepared_handle(&mut looker, "SELECT verdict FROM judge").await;
        let query = CommandPreparedStatementQuery { prepared_statement_handle: handle.clone().into() };
        let ticket = Ticket::new(query.as_any().encode_to_vec());
        let endless = "SELECT value FROM generate_series(1, 1000000000000)";
        let info = looker.execute(endless.to_owned(), None).await.unwrap();
        let mut running = looker.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(running.next().await.unwrap().unwrap().num_rows() > 0);
        let request = CancelFlightInfoRequest::new(info).encode_to_vec();
        let cancel = Action { r#type: "CancelFlightInfo".to_owned(), body: request.into() };
        let close = ActionClosePreparedStatementRequest { prepared_statement_handle: handle.into() };
        let close = Action {
            r#type: "ClosePreparedStatement".to_owned(),
            body: close.as_any().encode_to_vec().into(),
        };
        for name in ["tabled", "boss"] {
            // Over another connection: the unread rows leave the answer no room on that one.
            let mut other = Client::new(crate::flight::channel(&served).await);
            other.set_token(name.to_owned());
            let stolen = other.do_get(ticket.clone()).await.map(|_| ()).unwrap_err().to_string();
            assert!(stolen.contains("is not there"), "{name}: {stolen}");
            let cancelled =
                other.do_action(Request::new(cancel.clone())).await.map(|_| ()).unwrap_err().to_string();
            assert!(cancelled.contains("does not run"), "{name}: {cancelled}");
            other.do_action(Request::new(close.clone())).await.unwrap();
        }
        let mut again = Client::new(crate::flight::channel(&served).await);
        again.set_token("looker".to_owned());
        let verdicts = again.do_get(ticket).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
        assert_eq!(texts(&verdicts[0], 0), ["right"], "nobody has closed it");
        assert!(running.next().await.unwrap().is_ok(), "nobody has ended it");
        again.do_action(Request::new(cancel)).await.unwrap();
        let ended = loop {
            if let Err(error) = running.next().await.unwrap() {
                break tonic::Status::from(error).code();
            }
        };
        assert_eq!(ended, Code::Cancelled);
    });
}

#[test]
fn readers_need_no_token_where_that_was_said_and_grants_hold_for_clients() {
    let builder = granting(Server::builder().readers_without_grants(true).flight(loopback()));
    with_served(Served::new(builder), async |served, mut client| {
        assert_eq!(over_http(served.server.address().unwrap(), "POST", "/sql", ""), Answered);
        assert_eq!(of_status(ask(&mut client, "SELECT 1").await), Answered);
    });
    let open = granting(Server::builder().readers_without_grants(true)).flight("0.0.0.0:0".parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let store = forebay_store::Store::open(dir.path().join("store"), Default::default()).unwrap();
    let refused = open.bind(store, loopback()).unwrap_err();
    assert!(refused.to_string().contains("0.0.0.0"), "{refused}");
}

/// A connection with TLS, of whoever has that certificate.
struct Tls(StreamOwned<ClientConnection, TcpStream>);

impl Tls {
    fn to(address: SocketAddr, authority: &Made, identity: Option<&Made>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority.cert.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(made) => {
                let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
                let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Tls(StreamOwned::new(connection, stream))
    }

    /// The status of an answer; none where the connection fails.
    fn asks(&mut self, path: &str, token: &str) -> Option<u16> {
        let method = if path == "/sql" { "POST" } else { "GET" };
        let body = if path == "/sql" { "SELECT 1" } else { "" };
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n");
        write!(self.0, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        self.0.read_exact(&mut vec![0; length.parse().unwrap()]).ok()?;
        Some(head.split(' ').nth(1).unwrap().parse().unwrap())
    }
}

/// A server with TLS that wants certificates of clients where an authority is given.
pub(crate) fn encrypted(builder: Builder, server: &Made, clients: Option<&Made>) -> Served {
    let (certificate, key) = (server.cert.pem(), server.signing_key.serialize_pem());
    let authority = clients.map(|made| made.cert.pem());
    Served::new(builder.flight(loopback()).tls(&certificate, &key, authority.as_deref()))
}

#[test]
fn over_http_what_is_said_is_encrypted_and_who_reads_shows_a_certificate() {
    let [server, client, stranger] = ["localhost", "client", "stranger"].map(certified);
    let served = encrypted(granting(Server::builder()), &server, Some(&client));
    let address = served.server.address().unwrap();
    let statuses = |identity: Option<&Made>, token: &str| {
        let mut connection = Tls::to(address, &server, identity);
        ["/health", "/ready", "/metrics", "/sql"].map(|path| connection.asks(path, token))
    };
    let all = |statuses: [u16; 4]| statuses.map(Some);
    assert_eq!(statuses(Some(&client), "looker"), all([200; 4]));
    assert_eq!(statuses(Some(&client), "rollouts"), all([200, 200, 403, 403]), "a certificate is no grant");
    assert_eq!(statuses(Some(&client), "nobody"), all([200, 200, 401, 401]));
    assert_eq!(statuses(None, "looker"), all([200, 200, 403, 403]), "a token is no certificate");
    assert_eq!(statuses(Some(&stranger), "looker"), [None; 4], "a certificate of nobody's");
    assert_eq!(Tls::to(address, &stranger, Some(&client)).asks("/health", ""), None, "another server's");
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    let _ = plain.read_to_end(&mut reply); // it may be reset
    assert!(!reply.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&reply));
}

#[test]
fn without_an_authority_of_clients_everybody_may_shake_hands() {
    let server = certified("localhost");
    let served = encrypted(granting(Server::builder()), &server, None);
    let mut connection = Tls::to(served.server.address().unwrap(), &server, None);
    assert_eq!(connection.asks("/sql", "nobody"), Some(401));
    assert_eq!(connection.asks("/sql", "boss"), Some(200), "over the connection of before");
}

#[test]
fn a_handshake_that_dawdles_holds_nobody_up_and_ends() {
    let server = certified("localhost");
    let builder = Server::builder().first_call_time_max(Duration::from_secs(3));
    let served = encrypted(builder, &server, None);
    let address = served.server.address().unwrap();
    let mut silent = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&[22, 3, 1, 2, 0, 1]).unwrap(); // the begin of a greeting
    assert_eq!(Tls::to(address, &server, None).asks("/ready", ""), Some(200), "beside them");
    for stream in [&mut silent, &mut half] {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it stays open");
        }
    }
}

async fn channel(served: &Served, server: &Made, identity: Option<&Made>) -> Option<Channel> {
    let port = served.server.flight_address().unwrap().port();
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(server.cert.pem()));
    let identity = identity.map(|made| Identity::from_pem(made.cert.pem(), made.signing_key.serialize_pem()));
    let config = identity.into_iter().fold(config, ClientTlsConfig::identity);
    let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
    endpoint.tls_config(config).unwrap().connect().await.ok()
}

#[test]
fn over_flight_sql_what_is_said_is_encrypted_and_clients_show_a_certificate() {
    let [server, client, stranger] = ["localhost", "client", "stranger"].map(certified);
    let served = encrypted(granting(Server::builder()), &server, Some(&client));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let asked = |server: &Made, identity: Option<&Made>, token: &str| {
        runtime.block_on(async {
            let mut client = Client::new(channel(&served, server, identity).await?);
            client.set_token(token.to_owned());
            ask(&mut client, "SELECT 1").await.map(|_| ()).map_err(|status| status.code()).into()
        })
    };
    assert_eq!(asked(&server, Some(&client), "looker"), Some(Ok(())));
    assert_eq!(asked(&server, Some(&client), "rollouts"), Some(Err(Code::PermissionDenied)));
    assert_eq!(asked(&server, Some(&client), "nobody"), Some(Err(Code::Unauthenticated)));
    for (what, server, identity) in [
        ("no certificate", &server, None),
        ("a certificate of nobody's", &server, Some(&stranger)),
        ("another server's", &stranger, Some(&client)),
    ] {
        // With TLS 1.3 a client hears only with its first call that it was not let in.
        let outcome = asked(server, identity, "looker");
        assert!(!matches!(outcome, Some(Ok(()))), "{what}: {outcome:?}");
        assert!(!matches!(outcome, Some(Err(Code::Unauthenticated | Code::PermissionDenied))), "{what}");
    }
}

#[test]
fn files_that_are_no_certificate_or_no_key_are_refused_before_anything_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = forebay_store::Store::open(dir.path().join("store"), Default::default()).unwrap();
    let server = certified("localhost");
    let refused =
        Server::builder().tls(&server.cert.pem(), "no key", None).bind(store, loopback()).unwrap_err();
    assert!(refused.to_string().contains("the key is none in PEM"), "{refused}");
}
