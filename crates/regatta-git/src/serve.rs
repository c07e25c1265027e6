//! Serves a project's vault (Regatta's own repository) to runners through git's HTTP protocol.
//!
//! A client sees one branch: the trunk as it was last fetched into the vault. The client may fetch
//! any commit by its id, because many commits that a runner needs are on no branch. Of the other
//! refs the client sees only the refs that it may write. All remaining refs are hidden, so that a
//! long history of attempts does not slow down a request, and git itself refuses to write hidden
//! refs.
//!
//! Nothing in a push is trusted (`pktline`). When a ref moves, another ref protects the old commit
//! (invariant Q3). A ref is on the disk before the answer reports it as written. Git syncs only the
//! contents of its files, so this module syncs their names.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{
    GitError, GitHttpRequest, GitService, PeerStreams, ProjectRepo, ServeGit,
};

use crate::git_command::GitCommand;
use crate::pktline::{PushHead, append_line};
use crate::{GitAdapter, disk, errors};

/// The largest size of a fetch request in bytes. A fetch request contains the ids of wanted and
/// known commits, but no objects.
const MAX_FETCH_REQUEST_BYTES: u64 = 64 << 20;
/// The maximum number of bytes that are read from a refused push. The push is read to its end,
/// because its sender reads the refusal only after sending everything.
const MAX_REFUSED_PUSH_BYTES: u64 = 256 << 20;
/// The largest size of git's report on a push in bytes.
const MAX_REPORT_BYTES: usize = 4 << 20;
/// The age from which the leftovers of an interrupted push are removed. No push runs for such a
/// long time.
const MAX_LEFTOVER_AGE: Duration = Duration::from_secs(24 * 60 * 60);

const UPLOAD_SETTINGS: [&str; 2] = [
    "uploadpack.allowAnySHA1InWant=true",
    "uploadpack.keepAlive=5",
];
const RECEIVE_SETTINGS: [&str; 8] = [
    "receive.denyDeletes=true",
    "receive.autogc=false",
    "receive.updateServerInfo=false",
    "receive.advertisePushOptions=false",
    "receive.shallowUpdate=false",
    "receive.keepAlive=5",
    "receive.maxInputSize=4g",
    "transfer.fsckObjects=true",
];
/// The checks of file contents that git does not make for a push, because the vault (Regatta's own
/// repository) must accept everything that a workspace may contain.
const CONTENT_CHECKS: [&str; 12] = [
    "gitmodulesBlob",
    "gitmodulesLarge",
    "gitmodulesMissing",
    "gitmodulesName",
    "gitmodulesParse",
    "gitmodulesPath",
    "gitmodulesSymlink",
    "gitmodulesUpdate",
    "gitmodulesUrl",
    "gitattributesBlob",
    "gitattributesLarge",
    "gitattributesLineLength",
];

impl ServeGit for GitAdapter {
    fn advertise(
        &self,
        repo: &ProjectRepo,
        http_request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<u8>, GitError> {
        let protocol = protocol_version(http_request)?;
        let tip = self.refresh_trunk(repo)?;
        let vault = self.vault(repo)?;
        self.expose_trunk(&vault, repo, &tip)?;
        self.import_submodules(repo, &vault, &tip)?;
        let shown_refs = match http_request.service {
            GitService::UploadPack => Vec::new(),
            GitService::ReceivePack => self.writable_keep_refs(&vault, may_write)?,
        };
        let output = self
            .serve_command(&vault, repo, http_request.service, &shown_refs)
            .arg("--advertise-refs");
        let output = output
            .arg(".")
            .protocol(protocol)
            .run_expecting_success()?
            .stdout;
        let mut answer = Vec::new();
        // In version 2 of the protocol, the answer starts with the version and not with the name of
        // the service.
        if !output.starts_with(b"000eversion 2\n") {
            append_line(
                &mut answer,
                format!("# service={}\n", http_request.service.name()).as_bytes(),
            );
            answer.extend(b"0000");
        }
        answer.extend(output);
        Ok(answer)
    }

    fn serve(
        &self,
        repo: &ProjectRepo,
        http_request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
        peer: PeerStreams<'_>,
    ) -> Result<(), GitError> {
        let protocol = protocol_version(http_request)?;
        let vault = self.vault(repo)?;
        let PeerStreams { request, answer } = peer;
        let mut request: Box<dyn Read + '_> = if http_request.is_gzip {
            Box::new(GzDecoder::new(request))
        } else {
            Box::new(request)
        };
        let request = request.as_mut();
        match http_request.service {
            GitService::UploadPack => {
                let call = self
                    .serve_command(&vault, repo, http_request.service, &[])
                    .arg(".")
                    .protocol(protocol);
                call.stream(PeerStreams {
                    request: &mut request.take(MAX_FETCH_REQUEST_BYTES),
                    answer,
                })
            }
            GitService::ReceivePack => {
                self.receive_push(repo, &vault, may_write, PeerStreams { request, answer })
            }
        }
    }
}

