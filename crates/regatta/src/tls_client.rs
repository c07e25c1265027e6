//! Opens TLS connections to a daemon on another machine, for `--server https://…`.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::output::{CommandError, command_error};

/// Files in which operating systems store trusted certificates. The first file that exists is used.
const CA_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Starts TLS on an open connection to `host:port`. Trusts the certificates in the file
/// `REGATTA_TLS_CA` or, if that variable is not set, the certificates that the operating system
/// trusts.
pub(crate) async fn connect_tls(
    address: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, CommandError> {
    let name = address
        .rsplit_once(':')
        .map_or(address, |(host, _)| host)
        .trim_matches(['[', ']'])
        .to_owned();
    let name = ServerName::try_from(name).map_err(|error| {
        command_error(
            "unreachable",
            format!("{address} in --server is not a valid host: {error}"),
            "write --server https://HOST:PORT",
        )
    })?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            command_error(
                "bug",
                format!("could not set up TLS: {error}"),
                "report this with the command you typed and the output of regatta version",
            )
        })?
        .with_root_certificates(root_certificates()?)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| {
            command_error(
                "no_tls",
                format!("could not verify the certificate of {address}: {error}"),
                "set REGATTA_TLS_CA to a PEM file with the certificate of the daemon or of its \
                 authority",
            )
        })
}

fn root_certificates() -> Result<RootCertStore, CommandError> {
    let configured = std::env::var_os("REGATTA_TLS_CA")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    let system = || {
        CA_FILES
            .iter()
            .map(PathBuf::from)
            .find(|path| path.is_file())
    };
    let mut roots = RootCertStore::empty();
    if let Some(path) = configured.or_else(system) {
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(&path).and_then(Iterator::collect);
        let certificates = certificates.map_err(|error| {
            command_error(
                "bad_config",
                format!(
                    "could not read trusted certificates from {}: {error}",
                    path.display()
                ),
                "set REGATTA_TLS_CA to a PEM file of certificates",
            )
        })?;
        roots.add_parsable_certificates(certificates);
    }
    Ok(roots)
}
