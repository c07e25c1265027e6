//! Opens the addresses on which the daemon listens.
//!
//! The daemon always listens on loopback, for the programs of this machine. For other machines the
//! daemon listens only over TLS, or with the flag `--insecure-listen`. The daemon uses two separate
//! listeners, because agents on this machine get the loopback address and need no certificate, and
//! other machines see only the outside address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use regatta_server::PublicListener;
use regatta_server::tls::Tls;
use tokio::net::TcpListener;

use crate::commands::serve::ListenArgs;
use crate::daemon::{DataDir, write_atomically};
use crate::output::{CommandError, command_error, usage_error};
use crate::settings::{self, ResolvedSetting};

/// The open listeners of a daemon: `tcp` for this machine, and `public_listener` for other
/// machines, if configured.
pub(crate) struct BoundListeners {
    pub(crate) tcp: TcpListener,
    pub(crate) public_listener: Option<PublicListener>,
}

/// Opens the listeners.
///
/// The daemon uses the port of the previous daemon again if that port is free, because people and
/// programs remember the address. A port that a person chose takes precedence.
pub(crate) async fn bind(
    data_dir: &DataDir,
    args: &ListenArgs,
) -> Result<BoundListeners, CommandError> {
    let request = ListenRequest::read(args)?;
    let (tcp, outside) = if request.is_public() {
        let tls = request.tls()?;
        let tcp = TcpListener::bind(request.address)
            .await
            .map_err(|error| address_in_use_error(request.address, &error))?;
        let inner = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        (
            bind_tcp(data_dir, inner, false).await?,
            Some(PublicListener {
                tcp,
                tls,
                hosts: request.hosts,
            }),
        )
    } else {
        (
            bind_tcp(data_dir, request.address, request.is_chosen).await?,
            None,
        )
    };
    if let Ok(address) = tcp.local_addr()
        && let Err(error) =
            write_atomically(&data_dir.port_path(), &format!("{}\n", address.port()))
    {
        tracing::warn!(
            "could not store the port of the daemon, so the next daemon may listen on another \
             port: {error}"
        );
    }
    Ok(BoundListeners {
        tcp,
        public_listener: outside,
    })
}

/// Returns the URL by which other machines reach the daemon.
pub(crate) fn public_url(outside: &PublicListener) -> Option<String> {
    let address = outside.tcp.local_addr().ok()?;
    let scheme = if outside.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let host = outside
        .hosts
        .first()
        .map_or(address.ip().to_string(), Clone::clone);
    let host = if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host
    };
    Some(format!("{scheme}://{host}:{}/", address.port()))
}

/// The address on which the daemon should listen, and its TLS files, from options, environment and
/// settings.
pub(crate) struct ListenRequest {
    pub(crate) address: SocketAddr,
    /// True if a person chose the address. Otherwise the daemon may use another port.
    is_chosen: bool,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) hosts: Vec<String>,
    pub(crate) is_insecure: bool,
}

impl ListenRequest {
    /// Reads the request from the options, the environment and the user's own settings.
    fn read(args: &ListenArgs) -> Result<ListenRequest, CommandError> {
        ListenRequest::from_settings(args, &settings::resolve_all(Path::new("/"))?)
    }

