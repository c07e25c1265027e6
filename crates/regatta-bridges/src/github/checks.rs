//! Shows a GitHub check run on each git commit that an agent pushed for a conversation. The check
//! run shows the progress of merging the work into the trunk, and has a button to retry the merge.
//!
//! The content of a check run is computed from the board (the daemon's state in memory), and the
//! bridge searches GitHub for an existing check run before it creates one. So the bridge stores
//! nothing about check runs, and can update them after a restart.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::conversation::{Conversation, ConversationLandingEnd, Service};
use regatta_core::display::{self, DisplayState};
use regatta_core::ids::{CommitId, ConversationId, Now};
use regatta_core::landing::batches::LandingProgress;
use regatta_core::task::Task;
use reqwest::Method;
use serde_json::{Value, json};

use crate::intake::Intake;
use crate::service::ServiceError;

use super::api::GithubApi;
use super::markup;

/// Identifier of the retry button. GitHub sends this identifier when a person presses the button.
pub(super) const RETRY_ACTION_ID: &str = "again";
const CHECK_NAME: &str = "Regatta";
const RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);
/// Maximum time between two checks of all conversations. The check is repeated even if nothing
/// changes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// The content of a check run, as sent to GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CheckContent {
    repo: String,
    commit: String,
    key: String,
    status: &'static str,
    conclusion: Option<&'static str>,
    title: String,
    summary: String,
}

/// The check run that GitHub currently shows for a conversation, as far as the bridge knows.
#[derive(Debug, Default)]
struct ShownCheck {
    content: Option<CheckContent>,
    /// The git commit to which the check run belongs, and GitHub's id of the check run.
    check_run: Option<(String, u64)>,
    failures: u32,
    not_before: Option<Instant>,
}

