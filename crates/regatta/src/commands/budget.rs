//! The command `budget`, which shows and sets limits on spending.

use clap::Subcommand;
use regatta_api::view::BudgetsView;
use regatta_api::{call, input};
use regatta_core::budget::{self, Ceiling, Spend};
use regatta_core::plural;
use regatta_core::refusal::seconds;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, format_table, usage_error};
use crate::settings::duration_ms;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("budget list", &["regatta budget list"]),
    (
        "budget set",
        &[
            "regatta budget set day --usd 20",
            "regatta budget set M3 --tokens 2000000 --time 2h",
        ],
    ),
    ("budget rm", &["regatta budget rm day"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// List the budgets, with the amount spent of each budget
    List,
    /// Set a budget; omitted limits are unlimited
    Set {
        /// Scope of the budget: attempt (each run of an agent on a task), task (each task), T7 (one
        /// task), agent:NAME, M3 (one mission) or day
        #[arg(value_parser = parse_budget_scope)]
        scope: budget::BudgetScope,
        /// Maximum number of tokens
        #[arg(long)]
        tokens: Option<u64>,
        /// Maximum cost in US dollars, such as 2.50
        #[arg(long, value_parser = parse_dollars)]
        usd: Option<u64>,
        /// Maximum number of turns (prompts to the agent's program)
        #[arg(long)]
        turns: Option<u64>,
        /// Maximum number of attempts (runs of an agent on a task)
        #[arg(long)]
        attempts: Option<u64>,
        /// Maximum working time, such as 30m
        #[arg(long, value_parser = duration_ms)]
        time: Option<u64>,
    },
    /// Remove a budget
    Rm {
        /// Budget to remove: attempt, task, T7, agent:NAME, M3 or day
        #[arg(value_parser = parse_budget_scope)]
        scope: budget::BudgetScope,
    },
}

impl BudgetCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, BudgetCommand::List)
    }
}

fn parse_budget_scope(text: &str) -> Result<budget::BudgetScope, String> {
    budget::BudgetScope::try_from(text.to_owned())
        .map_err(|_| "write attempt, task, T7, agent:NAME, M3 or day".to_owned())
}

/// Parses an amount in dollars, such as `2.50` or `$5`, and returns millionths of a dollar.
pub(crate) fn parse_dollars(text: &str) -> Result<u64, String> {
    let plain = text.strip_prefix('$').unwrap_or(text);
    let amount: f64 = plain
        .parse()
        .map_err(|_| "write dollars, such as 2.50".to_owned())?;
    if !(0.0..=1e9).contains(&amount) {
        return Err("write dollars, such as 2.50".to_owned());
    }
    Ok((amount * 1e6).round() as u64)
}

/// Runs `regatta budget`.
pub(crate) fn budget(app: &CommandContext, command: BudgetCommand) -> CommandResult {
    let (kind, reply): (&str, CallReply<BudgetsView>) = match command {
        BudgetCommand::List => (
            "budget.list",
            app.call(call::BudgetList(input::BudgetListInput { days: 0 }))?,
        ),
        BudgetCommand::Set {
            scope,
            tokens,
            usd,
            turns,
            attempts,
            time,
        } => {
            let ceiling = Ceiling {
                tokens,
                micro_usd: usd,
                turns,
                attempts,
                wall_ms: time,
            };
            if ceiling == Ceiling::default() {
                return Err(usage_error(
                    "a budget needs at least one limit",
                    "add a limit: --usd 5, --tokens 1000000 or --turns 20",
                ));
            }
            (
                "budget.set",
                app.call(call::BudgetSet(input::BudgetSet { scope, ceiling }))?,
            )
        }
        BudgetCommand::Rm { scope } => {
            let ceiling = Ceiling::default();
            (
                "budget.rm",
                app.call(call::BudgetSet(input::BudgetSet { scope, ceiling }))?,
            )
        }
    };
    let next = if kind == "budget.list" {
        "regatta cost"
    } else {
        "regatta budget list"
    };
    app.output
        .print_answer(kind, &reply.data, &[next.into()], |_| {
            draw_budgets(&reply.data)
        })
}

fn draw_budgets(budgets: &BudgetsView) -> String {
    let mut text = format!("today  {}\n", spend_text(&budgets.today));
    let mut rows: Vec<Vec<String>> = budgets
        .by_agent
        .iter()
        .map(|(agent, spend)| vec![format!("  {agent}"), spend_text(spend)])
        .collect();
    for budget in &budgets.budgets {
        let used = budget.spent.as_ref().map_or("each".to_owned(), spend_text);
        rows.push(vec![
            format!("budget {}", budget.scope),
            format!("{} of {}", used, limits_text(&budget.ceiling)),
        ]);
    }
    text += &format_table(&rows);
    text
}

/// Describes spending in one line. An unknown cost is left out, because $0.00 would be wrong.
pub(crate) fn spend_text(spend: &Spend) -> String {
    let money = spend.usage.micro_usd.map_or(String::new(), |micro_usd| {
        format!("{} · ", budget::format_dollars(micro_usd))
    });
    let tokens = match spend.usage.tokens() {
        0 => "tokens not reported".to_owned(),
        many => plural::count(many, "token"),
    };
    format!(
        "{money}{tokens} · {} · {} · {}",
        plural::count(spend.turns, "turn"),
        plural::count(spend.attempts, "attempt"),
        seconds(spend.wall_ms)
    )
}

/// Lists the limits of a budget in one line.
fn limits_text(ceiling: &Ceiling) -> String {
    let parts = [
        ceiling.micro_usd.map(budget::format_dollars),
        ceiling.tokens.map(|tokens| plural::count(tokens, "token")),
        ceiling.turns.map(|turns| plural::count(turns, "turn")),
        ceiling
            .attempts
            .map(|attempts| plural::count(attempts, "attempt")),
        ceiling.wall_ms.map(seconds),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}
