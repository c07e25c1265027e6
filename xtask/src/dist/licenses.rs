//! Collects the licence texts of everything inside the program into one file.
//!
//! A crate carries its texts in its archive. Texts of npm packages are kept in
//! `packaging/licenses`, because their archives are not on the machine that makes a release.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::components::{Component, Registry};

/// Returns the file and how many components have no text of their own.
pub(crate) fn collect(
    components: &BTreeMap<String, Component>,
    directories: &BTreeMap<(String, String), PathBuf>,
    kept: &Path,
) -> anyhow::Result<(String, usize)> {
    // Most texts occur in many crates: each is printed once.
    let mut texts: BTreeMap<String, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    let mut without = 0;
    for component in components.values().filter(|component| !component.is_ours()) {
        let found = match component.registry {
            Registry::Cargo => {
                let key = (component.name.clone(), component.version.clone());
                let directory = directories.get(&key);
                texts_in(directory.with_context(|| format!("cargo has no {}", component.name))?)?
            }
            Registry::Npm => {
                let name = component.name.trim_start_matches('@').replace('/', "-");
                let file = kept.join(format!("{name}.txt"));
                let text = std::fs::read_to_string(&file);
                vec![text.with_context(|| format!("{} is missing", file.display()))?]
            }
        };
        without += usize::from(found.is_empty());
        let mut numbers = Vec::new();
        for text in found {
            let next = texts.len() + 1;
            numbers.push(*texts.entry(text).or_insert(next));
        }
        rows.push((component, numbers));
    }
    ensure!(!rows.is_empty(), "there are no components");
    let mut page = String::from(
        "Software inside the program `regatta` that other people wrote, and its licences.\n\
         The numbers lead to the texts below. A component without a number is under the named\n\
         licence and carries no text of its own.\n\n",
    );
    for (component, numbers) in rows {
        let numbers: Vec<String> = numbers.iter().map(|number| format!("[{number}]")).collect();
        let Component {
            name,
            version,
            license,
            ..
        } = component;
        writeln!(page, "{name} {version}: {license} {}", numbers.join(" "))?;
    }
    let mut numbered: Vec<(usize, String)> = texts
        .into_iter()
        .map(|(text, number)| (number, text))
        .collect();
    numbered.sort();
    for (number, text) in numbered {
        write!(
            page,
            "\n{}\n[{number}]\n\n{}\n",
            "=".repeat(80),
            text.trim_end()
        )?;
    }
    Ok((page, without))
}

/// Reads the files of a crate that hold licences and notices, in the order of their names.
fn texts_in(directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
        let starts = [
            "license",
            "licence",
            "copying",
            "copyright",
            "notice",
            "unlicense",
        ];
        if starts.iter().any(|start| name.starts_with(start)) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    let texts = files
        .iter()
        .map(|file| Ok(String::from_utf8_lossy(&std::fs::read(file)?).replace('\r', "")));
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::components::tests::sample;

    #[test]
    fn a_text_is_printed_once_and_every_component_is_listed() {
        let top = tempfile::tempdir().expect("a directory");
        let mut directories = BTreeMap::new();
        for name in ["serde", "serde_derive"] {
            let directory = top.path().join(name);
            std::fs::create_dir(&directory).expect("it is new");
            std::fs::write(directory.join("LICENSE-MIT"), "Permission is granted\n")
                .expect("written");
            directories.insert((name.to_owned(), "1.0.200".to_owned()), directory);
        }
        let (page, without) = collect(&sample(), &directories, top.path()).expect("collected");
        assert_eq!(without, 0);
        assert_eq!(page.matches("Permission is granted").count(), 1);
        assert!(
            page.contains("serde 1.0.200: MIT OR Apache-2.0 [1]\n"),
            "{page}"
        );
        assert!(
            !page.contains("regatta-core"),
            "our own crates are not other people's"
        );
        directories.clear();
        assert!(
            collect(&sample(), &directories, top.path()).is_err(),
            "a crate cannot be left out"
        );
    }
}
