//! Serves a project's vault to other machines with git's HTTP protocol.
//!
//! The other side sees one branch, the trunk as it was last fetched into the vault, and may fetch
//! any commit by its id, because the commits that it needs are on no branch. Of the other refs it
//! sees only those that it may write. All others are hidden, so that a long history of attempts
//! does not slow down a request, and git itself refuses to write hidden refs.
//!
//! Nothing in a push is trusted (`pktline`). The old commit of a moved ref is kept beside it (Q3).
//! A ref that is reported as written is on the disk: git syncs its files but not their names, so
//! this module does.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Capture, GitError, Repo, Service, Wire};

use crate::exchange::Ends;
use crate::pktline::{Head, put};
use crate::run::Call;
use crate::vault::keep_ref;
use crate::{GitAdapter, disk, words};

/// The size limit of a fetch request, which contains wanted and known commits but no objects.
const MOST_ASKED: u64 = 64 << 20;
/// The size limit for reading a refused push to its end, so that its sender can read the refusal.
const MOST_REFUSED: u64 = 256 << 20;
/// The size limit of git's report on a push.
const MOST_REPORTED: usize = 4 << 20;
/// The age at which leftovers of an interrupted push are removed. No push takes as long.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

const UPLOAD: [&str; 2] = ["uploadpack.allowAnySHA1InWant=true", "uploadpack.keepAlive=5"];
const RECEIVE: [&str; 8] = [
    "receive.denyDeletes=true",
    "receive.autogc=false",
    "receive.updateServerInfo=false",
    "receive.advertisePushOptions=false",
    "receive.shallowUpdate=false",
    "receive.keepAlive=5",
    "receive.maxInputSize=4g",
    "transfer.fsckObjects=true",
];
/// Checks of file contents that are switched off, because the vault must accept everything that a
/// workspace may contain.
const CONTENT: [&str; 12] = [
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

impl GitAdapter {
    /// Answers the first request of a fetch or a push: the refs that the other side may see.
    pub(crate) fn tell_refs(
        &self,
        repo: &Repo,
        wire: &Wire<'_>,
        may_write: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<u8>, GitError> {
        let protocol = protocol(wire)?;
        let tip = self.refresh(repo)?;
        let vault = self.vault(repo)?;
        self.show_trunk(&vault, repo, &tip)?;
        self.gather_submodules(repo, &vault, &tip)?;
        let shown = match wire.service {
            Service::UploadPack => Vec::new(),
            Service::ReceivePack => self.written(&vault, may_write)?,
        };
        let said = self.serving(&vault, repo, wire.service, &shown).arg("--advertise-refs");
        let said = said.arg(".").protocol(protocol).done()?.stdout;
        let mut told = Vec::new();
        // From version 2 on, the first line names the version instead.
        if !said.starts_with(b"000eversion 2\n") {
            put(&mut told, format!("# service={}\n", wire.service.name()).as_bytes());
            told.extend(b"0000");
        }
        told.extend(said);
        Ok(told)
    }

    /// Answers a fetch or a push.
    pub(crate) fn answer(
        &self,
        repo: &Repo,
        wire: &Wire<'_>,
        may_write: &dyn Fn(&str) -> bool,
        ends: Ends<'_>,
    ) -> Result<(), GitError> {
        let protocol = protocol(wire)?;
        let vault = self.vault(repo)?;
        let Ends { request, answer } = ends;
        let mut request: Box<dyn Read + '_> =
            if wire.gzip { Box::new(GzDecoder::new(request)) } else { Box::new(request) };
        let request = request.as_mut();
        match wire.service {
            Service::UploadPack => {
                let call = self.serving(&vault, repo, wire.service, &[]).arg(".").protocol(protocol);
                call.exchange(Ends { request: &mut request.take(MOST_ASKED), answer })
            }
            Service::ReceivePack => self.receive(repo, &vault, may_write, Ends { request, answer }),
        }
    }

    /// Accepts a push, or refuses it if it names a ref that the other side may not write.
    fn receive(
        &self,
        repo: &Repo,
        vault: &Path,
        may_write: &dyn Fn(&str) -> bool,
        ends: Ends<'_>,
    ) -> Result<(), GitError> {
        let Ends { mut request, answer } = ends;
        let mut head = Head::read(request).map_err(words::bad_push)?;
        if let Some(refused) = head.commands.iter().find(|it| !may_write(&it.reference)) {
            tracing::warn!(project = %repo.project, reference = refused.reference, "refused a push to a ref that its sender may not write");
            // A sender that is still sending would not read the answer.
            let _sent = io::copy(&mut request.take(MOST_REFUSED), &mut io::sink());
            let told = head.refusal(|it| {
                if may_write(&it.reference) { "nothing of this push was taken" } else { "not yours to write" }
            });
            return said(answer, &told);
        }
        self.keep_what_moves(vault, &mut head)?;
        forget_the_stale(vault, Instant::now());
        let names: Vec<String> = head.commands.iter().map(|it| it.reference.clone()).collect();
        let call = self.serving(vault, repo, Service::ReceivePack, &names).arg(".");
        let mut whole = io::Cursor::new(head.write()).chain(&mut request);
        let mut report = Report { answer, held: Vec::new() };
        call.exchange(Ends { request: &mut whole, answer: &mut report })?;
        disk::sync_objects(vault)?;
        sync_refs(vault, &names)?;
        let held = report.held;
        said(answer, &held)
    }

    /// Keeps the old commits of refs that are about to move (Q3), and accepts a repeated push.
    fn keep_what_moves(&self, vault: &Path, head: &mut Head) -> Result<(), GitError> {
        let mut changes = String::new();
        let (atomic, wanted) = (head.asks("atomic"), head.commands.clone());
        for command in &mut head.commands {
            let Some(now) = self.find(vault, &command.reference)? else { continue };
            if now == command.new {
                command.old = Some(now);
                continue;
            }
            let beside = format!("{}-{}", command.reference, &now.as_str()[..12]);
            let is_kept = atomic && wanted.iter().any(|it| it.reference == beside && it.new == now);
            if !is_kept && self.find(vault, &beside)?.as_ref() != Some(&now) {
                changes += &format!("update {beside} {now}\n");
            }
        }
        if changes.is_empty() { Ok(()) } else { self.update_refs(vault, changes) }
    }

    /// Returns a git call that serves the vault and shows only the trunk and these refs.
    fn serving(&self, vault: &Path, repo: &Repo, service: Service, shown: &[String]) -> Call {
        let (doing, program) = match service {
            Service::UploadPack => ("serve a fetch", "upload-pack"),
            Service::ReceivePack => ("take in a push", "receive-pack"),
        };
        let mut call = self.git.ours(vault, doing).patient().setting("transfer.hideRefs=refs/");
        for name in shown.iter().chain([&shown_ref(repo)]) {
            call = call.setting(format!("transfer.hideRefs=!{name}"));
        }
        let settings: &[&str] = if service == Service::UploadPack { &UPLOAD } else { &RECEIVE };
        call = settings.iter().fold(call, |call, it| call.setting(it));
        if service == Service::ReceivePack {
            call = CONTENT.iter().fold(call, |call, it| call.setting(format!("receive.fsck.{it}=ignore")));
        }
        call.args([program, "--stateless-rpc"])
    }

    /// Shows the trunk under its own name, as the branch that a clone checks out.
    fn show_trunk(&self, vault: &Path, repo: &Repo, tip: &CommitId) -> Result<(), GitError> {
        let shown = shown_ref(repo);
        if self.find(vault, &shown)?.as_ref() != Some(tip) {
            self.update_refs(vault, format!("update {shown} {tip}\n"))?;
        }
        let head = fs::read_to_string(vault.join("HEAD")).unwrap_or_default();
        if head.trim_end().strip_prefix("ref: ") != Some(&shown) {
            self.git.ours(vault, "name the vault's branch").args(["symbolic-ref", "HEAD", &shown]).done()?;
        }
        Ok(())
    }

    /// Returns the keep-refs that the other side may write.
    fn written(&self, vault: &Path, may_write: &dyn Fn(&str) -> bool) -> Result<Vec<String>, GitError> {
        let listed = self.git.ours(vault, "list what is kept");
        let listed = listed.args(["for-each-ref", "--format=%(refname)", "refs/regatta/keep/"]).line()?;
        Ok(listed.lines().filter(|it| may_write(it)).map(str::to_owned).collect())
    }

    /// Returns the last capture of an attempt.
    pub(crate) fn last_kept(&self, repo: &Repo, attempt: AttemptId) -> Result<Option<Capture>, GitError> {
        let vault = self.vault(repo)?;
        let Some(commit) = self.find(&vault, &format!("{}^{{commit}}", keep_ref(attempt)))? else { return Ok(None) };
        let parents = self.with_odb(&vault, |odb| odb.commit(&commit))?.parents;
        let base = parents.into_iter().next().ok_or_else(|| words::no_such_commit(&commit))?;
        let changed = self.paths_between(&vault, &base, &commit)?;
        Ok(Some(Capture { commit, base, changed }))
    }
}

/// Returns the trunk's name for the other side. It is a ref of the vault, so moving it does not
/// affect the user.
fn shown_ref(repo: &Repo) -> String {
    format!("refs/heads/{}", repo.trunk)
}

/// Returns the requested protocol version, after checking that the header contains nothing
/// dangerous.
fn protocol<'a>(wire: &Wire<'a>) -> Result<Option<&'a str>, GitError> {
    let Some(asked) = wire.protocol else { return Ok(None) };
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"=:.-_".contains(&it);
    if asked.len() > 100 || !asked.bytes().all(plain) {
        return Err(words::bad_protocol());
    }
    // A push has no version 2.
    let newest =
        if wire.service == Service::UploadPack { ["version=2", "version=1"].as_slice() } else { &["version=1"] };
    Ok(newest.iter().copied().find(|it| asked.split(':').any(|part| part == *it)))
}

