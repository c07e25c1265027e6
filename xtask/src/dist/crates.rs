//! Checks that the crates can be published, without publishing them.

use std::path::Path;
use std::process::Command;

use super::tools::run;

/// Crates that only this repository uses.
const PRIVATE: [&str; 2] = ["xtask", "regatta-testkit"];

/// Packs every public crate and builds it from its own archive, in the order of their needs.
pub(crate) fn dry_run(root: &Path, with_changes: bool) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["publish", "--dry-run", "--locked", "--workspace"])
        .current_dir(root);
    for name in PRIVATE {
        command.args(["--exclude", name]);
    }
    if with_changes {
        command.arg("--allow-dirty");
    }
    run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// crates.io shows these fields, and refuses more than five keywords.
    #[test]
    fn every_published_crate_describes_itself() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("xtask is inside the workspace");
        let read = |path: &Path| std::fs::read_to_string(path).expect("the manifest is there");
        let shared = read(&root.join("Cargo.toml"));
        for key in ["keywords", "categories"] {
            let line = shared
                .lines()
                .find(|line| line.starts_with(&format!("{key} = [")))
                .unwrap_or_else(|| panic!("the workspace has no {key}"));
            assert!((1..=5).contains(&(line.matches('"').count() / 2)), "{line}");
        }
        assert!(shared.contains("\nreadme = \"README.md\"\n") && root.join("README.md").is_file());
        let mut published = 0;
        for entry in std::fs::read_dir(root.join("crates")).expect("the crates are there") {
            let dir = entry.expect("the entry can be read").path();
            let manifest = read(&dir.join("Cargo.toml"));
            if PRIVATE.iter().any(|name| dir.ends_with(name)) {
                continue;
            }
            published += 1;
            for line in [
                "description = \"",
                "readme.workspace = true",
                "keywords.workspace = true",
                "categories.workspace = true",
            ] {
                let has_line = manifest.lines().any(|own| own.starts_with(line));
                assert!(has_line, "{} lacks {line}", dir.display());
            }
        }
        assert!(published > 5, "only {published} crates were read");
    }
}
