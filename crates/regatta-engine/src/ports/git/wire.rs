//! What git says between machines: a runner takes a project in from the server, and hands what it captured over.

use std::fmt;
use std::path::PathBuf;

use regatta_core::ids::AttemptId;

/// Which of git's two services is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The other side fetches.
    UploadPack,
    /// The other side pushes.
    ReceivePack,
}

impl Service {
    /// Its name on the wire, as in `info/refs?service=git-upload-pack` and in the content types.
    pub fn name(self) -> &'static str {
        match self {
            Service::UploadPack => "git-upload-pack",
            Service::ReceivePack => "git-receive-pack",
        }
    }
    /// The service of this name.
    pub fn named(name: &str) -> Option<Service> {
        [Service::UploadPack, Service::ReceivePack].into_iter().find(|it| it.name() == name)
    }
}

/// How the other side speaks, from its request's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire<'a> {
    pub service: Service,
    /// The header `Git-Protocol`, as it came.
    pub protocol: Option<&'a str>,
    /// The request has `Content-Encoding: gzip` and is still packed.
    pub gzip: bool,
}

/// A project on the server, as a runner reaches it.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// `http(s)://host:port/git/PROJECT`, with no user or password in it.
    pub url: String,
    /// Who asks: a secret, said only to this address.
    pub token: String,
    /// The authorities that vouch for the server, if not the system's.
    pub ca: Option<PathBuf>,
}

/// Never shows the token (S4).
impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// The attempt whose work a ref of the vault keeps: `refs/regatta/keep/A7` and `refs/regatta/keep/A7-0123456789ab`.
pub fn keeps_for(reference: &str) -> Option<AttemptId> {
    let name = reference.strip_prefix("refs/regatta/keep/")?;
    let (attempt, earlier) = name.split_once('-').map_or((name, None), |it| (it.0, Some(it.1)));
    let plain =
        earlier.is_none_or(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-'));
    let id: AttemptId = attempt.parse().ok()?;
    // One spelling only: another would be another ref.
    (plain && id.to_string() == attempt).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_a_remote_never_shows_its_token() {
        let remote = Remote { url: "http://host/git/shop".into(), token: "rt_secret".into(), ca: None };
        assert!(format!("{remote:?}").contains("host") && !format!("{remote:?}").contains("secret"));
    }

    #[test]
    fn s6_only_a_keep_ref_in_its_one_spelling_names_an_attempt() {
        let keeps = |it: &str| keeps_for(&format!("refs/regatta/keep/{it}"));
        assert_eq!(keeps("A7"), Some(AttemptId(7)));
        assert_eq!(keeps("A7-0123456789ab"), Some(AttemptId(7)));
        assert_eq!(keeps("A7-0123456789ab-ba9876543210"), Some(AttemptId(7)));
        for bad in ["", "A", "7", "a7", "A07", "A7-", "A7/x", "A7-../A8", "A7-x.lock", "A7 ", "A-7", "A7-ä", "A7\0"] {
            assert_eq!(keeps(bad), None, "{bad:?}");
        }
        assert_eq!(keeps_for("refs/heads/A7"), None);
        assert_eq!(keeps_for("refs/regatta/base/A7"), None);
        assert_eq!(Service::named("git-upload-pack"), Some(Service::UploadPack));
        assert_eq!(Service::named("git-upload-archive"), None);
    }
}
