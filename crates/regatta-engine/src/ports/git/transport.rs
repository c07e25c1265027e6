//! Types for git's HTTP protocol, with which a runner (a process that executes attempts on another
//! machine) fetches a project from the server and pushes agents' work to the server.

use std::fmt;
use std::io::{Read, Write};
use std::path::PathBuf;

use regatta_core::ids::{AttemptId, CommitId, ProjectName};

use super::{GitError, ProjectRepo};

/// One of the two services of git's HTTP protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitService {
    /// The client fetches commits.
    UploadPack,
    /// The client pushes commits.
    ReceivePack,
}

impl GitService {
    /// Returns the service's name in URLs and content types, as in
    /// `info/refs?service=git-upload-pack`.
    pub fn name(self) -> &'static str {
        match self {
            GitService::UploadPack => "git-upload-pack",
            GitService::ReceivePack => "git-receive-pack",
        }
    }
    /// Returns the git service (fetch or push) with this name, or `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<GitService> {
        [GitService::UploadPack, GitService::ReceivePack]
            .into_iter()
            .find(|service| service.name() == name)
    }
}

/// A request of a git client: the service (fetch or push), and the headers that determine the
/// protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GitHttpRequest<'a> {
    pub service: GitService,
    /// The value of the header `Git-Protocol`, unchanged. `None` if the client's request has no
    /// such header.
    pub protocol: Option<&'a str>,
    /// True if the request's body is compressed with gzip (`Content-Encoding: gzip`). The body is
    /// passed on compressed.
    pub is_gzip: bool,
}

/// The address of a project on the server, and the credentials with which a runner (a process that
/// executes attempts on another machine) reaches the server.
#[derive(Clone, PartialEq, Eq)]
pub struct GitRemote {
    /// The URL `http(s)://host:port/git/PROJECT`, without user or password.
    pub url: String,
    /// The access token of a runner (a process that executes attempts on another machine), a secret
    /// that is sent only to `url`.
    pub token: String,
    /// The file with the certificate authorities that sign the server's certificate. `None` uses
    /// the certificate authorities of the operating system.
    pub ca: Option<PathBuf>,
}

/// Prints the remote without its access token (S4).
impl fmt::Debug for GitRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.url)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

/// Returns the attempt to which a ref belongs, if the ref keeps stored work. Such refs are named
/// `refs/regatta/keep/A7` or `refs/regatta/keep/A7-0123456789ab`. Returns `None` for any other ref.
pub fn attempt_of_keep_ref(reference: &str) -> Option<AttemptId> {
    let name = reference.strip_prefix("refs/regatta/keep/")?;
    let (attempt, earlier) = match name.split_once('-') {
        Some((attempt, earlier)) => (attempt, Some(earlier)),
        None => (name, None),
    };
    let is_plain = earlier.is_none_or(|earlier| {
        !earlier.is_empty()
            && earlier
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    });
    let id: AttemptId = attempt.parse().ok()?;
    // Only the usual spelling of the attempt's id counts, because `A07` would be a different ref
    // from `A7`.
    (is_plain && id.to_string() == attempt).then_some(id)
}

/// The two directions of a connection with a git client.
pub struct PeerStreams<'a> {
    /// The body of the client's request.
    pub request: &'a mut dyn Read,
    /// The stream to which the body of the answer to the client is written.
    pub answer: &'a mut dyn Write,
}