/// Creates and updates check runs when conversations change, until the bridge ends.
pub(super) async fn show_check_runs(intake: &Intake, api: &GithubApi) {
    let mut shown_checks: BTreeMap<ConversationId, ShownCheck> = BTreeMap::new();
    let mut changes = intake.engine.watch_board();
    loop {
        let board = changes.borrow_and_update().clone();
        shown_checks.retain(|id, _| board.conversations.contains_key(id));
        let mut wake = Instant::now() + REFRESH_INTERVAL;
        let own_conversations = board.conversations.values().filter(|conversation| {
            conversation.agent == intake.agent && conversation.pushed.is_some()
        });
        for conversation in own_conversations.filter(|_| !intake.is_paused()) {
            let state = shown_checks.entry(conversation.id).or_default();
            let Some(content) = check_content(intake, &board, conversation) else {
                continue;
            };
            if state.content.as_ref() == Some(&content) {
                continue;
            }
            if let Some(retry_at) = state.not_before.filter(|instant| *instant > Instant::now()) {
                wake = wake.min(retry_at);
                continue;
            }
            match create_or_update(api, &content, state.check_run.clone()).await {
                Ok(id) => {
                    state.check_run = Some((content.commit.clone(), id));
                    state.content = Some(content);
                    state.failures = 0;
                    state.not_before = None;
                }
                // The user need not give the app the permission for checks. Without this permission
                // GitHub rejects the call, so the call is not repeated.
                Err(ServiceError::Rejected(why) | ServiceError::Unauthorized(why)) => {
                    tracing::info!(agent = %intake.agent, "GitHub rejected the check run for conversation {}, so GitHub does not show the state of the conversation's work: {why}", conversation.id);
                    state.content = Some(content);
                }
                Err(error) => {
                    state.failures += 1;
                    let pause = (RETRY_DELAY * 2_u32.saturating_pow(state.failures.min(8) - 1))
                        .min(MAX_RETRY_DELAY);
                    let pause = if let ServiceError::RetryAfter(min_pause) = error {
                        pause.max(min_pause)
                    } else {
                        pause
                    };
                    state.not_before = Some(Instant::now() + pause);
                    wake = wake.min(Instant::now() + pause);
                    intake.update_health(|health| health.trouble = Some(error.describe()));
                }
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return std::future::pending().await },
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

/// Returns the content of a conversation's check run. Returns `None` if none of the conversation's
/// work is or was in the landing queue, where finished work waits to be merged.
fn check_content(
    intake: &Intake,
    board: &Board,
    conversation: &Conversation,
) -> Option<CheckContent> {
    let pushed = conversation
        .pushed
        .as_ref()
        .filter(|pushed| pushed.failure.is_none())?;
    let repo = match conversation.service {
        Service::Github => conversation.address.get("repo")?.clone(),
        _ => {
            let mappings = intake.registry().config.map.iter();
            mappings
                .filter(|mapping| mapping.project.as_ref() == Some(&conversation.project))
                .find_map(|mapping| mapping.github.clone())?
        }
    };
    let task = conversation.task.and_then(|id| board.tasks.get(&id));
    let (status, conclusion, title, summary) = match task {
        Some(task)
            if display::task_display(board, task).state == DisplayState::Landing
                && is_submission_of(task, &pushed.commit) =>
        {
            let landing = task.landing.and_then(|id| board.landings.get(&id));
            let now = Now {
                fleet_ms: board.fleet_ms,
                unix_ms: 0,
            };
            let queued = display::landing_display(LandingProgress::Queued);
            let shown = landing.map_or(queued, |landing| {
                display::landing_display_in_queue(board, landing, now)
            });
            let title = format!("In the merge queue: {}", shown.label);
            match shown.state {
                DisplayState::Waiting | DisplayState::Needs => {
                    let why = landing
                        .and_then(|landing| landing.held.clone())
                        .unwrap_or_else(|| "other tasks are ahead of it".into());
                    ("queued", None, title, format!("{}: {why}.", task.id))
                }
                _ => {
                    let text = format!(
                        "Regatta merges {} onto the trunk's tip and checks the merged tree.",
                        task.id
                    );
                    ("in_progress", None, title, text)
                }
            }
        }
        // Show the result of a landing (a merge into the trunk) only on the commit that was landed,
        // because a later commit gets a check run of its own.
        _ => match conversation
            .landing_end
            .as_ref()
            .filter(|end| *end.work() == pushed.commit)?
        {
            ConversationLandingEnd::Landed { commit, .. } => (
                "completed",
                Some("success"),
                "Landed".to_owned(),
                format!("It is on the trunk as {commit}."),
            ),
            ConversationLandingEnd::Failed { reason, .. } => (
                "completed",
                Some("failure"),
                "Did not land".to_owned(),
                format!("It did not land: {reason}"),
            ),
        },
    };
    Some(CheckContent {
        repo,
        commit: pushed.commit.to_string(),
        key: conversation.key.clone(),
        status,
        conclusion,
        title,
        summary: markup::without_mentions(&summary)
            .chars()
            .take(60_000)
            .collect(),
    })
}

fn is_submission_of(task: &Task, commit: &CommitId) -> bool {
    task.submission
        .as_ref()
        .is_some_and(|submission| submission.commit == *commit)
}

/// Creates the check run, or updates the existing check run of this commit. Returns the id of the
/// check run.
async fn create_or_update(
    api: &GithubApi,
    content: &CheckContent,
    known: Option<(String, u64)>,
) -> Result<u64, ServiceError> {
    let id = match known.filter(|(commit, _)| *commit == content.commit) {
        Some((_, id)) => Some(id),
        None => find_check_run(api, content).await?,
    };
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let mut body = json!({
        "name": CHECK_NAME,
        "external_id": content.key,
        "status": content.status,
        "output": {"title": content.title, "summary": content.summary},
    });
    match content.conclusion {
        Some(conclusion) => {
            body["conclusion"] = json!(conclusion);
            body["completed_at"] = json!(now);
        }
        None => body["started_at"] = json!(now),
    }
    if content.conclusion == Some("failure") {
        body["actions"] = json!([{"label": "Re-run", "description": "Try to land it again", "identifier": RETRY_ACTION_ID}]);
    }
    let answer = match id {
        Some(id) => {
            let path = format!("/check-runs/{id}");
            api.call_repo(&content.repo, Method::PATCH, &path, Some(&body))
                .await?
        }
        None => {
            body["head_sha"] = json!(content.commit);
            api.call_repo(&content.repo, Method::POST, "/check-runs", Some(&body))
                .await?
        }
    };
    answer.body["id"]
        .as_u64()
        .ok_or_else(|| ServiceError::OutcomeUnknown("GitHub returned no check id".into()))
}

/// Returns the id of the check run that the agent's app already created for this conversation on
/// this commit, if any.
async fn find_check_run(
    api: &GithubApi,
    content: &CheckContent,
) -> Result<Option<u64>, ServiceError> {
    let path = format!(
        "/commits/{}/check-runs?check_name={CHECK_NAME}&filter=latest&per_page=100",
        content.commit
    );
    let found = api
        .call_repo(&content.repo, Method::GET, &path, None)
        .await?;
    let is_own = |value: &&Value| {
        value["external_id"] == json!(content.key) && api.is_own_app(&value["app"]["id"])
    };
    let runs = found.body["check_runs"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    Ok(runs.iter().find(is_own).and_then(|run| run["id"].as_u64()))
}
