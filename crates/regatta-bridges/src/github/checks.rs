//! A check run on the commit that a conversation pushed. It shows the status of the landing, and
//! has a button to retry it.
//!
//! The content is derived from the board, and an existing check run is looked up before one is
//! created. It can therefore be shown again at any time, and nothing has to be stored.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::conversation::{Conversation, LandingEnd, Service};
use regatta_core::ids::{CommitId, ConversationId};
use regatta_core::landing::State;
use regatta_core::task::{Status, Task};
use reqwest::Method;
use serde_json::{Value, json};

use crate::desk::{Desk, wall};
use crate::service::Trouble;

use super::api::Api;
use super::inbound::words;
use super::markup;
use super::token::date_of;

/// Identifier of the retry button in GitHub's API.
pub(super) const AGAIN: &str = "again";
const NAME: &str = "Regatta";
const WAIT: Duration = Duration::from_secs(5);
const WAIT_AT_MOST: Duration = Duration::from_secs(300);
/// Time until the next look at the board although nothing changed, because a retry may be due by
/// then.
const LOOK: Duration = Duration::from_secs(60);

/// The content of a check run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    repo: String,
    commit: String,
    key: String,
    status: &'static str,
    conclusion: Option<&'static str>,
    title: String,
    summary: String,
}

/// The check run of a conversation, as it was shown last.
#[derive(Debug, Default)]
struct Shown {
    wanted: Option<Wanted>,
    /// The commit and the id of the check run.
    check: Option<(String, u64)>,
    failures: u32,
    not_before: Option<Instant>,
}

