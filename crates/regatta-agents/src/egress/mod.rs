//! Gives a sandboxed program without a network access to the allowed hosts only, through a proxy
//! (the gate) in its shim, the supervisor process outside the sandbox.
//!
//! ```text
//! inside, an empty network                     outside, the shim
//!
//! init process: listens on 127.0.0.1  ───────► gate: accepts, checks, connects
//!               (passes its listening sockets
//!                over a unix socket)
//! program: HTTPS_PROXY=http://127.0.0.1:61080
//! ```
//!
//! A socket stays in the network in which it was created, whichever process holds it. Regatta
//! therefore needs no process inside the sandbox that could be traced, stopped or misused. The
//! program also finds no socket of Regatta, because the unix socket over which the init process
//! passes its sockets is removed before the program starts. The gate runs in the shim, so it
//! survives a restart of the daemon and ends with the program.
//!
//! [`allow_list`] holds the list of allowed hosts and the rule that protects this machine and its
//! network. [`fd_passing`] passes the sockets, [`proxy`] serves one connection, and this file
//! accepts connections.

mod allow_list;
mod fd_passing;
mod proxy;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

pub use allow_list::AllowList;
pub(crate) use fd_passing::send_sockets;

/// The proxy's port inside the sandbox. The port is above the range from which the kernel assigns
/// ports to outgoing connections, so no outgoing connection occupies it.
const PROXY_PORT: u16 = 61_080;

/// The maximum number of open connections to the proxy, and also to the tool server. Further
/// connections wait until an open connection ends.
const MAX_CONNECTIONS: usize = 64;

/// The number of different hosts for which refused connections are reported. Refusals of further
/// hosts are not reported.
const MAX_REPORTED_HOSTS: usize = 500;

/// The addresses that a program without a network of its own may reach through its supervisor
/// process. Contains no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRoutes {
    /// The allowed hosts, such as `example.com:443`. If the list is empty, there is no proxy.
    #[serde(default)]
    pub allow: Vec<String>,
    /// The loopback address of Regatta's tool server, which the program reaches under the same
    /// address inside the sandbox. `None` if the tool server is reached through the proxy or not
    /// needed.
    #[serde(default)]
    pub tools: Option<SocketAddr>,
}

impl EgressRoutes {
    /// Creates the routes to the hosts in `allow` and to the tool server at the URL `tools`.
    /// Returns `None` if both are empty.
    pub fn new(allow: &[String], tools: Option<&str>) -> Result<Option<EgressRoutes>, String> {
        let mut routes = EgressRoutes {
            allow: allow.to_vec(),
            tools: None,
        };
        if let Some(url) = tools {
            match allow_list::locate_tool_server(url)? {
                // An unprivileged process inside the sandbox cannot listen on a port below 1024, so
                // the program reaches a tool server with such a port through the proxy.
                allow_list::ToolServerLocation::Loopback(address) if address.port() < 1024 => {
                    routes.allow.push(address.to_string())
                }
                allow_list::ToolServerLocation::Loopback(address) => routes.tools = Some(address),
                allow_list::ToolServerLocation::Remote(listed) => routes.allow.push(listed),
            }
        }
        AllowList::new(&routes.allow)?;
        Ok((!routes.allow.is_empty() || routes.tools.is_some()).then_some(routes))
    }

