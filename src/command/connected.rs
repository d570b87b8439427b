//! Which store a command is about: one that a server has, or one in a directory.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay::client::{Client, ConnectOptions};
use forebay::store::{Options, Store};

use super::token;

/// A store behind a server, or in a directory.
#[derive(Debug, Args)]
pub(super) struct StoreArguments {
    /// The server that has the store: unix:///run/forebay.sock, grpc://HOST:PORT, or grpcs://HOST:PORT with TLS
    #[arg(long, value_name = "URL", conflicts_with = "dir", required_unless_present = "dir")]
    connect: Option<String>,
    /// The store's directory
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The file with the token that the server wants [default: the variable FOREBAY_TOKEN, or none]
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    token_file: Option<PathBuf>,
    /// Who has signed the server's certificate, as PEM, for grpcs
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    tls_authority: Option<PathBuf>,
    /// The certificate to show to a server that asks for one, as PEM
    #[arg(long, value_name = "FILE", conflicts_with = "dir", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[arg(long, value_name = "FILE", conflicts_with = "dir", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

/// What a command does with a store that it opens itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Reads,
    Writes,
}

impl StoreArguments {
    /// The directory, where one is given.
    pub(super) fn dir(&self) -> Option<&PathBuf> {
        self.dir.as_ref()
    }

    /// A client of the store. One in a directory is opened, and never made.
    pub(super) fn open(&self, access: Access) -> Result<Client> {
        let Some(dir) = &self.dir else { return self.connect() };
        let options = Options::default().create(false).read_only(access == Access::Reads);
        let opened = Store::open(dir, options);
        let store = opened.context(match access {
            Access::Reads => "the store was not opened",
            Access::Writes => "the store was not opened for writing; where a server has it, give --connect URL instead of --dir",
        })?;
        Ok(Client::embedded(store))
    }

    /// A client of the server's store, for what only an open store has.
    pub(super) fn served(&self, what: &str) -> Result<Client> {
        if self.dir.is_some() {
            bail!(
                "{what} hold while a store is open, and this command would close it again: give --connect URL, of the server \
                 that has it open"
            );
        }
        self.connect()
    }

    fn connect(&self) -> Result<Client> {
        let address = self.connect.as_deref().context("give --connect URL or --dir DIR")?;
        let pem = |file: &PathBuf| {
            std::fs::read_to_string(file)
                .with_context(|| format!("cannot take a PEM from {}", file.display()))
        };
        // No values go through it, so it needs no shared memory.
        let mut options = ConnectOptions::default().neighbour(false).slabs(false).owner("forebay admin");
        if let Some(token) = token::shown(self.token_file.as_deref())? {
            options = options.token(&token);
        }
        if let Some(authority) = &self.tls_authority {
            options = options.authority_certificate(&pem(authority)?);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            options = options.identity(&pem(certificate)?, &pem(key)?);
        }
        Ok(Client::connect(address, &options)?)
    }
}
