//! Reads and draws the help texts of all commands.

use std::fmt::Write;
use std::io;

use super::escape;
use super::scratch::Scratch;

/// The help of one command.
pub(super) struct CommandHelp {
    name: String,
    text: String,
}

/// All commands: those of the short help and those for programs and rare use.
pub(super) struct CommandTree {
    pub(super) everyday: Vec<CommandHelp>,
    pub(super) plumbing: Vec<CommandHelp>,
}

impl CommandTree {
    pub(super) fn read(scratch: &Scratch) -> io::Result<CommandTree> {
        let help = scratch.run(&["--help"])?;
        let (top, rest) = help.split_once("\nPlumbing").unwrap_or((&help, ""));
        let top = top.lines().skip_while(|line| !line.starts_with("Start"));
        let mut everyday: Vec<String> = top.flat_map(names_in_help_line).collect();
        // The short help names some commands only in the description of another one.
        let manual = scratch.run(&["man"])?;
        for line in manual.lines() {
            let name = line
                .strip_prefix("regatta\\-")
                .and_then(|line| line.strip_suffix("(1)"));
            if let Some(name) = name.filter(|name| !everyday.iter().any(|known| known == name)) {
                everyday.push(name.to_owned());
            }
        }
        let plumbing = rest.lines().take_while(|line| !line.is_empty());
        let plumbing: Vec<String> = plumbing
            .flat_map(str::split_whitespace)
            .map(str::to_owned)
            .collect();
        if everyday.is_empty() || plumbing.is_empty() {
            return Err(io::Error::other("the help names no commands"));
        }
        let plumbing: Vec<String> = plumbing
            .into_iter()
            .filter(|name| !everyday.contains(name))
            .collect();
        Ok(CommandTree {
            everyday: read_helps(scratch, &everyday)?,
            plumbing: read_helps(scratch, &plumbing)?,
        })
    }
}

/// Returns the commands of a line such as `Start     up, down   start the daemon`.
fn names_in_help_line(line: &str) -> Vec<String> {
    const GROUP_COLUMNS: usize = 10;
    let names = line
        .get(GROUP_COLUMNS..)
        .and_then(|line| line.split("  ").next());
    let names = names.into_iter().flat_map(|names| names.split(", "));
    names.map(str::to_owned).collect()
}

fn read_helps(scratch: &Scratch, names: &[String]) -> io::Result<Vec<CommandHelp>> {
    let mut helps = Vec::new();
    for name in names.iter().filter(|name| *name != "help") {
        read_help(scratch, &[name], &mut helps)?;
    }
    Ok(helps)
}

/// Reads the help of a command and of its subcommands.
fn read_help(scratch: &Scratch, path: &[&str], helps: &mut Vec<CommandHelp>) -> io::Result<()> {
    let text = scratch.run(&[path, &["--help"]].concat())?;
    let subcommands: Vec<String> = text
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // Deeper lines continue a description.
        .filter_map(|line| {
            line.strip_prefix("  ")
                .filter(|line| !line.starts_with(' '))
        })
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    helps.push(CommandHelp {
        name: path.join(" "),
        text,
    });
    for name in &subcommands {
        read_help(scratch, &[path, &[name.as_str()]].concat(), helps)?;
    }
    Ok(())
}

pub(super) fn draw_helps(helps: &[CommandHelp]) -> String {
    let mut page = String::new();
    for CommandHelp { name, text } in helps {
        let (summary, details) = text.split_once("\n\n").unwrap_or((text, ""));
        let summary = summary.split_whitespace().collect::<Vec<_>>().join(" ");
        let level = if name.contains(' ') { "###" } else { "##" };
        let _ = write!(
            page,
            "\n{level} regatta {name}\n\n{}.\n\n```text\n{}\n```\n",
            escape(summary.trim_end_matches('.')),
            details.trim_end()
        );
    }
    page
}
