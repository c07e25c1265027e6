//! Finds the crates and npm packages that are inside the program, with their licences.
//!
//! The crates are those that `cargo tree` names for the program alone, without the crates of tests
//! and tools. The npm packages are those of the page, from its lock file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::binary::TARGET;
use super::tools::text;

/// The registry of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Registry {
    Cargo,
    Npm,
}

/// A package that is inside the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Component {
    pub(crate) registry: Registry,
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) license: String,
    /// The SHA-256 of the crate's archive; crates of this repository have none.
    pub(crate) sha256: Option<String>,
    /// The components that it uses, by [`Component::reference`].
    pub(crate) uses: BTreeSet<String>,
}

impl Component {
    /// Returns the package URL, which identifies the component in an SBOM.
    pub(crate) fn reference(&self) -> String {
        match self.registry {
            Registry::Cargo => format!("pkg:cargo/{}@{}", self.name, self.version),
            // The @ of a scope is the only character of these names that a URL escapes.
            Registry::Npm => {
                format!(
                    "pkg:npm/{}@{}",
                    self.name.replacen('@', "%40", 1),
                    self.version
                )
            }
        }
    }

    /// Says whether the component is a crate of this repository.
    pub(crate) fn is_ours(&self) -> bool {
        self.registry == Registry::Cargo && self.sha256.is_none()
    }
}

/// Returns the components by their references.
pub(crate) fn find(root: &Path) -> anyhow::Result<BTreeMap<String, Component>> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))?;
    let tree = text(
        Command::new("cargo")
            .args([
                "tree",
                "--locked",
                "--package",
                "regatta",
                "--edges",
                "normal,build",
            ])
            .args([
                "--target",
                TARGET,
                "--prefix",
                "depth",
                "--format",
                "\t{p}\t{l}",
            ])
            .current_dir(root),
    )?;
    let mut components = crates(&tree, &checksums(&lock))?;
    let packages = std::fs::read_to_string(root.join("web/package-lock.json"))?;
    components.extend(npm_packages(&packages)?);
    Ok(components)
}

/// Reads the SHA-256 of every crate from a `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for block in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let start = format!("{name} = \"");
            let line = block.lines().find_map(|line| line.strip_prefix(&start))?;
            Some(line.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

/// Reads the output of `cargo tree --prefix depth`: depth, name, version and licence per line.
fn crates(
    tree: &str,
    checksums: &BTreeMap<(String, String), String>,
) -> anyhow::Result<BTreeMap<String, Component>> {
    let mut components: BTreeMap<String, Component> = BTreeMap::new();
    let mut above: Vec<String> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut fields = line.split('\t');
        let (depth, package) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let license = fields.next().unwrap_or("").trim_end_matches("(*)").trim();
        let depth: usize = depth
            .parse()
            .with_context(|| format!("cargo tree printed {line:?}"))?;
        let mut words = package.split_whitespace();
        let name = words
            .next()
            .context("cargo tree printed no name")?
            .to_owned();
        let version = words.next().context("cargo tree printed no version")?;
        let version = version.trim_start_matches('v').to_owned();
        ensure!(
            !license.is_empty(),
            "{name} {version} has no licence in its manifest"
        );
        let component = Component {
            registry: Registry::Cargo,
            sha256: checksums.get(&(name.clone(), version.clone())).cloned(),
            name,
            version,
            // Cargo accepts this old form of OR, and SPDX does not.
            license: license.replace('/', " OR "),
            uses: BTreeSet::new(),
        };
        let reference = component.reference();
        components.entry(reference.clone()).or_insert(component);
        above.truncate(depth);
        if let Some(user) = above.last().and_then(|user| components.get_mut(user)) {
            user.uses.insert(reference.clone());
        }
        above.push(reference);
    }
    ensure!(components.len() > 1, "cargo tree printed no dependencies");
    Ok(components)
}

