//! Where a server is.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, Result};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system, of this machine.
    Unix(PathBuf),
    /// `HOST:PORT`, with TLS or without.
    Tcp {
        /// The host and the port.
        authority: String,
        /// Whether what goes over the wire is encrypted.
        tls: bool,
    },
}

impl Address {
    /// Whether the server may be on another machine.
    pub(super) fn is_far(&self) -> bool {
        let Address::Tcp { authority, .. } = self else { return false };
        let host = authority.rsplit_once(':').map_or(&**authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host != "localhost" && !host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp { authority, tls } => {
                write!(f, "{}://{authority}", if *tls { "grpcs" } else { "grpc" })
            }
        }
    }
}

impl std::str::FromStr for Address {
    type Err = Error;

    /// Reads `unix:///PATH`, `grpc://HOST:PORT` or `grpcs://HOST:PORT`.
    ///
    /// # Errors
    /// `input` for anything else.
    fn from_str(text: &str) -> Result<Self> {
        let tcp = |authority: &str, tls| {
            let parts = authority.trim_end_matches('/').rsplit_once(':');
            let whole = parts
                .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
            whole.map(|(host, port)| Address::Tcp { authority: format!("{host}:{port}"), tls })
        };
        let found = match text.split_once("://") {
            Some(("unix", path)) if !path.is_empty() => Some(Address::Unix(path.into())),
            Some(("grpc", authority)) => tcp(authority, false),
            Some(("grpcs", authority)) => tcp(authority, true),
            _ => None,
        };
        found.ok_or_else(|| {
            let message = format!(
                "{text:?} is no address of a server; give unix:///PATH, grpc://HOST:PORT or grpcs://HOST:PORT"
            );
            Error::input("Argument", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_this_machine_is_near() {
        let is_far = |text: &str| text.parse::<Address>().unwrap().is_far();
        for near in ["unix:///run/fb.sock", "grpc://localhost:1", "grpc://127.0.0.1:1", "grpcs://[::1]:1"] {
            assert!(!is_far(near), "{near}");
        }
        for far in ["grpc://10.0.0.7:1", "grpcs://store.lan:1", "grpc://[fe80::1]:1"] {
            assert!(is_far(far), "{far}");
        }
    }

    #[test]
    fn addresses_are_read_and_others_are_refused_by_name() {
        let tcp = |authority: &str, tls| Address::Tcp { authority: authority.to_owned(), tls };
        for (text, address) in [
            ("unix:///run/fb.sock", Address::Unix("/run/fb.sock".into())),
            ("unix://fb.sock", Address::Unix("fb.sock".into())),
            ("grpc://localhost:7070", tcp("localhost:7070", false)),
            ("grpc://[::1]:7070/", tcp("[::1]:7070", false)),
            ("grpcs://store.example.org:443", tcp("store.example.org:443", true)),
        ] {
            assert_eq!(text.parse::<Address>().unwrap(), address);
        }
        for text in [
            "",
            "unix://",
            "grpc://",
            "grpc://host",
            "grpc://:1",
            "grpc://host:0",
            "grpc://h:99999",
            "http://h:1",
            "/run/fb.sock",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
