//! TLS: the certificate that a server shows, and those that it wants to see.
//!
//! One setting holds for every address: gRPC and Flight SQL shake hands in tonic, HTTP in `connections`. Where clients have to show a
//! certificate, gRPC and Flight SQL let nobody in without. Over HTTP a connection without one comes about, and `guard` answers
//! `/health` and `/ready` over it and nothing else: what looks whether a server lives has no certificate.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::error::{Error, Result};

type Whatever = Box<dyn std::error::Error + Send + Sync>;

/// What TLS needs, as PEM.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// Who signs the certificates of clients, where they have to show one.
    pub(crate) client_authority: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// For tonic's servers.
    pub(crate) fn of_tonic(&self) -> ServerTlsConfig {
        let config = ServerTlsConfig::new().identity(Identity::from_pem(&self.certificate, &self.key));
        let authority = self.client_authority.iter().map(Certificate::from_pem);
        authority.fold(config, ServerTlsConfig::client_ca_root)
    }

    /// For HTTP's. Tells what is wrong with the files, for whichever address they are.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let config = self.config().map_err(|source| Error::Tls { source })?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn config(&self) -> Result<ServerConfig, Whatever> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match &self.client_authority {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(authority, "the authority of clients")? {
                    roots.add(certificate)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        let key = key.map_err(|error| format!("the key is none in PEM: {error}"))?;
        let mut config =
            builder.with_single_cert(certificates(&self.certificate, "the certificate")?, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The certificates of a PEM, which has to have one.
fn certificates(pem: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, Whatever> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| format!("{what} is none in PEM: {error}"))?;
    if found.is_empty() {
        return Err(format!("{what} has no certificate in PEM").into());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_files_is_told_and_no_key_is_shown() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = |certificate: &str, key: &str, authority: Option<&str>| Tls {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_authority: authority.map(str::to_owned),
        };
        assert!(tls(&certificate, &key, None).acceptor().is_ok());
        assert!(tls(&certificate, &key, Some(&certificate)).acceptor().is_ok());
        for (wrong, named) in [
            (tls("", &key, None), "the certificate has no certificate"),
            (tls(&key, &key, None), "the certificate has no certificate"),
            (tls(&certificate, "", None), "the key"),
            (tls(&certificate, &certificate, None), "the key"),
            (tls(&certificate, &other.signing_key.serialize_pem(), None), ""),
            (tls(&certificate, &key, Some("nobody")), "the authority of clients"),
        ] {
            let error = wrong.acceptor().err().map(|error| error.to_string()).unwrap();
            assert!(error.contains(named) && !error.contains("PRIVATE"), "{error}");
            assert_eq!(format!("{wrong:?}"), "Tls");
        }
    }
}
