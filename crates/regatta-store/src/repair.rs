//! Repairs data that older versions stored wrongly. The repair runs when a store is brought to a
//! newer schema.
//!
//! Up to schema 8, the path of a file that a task may change was put into the URI of the task's
//! claim (a lease on files) without escaping `%`. Such a claim could not be read again (`50%
//! off.html`). Or it was read as a claim on another file, such as `%61.txt` as `a.txt`.

use rusqlite::Connection;
use serde_json::Value;

use crate::errors::StoreFault;

/// Escapes the percent signs in claims (leases) on the files of a task. Changes both rows and
/// events, so that the rows can still be computed from the events (D4).
pub(crate) fn escape_claims(transaction: &Connection) -> Result<(), StoreFault> {
    for (table, key) in [("claims", "id"), ("events", "revision")] {
        let sql = format!(
            "SELECT {key}, body FROM {table} WHERE instr(body, 'file://') > 0 AND instr(body, \
            '%') > 0"
        );
        let mut statement = transaction.prepare(&sql)?;
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })?;
        let rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>()?;
        for (id, body) in rows {
            // A body that is not JSON is left unchanged. The damage is reported when the row is
            // read.
            let Ok(mut value) = serde_json::from_str::<Value>(&body) else {
                continue;
            };
            if escape_in(&mut value) {
                let update = format!("UPDATE {table} SET body = ?2 WHERE {key} = ?1");
                transaction.execute(&update, (id, value.to_string()))?;
            }
        }
    }
    Ok(())
}

/// Searches a JSON value for claims (leases) on the files of tasks, and escapes the claims' URIs.
/// Returns whether anything changed.
fn escape_in(value: &mut Value) -> bool {
    match value {
        Value::Array(values) => values
            .iter_mut()
            .fold(false, |changed, value| escape_in(value) | changed),
        Value::Object(fields) => {
            let from_manifest = is_from_manifest(fields);
            let mut changed = false;
            for (name, value) in fields.iter_mut() {
                changed |= match value {
                    Value::Array(uris) if from_manifest && name == "uris" => escape_uris(uris),
                    value => escape_in(value),
                };
            }
            changed
        }
        _ => false,
    }
}

/// Returns whether a JSON object is a claim that an attempt or a landing holds on the task's files.
/// Such a claim has no TTL (time to live). A claim that somebody requested has a TTL, and its URIs
/// were already checked when it was requested.
fn is_from_manifest(fields: &serde_json::Map<String, Value>) -> bool {
    let owner = fields.get("owner").and_then(Value::as_object);
    owner.is_some_and(|owner| owner.contains_key("attempt") || owner.contains_key("landing"))
        && fields.get("ttl_ms").is_some_and(Value::is_null)
}

fn escape_uris(uris: &mut [Value]) -> bool {
    let mut changed = false;
    for uri in uris {
        if let Value::String(text) = uri
            && text.starts_with("file://")
            && text.contains('%')
        {
            *text = text.replace('%', "%25");
            changed = true;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_claims_of_manifests_are_escaped() {
        let claim = |owner: Value, ttl: Value, uri: &str| json!({ "owner": owner, "ttl_ms": ttl, "uris": [uri] });
        for (owner, ttl, uri, escaped) in [
            (
                json!({ "attempt": "A1" }),
                Value::Null,
                "file://p/50% off",
                "file://p/50%25 off",
            ),
            (
                json!({ "landing": "L1" }),
                Value::Null,
                "file://p/%61.txt",
                "file://p/%2561.txt",
            ),
            (
                json!({ "attempt": "A1" }),
                Value::Null,
                "file://p/a.txt",
                "file://p/a.txt",
            ),
            (
                json!({ "attempt": "A1" }),
                Value::Null,
                "port://80",
                "port://80",
            ),
            (
                json!({ "attempt": "A1" }),
                json!(60_000),
                "file://p/%2F",
                "file://p/%2F",
            ),
            (
                json!({ "agent": "bob" }),
                Value::Null,
                "file://p/%2F",
                "file://p/%2F",
            ),
        ] {
            let mut event = json!([["ann", { "kind": "claim.granted", "data": { "claim": claim(owner.clone(), ttl.clone(), uri) } }]]);
            let expected = json!([["ann", { "kind": "claim.granted", "data": { "claim": claim(owner, ttl, escaped) } }]]);
            assert_eq!(escape_in(&mut event), uri != escaped, "{uri}");
            assert_eq!(event, expected);
        }
    }
}
