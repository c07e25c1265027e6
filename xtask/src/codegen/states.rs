//! Generates the page's table of states from the table in core, so that both show the same words
//! and signs.

use regatta_core::display::DisplayState;

/// Returns `web/src/states.ts`.
pub(super) fn states_file() -> String {
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
        "// Generated from regatta_core::display by `cargo xtask codegen`. Do not edit.\n\n\
         import type {{ DisplayState }} from './api';\n\n\
         /** How each state is shown, most urgent first. There is always a glyph and a word next to the colour. */\n\
         export const STATES: Record<DisplayState, {{ glyph: string; word: string; rank: number }}> = {{\n{rows}}};\n"
    )
}
