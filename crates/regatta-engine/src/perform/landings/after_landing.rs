//! Runs the commands that a project's settings name for the time after a landing, and the project's
//! release command. The landing queue does not wait for these commands.

use std::sync::Arc;
use std::time::Duration;

use regatta_core::bus::PostMessage;
use regatta_core::command::{Actor, Command, Report, Request};
use regatta_core::effect::EffectKey;
use regatta_core::ids::{ChannelName, CommitId, Label, ProjectName, TaskId};
use regatta_core::project::Project;
use regatta_core::task::IssueType;

use crate::ports::agents::CheckCommand;
use crate::ports::git::{ProjectRepo, UnreleasedCommit};
use crate::running_commands::CommandOwner;
use crate::{Engine, failpoint};

use super::super::{POLL_INTERVAL, report_effect};
use super::release::release;

/// A task that has landed, and the commit on the trunk that contains its work.
pub(crate) struct LandedTask {
    pub(crate) project: ProjectName,
    pub(crate) task: TaskId,
    pub(crate) commit: CommitId,
}

/// Performs `Effect::AfterLanding`: runs the commands of `[landing] after` and the release command,
/// each once. Stored records say which commands were started and how they ended, so that no command
/// runs twice after a restart.
pub(crate) fn after_landing(engine: &Engine, key: EffectKey, landed: &LandedTask) {
    failpoint::hit("after.begin");
    if let Some(project) = engine.board().projects.get(&landed.project).cloned() {
        let settings = &project.settings.landing;
        let mut commands = settings.after.iter().enumerate();
        let all_ran = commands.all(|(nth, command)| {
            let end = run_command_once(
                engine,
                &project,
                landed,
                (command, format!("after-{key}-{nth}")),
            );
            matches!(end, CommandEnd::Passed | CommandEnd::Failed)
        });
        if let Some(command) = &settings.release
            && all_ran
            && is_release_due(engine, &project, landed)
            && !release(engine, &project, landed, key, command)
        {
            return; // the daemon stops, and makes the release after its next start
        }
    }
    if engine.is_stopping() {
        // The next start of the daemon runs the commands that have not started, and reads how the
        // other commands ended.
        return;
    }
    failpoint::hit("after.ran");
    report_effect(engine, key, Report::Performed);
    failpoint::hit("after.recorded");
}

/// Returns whether a release is due: whether a feature or a fix has landed since the last tag.
pub(super) fn is_release_due(engine: &Engine, project: &Project, landed: &LandedTask) -> bool {
    match engine
        .shared
        .git
        .unreleased_commits(&ProjectRepo::from_project(project), &landed.commit)
    {
        Ok(commits) => commits.iter().any(|commit| {
            is_release_subject(&commit.subject) || landed_releasable_task(engine, commit)
        }),
        Err(error) => {
            let text = format!(
                "Could not find the unreleased commits after {} landed: {error}",
                landed.task
            );
            post_warning(engine, project, "coord:release", &text);
            is_releasable_task(engine, landed.task)
        }
    }
}

/// Returns whether a commit's subject marks a feature or a fix, such as `feat: …` or `fix(cart)!:
/// …`.
fn is_release_subject(subject: &str) -> bool {
    let Some((kind, _)) = subject.split_once(':') else {
        return false;
    };
    let kind = kind.trim_end_matches('!');
    let kind = match kind.split_once('(') {
        Some((name, scope)) if scope.ends_with(')') => name,
        _ => kind,
    };
    matches!(kind, "feat" | "fix")
}

/// Returns whether a commit on the trunk contains the work of a task that is a feature or a bug.
fn landed_releasable_task(engine: &Engine, commit: &UnreleasedCommit) -> bool {
    commit
        .task
        .as_ref()
        .and_then(|task| task.parse().ok())
        .is_some_and(|id| is_releasable_task(engine, id))
}

/// Returns whether a task is a feature or a bug. Landing other kinds of tasks does not make a
/// release due.
fn is_releasable_task(engine: &Engine, task: TaskId) -> bool {
    let task = engine.history().task(task).ok().flatten();
    task.is_some_and(|task| matches!(task.issue_type, IssueType::Feature | IssueType::Bug))
}

