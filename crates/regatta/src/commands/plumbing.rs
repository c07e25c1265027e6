//! The commands `schema`, `completions`, `man`, `version`, `failpoints`, `backup`, `restore` and
//! `help`.

use std::path::{Path, PathBuf};

use regatta_api::input;
use regatta_api::{Call, VERBS};

use crate::args::EXIT_CODES;
use crate::client::{CallReply, Client};
use crate::output::{CommandResult, command_error, format_table, usage_error};
use crate::{command_line, completion, composition};

use super::CommandContext;

/// Runs `regatta schema`.
pub(super) fn schema(app: &CommandContext, kind: Option<&str>) -> CommandResult {
    let Some(kind) = kind else {
        let kinds = crate::schema::schema_names();
        let help = |kind: &str| {
            VERBS
                .iter()
                .find(|verb| verb.name == kind)
                .map_or("", |verb| verb.help)
                .to_owned()
        };
        let rows: Vec<Vec<String>> = kinds
            .iter()
            .map(|kind| vec![kind.clone(), help(kind)])
            .collect();
        return app.output.print_answer(
            "schema",
            &kinds,
            &["regatta schema task.add".into()],
            |_| format_table(&rows),
        );
    };
    let Some(found) = crate::schema::schema_by_name(kind) else {
        return Err(usage_error(
            format!("there is no schema for {kind:?}"),
            "list all schemas: regatta schema",
        ));
    };
    let text = serde_json::to_string_pretty(&found)
        .map_err(|error| command_error("bug", error.to_string(), "please report this"))?;
    app.output.print(&format!("{text}\n"))
}

/// Runs `regatta completions`.
pub(super) fn completions(app: &CommandContext, shell: clap_complete::Shell) -> CommandResult {
    if let Some(script) = completion::completion_script(shell) {
        return app.output.print(script);
    }
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut command_line::public_clap_command(),
        "regatta",
        &mut script,
    );
    app.output.print(&String::from_utf8_lossy(&script))
}

/// Renders one page of the manual. The first page also has the exit codes.
fn manual_page(name: &str, command: clap::Command) -> std::io::Result<Vec<u8>> {
    let is_first = name == "regatta";
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .title(name)
        .render(&mut page)?;
    if is_first {
        page.extend(b".SH \"EXIT STATUS\"\n");
        for line in EXIT_CODES.lines() {
            let (code, meaning) = line.trim().split_once(' ').unwrap_or((line, ""));
            page.extend(format!(".TP\n{code}\n{}\n", meaning.trim()).bytes());
        }
    }
    Ok(page)
}

/// Runs `regatta man`.
pub(super) fn man(app: &CommandContext, out: Option<PathBuf>) -> CommandResult {
    let io = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not write the manual: {error}"),
            "name a writable directory with --out",
        )
    };
    let mut command = command_line::public_clap_command();
    command.build();
    let Some(dir) = out else {
        let first = manual_page("regatta", command).map_err(io)?;
        return app.output.print(&String::from_utf8_lossy(&first));
    };
    std::fs::create_dir_all(&dir).map_err(io)?;
    let mut wrote = Vec::new();
    let mut open = vec![(String::from("regatta"), command)];
    while let Some((name, command)) = open.pop() {
        for below in command.get_subcommands() {
            open.push((format!("{name}-{}", below.get_name()), below.clone()));
        }
        let file = dir.join(format!("{name}.1"));
        std::fs::write(&file, manual_page(&name, command).map_err(io)?).map_err(io)?;
        wrote.push(file.display().to_string());
    }
    app.output.print_answer("man", &wrote, &[], |_| {
        format!("wrote {} pages to {}\n", wrote.len(), dir.display())
    })
}

/// Runs `regatta version`.
pub(super) fn version(app: &CommandContext) -> CommandResult {
    let version = env!("CARGO_PKG_VERSION");
    app.output.print_answer(
        "version",
        &serde_json::json!({ "version": version, "api": 1 }),
        &[],
        |_| format!("regatta {version}\n"),
    )
}

/// Runs `regatta failpoints`, which tests use.
pub(super) fn failpoints(app: &CommandContext) -> CommandResult {
    let points = regatta_engine::failpoint::POINTS;
    app.output.print_answer("failpoints", &points, &[], |_| {
        points.iter().map(|point| format!("{point}\n")).collect()
    })
}

/// Runs `regatta backup`. The daemon writes the file.
pub(super) fn backup(app: &CommandContext, file: &Path) -> CommandResult {
    let file = std::path::absolute(file)
        .map_err(|error| usage_error(error.to_string(), "name a new file"))?;
    let path = file
        .to_str()
        .ok_or_else(|| usage_error("the file's name is not valid UTF-8", "choose another name"))?
        .to_owned();
    let got: CallReply<String> = app.call(&Call::Backup(input::FileInput { path }))?;
    let data = serde_json::json!({ "file": got.data, "revision": got.revision });
    app.output.print_answer("backup", &data, &[], |_| {
        format!("wrote {} at revision {}\n", got.data, got.revision)
    })
}

/// Runs `regatta restore`. This process writes the store, so the daemon must be down.
pub(super) fn restore(app: &CommandContext, file: &Path) -> CommandResult {
    let data_dir = app.data_dir()?;
    if Client::find(&data_dir, app.timeout())?.is_some() {
        return Err(command_error(
            "in_use",
            "the daemon is running and uses the store that would be replaced",
            "stop it first: regatta down",
        ));
    }
    crate::daemon::DataDir::new(&data_dir).create()?;
    let unreadable: Vec<String> = composition::restore_store(file, &data_dir)?
        .iter()
        .map(ToString::to_string)
        .collect();
    let data = serde_json::json!({
        "file": file.display().to_string(),
        "data_dir": data_dir.display().to_string(),
        "unreadable": unreadable,
    });
    app.output
        .print_answer("restore", &data, &["regatta up".into()], |_| {
            let backups = data_dir.join("backups");
            let mut text = format!(
                "restored {}; the previous store is in {}\n",
                file.display(),
                backups.display()
            );
            for row in &unreadable {
                text += &format!("! the backup has an unreadable row, which was left out: {row}\n");
            }
            text
        })
}

/// Runs `regatta help`.
pub(super) fn help(app: &CommandContext, topic: &[String]) -> CommandResult {
    if topic == ["exit-codes"] {
        return app.output.print(EXIT_CODES);
    }
    let mut command = command_line::clap_command();
    command.build();
    let mut at = &mut command;
    for word in topic {
        at = at.find_subcommand_mut(word).ok_or_else(|| {
            usage_error(
                format!("there is no command {:?}", topic.join(" ")),
                "list all commands: regatta --help",
            )
        })?;
    }
    let text = at.render_long_help().to_string();
    app.output.print(&format!("{}\n", text.trim_end()))
}
