//! Tests of serving the vault to other machines, with real git programs and with requests that git
//! never sends.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use flate2::Compression;
use flate2::read::GzEncoder;
use regatta_core::ids::CommitId;
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{GitError, GitHttpRequest, GitService, PeerStreams};

use crate::git_server::{Server, TOKEN, fsck_findings};
use crate::world::{A1, A2, World, commit_all, git, make_executable, read, try_git, write};

/// Runs a person's git with the token.
fn git_with_token(server: &Server, dir: &Path, args: &[&str]) -> Result<String, String> {
    let header = format!("http.extraHeader=Authorization: Bearer {TOKEN}");
    let url = server.remote().url;
    let args: Vec<&str> = args
        .iter()
        .map(|arg| if *arg == "URL" { url.as_str() } else { arg })
        .collect();
    let output = try_git(dir, [&["-c", header.as_str()][..], &args].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stdout) + &text(&output.stderr))
    }
}

/// Returns all refs of the vault.
fn refs(server: &Server) -> String {
    git(&server.world.vault(), &["for-each-ref"])
}

fn serve(
    server: &Server,
    wire: &GitHttpRequest<'_>,
    mut request: impl Read,
) -> (Result<(), GitError>, Vec<u8>) {
    let mut answer = Vec::new();
    let (git, repo) = (&server.world.git, &server.world.repo);
    let peer = PeerStreams {
        request: &mut request,
        answer: &mut answer,
    };
    let outcome = git.serve(repo, wire, &server.may_write(), peer);
    (outcome, answer)
}

const FETCH_REQUEST: GitHttpRequest<'_> = GitHttpRequest {
    service: GitService::UploadPack,
    protocol: None,
    is_gzip: false,
};
const PUSH_REQUEST: GitHttpRequest<'_> = GitHttpRequest {
    service: GitService::ReceivePack,
    protocol: None,
    is_gzip: false,
};

#[test]
fn git_program_clones_the_trunk_and_pulls_new_commits() {
    let server = Server::new(World::new(), &[]);
    let home = server.world.home.path();
    server.world.prepare(A1);
    server.world.capture(A1);
    for version in ["0", "1", "2"] {
        let (clone_dir, config) = (
            home.join(format!("clone {version}")),
            format!("protocol.version={version}"),
        );
        git_with_token(
            &server,
            home,
            &[
                "-c",
                &config,
                "clone",
                "-q",
                "URL",
                clone_dir.to_str().unwrap(),
            ],
        )
        .unwrap();
        assert_eq!(
            read(clone_dir.join("a.txt")),
            read(server.world.user().join("a.txt"))
        );
        assert_eq!(
            git(&clone_dir, &["symbolic-ref", "HEAD"]),
            "refs/heads/main"
        );
        let refs = git(&clone_dir, &["for-each-ref", "--format=%(refname)"]);
        assert!(
            !refs.contains("regatta") && refs.contains("refs/remotes/origin/main"),
            "{refs}"
        );
        // The user's trunk is read each time.
        write(server.world.user().join("a.txt"), version);
        let tip = commit_all(server.world.user(), "more");
        git_with_token(&server, &clone_dir, &["-c", &config, "pull", "-q"]).unwrap();
        assert_eq!(git(&clone_dir, &["rev-parse", "HEAD"]), tip.as_str());
    }
    let listed = git_with_token(&server, home, &["ls-remote", "URL"]).unwrap();
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|listed| listed.split('\t').nth(1))
        .collect();
    assert_eq!(
        names,
        ["HEAD", "refs/heads/main"],
        "other refs of the vault are not listed"
    );
    // A pusher also sees the refs that it may write.
    server.world.prepare(A2);
    server.world.capture(A2);
    let refs = server
        .world
        .git
        .advertise(&server.world.repo, &PUSH_REQUEST, &|git| {
            git == "refs/regatta/keep/A2"
        })
        .unwrap();
    let refs = String::from_utf8_lossy(&refs).into_owned();
    assert!(
        refs.starts_with("001f# service=git-receive-pack\n0000"),
        "{refs}"
    );
    assert!(
        refs.contains("keep/A2") && !refs.contains("keep/A1") && !refs.contains("regatta/trunk"),
        "{refs}"
    );
    let nobody = try_git(home, ["clone", "-q", &server.remote().url, "nobody's"]);
    assert!(
        !nobody.status.success(),
        "a request without a token is refused"
    );
}

