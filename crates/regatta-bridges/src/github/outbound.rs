//! Posts on GitHub: an immediate reaction, one edited comment per turn, and pull requests.

use std::sync::Arc;
use std::time::Duration;

use regatta_core::session::ToolStatus;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bucket::Limit;
use crate::render::{self, Lines};
use crate::service::{Button, Card, Fut, Outbound, Shot, Sight, Tone, Trouble};

use super::api::{Api, escaped};
use super::markup;

/// Maximum text length of one comment. GitHub accepts 65,536 characters, and the lines around the
/// text need some.
const LONGEST: usize = 60_000;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// Limits for comments and pull requests, created or edited.
const CONTENT_A_MINUTE: u32 = 80;
const CONTENT_AN_HOUR: u32 = 500;
/// A write costs 5 of 900 points, and a read 1. Some points are left for reads that the outbox does
/// not make.
const POINTS_A_MINUTE: u32 = 800;
const WRITE_POINTS: u32 = 5;
/// Looking up a comment reads one or two pages of comments.
const SEARCH_POINTS: u32 = 2;

pub(crate) struct GitHub {
    api: Arc<Api>,
}

/// The thread of a comment, which also determines the kind of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Issue,
    /// The thread that began with this comment on a line.
    Line(u64),
}

impl Place {
    fn name(self, id: u64) -> String {
        match self {
            Place::Issue => format!("comment:{id}"),
            Place::Line(_) => format!("review_comment:{id}"),
        }
    }
}

impl GitHub {
    pub(crate) fn new(api: Arc<Api>) -> GitHub {
        GitHub { api }
    }

    async fn seen(&self, shot: &Shot, source: &str) -> Result<String, Trouble> {
        let (kind, id) = source.split_once(':').unwrap_or((source, ""));
        let id: u64 = id.split(':').next().and_then(|it| it.parse().ok()).ok_or_else(|| unknown_source(source))?;
        let path = match kind {
            "comment" => format!("/issues/comments/{id}/reactions"),
            "review_comment" => format!("/pulls/comments/{id}/reactions"),
            "issue" => format!("/issues/{id}/reactions"),
            _ => return Err(unknown_source(source)),
        };
        // A repeated reaction returns the existing one, so it is not looked up first.
        let body = json!({"content": "eyes"});
        match self.api.repo(repo_of(shot), Method::POST, &path, Some(&body)).await {
            Ok(_) => Ok(String::new()),
            // An app that may not react can still comment.
            Err(Trouble::Locked(why)) if why.contains("GitHub says 403") => Err(Trouble::Never(why)),
            Err(trouble) => Err(trouble),
        }
    }

    async fn card(&self, shot: &Shot, card: &Card) -> Result<String, Trouble> {
        let repo = repo_of(shot);
        let body = json!({"body": format!("{}\n\n{}", spoken(card), hidden(&shot.mark))});
        let mut known = shot.shown_as.clone();
        if known.is_none() && shot.begun {
            // The comment may exist, because a call was under way when the last run ended.
            known = self.find(shot).await?;
        }
        if let Some(name) = known {
            let path = match name.split_once(':') {
                Some(("comment", id)) => format!("/issues/comments/{id}"),
                Some(("review_comment", id)) => format!("/pulls/comments/{id}"),
                _ => return Err(Trouble::Never(format!("{name:?} is not a comment"))),
            };
            match self.api.repo(repo, Method::PATCH, &path, Some(&body)).await {
                Ok(_) => return Ok(name),
                // The comment was deleted. A progress comment is not created again, but the end of
                // a turn is.
                Err(Trouble::Never(why)) if is_gone(&why) && card.tone != Tone::Working => {}
                Err(trouble) => return Err(trouble),
            }
        }
        let number = number_of(shot)?;
        let place = place_of(shot);
        let path = match place {
            Place::Issue => format!("/issues/{number}/comments"),
            Place::Line(root) => format!("/pulls/{number}/comments/{root}/replies"),
        };
        let made = self.api.repo(repo, Method::POST, &path, Some(&body)).await?;
        let id = made.body["id"].as_u64().ok_or_else(|| Trouble::Unknown("GitHub returned no comment id".into()))?;
        Ok(place.name(id))
    }

