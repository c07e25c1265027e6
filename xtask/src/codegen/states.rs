//! Generates the page's tables of states from the tables in core, so that both show the same words
//! and signs.

use regatta_core::display::{self, DisplayState, ItemDisplay};
use regatta_core::launch::{MemberActivity, MemberState};

/// Returns a table that gives each value of the type `kind` the state that people see.
fn member_table(kind: &str, table: &str, doc: &str, rows: &[(String, ItemDisplay)]) -> String {
    let rows: String = rows
        .iter()
        .map(|(key, shown)| {
            format!(
                "  {key}: {{ at: '{}', word: '{}' }},\n",
                shown.state.name(),
                shown.label
            )
        })
        .collect();
    format!(
        "\n/** {doc} */\n\
         export const {table}: Record<{kind}, {{ at: DisplayState; word: string }}> = {{\n{rows}}};\n"
    )
}

/// Returns a list of states in a given order.
fn state_list(list: &str, doc: &str, states: &[DisplayState]) -> String {
    let names: Vec<String> = states
        .iter()
        .map(|state| format!("'{}'", state.name()))
        .collect();
    let names = names.join(", ");
    format!("\n/** {doc} */\nexport const {list}: DisplayState[] = [{names}];\n")
}

fn member_activities() -> String {
    let row = |activity: MemberActivity| {
        let key = serde_json::to_value(activity).expect("an activity has a name");
        let key = key.as_str().expect("the name is a text").to_owned();
        (key, display::member_display(activity))
    };
    let rows: Vec<_> = MemberActivity::ALL.into_iter().map(row).collect();
    let doc = "How each activity of a team's member is shown.";
    member_table("MemberActivity", "MEMBER_ACTIVITIES", doc, &rows)
}

fn member_states() -> String {
    let row = |state: MemberState| {
        (
            state.name().to_owned(),
            display::member_entry_display(state),
        )
    };
    let rows: Vec<_> = MemberState::ALL.into_iter().map(row).collect();
    let doc = "How the state of a member in a launch of its team is shown.";
    member_table("MemberState", "MEMBER_STATES", doc, &rows)
}

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
         import type {{ DisplayState, MemberActivity, MemberState }} from './api';\n\n\
         /** How each state is shown, most urgent first. There is always a glyph and a word next to the colour. */\n\
         export const STATES: Record<DisplayState, {{ glyph: string; word: string; rank: number }}> = {{\n{rows}}};\n"
    ) + &state_list(
        "TASK_STATES",
        "The states of a task, in the order of a board's columns.",
        &DisplayState::OF_TASKS,
    ) + &state_list(
        "BUSY_AGENT_STATES",
        "The states of an agent with work, in the order in which charts stack them.",
        &DisplayState::OF_BUSY_AGENTS,
    ) + &state_list(
        "FREE_AGENT_STATES",
        "The states of an agent without work.",
        &DisplayState::OF_FREE_AGENTS,
    ) + &member_activities()
        + &member_states()
}