/// Serves projects to runners (processes that execute attempts on other machines) with git's HTTP
/// protocol.
pub trait ServeGit: Send + Sync {
    /// Answers the request `GET info/refs?service=…` of git's HTTP protocol, including its header
    /// line. The data comes from the vault (Regatta's own repository), after it was updated to the
    /// trunk. The trunk is the answer's `HEAD` and only branch. Other refs are listed only for a
    /// push, and only if `may_write` allows them.
    fn advertise(
        &self,
        repo: &ProjectRepo,
        request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<u8>, GitError>;

    /// Serves the vault (Regatta's own repository) to a client that fetches (`POST
    /// git-upload-pack`) or pushes (`git-receive-pack`). Both directions are streamed, so neither
    /// is held in memory. Any commit of the vault may be fetched by its id. A push may write only
    /// refs that `may_write` allows, and cannot delete a ref. If a push names any other ref, none
    /// of its refs is written, and the answer says so. When a push moves a ref, the old commit is
    /// kept. Refs that the answer reports as written are on the disk.
    ///
    /// If the call fails before it wrote to `answer`, the error is the whole answer (`bad_request`
    /// means that the client made the mistake). If the call fails later, the caller must abort the
    /// connection instead of ending the answer. Both streams must time out with an error when the
    /// client stops sending or receiving.
    fn serve(
        &self,
        repo: &ProjectRepo,
        request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
        peer: PeerStreams<'_>,
    ) -> Result<(), GitError>;
}

/// Exchanges a project with the server. A runner (a process that executes attempts on another
/// machine) needs this part.
pub trait MirrorGit: Send + Sync {
    /// Returns the directory in which a runner (a process that executes attempts on another
    /// machine) keeps its copy of a project from the server. On the runner's machine, this
    /// directory is the [`ProjectRepo::path`] of the project.
    fn mirror_path(&self, project: &ProjectName) -> PathBuf;

    /// Creates or updates the copy of a project that a runner (a process that executes attempts on
    /// another machine) keeps at [`MirrorGit::mirror_path`]. Moves the trunk of the copy to the server's
    /// trunk, and also fetches the commits in `wants`. All other methods treat the copy like a
    /// user's repository.
    fn fetch_project(
        &self,
        repo: &ProjectRepo,
        from: &GitRemote,
        wants: &[CommitId],
    ) -> Result<(), GitError>;

    /// Pushes all stored commits of an attempt's work to the server, under the same refs. Either
    /// all of them are written or none.
    fn push_capture(
        &self,
        repo: &ProjectRepo,
        to: &GitRemote,
        attempt: AttemptId,
    ) -> Result<(), GitError>;

    /// Deletes the refs that keep an attempt's work on this machine, after the server has that
    /// work.
    fn forget_attempt(&self, repo: &ProjectRepo, attempt: AttemptId) -> Result<(), GitError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_debug_output_of_a_remote_hides_its_token() {
        let remote = GitRemote {
            url: "http://host/git/shop".into(),
            token: "rt_secret".into(),
            ca: None,
        };
        assert!(
            format!("{remote:?}").contains("host") && !format!("{remote:?}").contains("secret")
        );
    }

    #[test]
    fn s6_only_the_canonical_spelling_of_a_keep_ref_names_an_attempt() {
        let attempt_of = |name: &str| attempt_of_keep_ref(&format!("refs/regatta/keep/{name}"));
        assert_eq!(attempt_of("A7"), Some(AttemptId(7)));
        assert_eq!(attempt_of("A7-0123456789ab"), Some(AttemptId(7)));
        assert_eq!(
            attempt_of("A7-0123456789ab-ba9876543210"),
            Some(AttemptId(7))
        );
        for bad in [
            "",
            "A",
            "7",
            "a7",
            "A07",
            "A7-",
            "A7/x",
            "A7-../A8",
            "A7-x.lock",
            "A7 ",
            "A-7",
            "A7-ä",
            "A7\0",
        ] {
            assert_eq!(attempt_of(bad), None, "{bad:?}");
        }
        assert_eq!(attempt_of_keep_ref("refs/heads/A7"), None);
        assert_eq!(attempt_of_keep_ref("refs/regatta/base/A7"), None);
        assert_eq!(
            GitService::from_name("git-upload-pack"),
            Some(GitService::UploadPack)
        );
        assert_eq!(GitService::from_name("git-upload-archive"), None);
    }
}