    /// Returns the address of the proxy inside the sandbox, or `None` if the program has no proxy.
    pub fn proxy_address(&self) -> Option<SocketAddr> {
        let is_port_taken = self
            .tools
            .is_some_and(|address| address.port() == PROXY_PORT);
        let port = PROXY_PORT + u16::from(is_port_taken);
        (!self.allow.is_empty()).then(|| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Returns the addresses inside the sandbox on which the init process (its first process)
    /// listens. The init process passes the listening sockets in the same order.
    pub(crate) fn inner_addresses(&self) -> Vec<SocketAddr> {
        self.proxy_address().into_iter().chain(self.tools).collect()
    }

    /// Returns the environment variables that make programs use the proxy.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let Some(proxy) = self.proxy_address() else {
            return vec![];
        };
        let mut variables = vec![("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned())];
        for (name, value) in [
            ("HTTP_PROXY", format!("http://{proxy}")),
            ("HTTPS_PROXY", format!("http://{proxy}")),
            ("ALL_PROXY", format!("http://{proxy}")),
            // Servers that the program starts itself, and Regatta's tool server, must be reached
            // without the proxy.
            ("NO_PROXY", "127.0.0.1,localhost,::1".to_owned()),
        ] {
            variables.push((name.to_lowercase(), value.clone()));
            variables.push((name.to_owned(), value));
        }
        variables
    }
}

/// A report that the proxy refused a program's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedConnection {
    /// The host and port to which the program tried to connect, as `HOST:PORT`.
    pub to: String,
    pub why: String,
    /// The number of refused connections to this host and port, including this one. Only the first,
    /// the tenth, the hundredth and so on are reported.
    pub times: u64,
}

/// The function that receives the reports of refused connections.
pub type OnRefusal = Arc<dyn Fn(RefusedConnection) + Send + Sync>;

/// The unix socket on which the supervisor process receives the sandbox's listening sockets before
/// the program starts.
pub struct EgressGate {
    listener: UnixListener,
    socket: PathBuf,
    routes: EgressRoutes,
}

/// Returns the path of the unix socket. The socket is in the program's directory for temporary
/// files, because the sandbox shows that directory.
pub(crate) fn socket_in(tmp: &Path) -> PathBuf {
    tmp.join(".regatta-egress")
}

impl EgressGate {
    /// Creates the unix socket on which the sandbox's init process passes its listening sockets to
    /// this process. The caller must do this before it starts the program.
    pub fn open(tmp: &Path, routes: EgressRoutes) -> io::Result<EgressGate> {
        let socket = socket_in(tmp);
        Ok(EgressGate {
            listener: fd_passing::listen(&socket)?,
            socket,
            routes,
        })
    }

    /// Waits for the sandbox's init process, receives its listening sockets, and serves each in a
    /// new thread. Accepts any process that connects.
    pub fn serve_any(self, on_refusal: OnRefusal) -> io::Result<()> {
        self.serve_process(on_refusal, &|_| true, || Ok(()))
    }