/// Reads the packages from a `package-lock.json` that are not only for development.
fn npm_packages(lock: &str) -> anyhow::Result<BTreeMap<String, Component>> {
    let lock: Value = serde_json::from_str(lock)?;
    let packages = lock["packages"]
        .as_object()
        .context("package-lock.json has no packages")?;
    let mut components = BTreeMap::new();
    for (path, package) in packages {
        let Some((_, name)) = path.rsplit_once("node_modules/") else {
            continue;
        };
        let marks = ["dev", "devOptional"];
        if marks.iter().any(|mark| package[*mark] == true) {
            continue;
        }
        let field = |field: &str| {
            let text = package[field].as_str();
            text.map(str::to_owned)
                .with_context(|| format!("{name} has no {field}"))
        };
        let component = Component {
            registry: Registry::Npm,
            name: name.to_owned(),
            version: field("version")?,
            license: field("license")?,
            sha256: None,
            uses: BTreeSet::new(),
        };
        components.insert(component.reference(), component);
    }
    Ok(components)
}

/// Returns the directory of each crate's sources, by name and version.
pub(crate) fn source_directories(
    root: &Path,
) -> anyhow::Result<BTreeMap<(String, String), PathBuf>> {
    let metadata = text(
        Command::new("cargo")
            .args(["metadata", "--locked", "--format-version", "1"])
            .args(["--filter-platform", TARGET])
            .current_dir(root),
    )?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata has no packages")?;
    let mut directories = BTreeMap::new();
    for package in packages {
        let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        let manifest = PathBuf::from(field("manifest_path"));
        if let Some(directory) = manifest.parent() {
            directories.insert((field("name"), field("version")), directory.to_owned());
        }
    }
    Ok(directories)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const TREE: &str = "0\tregatta v0.1.0 (/home/somebody/regatta)\tMIT OR Apache-2.0
1\tserde v1.0.200\tMIT OR Apache-2.0
2\tserde_derive v1.0.200 (proc-macro)\tMIT/Apache-2.0
1\tregatta-core v0.1.0 (/home/somebody/regatta/core)\tMIT OR Apache-2.0
2\tserde v1.0.200\tMIT OR Apache-2.0 (*)
";
    const LOCK: &str = "version = 4

[[package]]
name = \"regatta\"
version = \"0.1.0\"
dependencies = [
 \"serde\",
]

[[package]]
name = \"serde\"
version = \"1.0.200\"
source = \"registry+https://github.com/rust-lang/crates.io-index\"
checksum = \"aaaa\"

[[package]]
name = \"serde_derive\"
version = \"1.0.200\"
checksum = \"bbbb\"
";

    /// Returns a small set of components for tests.
    pub(crate) fn sample() -> BTreeMap<String, Component> {
        crates(TREE, &checksums(LOCK)).expect("the sample can be read")
    }

    #[test]
    fn crates_are_read_with_their_edges_licences_and_checksums() {
        let components = sample();
        let names: Vec<&str> = components.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "pkg:cargo/regatta-core@0.1.0",
                "pkg:cargo/regatta@0.1.0",
                "pkg:cargo/serde@1.0.200",
                "pkg:cargo/serde_derive@1.0.200",
            ]
        );
        let core = &components["pkg:cargo/regatta-core@0.1.0"];
        assert!(core.is_ours() && core.uses.contains("pkg:cargo/serde@1.0.200"));
        let derive = &components["pkg:cargo/serde_derive@1.0.200"];
        assert_eq!(derive.license, "MIT OR Apache-2.0");
        assert_eq!(derive.sha256.as_deref(), Some("bbbb"));
        assert_eq!(components["pkg:cargo/regatta@0.1.0"].uses.len(), 2);
    }

    #[test]
    fn a_crate_without_a_licence_is_refused() {
        let tree = "0\ta v1.0.0\tMIT\n1\tb v2.0.0\t\n";
        let error = crates(tree, &BTreeMap::new()).expect_err("it must be refused");
        assert_eq!(error.to_string(), "b 2.0.0 has no licence in its manifest");
    }

    #[test]
    fn packages_for_development_are_not_in_the_page() {
        let lock = r#"{ "packages": {
            "": { "name": "web" },
            "node_modules/@preact/signals": { "version": "2.0.0", "license": "MIT" },
            "node_modules/vite": { "version": "8.0.0", "license": "MIT", "dev": true }
        } }"#;
        let components = npm_packages(lock).expect("the lock file can be read");
        let names: Vec<&String> = components.keys().collect();
        assert_eq!(names, ["pkg:npm/%40preact/signals@2.0.0"]);
    }
}
