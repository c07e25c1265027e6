//! The commands `allow`, `deny` and `answer`, with which a person decides about items of the inbox.

use clap::{Args, ValueEnum};
use regatta_api::view::{InboxChoice, InboxView};
use regatta_api::{Call, call, input};
use regatta_core::agent_protocol::RequestAnswer;
use regatta_core::approval::AnswerScope;
use regatta_core::ids::ApprovalId;
use regatta_core::inbox::{InboxItem, InboxKind};

use crate::client::{CallReply, Client};
use crate::commands::inbox::fetch_items;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, first_line, sanitize, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "answer",
        &["regatta answer Q7 1", "regatta answer Q7 'use PostgreSQL'"],
    ),
    (
        "allow",
        &["regatta allow Q7", "regatta allow Q7 --for task"],
    ),
    (
        "deny",
        &["regatta deny Q7 --because 'no network in this task'"],
    ),
];

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Id of the item to answer, as regatta inbox prints it in the first column, such as Q7, T9,
    /// A5, budget:day, agent:NAME or V3
    pub(crate) id: String,
    /// Answer to the question, the number of a choice, or the name of a choice and its argument
    #[arg(required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
    /// Message that the agent gets with the answer
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AllowArgs {
    /// Request to allow, such as Q7
    pub(crate) id: ApprovalId,
    /// Allow all identical requests of other agents too
    #[arg(long)]
    pub(crate) all: bool,
    /// Later requests to answer in the same way without asking again
    #[arg(long = "for", value_enum, default_value_t)]
    pub(crate) reach: AnswerScopeArg,
}

#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    /// Request to deny, such as Q7
    pub(crate) id: ApprovalId,
    /// Deny all identical requests of other agents too
    #[arg(long)]
    pub(crate) all: bool,
    /// Later requests to answer in the same way without asking again
    #[arg(long = "for", value_enum, default_value_t)]
    pub(crate) reach: AnswerScopeArg,
    /// Reason to send to the agent
    #[arg(long, value_name = "REASON")]
    pub(crate) because: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerScopeArg {
    /// Give the answer to this request only
    #[default]
    Once,
    /// Give later, similar requests of this task the same answer
    Task,
    /// Give later, similar requests of this mission the same answer
    Mission,
    /// Give later, similar requests of this agent the same answer, through a new rule (see regatta
    /// policy list)
    Always,
}

fn to_answer_scope(answer_scope_arg: AnswerScopeArg) -> AnswerScope {
    match answer_scope_arg {
        AnswerScopeArg::Once => AnswerScope::Once,
        AnswerScopeArg::Task => AnswerScope::Task,
        AnswerScopeArg::Mission => AnswerScope::Mission,
        AnswerScopeArg::Always => AnswerScope::Always,
    }
}

/// Runs `regatta allow`.
pub(crate) fn allow(app: &CommandContext, args: &AllowArgs) -> CommandResult {
    send_decision(
        app,
        "allow",
        args.id,
        args.all,
        RequestAnswer::Allow,
        to_answer_scope(args.reach),
    )
}

/// Runs `regatta deny`.
pub(crate) fn deny(app: &CommandContext, args: &DenyArgs) -> CommandResult {
    send_decision(
        app,
        "deny",
        args.id,
        args.all,
        RequestAnswer::Deny {
            reason: args.because.clone(),
        },
        to_answer_scope(args.reach),
    )
}

