//! What a fix-up is told: what conflicts, whose both sides are, and what failed.

use regatta_core::ids::AgentName;
use regatta_core::task::{Fixup, Task};

use crate::Engine;
use crate::perform::Scene;

use super::sections;

/// The section of a fix-up; nothing in any other attempt.
pub(super) fn section(engine: &Engine, scene: &Scene) -> Option<String> {
    let fixup = scene.task.fixup.as_ref()?;
    let landed: Vec<Task> = sections::past(engine, scene).into_iter().filter(|it| it.landed.is_some()).collect();
    let mut text = match fixup.paths.is_empty() {
        false => conflict(fixup),
        true => "## FIX-UP\nThe work of this task is done and already in your working directory, merged with what \
                 landed since. Merged, it fails. Mend that, and keep what both meant.\n\n"
            .to_owned(),
    };
    if let Some(output) = &fixup.output {
        text +=
            &format!("What the checks of the merged tree say:\n```\n{}\n```\n\n", sections::last_chars(output, 6_000));
    }
    text += &owners(fixup, (&scene.task, &scene.attempt.agent), &landed);
    Some(text)
}

fn conflict(fixup: &Fixup) -> String {
    let mut text = format!(
        "## FIX-UP\nThe work of this task is done, but it conflicts with what landed since. It is merged in your working \
         directory as far as it merges. In the files below the trunk's side stands between `<<<<<<<` and `=======`, and \
         this task's between `=======` and `>>>>>>>`. Settle each so that both sides' purposes hold, and leave no mark. \
         Do not do the task again, and touch nothing else. `git show HEAD~1:PATH` is the trunk's version, \
         `git show {}:PATH` this task's; a file without marks has only one of them.\n",
        fixup.commit
    );
    for path in &fixup.paths {
        text += &format!("- {path}\n");
    }
    text + "\n"
}

/// Who is behind each side: this task, and what landed in these files before.
fn owners(fixup: &Fixup, (task, agent): (&Task, &AgentName), landed: &[Task]) -> String {
    let about = |other: &&Task| {
        let changed = other.submission.iter().flat_map(|it| &it.changed);
        let mut both = changed.filter(|it| fixup.paths.contains(it) || fixup.paths.is_empty());
        both.any(|path| !fixup.paths.is_empty() || task.files.iter().any(|it| it.matches(path)))
    };
    let mut text = format!("Whose sides these are:\n- yours: {} {} ({agent})\n", task.id, super::subject(task));
    for other in landed.iter().filter(about).take(8) {
        let commit = other.landed.as_ref().map(ToString::to_string).unwrap_or_default();
        let by = other.agent.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
        let manifest: Vec<String> = other.files.iter().map(ToString::to_string).collect();
        text += &format!(
            "- the trunk's: {} {}{by}, which owns {}: see `git show {commit}`\n",
            other.id,
            super::subject(other),
            if manifest.is_empty() { "no files of its own".to_owned() } else { manifest.join(", ") }
        );
    }
    text + "\n"
}
