//! The process that shuts itself in, checks that it is, and becomes the program.
//!
//! It runs before the program, with nothing but its order to go by, and has one thread: the kernel makes user namespaces
//! for no other kind.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, WaitOptions, setrlimit, wait};
use rustix::thread::{CapabilitySet, CapabilitySets, capability_is_in_bounding_set, set_capabilities};

use super::calls::Sockets;
use super::{Mechanism, Order, calls, namespaces, rules};
use crate::egress::hand_over;

/// The exit code of a start that failed because the confinement did not engage.
pub const FAILED: u8 = 125;

/// The program that is not started: only the checks are made.
pub(super) const VERIFY: &str = "@verify";

/// Keeps the processes that wait beside the program small: the allocator would take pages of 2 MiB. They are set for the
/// stage and taken away again from the program.
pub(super) fn small() -> [(&'static str, &'static str); 2] {
    [("MIMALLOC_ALLOW_THP", "0"), ("MIMALLOC_PURGE_DELAY", "0")]
}

/// How the line begins that says why.
const NOT_CONFINED: &str = "regatta: not confined: ";
/// The same when it is the program that could not be started.
const NOT_STARTED: &str = "regatta: not started: ";

/// Why nothing was started, if this exit code and the last line of standard error say so.
pub fn failure(code: i32, last_line: &str) -> Option<String> {
    if code != i32::from(FAILED) {
        return None;
    }
    let reason = last_line.strip_prefix(NOT_CONFINED).map(|it| format!("The confinement did not engage: {it}"));
    reason.or_else(|| last_line.strip_prefix(NOT_STARTED).map(str::to_owned))
}

/// Runs one step: `STEP ORDER-FILE -- PROGRAM ARGUMENTS…`, as `prepare` put it before the program's command line.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let [step, order_file, dashes, program @ ..] = arguments.as_slice() else { return usage() };
    if dashes != "--" || program.is_empty() {
        return usage();
    }
    let done = match step.to_str() {
        Some("enter") => enter(Path::new(order_file), program),
        Some("init") => init(Path::new(order_file), program),
        Some("inside") => inside(Path::new(order_file), program),
        _ => return usage(),
    };
    done.unwrap_or_else(|why| {
        drop(writeln!(io::stderr(), "{why}"));
        ExitCode::from(FAILED)
    })
}

fn usage() -> ExitCode {
    drop(writeln!(io::stderr(), "{NOT_CONFINED}this is a step of Regatta's own, not a command."));
    ExitCode::from(FAILED)
}

fn not_confined(why: String) -> String {
    format!("{NOT_CONFINED}{why}.")
}

fn read(order_file: &Path) -> Result<Order, String> {
    let order = fs::read(order_file).map_err(|error| error.to_string());
    let order = order.and_then(|it| serde_json::from_slice(&it).map_err(|error| error.to_string()));
    order.map_err(|error| not_confined(format!("{} cannot be read ({error})", order_file.display())))
}

/// Reads the order for the last time: what is hidden is not for the program to read.
fn take(order_file: &Path, program: &[OsString]) -> Result<Order, String> {
    let order = read(order_file)?;
    if order.held && !is_verify(program) {
        let gone = fs::remove_file(order_file);
        gone.map_err(|error| not_confined(format!("{} cannot be removed ({error})", order_file.display())))?;
    }
    Ok(order)
}

/// Makes the namespaces and waits for what runs in them.
fn enter(order_file: &Path, program: &[OsString]) -> Result<ExitCode, String> {
    let order = read(order_file)?;
    let mut second: Vec<OsString> = ["confine", "init"].map(OsString::from).to_vec();
    second.extend([order_file.into(), "--".into()]);
    second.extend_from_slice(program);
    namespaces::enter(order.network, &second).map(code).map_err(not_confined)
}

/// Is number 1 in them: builds, gives up, starts, reaps.
fn init(order_file: &Path, program: &[OsString]) -> Result<ExitCode, String> {
    let order = take(order_file, program)?;
    namespaces::furnish(&order.plan, &order.root, &order.dir).map_err(not_confined)?;
    if !order.network {
        namespaces::loopback().map_err(not_confined)?;
    }
    harden(&order).map_err(not_confined)?;
    if is_verify(program) {
        return Ok(ExitCode::SUCCESS);
    }
    report(&order).map_err(not_confined)?;
    let child = command(program).spawn().map_err(|error| not_started(program, &error))?;
    let pid = child.id();
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((reaped, status))) if reaped.as_raw_nonzero().get().unsigned_abs() == pid => {
                let code = status.exit_status().or_else(|| status.terminating_signal().map(|it| it + 128));
                return Ok(ExitCode::from(u8::try_from(code.unwrap_or(255)).unwrap_or(255)));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(not_confined(format!("the program was lost ({error})"))),
        }
    }
}

/// Becomes the program, where a mechanism around us or the kernel's rules do the rest.
fn inside(order_file: &Path, program: &[OsString]) -> Result<ExitCode, String> {
    let order = take(order_file, program)?;
    std::env::set_current_dir(&order.dir)
        .map_err(|error| not_confined(format!("{} cannot be entered ({error})", order.dir.display())))?;
    harden(&order).map_err(not_confined)?;
    if is_verify(program) {
        return Ok(ExitCode::SUCCESS);
    }
    report(&order).map_err(not_confined)?;
    Err(not_started(program, &command(program).exec()))
}

/// Gives the shim the sockets over which alone the program gets out, and waits for its word.
fn report(order: &Order) -> Result<(), String> {
    order.shim.as_ref().map_or(Ok(()), |(socket, inside)| hand_over(socket, inside))
}

fn is_verify(program: &[OsString]) -> bool {
    matches!(program, [word] if word == VERIFY)
}

