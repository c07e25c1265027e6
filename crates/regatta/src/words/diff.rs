//! Review: `diff` and `revise`. What finished work changes, in pages or in a program of the reader's, and what is said
//! to it.

use std::path::{Component, Path};

use regatta_api::view::{DiffView, ProjectView, TaskView};
use regatta_api::{Call, input};
use regatta_core::ids::{CommitId, TaskId};
use regatta_core::scope;
use regatta_engine::ports::git::{Git, Repo};

use crate::args;
use crate::client::{Client, Got};
use crate::out::{Failed, Out, Said, failed, line, plain, table};
use crate::pager;

use super::App;

pub(super) fn diff(app: &App, ask: &args::Diff) -> Said {
    let client = app.client()?;
    let got: Got<DiffView> =
        client.call(&Call::Diff(input::Diff { id: ask.id.clone(), since_review: ask.since_review }))?;
    let task: Got<TaskView> = client.call(&Call::Show(input::Id { id: got.data.task.to_string() }))?;
    let next = next(&task.data);
    if let Some(tool) = &ask.tool {
        let opened = open_in(app, &client, (&got.data, &task.data), tool.as_deref())?;
        return app.out.answer("diff", &got.data, &next, |_| format!("{opened}\n"));
    }
    let out = if ask.no_pager || ask.stat { app.out.clone() } else { app.out.in_pages() };
    out.answer("diff", &got.data, &next, |out| {
        let shown = if ask.stat { stat(&got.data.patch) } else { patch(out, &got.data) };
        format!("{shown}{}", remarks(&got.data, &task.data))
    })
}

/// Says what a diff is of, where it is not the work that lands, and what was left out of that work.
fn remarks(it: &DiffView, view: &TaskView) -> String {
    let mut text = String::new();
    if let Some(attempt) = it.attempt {
        text += &format!("this is what {attempt} left; {} {}\n", it.task, view.task.status.phrase());
    }
    let by = it.attempt.or_else(|| view.task.submission.as_ref().map(|work| work.attempt));
    if let Some(note) = by.and_then(|attempt| scope::left_out_note(&view.task, attempt)) {
        text += &format!("{}\n", line(&note));
    }
    text
}

/// What makes sense after a look, by where the task is.
fn next(it: &TaskView) -> Vec<String> {
    let id = it.task.id;
    match it.word.as_str() {
        "landed" => vec![format!("regatta undo {id}")],
        "done" => vec!["regatta status".into()],
        "failed" | "cancelled" => vec![format!("regatta retry {id}"), format!("regatta why {id}")],
        "landing" => vec!["regatta queue".into(), format!("regatta revise {id} -m WORDS")],
        // An attempt that changed nothing left nothing to land.
        "needs you" if it.task.submission.is_none() => vec![format!("regatta why {id}"), format!("regatta retry {id}")],
        "review" | "needs you" => {
            vec![format!("regatta land {id}"), format!("regatta revise {id} -m WORDS"), format!("regatta drop {id}")]
        }
        _ => vec![format!("regatta why {id}")],
    }
}

/// A patch as a person reads it. An agent's text: nothing in it may steer the terminal. Tabs are part of what is shown.
fn patch(out: &Out, it: &DiffView) -> String {
    if it.patch.is_empty() {
        return "nothing is different\n".into();
    }
    let mut inside = false;
    let mut text = String::with_capacity(it.patch.len());
    for it in it.patch.lines() {
        let shown = it.split('\t').map(plain).collect::<Vec<_>>().join("\t");
        if it.starts_with("diff --git ") {
            inside = false;
        }
        inside |= it.starts_with("@@");
        let style = match it.bytes().next() {
            Some(b'@') if inside => "36",
            Some(b'+') if inside => "32",
            Some(b'-') if inside => "31",
            _ if !inside => "1",
            _ => "",
        };
        text += &if style.is_empty() || shown.is_empty() { shown } else { out.paint(&shown, style) };
        text.push('\n');
    }
    text
}

/// How much of each file came and went, and of all.
pub(super) fn stat(patch: &str) -> String {
    let files = counted(patch);
    let row =
        |(name, added, gone): &(String, usize, usize)| vec![name.clone(), format!("+{added}"), format!("-{gone}")];
    let mut rows: Vec<Vec<String>> = files.iter().map(row).collect();
    if files.len() != 1 {
        let sum = |of: fn(&(String, usize, usize)) -> usize| files.iter().map(of).sum::<usize>();
        rows.push(row(&(format!("{} files", files.len()), sum(|it| it.1), sum(|it| it.2))));
    }
    table(&rows)
}

