//! Pull requests, and comments on their lines.

use serde_json::{Value, json};

use super::super::desk::{Answer, Ledger, Wrong};
use super::super::sign;
use super::issues::{self, fresh, parse};
use super::routes::{Done, Slip, Turn, invalid, not_found};
use super::show;
use super::world::{Pull, Repo, ReviewComment, World};

pub(crate) fn answer(turn: &mut Turn<'_>, repo: &str, method: &str, rest: &[&str]) -> Done {
    match (method, rest) {
        ("GET", []) => list(turn, repo),
        ("POST", []) => create(turn, repo),
        ("PATCH", ["comments", id]) => change(turn, repo, parse(id)?),
        (_, ["comments", id, "reactions", rest @ ..]) => {
            let id = parse(id)?;
            let mut of = turn.repo(repo)?.review_comment_mut(id).ok_or_else(not_found)?.comment.clone();
            let done = issues::reactions(turn, method, rest, &mut of)?;
            turn.repo(repo)?.review_comment_mut(id).ok_or_else(not_found)?.comment.reactions = of.reactions;
            Ok(done)
        }
        (_, [number]) => one(turn, repo, method, parse(number)?),
        ("GET", [number, "comments"]) => {
            let number = parse(number)?;
            turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?;
            let place = turn.world.repo(repo).ok_or_else(not_found)?;
            let all = turn.world.review_comments(repo, number);
            let mut all: Vec<Value> =
                all.iter().map(|it| show::review_comment(turn.world, place, number, it)).collect();
            if turn.asked.query("direction") == Some("desc") {
                all.reverse();
            }
            Ok(turn.page(all, None))
        }
        ("POST", [number, "comments", id, "replies"]) => reply(turn, repo, parse(number)?, parse(id)?),
        _ => Err(not_found()),
    }
}

fn list(turn: &mut Turn<'_>, repo: &str) -> Done {
    turn.repo(repo)?;
    let place = turn.world.repo(repo).ok_or_else(not_found)?;
    let state = turn.asked.query("state").unwrap_or("open");
    let (head, base) = (turn.asked.query("head"), turn.asked.query("base"));
    let wanted = |it: &&super::world::Issue| {
        let Some(pull) = &it.pull else { return false };
        // A filter by head has the form `owner:branch`.
        (state == "all" || it.open == (state == "open"))
            && head.is_none_or(|head| head == format!("{}:{}", place.owner, pull.head))
            && base.is_none_or(|base| base == pull.base)
    };
    let found = place.issues.values().rev().filter(wanted).map(|it| show::pull(turn.world, place, it)).collect();
    Ok(turn.page(found, None))
}

fn create(turn: &mut Turn<'_>, repo: &str) -> Done {
    let (title, body) = (turn.text("title")?, turn.body(false)?);
    let (head, base) = (turn.text("head")?, turn.text("base")?);
    let draft = turn.input["draft"].as_bool().unwrap_or(false);
    let place = turn.repo(repo)?;
    let head = head.strip_prefix(&format!("{}:", place.owner)).unwrap_or(&head).to_owned();
    if head == base {
        return Err(invalid(Wrong::Field, "head", &format!("No commits between {base} and {head}")));
    }
    let same = |it: &super::world::Pull| it.head == head && it.base == base;
    if place.issues.values().any(|it| it.open && it.pull.as_ref().is_some_and(same)) {
        let message = format!("A pull request already exists for {}:{head}.", place.owner);
        // Not a violation: a client that repeats a request after a lost answer gets this error too.
        return Err(Slip { wrong: None, ..invalid(Wrong::State, "head", &message) });
    }
    if place.remote.is_some() && (place.branch(&head).is_none() || place.branch(&base).is_none()) {
        return Err(invalid(Wrong::State, "head", &format!("{head} or {base} is no branch of the repository")));
    }
    let pull = pull_of(place, &head, &base, "");
    let pull = Pull { draft, ..pull };
    let (login, slug) = (turn.login(), turn.slug());
    let number = turn.world.open(turn.ledger, repo, (&login, Some(&slug)), (&title, &body), Some(pull));
    let place = turn.world.repo(repo).ok_or_else(not_found)?;
    Ok(Answer::with(201, show::pull(turn.world, place, &place.issues[&number])))
}