/// S6: a runner writes only its own refs. Nothing of a push with another ref is written, and the
/// answer says why.
#[test]
fn s6_a_push_to_a_ref_of_another_attempt_is_refused_as_a_whole() {
    let server = Server::new(World::new(), &[A1]);
    let clone_dir = server.world.home.path().join("clone");
    git_with_token(
        &server,
        server.world.home.path(),
        &["clone", "-q", "URL", clone_dir.to_str().unwrap()],
    )
    .unwrap();
    write(clone_dir.join("new"), "new");
    let commit = commit_all(&clone_dir, "new");
    let (before, tip) = (refs(&server), server.world.tip());
    let mine = format!("{commit}:refs/regatta/keep/A1");
    for foreign in [
        "refs/heads/main",
        "refs/heads/x",
        "refs/regatta/keep/A2",
        "refs/regatta/trunk",
        "refs/regatta/base/A1",
        "refs/regatta/keep/A1/x",
        "refs/tags/v1",
    ] {
        for atomic in ["--atomic", "--no-atomic"] {
            let pushed = git_with_token(
                &server,
                &clone_dir,
                &[
                    "push",
                    atomic,
                    "-f",
                    "URL",
                    &mine,
                    &format!("{commit}:{foreign}"),
                ],
            );
            let output = pushed.unwrap_err();
            assert!(
                output.contains("the runner may not write this ref"),
                "{foreign}: {output}"
            );
            assert_eq!(
                server.log.lock().unwrap().last().unwrap().1,
                Ok(()),
                "the refusal was sent as an ordinary answer"
            );
        }
    }
    assert_eq!(refs(&server), before);
    assert!(
        !try_git(&server.world.vault(), ["cat-file", "-e", commit.as_str()])
            .status
            .success(),
        "the objects of a refused push were stored"
    );
    git_with_token(&server, &clone_dir, &["push", "-q", "URL", &mine]).unwrap();
    assert_eq!(
        git(
            &server.world.vault(),
            &["rev-parse", "refs/regatta/keep/A1"]
        ),
        commit.as_str()
    );
    let removed = git_with_token(
        &server,
        &clone_dir,
        &["push", "URL", ":refs/regatta/keep/A1"],
    );
    assert!(removed.is_err(), "a keep-ref was removed");
    assert_eq!(
        git(
            &server.world.vault(),
            &["rev-parse", "refs/regatta/keep/A1"]
        ),
        commit.as_str()
    );
    assert_eq!(server.world.tip(), tip);
    assert_eq!(fsck_findings(&server.world.vault()), "");
}

/// Q3: the old commit of a moved ref is kept under another ref, also after a repeated push.
#[test]
fn q3_the_old_commit_of_a_moved_ref_stays_kept() {
    let server = Server::new(World::new(), &[A1]);
    let clone_dir = server.world.home.path().join("clone");
    git_with_token(
        &server,
        server.world.home.path(),
        &["clone", "-q", "URL", clone_dir.to_str().unwrap()],
    )
    .unwrap();
    let mut old_commits = Vec::new();
    for text in ["one", "two", "three"] {
        git(&clone_dir, &["reset", "-q", "--hard", "origin/main"]);
        write(clone_dir.join("new"), text);
        old_commits.push(commit_all(&clone_dir, text));
        let refspec = format!(
            "+{}:refs/regatta/keep/A1",
            old_commits[old_commits.len() - 1]
        );
        git_with_token(&server, &clone_dir, &["push", "-q", "URL", &refspec]).unwrap();
        // The push is repeated, as by a sender that did not get the answer.
        git_with_token(&server, &clone_dir, &["push", "-q", "URL", &refspec]).unwrap();
    }
    let vault = server.world.vault();
    let reachable = git(&vault, &["rev-list", "--glob=refs/regatta/keep/*"]);
    for commit in &old_commits {
        assert!(reachable.contains(commit.as_str()), "{commit} is gone");
    }
    assert_eq!(
        server
            .world
            .git
            .captured(&server.world.repo, A1)
            .unwrap()
            .unwrap()
            .commit,
        old_commits[2]
    );
    assert_eq!(
        server.world.git.captured(&server.world.repo, A2).unwrap(),
        None
    );
}