/// Each file of a patch: its path, harmless, and how many lines came and went.
fn counted(patch: &str) -> Vec<(String, usize, usize)> {
    regatta_api::patch::files(patch).into_iter().map(|it| (plain(&it.path), it.added, it.gone)).collect()
}

/// Programs that show two files side by side, where none was named.
const TOOLS: [&str; 3] = ["nvim -d", "vimdiff", "vim -d"];

/// The command line that is shown two files: what was typed, what the environment says, or an editor that is here.
fn tool(typed: Option<&str>, set: Option<String>, is_here: impl Fn(&str) -> bool) -> Option<String> {
    let named = typed.map(str::to_owned).or(set).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
    let known = || TOOLS.iter().find(|it| it.split(' ').next().is_some_and(&is_here)).map(|it| (*it).to_owned());
    named.or_else(known)
}

/// Opens each file before and after in a program, one after the other; what was done, in words.
fn open_in(
    app: &App,
    client: &Client,
    (it, task): (&DiffView, &TaskView),
    typed: Option<&str>,
) -> Result<String, Failed> {
    let id = it.task;
    let Some(tool) = tool(typed, std::env::var("REGATTA_DIFF_TOOL").ok(), pager::is_here) else {
        return Err(failed(
            "no_tool",
            "no program that shows two files is known here",
            format!("name one: regatta diff {id} --tool='meld', or set REGATTA_DIFF_TOOL"),
        ));
    };
    if app.global.server.is_some() {
        return Err(failed(
            "elsewhere",
            "the files are on the machine of the daemon, and not here",
            format!("see the change: regatta diff {id}; or open it on that machine"),
        ));
    }
    let projects: Got<Vec<ProjectView>> = client.call(&Call::ProjectList(input::Nothing {}))?;
    let repo = projects.data.into_iter().find(|it| it.name == task.task.project).and_then(super::repo_of);
    let Some(repo) = repo else {
        return Err(failed("no_project", format!("the project of {id} is gone"), format!("regatta diff {id}")));
    };
    let broken = |it: std::io::Error| failed("io", format!("files cannot be put down: {it}"), "look at TMPDIR");
    let place = tempfile::Builder::new().prefix(&format!("regatta-{id}-")).tempdir().map_err(broken)?;
    let git = crate::wire::git(&app.data_dir()?);
    let mut opened = Vec::new();
    // What was taken back since the last review is in the patch alone.
    let more = counted(&it.patch).into_iter().map(|it| it.0).filter(|path| !it.files.contains(path));
    for path in it.files.iter().cloned().chain(more) {
        let sides = [("before", &it.base), ("after", &it.commit)];
        let [before, after] =
            sides.map(|(name, commit)| put_down(&git, &repo, commit, &place.path().join(name), &path));
        let (Some(before), Some(after)) = (before?, after?) else { continue };
        if std::fs::read(&before).ok() == std::fs::read(&after).ok() {
            continue; // since the last review nothing happened to it
        }
        // The tool may come with arguments of its own, so the shell starts it; the files are no part of the line.
        let line = format!("{tool} \"$1\" \"$2\"");
        let ended = std::process::Command::new("sh").args(["-c", &line, "sh"]).arg(&before).arg(&after).status();
        let ended = ended.map_err(|it| failed("io", format!("{tool} cannot be started: {it}"), "name another"))?;
        if matches!(ended.code(), Some(126 | 127)) {
            let hint = format!("name another: regatta diff {id} --tool='COMMAND'");
            return Err(failed("no_tool", format!("{tool} cannot be started"), hint));
        }
        opened.push(path);
    }
    let many = if opened.len() == 1 { "1 file".to_owned() } else { format!("{} files", opened.len()) };
    Ok(format!("opened {many} of {id} in {}", line(&tool)))
}

/// Writes a file as a commit has it; an empty one where it has none. Nothing for a path that leads out of the place (S6).
fn put_down(
    git: &impl Git,
    repo: &Repo,
    commit: &CommitId,
    place: &Path,
    path: &str,
) -> Result<Option<std::path::PathBuf>, Failed> {
    if !Path::new(path).components().all(|it| matches!(it, Component::Normal(_))) {
        return Ok(None);
    }
    let bytes = git.file_at(repo, commit, path).map_err(|it| failed(it.code, it.what, it.hint))?.unwrap_or_default();
    let file = place.join(path);
    let written = file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&file, bytes));
    written.map_err(|it| failed("io", format!("{} cannot be written: {it}", file.display()), "look at TMPDIR"))?;
    Ok(Some(file))
}

