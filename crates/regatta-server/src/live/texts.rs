//! Formats facts of the web page as short texts: about files and queues.

use regatta_api::file_map;
use regatta_api::live_view::DisplayState;
use regatta_core::ids::AgentName;
use regatta_core::plural;

/// Returns a short text about a project's files: how many of them running work has claimed, how
/// many other work waits for, and how many changes landed today.
pub(super) fn files_text(cells: &[file_map::FileCell], landed: u32) -> String {
    let count = |is_counted: &dyn Fn(&file_map::FileCell) -> bool| {
        cells.iter().filter(|cell| is_counted(cell)).count()
    };
    let overlaps = count(&|cell| !cell.clashing_tasks.is_empty());
    let overlaps = if overlaps == 0 {
        String::new()
    } else {
        format!("{} with a conflict · ", plural::count(overlaps, "path"))
    };
    let (held_count, wanted_count) = (
        count(&|cell| !cell.held.is_empty()),
        count(&|cell| !cell.wanted.is_empty()),
    );
    format!(
        "{overlaps}{held_count} held · {wanted_count} waited for · {} landed today",
        plural::count(landed, "change")
    )
}

/// Returns a short text about a landing queue: its length and the usual time to land.
pub(super) fn queue_text(count: usize, median_ms: Option<u64>) -> String {
    let text = match count {
        0 => "nothing waits to land".to_owned(),
        count => format!("{count} queued"),
    };
    match median_ms.map(|ms| ms.div_ceil(1_000).max(1)) {
        None => text,
        Some(seconds @ 0..120) => format!("{text} · usual time to land: {seconds} s"),
        Some(seconds) => format!("{text} · usual time to land: {} min", seconds.div_ceil(60)),
    }
}

/// Returns a sentence about who acts next on work that left the landing queue. `activity` is the
/// present activity of the task, or the reason why it waits.
pub(super) fn next_step_text(state: DisplayState, agent: &AgentName, activity: &str) -> String {
    let detail = if activity.is_empty() {
        String::new()
    } else {
        format!(": {activity}")
    };
    match state {
        DisplayState::Working => format!("{agent} fixes it{detail}"),
        DisplayState::Waiting => format!("an agent fixes it when it can start{detail}"),
        DisplayState::Landing => format!("it is checked again{detail}"),
        _ => format!("you decide{detail}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_names_who_acts() {
        let agent = AgentName::new("codex-1").unwrap();
        let step = |state| next_step_text(state, &agent, "");
        assert_eq!(step(DisplayState::Working), "codex-1 fixes it");
        assert_eq!(step(DisplayState::Failed), "you decide");
        assert_eq!(
            next_step_text(DisplayState::Needs, &agent, "conflict in src/a.rs"),
            "you decide: conflict in src/a.rs"
        );
    }

    #[test]
    fn queue_text_has_the_duration_of_one_landing() {
        assert_eq!(queue_text(0, None), "nothing waits to land");
        assert_eq!(
            queue_text(2, Some(1_900)),
            "2 queued · usual time to land: 2 s"
        );
        assert_eq!(
            queue_text(1, Some(150_000)),
            "1 queued · usual time to land: 3 min"
        );
    }
}
