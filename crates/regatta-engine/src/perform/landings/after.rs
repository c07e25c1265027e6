//! What follows a landing outside: the project's own commands, a release. None of it holds the queue up.

use std::sync::Arc;
use std::time::Duration;

use regatta_core::bus::Post;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::effect::EffectKey;
use regatta_core::ids::{ChannelName, CommitId, Label, ProjectName, TaskId};
use regatta_core::project::Project;
use regatta_core::task::IssueType;

use crate::ports::agents::Check;
use crate::ports::git::{Repo, Unreleased};
use crate::running_commands::CommandOwner;
use crate::{Engine, failpoint};

use super::super::{LOOK_UP, report};
use super::release::release;

/// What has landed.
pub(crate) struct Landed {
    pub(crate) project: ProjectName,
    pub(crate) task: TaskId,
    pub(crate) commit: CommitId,
}

/// Runs the commands of `[landing] after`, and the release, once each: a record under the effect's key says that one
/// has run, and what came of it.
pub(crate) fn after_landing(engine: &Engine, key: EffectKey, landed: &Landed) {
    failpoint::at("after.begin");
    if let Some(project) = engine.board().projects.get(&landed.project).cloned() {
        let settings = &project.settings.landing;
        let mut commands = settings.after.iter().enumerate();
        let all_ran = commands.all(|(nth, command)| {
            let end = run(engine, &project, landed, (command, format!("after-{key}-{nth}")));
            matches!(end, CommandEnd::Passed | CommandEnd::Failed)
        });
        if let Some(command) = &settings.release
            && all_ran
            && is_due(engine, &project, landed)
            && !release(engine, &project, landed, key, command)
        {
            return; // the daemon stops, and the next one asks again
        }
    }
    if engine.is_stopping() {
        return; // the next start runs what has not begun, and reads how the rest ended
    }
    failpoint::at("after.ran");
    report(engine, key, Command::ReportPerformed);
    failpoint::at("after.recorded");
}

/// Whether a release is due: a feature or a fix came after the last tag.
pub(super) fn is_due(engine: &Engine, project: &Project, landed: &Landed) -> bool {
    match engine.shared.git.unreleased(&Repo::of(project), &landed.commit) {
        Ok(Some(commits)) => commits.iter().any(|it| is_named_so(&it.subject) || is_asked_so(engine, it)),
        // What landed just now is known in any case.
        Ok(None) => is_released(engine, landed.task),
        Err(error) => {
            let text = format!("What is not released yet could not be found out after {}: {error}", landed.task);
            tell(engine, project, "coord:release", &text);
            is_released(engine, landed.task)
        }
    }
}

/// Whether a commit says by its first words that it is a feature or a fix: `feat: …`, `fix(cart)!: …`.
fn is_named_so(subject: &str) -> bool {
    let Some((kind, _)) = subject.split_once(':') else { return false };
    let kind = kind.trim_end_matches('!');
    let kind = kind.split_once('(').filter(|it| it.1.ends_with(')')).map_or(kind, |it| it.0);
    matches!(kind, "feat" | "fix")
}

/// Whether a commit landed a task that is one.
fn is_asked_so(engine: &Engine, commit: &Unreleased) -> bool {
    commit.task.as_ref().and_then(|it| it.parse().ok()).is_some_and(|it| is_released(engine, it))
}

/// Whether a task is something that a release is made for.
fn is_released(engine: &Engine, task: TaskId) -> bool {
    let task = engine.history().task(task).ok().flatten();
    task.is_some_and(|it| matches!(it.issue_type, IssueType::Feature | IssueType::Bug))
}

/// How a command that follows a landing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    Passed,
    /// It failed, and the project's channel was told.
    Failed,
    /// A person stopped it (`regatta stop` with the task's id).
    Stopped,
    /// The daemon ends. The next one runs it, or reads how it ended.
    Interrupted,
}

/// Runs a command once, or reads how it ended.
pub(super) fn run(
    engine: &Engine,
    project: &Arc<Project>,
    landed: &Landed,
    (command, once): (&str, String),
) -> CommandEnd {
    let check = Check {
        command: command.to_owned(),
        dir: Repo::of(project).path,
        env: vec![
            ("REGATTA_PROJECT".into(), project.name.to_string()),
            ("REGATTA_TASK".into(), landed.task.to_string()),
            ("REGATTA_COMMIT".into(), landed.commit.to_string()),
        ],
        timeout: Duration::from_millis(project.validation_timeout_ms),
        once: Some(once),
        // It publishes, so it reaches what the user reaches.
        shut_in: None,
    };
    let (result, stopped) = loop {
        let what = format!("`{command}` after it landed");
        let entry = engine.shared.commands.enter(CommandOwner::Landed(landed.task), &what);
        let wanted = || engine.may_start() && entry.is_wanted();
        let result = engine.shared.agents.check_while(&check, &wanted).transpose();
        let stopped = !entry.is_wanted();
        drop(entry);
        match result {
            Some(result) if engine.may_start() => break (result, stopped),
            None if stopped => return CommandEnd::Stopped,
            // `down` ended it, or kept it from beginning.
            _ if engine.is_stopping() => return CommandEnd::Interrupted,
            _ => std::thread::sleep(LOOK_UP),
        }
    };
    let (end, text) = match result {
        Ok(result) if result.passed() => return CommandEnd::Passed,
        Ok(_) if stopped => (CommandEnd::Stopped, format!("`{command}` was stopped by a person.")),
        Ok(result) => {
            let summary = regatta_core::failure::summary(&result.output);
            (CommandEnd::Failed, format!("`{command}` failed: {summary}"))
        }
        Err(error) => (CommandEnd::Failed, format!("`{command}`: {error}")),
    };
    tell(engine, project, "coord:after", &format!("After {} landed, {text}", landed.task));
    end
}

/// Posts a message to the project's channel, and logs it as a warning.
pub(super) fn tell(engine: &Engine, project: &Project, label: &str, text: &str) {
    tracing::warn!(project = %project.name, "{text}");
    post(engine, project, label, text);
}

/// Posts a message to the project's channel.
pub(super) fn post(engine: &Engine, project: &Project, label: &str, text: &str) {
    let (Ok(channel), Ok(label)) = (ChannelName::new(project.name.as_str()), Label::new(label)) else { return };
    let post = Post { channel, text: text.to_owned(), labels: vec![label], reply_to: None };
    let request = Request { by: Actor::Regatta, key: None, command: Command::Post(post) };
    if let Err(failure) = engine.submit(request) {
        tracing::warn!("it could not be posted: {failure:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_or_a_fix_is_known_by_its_first_words() {
        for yes in ["feat: a cart", "fix(cart): totals", "feat!: gone", "fix(a b)!: c"] {
            assert!(is_named_so(yes), "{yes}");
        }
        for no in ["feature: x", "fixes a: b", "chore: release", "fix it", "docs(feat): x", "fix(: x"] {
            assert!(!is_named_so(no), "{no}");
        }
    }
}
