//! The command `name`, which prints readable names that no agent uses yet.

use clap::Args;
use regatta_api::view::NameAnswer;
use regatta_api::{call, input};

use crate::commands::{CommandContext, CommandExamples};
use crate::output::CommandResult;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("name", &["regatta name 3 --prefix shop-dev/"])];

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
    let answer = app
        .call(call::Name(input::NameQuery {
            count: args.count,
            prefix: args.prefix,
        }))?
        .data;
    let names = match &answer {
        NameAnswer::One(name) => name.as_slice(),
        NameAnswer::Many(names) => names,
    };
    app.output.print_answer("name", &answer, &[], |_| {
        names.iter().map(|name| format!("{name}\n")).collect()
    })
}
