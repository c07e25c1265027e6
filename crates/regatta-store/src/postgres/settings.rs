//! The address of a PostgreSQL store: `postgres://user@host/database?sslmode=verify-full`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use regatta_engine::ports::store::StoreError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Time limit for one connection attempt per address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which the system gives up a connection whose peer acknowledges nothing.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(3);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 3;

/// The parsed address of a PostgreSQL store.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    pub(super) config: Config,
    /// How to verify the server's certificate, or `None` for a connection without TLS.
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    /// The address without the password, for messages.
    pub(super) shown: String,
}

/// Returns whether the text is the address of a PostgreSQL store, and not a path of a SQLite file.
pub(crate) fn is_postgres_address(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

impl PostgresSettings {
    /// Parses an address. Connections to other machines need `sslmode=verify-full`, because
    /// everything else lets an attacker read and change the store.
    pub fn parse(address: &str) -> Result<PostgresSettings, StoreError> {
        let refused = |reason: String| StoreError {
            code: "bad_store_address",
            message: format!(
                "the address {} of the store cannot be used: {reason}",
                hide_password(address)
            ),
            hint: "write store = \"postgres://USER@HOST/DATABASE?sslmode=verify-full\"; put the \
                password into the file ~/.pgpass or the variable PGPASSWORD"
                .into(),
        };
        if !is_postgres_address(address) {
            return Err(refused("it does not begin with postgres://".into()));
        }
        let (main, query) = address.split_once('?').unwrap_or((address, ""));
        let (mut kept, mut mode, mut root_file) = (Vec::new(), None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_owned()),
                Some(("sslrootcert", value)) => {
                    let value = percent_decode(value)
                        .ok_or_else(|| refused(format!("{pair} is not valid")))?;
                    root_file = Some(PathBuf::from(value));
                }
                Some(_) => kept.push(pair),
                None => return Err(refused(format!("{pair} has no value"))),
            }
        }
        let plain = if kept.is_empty() {
            main.to_owned()
        } else {
            format!("{main}?{}", kept.join("&"))
        };
        let mut config: Config = plain
            .parse()
            .map_err(|error: tokio_postgres::Error| refused(describe(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(refused("it names no host".into()));
        }
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        let is_local = config.get_hosts().iter().all(is_this_machine);
        let tls = match mode.as_deref() {
            None if is_local => None,
            Some("disable") if is_local => None,
            Some("verify-full") => Some(verified_tls(root_file).map_err(refused)?),
            None => {
                return Err(refused(
                    "a store on another machine needs sslmode=verify-full".into(),
                ));
            }
            Some(weaker) => {
                return Err(refused(format!(
                    "sslmode={weaker} does not check the server's identity; use \
                    sslmode=verify-full"
                )));
            }
        };
        config
            .ssl_mode(if tls.is_some() {
                SslMode::Require
            } else {
                SslMode::Disable
            })
            .application_name("regatta")
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(TCP_USER_TIMEOUT)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES);
        Ok(PostgresSettings {
            config,
            tls,
            shown: hide_password(address),
        })
    }
}

impl std::fmt::Display for PostgresSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
    }
}

/// Returns the settings that verify the server's certificate and name, with the authorities in
/// `root_file`, or with the authorities of the system if there is no such file.
fn verified_tls(root_file: Option<PathBuf>) -> Result<Arc<rustls::ClientConfig>, String> {
    let mut roots = rustls::RootCertStore::empty();
    match root_file {
        Some(file) => {
            let unreadable = |error: &dyn std::fmt::Display| {
                format!(
                    "could not read the certificates in {}: {error}",
                    file.display()
                )
            };
            let certificates =
                CertificateDer::pem_file_iter(&file).map_err(|error| unreadable(&error))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unreadable(&error))?;
                roots.add(certificate).map_err(|error| unreadable(&error))?;
            }
            if roots.is_empty() {
                return Err(format!("{} contains no certificate", file.display()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Returns the address without its password.
fn hide_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let shown = match rest[..end].rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{host}{}", &rest[end..])
        }
        None => address.to_owned(),
    };
    match shown.split_once("password=") {
        Some((before, after)) => {
            let rest = after.split_once('&').map_or("", |(_, rest)| rest);
            format!("{before}{rest}")
        }
        None => shown,
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Returns the text of an error with its causes, because the outermost text says little.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(address: &str) -> String {
        PostgresSettings::parse(address).unwrap_err().message
    }

    #[test]
    fn another_machine_needs_a_verified_certificate() {
        for mode in [
            "",
            "?sslmode=disable",
            "?sslmode=prefer",
            "?sslmode=require",
        ] {
            let message = refusal(&format!("postgres://ann@db.example/fleet{mode}"));
            assert!(message.contains("verify-full"), "{message}");
        }
        let verified =
            PostgresSettings::parse("postgres://ann@db.example/fleet?sslmode=verify-full");
        assert!(verified.unwrap().tls.is_some());
    }

    #[test]
    fn this_machine_needs_no_certificate() {
        for address in [
            "postgres://ann@localhost/fleet",
            "postgres://ann@127.0.0.1:5433/fleet?sslmode=disable",
            "postgres://ann@[::1]/fleet",
            "postgresql://ann@%2Frun%2Fpostgresql/fleet",
        ] {
            assert!(
                PostgresSettings::parse(address).unwrap().tls.is_none(),
                "{address}"
            );
        }
        // One remote host in a list is enough to need a certificate.
        assert!(refusal("postgres://ann@localhost,db.example/fleet").contains("verify-full"));
    }

    #[test]
    fn no_message_contains_a_password() {
        for address in [
            "postgres://ann:s3cret@db.example/fleet",
            "postgres://db.example/fleet?user=ann&password=s3cret&sslmode=require",
            "postgres://ann:s3cret@localhost:99999999/fleet",
        ] {
            let message = refusal(address);
            assert!(!message.contains("s3cret"), "{message}");
        }
        let settings = PostgresSettings::parse("postgres://ann:s3cret@localhost/fleet").unwrap();
        assert_eq!(settings.to_string(), "postgres://ann@localhost/fleet");
    }

    #[test]
    fn unreadable_certificates_are_named() {
        let message =
            refusal("postgres://db.example/fleet?sslmode=verify-full&sslrootcert=%2Fnowhere");
        assert!(message.contains("/nowhere"), "{message}");
        assert!(refusal("postgres:///fleet").contains("no host"));
        assert!(refusal("mysql://localhost/x").contains("postgres://"));
        assert!(refusal("postgres://localhost/x?sslmode").contains("has no value"));
    }
}
