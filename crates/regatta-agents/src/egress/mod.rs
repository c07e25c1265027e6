//! The only way out of a program that has no network: a proxy in its shim that knows which hosts are listed.
//!
//! ```text
//! inside, an empty network        outside, the shim
//! stage: listens on 127.0.0.1 ──── its listening sockets, over a unix socket ───▶ gate: accepts, checks, connects
//! program: HTTPS_PROXY=http://127.0.0.1:61080
//! ```
//! A socket stays in the network it was made in, whoever holds it. So there is no process inside that could be
//! traced, stopped or talked into anything, and no socket of ours that the program could find: the one over which
//! the stage hands its sockets over is gone before the program starts. The gate lives in the shim, so a daemon that
//! restarts cuts nothing off, and it ends with the program.
//!
//! Layout: [`rules`] is what is listed and what no list opens by accident; [`hand`] is how the sockets get out;
//! [`proxy`] is one connection; here is who serves them.

mod hand;
mod proxy;
mod rules;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

pub(crate) use hand::hand_over;
pub use rules::Rules;

/// Where the program finds the proxy: above the ports that the kernel gives to clients, so that none takes it.
const PROXY_PORT: u16 = 61_080;

/// How many connections each way serves at once; more wait until one has ended.
const MOST: usize = 64;

/// How many different refused hosts are told one by one.
const MOST_TOLD: usize = 500;

/// What is let through for one program. Nothing in it is secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways {
    /// The hosts that are listed; without any there is no proxy.
    #[serde(default)]
    pub allow: Vec<String>,
    /// The daemon's own tools on this machine's loopback, at the same address inside.
    #[serde(default)]
    pub tools: Option<SocketAddr>,
}

impl Ways {
    /// The ways of a program that may reach these hosts and the tools at this URL; `None` when there is nowhere to go.
    pub fn new(allow: &[String], tools: Option<&str>) -> Result<Option<Ways>, String> {
        let mut ways = Ways { allow: allow.to_vec(), tools: None };
        if let Some(url) = tools {
            match rules::server_of(url)? {
                // Without powers nobody listens below: then the proxy is the way.
                rules::Server::Here(address) if address.port() < 1024 => ways.allow.push(address.to_string()),
                rules::Server::Here(address) => ways.tools = Some(address),
                rules::Server::Elsewhere(listed) => ways.allow.push(listed),
            }
        }
        Rules::new(&ways.allow)?;
        Ok((!ways.allow.is_empty() || ways.tools.is_some()).then_some(ways))
    }