    pub(crate) fn from_settings(
        args: &ListenArgs,
        all: &[ResolvedSetting],
    ) -> Result<ListenRequest, CommandError> {
        let setting = |name: &str| {
            all.iter().find(|resolved_setting| {
                resolved_setting.name == name && !resolved_setting.value.is_empty()
            })
        };
        let (text, is_chosen) = match (&args.listen, setting("daemon.listen")) {
            (Some(text), _) => (text.clone(), true),
            (None, Some(resolved_setting)) => (
                resolved_setting.value.clone(),
                resolved_setting.origin != "default",
            ),
            (None, None) => ("127.0.0.1:0".into(), false),
        };
        let address: SocketAddr = text
            .replace("localhost", "127.0.0.1")
            .parse()
            .map_err(|_| {
                usage_error(
                    format!("{text:?} is not an address to listen on"),
                    "write the address as 127.0.0.1:7777; port 0 selects a free port",
                )
            })?;
        let path = |flag: &Option<PathBuf>, name: &str| {
            flag.clone().or_else(|| {
                setting(name).map(|resolved_setting| resolved_setting.value.clone().into())
            })
        };
        let hosts = setting("daemon.hosts")
            .map(|resolved_setting| resolved_setting.value.clone())
            .unwrap_or_default();
        let hosts = hosts
            .split(',')
            .map(str::trim)
            .filter(|host| !host.is_empty())
            .map(str::to_owned);
        let request = ListenRequest {
            address,
            is_chosen,
            certificate: path(&args.tls_cert, "daemon.tls_cert"),
            key: path(&args.tls_key, "daemon.tls_key"),
            hosts: args
                .host
                .iter()
                .cloned()
                .chain(hosts)
                .map(|host| host.to_ascii_lowercase())
                .collect(),
            is_insecure: args.insecure_listen
                || setting("daemon.insecure_listen")
                    .is_some_and(|resolved_setting| resolved_setting.value == "true"),
        };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), CommandError> {
        if self.certificate.is_some() != self.key.is_some() {
            return Err(usage_error(
                "only one of the TLS certificate and its key was given",
                "name both files: --tls-cert FILE --tls-key FILE",
            ));
        }
        let plain = |s: &String| {
            !s.is_empty()
                && s.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte))
        };
        if let Some(bad) = self.hosts.iter().find(|host| !plain(host)) {
            return Err(usage_error(
                format!("{bad:?} is not a host name"),
                "write a name such as regatta.example.com",
            ));
        }
        if !self.address.ip().is_loopback() && self.certificate.is_none() && !self.is_insecure {
            return Err(usage_error(
                format!(
                    "the address {address} is reachable from other machines, and without TLS \
                     everybody in the network could read the connections",
                    address = self.address
                ),
                "give --tls-cert and --tls-key, listen on 127.0.0.1, or add --insecure-listen if \
                a proxy in front provides TLS",
            ));
        }
        Ok(())
    }

    fn is_public(&self) -> bool {
        !self.address.ip().is_loopback() || self.certificate.is_some()
    }

    fn tls(&self) -> Result<Option<Tls>, CommandError> {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else {
            return Ok(None);
        };
        Tls::from_files(certificate, key)
            .map(Some)
            .map_err(|error| {
                command_error(
                    "bad_config",
                    format!(
                        "could not set up TLS with the certificate {certificate} and the key \
                         {key}: \
                         {error}",
                        certificate = certificate.display(),
                        key = key.display()
                    ),
                    "check that both are PEM files and belong together",
                )
            })
    }
}

async fn bind_tcp(
    data_dir: &DataDir,
    address: SocketAddr,
    is_chosen: bool,
) -> Result<TcpListener, CommandError> {
    let last_port = std::fs::read_to_string(data_dir.port_path())
        .ok()
        .and_then(|s| s.trim().parse::<u16>().ok());
    let may_use_any_port = !is_chosen || address.port() == 0;
    if let (true, Some(port)) = (may_use_any_port, last_port)
        && let Ok(listener) = TcpListener::bind((address.ip(), port)).await
    {
        return Ok(listener);
    }
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        // The default port is taken, perhaps by the daemon of another data directory, so take any
        // free port.
        Err(_) if !is_chosen => TcpListener::bind((address.ip(), 0)).await.map_err(|error| {
            command_error(
                "io",
                format!("could not open any port: {error}"),
                "see what is wrong: regatta doctor",
            )
        }),
        Err(error) => Err(address_in_use_error(address, &error)),
    }
}

fn address_in_use_error(address: SocketAddr, error: &std::io::Error) -> CommandError {
    command_error(
        "io",
        format!("cannot listen on {address}: {error}"),
        "choose another port; port 0 selects a free port",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn port_of_next_daemon(data_dir: &DataDir, default: SocketAddr) -> u16 {
        // The listener is dropped here, as when a daemon ends.
        let listener = bind_tcp(data_dir, default, false).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        std::fs::write(data_dir.port_path(), format!("{port}\n")).unwrap();
        port
    }

    #[tokio::test]
    async fn a_restart_keeps_the_port_although_the_default_port_was_taken() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path());
        let other_daemon = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let default = other_daemon.local_addr().unwrap();
        let first_port = port_of_next_daemon(&data_dir, default).await;
        assert_ne!(first_port, default.port());
        for _ in 0..3 {
            assert_eq!(port_of_next_daemon(&data_dir, default).await, first_port);
        }
        // The default port becomes free, but people know the other address.
        drop(other_daemon);
        assert_eq!(port_of_next_daemon(&data_dir, default).await, first_port);
    }

    #[tokio::test]
    async fn a_port_that_a_person_chose_takes_precedence_over_the_port_before() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path());
        let any = "127.0.0.1:0".parse().unwrap();
        let last_port = port_of_next_daemon(&data_dir, any).await;
        let chosen = TcpListener::bind(any).await.unwrap().local_addr().unwrap();
        let listener = bind_tcp(&data_dir, chosen, true).await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), chosen);
        assert_ne!(chosen.port(), last_port);
    }
}