/// A push whose sender did not know that it had succeeded is repeated byte for byte.
#[test]
fn repeated_push_of_the_same_bytes_succeeds() {
    let server = Server::new(World::new(), &[A1]);
    let (request, commit) = push_body(&server, "refs/regatta/keep/A1");
    for _ in 0..3 {
        let (outcome, answer) = serve(&server, &PUSH_REQUEST, request.as_slice());
        assert_eq!(outcome, Ok(()));
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            answer.contains("unpack ok") && answer.contains("ok refs/regatta/keep/A1"),
            "{answer}"
        );
    }
    assert_eq!(
        git(
            &server.world.vault(),
            &["rev-parse", "refs/regatta/keep/A1"]
        ),
        commit.as_str()
    );
}

/// Returns the body of a push that creates `name`, and the commit that it would have.
fn push_body(server: &Server, name: &str) -> (Vec<u8>, CommitId) {
    let clone_dir = server.world.home.path().join("pusher");
    if !clone_dir.exists() {
        git(
            server.world.home.path(),
            &[
                "clone",
                "-q",
                server.world.user().to_str().unwrap(),
                "pusher",
            ],
        );
        server.world.prepare(A2); // creates the vault
        write(clone_dir.join("pushed"), "pushed\n");
        commit_all(&clone_dir, "pushed");
    }
    let commit = CommitId::new(&git(&clone_dir, &["rev-parse", "HEAD"])).unwrap();
    let mut body = Vec::new();
    append_line(
        &mut body,
        format!("{} {commit} {name}\0report-status", "0".repeat(40)).as_bytes(),
    );
    body.extend(b"0000");
    let mut packing = std::process::Command::new("git")
        .args(["pack-objects", "-q", "--stdout", "--revs"])
        .current_dir(&clone_dir)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    packing
        .stdin
        .take()
        .unwrap()
        .write_all(format!("{commit}\n^origin/main\n").as_bytes())
        .unwrap();
    body.extend(packing.wait_with_output().unwrap().stdout);
    (body, commit)
}

fn append_line(to: &mut Vec<u8>, text: &[u8]) {
    to.extend(format!("{:04x}", text.len() + 4).as_bytes());
    to.extend(text);
}