fn command(program: &[OsString]) -> Command {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    for (name, _) in small() {
        command.env_remove(name);
    }
    // The allocator makes one of them the process's own setting, and that is inherited.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    command
}

fn not_started(program: &[OsString], error: &io::Error) -> String {
    let name = PathBuf::from(&program[0]);
    let what = crate::words::not_executable(&name, error);
    if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::PermissionDenied {
        return format!("{NOT_STARTED}{what} If it is there outside, add its directory to the agent's `read` list.");
    }
    format!("{NOT_STARTED}{what}")
}

/// As a shell would say it: a signal is 128 and its number.
fn code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|it| it + 128)).unwrap_or(255);
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}

/// All that a process can do to itself, and then the checks.
fn harden(order: &Order) -> Result<(), String> {
    limit(order)?;
    give_up_powers()?;
    rustix::thread::set_no_new_privs(true).map_err(|error| format!("privileges could not be given up ({error})"))?;
    let landlock = order.mechanism == Mechanism::Landlock;
    if landlock {
        rules::apply(&order.plan)?;
    } else {
        rules::scope()?;
    }
    // In a network namespace of its own a program may talk to itself; without one it may not talk at all.
    calls::apply(Sockets { internet: order.network || !landlock, unix: !landlock })?;
    check(order)
}

fn limit(order: &Order) -> Result<(), String> {
    let limits = &order.limits;
    let resources = [
        (Resource::Nproc, limits.processes),
        (Resource::Data, limits.memory),
        (Resource::Fsize, limits.file_size),
        // A core file would hold what the program was given.
        (Resource::Core, Some(0)),
    ];
    for (resource, most) in resources {
        let Some(most) = most else { continue };
        // A limit that is already lower stays.
        let now = rustix::process::getrlimit(resource);
        let most = now.maximum.map_or(most, |it| it.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .map_err(|error| format!("a limit could not be set ({error})"))?;
    }
    Ok(())
}

/// Gives up what root, or the maker of a namespace, can do, for good.
fn give_up_powers() -> Result<(), String> {
    let say = |error: Errno| format!("powers could not be given up ({error})");
    for number in 0..64 {
        let power = CapabilitySet::from_bits_retain(1 << number);
        // The first that the kernel does not know ends the list; without the power to, nothing is taken, but then
        // nothing is there either.
        match capability_is_in_bounding_set(power) {
            Ok(true) => match rustix::thread::remove_capability_from_bounding_set(power) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(error) => return Err(say(error)),
            },
            Ok(false) => {}
            Err(_) => break,
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(say)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).map_err(say)
}

/// Tries what must be impossible, and what must not be (S11).
fn check(order: &Order) -> Result<(), String> {
    let powers = rustix::thread::capabilities(None).map_err(|error| format!("powers cannot be listed ({error})"))?;
    if !powers.permitted.is_empty() || !rustix::thread::no_new_privs().unwrap_or(false) {
        return Err("the process kept powers of root".to_owned());
    }
    if rustix::process::getuid().is_root() && capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN) != Ok(false) {
        return Err("a program of root's could get its powers back".to_owned());
    }
    // Root without any powers is still the owner of these. To open one changes nothing.
    let settings = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ];
    if let Some(path) = settings.iter().find(|it| OpenOptions::new().write(true).open(it).is_ok()) {
        return Err(format!("{path} could still be written"));
    }
    let checks = &order.checks;
    if let Some(path) = checks.closed.iter().find(|it| File::open(it).is_ok()) {
        return Err(format!("{} could still be read", path.display()));
    }
    // Its own name for each start: attempts of one agent share a home, and in there everybody has the same number.
    let name = crate::rundir::fresh_mark().map_err(|error| format!("there are no random bytes ({error})"))?;
    let make_file = |dir: &Path| make_file(&dir.join(format!(".regatta-check-{name}")));
    if let Some(dir) = checks.unwritable.iter().find(|it| make_file(it).is_ok()) {
        return Err(format!("{} could still be written", dir.display()));
    }
    for dir in &checks.writable {
        make_file(dir).map_err(|error| format!("{} could not be written ({error})", dir.display()))?;
    }
    for dir in &checks.readable {
        fs::read_dir(dir).map_err(|error| format!("{} could not be read ({error})", dir.display()))?;
    }
    if !order.network && reaches_out() {
        return Err("the network could still be reached".to_owned());
    }
    if !order.network && order.mechanism != Mechanism::Landlock {
        only_loopback()?;
    }
    Ok(())
}

/// Makes sure that no route of its network leads anywhere but to itself. (Interfaces alone tell nothing: some kernels put
/// tunnels without an address into every network.)
fn only_loopback() -> Result<(), String> {
    let read = |name: &str| match fs::read_to_string(format!("/proc/self/net/{name}")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("its routes cannot be listed ({error})")),
        text => Ok(text.unwrap_or_default()),
    };
    let (four, six) = (read("route")?, read("ipv6_route")?);
    // The interface is the first field of the one, below a heading, and the last of the other.
    let four = four.lines().skip(1).filter_map(|it| it.split_whitespace().next());
    let six = six.lines().filter_map(|it| it.split_whitespace().last());
    match four.chain(six).find(|it| *it != "lo") {
        Some(name) => Err(format!("its network has a route through {name}")),
        None => Ok(()),
    }
}

/// Makes a file and removes it.
fn make_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?;
    fs::remove_file(path)
}

/// Whether there is a way out. Nothing is sent: to connect such a socket is only to choose a route.
fn reaches_out() -> bool {
    UdpSocket::bind("0.0.0.0:0").is_ok_and(|it| it.connect("192.0.2.1:9").is_ok())
}