    /// Returns the comment with this mark, if it exists: a comment of ours with the mark at its
    /// end.
    async fn find(&self, shot: &Shot) -> Result<Option<String>, Trouble> {
        let (me, place, number) = (self.api.me().await?, place_of(shot), number_of(shot)?);
        let mark = hidden(&shot.mark);
        let ours = |it: &Value| {
            let by_us = it["user"]["login"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(&me.login));
            by_us && it["body"].as_str().is_some_and(|it| it.trim_end().ends_with(&mark))
        };
        let path = match place {
            Place::Issue => format!("/issues/{number}/comments"),
            Place::Line(_) => format!("/pulls/{number}/comments?sort=created&direction=desc"),
        };
        let found = self.api.list(repo_of(shot), &path, ours).await?;
        Ok(found.iter().find(|it| ours(it)).and_then(|it| it["id"].as_u64()).map(|id| place.name(id)))
    }

    async fn pull(&self, shot: &Shot, title: &str, body: &str, (head, base): (&str, &str)) -> Result<String, Trouble> {
        if let Some(name) = self.open_pull(shot, head, base).await? {
            return Ok(name);
        }
        let asked = number_of(shot).map_or(String::new(), |it| format!("\n\nAsked for in #{it}."));
        let text: String = markup::quiet(body).chars().take(LONGEST).collect();
        let title = if title.trim().is_empty() { head } else { title };
        let ask = json!({
            "title": markup::quiet(title), "head": head, "base": base,
            "body": format!("{text}{asked}\n\n{}", hidden(&shot.mark)),
        });
        match self.api.repo(repo_of(shot), Method::POST, "/pulls", Some(&ask)).await {
            Ok(made) => named(&made.body).ok_or_else(|| Trouble::Unknown("GitHub returned no pull request".into())),
            // The pull request was opened in the meantime, by somebody else or by a call of ours
            // whose answer was lost.
            Err(Trouble::Never(why)) => self.open_pull(shot, head, base).await?.ok_or(Trouble::Never(why)),
            Err(trouble) => Err(trouble),
        }
    }

    async fn open_pull(&self, shot: &Shot, head: &str, base: &str) -> Result<Option<String>, Trouble> {
        let repo = repo_of(shot);
        let owner = repo.split('/').next().unwrap_or_default();
        let head = escaped(&format!("{owner}:{head}"));
        let path = format!("/pulls?state=open&head={head}&base={}", escaped(base));
        let found = self.api.repo(repo, Method::GET, &path, None).await?;
        Ok(found.body.as_array().and_then(|it| it.first()).and_then(named))
    }
}

fn named(pull: &Value) -> Option<String> {
    Some(format!("{} {}", pull["number"].as_u64()?, pull["html_url"].as_str()?))
}

fn repo_of(shot: &Shot) -> &str {
    shot.place.get("repo").map_or("", String::as_str)
}

fn number_of(shot: &Shot) -> Result<u64, Trouble> {
    let number = shot.place.get("number").and_then(|it| it.parse().ok());
    number.ok_or_else(|| Trouble::Never("the issue of this conversation is unknown".into()))
}

/// Returns the thread in which to answer: that of the turn's message, or else that of the latest
/// message.
fn place_of(shot: &Shot) -> Place {
    let root = match shot.place.get("source") {
        Some(source) => source.strip_prefix("review_comment:").and_then(|it| it.split(':').next_back()),
        None => shot.place.get("reply_to").map(String::as_str),
    };
    root.and_then(|it| it.parse().ok()).map_or(Place::Issue, Place::Line)
}

