//! Where the daemon listens: always on loopback, for this machine's own programs, and beyond it only over TLS or by an
//! explicit wish.
//!
//! The two are doors of their own. Agents on this machine are told the loopback address and need no certificate; what
//! other machines see is the other one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use regatta_server::Outside;
use regatta_server::tls::Tls;
use tokio::net::TcpListener;

use crate::args::Listen;
use crate::daemon::{Place, write_whole};
use crate::out::{Failed, failed, usage};
use crate::settings;

/// What is listened on.
pub(crate) struct Bound {
    pub(crate) tcp: TcpListener,
    pub(crate) outside: Option<Outside>,
}

/// Listens where it is wished. People and programs know the last daemon's port: unless somebody chose another one, it is
/// that one again, if it can be had.
pub(crate) async fn bind(place: &Place, wished: &Listen) -> Result<Bound, Failed> {
    let wish = Wish::read(wished)?;
    let (tcp, outside) = if wish.is_outside() {
        let tls = wish.tls()?;
        let tcp = TcpListener::bind(wish.address).await.map_err(|it| taken(wish.address, &it))?;
        let inner = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        (bind_inner(place, inner, false).await?, Some(Outside { tcp, tls, hosts: wish.hosts }))
    } else {
        (bind_inner(place, wish.address, wish.chosen).await?, None)
    };
    if let Ok(address) = tcp.local_addr()
        && let Err(error) = write_whole(&place.port(), &format!("{}\n", address.port()))
    {
        tracing::warn!("the port is not remembered: {error}");
    }
    Ok(Bound { tcp, outside })
}

/// The address for people on other machines.
pub(crate) fn url(outside: &Outside) -> Option<String> {
    let address = outside.tcp.local_addr().ok()?;
    let scheme = if outside.tls.is_some() { "https" } else { "http" };
    let host = outside.hosts.first().map_or(address.ip().to_string(), Clone::clone);
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    Some(format!("{scheme}://{host}:{}/", address.port()))
}

/// What was asked for, by flag, environment or file.
struct Wish {
    address: SocketAddr,
    /// By somebody, not by default.
    chosen: bool,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    hosts: Vec<String>,
    insecure: bool,
}

impl Wish {
    fn read(wished: &Listen) -> Result<Wish, Failed> {
        let all = settings::all(Path::new("/"))?;
        let set = |name: &str| all.iter().find(|it| it.name == name && !it.value.is_empty());
        let (wanted, chosen) = match (&wished.listen, set("daemon.listen")) {
            (Some(text), _) => (text.clone(), true),
            (None, Some(it)) => (it.value.clone(), it.origin != "default"),
            (None, None) => ("127.0.0.1:0".into(), false),
        };
        let address: SocketAddr = wanted.replace("localhost", "127.0.0.1").parse().map_err(|_| {
            usage(
                format!("{wanted:?} is not an address to listen on"),
                "write it as 127.0.0.1:7777; port 0 takes a free one",
            )
        })?;
        let path =
            |flag: &Option<PathBuf>, name: &str| flag.clone().or_else(|| set(name).map(|it| it.value.clone().into()));
        let named = set("daemon.hosts").map(|it| it.value.clone()).unwrap_or_default();
        let named = named.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned);
        let wish = Wish {
            address,
            chosen,
            certificate: path(&wished.tls_cert, "daemon.tls_cert"),
            key: path(&wished.tls_key, "daemon.tls_key"),
            hosts: wished.host.iter().cloned().chain(named).map(|it| it.to_ascii_lowercase()).collect(),
            insecure: wished.insecure_listen || set("daemon.insecure_listen").is_some_and(|it| it.value == "true"),
        };
        wish.check()?;
        Ok(wish)
    }

    fn check(&self) -> Result<(), Failed> {
        if self.certificate.is_some() != self.key.is_some() {
            return Err(usage("a certificate and its key go together", "give both: --tls-cert FILE --tls-key FILE"));
        }
        let plain =
            |it: &String| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || b"-.:[]".contains(&it));
        if let Some(bad) = self.hosts.iter().find(|it| !plain(it)) {
            return Err(usage(format!("{bad:?} is not a host's name"), "write it as regatta.example.com"));
        }
        if !self.address.ip().is_loopback() && self.certificate.is_none() && !self.insecure {
            return Err(usage(
                format!(
                    "{} is beyond this machine, and without TLS everybody on the way could read along",
                    self.address
                ),
                "give --tls-cert and --tls-key, listen on 127.0.0.1, or say --insecure-listen if something before it speaks TLS",
            ));
        }
        Ok(())
    }

    fn is_outside(&self) -> bool {
        !self.address.ip().is_loopback() || self.certificate.is_some()
    }

    fn tls(&self) -> Result<Option<Tls>, Failed> {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else { return Ok(None) };
        Tls::read(certificate, key)
            .map(Some)
            .map_err(|it| failed("bad_config", format!("TLS cannot be used: {it}"), "both are PEM files; look at them"))
    }
}

async fn bind_inner(place: &Place, address: SocketAddr, chosen: bool) -> Result<TcpListener, Failed> {
    let last = std::fs::read_to_string(place.port()).ok().and_then(|it| it.trim().parse::<u16>().ok());
    let may_be_any = !chosen || address.port() == 0;
    if let (true, Some(port)) = (may_be_any, last)
        && let Ok(listener) = TcpListener::bind((address.ip(), port)).await
    {
        return Ok(listener);
    }
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        // The usual port is taken by another data directory's daemon: any other will do.
        Err(_) if !chosen => TcpListener::bind((address.ip(), 0))
            .await
            .map_err(|it| failed("io", format!("no port can be had: {it}"), "see what is wrong: regatta doctor")),
        Err(error) => Err(taken(address, &error)),
    }
}

fn taken(address: SocketAddr, error: &std::io::Error) -> Failed {
    failed("io", format!("cannot listen on {address}: {error}"), "choose another port; 0 takes a free one")
}
