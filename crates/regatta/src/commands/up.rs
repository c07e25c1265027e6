//! The command `up`, which starts the daemon in the background.

use std::path::Path;

use clap::Args;
use regatta_api::view::BridgeView;
use regatta_api::{call, input};

use crate::client::Client;
use crate::commands::down::stop_daemon;
use crate::commands::serve::ListenArgs;
use crate::commands::{CommandContext, CommandExamples};
use crate::daemon::RecoveredWork;
use crate::output::{CommandError, CommandResult, command_error, first_line, format_table};
use crate::{client, daemon};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("up", &["regatta up", "regatta up --restart"])];

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Replace the running daemon; its agents keep running
    #[arg(long)]
    pub(crate) restart: bool,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
}

/// Runs `regatta up`.
pub(crate) fn up(app: &CommandContext, args: &UpArgs) -> CommandResult {
    let data_dir = app.data_dir()?;
    if args.restart
        && let Some(client) = Client::find(&data_dir, app.timeout())?
    {
        stop_daemon(&client, true)?;
    }
    let was_up = Client::find(&data_dir, app.timeout())?.is_some();
    let flags = args.listen.flags();
    if was_up && !flags.is_empty() {
        return Err(command_error(
            "already_running",
            "the daemon is already running, so these options have no effect",
            "restart the daemon with these options; agents keep running: regatta up --restart …",
        ));
    }
    if !was_up {
        client::start_daemon(&data_dir, &flags)?;
    }
    let client = app.client()?;
    let info = daemon::read_daemon_info(client.data_dir()).ok_or_else(|| {
        command_error(
            "unreachable",
            "the daemon is running, but the file daemon.json with its address is missing",
            "restart the daemon: regatta up --restart",
        )
    })?;
    let bridges: Vec<BridgeView> = client.call(call::BridgeList(input::EmptyInput {}))?.data;
    let state = if was_up { "already up" } else { "up" };
    app.output
        .print_answer("up", &info, &["regatta status".into()], |_| {
            let recovered = info
                .recovered
                .as_ref()
                .filter(|_| !was_up)
                .map_or(String::new(), recovered_text);
            let public_address = info
                .outside
                .as_ref()
                .map_or(String::new(), |public_address| {
                    format!(" and {public_address}")
                });
            format!(
                "{state} at {}{public_address} (pid {})\n{recovered}{}",
                info.url,
                info.pid,
                disconnected_bridges_text(&bridges)
            )
        })
}

/// Returns a line for each bridge that is configured but off, with the reason. For example, a
/// bridge is off if its variables were only set in the environment of an earlier daemon.
fn disconnected_bridges_text(bridges: &[BridgeView]) -> String {
    let off = bridges
        .iter()
        .filter_map(|bridge| Some((&bridge.name, bridge.off.as_ref()?)));
    off.map(|(name, why)| format!("  bridge {name} is off: {}\n", first_line(why)))
        .collect()
}

/// Describes the work that the new daemon took over from the previous one, so that people see that
/// nothing is lost.
fn recovered_text(work: &RecoveredWork) -> String {
    let cause = if work.unclean {
        "recovered after an unclean stop"
    } else {
        "took over from the previous daemon"
    };
    let count = |number: usize, one: &str, more: &str| {
        format!("{number} {}", if number == 1 { one } else { more })
    };
    let mut facts = Vec::new();
    if work.attempts > 0 {
        let text = count(
            work.attempts,
            "was working and continues",
            "were working and continue",
        );
        facts.push(vec![
            "  agents".to_owned(),
            text + &names_text(&work.agents),
        ]);
    }
    if work.landings > 0 {
        let text = count(
            work.landings,
            "landing continues where it was",
            "landings continue where they were",
        );
        facts.push(vec!["  queue".to_owned(), text + &names_text(&work.queue)]);
    }
    if work.claims > 0 {
        facts.push(vec![
            "  claims".to_owned(),
            format!("{} held, each with its full TTL again", work.claims),
        ]);
    }
    facts.push(vec![
        "  tasks".to_owned(),
        format!("{} open", work.open_tasks),
    ]);
    format!("{cause}\n{}", format_table(&facts))
}

/// Returns the first eight names in brackets, and the number of further names.
fn names_text(all: &[String]) -> String {
    let more = if all.len() > 8 {
        format!(" and {} more", all.len() - 8)
    } else {
        String::new()
    };
    let first = all.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    if all.is_empty() {
        String::new()
    } else {
        format!(" ({first}{more})")
    }
}

/// Starts a daemon for a temporary data directory, such as the demo's directory. The daemon listens
/// on a free port.
pub(crate) fn start_separate_daemon(data_dir: &Path) -> Result<Client, CommandError> {
    client::start_daemon(data_dir, &["--listen".into(), "127.0.0.1:0".into()])?;
    Client::connect(data_dir, None, None, None)
}
