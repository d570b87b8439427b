//! `forebay serve`

use std::fs::DirBuilder;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use forebay::Archiving;
use forebay::query::{Archive, ArchiveRule, Archiver};
use forebay::server::{Builder, Server, Stopper, raise_handles};
use forebay::store::{Durability, Options, Store};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::{grants, limits, objects, settings, token, tokenizers};

/// Serve a store over HTTP and Arrow Flight SQL for reading, and over gRPC for everything
///
/// For reading only, unless --grpc or --socket is given: then also beside a process that writes the store, and every query
/// sees what has been written by then. ADBC and JDBC drivers, notebooks and BI connect to the Flight address; `/sql`,
/// `/metrics`, `/health` and `/ready` answer over HTTP. With --grpc or --socket this process opens the store for writing (and
/// makes it, if there is none), and rollouts and trainers in other processes share it. With `--listen none --flight none` beside
/// --socket it opens no port at all. Ends with Ctrl-C.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(super) struct ServeArguments {
    #[command(flatten)]
    _settings: settings::SettingsArguments,
    /// The store's directory
    #[arg(long)]
    dir: PathBuf,
    /// The archive of the store, whose versions are read beside the live ones
    #[arg(long, value_name = "URL", value_hint = ValueHint::AnyPath)]
    archive: Option<String>,
    #[command(flatten)]
    tokenizers: tokenizers::TokenizerArguments,
    /// Moves versions that are over into that archive, all but so many of each table's newest; with --grpc or --socket, for that writes the store
    #[arg(long, value_name = "VERSIONS", requires = "archive", value_parser = clap::value_parser!(u64).range(1..))]
    archive_keep_versions: Option<u64>,
    /// Where HTTP is answered; port 0 takes any that is free, and `none` is nowhere
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = door, default_value = "127.0.0.1:7330")]
    listen: Door,
    /// Where Arrow Flight SQL is answered; `none` is nowhere
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = door, default_value = "127.0.0.1:7331")]
    flight: Door,
    /// Holds every value against its checksum whenever it is read; one that is damaged is an error then
    #[arg(long)]
    check_values: bool,
    #[command(flatten)]
    token: token::TokenArguments,
    #[command(flatten)]
    clients: ClientArguments,
}

/// Serving processes that write, claim and train.
#[derive(Debug, Args)]
struct ClientArguments {
    /// Where clients are answered that do everything
    #[arg(long, value_name = "ADDRESS:PORT")]
    grpc: Option<SocketAddr>,
    /// A socket for such clients, which this user's processes alone can open, unless --socket-mode says more
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Who may open that socket, as the file's mode; others than this user need a token of --grants
    #[arg(long, value_name = "MODE", requires = "socket", value_parser = mode, default_value = "600")]
    socket_mode: u32,
    /// Who may do what at every address, and at --socket who is not this user: a TOML file with [NAME], `token`, `scopes` (read, write, train, admin) and maybe `tables`; HTTP and Flight SQL want `read` and all tables
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    /// With --grants: whoever reaches HTTP and Flight SQL reads all tables there without a token, whatever the grants say
    #[arg(long, requires = "grants")]
    readers_without_token: bool,
    /// Beneath which directory clients with the scope `admin` may have the store copied: one that is there, outside of the store [default: nowhere]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    backup_dir: Option<PathBuf>,
    /// The certificate that every address shows, as PEM: what goes over --grpc, --listen and --flight is encrypted then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Who signs the certificates that clients have to show, as PEM; over HTTP, /health and /ready want none
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_client_authority: Option<PathBuf>,
    /// When a write is acknowledged: before it is logged, once the kernel has it, or once it is on stable storage
    #[arg(long, value_name = "LEVEL", default_value = "logged", value_parser = ["memory", "logged", "synced"])]
    durability: String,
    #[command(flatten)]
    objects: objects::ObjectArguments,
    #[command(flatten)]
    limits: limits::LimitArguments,
}

/// Where something is answered, if anywhere.
#[derive(Clone, Copy, Debug)]
struct Door(Option<SocketAddr>);

fn door(text: &str) -> Result<Door, String> {
    match text {
        "none" => Ok(Door(None)),
        address => address.parse().map(|address| Door(Some(address))).map_err(|error| {
            format!("{address:?} is no address with a port, such as 127.0.0.1:7330, nor `none`: {error}")
        }),
    }
}

/// A file's mode, in octal, as `660` or `0o660`.
fn mode(text: &str) -> Result<u32, String> {
    let mode =
        u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is no mode of a file, such as 600 or 660"))
}

impl ClientArguments {
    fn are_served(&self) -> bool {
        self.grpc.is_some() || self.socket.is_some()
    }

