//! The generated files of the page belong to the schemas and to the table of states.

#![allow(clippy::print_stdout, reason = "the command prints what it writes")]

#[path = "../src/codegen/mod.rs"]
#[allow(dead_code, reason = "the tests do not write the files")]
mod codegen;

#[test]
fn generated_files_are_up_to_date() {
    let outdated: Vec<&str> = codegen::outdated_files()
        .expect("schemas.json is readable")
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert!(
        outdated.is_empty(),
        "{outdated:?} are out of date: run cargo xtask codegen"
    );
}

#[test]
fn the_page_shows_the_states_of_core() {
    let files = codegen::generated_files().expect("schemas.json is readable");
    let (_, states) = files
        .iter()
        .find(|(path, _)| path.ends_with("states.ts"))
        .expect("the table of states is generated");
    for state in regatta_core::display::DisplayState::ALL {
        let row = format!("  {}: {{ glyph: '{}'", state.name(), state.glyph());
        assert!(states.contains(&row), "{row} is missing");
    }
}
