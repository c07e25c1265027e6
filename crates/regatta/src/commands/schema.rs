//! The command `schema`, which prints JSON Schemas of API calls and files.

use clap::Args;
use regatta_api::VERBS;

use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, format_table, internal_error, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("schema", &["regatta schema", "regatta schema plan"])];

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Schema to print: the name of an API call, such as task.add, or plan or config for these
    /// files; omit the name to list all schemas
    pub(crate) kind: Option<String>,
}

/// Runs `regatta schema`.
pub(crate) fn schema(app: &CommandContext, kind: Option<&str>) -> CommandResult {
    let Some(kind) = kind else {
        let kinds = crate::schema::schema_names();
        let help = |kind: &str| {
            VERBS
                .iter()
                .find(|verb| verb.name == kind)
                .map_or("", |verb| verb.help)
                .to_owned()
        };
        let rows: Vec<Vec<String>> = kinds
            .iter()
            .map(|kind| vec![kind.clone(), help(kind)])
            .collect();
        return app.output.print_answer(
            "schema",
            &kinds,
            &["regatta schema task.add".into()],
            |_| format_table(&rows),
        );
    };
    let Some(found) = crate::schema::schema_by_name(kind) else {
        return Err(usage_error(
            format!("there is no schema for {kind:?}"),
            "list all schemas: regatta schema",
        ));
    };
    let text = serde_json::to_string_pretty(&found)
        .map_err(|error| internal_error(format!("could not encode the schema as JSON: {error}")))?;
    app.output.print(&format!("{text}\n"))
}
