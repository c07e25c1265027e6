//! The command `events`, which prints the log of all changes.

use clap::Args;
use regatta_api::view::EventView;
use regatta_api::{call, input};

use crate::client::EventStreamItem;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, internal_error, sanitize};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "events",
    &[
        "regatta events --after 400",
        "regatta events --follow --json",
    ],
)];

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Revision (number of an event) after which to start (default: 0, the beginning)
    #[arg(long, value_name = "REVISION")]
    pub(crate) after: Option<u64>,
    /// Keep printing new events until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// Runs `regatta events`.
pub(crate) fn events(app: &CommandContext, args: &EventsArgs) -> CommandResult {
    let client = app.client()?;
    let out = &app.output;
    let after = args.after.unwrap_or(0);
    client.stream_events(after, args.follow, |seen| {
        if let EventStreamItem::Event(event) = seen {
            let text = if out.is_json {
                serde_json::to_string(&event).map_err(|error| {
                    internal_error(format!(
                        "could not encode event {} as JSON: {error}",
                        event.revision
                    ))
                })? + "\n"
            } else {
                event_line(&event).unwrap_or_default()
            };
            out.print(&text)?;
        }
        Ok(true)
    })
}

/// Formats an event as a line. Returns `None` for an event that only records that somebody asked
/// for a change.
pub(crate) fn event_line(event: &EventView) -> Option<String> {
    (!event.kind.starts_with("request.")).then(|| draw_event(event))
}

fn draw_event(event: &EventView) -> String {
    let time = event.time.get(11..19).unwrap_or(&event.time);
    let mut data = event.data.to_string();
    if data.len() > 160 {
        data = data.chars().take(159).chain(['…']).collect();
    }
    format!(
        "{:>7} {time} {:<18} {:<10} {}\n",
        event.revision,
        event.kind,
        event.subject,
        sanitize(&data)
    )
}

/// Returns the daemon's current revision, the number of the last event.
pub(crate) fn current_revision(client: &crate::client::Client) -> Result<u64, CommandError> {
    let reply = client.call(call::AgentList(input::EmptyInput {}))?;
    Ok(reply.revision)
}
