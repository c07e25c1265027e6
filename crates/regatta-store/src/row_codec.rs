//! Converts rows to columns of text and numbers and back, for stores with one table for all kinds
//! of rows.
//!
//! A row is stored whole, as JSON in `body`. The other columns only help to find the row.

use std::sync::Arc;

use regatta_core::board::{BoardLoader, Row, RowKey};
use regatta_core::ids::TaskId;
use regatta_core::task::TaskStatus;
use serde::de::DeserializeOwned;

use crate::errors::{self, StoreFault};

/// The names of the kinds of rows, in the order in which the board is loaded. The names are stored
/// and equal the names of the tables in SQLite.
pub(crate) const KINDS: [&str; 23] = [
    "projects",
    "agents",
    "missions",
    "tasks",
    "attempts",
    "claims",
    "waits",
    "landings",
    "cursors",
    "answers",
    "approvals",
    "rules",
    "budgets",
    "days",
    "parked",
    "runners",
    "hooks",
    "firings",
    "teams",
    "launches",
    "conversations",
    "deliveries",
    MESSAGES,
];
pub(crate) const MESSAGES: &str = "messages";

/// The columns that identify a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId {
    pub(crate) kind: &'static str,
    /// The number of the row, or 0 for rows that have a name instead.
    pub(crate) number: i64,
    /// The name of the row, or empty for rows that have a number instead.
    pub(crate) name: String,
}

/// The columns of a row.
#[derive(Clone, Debug)]
pub(crate) struct RowColumns {
    pub(crate) id: RowId,
    /// The object to which the row belongs: the project of a task or landing, the task of an
    /// attempt, the team of a launch, the hook of a firing, the channel of a message.
    pub(crate) parent: Option<String>,
    pub(crate) mission: Option<i64>,
    /// The status of a task.
    pub(crate) status: Option<&'static str>,
    /// Whether the row is needed when the board (the state of all unfinished work) is loaded.
    pub(crate) live: bool,
    pub(crate) body: String,
}

fn numbered(kind: &'static str, number: u64) -> Result<RowId, StoreFault> {
    let number = i64::try_from(number).map_err(|_| errors::too_large(number))?;
    Ok(RowId {
        kind,
        number,
        name: String::new(),
    })
}

fn named(kind: &'static str, name: impl Into<String>) -> RowId {
    RowId {
        kind,
        number: 0,
        name: name.into(),
    }
}

/// Returns the columns that identify the row with this key, or `None` for the row of the board's
/// counters, which stores keep elsewhere.
pub(crate) fn row_id(key: &RowKey) -> Result<Option<RowId>, StoreFault> {
    Ok(Some(match key {
        RowKey::Meta => return Ok(None),
        RowKey::Project(name) => named("projects", name.as_str()),
        RowKey::Agent(name) => named("agents", name.as_str()),
        RowKey::Mission(id) => numbered("missions", id.0)?,
        RowKey::Task(id) => numbered("tasks", id.0)?,
        RowKey::Attempt(id) => numbered("attempts", id.0)?,
        RowKey::Claim(id) => numbered("claims", id.0)?,
        RowKey::Wait(id) => numbered("waits", id.0)?,
        RowKey::Landing(id) => numbered("landings", id.0)?,
        // Names of agents and channels contain no space.
        RowKey::Cursor(agent, channel) => named(
            "cursors",
            format!("{} {}", agent.as_str(), channel.as_str()),
        ),
        RowKey::Answer(key) => named("answers", key.as_str()),
        RowKey::Message(id) => numbered(MESSAGES, id.0)?,
        RowKey::Approval(id) => numbered("approvals", id.0)?,
        RowKey::Rule(id) => numbered("rules", id.0)?,
        RowKey::Budget(scope) => named("budgets", scope.to_string()),
        RowKey::Day(day, agent) => RowId {
            name: agent
                .as_ref()
                .map_or(String::new(), |agent| agent.as_str().to_owned()),
            ..numbered("days", *day)?
        },
        RowKey::Parked(name) => named("parked", name.as_str()),
        RowKey::Runner(name) => named("runners", name.as_str()),
        RowKey::Hook(id) => numbered("hooks", id.0)?,
        RowKey::Firing(id) => numbered("firings", id.0)?,
        RowKey::Team(name) => named("teams", name.as_str()),
        RowKey::Launch(id) => numbered("launches", id.0)?,
        RowKey::Conversation(id) => numbered("conversations", id.0)?,
        RowKey::Delivery(key) => named("deliveries", key.as_str()),
    }))
}