/// S7, S5: requests that git never sends change nothing and run nothing.
#[test]
fn s7_s5_hostile_requests_change_nothing() {
    let server = Server::new(World::new(), &[A1]);
    let (good, _) = push_body(&server, "refs/regatta/keep/A1");
    // A hook that an agent could have left there does not run.
    let (hooks, marker) = (
        server.world.vault().join("hooks"),
        server.world.home.path().join("ran"),
    );
    for hook in [
        "pre-receive",
        "update",
        "post-receive",
        "post-update",
        "reference-transaction",
        "proc-receive",
    ] {
        write(
            hooks.join(hook),
            format!("#!/bin/sh\ntouch '{}'\n", marker.display()),
        );
        make_executable(&hooks.join(hook));
    }
    let before = refs(&server);
    let names = [
        "../../x",
        "refs/../../x",
        "refs/regatta/keep/../trunk",
        "--exec=x",
        "refs/regatta/keep/A1\n",
        "refs/heads/main\0x",
    ];
    for name in names {
        let (outcome, _) = serve(
            &server,
            &PUSH_REQUEST,
            push_body(&server, name).0.as_slice(),
        );
        // The part after a NUL byte does not belong to the name, so this name is refused like any
        // other.
        let result = if name.contains('\0') {
            Ok(())
        } else {
            Err("bad_request")
        };
        assert_eq!(outcome.map_err(|error| error.code), result, "{name:?}");
    }
    let junk: Vec<u8> = (0..70_000_u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for bad in [
        &b""[..],
        b"0004",
        b"ffff",
        b"\0\0\0\0",
        &junk,
        b"0000PACK",
        &good[..40],
    ] {
        let _ = serve(&server, &PUSH_REQUEST, bad);
        let (outcome, _) = serve(&server, &FETCH_REQUEST, bad);
        assert!(
            outcome.is_err() || bad.is_empty() || bad.starts_with(b"0000"),
            "{:?}",
            &bad[..bad.len().min(10)]
        );
    }
    let packed = GitHttpRequest {
        is_gzip: true,
        ..PUSH_REQUEST
    };
    assert_eq!(
        serve(&server, &packed, good.as_slice()).0.unwrap_err().code,
        "bad_request",
        "the body is not compressed"
    );
    let odd = GitHttpRequest {
        protocol: Some("version=2\nx"),
        ..FETCH_REQUEST
    };
    assert_eq!(
        serve(&server, &odd, &b"0000"[..]).0.unwrap_err().code,
        "bad_request"
    );
    let result = server
        .world
        .git
        .advertise(&server.world.repo, &odd, &|_| true);
    assert_eq!(result.unwrap_err().code, "bad_request");
    assert_eq!(refs(&server), before);
    // The same push is accepted when its body is compressed.
    let mut gz = Vec::new();
    GzEncoder::new(good.as_slice(), Compression::fast())
        .read_to_end(&mut gz)
        .unwrap();
    assert_eq!(serve(&server, &packed, gz.as_slice()).0, Ok(()));
    assert!(refs(&server).contains("refs/regatta/keep/A1"));
    assert!(!marker.exists(), "a hook ran");
    assert_eq!(fsck_findings(&server.world.vault()), "");
}

/// S6: such a tree would write outside its directory or into a `.git` directory.
#[test]
fn s6_a_tree_with_a_forbidden_name_is_refused() {
    let server = Server::new(World::new(), &[A1]);
    let clone_dir = server.world.home.path().join("clone");
    git_with_token(
        &server,
        server.world.home.path(),
        &["clone", "-q", "URL", clone_dir.to_str().unwrap()],
    )
    .unwrap();
    let blob = git(&clone_dir, &["rev-parse", "HEAD:a.txt"]);
    for name in [".git", "..", ".GIT"] {
        let mut tree = format!("100644 {name}\0").into_bytes();
        tree.extend(
            (0..20).map(|index| u8::from_str_radix(&blob[2 * index..2 * index + 2], 16).unwrap()),
        );
        fs::write(clone_dir.join("tree"), tree).unwrap();
        let tree = git(
            &clone_dir,
            &["hash-object", "-w", "-t", "tree", "--literally", "tree"],
        );
        let commit = git(&clone_dir, &["commit-tree", "-p", "HEAD", "-m", "x", &tree]);
        let pushed = git_with_token(
            &server,
            &clone_dir,
            &["push", "URL", &format!("{commit}:refs/regatta/keep/A1")],
        );
        assert!(pushed.is_err(), "{name}");
        assert!(!refs(&server).contains("keep/A1"));
        assert!(
            !try_git(&server.world.vault(), ["cat-file", "-e", &commit])
                .status
                .success()
        );
    }
}

/// The answer to a fetch, which must come in pieces.
struct PieceCounter {
    bytes: u64,
    largest: usize,
}

impl Write for PieceCounter {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.largest = self.largest.max(piece.len());
        self.bytes += piece.len() as u64;
        Ok(piece.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A push that checks, when most of it was sent, whether git has received it already.
struct WatchedPush<'a> {
    remaining: &'a [u8],
    objects: PathBuf,
    /// The largest amount that was sent and not yet received by git.
    max_unreceived: usize,
    sent: usize,
}

impl Read for WatchedPush<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.remaining.read(buffer)?;
        let before = self.sent;
        self.sent += length;
        if before >> 24 != self.sent >> 24 {
            self.max_unreceived = self
                .max_unreceived
                .max(before.saturating_sub(incoming_bytes(&self.objects)));
        }
        Ok(length)
    }
}