pub(super) fn revise(app: &App, ask: &args::Revise) -> Said {
    let id = ask.id;
    let client = app.client()?;
    warn_of_strangers(app, &client, id, &ask.comment)?;
    let got: Got<TaskView> = client.call(&Call::Revise(input::Said { id: id.to_string(), text: said(ask) }))?;
    let (who, many) = (got.data.task.agent.as_ref().or(got.data.task.assignee.as_ref()), ask.comment.len());
    app.out.answer("revise", &got.data, &[format!("regatta why {id}"), "regatta watch".into()], |_| {
        let with = match many {
            0 => "your words".to_owned(),
            1 => "your comment".to_owned(),
            many => format!("your {many} comments"),
        };
        let to = who.map_or(String::new(), |it| format!(" to {it}"));
        format!("{id} goes back{to} with {with}; what was done is kept\n")
    })
}

/// The words, then a line for each comment, as the page sends them.
fn said(ask: &args::Revise) -> String {
    let words = Some(ask.words.join(" ")).filter(|it| !it.is_empty());
    let comments = ask.comment.iter().map(ToString::to_string);
    words.into_iter().chain(ask.message.iter().cloned()).chain(comments).collect::<Vec<_>>().join("\n")
}

/// Says which comments are about files that the work does not touch: that may be meant, or mistyped.
fn warn_of_strangers(app: &App, client: &Client, id: TaskId, comments: &[args::Comment]) -> Said {
    if comments.is_empty() {
        return Ok(());
    }
    let task: Got<TaskView> = client.call(&Call::Show(input::Id { id: id.to_string() }))?;
    let Some(work) = &task.data.task.submission else { return Ok(()) }; // it is refused in a moment, with a reason
    for it in comments.iter().filter(|it| !work.changed.contains(&it.path)) {
        app.out.note(&format!("note: {id} does not change {}; it is told all the same", line(&it.path)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n same\n-old\n+\tnew\u{1b}[2J\n\
        diff --git a/y.rs b/y.rs\nnew file mode 100644\n--- /dev/null\n+++ b/y.rs\n@@ -0,0 +1 @@\n+++ more\n";

    #[test]
    fn a_patch_is_counted_and_its_heads_are_not() {
        assert_eq!(counted(PATCH), [("x.rs".to_owned(), 1, 1), ("y.rs".to_owned(), 1, 0)]);
        assert_eq!(stat(PATCH), "x.rs     +1  -1\ny.rs     +1  -0\n2 files  +2  -1\n");
    }

    #[test]
    fn a_patch_has_colours_where_they_are_wanted_and_obeys_nothing() {
        let mut out = Out { json: false, quiet: 0, colour: false, hints: false, unicode: true, pager: None };
        let commit = CommitId::new(&"0".repeat(40)).unwrap();
        let view = DiffView {
            task: TaskId(1),
            base: commit.clone(),
            commit,
            files: vec![],
            attempt: None,
            left_out: vec![],
            patch: PATCH.to_owned(),
        };
        let text = patch(&out, &view);
        assert!(!text.contains('\x1b') && text.contains("+\tnew [2J\n"), "{text:?}");
        out.colour = true;
        let text = patch(&out, &view);
        for wanted in
            ["\x1b[31m-old\x1b[0m\n", "\x1b[32m+\tnew [2J\x1b[0m\n", "\x1b[1m+++ b/y.rs\x1b[0m\n", "\n same\n"]
        {
            assert!(text.contains(wanted), "{wanted:?} in {text:?}");
        }
        assert!(text.contains("\x1b[32m+++ more\x1b[0m"), "a line that looks like a head is none: {text:?}");
    }

    #[test]
    fn the_tool_is_the_one_that_was_named() {
        let none = |_: &str| false;
        assert_eq!(tool(Some("meld"), Some("kdiff3".into()), none).as_deref(), Some("meld"));
        assert_eq!(tool(None, Some("kdiff3".into()), none).as_deref(), Some("kdiff3"));
        assert_eq!(tool(None, Some(" ".into()), |it| it == "vim").as_deref(), Some("vim -d"));
        assert_eq!(tool(None, None, |_| true).as_deref(), Some("nvim -d"));
        assert_eq!(tool(None, None, none), None);
    }
}
