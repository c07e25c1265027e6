//! Parses the files in which an agent reports on its work: the result file at the path in
//! `REGATTA_RESULT`, and the list of changes outside its task's file patterns.

use regatta_core::attempt::{ResultStatus, WorkResult};
use regatta_core::scope_escape::ScopeFinding;
use serde_json::{Map, Value};

/// The largest size in bytes of a result file, in which an agent reports the result of its task.
pub(crate) const MAX_RESULT_BYTES: usize = 64 * 1024;

/// The two spellings of the result's field that names the directory in which the agent worked.
const DIR_FIELDS: [&str; 2] = ["worktree_path", "worktreePath"];

/// A result that was read from an agent's result file, and the work outside the task's file
/// patterns that the file reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ParsedResult {
    pub result: WorkResult,
    pub findings: Vec<ScopeFinding>,
    /// True if the result has the field for the agent's working directory, but the field is empty.
    #[serde(default)]
    #[serde(rename = "says_no_workspace")]
    pub is_workspace_empty: bool,
}

/// Parses the bytes of a result file. `Err` says what is wrong with the bytes.
pub(crate) fn parse_result(bytes: &[u8]) -> Result<ParsedResult, String> {
    if bytes.len() > MAX_RESULT_BYTES {
        return Err(format!(
            "it has {} bytes; the limit is {MAX_RESULT_BYTES}",
            bytes.len()
        ));
    }
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
    let Value::Object(fields) = value else {
        return Err("it is not a JSON object".into());
    };
    let result = WorkResult {
        kind: string_field(&fields, &["type"])?.unwrap_or_else(|| "completion".into()),
        issue_id: string_field(&fields, &["issue_id", "issueId"])?.unwrap_or_default(),
        status: parse_status(
            string_field(&fields, &["status"])?
                .as_deref()
                .unwrap_or("done"),
        )?,
        detail: string_field(&fields, &["detail"])?.unwrap_or_default(),
        artifacts: string_list_field(&fields, "artifacts")?,
        worktree_path: string_field(&fields, &DIR_FIELDS)?.filter(|path| !path.trim().is_empty()),
        learnings: string_list_field(&fields, "learnings")?,
        copy_path: None,
    };
    let findings = match fields.get("scope_escapes") {
        None | Some(Value::Null) => vec![],
        Some(list) => serde_json::from_value(list.clone()).map_err(|error| {
            format!("its scope_escapes are not a list of {{finding, suggested_files}}: {error}")
        })?,
    };
    let is_workspace_empty =
        result.worktree_path.is_none() && DIR_FIELDS.iter().any(|name| fields.contains_key(*name));
    Ok(ParsedResult {
        result,
        findings,
        is_workspace_empty,
    })
}

/// Parses the text of a file that lists work outside a task's file patterns, one entry per line.
/// Skips lines that are not valid entries.
pub(crate) fn parse_escapes(text: &str) -> Vec<ScopeFinding> {
    let parse_line = |line: &str| serde_json::from_str::<ScopeFinding>(line.trim()).ok();
    text.lines()
        .take(1_000)
        .filter_map(parse_line)
        .filter(|escape| !escape.finding.trim().is_empty())
        .collect()
}

fn parse_status(status: &str) -> Result<ResultStatus, String> {
    match status.trim().to_ascii_lowercase().as_str() {
        "" | "done" | "complete" | "completed" | "success" | "succeeded" | "ok" | "pass"
        | "passed" => Ok(ResultStatus::Done),
        "not_needed" | "unneeded" | "nothing_needed" | "no_change_needed" => {
            Ok(ResultStatus::NotNeeded)
        }
        "blocked" | "needs_human" | "waiting" => Ok(ResultStatus::Blocked),
        "failed" | "fail" | "failure" | "error" | "partial" => Ok(ResultStatus::Failed),
        unknown => Err(format!(
            "its status is {unknown:?}; it must be done, not_needed, blocked or failed"
        )),
    }
}

