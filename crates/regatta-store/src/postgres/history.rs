//! Reads everything that was ever stored, through a few connections of their own.

use std::sync::Arc;

use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::bus::Message;
use regatta_core::conversation::Conversation;
use regatta_core::event::Recorded;
use regatta_core::hook::Firing;
use regatta_core::ids::{
    ApprovalId, AttemptId, ChannelName, ConversationId, FiringId, HookId, MessageId, MissionId,
    ProjectName, TaskId, TeamName,
};
use regatta_core::landing::Landing;
use regatta_core::launch::TeamLaunch;
use regatta_core::mission::Mission;
use regatta_core::task::Task;
use regatta_engine::ports::store::{MessageFilter, StoreError, StoreHistory, TaskFilter};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use super::connection::{Database, Param, Statement, run};
use super::load::{EVENT_COLUMNS, ROW_COLUMNS, events_of_row, stored_row};
use super::{WHOLE_FLEET, faults, messages};
use crate::row_codec::MESSAGES;

/// The number of rows of events that one query returns. Each row has at least one event.
const EVENT_ROWS_PER_QUERY: i64 = 256;

/// Reads a PostgreSQL store.
#[derive(Debug)]
pub(super) struct PostgresHistory {
    pub(super) database: Arc<Database>,
}

fn key(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl PostgresHistory {
    /// Runs one statement on an idle connection.
    fn query(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        let database = self.database.clone();
        self.database.wait(async move {
            let client = database.reader().await?;
            let rows = run(&client, &statement)
                .await
                .map_err(|error| faults::database(&database.settings, &error))?;
            database.return_reader(client);
            Ok(rows)
        })
    }

    /// Reads the rows of one kind that meet the conditions. One damaged row does not hide the
    /// others (D11).
    fn read_all<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        conditions: &str,
        params: Vec<Param>,
    ) -> Result<Vec<T>, StoreError> {
        let sql =
            format!("SELECT {ROW_COLUMNS} FROM rows WHERE project = $1 AND kind = $2 {conditions}");
        let mut all_params = vec![WHOLE_FLEET.into(), kind.into()];
        all_params.extend(params);
        let rows = self.query(Statement::new(sql, all_params))?;
        let mut decoded = Vec::new();
        for row in &rows {
            let stored = stored_row(kind, row);
            match stored.decode() {
                Ok(value) => decoded.push(value),
                Err(fault) => tracing::warn!(
                    "could not read row {} of {kind} in the store, so the list that somebody \
                    requested is returned without this entry: {fault}",
                    stored.label()
                ),
            }
        }
        Ok(decoded)
    }

    /// Reads one row. If the row cannot be read, returns an error and not `None`, because the row
    /// is not missing.
    fn read_one<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        id: u64,
    ) -> Result<Option<(T, bool)>, StoreError> {
        let sql = format!(
            "SELECT {ROW_COLUMNS} FROM rows WHERE project = $1 AND kind = $2 AND number = $3 AND \
            name = ''"
        );
        let params = vec![WHOLE_FLEET.into(), kind.into(), key(id).into()];
        let rows = self.query(Statement::new(sql, params))?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let stored = stored_row(kind, row);
        let value = stored
            .decode()
            .map_err(|fault| faults::from_fault(&self.database.settings, fault))?;
        Ok(Some((value, stored.live)))
    }

    fn read_value<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        id: u64,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.read_one(kind, id)?.map(|(value, _)| value))
    }
}

/// Returns the conditions of a filter for tasks, whose parameters begin at `$3`.
fn task_conditions(filter: &TaskFilter) -> (String, Vec<Param>) {
    let mut params: Vec<Param> = vec![key(filter.after.unwrap_or_default().0).into()];
    let mut sql = String::from("AND number > $3");
    let mut place = |param: Param| {
        params.push(param);
        params.len() + 2
    };
    if let Some(project) = &filter.project {
        sql += &format!(" AND parent = ${}", place(project.as_str().into()));
    }
    if let Some(mission) = filter.mission {
        sql += &format!(" AND mission = ${}", place(key(mission.0).into()));
    }
    if !filter.statuses.is_empty() {
        let names = filter
            .statuses
            .iter()
            .map(|status| status.name().to_owned());
        sql += &format!(
            " AND status = ANY(${})",
            place(Param::Texts(names.collect()))
        );
    }
    (sql, params)
}