impl GitAdapter {
    /// Accepts a push. Refuses the whole push if it names a ref that the client may not write.
    fn receive_push(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        may_write: &dyn Fn(&str) -> bool,
        peer: PeerStreams<'_>,
    ) -> Result<(), GitError> {
        let PeerStreams {
            mut request,
            answer,
        } = peer;
        let mut head = PushHead::read(request).map_err(errors::bad_push)?;
        if let Some(refused_update) = head
            .updates
            .iter()
            .find(|update| !may_write(&update.reference))
        {
            tracing::warn!(project = %repo.project, reference = refused_update.reference, "refused a \
                runner's push to project {}, because the runner may not write the ref {}",
                repo.project, refused_update.reference);
            // Read the rest of the push before answering, because the client reads the answer only
            // after it has sent everything.
            let _sent = io::copy(&mut request.take(MAX_REFUSED_PUSH_BYTES), &mut io::sink());
            let answer_bytes = head.refusal(|update| {
                if may_write(&update.reference) {
                    "another ref of this push was refused, so nothing was written"
                } else {
                    "the runner may not write this ref"
                }
            });
            return write_answer(answer, &answer_bytes);
        }
        self.keep_moved_refs(vault, &mut head)?;
        remove_old_leftovers(vault, Instant::now());
        let names: Vec<String> = head
            .updates
            .iter()
            .map(|update| update.reference.clone())
            .collect();
        let call = self
            .serve_command(vault, repo, GitService::ReceivePack, &names)
            .arg(".");
        let mut request_stream = io::Cursor::new(head.write()).chain(&mut request);
        let mut report = DelayedReport {
            answer,
            held: Vec::new(),
        };
        call.stream(PeerStreams {
            request: &mut request_stream,
            answer: &mut report,
        })?;
        disk::sync_objects(vault)?;
        sync_refs(vault, &names)?;
        let report_bytes = report.held;
        write_answer(answer, &report_bytes)
    }

    /// Creates refs that protect the old commits of the refs which the push is about to move
    /// (invariant Q3). If an earlier push already moved a ref to the new commit, adjusts the
    /// request so that git accepts it.
    fn keep_moved_refs(&self, vault: &Path, head: &mut PushHead) -> Result<(), GitError> {
        let mut changes = String::new();
        let (is_atomic, updates) = (head.has_capability("atomic"), head.updates.clone());
        for update in &mut head.updates {
            let Some(current) = self.find_object(vault, &update.reference)? else {
                continue;
            };
            if current == update.new {
                update.old = Some(current);
                continue;
            }
            let keep_name = format!("{}-{}", update.reference, &current.as_str()[..12]);
            let is_kept = is_atomic
                && updates
                    .iter()
                    .any(|other| other.reference == keep_name && other.new == current);
            if !is_kept && self.find_object(vault, &keep_name)?.as_ref() != Some(&current) {
                changes += &format!("update {keep_name} {current}\n");
            }
        }
        if changes.is_empty() {
            Ok(())
        } else {
            self.update_refs(vault, changes)
        }
    }

    /// Returns the git command that serves the vault (Regatta's own repository) and shows only the
    /// trunk and `shown_refs`.
    fn serve_command(
        &self,
        vault: &Path,
        repo: &ProjectRepo,
        service: GitService,
        shown_refs: &[String],
    ) -> GitCommand {
        let (operation, program) = match service {
            GitService::UploadPack => ("serve a fetch", "upload-pack"),
            GitService::ReceivePack => ("receive a push", "receive-pack"),
        };
        let mut call = self
            .git
            .in_vault(vault, operation)
            .with_long_timeout()
            .setting("transfer.hideRefs=refs/");
        for name in shown_refs.iter().chain([&exposed_trunk_ref(repo)]) {
            call = call.setting(format!("transfer.hideRefs=!{name}"));
        }
        let settings: &[&str] = if service == GitService::UploadPack {
            &UPLOAD_SETTINGS
        } else {
            &RECEIVE_SETTINGS
        };
        call = settings
            .iter()
            .fold(call, |call, setting| call.setting(setting));
        if service == GitService::ReceivePack {
            call = CONTENT_CHECKS.iter().fold(call, |call, check| {
                call.setting(format!("receive.fsck.{check}=ignore"))
            });
        }
        call.args([program, "--stateless-rpc"])
    }

