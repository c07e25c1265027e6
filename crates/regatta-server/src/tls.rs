//! Encrypts connections from other machines with TLS. The certificate and its key are PEM files.
//!
//! The cryptography comes from the library `ring`. It can be built with only the C compiler, which
//! SQLite needs anyway; the alternative, AWS-LC, needs more build tools.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate and key of the listener for other machines.
#[derive(Clone)]
pub struct Tls {
    pub(crate) acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads a certificate chain and its private key from PEM files. The files are read before the
    /// server listens, so that errors in them are reported when the daemon starts.
    pub fn from_files(certificate: &Path, key: &Path) -> io::Result<Tls> {
        let bad = |path: &Path, why: String| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {why}", path.display()),
            )
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| bad(certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(bad(certificate, "the file contains no certificate".into()));
        }
        let secret =
            PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error.to_string()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(certificate, error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| bad(key, error.to_string()))?;
        Ok(Tls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }
}
