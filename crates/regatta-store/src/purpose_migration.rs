//! Brings the tasks of older stores to the schema in which each task has one purpose.
//!
//! Up to schema 9, six optional fields together said what kind of work a task was: `expects`,
//! `explores`, `reviews` (with `reviews_commit`), `duty`, `standing`, and `joins` of the task's
//! submission. The migration replaces them by the field `purpose`, in rows and in events, so that
//! the rows can still be computed from the events (D4).

use std::collections::BTreeMap;

use rusqlite::Connection;
use serde_json::{Map, Value, json};

use crate::errors::StoreFault;

/// The tables that contain tasks or submissions, each with the column that identifies a row.
const TABLES: [(&str, &str); 3] = [("tasks", "id"), ("landings", "id"), ("events", "revision")];

/// The name of a git remote for each task that brings the remote's commits into the trunk. The key
/// is the task's id.
type MergedRemotes = BTreeMap<String, String>;

/// Replaces the old fields of every task in the store by the task's purpose.
pub(crate) fn set_purposes(transaction: &Connection) -> Result<(), StoreFault> {
    // Collect the remotes before any task is changed. The event that adds a task does not name its
    // remote, and comes before the event that submits its work and names it.
    let mut remotes = MergedRemotes::new();
    for (table, key) in TABLES {
        for id in rows_with(transaction, table, key, "\"joins\"")? {
            if let Some(value) = read_body(transaction, table, key, id)? {
                collect_remotes(&value, &mut remotes);
            }
        }
    }
    for (table, key) in TABLES {
        for id in rows_with(transaction, table, key, "\"issue_type\"")? {
            let Some(mut value) = read_body(transaction, table, key, id)? else {
                continue;
            };
            if set_purposes_in(&mut value, &remotes) {
                let update = format!("UPDATE {table} SET body = ?2 WHERE {key} = ?1");
                transaction.execute(&update, (id, value.to_string()))?;
            }
        }
    }
    Ok(())
}

