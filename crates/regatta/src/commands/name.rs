//! The command `name`: prints readable names that are not in use.

use regatta_api::{Call, input};

use crate::args::NameArgs;
use crate::client::CallReply;
use crate::output::CommandResult;

use super::CommandContext;

/// Prints names. In JSON, the answer is a string without a count, and a list with a count.
pub(super) fn name(app: &CommandContext, ask: NameArgs) -> CommandResult {
    let call = Call::Name(input::NameQuery {
        count: ask.count,
        prefix: ask.prefix,
    });
    if ask.count.is_none() {
        let got: CallReply<String> = app.call(&call)?;
        return app
            .output
            .print_answer("name", &got.data, &[], |_| format!("{}\n", got.data));
    }
    let got: CallReply<Vec<String>> = app.call(&call)?;
    app.output.print_answer("name", &got.data, &[], |_| {
        got.data.iter().map(|data| format!("{data}\n")).collect()
    })
}