    /// Like [`EgressGate::serve_any`], but accepts only the init process for which `is_expected`
    /// returns true, and runs `before_continue` before it lets the process continue.
    pub(crate) fn serve_process(
        self,
        on_refusal: OnRefusal,
        is_expected: &dyn Fn(u32) -> bool,
        before_continue: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let allow_list = AllowList::new(&self.routes.allow).map_err(io::Error::other)?;
        let state = Arc::new(GateState {
            allow_list,
            refusal_counts: Mutex::default(),
            on_refusal,
        });
        let addresses = self.routes.inner_addresses();
        let received = fd_passing::receive_sockets(&self.listener, addresses.len(), is_expected);
        // Remove the unix socket even after an error, so that no other process finds it.
        drop(self.listener);
        let removed = std::fs::remove_file(&self.socket);
        let (peer, sockets) = received?;
        removed?;
        for (address, socket) in addresses.into_iter().zip(sockets) {
            let (state, tools) = (
                Arc::clone(&state),
                self.routes.tools.filter(|tool| *tool == address),
            );
            std::thread::Builder::new()
                .name("gate".to_owned())
                .stack_size(proxy::STACK_BYTES)
                .spawn(move || accept_connections(&TcpListener::from(socket), tools, &state))?;
        }
        before_continue()?;
        fd_passing::acknowledge(peer)
    }
}

/// The state that all connections of one program share: the allowed hosts, and how often each host
/// was refused.
struct GateState {
    allow_list: AllowList,
    refusal_counts: Mutex<HashMap<String, u64>>,
    on_refusal: OnRefusal,
}

impl GateState {
    /// Counts a refused connection. Reports only the first, tenth, hundredth and so on to the same
    /// host, so that a program in a loop does not fill the disk with reports.
    fn report_refusal(&self, to: &str, why: &str) {
        let mut counts = lock(&self.refusal_counts);
        if counts.len() >= MAX_REPORTED_HOSTS && !counts.contains_key(to) {
            return;
        }
        let count = counts.entry(to.to_owned()).or_default();
        *count += 1;
        let (count, is_last) = (*count, counts.len() == MAX_REPORTED_HOSTS);
        drop(counts);
        if count
            .checked_ilog10()
            .is_some_and(|exponent| 10_u64.pow(exponent) == count)
        {
            let why = if is_last && count == 1 {
                format!("{why}; further hosts are not reported")
            } else {
                why.to_owned()
            };
            (self.on_refusal)(RefusedConnection {
                to: to.to_owned(),
                why,
                times: count,
            });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections on `listener` as long as this process runs, at most [`MAX_CONNECTIONS`] at a
/// time, and serves each connection in its own thread. `tools` is the address of the tool server if
/// the listener forwards to the tool server, or `None` if the listener belongs to the proxy.
fn accept_connections(listener: &TcpListener, tools: Option<SocketAddr>, state: &Arc<GateState>) {
    let active = Arc::new((Mutex::new(0_usize), Condvar::new()));
    loop {
        let count = active
            .1
            .wait_while(lock(&active.0), |n| *n >= MAX_CONNECTIONS);
        *count.unwrap_or_else(PoisonError::into_inner) += 1;
        let slot = ConnectionSlot(Arc::clone(&active));
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Accepting usually fails because this process has no file descriptors left. Wait a
            // moment, because descriptors become free when a connection ends.
            Err(_) => {
                drop(slot);
                std::thread::sleep(proxy::NO_RESOURCES_DELAY);
                continue;
            }
        };
        let state = Arc::clone(state);
        let run = move || {
            let _place = slot;
            // Ignore an error, because it concerns only this connection, and both sides of the
            // connection notice it.
            drop(match tools {
                Some(address) => proxy::forward_connection(client, address),
                None => proxy::serve_client(client, &state),
            });
        };
        // If no thread can be started, `run` is dropped together with the client's connection,
        // which closes that connection.
        drop(
            std::thread::Builder::new()
                .name("gate".to_owned())
                .stack_size(proxy::STACK_BYTES)
                .spawn(run),
        );
    }
}

/// A permit for one of the [`MAX_CONNECTIONS`] connections. Dropping the permit lets the next
/// connection in.
struct ConnectionSlot(Arc<(Mutex<usize>, Condvar)>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        *lock(&self.0.0) -= 1;
        self.0.1.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_refusal_is_reported_at_1_10_and_100_times() {
        let reports: Arc<Mutex<Vec<RefusedConnection>>> = Arc::default();
        let (sink, allow_list) = (Arc::clone(&reports), AllowList::new(&[]).unwrap());
        let state = GateState {
            allow_list,
            refusal_counts: Mutex::default(),
            on_refusal: Arc::new(move |report| lock(&sink).push(report)),
        };
        for _ in 0..250 {
            state.report_refusal("a.example:443", "it is not listed");
        }
        assert_eq!(
            lock(&reports)
                .iter()
                .map(|report| report.times)
                .collect::<Vec<_>>(),
            [1, 10, 100]
        );
        for number in 0..2 * MAX_REPORTED_HOSTS {
            state.report_refusal(&format!("{number}.example:443"), "it is not listed");
        }
        let reports = lock(&reports);
        assert_eq!(reports.len(), 3 + MAX_REPORTED_HOSTS - 1);
        assert!(
            reports.last().unwrap().why.contains("are not reported"),
            "{:?}",
            reports.last()
        );
    }

    #[test]
    fn proxy_does_not_use_the_port_of_the_mcp_server() {
        let routes = EgressRoutes::new(
            &["a.example".to_owned()],
            Some("http://127.0.0.1:61080/mcp"),
        )
        .unwrap()
        .unwrap();
        assert_eq!(
            routes
                .inner_addresses()
                .iter()
                .map(SocketAddr::port)
                .collect::<Vec<_>>(),
            [61_081, 61_080]
        );
        assert_eq!(EgressRoutes::new(&[], None).unwrap(), None);
        let remote = EgressRoutes::new(&[], Some("https://regatta.example/mcp"))
            .unwrap()
            .unwrap();
        assert_eq!(
            (remote.allow, remote.tools),
            (vec!["regatta.example:443".to_owned()], None)
        );
    }
}