/// Returns the keys of the rows of `table` whose JSON body contains `text`.
fn rows_with(
    transaction: &Connection,
    table: &str,
    key: &str,
    text: &str,
) -> Result<Vec<i64>, StoreFault> {
    let sql = format!("SELECT {key} FROM {table} WHERE instr(body, ?1) > 0");
    let mut statement = transaction.prepare(&sql)?;
    let rows = statement.query_map([text], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the body of a row, or `None` if it is not JSON. The damage is then reported when the row
/// is read.
fn read_body(
    transaction: &Connection,
    table: &str,
    key: &str,
    id: i64,
) -> Result<Option<Value>, StoreFault> {
    let sql = format!("SELECT body FROM {table} WHERE {key} = ?1");
    let body: String = transaction.query_row(&sql, [id], |row| row.get(0))?;
    Ok(serde_json::from_str(&body).ok())
}

/// Adds to `remotes` each task whose submission has the field `joins`, which names a git remote.
/// Such a task brings the remote's commits into the trunk.
fn collect_remotes(value: &Value, remotes: &mut MergedRemotes) {
    match value {
        Value::Array(values) => values
            .iter()
            .for_each(|value| collect_remotes(value, remotes)),
        Value::Object(fields) => {
            let remote = fields
                .get("submission")
                .and_then(|submission| submission.get("joins"))
                .and_then(Value::as_str);
            // A landing and an event name their task in the field `task`, while a task has only its
            // own `id`.
            let task = fields.get("task").or(fields.get("id"));
            if let (Some(remote), Some(Value::String(task))) = (remote, task) {
                remotes.insert(task.clone(), remote.to_owned());
            }
            fields
                .values()
                .for_each(|value| collect_remotes(value, remotes));
        }
        _ => {}
    }
}

/// Sets the purpose of every task inside a JSON value. Returns whether anything changed.
fn set_purposes_in(value: &mut Value, remotes: &MergedRemotes) -> bool {
    match value {
        Value::Array(values) => values.iter_mut().fold(false, |changed, value| {
            set_purposes_in(value, remotes) | changed
        }),
        Value::Object(fields) => {
            let changed = is_task(fields) && set_purpose(fields, remotes);
            fields.values_mut().fold(changed, |changed, value| {
                set_purposes_in(value, remotes) | changed
            })
        }
        _ => false,
    }
}

/// Returns whether a JSON object is a stored task of the old form. The request to add a task also
/// has `issue_type` and `expects`, but no status.
fn is_task(fields: &Map<String, Value>) -> bool {
    ["id", "subject", "issue_type", "expects", "status"]
        .iter()
        .all(|name| fields.contains_key(*name))
}

/// Replaces the old fields of a task by the field `purpose`. Ordinary work that changes files gets
/// no such field.
fn set_purpose(fields: &mut Map<String, Value>, remotes: &MergedRemotes) -> bool {
    let mut remove = |name: &str| fields.remove(name).filter(|value| !value.is_null());
    let expects = remove("expects");
    let explored = remove("explores");
    let reviewed = remove("reviews");
    let reviewed_commit = remove("reviews_commit");
    let duty = remove("duty");
    let session = remove("standing");
    let remote = fields
        .get("id")
        .and_then(Value::as_str)
        .and_then(|id| remotes.get(id));
    let purpose = if let Some(duty) = duty {
        // A duty has the same name as its purpose, so use the name unchanged.
        Some(duty)
    } else if let Some(session) = session {
        Some(json!({ "session": session }))
    } else if let Some(task) = explored {
        Some(json!({ "explore": { "task": task } }))
    } else if let Some(task) = reviewed {
        Some(json!({ "review": { "task": task, "commit": reviewed_commit } }))
    } else if let Some(remote) = remote {
        Some(json!({ "merge_remote": { "remote": remote } }))
    } else {
        expects
            .filter(|expects| expects == "report")
            .map(|expects| json!({ "work": { "expects": expects } }))
    };
    if let Some(purpose) = purpose {
        fields.insert("purpose".into(), purpose);
    }
    true
}

#[cfg(test)]
mod tests {
    use regatta_core::event::Recorded;
    use regatta_core::task::{Purpose, Task};
    use regatta_engine::ports::store::Store;
    use regatta_testkit::store_suite::history_fixture::all_steps;

    use super::*;
    use crate::deferred_rows::{DeferralLimits, DeferredRows};
    use crate::{SqliteStore, commit, open, schema};

    /// The last schema in which a task had the old fields.
    const OLD_SCHEMA: i64 = 9;

    /// Changes every task and submission inside a JSON value back to the old form.
    fn to_old_form(value: &mut Value, remotes: &MergedRemotes) {
        let Value::Object(fields) = value else {
            if let Value::Array(values) = value {
                values
                    .iter_mut()
                    .for_each(|value| to_old_form(value, remotes));
            }
            return;
        };
        let task = fields.get("task").or(fields.get("id"));
        let remote = task
            .and_then(Value::as_str)
            .and_then(|task| remotes.get(task));
        if let Some(remote) = remote.cloned()
            && let Some(Value::Object(submission)) = fields.get_mut("submission")
        {
            submission.insert("joins".into(), remote.into());
        }
        let is_task = ["id", "subject", "issue_type", "status"]
            .iter()
            .all(|name| fields.contains_key(*name));
        if is_task {
            task_to_old_form(fields);
        }
        fields
            .values_mut()
            .for_each(|value| to_old_form(value, remotes));
    }

    fn task_to_old_form(fields: &mut Map<String, Value>) {
        let task: Task = serde_json::from_value(Value::Object(fields.clone())).unwrap();
        let purpose = fields.remove("purpose").unwrap_or_default();
        fields.insert("expects".into(), json!(task.expects()));
        match task.purpose {
            Purpose::Work { .. } | Purpose::MergeRemote { .. } => {}
            Purpose::Session(session) => {
                fields.insert("standing".into(), json!(session));
            }
            Purpose::Explore { task } => {
                fields.insert("explores".into(), json!(task));
            }
            Purpose::Review { task, commit } => {
                fields.insert("reviews".into(), json!(task));
                fields.insert("reviews_commit".into(), json!(commit));
            }
            Purpose::Lead
            | Purpose::Answer { .. }
            | Purpose::Triage { .. }
            | Purpose::Converse { .. }
            | Purpose::Plan { .. } => {
                fields.insert("duty".into(), purpose);
            }
        }
    }

    /// Gives the tasks that bring in a remote's commits their purpose in every event. Today's
    /// events add such a task as ordinary work and set the purpose in the next event. The old
    /// fields do not tell these events apart, so the migration sets the purpose in all of them.
    fn set_merge_purpose(value: &mut Value, remotes: &MergedRemotes) {
        match value {
            Value::Array(values) => values
                .iter_mut()
                .for_each(|value| set_merge_purpose(value, remotes)),
            Value::Object(fields) => {
                let remote = fields
                    .get("id")
                    .and_then(Value::as_str)
                    .and_then(|id| remotes.get(id));
                if let Some(remote) = remote.filter(|_| fields.contains_key("issue_type")) {
                    let purpose = json!({ "merge_remote": { "remote": remote } });
                    fields.insert("purpose".into(), purpose);
                }
                fields
                    .values_mut()
                    .for_each(|value| set_merge_purpose(value, remotes));
            }
            _ => {}
        }
    }

    #[test]
    fn each_old_field_becomes_a_purpose() {
        let remotes = MergedRemotes::from([("T7".to_owned(), "origin".to_owned())]);
        for (old, purpose) in [
            (json!({ "expects": "changes" }), Value::Null),
            (
                json!({ "expects": "report" }),
                json!({ "work": { "expects": "report" } }),
            ),
            (
                json!({ "expects": "report", "explores": "T4" }),
                json!({ "explore": { "task": "T4" } }),
            ),
            (
                json!({ "expects": "report", "reviews": "T4", "reviews_commit": "abc" }),
                json!({ "review": { "task": "T4", "commit": "abc" } }),
            ),
            (
                json!({ "expects": "report", "reviews": "T4" }),
                json!({ "review": { "task": "T4", "commit": null } }),
            ),
            (
                json!({ "expects": "report", "duty": "lead" }),
                json!("lead"),
            ),
            (
                json!({ "expects": "report", "duty": { "plan": { "goal": "g" } } }),
                json!({ "plan": { "goal": "g" } }),
            ),
            (
                json!({ "expects": "report", "standing": { "launch": "S1", "member": "tom" } }),
                json!({ "session": { "launch": "S1", "member": "tom" } }),
            ),
            (
                json!({ "expects": "changes", "id": "T7" }),
                json!({ "merge_remote": { "remote": "origin" } }),
            ),
        ] {
            let mut task =
                json!({ "id": "T1", "subject": "s", "issue_type": "task", "status": "pending" });
            let fields = task.as_object_mut().unwrap();
            fields.extend(old.as_object().unwrap().clone());
            let mut row = json!({ "task_added": { "task": task } });
            assert!(set_purposes_in(&mut row, &remotes));
            let task = &row["task_added"]["task"];
            assert_eq!(task["purpose"], purpose, "{old}");
            for name in ["expects", "explores", "reviews", "duty", "standing"] {
                assert!(task.get(name).is_none(), "{name} is left of {old}");
            }
        }
        let mut request = json!({ "add_task": { "task": { "issue_type": "task", "expects": "report", "subject": "s" } } });
        assert!(
            !set_purposes_in(&mut request, &remotes),
            "a request to add a task keeps its form"
        );
    }

    /// D4: a store of schema 9 is migrated so that rows and events give the same board as if the
    /// tasks had always had a purpose.
    #[test]
    fn tasks_of_older_stores_get_their_purpose() {
        let steps = all_steps();
        let events: Vec<Recorded> = steps
            .iter()
            .flat_map(|step| step.batch.events.clone())
            .collect();
        let remotes: MergedRemotes = steps
            .iter()
            .flat_map(|step| step.board.tasks.values())
            .filter_map(|task| Some((task.id.to_string(), task.merged_remote()?.to_owned())))
            .collect();
        assert!(!remotes.is_empty(), "no step brings in a remote's commits");

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let mut old = open::open_for_writing(&path).unwrap();
        for step in &steps {
            let mut deferred = DeferredRows::new(DeferralLimits::DEFAULT);
            commit::commit_batch(&mut old, &mut Vec::new(), &step.batch, &mut deferred, &path)
                .unwrap();
        }
        for (table, key) in TABLES {
            for id in rows_with(&old, table, key, "").unwrap() {
                let mut body = read_body(&old, table, key, id).unwrap().unwrap();
                to_old_form(&mut body, &remotes);
                old.execute(
                    &format!("UPDATE {table} SET body = ?2 WHERE {key} = ?1"),
                    (id, body.to_string()),
                )
                .unwrap();
            }
        }
        old.pragma_update(None, "user_version", OLD_SCHEMA).unwrap();
        for field in ["expects", "duty", "standing", "joins"] {
            let found: usize = TABLES
                .iter()
                .map(|(table, key)| {
                    let field = format!("\"{field}\":");
                    rows_with(&old, table, key, &field).unwrap().len()
                })
                .sum();
            assert!(found > 0, "the old store has no field {field}");
        }
        drop(old);

        let mut store = SqliteStore::open(&path).unwrap();
        let loaded = store.load().unwrap().board;
        let expected = &steps.last().unwrap().board;
        for (id, task) in &expected.tasks {
            assert_eq!(loaded.tasks.get(id), Some(task));
        }
        assert!(loaded == *expected, "the board differs");
        let read = store.history().events(0, usize::MAX).unwrap();
        assert_eq!(read.len(), events.len());
        for (read, written) in read.iter().zip(&events) {
            let mut expected = serde_json::to_value(&written.event).unwrap();
            set_merge_purpose(&mut expected, &remotes);
            assert_eq!(serde_json::to_value(&read.event).unwrap(), expected);
            assert_eq!(
                (read.revision, read.now, &read.by),
                (written.revision, written.now, &written.by)
            );
        }
        store.check().unwrap();
        assert!(schema::newest_version() > OLD_SCHEMA);
    }
}
