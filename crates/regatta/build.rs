//! Passes the commit and its date to `regatta --version`.
//!
//! `cargo xtask dist` sets both variables itself, and its values count. Without git, or outside of
//! the checkout of this project (a crate from a registry), the version has no commit. Cargo runs
//! this script again only when the checked-out commit changes. The values depend on the commit
//! alone, so two builds of a commit are the same.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=REGATTA_BUILD_COMMIT");
    println!("cargo:rerun-if-env-changed=REGATTA_BUILD_DATE");
    if std::env::var_os("REGATTA_BUILD_COMMIT").is_some() {
        return;
    }
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let here = here.canonicalize().unwrap_or(here);
    let git = |args: &[&str]| git_output(&here, args);
    // The sources may lie in the repository of another project, whose commit says nothing.
    let top = git(&["rev-parse", "--show-toplevel"]).map(PathBuf::from);
    if top.is_none_or(|top| top.join("crates/regatta") != here) {
        return;
    }
    for name in names_of_changing_files(&git) {
        let file = git(&["rev-parse", "--git-path", &name]).map(|path| here.join(path));
        // Cargo runs the script each time if a file does not exist.
        if let Some(file) = file.filter(|file| file.exists()) {
            println!("cargo:rerun-if-changed={}", file.display());
        }
    }
    let commit = git(&["rev-parse", "--short=10", "HEAD"]);
    let date = git(&["log", "-1", "--format=%cs"]);
    if let (Some(commit), Some(date)) = (commit, date) {
        println!("cargo:rustc-env=REGATTA_BUILD_COMMIT={commit}");
        println!("cargo:rustc-env=REGATTA_BUILD_DATE={date}");
    }
}

/// Returns the files below `.git` of which one changes with the checked-out commit: `HEAD`, and the
/// file of the branch. A branch without a file is in `packed-refs`, and gets a file with its next
/// commit, which also changes the log of `HEAD`.
fn names_of_changing_files(git: &dyn Fn(&[&str]) -> Option<String>) -> Vec<String> {
    let mut names = vec!["HEAD".to_owned()];
    if let Some(branch) = git(&["symbolic-ref", "--quiet", "HEAD"]) {
        let file = git(&["rev-parse", "--git-path", &branch]);
        let has_file = file.is_some_and(|file| Path::new(&file).exists());
        if has_file {
            names.push(branch);
        } else {
            names.extend(["packed-refs", "logs/HEAD"].map(str::to_owned));
        }
    }
    names
}

/// Returns the output of git, or `None` if git is not installed or fails.
fn git_output(dir: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
