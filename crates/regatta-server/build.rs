//! Embeds the web page: `web/dist` if it is there, else what Node makes of `web/`, else nothing.
//!
//! Cargo's build needs neither Node nor a network: without the page's packages (`npm ci` in `web/`) the program says how
//! to build the page where the page would be. Nothing is written outside of cargo's own directory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

type Files = Vec<(String, PathBuf)>;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where to build"));
    let top = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where we are")).join("../../web");
    println!("cargo::rerun-if-changed=build.rs");
    // A path that is not there would run this script every time. The directory dist is always there, empty or not.
    for name in ["dist", "src", "index.html", "package-lock.json", "vite.config.ts", "node_modules/.package-lock.json"]
    {
        let path = top.join(name);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let (dist, built) = (top.join("dist"), out.join("web"));
    let _not_there = std::fs::remove_dir_all(&built);
    let files = if dist.join("index.html").is_file() { copy(read(&dist), &built) } else { build(&top, &built) };
    let mut text = String::from("/// The page's files, by their path from its root.\n");
    text += "pub(crate) static FILES: &[(&str, &[u8])] = &[\n";
    for (name, path) in &files {
        writeln!(text, "    ({name:?}, include_bytes!({:?})),", path.display().to_string())
            .expect("a string takes everything");
    }
    text += "];\n";
    std::fs::write(out.join("web_files.rs"), text).expect("cargo's own directory can be written");
}

/// Copies files, so that a page that is built anew while the compiler runs does not break what it includes.
fn copy(files: Files, to: &Path) -> Files {
    let one = |(name, from): (String, PathBuf)| {
        let path = to.join(&name);
        let copied = path.parent().map(std::fs::create_dir_all).is_some_and(|it| it.is_ok());
        (copied && std::fs::copy(&from, &path).is_ok()).then_some((name, path))
    };
    files.into_iter().filter_map(one).collect()
}

/// Has Node build the page, if its packages are there.
fn build(top: &Path, to: &Path) -> Files {
    let vite = top.join("node_modules/vite/bin/vite.js");
    if !vite.is_file() || !node_will_do() {
        return Files::new();
    }
    let built = Command::new("node")
        .arg(&vite)
        .args(["build", "--logLevel", "warn", "--emptyOutDir", "--outDir"])
        .arg(to)
        .current_dir(top)
        .output();
    match built {
        Ok(done) if done.status.success() => read(to),
        Ok(done) => {
            let words = String::from_utf8_lossy(&done.stderr).into_owned();
            println!("cargo::warning=the web page could not be built: {}", words.lines().next().unwrap_or_default());
            Files::new()
        }
        Err(_) => Files::new(),
    }
}

fn node_will_do() -> bool {
    let said = Command::new("node").arg("--version").output().ok().filter(|it| it.status.success());
    let said = said.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned()).unwrap_or_default();
    let major = said.trim_start_matches('v').split('.').next().and_then(|it| it.parse::<u32>().ok());
    major.is_some_and(|it| it >= 20)
}

/// Every file below a directory.
fn read(dir: &Path) -> Files {
    let mut found = Files::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if let Some(name) = path.strip_prefix(dir).ok().and_then(Path::to_str) {
                found.push((name.to_owned(), path.canonicalize().unwrap_or(path.clone())));
            }
        }
    }
    found.sort();
    found
}