impl StoreHistory for PostgresHistory {
    fn events(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        let sql = format!(
            "SELECT {EVENT_COLUMNS} FROM events WHERE project = $1 AND revision > $2 ORDER BY \
            revision LIMIT $3"
        );
        let mut events: Vec<Recorded> = Vec::new();
        let mut last = after;
        while events.len() < limit {
            let params = vec![
                WHOLE_FLEET.into(),
                key(last).into(),
                EVENT_ROWS_PER_QUERY.into(),
            ];
            let rows = self.query(Statement::new(sql.as_str(), params))?;
            events.extend(
                rows.iter()
                    .flat_map(events_of_row)
                    .filter(|event| event.revision > after),
            );
            last = events.last().map_or(last, |event| event.revision);
            if i64::try_from(rows.len()) != Ok(EVENT_ROWS_PER_QUERY) {
                break;
            }
        }
        events.truncate(limit);
        Ok(events)
    }

    fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        let (database, filter) = (self.database.clone(), filter.clone());
        self.database.wait(async move {
            let client = database.reader().await?;
            let found = messages::find(&database, &client, &filter).await?;
            database.return_reader(client);
            Ok(found)
        })
    }

    fn message(&self, id: MessageId) -> Result<Option<Message>, StoreError> {
        self.read_value(MESSAGES, id.0)
    }

    fn firings(
        &self,
        hook: Option<HookId>,
        before: Option<FiringId>,
        limit: usize,
    ) -> Result<Vec<Firing>, StoreError> {
        let mut params = vec![
            Param::Number(before.map_or(i64::MAX, |id| key(id.0))),
            self::limit(limit).into(),
        ];
        let mut of_hook = "";
        if let Some(hook) = hook {
            params.push(Param::Text(hook.0.to_string()));
            of_hook = "AND parent = $5";
        }
        let conditions = format!("AND number < $3 {of_hook} ORDER BY number DESC LIMIT $4");
        self.read_all("firings", &conditions, params)
    }

    fn count_messages(&self, channel: &ChannelName, after: MessageId) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM rows WHERE project = $1 AND kind = $2 AND parent = $3 AND \
            number > $4";
        let params = vec![
            WHOLE_FLEET.into(),
            MESSAGES.into(),
            channel.as_str().into(),
            key(after.0).into(),
        ];
        let rows = self.query(Statement::new(sql, params))?;
        Ok(rows
            .first()
            .map_or(0, |row| row.get::<_, i64>(0))
            .unsigned_abs())
    }

    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        self.read_value("tasks", id.0)
    }

    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError> {
        let (mut conditions, mut params) = task_conditions(filter);
        conditions += " ORDER BY number";
        if filter.limit > 0 {
            params.push(limit(filter.limit).into());
            conditions += &format!(" LIMIT ${}", params.len() + 2);
        }
        self.read_all("tasks", &conditions, params)
    }

    fn count_tasks(&self, filter: &TaskFilter) -> Result<u64, StoreError> {
        let (conditions, params) = task_conditions(filter);
        let sql =
            format!("SELECT count(*) FROM rows WHERE project = $1 AND kind = $2 {conditions}");
        let mut all_params = vec![WHOLE_FLEET.into(), "tasks".into()];
        all_params.extend(params);
        let rows = self.query(Statement::new(sql, all_params))?;
        Ok(rows
            .first()
            .map_or(0, |row| row.get::<_, i64>(0))
            .unsigned_abs())
    }

    fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError> {
        self.read_value("attempts", id.0)
    }

    fn approval(&self, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        self.read_value("approvals", id.0)
    }

    fn attempts_of(&self, task: TaskId) -> Result<Vec<Attempt>, StoreError> {
        let params = vec![Param::Text(task.0.to_string())];
        self.read_all("attempts", "AND parent = $3 ORDER BY number", params)
    }

    fn landings(&self, project: &ProjectName, limit: usize) -> Result<Vec<Landing>, StoreError> {
        let params = vec![project.as_str().into(), self::limit(limit).into()];
        let conditions = "AND parent = $3 ORDER BY number DESC LIMIT $4";
        self.read_all("landings", conditions, params)
    }

    fn launches(&self, team: &TeamName, limit: usize) -> Result<Vec<TeamLaunch>, StoreError> {
        let params = vec![team.as_str().into(), self::limit(limit).into()];
        let conditions = "AND parent = $3 ORDER BY number DESC LIMIT $4";
        self.read_all("launches", conditions, params)
    }

    fn conversations(&self, limit: usize) -> Result<Vec<Conversation>, StoreError> {
        let conditions = "ORDER BY number DESC LIMIT $3";
        self.read_all("conversations", conditions, vec![self::limit(limit).into()])
    }

    fn conversation(&self, id: ConversationId) -> Result<Option<Conversation>, StoreError> {
        self.read_value("conversations", id.0)
    }

    fn mission(&self, id: MissionId) -> Result<Option<(Mission, bool)>, StoreError> {
        self.read_one("missions", id.0)
    }
}
