//! The page's table of states is generated from the table in core, so that both show the same
//! words and signs.

use regatta_core::display::DisplayState;

/// Returns `web/src/states.ts`.
fn states_file() -> String {
    let names: Vec<String> = DisplayState::ALL
        .iter()
        .map(|state| format!("'{}'", state.name()))
        .collect();
    let rows: String = DisplayState::ALL
        .iter()
        .map(|state| {
            format!(
                "  {}: {{ glyph: '{}', word: '{}', rank: {} }},\n",
                state.name(),
                state.glyph(),
                state.label(),
                state.rank()
            )
        })
        .collect();
    format!(
        "// Generated from regatta_core::display by `UPDATE_GOLDEN=1 cargo test -p xtask --test display_states`.\n\n\
         export type DisplayState = {};\n\n\
         /** How each state is shown, most urgent first. There is always a glyph and a word next to the colour. */\n\
         export const STATES: Record<DisplayState, {{ glyph: string; word: string; rank: number }}> = {{\n{rows}}};\n",
        names.join(" | ")
    )
}

#[test]
fn the_page_shows_the_states_of_core() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/src/states.ts");
    let generated = states_file();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &generated).expect("the file can be written");
    }
    let known = std::fs::read_to_string(path).expect("web/src/states.ts exists");
    assert_eq!(known, generated);
}
