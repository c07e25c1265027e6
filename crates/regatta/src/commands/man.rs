//! The command `man`, which prints the manual.

use regatta_core::plural;
use std::path::PathBuf;

use clap::Args;

use crate::args::EXIT_CODES;
use crate::command_line;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, command_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("man", &["regatta man | man -l -", "regatta man --out man/"])];

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory to write one manual page per command to (default: print one page)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Runs `regatta man`.
pub(crate) fn man(app: &CommandContext, out: Option<PathBuf>) -> CommandResult {
    let io = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not write the manual: {error}"),
            "name a writable directory with --out",
        )
    };
    let Some(dir) = out else {
        let mut command = command_line::public_clap_command();
        command.build();
        let page = manual_page("regatta", command).map_err(io)?;
        return app.output.print(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(&dir).map_err(io)?;
    let mut written = Vec::new();
    for (name, page) in manual_pages().map_err(io)? {
        let file = dir.join(name);
        std::fs::write(&file, page).map_err(io)?;
        written.push(file.display().to_string());
    }
    app.output.print_answer("man", &written, &[], |_| {
        format!(
            "wrote {} to {}\n",
            plural::count(written.len(), "page"),
            dir.display()
        )
    })
}

/// Renders the pages of the manual, one per command, with their file names.
pub(super) fn manual_pages() -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = command_line::public_clap_command();
    command.build();
    let mut pages = Vec::new();
    let mut pending = vec![(String::from("regatta"), command)];
    while let Some((name, command)) = pending.pop() {
        for below in command.get_subcommands() {
            pending.push((format!("{name}-{}", below.get_name()), below.clone()));
        }
        pages.push((format!("{name}.1"), manual_page(&name, command)?));
    }
    Ok(pages)
}

/// Renders one page of the manual. The page of `regatta` itself also lists the exit codes.
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
