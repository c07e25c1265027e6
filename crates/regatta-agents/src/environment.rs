//! What a child may see of the daemon's environment: nothing but this list (S3).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Passed on from the daemon as they are: none of them holds a secret.
const PASSED_ON: [&str; 9] =
    ["PATH", "LANG", "LC_ALL", "TZ", "USER", "SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"];

/// Passed on only without a name and a password in them: where the network is reached through a proxy.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"];

/// Where programs are looked for when the daemon itself has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Settings of the shim's allocator, and of nobody else's: no 2 MB pages under a supervisor that needs a tenth of that,
/// and a long line's memory is given back with it. The program never sees them.
pub(crate) const SHIM_ALLOCATOR: [(&str, &str); 2] = [("MIMALLOC_ALLOW_THP", "0"), ("MIMALLOC_PURGE_DELAY", "0")];

/// A child's complete environment.
pub(crate) type Environment = BTreeMap<OsString, OsString>;

/// Builds an environment from nothing: the list, then `extra`, then what identifies the launch, which
/// nothing may override.
///
/// `TERM` is `dumb` because there is no terminal. `HOME` is what the caller says: an attempt gets an
/// empty one of its own, so that an agent reads no key of the user's unless its launch names the real
/// home; a check is a command line of the user's and gets the real one, where toolchains keep their
/// caches.
pub(crate) fn build(
    home: Option<&Path>,
    tmp: &Path,
    extra: &[(String, String)],
    ours: &[(&str, OsString)],
) -> Environment {
    let mut environment = Environment::new();
    environment.insert("PATH".into(), DEFAULT_PATH.into());
    for name in PASSED_ON {
        if let Some(value) = std::env::var_os(name) {
            environment.insert(name.into(), value);
        }
    }
    for name in PROXIES {
        if let Some(value) = std::env::var_os(name).filter(|it| !it.as_encoded_bytes().contains(&b'@')) {
            environment.insert(name.into(), value);
        }
    }
    environment.insert("TERM".into(), "dumb".into());
    environment.insert("TMPDIR".into(), tmp.into());
    if let Some(home) = home.map(OsString::from).or_else(|| std::env::var_os("HOME")) {
        environment.insert("HOME".into(), home);
    }
    environment.extend(extra.iter().map(|(name, value)| (name.into(), value.into())));
    environment.extend(ours.iter().map(|(name, value)| (name.into(), value.clone())));
    environment
}
