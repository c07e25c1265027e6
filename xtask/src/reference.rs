//! Writes the pages of `docs/reference`, or checks that they are up to date.
//!
//! `cargo xtask reference --binary PATH` compares the pages with a built program;
//! with `--write` it replaces them.

mod pages;

use std::path::PathBuf;

use anyhow::Context;

use crate::args::Args;
use crate::report::workspace_root;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let usual = workspace_root().join("target/debug/regatta");
    let program = args.text("binary").map_or(usual, PathBuf::from);
    let openapi = std::fs::read_to_string(workspace_root().join("docs/openapi.json"))?;
    let pages = pages::pages(&program, &openapi)
        .with_context(|| format!("could not read the reference of {}", program.display()))?;
    let directory = workspace_root().join("docs/reference");
    std::fs::create_dir_all(&directory)?;
    let mut is_current = true;
    for (name, text) in &pages {
        let path = directory.join(name);
        if std::fs::read_to_string(&path).is_ok_and(|stored| stored == *text) {
            continue;
        }
        if args.flag("write") {
            std::fs::write(&path, text)?;
            println!("wrote {}", path.display());
        } else {
            println!(
                "{} is out of date: cargo xtask reference --write",
                path.display()
            );
            is_current = false;
        }
    }
    Ok(is_current)
}
