//! GitHub: apps with keys and installations, issues, pull requests, reviews, checks, and signed webhooks.
//!
//! ```text
//! let github = GitHub::start().await;
//! let claude = github.app("claude-bot");                            // App: id, client_id, private_key, webhook_secret
//! github.webhook("claude-bot", "http://127.0.0.1:…/webhooks/github");
//! github.repo("acme/shop", &["claude-bot"]);                        // and installs these apps at `acme`
//! github.person("ann", "acme/shop", "write");                       // admin, maintain, write, triage, read
//! github.remote("acme/shop", &bare);                                // its branches are those of this repository
//!
//! let number = github.open_issue("ann", "acme/shop", "Login", "It fails.");
//! let id = github.comment("ann", "acme/shop", number, "@claude-bot fix it");
//! github.edit_comment(…), github.delete_comment(…), github.label(…), github.assign(…), github.react(…)
//! let pull = github.open_pull("ann", "acme/shop", ("Title", "body"), ("head", "main"), "the diff");
//! let id = github.review_comment("ann", "acme/shop", pull, ("src/a.rs", 3), "Why?", None);
//! github.rerequest("ann", "acme/shop", check), github.request_action("ann", "acme/shop", check, "identifier")
//!
//! github.comments("acme/shop", number), github.review_comments(…), github.pulls(…), github.checks(…), github.issue(…)
//! github.deliveries("claude-bot")                                   // webhooks and what was answered to them
//! github.app_token("claude-bot")                                    // a good JWT, for a client without a library
//! ```
//!
//! And everything that all doubles have (see [`super`]); an operation's name is GitHub's own: `issues/create-comment`,
//! `checks/update`, `apps/create-installation-access-token`.
//!
//! What it holds clients to: the app's JWT (RS256, its own key, `iat` not in the future, `exp` within ten minutes);
//! tokens of installations that live an hour and reach their own owner's repositories; a `User-Agent`; pages of 30;
//! 65,536 characters in a body; the fields of a check run; own comments and checks only; a webhook's answer within
//! 10 s ([`ANSWER`]), never sent again by itself, but on request with the same GUID; and the limits: 5,000 requests an
//! hour, 900 points a minute, 100 at once, 80 that create content in a minute and 500 in an hour. Creating and editing
//! comments, issues and pull requests is content; reactions and checks are points alone.

mod access;
mod checks;
mod hooks;
mod issues;
mod keys;
mod pulls;
mod routes;
mod show;
mod world;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::json;

pub use hooks::ANSWER;
pub use routes::{AT_ONCE, CONTENT_PER_HOUR, CONTENT_PER_MINUTE, POINTS_PER_MINUTE, REQUESTS_PER_HOUR, TOKEN};
pub use world::{App, Check, Comment, Delivery, Issue, Pull, Reaction, ReviewComment, World};

use super::desk::Desk;
use super::sign;
use world::{AppState, Repo};

/// The double. It ends, with all its connections, when it is dropped.
pub struct GitHub {
    desk: Arc<Desk<World>>,
}

impl Deref for GitHub {
    type Target = Desk<World>;

    fn deref(&self) -> &Desk<World> {
        &self.desk
    }
}

impl Drop for GitHub {
    fn drop(&mut self) {
        self.desk.shut();
    }
}

impl GitHub {
    /// Starts on a free port of loopback. The API is right below `base_url()`.
    pub async fn start() -> GitHub {
        let world = World { apps: vec![], repos: vec![], tokens: vec![] };
        let desk = Desk::open(world, routes::handle).await;
        tokio::spawn(hooks::deliver(Arc::downgrade(&desk)));
        GitHub { desk }
    }

    /// Registers an app that listens to everything a bridge cares for. There are keys for three.
    pub fn app(&self, slug: &str) -> App {
        self.change(|world, _| {
            let number = world.apps.len();
            let app = App {
                id: 12_345 + number as u64,
                client_id: format!("Iv23{}", sign::token(&format!("client {slug}"), 16)),
                slug: slug.to_owned(),
                private_key: access::private_key(number),
                webhook_secret: sign::token(&format!("webhook {slug}"), 32),
            };
            let events = ["issues", "issue_comment", "pull_request", "pull_request_review_comment", "check_run"];
            world.apps.push(AppState {
                app: app.clone(),
                webhook: None,
                events: events.into_iter().map(str::to_owned).collect(),
                installations: vec![],
                deliveries: vec![],
                in_flight: 0,
                forged: 0,
            });
            app
        })
    }

    /// Where an app's webhooks go from now on. Those made before have not been sent.
    pub fn webhook(&self, app: &str, url: &str) {
        let at = self.at(app);
        self.change(|world, _| world.apps[at].webhook = Some(url.to_owned()));
    }

