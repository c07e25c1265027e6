//! The scripts of `.ci` that need no build of this repository.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn script(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().join(".ci").join(name)
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn text(output: &Output) -> String {
    let bytes = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(bytes).unwrap()
}

/// The time of the longest crate is read from cargo's page, whether its data are on one line or on
/// many.
#[test]
fn the_longest_crate_is_read_from_the_timings_of_cargo() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("cargo-timing.html");
    let data = r#"<html>
const UNIT_DATA = [
  {
    "i": 0,
    "name": "serde",
    "start": 0.1,
    "duration": 9.5,
    "rmeta_time": 99.0
  },
  {"i":1,"name":"regatta","duration":31.25},{"i":2,"name":"regatta","duration":1},
  {"i":3,"name":"regatta-core","duration":20}
];
const CONCURRENCY_DATA = [{"t": 500.0, "active": 2}];
"#;
    fs::write(&page, data).unwrap();
    let longest = || Command::new(script("longest-crate")).arg(&page).output();
    let output = longest().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        text(&output),
        "longest crate: 31.2 s  regatta\n         then: 20.0 s  regatta-core\n         then: 9.5 \
         s  serde\n"
    );
    fs::write(&page, "const UNIT_DATA = [];\n").unwrap();
    let empty = longest().unwrap();
    assert!(
        empty.status.success() && text(&empty).contains("names no crate"),
        "{empty:?}"
    );
}

/// `.ci/build-alone` builds a clone of the last commit: a file that nobody added is missing in it.
/// The clone uses the target directory of the checkout.
#[test]
fn the_build_alone_builds_a_clone_of_the_last_commit() {
    let directory = tempfile::tempdir().unwrap();
    let checkout = directory.path().join("checkout");
    let copy = checkout.join(".ci/build-alone");
    write(
        &copy,
        &fs::read_to_string(script("build-alone")).unwrap(),
        0o755,
    );
    let page = checkout.join("crates/regatta-server/page/index.html");
    write(
        &page,
        "<script src=\"/assets/index-abc.js\"></script>\n",
        0o644,
    );
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        let user = [
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.invalid",
        ];
        let status = command
            .args(user)
            .args(args)
            .current_dir(&checkout)
            .status();
        assert!(status.unwrap().success(), "git {args:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "Start"]);
    write(&checkout.join("not-added.rs"), "", 0o644);

    // This program stands for cargo. It writes where it was started, and what it found there.
    let bin = directory.path().join("bin");
    let log = directory.path().join("log");
    let fake = format!(
        "#!/bin/sh\nset -e\n{{ pwd; ls; echo \"$*\"; }} > {log}\n\
         mkdir -p \"$CARGO_TARGET_DIR/debug\"\n\
         echo index-abc.js > \"$CARGO_TARGET_DIR/debug/regatta\"\n",
        log = log.display()
    );
    write(&bin.join("cargo"), &fake, 0o755);
    write(&bin.join("rustc"), "#!/bin/sh\n", 0o755);
    let path = std::env::var("PATH").unwrap();
    let build = |target: Option<&Path>| {
        let mut command = Command::new(&copy);
        command
            .env("PATH", format!("{}:{path}", bin.display()))
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("REGATTA_CI_TIMINGS");
        if let Some(target) = target {
            command.env("CARGO_TARGET_DIR", target);
            command.env("REGATTA_CI_TIMINGS", "1");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        (text(&output), fs::read_to_string(&log).unwrap())
    };
    let (printed, called) = build(None);
    assert!(
        printed.contains("note: uncommitted changes are not in the clone"),
        "{printed}"
    );
    let lines: Vec<&str> = called.lines().collect();
    assert_ne!(lines[0], checkout.to_str().unwrap(), "{called}");
    assert_eq!(lines[1..], ["crates", "build --locked"], "{called}");
    assert!(checkout.join("target/debug/regatta").exists());
    assert!(checkout.join("target/alone/regatta").exists());

    let elsewhere = directory.path().join("elsewhere");
    let (_, called) = build(Some(&elsewhere));
    assert!(called.ends_with("build --locked --timings\n"), "{called}");
    assert!(elsewhere.join("debug/regatta").exists());
}

/// `.ci/budget` finds the size limit of the release's program in the code of `cargo xtask dist`.
#[test]
fn the_budget_reads_the_limit_of_the_release() {
    let budget = fs::read_to_string(script("budget")).unwrap();
    let line = budget
        .lines()
        .find(|line| line.starts_with("dist_limit="))
        .unwrap();
    let output = Command::new("sh")
        .args(["-c", &format!("{line}\necho $dist_limit")])
        .current_dir(script("").join(".."))
        .output()
        .unwrap();
    let limit: u64 = text(&output).trim().parse().unwrap();
    assert!((20..40).contains(&limit), "{limit}");
}