/// Shows check runs for as long as the bridge runs.
pub(super) async fn run(desk: &Desk, api: &Api) {
    let mut shown: BTreeMap<ConversationId, Shown> = BTreeMap::new();
    let mut changes = desk.engine.watch();
    loop {
        let board = changes.borrow_and_update().clone();
        shown.retain(|id, _| board.conversations.contains_key(id));
        let mut wake = Instant::now() + LOOK;
        let own = board.conversations.values().filter(|it| it.agent == desk.agent && it.pushed.is_some());
        for it in own.filter(|_| !desk.is_paused()) {
            let state = shown.entry(it.id).or_default();
            let Some(wanted) = wanted(desk, &board, it) else { continue };
            if state.wanted.as_ref() == Some(&wanted) {
                continue;
            }
            if let Some(at) = state.not_before.filter(|it| *it > Instant::now()) {
                wake = wake.min(at);
                continue;
            }
            match show(api, &wanted, state.check.clone()).await {
                Ok(id) => {
                    state.check = Some((wanted.commit.clone(), id));
                    (state.wanted, state.failures, state.not_before) = (Some(wanted), 0, None);
                }
                // An app without the permission for checks shows none, which is no error.
                Err(Trouble::Never(why) | Trouble::Locked(why)) => {
                    tracing::info!(agent = %desk.agent, "could not show a check: {why}");
                    state.wanted = Some(wanted);
                }
                Err(trouble) => {
                    state.failures += 1;
                    let pause = (WAIT * 2_u32.saturating_pow(state.failures.min(8) - 1)).min(WAIT_AT_MOST);
                    let pause = if let Trouble::Later(least) = trouble { pause.max(least) } else { pause };
                    state.not_before = Some(Instant::now() + pause);
                    wake = wake.min(Instant::now() + pause);
                    desk.note(|it| it.trouble = Some(words(&trouble)));
                }
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return std::future::pending().await },
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

/// Returns the content of a conversation's check run; nothing if it has no landing.
fn wanted(desk: &Desk, board: &Board, it: &Conversation) -> Option<Wanted> {
    let pushed = it.pushed.as_ref().filter(|it| it.trouble.is_none())?;
    let repo = match it.service {
        Service::Github => it.place.get("repo")?.clone(),
        _ => {
            let maps = desk.registry().config.map.iter();
            maps.filter(|map| map.project.as_ref() == Some(&it.project)).find_map(|map| map.github.clone())?
        }
    };
    let task = it.task.and_then(|it| board.tasks.get(&it));
    let (status, conclusion, title, summary) = match task {
        Some(task) if task.status == Status::Landing && is_of(task, &pushed.commit) => {
            let landing = task.landing.and_then(|it| board.landings.get(&it));
            match landing.map(|it| &it.state) {
                Some(State::Queued) | None => {
                    let why =
                        landing.and_then(|it| it.held.clone()).unwrap_or_else(|| "other tasks are ahead of it".into());
                    ("queued", None, "In the merge queue".to_owned(), format!("{}: {why}.", task.id))
                }
                Some(_) => {
                    let text = format!("Regatta merges {} onto the trunk's tip and checks the merged tree.", task.id);
                    ("in_progress", None, "Landing".to_owned(), text)
                }
            }
        }
        // The result belongs to the pushed commit; a later commit gets its own check run.
        _ => match it.landing_end.as_ref().filter(|it| *it.work() == pushed.commit)? {
            LandingEnd::Landed { commit, .. } => {
                ("completed", Some("success"), "Landed".to_owned(), format!("It is on the trunk as {commit}."))
            }
            LandingEnd::Failed { reason, .. } => {
                ("completed", Some("failure"), "Did not land".to_owned(), format!("It did not land: {reason}"))
            }
        },
    };
    Some(Wanted {
        repo,
        commit: pushed.commit.to_string(),
        key: it.key.clone(),
        status,
        conclusion,
        title,
        summary: markup::quiet(&summary).chars().take(60_000).collect(),
    })
}

fn is_of(task: &Task, commit: &CommitId) -> bool {
    task.submission.as_ref().is_some_and(|it| it.commit == *commit)
}

/// Creates the check run, or updates the existing one. Returns its id.
async fn show(api: &Api, wanted: &Wanted, known: Option<(String, u64)>) -> Result<u64, Trouble> {
    let id = match known.filter(|it| it.0 == wanted.commit) {
        Some((_, id)) => Some(id),
        None => find(api, wanted).await?,
    };
    let now = date_of(wall() / 1_000);
    let mut body = json!({
        "name": NAME,
        "external_id": wanted.key,
        "status": wanted.status,
        "output": {"title": wanted.title, "summary": wanted.summary},
    });
    match wanted.conclusion {
        Some(conclusion) => {
            body["conclusion"] = json!(conclusion);
            body["completed_at"] = json!(now);
        }
        None => body["started_at"] = json!(now),
    }
    if wanted.conclusion == Some("failure") {
        body["actions"] = json!([{"label": "Re-run", "description": "Try to land it again", "identifier": AGAIN}]);
    }
    let done = match id {
        Some(id) => {
            let path = format!("/check-runs/{id}");
            api.repo(&wanted.repo, Method::PATCH, &path, Some(&body)).await?
        }
        None => {
            body["head_sha"] = json!(wanted.commit);
            api.repo(&wanted.repo, Method::POST, "/check-runs", Some(&body)).await?
        }
    };
    done.body["id"].as_u64().ok_or_else(|| Trouble::Unknown("GitHub returned no check id".into()))
}

/// Returns the id of the existing check run of this conversation on this commit, if our app created
/// one.
async fn find(api: &Api, wanted: &Wanted) -> Result<Option<u64>, Trouble> {
    let path = format!("/commits/{}/check-runs?check_name={NAME}&filter=latest&per_page=100", wanted.commit);
    let found = api.repo(&wanted.repo, Method::GET, &path, None).await?;
    let ours = |it: &&Value| it["external_id"] == json!(wanted.key) && api.is_own_app(&it["app"]["id"]);
    let runs = found.body["check_runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(runs.iter().find(ours).and_then(|it| it["id"].as_u64()))
}