/// Sends a person's answer to an agent's request, and prints the result.
pub(crate) fn send_decision(
    app: &CommandContext,
    kind: &str,
    id: ApprovalId,
    alike: bool,
    answer: RequestAnswer,
    reach: AnswerScope,
) -> CommandResult {
    let verb = match &answer {
        RequestAnswer::Allow => "allowed",
        RequestAnswer::Deny { .. } => "denied",
        RequestAnswer::Text { .. } | RequestAnswer::Cancelled => "answered",
    };
    let answer_text = match &answer {
        RequestAnswer::Text { text } => format!(" → {}", first_line(text)),
        _ => String::new(),
    };
    let client = app.client()?;
    let reply = client.call(call::InboxAnswer(input::InboxAnswer {
        id,
        answer,
        reach,
        alike,
    }))?;
    let decision = &reply.data;
    // Count the open items of this project only, as `regatta inbox` lists them. The number in the
    // daemon's answer includes the items of other projects.
    let remaining = crate::commands::inbox::fetch_items(app, &client)?
        .iter()
        .filter(|item| item.is_shown())
        .count();
    let next = [if remaining > 0 {
        "regatta inbox"
    } else {
        "regatta status"
    }
    .to_owned()];
    app.output.print_answer(kind, decision, &next, |_| {
        let more = decision.answered;
        let others = if more > 1 {
            format!(" and {} like it", more - 1)
        } else {
            String::new()
        };
        let rules: String = decision
            .rules
            .iter()
            .map(|rule| format!(" · {}", sanitize(rule)))
            .collect();
        let task = decision.task.map(|task| task.to_string());
        let subject = decision.subject.as_deref().map(sanitize);
        format!(
            "{verb} {id}{others} for {}: {}{answer_text}{rules} · {remaining} left in the inbox\n",
            task.unwrap_or_default(),
            subject.unwrap_or_default()
        )
    })
}

/// Runs `regatta answer`. A question accepts any text or the number of a choice; every other item
/// accepts one of its choices.
pub(crate) fn answer(app: &CommandContext, args: &AnswerArgs) -> CommandResult {
    let id = args.id.as_str();
    let message = args.message.as_deref();
    let item: InboxItem = id.parse().map_err(|error: regatta_core::ids::BadName| {
        usage_error(
            error.to_string(),
            "write the id of the item as regatta inbox prints it, such as Q7, T9, A5, budget:day \
             or agent:NAME",
        )
    })?;
    let text = args.words.join(" ");
    let client = app.client()?;
    let project = None; // the item may belong to any project
    let all: CallReply<Vec<InboxView>> =
        client.call(call::InboxList(input::ProjectFilter { project }))?;
    // A number without a letter means the request (`7` is `Q7`), unless only an item of another
    // kind with this number is open.
    let item = if id.bytes().all(|byte| byte.is_ascii_digit()) {
        item_with_number(&all.data, id, item)?
    } else {
        item
    };
    let found = all.data.iter().find(|inbox| inbox.id == item.to_string());
    if let InboxItem::Approval(id) = item {
        let text = found.map_or(text.clone(), |inbox| choice_or_text(inbox, &text));
        let permission = found.is_some_and(|inbox| inbox.kind == InboxKind::Permission);
        let said = match text.as_str() {
            "allow" if permission => RequestAnswer::Allow,
            "deny" if permission => {
                let words = message.map(str::to_owned);
                return send_decision(
                    app,
                    "answer",
                    id,
                    false,
                    RequestAnswer::Deny { reason: words },
                    AnswerScope::Once,
                );
            }
            _ => RequestAnswer::Text { text },
        };
        send_decision(app, "answer", id, false, said, AnswerScope::Once)?;
        return match (message, found.and_then(|inbox| inbox.task)) {
            (Some(message), Some(task)) => {
                crate::commands::control::tell(app, &task.to_string(), &[message.to_owned()])
            }
            _ => Ok(()),
        };
    }
    let Some(found) = found else {
        return Err(usage_error(
            format!("the item {item} is not in the inbox"),
            "list the inbox: regatta inbox",
        ));
    };
    let (first_word, rest) = args
        .words
        .split_first()
        .map_or(("", &[][..]), |(first_word, rest)| {
            (first_word.as_str(), rest)
        });
    let choice = found
        .find_choice(&text)
        .or_else(|| found.find_choice(first_word));
    let Some(choice) = choice else {
        let choices: Vec<String> = found
            .choices
            .iter()
            .map(|choice| sanitize(choice))
            .collect();
        return Err(usage_error(
            format!(
                "{text:?} is not an answer to {item}; possible answers: {}",
                choices.join(", ")
            ),
            format!(
                "write one of these answers: regatta answer {item} {}",
                first_choice_word(found)
            ),
        ));
    };
    let message = message
        .map(str::to_owned)
        .or_else(|| (!rest.is_empty()).then(|| rest.join(" ")));
    send_choice(app, &client, &item, choice, message)
}

