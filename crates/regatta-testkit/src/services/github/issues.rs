//! Issues, their comments, and the reactions to both.

use serde_json::{Value, json};

use super::super::desk::{Answer, Wrong};
use super::super::sign;
use super::routes::{Done, Slip, Turn, invalid, not_found};
use super::show;
use super::world::{Comment, Issue, Reaction};

const CONTENTS: [&str; 8] = ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"];

pub(crate) fn parse(number: &str) -> Result<u64, Slip> {
    number.parse().map_err(|_| not_found())
}

pub(crate) fn answer(turn: &mut Turn<'_>, repo: &str, method: &str, rest: &[&str]) -> Done {
    match (method, rest) {
        (_, ["comments", id]) => comment(turn, repo, method, parse(id)?),
        (_, ["comments", id, "reactions", rest @ ..]) => {
            let id = parse(id)?;
            let of = &mut turn.repo(repo)?.comment_mut(id).ok_or_else(not_found)?.1.clone();
            let done = reactions(turn, method, rest, of)?;
            turn.repo(repo)?.comment_mut(id).ok_or_else(not_found)?.1.reactions.clone_from(&of.reactions);
            Ok(done)
        }
        ("POST", []) => create(turn, repo),
        (_, [number]) => issue(turn, repo, method, parse(number)?),
        ("GET", [number, "comments"]) => {
            let number = parse(number)?;
            turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?;
            let since = turn.asked.query("since").unwrap_or_default();
            let place = turn.world.repo(repo).ok_or_else(not_found)?;
            let all = turn.world.comments(repo, number).iter().filter(|it| *sign::iso(it.updated) >= *since);
            let all = all.map(|it| show::comment(turn.world, place, number, it)).collect();
            Ok(turn.page(all, None))
        }
        ("POST", [number, "comments"]) => {
            let (number, body) = (parse(number)?, turn.body(true)?);
            turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?;
            let (login, slug) = (turn.login(), turn.slug());
            let id = turn.world.say(turn.ledger, repo, number, (&login, Some(&slug)), &body);
            Ok(Answer::with(201, shown(turn, repo, id)?))
        }
        (_, [number, "reactions", rest @ ..]) => {
            let number = parse(number)?;
            let of = &mut turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?.text.clone();
            let done = reactions(turn, method, rest, of)?;
            let issue = turn.repo(repo)?.issues.get_mut(&number).ok_or_else(not_found)?;
            issue.text.reactions.clone_from(&of.reactions);
            Ok(done)
        }
        _ => Err(not_found()),
    }
}

/// Lists, adds or removes reactions.
pub(crate) fn reactions(turn: &mut Turn<'_>, method: &str, rest: &[&str], of: &mut Comment) -> Done {
    let login = turn.login();
    match (method, rest) {
        ("GET", []) => Ok(turn.page(of.reactions.iter().map(show::reaction).collect(), None)),
        ("POST", []) => {
            let content = turn.text("content")?;
            if !CONTENTS.contains(&content.as_str()) {
                return Err(invalid(Wrong::Field, "content", "content is not one of the eight"));
            }
            if let Some(had) = of.reactions.iter().find(|it| it.content == content && it.user == login) {
                return Ok(Answer::ok(show::reaction(had)));
            }
            let added = Reaction { id: turn.ledger.next(), content, user: login };
            of.reactions.push(added.clone());
            Ok(Answer::with(201, show::reaction(&added)))
        }
        ("DELETE", [id]) => {
            let id = parse(id)?;
            let at = of.reactions.iter().position(|it| it.id == id).ok_or_else(not_found)?;
            of.reactions.remove(at);
            Ok(Answer::with(204, Value::Null))
        }
        _ => Err(not_found()),
    }
}

fn shown(turn: &mut Turn<'_>, repo: &str, id: u64) -> Result<Value, Slip> {
    let (number, comment) = turn.repo(repo)?.comment_mut(id).map(|it| (it.0, it.1.clone())).ok_or_else(not_found)?;
    let place = turn.world.repo(repo).ok_or_else(not_found)?;
    Ok(show::comment(turn.world, place, number, &comment))
}

fn comment(turn: &mut Turn<'_>, repo: &str, method: &str, id: u64) -> Done {
    let (number, found) = turn.repo(repo)?.comment_mut(id).map(|it| (it.0, it.1.clone())).ok_or_else(not_found)?;
    if method == "GET" {
        return Ok(Answer::ok(shown(turn, repo, id)?));
    }
    let (login, slug) = (turn.login(), turn.slug());
    if found.user != login {
        // GitHub allows this for an app with write access, but a bridge that does it has a bug.
        turn.ledger.wrong(&slug, Wrong::Foreign, format!("{method} of comment {id} by {}", found.user));
        return Err(Slip {
            status: 403,
            message: "Must have admin rights to Repository.".into(),
            errors: Value::Null,
            wrong: None,
        });
    }
    if method == "DELETE" {
        turn.world.unsay(turn.ledger, repo, (number, id), &login);
        return Ok(Answer::with(204, Value::Null));
    }
    let body = turn.body(true)?;
    turn.world.resay(turn.ledger, repo, id, &login, &body);
    Ok(Answer::ok(shown(turn, repo, id)?))
}

fn create(turn: &mut Turn<'_>, repo: &str) -> Done {
    let (title, body) = (turn.text("title")?, turn.body(false)?);
    turn.repo(repo)?;
    let (login, slug) = (turn.login(), turn.slug());
    let number = turn.world.open(turn.ledger, repo, (&login, Some(&slug)), (&title, &body), None);
    let place = turn.world.repo(repo).ok_or_else(not_found)?;
    Ok(Answer::with(201, show::issue(turn.world, place, &place.issues[&number])))
}

