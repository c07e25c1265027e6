//! The command `diff`, which shows the changes in a task's finished work.

use std::path::{Component, Path};

use clap::Args;
use regatta_api::view::{DiffView, ProjectView, TaskView};
use regatta_api::{call, input};
use regatta_core::display::DisplayState;
use regatta_core::ids::CommitId;
use regatta_core::plural;
use regatta_core::scope_escape;
use regatta_engine::ports::git::{CommitGit, ProjectRepo};

use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, Output, command_error, first_line, format_table, sanitize,
};
use crate::pager;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("diff", &["regatta diff T7", "regatta diff T7 --stat"])];

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Task whose work to show; an attempt (run of an agent) such as A5 also shows changes that
    /// will not land
    pub(crate) id: String,
    /// Show only the changes since a person last sent the work back
    #[arg(long)]
    pub(crate) since_review: bool,
    /// Show only the numbers of added and removed lines per file
    #[arg(long)]
    pub(crate) stat: bool,
    /// Open each changed file in a diff program, such as --tool=meld (default: $REGATTA_DIFF_TOOL,
    /// or else vim)
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true, conflicts_with = "stat")]
    pub(crate) tool: Option<Option<String>>,
    /// Print without a pager (REGATTA_PAGER, GIT_PAGER and PAGER choose the pager)
    #[arg(long)]
    pub(crate) no_pager: bool,
}

/// Runs `regatta diff`.
pub(crate) fn diff(app: &CommandContext, args: &DiffArgs) -> CommandResult {
    let client = app.client()?;
    let reply: CallReply<DiffView> = client.call(call::Diff(input::DiffInput {
        id: args.id.clone(),
        since_review: args.since_review,
    }))?;
    let task = client.show_task(reply.data.task)?;
    let next = next_commands(&task);
    if let Some(tool) = &args.tool {
        let summary = open_in_tool(app, &client, &reply.data, &task, tool.as_deref())?;
        return app
            .output
            .print_answer("diff", &reply.data, &next, |_| format!("{summary}\n"));
    }
    let out = if args.no_pager || args.stat {
        app.output.clone()
    } else {
        app.output.with_pager()
    };
    out.print_answer("diff", &reply.data, &next, |out| {
        let body = if args.stat {
            draw_stat(&reply.data.patch)
        } else {
            format_patch(out, &reply.data)
        };
        format!("{body}{}", remarks(&reply.data, &task))
    })
}

/// Returns the remarks to print below a diff. They say if the diff shows the work of a single
/// attempt, and name the changed files that do not land with the task.
fn remarks(diff: &DiffView, view: &TaskView) -> String {
    let mut text = String::new();
    if let Some(by) = view.undone_by {
        text += &format!("{by} reverted these changes of {}\n", diff.task);
    }
    if let Some(attempt) = diff.attempt {
        text += &format!(
            "these are the changes of {attempt}; {} {}\n",
            diff.task,
            view.task.status.phrase()
        );
    }
    let attempt = diff
        .attempt
        .or_else(|| view.task.submission.as_ref().map(|work| work.attempt));
    if let Some(note) =
        attempt.and_then(|attempt| scope_escape::files_left_out_note(&view.task, attempt))
    {
        text += &format!("{}\n", first_line(&note));
    }
    text
}

/// Returns the commands that a person may want after reading the diff, depending on the state of
/// the task.
fn next_commands(task: &TaskView) -> Vec<String> {
    let id = task.task.id;
    if let Some(by) = task.undone_by {
        return vec![format!("regatta undo {by}")];
    }
    match task.at {
        DisplayState::Landed if task.task.landed.is_some() => vec![format!("regatta undo {id}")],
        DisplayState::Landed => vec!["regatta status".into()],
        DisplayState::Failed => vec![format!("regatta retry {id}"), format!("regatta why {id}")],
        DisplayState::Landing => vec![
            "regatta queue".into(),
            format!("regatta revise {id} -m TEXT"),
        ],
        DisplayState::Needs if task.asks.is_some() => vec!["regatta inbox".into()],
        // The task has no submitted work, so do not offer commands that land or revise work.
        DisplayState::Needs if task.task.submission.is_none() => {
            vec![format!("regatta why {id}"), format!("regatta retry {id}")]
        }
        DisplayState::Review | DisplayState::Needs => {
            vec![
                format!("regatta land {id}"),
                format!("regatta revise {id} -m TEXT"),
                format!("regatta drop {id}"),
            ]
        }
        _ => vec![format!("regatta why {id}")],
    }
}