    /// The store, open for writing.
    fn open(&self, dir: &Path, options: Options) -> Result<Store> {
        let level = Durability::ALL.into_iter().find(|level| level.as_str() == self.durability);
        let options = options.durability(level.unwrap_or_default()).objects(self.objects.options());
        if !dir.try_exists()? {
            // Who may not open the socket may not read the files behind it either.
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(Store::open(dir, options)?)
    }

    fn apply(&self, mut builder: Builder) -> Result<Builder> {
        let pem = |file: &PathBuf| {
            std::fs::read_to_string(file)
                .with_context(|| format!("cannot take a PEM from {}", file.display()))
        };
        if self.backup_dir.is_some() && !self.are_served() {
            anyhow::bail!("--backup-dir is for clients at --grpc or --socket, and neither is given");
        }
        builder = self.backup_dir.iter().fold(builder, Builder::backup_folder);
        builder = self.grpc.into_iter().fold(builder, Builder::grpc);
        builder = self.socket.iter().fold(builder, Builder::grpc_socket).grpc_socket_mode(self.socket_mode);
        for grant in self.grants.as_deref().map(grants::read).transpose()?.into_iter().flatten() {
            builder = builder.grant(grant);
        }
        builder = builder.readers_without_grants(self.readers_without_token);
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            let authority = self.tls_client_authority.as_ref().map(pem).transpose()?;
            builder = builder.tls(&pem(certificate)?, &pem(key)?, authority.as_deref());
        }
        Ok(self.limits.apply(builder))
    }
}

impl ServeArguments {
    /// Refuses what nothing would be served by, or encrypted for.
    fn check_doors(&self) -> Result<()> {
        let readers = [self.listen.0, self.flight.0];
        if readers == [None; 2] && !self.clients.are_served() {
            anyhow::bail!("--listen none --flight none leave nothing to serve; give --socket or --grpc, too");
        }
        if readers == [None; 2] && self.clients.grpc.is_none() && self.clients.tls_certificate.is_some() {
            anyhow::bail!(
                "--tls-certificate encrypts what goes over an address, and there is none; a socket needs no TLS"
            );
        }
        Ok(())
    }

    /// Tells where it answers.
    fn announce(&self, server: &Server) -> Result<()> {
        let is_encrypted = self.clients.tls_certificate.is_some();
        let scheme =
            |plain: &'static str, encrypted: &'static str| if is_encrypted { encrypted } else { plain };
        if let Some(address) = server.address() {
            eprintln!("listening on {}://{address}", scheme("http", "https"));
        }
        if let Some(address) = server.flight_address() {
            eprintln!("Flight SQL on {}://{address}", scheme("grpc", "grpc+tls"));
        }
        if let Some(address) = server.grpc_address() {
            eprintln!("clients on {}://{address}", scheme("grpc", "grpcs"));
        }
        if let Some(path) = &self.clients.socket {
            eprintln!("clients on unix://{}", std::path::absolute(path)?.display());
        }
        Ok(())
    }

    /// What moves versions into the archive, where it is asked for.
    fn archiver(&self, store: &Store, archive: &Archive) -> Result<Option<Archiver>> {
        let Some(versions) = self.archive_keep_versions else { return Ok(None) };
        if !self.clients.are_served() {
            anyhow::bail!(
                "--archive-keep-versions moves versions out of the store, and without --grpc or --socket it is open for reading"
            );
        }
        Ok(Some(Archiver::new(store, archive, ArchiveRule::keep_versions(versions))?))
    }
}

pub(super) fn run(arguments: &ServeArguments) -> Result<()> {
    let clients = &arguments.clients;
    if let Err(error) = raise_handles() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    arguments.check_doors()?;
    let token = arguments.token.read()?;
    let options = Options::default().check_values(arguments.check_values);
    let store = match clients.are_served() {
        true => clients.open(&arguments.dir, options)?,
        false => Store::open(&arguments.dir, options.read_only(true))?,
    };
    let _duties = clients.are_served().then(|| forebay::Duties::of(&store)).transpose()?;
    let mut builder = Server::builder().refresh(!clients.are_served());
    builder = arguments.flight.0.into_iter().fold(builder, Builder::flight);
    if let Some(token) = token {
        builder = builder.token(token);
    }
    let archive = arguments.archive.as_deref().map(Archive::open).transpose()?;
    if let Some(archive) = &archive {
        builder = builder.archive(archive);
    }
    for (name, file) in arguments.tokenizers.named() {
        builder = builder.tokenizer(name, file);
    }
    let archiver = archive.as_ref().map(|archive| arguments.archiver(&store, archive)).transpose()?.flatten();
    let builder = clients.apply(builder)?;
    let server = match arguments.listen.0 {
        Some(address) => builder.bind(store, address)?,
        None => builder.bind_without_http(store)?,
    };
    let _archiving = archiver.map(Archiving::of).transpose()?;
    end_with_a_signal(server.stopper())?; // before anybody knows where it is, who may ask it to end
    arguments.announce(&server)?;
    server.wait();
    Ok(())
}

/// Ends the server in order when the process is asked to end: sessions are closed, what they held goes back, and a version that is on
/// its way into an archive arrives. Asked again, the process ends where it stands, as a kill would end it.
fn end_with_a_signal(stopper: Stopper) -> Result<()> {
    let (mut asked, ask) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        pipe::register(signal, ask.try_clone()?)?;
    }
    let wait = move || {
        let _ = asked.read(&mut [0]); // either way nobody is there to ask any more
        stopper.stop();
        if asked.read(&mut [0]).is_ok_and(|bytes| bytes > 0) {
            let _ = signal_hook::low_level::emulate_default_handler(SIGTERM);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}
