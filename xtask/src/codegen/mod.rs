//! Writes the files of the web page that are generated from the program's own types.
//!
//! `cargo xtask codegen` writes them. `cargo test -p xtask --test codegen` fails while a file is out
//! of date.

mod states; // how each display state is drawn
mod typescript; // TypeScript types from JSON Schemas

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The checked-in schemas of the API (ADR 21), from which the page's types are generated.
const SCHEMAS: &str = "crates/regatta-api/src/schema/schemas.json";

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is inside the workspace")
        .to_owned()
}

/// Returns the path of each generated file inside the workspace, with its text.
pub(crate) fn generated_files() -> anyhow::Result<Vec<(&'static str, String)>> {
    let schemas = std::fs::read_to_string(workspace_root().join(SCHEMAS))
        .with_context(|| format!("could not read {SCHEMAS}"))?;
    Ok(vec![
        ("web/src/api.ts", typescript::api_file(&schemas)?),
        ("web/src/states.ts", states::states_file()),
    ])
}

/// Returns the generated files of which the stored text differs, with their new text.
pub(crate) fn outdated_files() -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut files = generated_files()?;
    files.retain(|(path, text)| {
        std::fs::read_to_string(workspace_root().join(path))
            .ok()
            .as_ref()
            != Some(text)
    });
    Ok(files)
}

/// Writes the files that are out of date.
pub(crate) fn run() -> anyhow::Result<()> {
    for (path, text) in outdated_files()? {
        std::fs::write(workspace_root().join(path), text)
            .with_context(|| format!("could not write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}