/// Formats a patch for the terminal. Agents wrote its text, so control characters other than tabs
/// are removed.
fn format_patch(out: &Output, diff: &DiffView) -> String {
    if diff.patch.is_empty() {
        return "no changes\n".into();
    }
    let mut in_hunk = false;
    let mut text = String::with_capacity(diff.patch.len());
    for line in diff.patch.lines() {
        let clean = line
            .split('\t')
            .map(sanitize)
            .collect::<Vec<_>>()
            .join("\t");
        if line.starts_with("diff --git ") {
            in_hunk = false;
        }
        in_hunk |= line.starts_with("@@");
        let style = match line.bytes().next() {
            Some(b'@') if in_hunk => "36",
            Some(b'+') if in_hunk => "32",
            Some(b'-') if in_hunk => "31",
            _ if !in_hunk => "1",
            _ => "",
        };
        text += &if style.is_empty() || clean.is_empty() {
            clean
        } else {
            out.paint(&clean, style)
        };
        text.push('\n');
    }
    text
}

/// Draws the numbers of added and removed lines, per file and in total.
pub(crate) fn draw_stat(patch: &str) -> String {
    let files = count_lines(patch);
    let row = |(name, added, gone): &(String, usize, usize)| {
        vec![name.clone(), format!("+{added}"), format!("-{gone}")]
    };
    let mut rows: Vec<Vec<String>> = files.iter().map(row).collect();
    if files.len() != 1 {
        let sum = |of: fn(&(String, usize, usize)) -> usize| files.iter().map(of).sum::<usize>();
        rows.push(row(&(
            plural::count(files.len(), "file"),
            sum(|row| row.1),
            sum(|row| row.2),
        )));
    }
    format_table(&rows)
}

/// Returns each file of a patch: its path without control characters, and the numbers of added and
/// removed lines.
fn count_lines(patch: &str) -> Vec<(String, usize, usize)> {
    regatta_api::patch::files_in_patch(patch)
        .into_iter()
        .map(|patch_file| {
            (
                sanitize(&patch_file.path),
                patch_file.added,
                patch_file.removed,
            )
        })
        .collect()
}

/// Programs that show two files side by side. If the person chose no program, the first program in
/// this list that is installed is used.
const DIFF_TOOLS: [&str; 3] = ["nvim -d", "vimdiff", "vim -d"];

/// Returns the diff program's command line: from the option, from `REGATTA_DIFF_TOOL`, or an
/// installed editor.
fn choose_tool(
    option: Option<&str>,
    variable: Option<String>,
    is_installed: impl Fn(&str) -> bool,
) -> Option<String> {
    let chosen = option
        .map(str::to_owned)
        .or(variable)
        .map(|option| option.trim().to_owned())
        .filter(|option| !option.is_empty());
    let installed_editor = || {
        DIFF_TOOLS
            .iter()
            .find(|command| command.split(' ').next().is_some_and(&is_installed))
            .map(|command| (*command).to_owned())
    };
    chosen.or_else(installed_editor)
}

/// Opens each changed file in a diff program, one after the other. Returns a sentence that names
/// the opened files.
fn open_in_tool(
    app: &CommandContext,
    client: &Client,
    diff: &DiffView,
    task: &TaskView,
    option: Option<&str>,
) -> Result<String, CommandError> {
    let id = diff.task;
    let Some(tool) = choose_tool(
        option,
        std::env::var("REGATTA_DIFF_TOOL").ok(),
        pager::is_installed,
    ) else {
        return Err(command_error(
            "no_tool",
            "no diff program was found",
            format!("choose a program: regatta diff {id} --tool='meld', or set REGATTA_DIFF_TOOL"),
        ));
    };
    if app.global.server.is_some() {
        return Err(command_error(
            "elsewhere",
            "the files are on the daemon's machine, so a diff program on this machine cannot open \
             them",
            format!("print the changes: regatta diff {id}; or run this command on that machine"),
        ));
    }
    let projects: CallReply<Vec<ProjectView>> =
        client.call(call::ProjectList(input::EmptyInput {}))?;
    let repo = projects
        .data
        .into_iter()
        .find(|project| project.name == task.task.project)
        .and_then(crate::commands::project_repo);
    let Some(repo) = repo else {
        return Err(command_error(
            "no_project",
            format!(
                "could not open the changes of {id} in another tool, because the project of {id} no longer exists"
            ),
            format!("print the changes instead: regatta diff {id}"),
        ));
    };
    let temp_dir_error = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not write temporary files: {error}"),
            "check that TMPDIR names a directory you can write",
        )
    };
    let temp_dir = tempfile::Builder::new()
        .prefix(&format!("regatta-{id}-"))
        .tempdir()
        .map_err(temp_dir_error)?;
    let git = crate::composition::git_adapter(&app.data_dir()?);
    let mut opened = Vec::new();
    // A file whose changes were reverted since the last review is missing in `diff.files`, so take
    // its path from the patch.
    let reverted = count_lines(&diff.patch)
        .into_iter()
        .map(|(path, _, _)| path)
        .filter(|path| !diff.files.contains(path));
    for path in diff.files.iter().cloned().chain(reverted) {
        let sides = [("before", &diff.base), ("after", &diff.commit)];
        let [before, after] = sides.map(|(name, commit)| {
            write_file_of_commit(&*git, &repo, commit, &temp_dir.path().join(name), &path)
        });
        let (Some(before), Some(after)) = (before?, after?) else {
            continue;
        };
        if std::fs::read(&before).ok() == std::fs::read(&after).ok() {
            continue; // unchanged since the last review
        }
        // The command of the diff program may contain arguments, so a shell starts the program. The
        // paths of the two files are passed as `$1` and `$2`, so that the shell does not interpret
        // them.
        let line = format!("{tool} \"$1\" \"$2\"");
        let status = std::process::Command::new("sh")
            .args(["-c", &line, "sh"])
            .arg(&before)
            .arg(&after)
            .status();
        let status = status.map_err(|error| {
            command_error(
                "io",
                format!("could not start the diff program {tool}: {error}"),
                "choose another program: --tool=COMMAND",
            )
        })?;
        if matches!(status.code(), Some(126 | 127)) {
            let hint = format!("choose another program: regatta diff {id} --tool='COMMAND'");
            return Err(command_error(
                "no_tool",
                format!("could not start the diff program {tool}"),
                hint,
            ));
        }
        opened.push(path);
    }
    let count_text = plural::count(opened.len(), "file");
    Ok(format!(
        "opened {count_text} of {id} in {}",
        first_line(&tool)
    ))
}

