//! Checks the certificate of a daemon on another machine, for `--server https://…`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::output::{CommandError, command_error, internal_error};

/// Files in which operating systems store trusted certificates. The first file that exists is used.
const CA_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Returns the TLS settings. Trusts the certificates in the file `REGATTA_TLS_CA` or, if that
/// variable is not set, the certificates that the operating system trusts. Without `is_tls`, no
/// certificates are read, because a command that talks to this machine's daemon does not need them.
pub(crate) fn config(is_tls: bool) -> Result<ClientConfig, CommandError> {
    let roots = if is_tls {
        root_certificates()?
    } else {
        RootCertStore::empty()
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| internal_error(format!("could not set up TLS: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the TLS error among the causes of a failed request.
pub(crate) fn find_tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>())
}

/// Returns the innermost cause of an error as text, because the innermost cause is the most
/// specific.
pub(crate) fn innermost_cause(error: &reqwest::Error) -> String {
    let innermost = causes(error).last();
    innermost.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns an error and its causes, from the outermost to the innermost. The cause of an I/O error
/// is the error inside it, which `source` skips.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let outermost: &(dyn Error + 'static) = error;
    std::iter::successors(Some(outermost), |cause| inner_cause(*cause))
}

fn inner_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<std::io::Error>() {
        Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => error.source(),
    }
}

/// Returns the error of a connection to `server` that TLS refused.
pub(crate) fn untrusted_error(server: &str, error: &rustls::Error) -> CommandError {
    command_error(
        "no_tls",
        format!("could not verify the certificate of {server}: {error}"),
        "set REGATTA_TLS_CA to a PEM file with the certificate of the daemon or of its \
         authority",
    )
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