/// The ways in which a command that runs after a landing can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    Passed,
    /// The command that ran after the landing failed, and a message in the project's channel says
    /// so.
    Failed,
    /// A person stopped the command with `regatta stop` and the task's id.
    Stopped,
    /// The daemon stopped before the command ended. After its next start, the daemon runs the
    /// command or reads how the command ended.
    Interrupted,
}

/// Runs a command that must run at most once. If an earlier call already started the command, waits
/// for the command or reads how the command ended.
pub(super) fn run_command_once(
    engine: &Engine,
    project: &Arc<Project>,
    landed: &LandedTask,
    (command, once): (&str, String),
) -> CommandEnd {
    let check = CheckCommand {
        command: command.to_owned(),
        dir: ProjectRepo::from_project(project).path,
        env: vec![
            ("REGATTA_PROJECT".into(), project.name.to_string()),
            ("REGATTA_TASK".into(), landed.task.to_string()),
            ("REGATTA_COMMIT".into(), landed.commit.to_string()),
        ],
        timeout: Duration::from_millis(project.validation_timeout_ms),
        once_name: Some(once),
        // The command gets no sandbox, because a release command publishes and therefore needs
        // everything that the user can reach.
        sandbox: None,
    };
    let (result, stopped) = loop {
        let description = format!("`{command}` after it landed");
        let entry = engine
            .shared
            .commands
            .register(CommandOwner::Landed(landed.task), &description);
        let is_wanted = || engine.can_start() && entry.is_wanted();
        let result = engine
            .shared
            .agents
            .run_check_while(&check, &is_wanted)
            .transpose();
        let stopped = !entry.is_wanted();
        drop(entry);
        match result {
            Some(result) if engine.can_start() => break (result, stopped),
            None if stopped => return CommandEnd::Stopped,
            // A shutdown ended the command or prevented its start.
            _ if engine.is_stopping() => return CommandEnd::Interrupted,
            _ => std::thread::sleep(POLL_INTERVAL),
        }
    };
    let (end, text) = match result {
        Ok(result) if result.passed() => return CommandEnd::Passed,
        Ok(_) if stopped => (
            CommandEnd::Stopped,
            format!("`{command}` was stopped by a person."),
        ),
        Ok(result) => {
            let summary = regatta_core::check_output::summary(&result.output);
            (CommandEnd::Failed, format!("`{command}` failed: {summary}"))
        }
        Err(error) => (CommandEnd::Failed, format!("`{command}`: {error}")),
    };
    post_warning(
        engine,
        project,
        "coord:after",
        &format!("After {} landed, {text}", landed.task),
    );
    end
}

/// Posts a message to the project's channel, and also logs the text as a warning.
pub(super) fn post_warning(engine: &Engine, project: &Project, label: &str, text: &str) {
    tracing::warn!(project = %project.name, "a warning about the work after a landing in \
        project {}: {text}", project.name);
    post_message(engine, project, label, text);
}

/// Posts a message from Regatta to the project's channel. A failure is only logged.
pub(super) fn post_message(engine: &Engine, project: &Project, label: &str, text: &str) {
    let (Ok(channel), Ok(label)) = (ChannelName::new(project.name.as_str()), Label::new(label))
    else {
        return;
    };
    let post = PostMessage {
        channel,
        text: text.to_owned(),
        labels: vec![label],
        reply_to: None,
    };
    let request = Request {
        by: Actor::Regatta,
        key: None,
        command: Command::Post(post),
    };
    if let Err(failure) = engine.submit(request) {
        tracing::warn!(
            "could not post the message {text:?} to the channel of project {}: {failure}",
            project.name
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_or_a_fix_is_recognised_by_its_subjects_prefix() {
        for release_subject in [
            "feat: a cart",
            "fix(cart): totals",
            "feat!: gone",
            "fix(a b)!: c",
        ] {
            assert!(is_release_subject(release_subject), "{release_subject}");
        }
        for other_subject in [
            "feature: x",
            "fixes a: b",
            "chore: release",
            "fix it",
            "docs(feat): x",
            "fix(: x",
        ] {
            assert!(!is_release_subject(other_subject), "{other_subject}");
        }
    }
}
