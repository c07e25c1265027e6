//! `docs/platforms.md` lists every module that uses what only Linux has, so that a port is a list.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of calls, files and crates that other systems do not have.
const LINUX_ONLY: [&str; 18] = [
    "\"/proc",
    "\"/sys/",
    "pidfd_",
    "set_child_subreaper",
    "eventfd(",
    "transparent_huge_pages",
    "landlock::",
    "seccompiler::",
    "libc::SYS_",
    "rustix::mount",
    "unshare",
    "pivot_root",
    "openat2",
    "ioctl_ficlone",
    "OFlags::PATH",
    "capabilities_",
    "inotify",
    "memfd_create",
];
const START: &str = "<!-- Linux-only modules -->";
const END: &str = "<!-- end of the modules -->";

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("xtask is inside the workspace")
        .to_owned()
}

/// Says whether the program's own lines, without comments and tests, use something of Linux.
fn is_linux_only(text: &str) -> bool {
    let program = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines = program
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"));
    lines
        .into_iter()
        .any(|line| LINUX_ONLY.iter().any(|name| line.contains(name)))
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory)
        .expect("the directory can be read")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Returns the shipped modules that only Linux can run.
fn modules() -> BTreeSet<String> {
    let mut paths = Vec::new();
    for member in fs::read_dir(root().join("crates"))
        .expect("the members are there")
        .flatten()
    {
        if member.file_name() != "regatta-testkit" {
            sources(&member.path().join("src"), &mut paths);
        }
    }
    let is_test = |path: &PathBuf| path.to_string_lossy().contains("test");
    let mut modules = BTreeSet::new();
    for path in paths.iter().filter(|path| !is_test(path)) {
        if is_linux_only(&fs::read_to_string(path).expect("sources are UTF-8")) {
            let below = path.strip_prefix(root()).expect("the path was found there");
            modules.insert(below.to_string_lossy().into_owned());
        }
    }
    modules
}

#[test]
fn the_page_lists_every_module_that_only_linux_can_run() {
    let page = fs::read_to_string(root().join("docs/platforms.md")).expect("the page is there");
    let (_, rest) = page.split_once(START).expect("the list has a start");
    let (table, _) = rest.split_once(END).expect("the list has an end");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<String> = rows
        .filter_map(|line| Some(line.split('`').nth(1)?.to_owned()))
        .collect();
    let found = modules();
    let missing: Vec<&String> = found.difference(&listed).collect();
    let gone: Vec<&String> = listed.difference(&found).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/platforms.md must list {missing:#?} and must not list {gone:#?}"
    );
}

/// A build for another system stops with one sentence. The sentence is in the crate that is built
/// first, and nowhere else, because a port has to remove it.
#[test]
fn a_build_for_another_system_stops_with_one_sentence() {
    let mut paths = Vec::new();
    sources(&root().join("crates"), &mut paths);
    let with_error: Vec<String> = paths
        .iter()
        .filter_map(|path| {
            let text = fs::read_to_string(path).expect("sources are UTF-8");
            text.contains("compile_error!").then_some(text)
        })
        .collect();
    assert_eq!(with_error.len(), 1, "one place has the error");
    let core = fs::read_to_string(root().join("crates/regatta-core/src/lib.rs"))
        .expect("the crate is there");
    assert_eq!(with_error[0], core);
    assert!(core.contains(
        "#[cfg(not(target_os = \"linux\"))]\ncompile_error!(\n    \"Regatta runs on Linux only."
    ));
}

#[test]
fn tests_and_comments_do_not_count() {
    assert!(is_linux_only("let fd = pidfd_open(pid)?;\n"));
    assert!(!is_linux_only("/// Like pidfd_open.\nfn f() {}\n"));
    assert!(!is_linux_only(
        "fn f() {}\n#[cfg(test)]\nmod tests {\n  read(\"/proc/1\");\n}\n"
    ));
}