/// Returns the columns of a row, or `None` for the row of the board's counters, which stores keep
/// elsewhere.
pub(crate) fn encode_row(key: &RowKey, row: &Row) -> Result<Option<RowColumns>, StoreFault> {
    let Some(id) = row_id(key)? else {
        return Ok(None);
    };
    let (mut parent, mut mission, mut status) = (None, None, None);
    let body = match row {
        Row::Meta(_) => return Ok(None),
        Row::Project(project) => serde_json::to_string(project),
        Row::Agent(agent) => serde_json::to_string(agent),
        Row::Mission(mission, _) => serde_json::to_string(mission),
        Row::Task(task) => {
            parent = Some(task.project.to_string());
            mission = task
                .mission
                .map(|id| i64::try_from(id.0).map_err(|_| errors::too_large(id.0)))
                .transpose()?;
            status = Some(task.status.name());
            serde_json::to_string(task)
        }
        Row::Attempt(attempt) => {
            parent = Some(attempt.task.0.to_string());
            serde_json::to_string(attempt)
        }
        Row::Claim(claim) => serde_json::to_string(claim),
        Row::Wait(wait) => serde_json::to_string(wait),
        Row::Landing(landing) => {
            parent = Some(landing.project.to_string());
            serde_json::to_string(landing)
        }
        Row::Cursor(cursor) => serde_json::to_string(cursor),
        Row::Answer(answer) => serde_json::to_string(answer),
        Row::Message(message) => {
            parent = Some(message.channel.as_str().to_owned());
            serde_json::to_string(message)
        }
        Row::Approval(approval) => serde_json::to_string(approval),
        Row::Rule(rule) => serde_json::to_string(rule),
        Row::Budget(budget) => serde_json::to_string(budget),
        Row::Day(spend) => serde_json::to_string(spend),
        Row::Parked(outage) => serde_json::to_string(outage),
        Row::Runner(runner) => serde_json::to_string(runner),
        Row::Hook(hook) => serde_json::to_string(hook),
        Row::Firing(firing) => {
            parent = Some(firing.hook.0.to_string());
            serde_json::to_string(firing)
        }
        Row::Team(team) => serde_json::to_string(team),
        Row::Launch(launch) => {
            parent = Some(launch.team.as_str().to_owned());
            serde_json::to_string(launch)
        }
        Row::Conversation(conversation) => serde_json::to_string(conversation),
        Row::Delivery(delivery) => serde_json::to_string(delivery),
    }?;
    Ok(Some(RowColumns {
        id,
        parent,
        mission,
        status,
        live: row.is_live(),
        body,
    }))
}

/// A stored row, as a query returns it.
pub(crate) struct StoredRow<'a> {
    pub(crate) kind: &'static str,
    pub(crate) number: i64,
    pub(crate) name: &'a str,
    pub(crate) live: bool,
    pub(crate) status: Option<&'a str>,
    pub(crate) body: &'a str,
}

impl StoredRow<'_> {
    /// Returns the row's key for messages to people.
    pub(crate) fn label(&self) -> String {
        if self.name.is_empty() {
            self.number.to_string()
        } else {
            self.name.to_owned()
        }
    }

    /// Decodes the row's JSON. The error names the kind and the row.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, StoreFault> {
        serde_json::from_str(self.body).map_err(|cause| StoreFault::UndecodableRow {
            table: self.kind,
            id: self.label(),
            cause,
        })
    }
}