fn said(answer: &mut dyn Write, told: &[u8]) -> Result<(), GitError> {
    answer.write_all(told).and_then(|()| answer.flush()).map_err(|cause| words::cut("report on a push", &cause))
}

/// Git's report on a push, held back until its refs are synced. Only keep-alive packets are sent at
/// once, so that the connection does not time out.
struct Report<'a> {
    answer: &'a mut dyn Write,
    held: Vec<u8>,
}

/// A keep-alive packet: an empty packet of the first side band.
const AT_WORK: &[u8] = b"0005\x01";

impl Write for Report<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let mut rest = piece;
        while let Some(behind) = rest.strip_prefix(AT_WORK).filter(|_| self.held.is_empty()) {
            self.answer.write_all(AT_WORK).and_then(|()| self.answer.flush())?;
            rest = behind;
        }
        if self.held.len() + rest.len() > MOST_REPORTED {
            return Err(io::Error::other("git's report on a push is too long"));
        }
        self.held.extend(rest);
        Ok(piece.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until the names of refs are on the disk.
fn sync_refs(vault: &Path, names: &[String]) -> Result<(), GitError> {
    let mut folders: Vec<_> = names.iter().filter_map(|it| Some(vault.join(it).parent()?.to_path_buf())).collect();
    folders.sort_unstable();
    folders.dedup();
    folders.retain(|it| it.is_dir());
    disk::sync_all(folders)
}

/// Removes the leftovers of interrupted pushes: git keeps incoming objects in a separate directory
/// until they are complete.
///
/// The age of a directory counts from when this process first saw it. The machine's date may have
/// been changed since the directory was made, and a running push must not lose its objects (L12).
fn forget_the_stale(vault: &Path, now: Instant) {
    static FIRST_SEEN: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());
    let Ok(entries) = fs::read_dir(vault.join("objects")) else { return };
    let names = entries.flatten().map(|entry| entry.path());
    let incoming: Vec<PathBuf> = names.filter(|path| is_incoming(path)).collect();
    let mut seen = FIRST_SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.retain(|path, _| !path.starts_with(vault) || incoming.contains(path));
    for path in incoming {
        let since = *seen.entry(path.clone()).or_insert(now);
        if now.saturating_duration_since(since) > STALE {
            // A directory that cannot be removed is tried again the next time.
            let _ = disk::remove(&path);
        }
    }
}

