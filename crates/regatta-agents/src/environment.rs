//! Builds the environment variables of a child process. Only the variables listed here pass from
//! the daemon to the child (S3).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Variables that child processes inherit from the daemon unchanged. None of these variables holds
/// a secret.
const INHERITED_VARIABLES: [&str; 9] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "USER",
    "SHELL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];

/// Proxy variables. Child processes inherit a proxy variable from the daemon only if its value
/// contains no user name and password.
const PROXY_VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// The value of PATH for child processes when the daemon itself has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Environment variables for the memory allocator of the shim (the supervisor process). The
/// variables make the allocator avoid pages of 2 MB, because a shim needs only about 0.2 MB, and
/// return the memory of a long line to the system immediately. The agent's program does not get
/// these variables.
pub(crate) const SHIM_ALLOCATOR: [(&str, &str); 2] =
    [("MIMALLOC_ALLOW_THP", "0"), ("MIMALLOC_PURGE_DELAY", "0")];

/// All environment variables of a child process.
pub(crate) type ChildEnvironment = BTreeMap<OsString, OsString>;

/// Builds the environment of a child process: first the inherited variables, then `extra`, then
/// `ours`, the variables that identify the launch and that nothing may override.
///
/// `TERM` is `dumb` because there is no terminal. `home` becomes `HOME`, and `None` stands for the
/// user's real home. A sandboxed attempt gets a home of its own, so that its agent cannot read the
/// user's keys. Attempts and checks without a sandbox get the real home, where toolchains keep
/// their caches.
pub(crate) fn build(
    home: Option<&Path>,
    tmp: &Path,
    extra: &[(String, String)],
    ours: &[(&str, OsString)],
) -> ChildEnvironment {
    let mut environment = ChildEnvironment::new();
    environment.insert("PATH".into(), DEFAULT_PATH.into());
    for name in INHERITED_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            environment.insert(name.into(), value);
        }
    }
    for name in PROXY_VARIABLES {
        if let Some(value) =
            std::env::var_os(name).filter(|name| !name.as_encoded_bytes().contains(&b'@'))
        {
            environment.insert(name.into(), value);
        }
    }
    environment.insert("TERM".into(), "dumb".into());
    environment.insert("TMPDIR".into(), tmp.into());
    if let Some(home) = home
        .map(OsString::from)
        .or_else(|| std::env::var_os("HOME"))
    {
        environment.insert("HOME".into(), home);
    }
    environment.extend(
        extra
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    environment.extend(
        ours.iter()
            .map(|(name, value)| (name.into(), value.clone())),
    );
    environment
}