fn hidden(mark: &str) -> String {
    format!("<!-- {mark} -->")
}

fn is_gone(why: &str) -> bool {
    ["GitHub says 404", "GitHub says 410"].iter().any(|it| why.contains(it))
}

fn unknown_source(source: &str) -> Trouble {
    Trouble::Never(format!("{source:?} cannot have a reaction"))
}

impl Outbound for GitHub {
    fn limits(&self, shot: &Shot) -> Vec<Limit> {
        let is_searched = match shot.sight {
            Sight::Seen { .. } => false,
            Sight::Card(_) => shot.begun && shot.shown_as.is_none(),
            Sight::Pull { .. } => true,
        };
        let points = WRITE_POINTS + if is_searched { SEARCH_POINTS } else { 0 };
        let mut limits = vec![Limit::window("points", POINTS_A_MINUTE, MINUTE).costing(points)];
        // GitHub counts a reaction as a write and not as content, because it notifies nobody.
        if !matches!(shot.sight, Sight::Seen { .. }) {
            limits.push(Limit::window("content a minute", CONTENT_A_MINUTE, MINUTE));
            limits.push(Limit::window("content an hour", CONTENT_AN_HOUR, HOUR));
        }
        limits
    }

    fn pace(&self) -> Duration {
        Duration::from_secs(8)
    }

    fn pieces(&self, card: &Card) -> Vec<Card> {
        // Mentions are removed before the text is cut, because that makes it longer.
        render::in_pieces(card, render::split(&markup::quiet(&card.text), LONGEST))
    }

    fn show<'a>(&'a self, shot: &'a Shot) -> Fut<'a, Result<String, Trouble>> {
        Box::pin(async move {
            match &shot.sight {
                Sight::Seen { source } => self.seen(shot, source).await,
                Sight::Card(card) => self.card(shot, card).await,
                Sight::Pull { title, body, head, base } => self.pull(shot, title, body, (head, base)).await,
            }
        })
    }
}

/// Returns the whole text of a card, in GitHub's Markdown.
fn spoken(card: &Card) -> String {
    let lines = Lines { most: 20, longest: 150, sign };
    let above = [render::head(card), lines.of(card), Some(card.text.clone()).filter(|it| !it.trim().is_empty())];
    let mut parts: Vec<String> = above.into_iter().flatten().map(|it| markup::quiet(&it)).collect();
    parts.extend(in_words(&card.buttons, &card.text));
    parts.extend(render::links(card));
    if parts.is_empty() { "…".to_owned() } else { parts.join("\n\n") }
}

fn sign(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Completed => "- [x]",
        ToolStatus::InProgress => "- [ ] ▶️",
        ToolStatus::Failed => "- [ ] ❌",
        ToolStatus::Pending => "- [ ]",
    }
}

