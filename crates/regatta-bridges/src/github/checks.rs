//! A check on what a conversation pushed: how its landing stands, with a way to have it tried again.
//!
//! What it should say is derived from the board, and what is there is looked for before anything is made: so it can be
//! shown again at any time, and nothing has to be written down.

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

/// What the button that tries again is called, on the wire.
pub(super) const AGAIN: &str = "again";
const NAME: &str = "Regatta";
const WAIT: Duration = Duration::from_secs(5);
const WAIT_AT_MOST: Duration = Duration::from_secs(300);
/// How long until it is looked again, though nothing changed: something may be due again by then.
const LOOK: Duration = Duration::from_secs(60);

/// What a check says.
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

/// What was shown of a conversation's check.
#[derive(Debug, Default)]
struct Shown {
    wanted: Option<Wanted>,
    /// Its id, with the commit that it is on.
    check: Option<(String, u64)>,
    failures: u32,
    not_before: Option<Instant>,
}

/// Shows checks for as long as the bridge runs.
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
                // An app that may not write checks has none: that is no trouble.
                Err(Trouble::Never(why) | Trouble::Locked(why)) => {
                    tracing::info!(agent = %desk.agent, "no check is shown: {why}");
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

/// What the check of a conversation should say now; nothing when there is no landing to speak of.
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
                    let why = landing.and_then(|it| it.held.clone()).unwrap_or_else(|| "others are before it".into());
                    ("queued", None, "In the merge queue".to_owned(), format!("{}: {why}.", task.id))
                }
                Some(_) => {
                    let text = format!("{} is merged onto the trunk's tip and checked as that very tree.", task.id);
                    ("in_progress", None, "Landing".to_owned(), text)
                }
            }
        }
        // Only of what was pushed: what a later turn pushes has a check of its own.
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

/// Makes the check, or changes the one that is there. Gives its id.
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
    done.body["id"].as_u64().ok_or_else(|| Trouble::Unknown("GitHub named no check".into()))
}

/// The check that is there for this conversation: ours, on this commit.
async fn find(api: &Api, wanted: &Wanted) -> Result<Option<u64>, Trouble> {
    let path = format!("/commits/{}/check-runs?check_name={NAME}&filter=latest&per_page=100", wanted.commit);
    let found = api.repo(&wanted.repo, Method::GET, &path, None).await?;
    let ours = |it: &&Value| it["external_id"] == json!(wanted.key) && api.is_own_app(&it["app"]["id"]);
    let runs = found.body["check_runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(runs.iter().find(ours).and_then(|it| it["id"].as_u64()))
}