/// Writes the file `path` of a commit below `dir`, or an empty file if the commit contains no such
/// file. Returns `None` for a path that would leave `dir` (invariant S6).
fn write_file_of_commit(
    git: &dyn CommitGit,
    repo: &ProjectRepo,
    commit: &CommitId,
    dir: &Path,
    path: &str,
) -> Result<Option<std::path::PathBuf>, CommandError> {
    if !Path::new(path)
        .components()
        .all(|component| matches!(component, Component::Normal(_)))
    {
        return Ok(None);
    }
    let bytes = git
        .file_at(repo, commit, path)
        .map_err(|error| command_error(error.code, error.message, error.hint))?
        .unwrap_or_default();
    let file = dir.join(path);
    let result = file
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&file, bytes));
    result.map_err(|error| {
        command_error(
            "io",
            format!(
                "could not write the temporary file {}: {error}",
                file.display()
            ),
            "check that TMPDIR names a directory you can write",
        )
    })?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n \
        same\n-old\n+\tnew\u{1b}[2J\n\
        diff --git a/y.rs b/y.rs\nnew file mode 100644\n--- /dev/null\n+++ b/y.rs\n@@ -0,0 +1 \
        @@\n+++ more\n";

    #[test]
    fn stat_counts_changed_lines_without_patch_headers() {
        assert_eq!(
            count_lines(PATCH),
            [("x.rs".to_owned(), 1, 1), ("y.rs".to_owned(), 1, 0)]
        );
        assert_eq!(
            draw_stat(PATCH),
            "x.rs     +1  -1\ny.rs     +1  -0\n2 files  +2  -1\n"
        );
    }

    #[test]
    fn a_patch_is_coloured_on_request_and_has_no_control_characters() {
        let mut out = Output {
            is_json: false,
            quiet_level: 0,
            has_colour: false,
            has_hints: false,
            is_unicode: true,
            pager: None,
            program: None,
        };
        let commit = CommitId::new(&"0".repeat(40)).unwrap();
        let view = DiffView {
            task: regatta_core::ids::TaskId(1),
            base: commit.clone(),
            commit,
            files: vec![],
            attempt: None,
            left_out: vec![],
            patch: PATCH.to_owned(),
        };
        let text = format_patch(&out, &view);
        assert!(
            !text.contains('\x1b') && text.contains("+\tnew [2J\n"),
            "{text:?}"
        );
        out.has_colour = true;
        let text = format_patch(&out, &view);
        for wanted in [
            "\x1b[31m-old\x1b[0m\n",
            "\x1b[32m+\tnew [2J\x1b[0m\n",
            "\x1b[1m+++ b/y.rs\x1b[0m\n",
            "\n same\n",
        ] {
            assert!(text.contains(wanted), "{wanted:?} in {text:?}");
        }
        assert!(
            text.contains("\x1b[32m+++ more\x1b[0m"),
            "an added line that looks like a header is coloured as added: {text:?}"
        );
    }

    #[test]
    fn the_option_and_the_environment_choose_the_diff_tool_before_editors() {
        let none = |_: &str| false;
        assert_eq!(
            choose_tool(Some("meld"), Some("kdiff3".into()), none).as_deref(),
            Some("meld")
        );
        assert_eq!(
            choose_tool(None, Some("kdiff3".into()), none).as_deref(),
            Some("kdiff3")
        );
        assert_eq!(
            choose_tool(None, Some(" ".into()), |s| s == "vim").as_deref(),
            Some("vim -d")
        );
        assert_eq!(
            choose_tool(None, None, |_| true).as_deref(),
            Some("nvim -d")
        );
        assert_eq!(choose_tool(None, None, none), None);
    }
}