/// Returns the commands that replace buttons, because GitHub comments have none.
fn in_words(buttons: &[Button], text: &str) -> Vec<String> {
    let has = |word: &str| buttons.iter().any(|it| it.value.starts_with(&format!("{word}:")));
    let mut lines = Vec::new();
    let choices: Vec<String> = buttons
        .iter()
        .filter(|it| it.value.starts_with("choice-"))
        .enumerate()
        .map(|(nth, it)| format!("{}. {}", nth + 1, markup::quiet(&it.label)))
        .collect();
    if !choices.is_empty() {
        lines.push(choices.join("\n"));
    }
    let said = |word: &str| text.contains(&format!("`{word}`"));
    if has("allow") && has("deny") && !(said("allow") && said("deny")) {
        lines.push("Say `allow` or `deny`.".to_owned());
    }
    if has("land") && !said("land") {
        lines.push("Say `land` to merge it.".to_owned());
    }
    if has("stop") {
        lines.push("<sub>Say `stop` to end it.</sub>".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn github() -> GitHub {
        let http = crate::http::Http::new().unwrap();
        let key = crate::registry::Secret::new("");
        GitHub::new(Arc::new(Api::new(http, "http://127.0.0.1:9".into(), "1".into(), &key)))
    }

    #[test]
    fn long_answer_is_split_into_allowed_comments_without_loss() {
        let line = "@ann @bob look at `@x` here\n";
        let text = format!("```rust\n{}```\n{}", "let x = 1;\n".repeat(9_000), line.repeat(4_000));
        let plan = vec![("@ann ".repeat(60), ToolStatus::Pending); 50];
        let card = Card { tone: Tone::Done, text, plan, ..Card::default() };
        let pieces = github().pieces(&card);
        let bodies: Vec<String> =
            pieces.iter().map(|it| format!("{}\n\n{}", spoken(it), hidden("regatta:V1:1:0"))).collect();
        assert!(bodies.len() > 3);
        for body in &bodies {
            assert!(body.chars().count() <= 65_536, "{}", body.chars().count());
            assert_eq!(body.matches("```").count() % 2, 0, "code is open at the end");
            assert!(body.ends_with("<!-- regatta:V1:1:0 -->"));
            assert!(!body.contains("@ann") && !body.contains("@bob"));
        }
        let whole = bodies.concat();
        assert_eq!(whole.matches("let x = 1;").count(), 9_000);
        assert_eq!(whole.matches("`@x`").count(), 4_000);
    }

    #[test]
    fn buttons_are_described_in_words() {
        let button = |label: &str, value: &str| Button { label: label.into(), value: value.into(), danger: false };
        let said = |text: &str, buttons: Vec<Button>| spoken(&Card { text: text.into(), buttons, ..Card::default() });
        let ask = vec![button("Allow", "allow:Q1"), button("Always", "always:Q1"), button("Deny", "deny:Q1")];
        assert_eq!(said("May I?", ask.clone()), "May I?\n\nSay `allow` or `deny`.");
        assert_eq!(said("Say `allow` or `deny`.", ask), "Say `allow` or `deny`.", "the text already has the command");
        let choices = vec![button("Red", "choice-0:Q1"), button("@ann", "choice-1:Q1")];
        assert_eq!(said("Which?", choices), "Which?\n\n1. Red\n2. @\u{200b}ann");
        assert_eq!(said("Done.", vec![button("Land", "land:V1")]), "Done.\n\nSay `land` to merge it.");
        assert!(said("", vec![button("Stop", "stop:V1")]).contains("`stop`"));
        assert_eq!(said("", vec![]), "…");
    }

    #[test]
    fn answer_is_placed_where_its_request_was() {
        let at = |pairs: &[(&str, &str)]| {
            let place: BTreeMap<String, String> = pairs.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect();
            let sight = Sight::Card(Card::default());
            place_of(&Shot { place, mark: "m".into(), begun: false, shown_as: None, stage: 1, sight })
        };
        assert_eq!(at(&[("reply_to", "")]), Place::Issue);
        assert_eq!(at(&[("reply_to", "50")]), Place::Line(50));
        assert_eq!(at(&[("reply_to", "50"), ("source", "comment:7")]), Place::Issue);
        assert_eq!(at(&[("reply_to", ""), ("source", "review_comment:55:50")]), Place::Line(50));
    }

    #[test]
    fn reaction_uses_points_and_a_comment_uses_content_limits() {
        let keys = |sight: Sight| {
            let shot = Shot { place: BTreeMap::new(), mark: "m".into(), begun: false, shown_as: None, stage: 1, sight };
            github().limits(&shot).into_iter().map(|it| it.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(Sight::Seen { source: "comment:1".into() }), ["points"]);
        let all = ["points", "content a minute", "content an hour"];
        assert_eq!(keys(Sight::Card(Card::default())), all);
        let text = String::new;
        assert_eq!(keys(Sight::Pull { title: text(), body: text(), head: text(), base: text() }), all);
    }
}
