//! The commands that only Regatta itself and its tests run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::commands::CommandContext;
use crate::completion;
use crate::output::{CommandError, CommandResult, command_error};

#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// Arguments of the command line up to the cursor
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ScriptedAgentArgs {
    /// Use the Agent Client Protocol on standard input and output
    #[arg(long)]
    pub(crate) acp: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcWorkerArgs {
    /// Path of the gc program
    #[arg(long, default_value = "gc")]
    pub(crate) gc: String,
    /// Name of a worker session that the program gc manages; gc is another manager of agents
    pub(crate) alias: String,
}

#[derive(Debug, Args)]
pub(crate) struct ShimArgs {
    /// Directory of the attempt to supervise
    pub(crate) args: Vec<OsString>,
}

/// Runs `regatta failpoints`, which tests use.
pub(crate) fn failpoints(app: &CommandContext) -> CommandResult {
    let points = regatta_engine::failpoint::POINTS;
    app.output.print_answer("failpoints", &points, &[], |_| {
        points.iter().map(|point| format!("{point}\n")).collect()
    })
}

/// Runs `regatta complete`, which the completion scripts of the shells call.
pub(crate) fn complete(app: &CommandContext, args: &CompleteArgs) -> CommandResult {
    app.output.print(&completion::completion_output(
        &app.data_dir()?,
        &args.words,
    ))
}

/// Runs `regatta scripted-agent`, the built-in agent that follows a script.
pub(crate) fn scripted_agent(args: &ScriptedAgentArgs) -> CommandResult {
    let mut stdout = std::io::stdout();
    if args.acp {
        let input = std::io::BufReader::new(std::io::stdin());
        return exit_result(regatta_agents::scripted::acp(None, input, &mut stdout));
    }
    let script = std::env::var_os(regatta_core::agent::SCRIPT_FILE).map(PathBuf::from);
    exit_result(regatta_agents::scripted::main(script, &mut stdout))
}

/// Runs `regatta gc-worker`, which passes a task to a worker of the external program `gc`.
pub(crate) fn gc_worker(args: &GcWorkerArgs) -> CommandResult {
    exit_result(regatta_agents::gc_program_worker::main(
        &args.gc,
        &args.alias,
        &mut std::io::stdin(),
        &mut std::io::stdout(),
    ))
}

/// Runs `regatta shim`, which supervises an agent's program, if its arguments are wrong. With
/// exactly one directory, `run_command_line` has already started the shim without parsing the
/// arguments.
pub(crate) fn shim(args: &ShimArgs) -> CommandResult {
    match args.args.first() {
        Some(dir) => exit_result(regatta_agents::shim::main(Path::new(dir))),
        None => Err(command_error(
            "usage",
            "regatta shim needs the directory of an attempt",
            "do not run this command by hand; the daemon runs it for each attempt",
        )),
    }
}

/// Converts the exit code of an internal command into a result. The command itself has already
/// printed its errors.
fn exit_result(code: ExitCode) -> CommandResult {
    if code == ExitCode::SUCCESS {
        Ok(())
    } else if code == ExitCode::from(2) {
        Err(CommandError::Exit(2))
    } else {
        Err(CommandError::Exit(1))
    }
}
