//! The command `rule`, which manages the standing rules of a project: rules that all work in it
//! must follow, such as "no `print!`".

use clap::{Args, Subcommand, ValueEnum};
use regatta_api::view::{RuleMatchView, RuleView};
use regatta_api::{Problem, call, input};
use regatta_core::ids::TaskId;
use regatta_core::project::{RuleAction, StandingRule};

use crate::client::CallReply;
use crate::commands::init::InitArgs;
use crate::commands::task::TaskTypeArg;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, command_error, first_line, format_table, usage_error};
use crate::plan;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("rule list", &["regatta rule list"]),
    (
        "rule test",
        &[
            "regatta rule test T7",
            "regatta rule test --files src/a.rs --line 'panic!()'",
        ],
    ),
    (
        "rule add",
        &[
            "regatta rule add no-panic --says 'return an error instead' --pattern 'panic!(' \
            --action block",
        ],
    ),
];

#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// List the standing rules
    List,
    /// Show which standing rules match a task, or match a change that you describe with options
    Test(RuleTestArgs),
    /// Add a standing rule to regatta.toml and apply it to the project
    Add(Box<RuleAddArgs>),
}

impl RuleCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, RuleCommand::List | RuleCommand::Test { .. })
    }
}

#[derive(Debug, Args)]
pub(crate) struct RuleTestArgs {
    /// Task to test, whose type and files are used
    pub(crate) task: Option<TaskId>,
    /// Type of the work, if no task is given
    #[arg(long = "type", value_enum, default_value_t = TaskTypeArg::Task)]
    pub(crate) issue_type: TaskTypeArg,
    /// Files that the work changes, such as src/**
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    pub(crate) files: Vec<String>,
    /// Line of text that the work adds to these files
    #[arg(long, value_name = "TEXT")]
    pub(crate) line: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RuleAddArgs {
    /// Name of the rule, such as no-print
    pub(crate) name: String,
    /// Message to agents whose work the rule matches
    #[arg(long, value_name = "TEXT")]
    pub(crate) says: String,
    /// Match only work of these types
    #[arg(long = "type", value_enum, num_args = 1..)]
    pub(crate) types: Vec<TaskTypeArg>,
    /// Match only work that changes these files, such as src/**
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    pub(crate) files: Vec<String>,
    /// Match only changes that add a line with this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) pattern: Option<String>,
    /// Effect of a match: block refuses the work, warn reports it, leave ignores it
    #[arg(long, value_enum, default_value_t = RuleActionArg::Warn)]
    pub(crate) action: RuleActionArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuleActionArg {
    Block,
    Warn,
    Leave,
}

impl From<RuleActionArg> for RuleAction {
    fn from(rule_action_arg: RuleActionArg) -> RuleAction {
        match rule_action_arg {
            RuleActionArg::Block => RuleAction::Block,
            RuleActionArg::Warn => RuleAction::Warn,
            RuleActionArg::Leave => RuleAction::Ignore,
        }
    }
}

/// Runs `regatta rule`.
pub(crate) fn rule(app: &CommandContext, command: RuleCommand) -> CommandResult {
    match command {
        RuleCommand::List => {
            let client = app.client()?;
            let reply: CallReply<Vec<RuleView>> =
                client.call(call::RuleList(input::ProjectFilter {
                    project: app.project(&client)?,
                }))?;
            app.output.print_answer("rule.list", &reply.data, &[], |_| {
                if reply.data.is_empty() {
                    "no standing rules; add one: regatta rule add NAME --says TEXT\n".into()
                } else {
                    format_table(
                        &reply
                            .data
                            .iter()
                            .map(|rule| rule_row(&rule.rule))
                            .collect::<Vec<_>>(),
                    )
                }
            })
        }
        RuleCommand::Test(ask) => test_rule(app, ask),
        RuleCommand::Add(ask) => add_rule(app, &ask),
    }
}

fn rule_row(rule: &StandingRule) -> Vec<String> {
    let action = format!("{:?}", rule.action).to_lowercase();
    let files = rule
        .files
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    let pattern = rule
        .pattern
        .as_ref()
        .map(|pattern| format!("{pattern:?}"))
        .unwrap_or_default();
    vec![
        first_line(&rule.name),
        action,
        files,
        first_line(&pattern),
        first_line(&rule.message),
    ]
}

fn test_rule(app: &CommandContext, args: RuleTestArgs) -> CommandResult {
    let files = plan::expand_patterns(&args.files).map_err(|message| {
        usage_error(
            message,
            "write the files as paths or patterns inside the repository, such as src/**",
        )
    })?;
    let client = app.client()?;
    let call = call::RuleTest(input::RuleTest {
        project: app.project(&client)?,
        task: args.task,
        issue_type: args.issue_type.into(),
        files,
        line: args.line,
    });
    let reply: CallReply<Vec<RuleMatchView>> = client.call(call)?;
    app.output.print_answer("rule.test", &reply.data, &[], |_| {
        if reply.data.is_empty() {
            return "no standing rule matches\n".into();
        }
        let row = |rule_match: &RuleMatchView| {
            vec![
                format!("{:?}", rule_match.action).to_lowercase(),
                format!("before {}", rule_match.before),
                first_line(&rule_match.words),
            ]
        };
        format_table(&reply.data.iter().map(row).collect::<Vec<_>>())
    })
}

/// Appends a `[[rule]]` to `regatta.toml` without changing the rest of the file, and sends the
/// settings to the daemon.
fn add_rule(app: &CommandContext, args: &RuleAddArgs) -> CommandResult {
    let rule = StandingRule {
        name: args.name.clone(),
        message: args.says.clone(),
        types: args
            .types
            .iter()
            .map(|task_type_arg| (*task_type_arg).into())
            .collect(),
        files: plan::expand_patterns(&args.files).map_err(|problem| {
            usage_error(
                problem,
                "write the files as paths or patterns inside the repository, such as src/**",
            )
        })?,
        pattern: args.pattern.clone(),
        action: args.action.into(),
    };
    let dir = app.working_dir()?;
    let facts = crate::composition::git_adapter(&app.data_dir()?)
        .inspect(&dir)
        .map_err(|error| command_error(error.code, error.message, error.hint))?;
    let file = facts.top.join("regatta.toml");
    let io = |error: std::io::Error| {
        command_error(
            "io",
            format!(
                "could not write the settings file {}: {error}",
                file.display()
            ),
            "check the permissions of the directory",
        )
    };
    let old_text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(io(error)),
    };
    if crate::settings::project_settings(&facts.top)?
        .rule
        .iter()
        .any(|standing_rule| standing_rule.name == rule.name)
    {
        return Err(Problem::new(
            409,
            "already_exists",
            format!("a standing rule named {:?} already exists", rule.name),
            "choose another name, or edit the rule in regatta.toml",
        )
        .into());
    }
    let new_text = with_rule(&old_text, &rule);
    if let Err(error) = toml::from_str::<toml::Table>(&new_text) {
        return Err(command_error(
            "bad_config",
            format!(
                "cannot add the rule, because {} is not valid TOML: {error}",
                file.display()
            ),
            "correct the file, then add the rule again",
        ));
    }
    // Write a new file and rename it, so that a crash never leaves half a file.
    let temp_file = facts.top.join(".regatta.toml.new");
    std::fs::write(&temp_file, &new_text)
        .and_then(|()| std::fs::rename(&temp_file, &file))
        .map_err(io)?;
    app.output
        .print_note(&format!("added to {}", file.display()));
    let args = InitArgs {
        offers_nothing: true,
        ..InitArgs::default()
    };
    crate::commands::init::init(app, &args)
}

/// Returns the text of a settings file with a `[[rule]]` section appended.
fn with_rule(old: &str, rule: &StandingRule) -> String {
    let quote = |s: &str| toml::Value::String(s.into()).to_string();
    let list = |items: Vec<String>| {
        format!(
            "[{}]",
            items
                .iter()
                .map(|item| quote(item))
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    let text_of = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut text = format!(
        "[[rule]]\nname = {}\nsays = {}\n",
        quote(&rule.name),
        quote(&rule.message)
    );
    if !rule.types.is_empty() {
        let types = rule
            .types
            .iter()
            .filter_map(|issue_type| serde_json::to_value(issue_type).ok())
            .map(text_of)
            .collect();
        text += &format!("types = {}\n", list(types));
    }
    if !rule.files.is_empty() {
        text += &format!(
            "files = {}\n",
            list(rule.files.iter().map(ToString::to_string).collect())
        );
    }
    if let Some(pattern) = &rule.pattern {
        text += &format!("pattern = {}\n", quote(pattern));
    }
    text += &format!(
        "action = {}\n",
        quote(&format!("{:?}", rule.action).to_lowercase())
    );
    let separator = if old.is_empty() || old.ends_with("\n\n") {
        ""
    } else if old.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    format!("{old}{separator}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::project::RuleAction;
    use regatta_core::task::IssueType;

    #[test]
    fn a_rule_is_appended_and_the_rest_of_the_file_is_kept() {
        let rule = StandingRule {
            name: "no \"print\"".into(),
            message: "log\ninstead".into(),
            types: vec![IssueType::Bug],
            files: vec![regatta_core::pattern::PathPattern::new("src/**").unwrap()],
            pattern: Some("print!(".into()),
            action: RuleAction::Block,
        };
        for old in [
            "",
            "# mine\n[project]\nname = \"shop\" # keep",
            "[run]\nattempts = 2\n\n",
        ] {
            let new = with_rule(old, &rule);
            assert!(new.starts_with(old));
            #[derive(serde::Deserialize)]
            struct File {
                rule: Vec<StandingRule>,
            }
            assert_eq!(
                toml::from_str::<File>(&new).unwrap().rule,
                std::slice::from_ref(&rule),
                "{new}"
            );
        }
    }
}