    /// Moves the branch that clients see in the vault (Regatta's own repository) to `tip`, the
    /// trunk's newest commit.
    fn expose_trunk(
        &self,
        vault: &Path,
        repo: &ProjectRepo,
        tip: &CommitId,
    ) -> Result<(), GitError> {
        let trunk_name = exposed_trunk_ref(repo);
        if self.find_object(vault, &trunk_name)?.as_ref() != Some(tip) {
            self.update_refs(vault, format!("update {trunk_name} {tip}\n"))?;
        }
        let head = fs::read_to_string(vault.join("HEAD")).unwrap_or_default();
        if head.trim_end().strip_prefix("ref: ") != Some(&trunk_name) {
            self.git
                .in_vault(vault, "set the branch that the vault's HEAD names")
                .args(["symbolic-ref", "HEAD", &trunk_name])
                .run_expecting_success()?;
        }
        Ok(())
    }

    /// Returns the refs of attempts' stored work that the client may write.
    fn writable_keep_refs(
        &self,
        vault: &Path,
        may_write: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<String>, GitError> {
        let listed = self.git.in_vault(vault, "list the refs of stored work");
        let listed = listed
            .args(["for-each-ref", "--format=%(refname)", "refs/regatta/keep/"])
            .run_for_line()?;
        Ok(listed
            .lines()
            .filter(|name| may_write(name))
            .map(str::to_owned)
            .collect())
    }
}

/// Returns the ref of the vault (Regatta's own repository) that clients see as the trunk. Moving
/// this ref does not move the trunk in the user's repository.
fn exposed_trunk_ref(repo: &ProjectRepo) -> String {
    format!("refs/heads/{}", repo.trunk)
}

/// Returns the protocol version that the client requested. Returns an error if the request's header
/// contains anything other than a protocol version.
fn protocol_version<'a>(http_request: &GitHttpRequest<'a>) -> Result<Option<&'a str>, GitError> {
    let Some(requested) = http_request.protocol else {
        return Ok(None);
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"=:.-_".contains(&byte);
    if requested.len() > 100 || !requested.bytes().all(is_plain) {
        return Err(errors::bad_protocol());
    }
    // Accept version 2 of git's protocol only for a fetch, because version 2 does not exist for a
    // push.
    let accepted = if http_request.service == GitService::UploadPack {
        ["version=2", "version=1"].as_slice()
    } else {
        &["version=1"]
    };
    Ok(accepted
        .iter()
        .copied()
        .find(|version| requested.split(':').any(|part| part == *version)))
}

fn write_answer(answer: &mut dyn Write, bytes: &[u8]) -> Result<(), GitError> {
    answer
        .write_all(bytes)
        .and_then(|()| answer.flush())
        .map_err(|cause| errors::transfer_interrupted("report on a push", &cause))
}

/// Delays git's report on a push until the refs are synced to the disk. Only keep-alive packets are
/// sent immediately, so that the connection does not time out.
struct DelayedReport<'a> {
    answer: &'a mut dyn Write,
    held: Vec<u8>,
}

/// A keep-alive packet: an empty packet of the first stream of git's side-band protocol.
const KEEP_ALIVE: &[u8] = b"0005\x01";

impl Write for DelayedReport<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut unwritten = bytes;
        while let Some(after_keep_alive) = unwritten
            .strip_prefix(KEEP_ALIVE)
            .filter(|_| self.held.is_empty())
        {
            self.answer
                .write_all(KEEP_ALIVE)
                .and_then(|()| self.answer.flush())?;
            unwritten = after_keep_alive;
        }
        if self.held.len() + unwritten.len() > MAX_REPORT_BYTES {
            return Err(io::Error::other("git's report on a push is too long"));
        }
        self.held.extend(unwritten);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until the names of the files that contain the refs are on the disk.
