//! Compares pages of the documentation with the program that they describe.

use std::path::Path;

use crate::world::World;

// The generator belongs to `cargo xtask reference`, which writes the same pages.
#[path = "../../../../xtask/src/reference/pages.rs"]
mod pages;

/// `UPDATE_GOLDEN=1` rewrites the pages, as `cargo xtask reference --write` does.
#[test]
fn the_reference_pages_describe_this_program() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let openapi = std::fs::read_to_string(docs.join("openapi.json")).unwrap();
    let pages = pages::pages(Path::new(env!("CARGO_BIN_EXE_regatta")), &openapi).unwrap();
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    for (name, text) in &pages {
        let path = docs.join("reference").join(name);
        if update {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == *text,
            "docs/reference/{name} is out of date: cargo xtask reference --write"
        );
    }
}

#[test]
fn plans_on_the_pages_have_no_problems() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let world = World::new();
    let mut count = 0;
    for page in ["plans.md", "quickstart.md", "recipes/three-agents.md"] {
        let text = std::fs::read_to_string(docs.join(page)).unwrap();
        for block in text.split("```toml\n").skip(1) {
            let plan = block.split("\n```").next().unwrap();
            if plan.contains("[[task]]") {
                count += 1;
                world.write_file("plan.toml", plan);
                let checked = world.run_ok(&["plan", "check", "plan.toml"]);
                assert!(checked.contains("no problems"), "{page}: {checked}\n{plan}");
            }
        }
    }
    assert!(count >= 3, "only {count} plans were found");
}