fn string_field(fields: &Map<String, Value>, names: &[&str]) -> Result<Option<String>, String> {
    match names
        .iter()
        .find_map(|name| fields.get(*name).map(|value| (name, value)))
    {
        None | Some((_, Value::Null)) => Ok(None),
        Some((_, Value::String(text))) => Ok(Some(text.clone())),
        Some((_, Value::Number(number))) => Ok(Some(number.to_string())),
        Some((name, _)) => Err(format!("its {name} is not text")),
    }
}

fn string_list_field(fields: &Map<String, Value>, name: &str) -> Result<Vec<String>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(vec![]),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(values)) => values
            .iter()
            .map(|value| {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| format!("its {name} are not a list of texts"))
            })
            .collect(),
        Some(_) => Err(format!("its {name} are not a list of texts")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_with_either_spelling_of_its_worktree_path() {
        for name in ["worktreePath", "worktree_path"] {
            let json = format!(
                r#"{{"type":"completion","issue_id":"T1","status":"done","detail":"d","artifacts":["a.rs"],"{name}":"/w"}}"#
            );
            let result = parse_result(json.as_bytes()).unwrap().result;
            assert_eq!(result.worktree_path.as_deref(), Some("/w"), "{name}");
            assert_eq!(
                (result.kind.as_str(), result.issue_id.as_str()),
                ("completion", "T1")
            );
            assert_eq!(
                (result.status, result.detail.as_str()),
                (ResultStatus::Done, "d")
            );
            assert_eq!(result.artifacts, ["a.rs"]);
            assert!(
                serde_json::to_string(&result)
                    .unwrap()
                    .contains("\"worktree_path\":\"/w\""),
                "the result is not written with worktree_path"
            );
        }
    }

    #[test]
    fn result_may_state_that_it_had_no_workspace() {
        let is_empty = |json: &str| parse_result(json.as_bytes()).unwrap().is_workspace_empty;
        assert!(is_empty(r#"{"worktreePath":null}"#) && is_empty(r#"{"worktree_path":" "}"#));
        assert!(
            !is_empty(r#"{"worktree_path":"/w"}"#) && !is_empty("{}"),
            "a result without the field counts as one without a workspace"
        );
    }

    #[test]
    fn each_status_word_is_read_as_its_status() {
        let status_of = |word: &str| {
            parse_result(format!(r#"{{"status":"{word}"}}"#).as_bytes())
                .map(|parsed| parsed.result.status)
        };
        for (word, status) in [
            ("done", ResultStatus::Done),
            ("COMPLETED", ResultStatus::Done),
            ("blocked", ResultStatus::Blocked),
            ("failed", ResultStatus::Failed),
            ("partial", ResultStatus::Failed),
        ] {
            assert_eq!(status_of(word), Ok(status), "{word}");
        }
        assert!(status_of("who knows").is_err());
    }

    #[test]
    fn an_invalid_result_is_refused_with_a_reason() {
        for (bytes, why) in [
            ("", "not JSON"),
            ("[]", "not a JSON object"),
            (r#"{"status": {}}"#, "status is not text"),
            (r#"{"artifacts": [1]}"#, "artifacts are not a list"),
            (r#"{"learnings": 1}"#, "learnings are not a list"),
            (r#"{"scope_escapes": 1}"#, "scope_escapes"),
        ] {
            let error = parse_result(bytes.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{bytes}: {error}");
        }
        assert!(
            parse_result(&vec![b' '; MAX_RESULT_BYTES + 1])
                .unwrap_err()
                .contains("bytes")
        );
    }

    #[test]
    fn scope_escapes_are_read_line_by_line() {
        let text = concat!(
            r#"{"worker":"w","finding":"a bug","suggested_files":["x"],"timestamp":"2026-01-01T00:00:00Z"}"#,
            "\nrubbish\n{}\n",
            r#"{"finding":" "}"#,
        );
        assert_eq!(
            parse_escapes(text),
            [ScopeFinding {
                finding: "a bug".into(),
                suggested_files: vec!["x".into()]
            }]
        );
    }
}
