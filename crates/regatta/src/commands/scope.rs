//! The commands `scope`, `rule` and `logs --check`: scope escapes, standing rules and the output of
//! checks.

use regatta_api::input;
use regatta_api::view::{CheckResultView, EscapeView, RuleMatchView, RuleView, TaskView};
use regatta_api::{Call, Problem};
use regatta_core::attempt::Attempt;
use regatta_core::project::StandingRule;

use crate::args::{InitArgs, RuleAddArgs, RuleCommand, RuleTestArgs, ScopeCommand};
use crate::client::CallReply;
use crate::output::{
    CommandResult, command_error, first_line, format_table, sanitize, usage_error,
};
use crate::plan;

use super::CommandContext;

/// Runs `regatta scope`.
pub(super) fn scope(app: &CommandContext, word: Option<ScopeCommand>) -> CommandResult {
    match word {
        None | Some(ScopeCommand::List) => list_escapes(app),
        Some(ScopeCommand::FollowUp { id }) => {
            let got: CallReply<TaskView> =
                app.call(&Call::ScopeFollow(input::IdInput { id: id.clone() }))?;
            let task = &got.data.task;
            app.output.print_answer(
                "scope.follow",
                &got.data,
                &[format!("regatta show {}", task.id)],
                |_| {
                    format!(
                        "{} is the follow-up task of {id}: {}\n",
                        task.id,
                        first_line(&task.subject)
                    )
                },
            )
        }
    }
}

fn list_escapes(app: &CommandContext) -> CommandResult {
    let client = app.client()?;
    let got: CallReply<Vec<EscapeView>> = client.call(&Call::ScopeList(input::ProjectFilter {
        project: app.project(&client)?,
    }))?;
    let open: Vec<String> = got
        .data
        .iter()
        .filter(|escape| escape.follow_up.is_none())
        .map(|escape| escape.id.clone())
        .collect();
    let next: Vec<String> = open
        .first()
        .map(|open| format!("regatta scope follow-up {open}"))
        .into_iter()
        .collect();
    app.output
        .print_answer("scope.list", &got.data, &next, |_| {
            if got.data.is_empty() {
                return "no scope escapes\n".into();
            }
            let rows: Vec<Vec<String>> = got
                .data
                .iter()
                .map(|escape| {
                    let taken = escape
                        .follow_up
                        .map_or(String::new(), |task| format!("follow-up {task}"));
                    let files = escape.escape.suggested_files.join(" ");
                    vec![
                        escape.id.clone(),
                        escape.escape.worker.to_string(),
                        first_line(&escape.escape.finding),
                        first_line(&files),
                        taken,
                    ]
                })
                .collect();
            format_table(&rows)
        })
}

/// Prints the output of the checks of an attempt's work. For a task, prints the checks of its last
/// checked attempt, and the queue's checks if they sent the work back.
pub(super) fn print_checks(app: &CommandContext, id: &str) -> CommandResult {
    let client = app.client()?;
    let named = super::logs::attempt_of(&client, id)?;
    let attempt: Attempt = client
        .call_on_new_thread(Call::Show(input::IdInput {
            id: named.to_string(),
        }))?
        .data;
    let task: TaskView = client
        .call_on_new_thread(Call::Show(input::IdInput {
            id: attempt.task.to_string(),
        }))?
        .data;
    let names_task = !id.contains(&named.to_string());
    let earlier = task
        .attempts
        .iter()
        .rev()
        .map(|attempt| attempt.id)
        .filter(|_| names_task);
    let mut found: Vec<CheckResultView> = Vec::new();
    for attempt in std::iter::once(named).chain(earlier) {
        found = app
            .call(&Call::Checks(input::AttemptChecksInput { attempt }))?
            .data;
        if !found.is_empty() {
            break;
        }
    }
    if let Some(output) = task
        .task
        .fixup
        .and_then(|fixup| fixup.output)
        .filter(|_| names_task)
    {
        let (check, how) = (
            "the queue's checks".to_owned(),
            "on the work merged with the current trunk".to_owned(),
        );
        found.push(CheckResultView {
            check,
            passed: false,
            how,
            output,
            ms: 0,
        });
    }
    app.output.print_answer("attempt.checks", &found, &[], |_| {
        if found.is_empty() {
            return format!("no check output of {named} was stored\n");
        }
        found.iter().fold(String::new(), |text, check_result| {
            let word = if check_result.passed {
                "passed"
            } else {
                "failed"
            };
            let seconds = check_result.ms as f64 / 1_000.0;
            let output = sanitize(check_result.output.trim_end());
            let output = if output.is_empty() {
                output
            } else {
                format!("{output}\n")
            };
            text + &format!(
                "{word}  {}  {seconds:.1} s  {}\n{output}",
                first_line(&check_result.check),
                first_line(&check_result.how)
            )
        })
    })
}

