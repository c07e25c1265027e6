//! Asks a person whether to start a plan, and returns the command that starts the plan later.

use std::io::Write;

use regatta_core::budget::format_dollars;
use regatta_core::ids::AgentName;
use regatta_core::shell_quote::quote;

use crate::commands::CommandContext;
use crate::commands::run::{RunArgs, RunModeArg};
use crate::output::{CommandError, command_error};

/// A person's answer when `run` asks whether to start the plan.
pub(crate) enum PlanDecision {
    Start,
    Edit,
    Cancel,
}

/// Asks the person whether to start the plan. With `--yes` or without a terminal, returns `Start`
/// without asking.
pub(crate) fn ask_decision(
    app: &CommandContext,
    editable: bool,
) -> Result<PlanDecision, CommandError> {
    if !app.can_ask() {
        return Ok(PlanDecision::Start);
    }
    if !editable {
        return Ok(if confirm("start it?")? {
            PlanDecision::Start
        } else {
            PlanDecision::Cancel
        });
    }
    let mut stderr = std::io::stderr();
    let _gone = write!(stderr, "start it? [Y] yes  [e] edit the plan  [n] no ");
    let _gone = stderr.flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer).map_err(|error| {
        command_error(
            "io",
            format!("could not read your answer: {error}"),
            "answer in advance with --yes",
        )
    })?;
    Ok(match answer.trim().to_ascii_lowercase().as_str() {
        "" if read > 0 => PlanDecision::Start,
        "y" | "yes" => PlanDecision::Start,
        "e" | "edit" => PlanDecision::Edit,
        _ => PlanDecision::Cancel,
    })
}

/// Asks the person a yes-or-no question. Returns true for yes and for an empty line.
pub(crate) fn confirm(question: &str) -> Result<bool, CommandError> {
    let mut stderr = std::io::stderr();
    let _gone = write!(stderr, "{question} [Y/n] ");
    let _gone = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| {
        command_error(
            "io",
            format!("could not read your answer: {error}"),
            "answer in advance with --yes",
        )
    })?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "" | "y" | "yes"
    ))
}

/// Returns the command that starts this plan with the same options.
pub(crate) fn run_again_command(args: &RunArgs, file: &std::path::Path) -> String {
    let mut line = format!("regatta run {}", quote(&file.display().to_string()));
    if !args.agents.is_empty() {
        let names: Vec<&str> = args.agents.iter().map(AgentName::as_str).collect();
        line += &format!(" --agents {}", names.join(","));
    }
    if let Some(team) = &args.team {
        line += &format!(" --team {team}");
    }
    if let Some(most) = args.budget {
        line += &format!(" --budget {}", format_dollars(most).trim_start_matches('$'));
    }
    match args.mode {
        Some(RunModeArg::Flow) => line += " --mode flow",
        Some(RunModeArg::Waves) => line += " --mode waves",
        None => {}
    }
    if let Some(many) = args.max_workers {
        line += &format!(" --max-workers {many}");
    }
    let flags = [
        (args.isolate, "isolate"),
        (args.wave_commits, "wave-commits"),
        (args.per_task_commits, "per-task-commits"),
    ];
    flags
        .iter()
        .filter(|flag| flag.0)
        .for_each(|flag| line += &format!(" --{}", flag.1));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_words_unchanged() {
        let words = [
            "",
            "plan.md",
            "my plan.md",
            "it's",
            "$HOME",
            "`id`",
            "a\nb",
            "~",
            "=ls",
            "A=b",
            "-n",
            "Grüße",
            r"\",
        ];
        let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let script = format!(
            "for it in {}; do printf '%s\\0' \"$it\"; done",
            line.join(" ")
        );
        let out = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        let back = String::from_utf8(out.stdout).unwrap();
        assert_eq!(
            back.split_terminator('\0').collect::<Vec<_>>(),
            words,
            "{script}"
        );
    }
}
