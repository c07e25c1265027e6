//! The command `down`, which stops the daemon.

use std::time::{Duration, Instant};

use clap::Args;
use regatta_api::{call, input};

use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, command_error};
use crate::{client, daemon};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("down", &["regatta down", "regatta down --keep-agents"])];

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Let the agents keep running; the next daemon takes over their supervision
    #[arg(long)]
    pub(crate) keep_agents: bool,
}

/// The maximum time to wait until the daemon's process exits after it has released its data
/// directory.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `regatta down`.
pub(crate) fn down(app: &CommandContext, args: &DownArgs) -> CommandResult {
    let data_dir = daemon::DataDir::new(&app.data_dir()?);
    let Some(client) = Client::find(&data_dir.path, app.timeout())? else {
        record_stopped(app, &data_dir);
        return app.output.print_answer(
            "down",
            &serde_json::json!({ "was_up": false }),
            &["regatta up".into()],
            |_| "the daemon was not running\n".into(),
        );
    };
    // Record the stop before the daemon ends, so that no command that runs meanwhile starts a
    // daemon again.
    record_stopped(app, &data_dir);
    if let Err(error) = stop_daemon(&client, args.keep_agents) {
        if let Err(error) = data_dir.record_stopped(false) {
            app.output.print_note(&format!(
                "could not note that the daemon is still running: {error}"
            ));
        }
        return Err(error);
    }
    let message = if args.keep_agents {
        "down; the agents keep running\n"
    } else {
        "down; all work is kept\n"
    };
    app.output.print_answer(
        "down",
        &serde_json::json!({ "was_up": true }),
        &["regatta up".into()],
        |_| message.into(),
    )
}

/// Records in the data directory that a person has stopped the daemon, so that commands do not
/// start it again. If recording fails, for example on a full disk, the daemon is stopped
/// nevertheless.
fn record_stopped(app: &CommandContext, data_dir: &daemon::DataDir) {
    if let Err(error) = data_dir.record_stopped(true) {
        app.output.print_note(&format!(
            "could not note that the daemon was stopped, so the next regatta command starts it \
            again: {error}"
        ));
    }
}

/// Stops the daemon, and waits until it has released its data directory and its process has exited.
pub(crate) fn stop_daemon(client: &Client, keep_agents: bool) -> Result<(), CommandError> {
    let data_dir = client.data_dir();
    // Open a handle of the daemon's process before sending the request. While the handle is open,
    // no other process can get the same pid. If the daemon answers with the same pid, the handle
    // belongs to the daemon.
    let process = daemon::read_daemon_info(data_dir).and_then(|daemon_info| {
        Some((
            daemon_info.pid,
            daemon::open_process_handle(daemon_info.pid)?,
        ))
    });
    let pid: Option<CallReply<u32>> =
        client.call_while_up(call::Down(input::DownInput { keep_agents }))?;
    let deadline = Instant::now() + client::MAX_STOP_DURATION;
    // The daemon removes its address file when it ends. An address file that appears later belongs
    // to another daemon, which keeps running.
    let mut info_was_removed = false;
    while data_dir.is_locked()? {
        let info = daemon::read_daemon_info(data_dir);
        if info_was_removed && info.is_some() {
            break;
        }
        info_was_removed |= info.is_none();
        if Instant::now() > deadline {
            return Err(command_error(
                "io",
                "the daemon still runs 11 minutes after the request to stop",
                format!("read the daemon's log: {}", data_dir.log_path().display()),
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // The daemon releases the lock just before it exits. Wait for the exit too, because no process
    // may be left when `regatta down` returns (invariant P3).
    if let Some((_, process)) =
        process.filter(|process| pid.is_some_and(|reply| reply.data == process.0))
    {
        daemon::wait_for_exit(&process, EXIT_TIMEOUT);
    }
    Ok(())
}

/// Stops a daemon that runs in a temporary data directory (such as the demo's daemon), together
/// with its agents.
pub(crate) fn stop_separate_daemon(client: &Client) -> Result<(), CommandError> {
    stop_daemon(client, false)
}