/// Runs `regatta rule`.
pub(super) fn rule(app: &CommandContext, word: RuleCommand) -> CommandResult {
    match word {
        RuleCommand::List => {
            let client = app.client()?;
            let got: CallReply<Vec<RuleView>> =
                client.call(&Call::RuleList(input::ProjectFilter {
                    project: app.project(&client)?,
                }))?;
            app.output
                .print_answer("rule.list", &got.data, &[], |_| match got.data.is_empty() {
                    true => {
                        "no standing rules; add one: regatta rule add NAME --says TEXT\n".into()
                    }
                    false => format_table(
                        &got.data
                            .iter()
                            .map(|rule| rule_row(&rule.rule))
                            .collect::<Vec<_>>(),
                    ),
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

fn test_rule(app: &CommandContext, ask: RuleTestArgs) -> CommandResult {
    let files = plan::expand_patterns(&ask.files).map_err(|expand_pattern| {
        usage_error(expand_pattern, "write files as in a manifest: src/**")
    })?;
    let client = app.client()?;
    let call = Call::RuleTest(input::RuleTest {
        project: app.project(&client)?,
        task: ask.task,
        issue_type: ask.issue_type.into(),
        files,
        line: ask.line,
    });
    let got: CallReply<Vec<RuleMatchView>> = client.call(&call)?;
    app.output.print_answer("rule.test", &got.data, &[], |_| {
        if got.data.is_empty() {
            return "no standing rule matches\n".into();
        }
        let row = |rule_match: &RuleMatchView| {
            vec![
                format!("{:?}", rule_match.action).to_lowercase(),
                format!("before {}", rule_match.before),
                first_line(&rule_match.words),
            ]
        };
        format_table(&got.data.iter().map(row).collect::<Vec<_>>())
    })
}

/// Appends a `[[rule]]` to `regatta.toml` without changing the rest of the file, and sends the
/// settings to the daemon.
fn add_rule(app: &CommandContext, ask: &RuleAddArgs) -> CommandResult {
    let rule = StandingRule {
        name: ask.name.clone(),
        message: ask.says.clone(),
        types: ask
            .types
            .iter()
            .map(|task_type_arg| (*task_type_arg).into())
            .collect(),
        files: plan::expand_patterns(&ask.files).map_err(|expand_pattern| {
            usage_error(expand_pattern, "write files as in a manifest: src/**")
        })?,
        pattern: ask.pattern.clone(),
        action: ask.action.into(),
    };
    let here = app.working_dir()?;
    let facts = regatta_engine::ports::git::Git::inspect(
        &crate::composition::git_adapter(&app.data_dir()?),
        &here,
    )
    .map_err(|error| command_error(error.code, error.message, error.hint))?;
    let file = facts.top.join("regatta.toml");
    let io = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not write {}: {error}", file.display()),
            "check the permissions of the directory",
        )
    };
    let old = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(io(error)),
    };
    if crate::settings::project_settings(&facts.top)?
        .rule
        .iter()
        .any(|standing_rule| standing_rule.name == rule.name)
    {
        let words = format!("a rule named {:?} already exists", rule.name);
        return Err(Problem::new(
            409,
            "already_exists",
            words,
            "choose another name, or edit regatta.toml",
        )
        .into());
    }
    let new = with_rule(&old, &rule);
    if let Err(error) = toml::from_str::<toml::Table>(&new) {
        return Err(command_error(
            "bad_config",
            format!("{} is not valid TOML: {error}", file.display()),
            "fix the file first",
        ));
    }
    // A rename replaces the file completely or not at all.
    let beside = facts.top.join(".regatta.toml.new");
    std::fs::write(&beside, &new)
        .and_then(|()| std::fs::rename(&beside, &file))
        .map_err(io)?;
    app.output
        .print_note(&format!("added to {}", file.display()));
    super::start::init(app, &InitArgs::default())
}

/// Returns the text of a settings file with a rule appended.
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
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
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
            .map(word)
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
    let gap = if old.is_empty() || old.ends_with("\n\n") {
        ""
    } else if old.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    format!("{old}{gap}{text}")
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