/// Returns the amount of a push that is in git's directory for incoming objects.
fn incoming_bytes(objects: &Path) -> usize {
    let mut bytes = 0;
    for dir in fs::read_dir(objects).unwrap().flatten().filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("tmp_objdir")
    }) {
        for file in fs::read_dir(dir.path().join("pack"))
            .into_iter()
            .flatten()
            .flatten()
        {
            bytes += usize::try_from(file.metadata().map_or(0, |metadata| metadata.len())).unwrap();
        }
    }
    bytes
}

#[test]
fn large_file_streams_in_both_directions() {
    const SIZE: usize = 50 << 20;
    let server = Server::new(World::new(), &[A1]);
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32).to_le_bytes()
    })
    .flatten()
    .take(SIZE)
    .collect();
    let clone_dir = server.world.home.path().join("pusher");
    git(
        server.world.home.path(),
        &[
            "clone",
            "-q",
            server.world.user().to_str().unwrap(),
            "pusher",
        ],
    );
    git(&clone_dir, &["config", "core.compression", "0"]);
    fs::write(clone_dir.join("pushed"), &noise).unwrap();
    let commit = commit_all(&clone_dir, "large");
    server.world.prepare(A2);
    let (body, same) = push_body(&server, "refs/regatta/keep/A1");
    assert!(same == commit && body.len() > SIZE);
    let objects = server.world.vault().join("objects");
    // Git keeps a push of more than a hundred objects as one pack, which it writes while the
    // objects arrive. The setting has the same effect for this small number of objects.
    git(
        &server.world.vault(),
        &["config", "receive.unpackLimit", "1"],
    );
    let mut watched = WatchedPush {
        remaining: &body,
        objects,
        max_unreceived: 0,
        sent: 0,
    };
    let mut answer = Vec::new();
    server
        .world
        .git
        .serve(
            &server.world.repo,
            &PUSH_REQUEST,
            &server.may_write(),
            PeerStreams {
                request: &mut watched,
                answer: &mut answer,
            },
        )
        .unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("unpack ok"));
    assert!(
        watched.sent > SIZE && watched.max_unreceived < 2 << 20,
        "{} bytes were held",
        watched.max_unreceived
    );

    let mut wants = Vec::new();
    append_line(&mut wants, format!("want {commit} ofs-delta\n").as_bytes());
    wants.extend(b"0000");
    append_line(&mut wants, b"done\n");
    let mut pieces = PieceCounter {
        bytes: 0,
        largest: 0,
    };
    server
        .world
        .git
        .serve(
            &server.world.repo,
            &FETCH_REQUEST,
            &|_| false,
            PeerStreams {
                request: &mut wants.as_slice(),
                answer: &mut pieces,
            },
        )
        .unwrap();
    assert!(
        pieces.bytes > SIZE as u64 && pieces.largest <= 64 << 10,
        "{} at once",
        pieces.largest
    );
}

/// S4: the token is on no command line, at any moment while git runs.
#[test]
fn s4_the_token_is_on_no_command_line_of_regattas_git() {
    let server = Server::new(World::new(), &[A1]);
    let runner = crate::remote::runner(&server);
    runner
        .git
        .fetch_project(&runner.repo, &server.remote(), &[])
        .unwrap();
    assert!(!server.was_token_exposed.load(Ordering::SeqCst));
    // A person's git with the token on its command line is detected, so the check works.
    git_with_token(&server, server.world.home.path(), &["ls-remote", "URL"]).unwrap();
    assert!(server.was_token_exposed.load(Ordering::SeqCst));
}