    /// Where the proxy is inside, if there is one.
    pub fn proxy(&self) -> Option<SocketAddr> {
        let taken = self.tools.is_some_and(|it| it.port() == PROXY_PORT);
        let port = PROXY_PORT + u16::from(taken);
        (!self.allow.is_empty()).then(|| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// What the stage listens on, in the order in which it hands the sockets over.
    pub(crate) fn inside(&self) -> Vec<SocketAddr> {
        self.proxy().into_iter().chain(self.tools).collect()
    }

    /// The variables that lead programs to the proxy.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let Some(proxy) = self.proxy() else { return vec![] };
        let mut all = vec![("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned())];
        for (name, value) in [
            ("HTTP_PROXY", format!("http://{proxy}")),
            ("HTTPS_PROXY", format!("http://{proxy}")),
            ("ALL_PROXY", format!("http://{proxy}")),
            // Its own servers, and the tools, are reached as they are.
            ("NO_PROXY", "127.0.0.1,localhost,::1".to_owned()),
        ] {
            all.push((name.to_lowercase(), value.clone()));
            all.push((name.to_owned(), value));
        }
        all
    }
}

/// Something that was asked for and not let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The host and the port.
    pub to: String,
    pub why: String,
    /// How often so far: the first, the tenth, the hundredth … is told.
    pub times: u64,
}

/// Is told what was refused.
pub type Tell = Arc<dyn Fn(Refused) + Send + Sync>;

/// Where the stage hands over its sockets, and waits for the word to go on.
pub struct Gate {
    listener: UnixListener,
    socket: PathBuf,
    ways: Ways,
}

/// The socket's name, in the program's directory for temporary files, which is its own and is seen inside.
pub(crate) fn socket_in(tmp: &Path) -> PathBuf {
    tmp.join(".regatta-egress")
}

impl Gate {
    /// Makes the socket. The program is started after it.
    pub fn open(tmp: &Path, ways: Ways) -> io::Result<Gate> {
        let socket = socket_in(tmp);
        Ok(Gate { listener: hand::listen(&socket)?, socket, ways })
    }

    /// Waits for a stage and serves what it hands over, in threads of their own.
    pub fn attend(self, tell: Tell) -> io::Result<()> {
        self.admit(tell, &|_| true, || Ok(()))
    }

    /// The same for the stage that is welcome; it goes on when all is settled.
    pub(crate) fn admit(
        self,
        tell: Tell,
        welcome: &dyn Fn(u32) -> bool,
        settle: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let rules = Rules::new(&self.ways.allow).map_err(io::Error::other)?;
        let guard = Arc::new(Guard { rules, told: Mutex::default(), tell });
        let inside = self.ways.inside();
        let taken = hand::take(&self.listener, inside.len(), welcome);
        // Whatever came: nobody is to find it any more.
        drop(self.listener);
        let removed = std::fs::remove_file(&self.socket);
        let (stage, sockets) = taken?;
        removed?;
        for (address, socket) in inside.into_iter().zip(sockets) {
            let (guard, tools) = (Arc::clone(&guard), self.ways.tools.filter(|it| *it == address));
            std::thread::Builder::new()
                .name("gate".to_owned())
                .stack_size(proxy::STACK)
                .spawn(move || serve(&TcpListener::from(socket), tools, &guard))?;
        }
        settle()?;
        hand::acknowledge(stage)
    }
}

/// What the connections of one program share.
struct Guard {
    rules: Rules,
    told: Mutex<HashMap<String, u64>>,
    tell: Tell,
}

impl Guard {
    /// Tells of a refusal, but of the same one less and less often: a program that tries in a loop fills no disk.
    fn refused(&self, to: &str, why: &str) {
        let mut told = lock(&self.told);
        if told.len() >= MOST_TOLD && !told.contains_key(to) {
            return;
        }
        let times = told.entry(to.to_owned()).or_default();
        *times += 1;
        let (times, last) = (*times, told.len() == MOST_TOLD);
        drop(told);
        if times.checked_ilog10().is_some_and(|it| 10_u64.pow(it) == times) {
            let why = if last && times == 1 { format!("{why}; others after it are not told") } else { why.to_owned() };
            (self.tell)(Refused { to: to.to_owned(), why, times });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts until the program's network is gone.
fn serve(listener: &TcpListener, tools: Option<SocketAddr>, guard: &Arc<Guard>) {
    let busy = Arc::new((Mutex::new(0_usize), Condvar::new()));
    loop {
        let room = busy.1.wait_while(lock(&busy.0), |it| *it >= MOST);
        *room.unwrap_or_else(PoisonError::into_inner) += 1;
        let place = Place(Arc::clone(&busy));
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Out of descriptors, mostly: when a connection has ended there are some again.
            Err(_) => {
                drop(place);
                std::thread::sleep(proxy::NAP);
                continue;
            }
        };
        let guard = Arc::clone(guard);
        let run = move || {
            let _place = place;
            // A connection that breaks is the business of those at its ends.
            drop(match tools {
                Some(address) => proxy::pass_on(client, address),
                None => proxy::answer(client, &guard),
            });
        };
        // Without a thread the client is dropped, which is an answer too.
        drop(std::thread::Builder::new().name("gate".to_owned()).stack_size(proxy::STACK).spawn(run));
    }
}

/// One of the places for connections, free again when it is dropped.
struct Place(Arc<(Mutex<usize>, Condvar)>);

impl Drop for Place {
    fn drop(&mut self) {
        *lock(&self.0.0) -= 1;
        self.0.1.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_a_loop_is_told_less_and_less_often() {
        let heard: Arc<Mutex<Vec<Refused>>> = Arc::default();
        let (hear, rules) = (Arc::clone(&heard), Rules::new(&[]).unwrap());
        let guard = Guard { rules, told: Mutex::default(), tell: Arc::new(move |it| lock(&hear).push(it)) };
        for _ in 0..250 {
            guard.refused("a.example:443", "it is not listed");
        }
        assert_eq!(lock(&heard).iter().map(|it| it.times).collect::<Vec<_>>(), [1, 10, 100]);
        for nth in 0..2 * MOST_TOLD {
            guard.refused(&format!("{nth}.example:443"), "it is not listed");
        }
        let heard = lock(&heard);
        assert_eq!(heard.len(), 3 + MOST_TOLD - 1);
        assert!(heard.last().unwrap().why.contains("are not told"), "{:?}", heard.last());
    }

    #[test]
    fn the_proxy_leaves_the_tools_their_port() {
        let ways = Ways::new(&["a.example".to_owned()], Some("http://127.0.0.1:61080/mcp")).unwrap().unwrap();
        assert_eq!(ways.inside().iter().map(SocketAddr::port).collect::<Vec<_>>(), [61_081, 61_080]);
        assert_eq!(Ways::new(&[], None).unwrap(), None);
        let far = Ways::new(&[], Some("https://regatta.example/mcp")).unwrap().unwrap();
        assert_eq!((far.allow, far.tools), (vec!["regatta.example:443".to_owned()], None));
    }
}
