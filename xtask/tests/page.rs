//! Checks that the committed page was built from its sources. Computes the hashes of `page.lock`
//! again, without Node.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Every input of the build of the page, as in `web/bundle.mjs`.
const SOURCE_PATHS: [&str; 7] = [
    "index.html",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "vite.config.ts",
    "public",
    "src",
];

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is inside the workspace")
        .to_owned()
}

fn files_of(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            files_of(&entry.unwrap().path(), found);
        }
    } else {
        assert!(path.is_file(), "{} does not exist", path.display());
        found.push(path.to_owned());
    }
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Hashes files with their paths relative to `top`, in the byte order of the paths.
fn hash_of(top: &Path, paths: Vec<PathBuf>) -> String {
    let name = |path: &Path| path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
    let mut named: Vec<(String, PathBuf)> =
        paths.into_iter().map(|path| (name(&path), path)).collect();
    named.sort();
    let lines = named
        .iter()
        .map(|(name, path)| format!("{name}\n{}\n", hex(&fs::read(path).unwrap())));
    hex(lines.collect::<String>().as_bytes())
}

fn sources_hash(web: &Path) -> String {
    let mut paths = Vec::new();
    for name in SOURCE_PATHS {
        files_of(&web.join(name), &mut paths);
    }
    let is_test = |path: &Path| {
        let name = path.to_str().unwrap();
        name.ends_with(".test.ts") || name.ends_with(".test.tsx")
    };
    paths.retain(|path| !is_test(path));
    hash_of(web, paths)
}

fn page_hash(page: &Path) -> String {
    let mut paths = Vec::new();
    files_of(page, &mut paths);
    hash_of(page, paths)
}

#[test]
fn committed_page_was_built_from_its_sources() {
    let server = workspace_root().join("crates/regatta-server");
    let lock = fs::read_to_string(server.join("page.lock")).unwrap();
    let locked = |field: &str| {
        let line = lock
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("page.lock has no {field}: {lock}"))
            .to_owned()
    };
    let renew = "run `cargo xtask web --build`, and commit the result";
    assert_eq!(
        locked("sources"),
        sources_hash(&workspace_root().join("web")),
        "the sources of the page have changed: {renew}"
    );
    assert_eq!(
        locked("page"),
        page_hash(&server.join("page")),
        "the built page was edited: {renew}"
    );
}

/// A changed name, a changed content, a new file and a removed file change the hash. A test of the
/// page does not.
#[test]
fn every_change_of_a_source_changes_the_hash() {
    let directory = tempfile::tempdir().unwrap();
    let web = directory.path();
    fs::create_dir(web.join("src")).unwrap();
    fs::create_dir(web.join("public")).unwrap();
    for name in [
        "index.html",
        "package.json",
        "package-lock.json",
        "tsconfig.json",
        "vite.config.ts",
        "public/a.png",
        "src/a.ts",
    ] {
        fs::write(web.join(name), name).unwrap();
    }
    let mut seen = vec![sources_hash(web)];
    fs::write(web.join("src/a.test.ts"), "a test").unwrap();
    assert_eq!(sources_hash(web), seen[0]);
    fs::write(web.join("src/a.ts"), "changed").unwrap();
    seen.push(sources_hash(web));
    fs::rename(web.join("src/a.ts"), web.join("src/b.ts")).unwrap();
    seen.push(sources_hash(web));
    fs::write(web.join("src/c.ts"), "").unwrap();
    seen.push(sources_hash(web));
    fs::remove_file(web.join("src/b.ts")).unwrap();
    seen.push(sources_hash(web));
    let mut different = seen.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), seen.len(), "{seen:?}");
}

/// `cargo xtask web --build` installs the packages of the lock file and writes the page, and starts
/// no browser.
#[test]
fn the_build_of_the_page_installs_its_packages_and_bundles_it() {
    let bin = tempfile::tempdir().unwrap();
    let log = bin.path().join("log");
    let write_program = |name: &str, script: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = bin.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write_program("npm", &format!("echo \"$PWD $*\" >> {}", log.display()));
    let build = || {
        std::process::Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["web", "--build"])
            .env("PATH", bin.path())
            .output()
            .unwrap()
    };
    write_program("node", "echo v18.0.0");
    let refused = build();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("needs Node 20 or later"), "{message}");
    assert!(!log.exists(), "npm ran with an old Node");

    write_program("node", "echo v22.0.0");
    let built = build();
    assert!(built.status.success(), "{built:?}");
    let web = workspace_root().join("web");
    let expected = format!(
        "{0} ci --no-audit --no-fund\n{0} run bundle\n",
        web.display()
    );
    assert_eq!(fs::read_to_string(&log).unwrap(), expected);
}