fn sync_refs(vault: &Path, names: &[String]) -> Result<(), GitError> {
    let mut dirs: Vec<_> = names
        .iter()
        .filter_map(|name| Some(vault.join(name).parent()?.to_path_buf()))
        .collect();
    dirs.sort_unstable();
    dirs.dedup();
    dirs.retain(|path| path.is_dir());
    disk::sync_all(dirs)
}

/// Removes the leftovers of interrupted pushes. Git keeps incoming objects in a separate directory
/// until all of them have arrived.
///
/// The age of a leftover directory counts from the moment at which this process first saw the
/// directory. The directory's own timestamp is not used, because somebody may have changed the
/// machine's date, and a running push must not lose its objects.
fn remove_old_leftovers(vault: &Path, now: Instant) {
    static FIRST_SEEN: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());
    let Ok(entries) = fs::read_dir(vault.join("objects")) else {
        return;
    };
    let names = entries.flatten().map(|entry| entry.path());
    let incoming: Vec<PathBuf> = names.filter(|path| is_incoming_dir(path)).collect();
    let mut first_seen = FIRST_SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    first_seen.retain(|path, _| !path.starts_with(vault) || incoming.contains(path));
    for path in incoming {
        let since = *first_seen.entry(path.clone()).or_insert(now);
        if now.saturating_duration_since(since) > MAX_LEFTOVER_AGE {
            // If the directory cannot be removed, the next call of this function tries again.
            let _ = disk::remove_tree(&path);
        }
    }
}

fn is_incoming_dir(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("tmp_objdir-incoming-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S7: the header becomes an environment variable of git, so only known values are passed on.
    #[test]
    fn s7_a_protocol_header_passes_only_a_version() {
        let version_for = |service, protocol| {
            super::protocol_version(&GitHttpRequest {
                service,
                protocol: Some(protocol),
                is_gzip: false,
            })
        };
        let (fetch, push) = (GitService::UploadPack, GitService::ReceivePack);
        assert_eq!(version_for(fetch, "version=2"), Ok(Some("version=2")));
        assert_eq!(version_for(fetch, "x=y:version=2"), Ok(Some("version=2")));
        assert_eq!(version_for(fetch, "version=9"), Ok(None));
        assert_eq!(
            version_for(push, "version=2"),
            Ok(None),
            "version 2 does not exist for a push"
        );
        assert_eq!(version_for(push, "version=1"), Ok(Some("version=1")));
        for bad in ["version=2\n", "a b", "\0", "version=2;x", &"x".repeat(200)] {
            assert_eq!(
                version_for(fetch, bad).unwrap_err().code,
                "bad_request",
                "{bad:?}"
            );
        }
    }

    /// D1: the report on a push is delayed until the end, but keep-alive packets are not.
    #[test]
    fn d1_a_report_is_delayed_but_keep_alive_packets_are_not() {
        let mut answer = Vec::new();
        let mut report = DelayedReport {
            answer: &mut answer,
            held: Vec::new(),
        };
        report.write_all(b"0005\x010005\x01").unwrap();
        report
            .write_all(b"0005\x010030\x01000eunpack ok\n")
            .unwrap();
        report.write_all(b"0005\x01").unwrap();
        assert_eq!(report.held, b"0030\x01000eunpack ok\n0005\x01");
        assert!(report.write_all(&vec![0; MAX_REPORT_BYTES]).is_err());
        assert_eq!(answer, KEEP_ALIVE.repeat(3));
    }

    #[test]
    fn old_leftovers_of_a_push_are_removed() {
        let vault = tempfile::tempdir().unwrap();
        let objects = vault.path().join("objects");
        let (old, new) = (
            objects.join("tmp_objdir-incoming-old"),
            objects.join("tmp_objdir-incoming-new"),
        );
        for dir in [&old, &new, &objects.join("pack")] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::remove_dir(&new).unwrap();
        // L12: the date of a directory does not matter.
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        fs::File::open(&old)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        let begin = Instant::now();
        remove_old_leftovers(vault.path(), begin);
        assert!(old.exists(), "the directory may belong to a push under way");
        fs::create_dir(&new).unwrap();
        remove_old_leftovers(vault.path(), begin + MAX_LEFTOVER_AGE);
        assert!(old.exists() && new.exists());
        remove_old_leftovers(
            vault.path(),
            begin + MAX_LEFTOVER_AGE + Duration::from_secs(1),
        );
        assert!(!old.exists() && new.exists() && objects.join("pack").exists());
    }
}
