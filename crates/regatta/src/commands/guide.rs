//! The command `guide`, which prints instructions for agents that use Regatta.

use clap::Args;
use regatta_api::guide::{self, GUIDES};
use regatta_api::view::GuideView;

use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, format_table, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("guide", &["regatta guide", "regatta guide lead"])];

#[derive(Debug, Args)]
pub(crate) struct GuideArgs {
    /// Guide to print: triage, start, finish, landing or lead; omit the name to list the guides
    pub(crate) name: Option<String>,
}

/// Runs `regatta guide`.
pub(crate) fn guide(app: &CommandContext, name: Option<&str>) -> CommandResult {
    let view = |guide: &guide::Guide| GuideView {
        name: guide.name.into(),
        title: guide.title.into(),
        text: guide.text.into(),
    };
    let Some(name) = name else {
        let all: Vec<GuideView> = GUIDES.iter().map(view).collect();
        let next = ["regatta guide start".to_owned()];
        return app.output.print_answer("guide", &all, &next, |_| {
            format_table(
                &all.iter()
                    .map(|guide| vec![guide.name.clone(), guide.title.clone()])
                    .collect::<Vec<_>>(),
            )
        });
    };
    let names: Vec<&str> = GUIDES.iter().map(|guide| guide.name).collect();
    let found = guide::find_guide(name).ok_or_else(|| {
        usage_error(
            format!("there is no guide {name:?}"),
            format!("use one of these guides: {}", names.join(", ")),
        )
    })?;
    app.output
        .print_answer("guide", &view(found), &[], |_| found.text.to_owned())
}
