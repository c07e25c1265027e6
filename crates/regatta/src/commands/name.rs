//! The command `name`, which prints readable names that no agent uses yet.

use clap::Args;
use regatta_api::{Call, input};

use crate::client::CallReply;
use crate::commands::CommandContext;
use crate::output::CommandResult;

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Number of names to print (default: 1)
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) count: Option<u16>,
    /// Text at the start of each name, such as shop-dev/
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
}

/// Runs `regatta name`. With `--json` the answer is a string, or a list if a count was given.
pub(crate) fn name(app: &CommandContext, args: NameArgs) -> CommandResult {
    let call = Call::Name(input::NameQuery {
        count: args.count,
        prefix: args.prefix,
    });
    if args.count.is_none() {
        let reply: CallReply<String> = app.call_as(&call)?;
        return app
            .output
            .print_answer("name", &reply.data, &[], |_| format!("{}\n", reply.data));
    }
    let reply: CallReply<Vec<String>> = app.call_as(&call)?;
    app.output.print_answer("name", &reply.data, &[], |_| {
        reply.data.iter().map(|data| format!("{data}\n")).collect()
    })
}