fn is_incoming(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tmp_objdir-incoming-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S7: the header becomes an environment variable of git, so only known values are passed on.
    #[test]
    fn s7_a_protocol_header_passes_only_a_version() {
        let asked = |service, protocol| super::protocol(&Wire { service, protocol: Some(protocol), gzip: false });
        let (fetch, push) = (Service::UploadPack, Service::ReceivePack);
        assert_eq!(asked(fetch, "version=2"), Ok(Some("version=2")));
        assert_eq!(asked(fetch, "x=y:version=2"), Ok(Some("version=2")));
        assert_eq!(asked(fetch, "version=9"), Ok(None));
        assert_eq!(asked(push, "version=2"), Ok(None), "version 2 does not exist for a push");
        assert_eq!(asked(push, "version=1"), Ok(Some("version=1")));
        for bad in ["version=2\n", "a b", "\0", "version=2;x", &"x".repeat(200)] {
            assert_eq!(asked(fetch, bad).unwrap_err().code, "bad_request", "{bad:?}");
        }
    }

    /// D1: the report on a push is delayed until the end, but keep-alive packets are not.
    #[test]
    fn d1_a_report_is_delayed_but_keep_alive_packets_are_not() {
        let mut answer = Vec::new();
        let mut report = Report { answer: &mut answer, held: Vec::new() };
        report.write_all(b"0005\x010005\x01").unwrap();
        report.write_all(b"0005\x010030\x01000eunpack ok\n").unwrap();
        report.write_all(b"0005\x01").unwrap();
        assert_eq!(report.held, b"0030\x01000eunpack ok\n0005\x01");
        assert!(report.write_all(&vec![0; MOST_REPORTED]).is_err());
        assert_eq!(answer, AT_WORK.repeat(3));
    }

    #[test]
    fn old_leftovers_of_a_push_are_removed() {
        let vault = tempfile::tempdir().unwrap();
        let objects = vault.path().join("objects");
        let (old, new) = (objects.join("tmp_objdir-incoming-old"), objects.join("tmp_objdir-incoming-new"));
        for dir in [&old, &new, &objects.join("pack")] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::remove_dir(&new).unwrap();
        // L12: the date of a directory does not matter.
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        fs::File::open(&old).unwrap().set_modified(long_ago).unwrap();
        let begin = Instant::now();
        forget_the_stale(vault.path(), begin);
        assert!(old.exists(), "the directory may belong to a push under way");
        fs::create_dir(&new).unwrap();
        forget_the_stale(vault.path(), begin + STALE);
        assert!(old.exists() && new.exists());
        forget_the_stale(vault.path(), begin + STALE + Duration::from_secs(1));
        assert!(!old.exists() && new.exists() && objects.join("pack").exists());
    }
}