/// Applies the fields of a PATCH to an issue or a pull request.
pub(crate) fn patch(turn: &mut Turn<'_>, repo: &str, number: u64) -> Result<(), Slip> {
    let (title, state) = (turn.input["title"].as_str(), turn.input["state"].as_str());
    let body = if turn.input["body"].is_null() { None } else { Some(turn.body(false)?) };
    if state.is_some_and(|it| it != "open" && it != "closed") {
        return Err(invalid(Wrong::Field, "state", "state is open or closed"));
    }
    let (title, state) = (title.map(str::to_owned), state.map(str::to_owned));
    let issue = turn.repo(repo)?.issues.get_mut(&number).ok_or_else(not_found)?;
    if let Some(title) = title {
        issue.title = title;
    }
    if let Some(body) = body {
        issue.text.body.clone_from(&body);
        issue.text.versions.push(body);
        issue.text.updated = sign::now();
    }
    if let Some(state) = state {
        issue.open = state == "open";
    }
    Ok(())
}

fn issue(turn: &mut Turn<'_>, repo: &str, method: &str, number: u64) -> Done {
    turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?;
    if method == "PATCH" {
        patch(turn, repo, number)?;
    }
    let place = turn.world.repo(repo).ok_or_else(not_found)?;
    Ok(Answer::ok(show::issue(turn.world, place, &place.issues[&number])))
}

impl super::world::World {
    /// Opens an issue or a pull request, and sends the webhook. Returns its number.
    pub(crate) fn open(
        &mut self,
        ledger: &mut super::super::desk::Ledger,
        repo: &str,
        (user, app): (&str, Option<&str>),
        (title, body): (&str, &str),
        pull: Option<super::world::Pull>,
    ) -> u64 {
        let place = self.repo_mut(repo).expect("there is such a repository");
        let number = place.issues.keys().last().copied().unwrap_or(0) + 1;
        let is_pull = pull.is_some();
        let (text, title) = (fresh(ledger, user, app, body), title.to_owned());
        let issue =
            Issue { number, title, text, open: true, labels: vec![], assignees: vec![], comments: vec![], pull };
        place.issues.insert(number, issue);
        let (event, payload) = self.about(repo, number);
        debug_assert_eq!(is_pull, event == "pull_request");
        self.tell(ledger, repo, (event, "opened", user), payload, None);
        number
    }

    /// Returns a webhook's name and content for an issue or a pull request.
    pub(crate) fn about(&self, repo: &str, number: u64) -> (&'static str, Value) {
        let place = self.repo(repo).expect("there is such a repository");
        let issue = &place.issues[&number];
        if issue.pull.is_some() {
            return ("pull_request", json!({"number": number, "pull_request": show::pull(self, place, issue)}));
        }
        ("issues", json!({"issue": show::issue(self, place, issue)}))
    }

    fn about_comment(&self, repo: &str, number: u64, comment: &Comment) -> Value {
        let place = self.repo(repo).expect("there is such a repository");
        let issue = show::issue(self, place, &place.issues[&number]);
        json!({"issue": issue, "comment": show::comment(self, place, number, comment)})
    }

    /// Adds a comment, and sends the webhook. Returns its id.
    pub(crate) fn say(
        &mut self,
        ledger: &mut super::super::desk::Ledger,
        repo: &str,
        number: u64,
        (user, app): (&str, Option<&str>),
        body: &str,
    ) -> u64 {
        let comment = fresh(ledger, user, app, body);
        let place = self.repo_mut(repo).expect("there is such a repository");
        place.issues.get_mut(&number).expect("there is such an issue").comments.push(comment.clone());
        let payload = self.about_comment(repo, number, &comment);
        self.tell(ledger, repo, ("issue_comment", "created", user), payload, None);
        comment.id
    }

    /// Changes a comment, and sends the webhook.
    pub(crate) fn resay(
        &mut self,
        ledger: &mut super::super::desk::Ledger,
        repo: &str,
        id: u64,
        user: &str,
        body: &str,
    ) {
        let place = self.repo_mut(repo).expect("there is such a repository");
        let (number, comment) = place.comment_mut(id).expect("there is such a comment");
        let before = std::mem::replace(&mut comment.body, body.to_owned());
        comment.versions.push(body.to_owned());
        comment.updated = sign::now();
        let comment = comment.clone();
        let mut payload = self.about_comment(repo, number, &comment);
        payload["changes"] = json!({"body": {"from": before}});
        self.tell(ledger, repo, ("issue_comment", "edited", user), payload, None);
    }

    /// Deletes a comment, and sends the webhook.
    pub(crate) fn unsay(
        &mut self,
        ledger: &mut super::super::desk::Ledger,
        repo: &str,
        (number, id): (u64, u64),
        user: &str,
    ) {
        let place = self.repo_mut(repo).expect("there is such a repository");
        let gone = place.comment_mut(id).expect("there is such a comment").1.clone();
        let payload = self.about_comment(repo, number, &gone);
        let place = self.repo_mut(repo).expect("there is such a repository");
        place.issues.get_mut(&number).expect("there is such an issue").comments.retain(|it| it.id != id);
        self.tell(ledger, repo, ("issue_comment", "deleted", user), payload, None);
    }
}

/// Returns a new text of a user.
pub(crate) fn fresh(ledger: &mut super::super::desk::Ledger, user: &str, app: Option<&str>, body: &str) -> Comment {
    let now = sign::now();
    Comment {
        id: 1_000_000 + ledger.next(),
        user: user.to_owned(),
        app: app.map(str::to_owned),
        body: body.to_owned(),
        reactions: vec![],
        created: now,
        updated: now,
        versions: vec![body.to_owned()],
    }
}
