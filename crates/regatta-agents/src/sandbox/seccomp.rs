//! Installs a filter that refuses dangerous system calls which neither namespaces nor file rules
//! restrict.
//!
//! The filter lists the refused calls and not the allowed ones. An agent's tools can be any
//! program, and a call that the filter does not know must not end them.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// The kinds of sockets that the sandboxed program may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllowedSockets {
    /// True if internet sockets (IPv4 and IPv6) may be created.
    pub(super) allows_internet: bool,
    /// True if unix sockets with a name in the file system may be created. Unnamed pairs are always
    /// allowed.
    pub(super) allows_unix: bool,
}

/// System calls that no tool needs and that are dangerous in a shared kernel: session keys,
/// programs loaded into the kernel, and files opened by handle instead of by path.
const REFUSED_CALLS: &[i64] = &[
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

/// System calls that the filter reports as not implemented, so that programs use other calls
/// instead. These system calls could create sockets that the filter does not see.
const MISSING_CALLS: &[i64] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// The number of the ioctl that puts a character into a terminal's input as if a person had typed
/// it.
const TIOCSTI: u64 = 0x5412;
/// The number of an ioctl with which a program can paste a console's selection as if a person had
/// typed it.
const TIOCLINUX: u64 = 0x541c;

/// Installs the system call filters for this process and its descendants. As a side effect, these
/// processes can never gain new privileges.
pub(super) fn install_filters(sockets: AllowedSockets) -> Result<(), String> {
    let describe =
        |error: &dyn std::fmt::Display| format!("the system calls could not be filtered ({error})");
    for filter in filters(sockets).map_err(|error| describe(&error))? {
        apply_filter(&filter).map_err(|error| describe(&error))?;
    }
    Ok(())
}

fn filters(sockets: AllowedSockets) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED_CALLS.iter().map(|n| (*n, vec![])).collect();
    let has_request =
        |value| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    refused.insert(
        libc::SYS_ioctl,
        vec![
            SeccompRule::new(vec![has_request(TIOCSTI)?])?,
            SeccompRule::new(vec![has_request(TIOCLINUX)?])?,
        ],
    );

    let mut families = vec![libc::AF_NETLINK];
    if sockets.allows_unix {
        families.push(libc::AF_UNIX);
    }
    if sockets.allows_internet {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    // A rule matches when all of its conditions match. Each condition excludes one allowed socket
    // family, so the rule matches all other families.
    let foreign_family = families.into_iter().map(|family| {
        SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Ne,
            u64::from(family.unsigned_abs()),
        )
    });
    let foreign_family = SeccompRule::new(foreign_family.collect::<Result<_, _>>()?)?;
    let foreign_sockets = BTreeMap::from([(libc::SYS_socket, vec![foreign_family])]);
    let missing = MISSING_CALLS.iter().map(|n| (*n, vec![])).collect();
    [
        (refused, libc::EPERM),
        (missing, libc::ENOSYS),
        (foreign_sockets, libc::EAFNOSUPPORT),
    ]
    .into_iter()
    .map(|(rules, errno)| filter(rules, errno.unsigned_abs()))
    .collect()
}

fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: u32,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = with_x32_numbers(rules);
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        arch,
    )?
    .try_into()
}

/// Adds the same rules for the second number of each system call. On x86-64, programs with 32-bit
/// pointers (x32) use these second numbers. System calls of other architectures end the program.
fn with_x32_numbers(rules: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    if cfg!(not(target_arch = "x86_64")) {
        return rules;
    }
    const X32_BIT: i64 = 0x4000_0000;
    // Some system calls have a separate number in the x32 range (programs with 32-bit pointers),
    // because their arguments contain structures with pointers.
    let x32_number = |number: i64| match number {
        libc::SYS_ioctl => 514 | X32_BIT,
        libc::SYS_kexec_load => 528 | X32_BIT,
        _ => number | X32_BIT,
    };
    let x32_rules: Vec<_> = rules
        .iter()
        .map(|(number, rules)| (x32_number(*number), rules.clone()))
        .collect();
    rules.into_iter().chain(x32_rules).collect()
}