/// Decodes a row.
pub(crate) fn row_of(stored: &StoredRow<'_>) -> Result<Row, StoreFault> {
    Ok(match stored.kind {
        "projects" => Row::Project(Arc::new(stored.decode()?)),
        "agents" => Row::Agent(Arc::new(stored.decode()?)),
        "missions" => Row::Mission(Arc::new(stored.decode()?), stored.live),
        "tasks" => Row::Task(Arc::new(stored.decode()?)),
        "attempts" => Row::Attempt(Arc::new(stored.decode()?)),
        "claims" => Row::Claim(Arc::new(stored.decode()?)),
        "waits" => Row::Wait(Arc::new(stored.decode()?)),
        "landings" => Row::Landing(Arc::new(stored.decode()?)),
        "cursors" => Row::Cursor(stored.decode()?),
        "answers" => Row::Answer(Arc::new(stored.decode()?)),
        "approvals" => Row::Approval(Arc::new(stored.decode()?)),
        "rules" => Row::Rule(Arc::new(stored.decode()?)),
        "budgets" => Row::Budget(Arc::new(stored.decode()?)),
        "days" => Row::Day(stored.decode()?),
        "parked" => Row::Parked(Arc::new(stored.decode()?)),
        "runners" => Row::Runner(Arc::new(stored.decode()?)),
        "hooks" => Row::Hook(Arc::new(stored.decode()?)),
        "firings" => Row::Firing(Arc::new(stored.decode()?)),
        "teams" => Row::Team(Arc::new(stored.decode()?)),
        "launches" => Row::Launch(Arc::new(stored.decode()?)),
        "conversations" => Row::Conversation(Arc::new(stored.decode()?)),
        "deliveries" => Row::Delivery(stored.decode()?),
        _ => Row::Message(Arc::new(stored.decode()?)),
    })
}

/// Decodes a row and adds it to the board (the state of all unfinished work).
pub(crate) fn put_row(board: &mut BoardLoader, stored: &StoredRow<'_>) -> Result<(), StoreFault> {
    if stored.kind == "tasks" {
        return put_task(board, stored);
    }
    board.put(row_of(stored)?);
    Ok(())
}

/// Adds open and failed tasks completely. Of other ended tasks adds only the status, so that many
/// ended tasks do not slow down every start.
fn put_task(board: &mut BoardLoader, stored: &StoredRow<'_>) -> Result<(), StoreFault> {
    let ended_status = TaskStatus::ALL
        .into_iter()
        .find(|ended| ended.is_terminal() && Some(ended.name()) == stored.status);
    match ended_status {
        // Failed tasks are read completely, because a person may still have to decide about them.
        Some(status) if !status.has_failed() => {
            board.put_ended(TaskId(stored.number.unsigned_abs()), status);
        }
        Some(_) => board.put(Row::Task(Arc::new(stored.decode()?))),
        None => board.put_task(stored.decode()?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use regatta_core::board::Board;
    use regatta_testkit::store_suite::history_fixture::all_steps;

    use super::*;

    /// D4: the columns of all rows give the board back, whatever the kinds of its rows.
    #[test]
    fn d4_columns_of_all_rows_give_the_board_back() {
        let steps = all_steps();
        let mut rows = std::collections::BTreeMap::new();
        for (key, row) in steps.iter().flat_map(|step| step.batch.rows.clone()) {
            rows.insert(key, row);
        }
        let mut columns: Vec<RowColumns> = rows
            .iter()
            .filter_map(|(key, row)| encode_row(key, row.as_ref()?).unwrap())
            .filter(|columns| columns.live)
            .collect();
        let kinds: BTreeSet<&str> = columns.iter().map(|columns| columns.id.kind).collect();
        assert!(
            kinds.len() > 15,
            "the story has few kinds of rows: {kinds:?}"
        );
        columns.sort_by_key(|columns| {
            let rank = KINDS.iter().position(|kind| *kind == columns.id.kind);
            (rank.unwrap(), columns.id.clone())
        });
        let mut loader = BoardLoader::default();
        loader.put(Row::Meta(steps.last().unwrap().board.meta()));
        for columns in &columns {
            let stored = StoredRow {
                kind: columns.id.kind,
                number: columns.id.number,
                name: &columns.id.name,
                live: columns.live,
                status: columns.status,
                body: &columns.body,
            };
            put_row(&mut loader, &stored).unwrap();
        }
        let board: Board = loader.finish();
        assert!(board == steps.last().unwrap().board);
    }

    #[test]
    fn each_key_gives_other_columns() {
        let keys: BTreeSet<RowKey> = all_steps()
            .iter()
            .flat_map(|step| step.batch.rows.keys().cloned())
            .collect();
        let ids: Vec<RowId> = keys.iter().filter_map(|key| row_id(key).unwrap()).collect();
        let distinct: BTreeSet<&RowId> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert!(ids.iter().all(|id| KINDS.contains(&id.kind)));
    }
}
