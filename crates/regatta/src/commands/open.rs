//! The command `open`, which prints an address that opens the web page and signs the browser in.

use regatta_api::live_view::SignInView;
use regatta_api::{call, input};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::CommandResult;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("open", &["regatta open"])];

/// Runs `regatta open`. The part of the address after the `#` is a code that works once.
pub(crate) fn print_sign_in_url(app: &CommandContext) -> CommandResult {
    let reply: CallReply<SignInView> = app.call(call::Open(input::EmptyInput {}))?;
    let mut sign_in = reply.data;
    // With `--server`, print the address given there, because the daemon does not know the address
    // by which this machine reaches it.
    if let Some(server) = &app.global.server {
        sign_in.url = format!("{}/#{}", server.trim_end_matches('/'), sign_in.code);
    }
    app.output
        .print_answer("open", &sign_in, &[], |_| format!("{}\n", sign_in.url))
}