    /// Changes what an app listens to.
    pub fn subscribe(&self, app: &str, events: &[&str]) {
        let (at, events) = (self.at(app), events.iter().map(|it| (*it).to_owned()).collect());
        self.change(|world, _| world.apps[at].events = events);
    }

    /// Adds a repository, `owner/name`, and installs these apps at its owner.
    pub fn repo(&self, full_name: &str, apps: &[&str]) {
        let at: Vec<usize> = apps.iter().map(|it| self.at(it)).collect();
        let (owner, name) = full_name.split_once('/').expect("a repository is owner/name");
        self.change(|world, ledger| {
            let branches = BTreeMap::from([("main".to_owned(), sign::token(full_name, 40))]);
            world.repos.push(Repo {
                id: 700 + ledger.next(),
                owner: owner.to_owned(),
                name: name.to_owned(),
                people: BTreeMap::new(),
                issues: BTreeMap::new(),
                checks: vec![],
                branches,
                remote: None,
            });
            for at in at {
                let app = &mut world.apps[at];
                if !app.installations.iter().any(|it| it.1 == owner) {
                    app.installations.push((8_000 + ledger.next(), owner.to_owned()));
                }
            }
        });
    }

    /// Gives a person a role in a repository.
    pub fn person(&self, login: &str, repo: &str, role: &str) {
        self.change(|world, _| {
            let repo = world.repo_mut(repo).expect("there is such a repository");
            repo.people.insert(login.to_owned(), role.to_owned());
        });
    }

    /// Sets the commit of a branch.
    pub fn branch(&self, repo: &str, branch: &str, sha: &str) {
        self.change(|world, _| {
            let repo = world.repo_mut(repo).expect("there is such a repository");
            repo.branches.insert(branch.to_owned(), sha.to_owned());
        });
    }

    /// Lets a bare repository on disk stand for a repository: its branches are what was really pushed there, and a pull
    /// request from any other is refused, as GitHub does.
    pub fn remote(&self, repo: &str, path: &std::path::Path) {
        self.change(|world, _| {
            let repo = world.repo_mut(repo).expect("there is such a repository");
            repo.remote = Some(path.to_owned());
        });
    }

    /// The installation of an app at an owner.
    pub fn installation(&self, app: &str, owner: &str) -> u64 {
        let at = self.at(app);
        let found = self.view(|view| view.apps[at].installations.iter().find(|it| it.1 == owner).map(|it| it.0));
        found.expect("the app is installed there")
    }

    /// A signed token of the app, good for nine minutes.
    pub fn app_token(&self, app: &str) -> String {
        let at = self.at(app);
        self.view(|view| access::app_token(&view.apps[at].app, at))
    }

    /// Any claims, signed with an app's key.
    pub fn sign_claims(&self, app: &str, claims: &serde_json::Value) -> String {
        let part = |it: &serde_json::Value| access::encode(it.to_string().as_bytes());
        let message = format!("{}.{}", part(&json!({"alg": "RS256", "typ": "JWT"})), part(claims));
        access::sign_with(self.at(app), message)
    }

    /// A person opens an issue. Returns its number.
    pub fn open_issue(&self, person: &str, repo: &str, title: &str, body: &str) -> u64 {
        self.change(|world, ledger| world.open(ledger, repo, (person, None), (title, body), None))
    }

    /// A person opens a pull request: title and body, head and base, and its diff. Returns its number.
    pub fn open_pull(
        &self,
        person: &str,
        repo: &str,
        said: (&str, &str),
        (head, base): (&str, &str),
        diff: &str,
    ) -> u64 {
        self.change(|world, ledger| {
            let place = world.repo(repo).expect("there is such a repository");
            let pull = pulls::pull_of(place, head, base, diff);
            world.open(ledger, repo, (person, None), said, Some(pull))
        })
    }

    /// A person comments on an issue or a pull request. Returns the comment's id.
    pub fn comment(&self, person: &str, repo: &str, number: u64, body: &str) -> u64 {
        self.change(|world, ledger| world.say(ledger, repo, number, (person, None), body))
    }

    /// A person changes a comment.
    pub fn edit_comment(&self, person: &str, repo: &str, id: u64, body: &str) {
        self.change(|world, ledger| world.resay(ledger, repo, id, person, body));
    }

    /// A person deletes a comment.
    pub fn delete_comment(&self, person: &str, repo: &str, number: u64, id: u64) {
        self.change(|world, ledger| world.unsay(ledger, repo, (number, id), person));
    }

    /// A person comments on a line, or answers such a comment. Returns the comment's id.
    pub fn review_comment(
        &self,
        person: &str,
        repo: &str,
        number: u64,
        ((path, line), body): ((&str, u64), &str),
        reply_to: Option<u64>,
    ) -> u64 {
        self.change(|world, ledger| world.remark(ledger, repo, number, (person, None), (path, line, reply_to, body)))
    }

