//! Embeds the built web page in `page/`. The page is committed, so the build needs neither Node nor
//! a network.
//!
//! `cargo xtask web --build` writes the directory, and a test compares it with its sources. This build
//! writes only to Cargo's own directory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let page = PathBuf::from(
        std::env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets CARGO_MANIFEST_DIR"),
    )
    .join("page");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", page.display());
    let files = list_files(&page);
    assert!(
        files.iter().any(|(name, _)| name == "index.html"),
        "{} has no index.html: run `cargo xtask web --build`",
        page.display()
    );
    let mut text = String::from("/// The page's files, by their path from its root.\n");
    text += "pub(crate) static FILES: &[(&str, &[u8])] = &[\n";
    for (name, path) in &files {
        writeln!(
            text,
            "    ({name:?}, include_bytes!({:?})),",
            path.display().to_string()
        )
        .expect("writing to a string succeeds");
    }
    text += "];\n";
    std::fs::write(out.join("web_files.rs"), text).expect("Cargo's own directory can be written");
}

/// Lists every file below a directory, in the order of the names.
fn list_files(dir: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if let Some(name) = path.strip_prefix(dir).ok().and_then(Path::to_str) {
                found.push((name.to_owned(), path.clone()));
            }
        }
    }
    found.sort();
    found
}
