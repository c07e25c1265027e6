//! The command `runner`, which runs agents on this machine for a daemon on another machine, and
//! lists, drains and removes runners.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use regatta_api::view::RunnerView;
use regatta_api::{call, input};
use regatta_core::ids::{AgentName, AttemptId, RunnerName};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, command_error, format_age, format_table, usage_error,
};
use crate::runner::{self, RunnerSettings};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "runner",
        &[
            "regatta runner --server https://fleet.example:7777 --token-file box1.token \
            --max-tasks 3",
        ],
    ),
    ("runner list", &["regatta runner list"]),
    ("runner drain", &["regatta runner drain box1"]),
    ("runner rm", &["regatta runner rm box1"]),
];

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RunnerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunnerCommand>,
    /// File with the runner's access token; regatta token add NAME --scope runner prints the token
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// Name of the runner (default: this machine's name)
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<RunnerName>,
    /// Number of tasks to run at once, 1 to 20
    #[arg(long, value_name = "N", env = "MAX_CONCURRENT_TASKS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) max_tasks: u32,
    /// Agents to run, such as claude-1,codex-1 (default: all agents)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) agents: Vec<AgentName>,
    /// Labels of this runner, such as gpu; an agent with labels runs only on a runner that has all
    /// of them
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(crate) labels: Vec<String>,
    /// Maximum time that running work has for finishing when the runner is stopped, in milliseconds
    #[arg(
        long,
        value_name = "MS",
        env = "SHUTDOWN_TIMEOUT",
        default_value_t = 30_000
    )]
    pub(crate) shutdown_timeout: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    /// List runners
    List,
    /// Give a runner no new tasks; its running tasks continue, and it stays connected
    Drain {
        /// Runner to drain, such as build-box
        name: RunnerName,
    },
    /// Remove a runner that is not connected
    Rm {
        /// Runner to remove, such as build-box
        name: RunnerName,
    },
}

/// Runs `regatta runner`.
pub(crate) fn runner(app: &CommandContext, runner_args: RunnerArgs) -> CommandResult {
    match runner_args.command {
        Some(RunnerCommand::List) => list_runners(app),
        Some(RunnerCommand::Drain { name }) => {
            let _left: CallReply<Vec<AttemptId>> =
                app.call(call::RunnerDrain(input::RunnerNameInput {
                    name: name.clone(),
                }))?;
            let next = ["regatta runner list".to_owned()];
            app.output.print_answer("runner.drain", &name, &next, |_| {
                format!("{name} takes no new tasks; its running attempts continue\n")
            })
        }
        Some(RunnerCommand::Rm { name }) => {
            let _done = app.call(call::RunnerRm(input::RunnerNameInput {
                name: name.clone(),
            }))?;
            app.output
                .print_answer("runner.rm", &name, &[], |_| format!("removed {name}\n"))
        }
        None => run_attempts(app, runner_args),
    }
}

fn list_runners(app: &CommandContext) -> CommandResult {
    let reply: CallReply<Vec<RunnerView>> = app.call(call::RunnerList(input::EmptyInput {}))?;
    app.output.print_answer("runner.list", &reply.data, &[], |_| {
        if reply.data.is_empty() {
            return "no other runners; to add one, run on another machine: regatta runner --server \
                URL --token-file FILE\n"
                .into();
        }
        let row = |runner: &RunnerView| {
            let whom = match runner.agents.as_slice() {
                [] => "all agents".to_owned(),
                some => some
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            vec![
                runner.name.to_string(),
                runner.word.clone(),
                format!("{}/{}", runner.running, runner.max_tasks),
                whom,
                runner.labels.join(","),
                format!("last seen {} ago", format_age(runner.seen_wall)),
            ]
        };
        format_table(&reply.data.iter().map(row).collect::<Vec<_>>())
    })
}

/// Runs agents for a daemon on another machine, until this process is stopped.
fn run_attempts(app: &CommandContext, runner_args: RunnerArgs) -> CommandResult {
    let server = app.global.server.clone().ok_or_else(|| {
        usage_error(
            "a runner needs the address of the daemon that it works for",
            "add the address: regatta runner --server http://HOST:PORT --token-file FILE",
        )
    })?;
    let file = runner_args.token_file.ok_or_else(|| {
        usage_error(
            "a runner needs an access token for the daemon",
            "create a token on the daemon's machine: regatta token add NAME --scope runner; store \
             the token in a file and add --token-file FILE",
        )
    })?;
    let token = std::fs::read_to_string(&file).map_err(|error| {
        let hint =
            "create a token on the daemon's machine: regatta token add NAME --scope runner > FILE";
        command_error(
            "no_token",
            format!(
                "could not read the access token from the file {}: {error}",
                file.display()
            ),
            hint,
        )
    })?;
    let name = match runner_args.name {
        Some(name) => name,
        None => default_runner_name()?,
    };
    let settings = RunnerSettings {
        server,
        token: token.trim().to_owned(),
        ca_file: std::env::var_os("REGATTA_TLS_CA").map(Into::into),
        name,
        max_tasks: runner_args.max_tasks,
        agents: runner_args.agents,
        labels: runner_args.labels,
        shutdown_timeout: Duration::from_millis(runner_args.shutdown_timeout),
    };
    runner::run_runner(&app.output, &app.data_dir()?, settings)
}

/// Returns this machine's host name as the name of the runner. Fails if the host name is not a
/// valid name of a runner.
fn default_runner_name() -> Result<RunnerName, CommandError> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap_or_default()
        .trim()
        .to_lowercase();
    RunnerName::new(name.split('.').next().unwrap_or_default()).map_err(|error| {
        usage_error(
            format!("this machine's name cannot be the name of a runner: {error}"),
            "choose a name: --name build-box",
        )
    })
}