    /// A person labels an issue or a pull request.
    pub fn label(&self, person: &str, repo: &str, number: u64, label: &str) {
        self.change(|world, ledger| {
            let place = world.repo_mut(repo).expect("there is such a repository");
            place.issues.get_mut(&number).expect("there is such an issue").labels.push(label.to_owned());
            let (event, mut payload) = world.about(repo, number);
            payload["label"] = json!({"name": label});
            world.tell(ledger, repo, (event, "labeled", person), payload, None);
        });
    }

    /// A person assigns somebody to an issue or a pull request.
    pub fn assign(&self, person: &str, repo: &str, number: u64, whom: &str) {
        self.change(|world, ledger| {
            let place = world.repo_mut(repo).expect("there is such a repository");
            place.issues.get_mut(&number).expect("there is such an issue").assignees.push(whom.to_owned());
            let (event, mut payload) = world.about(repo, number);
            payload["assignee"] = show::user(whom);
            world.tell(ledger, repo, (event, "assigned", person), payload, None);
        });
    }

    /// A person reacts to a comment. GitHub tells nobody.
    pub fn react(&self, person: &str, repo: &str, comment: u64, content: &str) {
        self.change(|world, ledger| {
            let place = world.repo_mut(repo).expect("there is such a repository");
            let reaction = Reaction { id: ledger.next(), content: content.to_owned(), user: person.to_owned() };
            place.comment_mut(comment).expect("there is such a comment").1.reactions.push(reaction);
        });
    }

    /// A person asks for a check to be run again.
    pub fn rerequest(&self, person: &str, repo: &str, check: u64) {
        self.about_check(person, repo, check, ("rerequested", None));
    }

    /// A person presses a button of a check.
    pub fn request_action(&self, person: &str, repo: &str, check: u64, identifier: &str) {
        self.about_check(person, repo, check, ("requested_action", Some(identifier)));
    }

    fn about_check(&self, person: &str, repo: &str, check: u64, (action, identifier): (&str, Option<&str>)) {
        self.change(|world, ledger| {
            let place = world.repo(repo).expect("there is such a repository");
            let check = place.checks.iter().find(|it| it.id == check).expect("there is such a check").clone();
            let mut payload = json!({"check_run": show::check(world, place, &check)});
            if let Some(identifier) = identifier {
                let offered = check.fields["actions"].as_array().into_iter().flatten();
                assert!(offered.clone().any(|it| it["identifier"] == identifier), "there is no such button");
                payload["requested_action"] = json!({"identifier": identifier});
            }
            world.tell(ledger, repo, ("check_run", action, person), payload, Some(&check.app));
        });
    }

    /// What was said on an issue or a pull request.
    pub fn comments(&self, repo: &str, number: u64) -> Vec<Comment> {
        self.view(|view| view.comments(repo, number).to_vec())
    }

    /// What was said on lines of a pull request.
    pub fn review_comments(&self, repo: &str, number: u64) -> Vec<ReviewComment> {
        self.view(|view| view.review_comments(repo, number).to_vec())
    }

    /// An issue or a pull request.
    pub fn issue(&self, repo: &str, number: u64) -> Option<Issue> {
        self.view(|view| view.issue(repo, number).cloned())
    }

    /// Every pull request.
    pub fn pulls(&self, repo: &str) -> Vec<Issue> {
        self.view(|view| view.pulls(repo).cloned().collect())
    }

    /// Every check run.
    pub fn checks(&self, repo: &str) -> Vec<Check> {
        self.view(|view| view.checks(repo).to_vec())
    }

    /// The webhooks of an app.
    pub fn deliveries(&self, app: &str) -> Vec<Delivery> {
        self.view(|view| view.deliveries(app).to_vec())
    }

    /// Forgets an app's webhooks, as the service does after three days.
    pub fn forget_deliveries(&self, app: &str) {
        let at = self.at(app);
        self.change(|world, _| world.apps[at].deliveries.clear());
    }

    /// Signs the next `n` webhooks of an app with another secret than its own.
    pub fn corrupt_signatures(&self, app: &str, n: u32) {
        let at = self.at(app);
        self.change(|world, _| world.apps[at].forged += n);
    }

    /// Sends a webhook again as the service's own page would: the same GUID.
    pub fn redeliver(&self, app: &str, delivery: u64) {
        let at = self.at(app);
        assert!(self.change(|world, ledger| hooks::redeliver(&mut world.apps[at], ledger, delivery)));
    }

    fn at(&self, app: &str) -> usize {
        let found = self.view(|view| view.apps.iter().position(|it| it.app.slug == app));
        found.unwrap_or_else(|| panic!("no app is called {app}"))
    }
}