pub(crate) fn pull_of(repo: &Repo, head: &str, base: &str, diff: &str) -> Pull {
    let head_sha = repo.branch(head).unwrap_or_else(|| sign::token(&format!("{} {head}", repo.full_name()), 40));
    let (head, base, diff) = (head.to_owned(), base.to_owned(), diff.to_owned());
    Pull { head, head_sha, base, draft: false, diff, comments: vec![] }
}

fn one(turn: &mut Turn<'_>, repo: &str, method: &str, number: u64) -> Done {
    let is_pull = turn.repo(repo)?.issues.get(&number).is_some_and(|it| it.pull.is_some());
    if !is_pull {
        return Err(not_found());
    }
    if method == "PATCH" {
        issues::patch(turn, repo, number)?;
    }
    let place = turn.world.repo(repo).ok_or_else(not_found)?;
    let issue = &place.issues[&number];
    if turn.asked.header("accept").is_some_and(|it| it.contains("diff")) {
        let diff = issue.pull.as_ref().map(|it| it.diff.clone()).unwrap_or_default();
        return Ok(Answer::ok(Value::String(diff)).header("content-type", "application/vnd.github.diff; charset=utf-8"));
    }
    Ok(Answer::ok(show::pull(turn.world, place, issue)))
}

fn reply(turn: &mut Turn<'_>, repo: &str, number: u64, id: u64) -> Done {
    let body = turn.body(true)?;
    let parent = turn.repo(repo)?.review_comment_mut(id).ok_or_else(not_found)?.clone();
    if parent.in_reply_to.is_some() {
        return Err(invalid(Wrong::State, "in_reply_to", "replies to replies are not supported"));
    }
    let (login, slug) = (turn.login(), turn.slug());
    let made = turn.world.remark(
        turn.ledger,
        repo,
        number,
        (&login, Some(&slug)),
        (&parent.path, parent.line, Some(id), &body),
    );
    let place = turn.world.repo(repo).ok_or_else(not_found)?;
    let made =
        turn.world.review_comments(repo, number).iter().find(|it| it.comment.id == made).ok_or_else(not_found)?;
    Ok(Answer::with(201, show::review_comment(turn.world, place, number, made)))
}

fn change(turn: &mut Turn<'_>, repo: &str, id: u64) -> Done {
    let body = turn.body(true)?;
    let (login, slug) = (turn.login(), turn.slug());
    let found = turn.repo(repo)?.review_comment_mut(id).ok_or_else(not_found)?;
    if found.comment.user != login {
        let what = format!("a change of review comment {id} by {}", found.comment.user);
        turn.ledger.wrong(&slug, Wrong::Foreign, what);
        return Err(Slip {
            status: 403,
            message: "Must have admin rights to Repository.".into(),
            errors: Value::Null,
            wrong: None,
        });
    }
    found.comment.body.clone_from(&body);
    found.comment.versions.push(body);
    found.comment.updated = sign::now();
    let found = found.clone();
    let place = turn.world.repo(repo).ok_or_else(not_found)?;
    let in_it =
        |it: &&super::world::Issue| it.pull.as_ref().is_some_and(|it| it.comments.iter().any(|it| it.comment.id == id));
    let number = place.issues.values().find(in_it).map_or(0, |it| it.number);
    Ok(Answer::ok(show::review_comment(turn.world, place, number, &found)))
}

impl World {
    /// Adds a comment on a line, and sends the webhook. Returns its id.
    pub(crate) fn remark(
        &mut self,
        ledger: &mut Ledger,
        repo: &str,
        number: u64,
        (user, app): (&str, Option<&str>),
        (path, line, in_reply_to, body): (&str, u64, Option<u64>, &str),
    ) -> u64 {
        let comment = fresh(ledger, user, app, body);
        let made = ReviewComment { comment, path: path.to_owned(), line, in_reply_to };
        let place = self.repo_mut(repo).expect("there is such a repository");
        let pull = place.issues.get_mut(&number).and_then(|it| it.pull.as_mut()).expect("there is such a pull request");
        pull.comments.push(made.clone());
        let place = self.repo(repo).expect("there is such a repository");
        let payload = json!({
            "pull_request": show::pull(self, place, &place.issues[&number]),
            "comment": show::review_comment(self, place, number, &made),
        });
        self.tell(ledger, repo, ("pull_request_review_comment", "created", user), payload, None);
        made.comment.id
    }
}
