//! Imitates GitHub's check runs (results of checks on a commit). Only the app that created a check
//! run can change it.

use serde_json::{Value, json};

use super::super::double::{ServiceAnswer, ViolationKind};
use super::issues::parse_number;
use super::payloads;
use super::routes::{GitHubError, GitHubRequest, GitHubResult, invalid, not_found};
use super::state::CheckRun;

const STATUSES: [&str; 3] = ["queued", "in_progress", "completed"];
const CONCLUSIONS: [&str; 7] = [
    "success",
    "failure",
    "neutral",
    "cancelled",
    "skipped",
    "timed_out",
    "action_required",
];

pub(crate) fn answer_check(
    turn: &mut GitHubRequest<'_>,
    repo: &str,
    method: &str,
    rest: &[&str],
) -> GitHubResult {
    turn.repo(repo)?;
    match (method, rest) {
        ("POST", ["check-runs"]) => create_check(turn, repo),
        ("GET", ["check-runs", id]) => {
            let id = parse_number(id)?;
            Ok(ServiceAnswer::ok(check_json(turn, repo, id)?))
        }
        ("PATCH", ["check-runs", id]) => update_check(turn, repo, parse_number(id)?),
        ("GET", ["commits", sha, "check-runs"]) => {
            let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
            let name = turn.request.query("check_name");
            let matches_filter = |check_run: &&CheckRun| {
                check_run.head_sha == *sha && name.is_none_or(|name| check_run.name == name)
            };
            let mut all: Vec<&CheckRun> = repo_state.checks.iter().filter(matches_filter).collect();
            if turn.request.query("filter") != Some("all") {
                // List only the latest check run for each combination of name and app, unless the
                // client asks for all check runs.
                let newest = |at: usize| {
                    !all[at + 1..].iter().any(|check_run| {
                        check_run.name == all[at].name && check_run.app == all[at].app
                    })
                };
                all = (0..all.len())
                    .filter(|at| newest(*at))
                    .map(|at| all[at])
                    .collect();
            }
            let all = all
                .into_iter()
                .map(|check_run| payloads::check(turn.github, repo_state, check_run))
                .collect();
            Ok(turn.page(all, Some("check_runs")))
        }
        _ => Err(not_found()),
    }
}

fn check_json(turn: &GitHubRequest<'_>, repo: &str, id: u64) -> Result<Value, GitHubError> {
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    let check = repo_state
        .checks
        .iter()
        .find(|check_run| check_run.id == id)
        .ok_or_else(not_found)?;
    Ok(payloads::check(turn.github, repo_state, check))
}

/// Returns an error if a check run has fields or values that GitHub's API description does not
/// allow.
fn validate_fields(input: &Value) -> Result<(), GitHubError> {
    let short = |value: &Value, most: usize| {
        value
            .as_str()
            .is_some_and(|value| value.chars().count() <= most)
    };
    if !input["status"].is_null() && !STATUSES.iter().any(|status| input["status"] == *status) {
        return Err(invalid(
            ViolationKind::BadField,
            "status",
            "status must be queued, in_progress or completed",
        ));
    }
    if !input["conclusion"].is_null()
        && !CONCLUSIONS
            .iter()
            .any(|conclusion| input["conclusion"] == *conclusion)
    {
        return Err(invalid(
            ViolationKind::BadField,
            "conclusion",
            "conclusion is not one of the values that GitHub allows",
        ));
    }
    if input["status"] == "completed" && input["conclusion"].is_null() {
        return Err(invalid(
            ViolationKind::BadField,
            "conclusion",
            "conclusion is missing, but status is completed",
        ));
    }
    if let Some(output) = input.get("output") {
        if !output["title"].is_string() || !output["summary"].is_string() {
            return Err(invalid(
                ViolationKind::BadField,
                "output",
                "output must have a title and a summary",
            ));
        }
        for field in ["summary", "text"] {
            if !output[field].is_null() && !short(&output[field], 65_535) {
                return Err(invalid(
                    ViolationKind::TooLong,
                    field,
                    "exceeds a maximum length of 65535",
                ));
            }
        }
        if output["annotations"]
            .as_array()
            .is_some_and(|output| output.len() > 50)
        {
            return Err(invalid(
                ViolationKind::TooLong,
                "annotations",
                "annotations must have at most 50 entries in one request",
            ));
        }
    }
    let actions = input["actions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let fits = |value: &Value| {
        short(&value["label"], 20)
            && short(&value["description"], 40)
            && short(&value["identifier"], 20)
    };
    if actions.len() > 3 || !actions.iter().all(fits) {
        return Err(invalid(
            ViolationKind::TooLong,
            "actions",
            "actions must have at most three entries; label 20, description 40, identifier 20 \
            characters",
        ));
    }
    Ok(())
}

fn create_check(turn: &mut GitHubRequest<'_>, repo: &str) -> GitHubResult {
    let (name, head_sha) = (turn.required_text("name")?, turn.required_text("head_sha")?);
    if head_sha.len() != 40 || !head_sha.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(invalid(
            ViolationKind::BadField,
            "head_sha",
            "No commit found for SHA",
        ));
    }
    validate_fields(turn.input)?;
    let id = 5_000_000 + turn.records.next();
    let mut check = CheckRun {
        id,
        app: turn.app_slug(),
        name,
        head_sha,
        status: "queued".into(),
        conclusion: None,
        fields: json!({}),
        versions: vec![],
    };
    merge_fields(&mut check, turn.input);
    turn.repo(repo)?.checks.push(check);
    Ok(ServiceAnswer::with_status(201, check_json(turn, repo, id)?))
}

fn merge_fields(check: &mut CheckRun, input: &Value) {
    for (name, value) in input.as_object().into_iter().flatten() {
        check.fields[name] = value.clone();
    }
    if let Some(status) = input["status"].as_str() {
        check.status = status.to_owned();
    }
    if let Some(conclusion) = input["conclusion"].as_str() {
        check.conclusion = Some(conclusion.to_owned());
        check.status = "completed".into();
    } else if input["status"].is_string() {
        check.conclusion = None;
    }
    if let Some(name) = input["name"].as_str() {
        check.name = name.to_owned();
    }
    check
        .versions
        .push((check.status.clone(), check.conclusion.clone()));
}

fn update_check(turn: &mut GitHubRequest<'_>, repo: &str, id: u64) -> GitHubResult {
    validate_fields(turn.input)?;
    let (slug, input) = (turn.app_slug(), turn.input);
    let check = turn
        .repo(repo)?
        .checks
        .iter_mut()
        .find(|check_run| check_run.id == id)
        .ok_or_else(not_found)?;
    if check.app != slug {
        let message = "Invalid app_id. A check run can only be updated by its own app".into();
        return Err(GitHubError {
            status: 403,
            message,
            errors: Value::Null,
            violation: Some(ViolationKind::NotOwned),
        });
    }
    merge_fields(check, input);
    Ok(ServiceAnswer::ok(check_json(turn, repo, id)?))
}