/// Returns the open inbox item with the number `digits`, or `default` if no open item has this
/// number. Fails if several items have this number.
fn item_with_number(
    inbox: &[InboxView],
    digits: &str,
    default: InboxItem,
) -> Result<InboxItem, CommandError> {
    let candidates =
        ["Q", "T", "A", "V"].map(|letter| format!("{letter}{digits}").parse::<InboxItem>());
    let is_open = |item: &InboxItem| inbox.iter().any(|view| view.id == item.to_string());
    let mut found: Vec<InboxItem> = candidates.into_iter().flatten().filter(is_open).collect();
    match found.len() {
        0 => Ok(default),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<String> = found.iter().map(ToString::to_string).collect();
            let hint = format!("add the letter: regatta answer {}", names[0]);
            Err(usage_error(
                format!(
                    "the number {digits} is ambiguous, because it can mean {}",
                    names.join(" or ")
                ),
                hint,
            ))
        }
    }
}

/// Returns the choice with this number, or the text itself if it is not the number of a choice.
fn choice_or_text(inbox: &InboxView, text: &str) -> String {
    let is_choice = inbox.choices.iter().any(|choice| choice == text);
    let nth = text
        .trim()
        .parse::<usize>()
        .ok()
        .filter(|_| !is_choice)
        .and_then(|number| number.checked_sub(1));
    nth.and_then(|nth| inbox.choices.get(nth))
        .cloned()
        .unwrap_or_else(|| text.to_owned())
}

/// Returns the first word of an item's first choice, for the example in a hint.
fn first_choice_word(inbox: &InboxView) -> String {
    inbox.ways.first().map_or(String::new(), |inbox_choice| {
        inbox_choice
            .choice
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    })
}

/// Makes the API call that carries out a choice. `text` is an argument of choices that need a text.
pub(crate) fn send_choice(
    app: &CommandContext,
    client: &Client,
    item: &InboxItem,
    choice: &InboxChoice,
    text: Option<String>,
) -> CommandResult {
    let mut input = choice.input.clone();
    if let Some(text_field) = choice
        .words
        .as_ref()
        .and_then(|pointer| input.pointer_mut(pointer))
    {
        let Some(text) = text else {
            return Err(usage_error(
                format!(
                    "the choice {choice} for the inbox item {item} needs a text",
                    choice = choice.choice
                ),
                format!(
                    "add the text: regatta answer {item} {choice} 'what to change'",
                    choice = choice.choice
                ),
            ));
        };
        *text_field = text.into();
    }
    let body = serde_json::to_vec(&input).unwrap_or_default();
    let call = Call::parse(&choice.verb, &body).map_err(CommandError::from)?;
    let reply = client.call_any(&call)?;
    let remaining = fetch_items(app, client)?
        .iter()
        .filter(|inbox| inbox.is_shown())
        .count();
    let next = [if remaining > 0 {
        "regatta inbox"
    } else {
        "regatta status"
    }
    .to_owned()];
    // Retrying a failed task creates a new task. Print its id.
    let new_task = reply.data["id"]
        .as_str()
        .filter(|data| *data != item.to_string())
        .filter(|_| choice.verb == "retry");
    let new_task = new_task.map_or(String::new(), |new_task| format!(" as {new_task}"));
    let line = choice.line.replace(" '…'", "");
    app.output
        .print_answer(&choice.verb, &reply.data, &next, |_| {
            format!(
                "{item}: {}{new_task} ({line}) · {remaining} left in the inbox\n",
                sanitize(&choice.choice)
            )
        })
}
