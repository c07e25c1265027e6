//! System calls that no namespace and no file rule covers.
//!
//! A list of what is refused, not of what is allowed: an agent's tools are any programs at all, and a
//! call that a filter does not know must not end them.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// Which kinds of sockets may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sockets {
    /// Internet sockets.
    pub(super) internet: bool,
    /// Sockets with a name in the file system. Pairs without a name are always allowed.
    pub(super) unix: bool,
}

/// Never needed by a tool, and dangerous in a kernel that is shared: keys of the session, programs
/// loaded into the kernel, files opened by number instead of by path.
const REFUSED: &[i64] = &[
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
];

/// Said to be missing, so that programs fall back: with them a socket can be made past any filter.
const MISSING: &[i64] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Pushes a character into a terminal's input, as if somebody had typed it.
const TIOCSTI: u64 = 0x5412;
/// The same for a console's selection.
const TIOCLINUX: u64 = 0x541c;

/// Refuses them for this process and all that come from it. New privileges are given up on the way.
pub(super) fn apply(sockets: Sockets) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| format!("the system calls could not be filtered ({error})");
    for filter in filters(sockets).map_err(|error| say(&error))? {
        apply_filter(&filter).map_err(|error| say(&error))?;
    }
    Ok(())
}

fn filters(sockets: Sockets) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|it| (*it, vec![])).collect();
    let typed = |value| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    refused.insert(
        libc::SYS_ioctl,
        vec![SeccompRule::new(vec![typed(TIOCSTI)?])?, SeccompRule::new(vec![typed(TIOCLINUX)?])?],
    );

    let mut families = vec![libc::AF_NETLINK];
    if sockets.unix {
        families.push(libc::AF_UNIX);
    }
    if sockets.internet {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    // A rule holds when all its conditions do: none of the allowed ones.
    let other = families
        .into_iter()
        .map(|it| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(it.unsigned_abs())));
    let other = SeccompRule::new(other.collect::<Result<_, _>>()?)?;
    let foreign = BTreeMap::from([(libc::SYS_socket, vec![other])]);
    let missing = MISSING.iter().map(|it| (*it, vec![])).collect();
    [(refused, libc::EPERM), (missing, libc::ENOSYS), (foreign, libc::EAFNOSUPPORT)]
        .into_iter()
        .map(|(rules, errno)| filter(rules, errno.unsigned_abs()))
        .collect()
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: u32) -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = both_numbers(rules);
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch)?.try_into()
}

/// The same calls under their second numbers: on x86-64 every call has one, for programs with short
/// pointers. Calls of other architectures end the program.
fn both_numbers(rules: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    if cfg!(not(target_arch = "x86_64")) {
        return rules;
    }
    const SHORT: i64 = 0x4000_0000;
    // Those that take structures with pointers in them have numbers of their own there.
    let short = |number: i64| if number == libc::SYS_ioctl { 514 | SHORT } else { number | SHORT };
    let more: Vec<_> = rules.iter().map(|(number, rules)| (short(*number), rules.clone())).collect();
    rules.into_iter().chain(more).collect()
}
