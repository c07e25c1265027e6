//! A double (imitation for tests) of GitHub: apps with keys and installations, issues, pull
//! requests, reviews, checks and signed webhooks.
//!
//! ```text
//! let github = GitHub::start().await;
//! let claude = github.add_app("claude-bot"); // its ids, private key and webhook secret
//! github.set_webhook_url("claude-bot", "http://127.0.0.1:…/webhooks/github");
//! github.add_repo("acme/shop", &["claude-bot"]); // also installs the apps at `acme`
//! github.add_person("ann", "acme/shop", "write"); // or admin, maintain, triage, read
//! github.set_remote("acme/shop", &bare); // takes the branches from a real repository
//!
//! let number = github.open_issue("ann", "acme/shop", "Login", "It fails.");
//! let id = github.comment("ann", "acme/shop", number, "@claude-bot fix it");
//! github.edit_comment("ann", "acme/shop", id, "@claude-bot fix it, please");
//! github.rerequest("ann", "acme/shop", check);
//!
//! github.comments("acme/shop", number);
//! github.pulls("acme/shop");
//! github.checks("acme/shop");
//! github.deliveries("claude-bot"); // webhooks and the answers to them
//! github.app_token("claude-bot"); // a valid JWT, for a client without a library
//! ```
//!
//! The double also has everything in [`super`]. The name of an operation is GitHub's own:
//! `issues/create-comment`, `checks/update`, `apps/create-installation-access-token`.
//!
//! Rules that the double checks:
//!
//! - the app's JWT: RS256 with the app's key, `iat` not in the future, `exp` within ten minutes;
//! - tokens of installations, which live an hour and reach only repositories of their owner;
//! - a `User-Agent`, pages of 30, 65,536 characters in a body, and the fields of a check run;
//! - an app changes only its own comments and checks;
//! - a webhook is answered within 10 s ([`WEBHOOK_TIMEOUT`]); a webhook is sent again only on
//!   request, with the same GUID;
//! - 5,000 requests per hour, 900 points per minute, 100 requests at once, and 80 requests per
//!   minute and 500 per hour that create content.
//!
//! Creating and editing comments, issues and pull requests counts as content. Reactions and checks
//! count only as points.

mod access;
mod checks;
mod hooks;
mod issues;
mod keys;
mod payloads;
mod pulls;
mod routes;
mod state;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::json;

pub use hooks::WEBHOOK_TIMEOUT;
pub use routes::{
    MAX_CONCURRENT_REQUESTS, MAX_CONTENT_PER_HOUR, MAX_CONTENT_PER_MINUTE, MAX_POINTS_PER_MINUTE,
    MAX_REQUESTS_PER_HOUR, TOKEN_LIFETIME,
};
pub use state::{
    CheckRun, GitHubApp, GitHubComment, GitHubDelivery, GitHubIssue, GitHubPullRequest,
    GitHubReaction, GitHubReviewComment, GitHubState,
};

use super::double::ServiceDouble;
use super::signature;
use state::{GitHubAppState, GitHubRepo};

/// The double of GitHub. Dropping it closes all its connections.
pub struct GitHub {
    double: Arc<ServiceDouble<GitHubState>>,
}

impl Deref for GitHub {
    type Target = ServiceDouble<GitHubState>;

    fn deref(&self) -> &ServiceDouble<GitHubState> {
        &self.double
    }
}

impl Drop for GitHub {
    fn drop(&mut self) {
        self.double.shut_down();
    }
}

impl GitHub {
    /// Starts the double on a free port of the loopback address. The API is directly below
    /// `base_url()`.
    pub async fn start() -> GitHub {
        let world = GitHubState {
            apps: vec![],
            repos: vec![],
            tokens: vec![],
        };
        let double = ServiceDouble::open(world, routes::handle_request).await;
        tokio::spawn(hooks::deliver_webhooks(Arc::downgrade(&double)));
        GitHub { double }
    }

    /// Registers an app that is subscribed to all events that bridges (Regatta's connections to
    /// services) use. At most three apps are possible, because there are only three keys.
    pub fn add_app(&self, slug: &str) -> GitHubApp {
        self.update(|world, _| {
            let number = world.apps.len();
            let app = GitHubApp {
                id: 12_345 + number as u64,
                client_id: format!(
                    "Iv23{}",
                    signature::fake_token(&format!("client {slug}"), 16)
                ),
                slug: slug.to_owned(),
                private_key: access::private_key(number),
                webhook_secret: signature::fake_token(&format!("webhook {slug}"), 32),
            };
            let events = [
                "issues",
                "issue_comment",
                "pull_request",
                "pull_request_review_comment",
                "check_run",
            ];
            world.apps.push(GitHubAppState {
                app: app.clone(),
                webhook: None,
                events: events.into_iter().map(str::to_owned).collect(),
                installations: vec![],
                deliveries: vec![],
                in_flight: 0,
                forged_signatures: 0,
            });
            app
        })
    }

    /// Sets the URL to which an app's webhooks are sent, including webhooks that still wait.
    pub fn set_webhook_url(&self, app: &str, url: &str) {
        let app_index = self.app_index(app);
        self.update(|world, _| world.apps[app_index].webhook = Some(url.to_owned()));
    }

    /// Sets the events about which an app gets webhooks.
    pub fn subscribe(&self, app: &str, events: &[&str]) {
        let (app_index, events) = (
            self.app_index(app),
            events.iter().map(|event| (*event).to_owned()).collect(),
        );
        self.update(|world, _| world.apps[app_index].events = events);
    }

    /// Adds a repository `owner/name`, and installs these apps at the owner.
    pub fn add_repo(&self, full_name: &str, apps: &[&str]) {
        let app_indices: Vec<usize> = apps.iter().map(|app| self.app_index(app)).collect();
        let (owner, name) = full_name
            .split_once('/')
            .expect("a repository is owner/name");
        self.update(|world, ledger| {
            let branches =
                BTreeMap::from([("main".to_owned(), signature::fake_token(full_name, 40))]);
            world.repos.push(GitHubRepo {
                id: 700 + ledger.next(),
                owner: owner.to_owned(),
                name: name.to_owned(),
                people: BTreeMap::new(),
                issues: BTreeMap::new(),
                checks: vec![],
                branches,
                remote: None,
            });
            for app_index in app_indices {
                let app = &mut world.apps[app_index];
                if !app
                    .installations
                    .iter()
                    .any(|installation| installation.1 == owner)
                {
                    app.installations
                        .push((8_000 + ledger.next(), owner.to_owned()));
                }
            }
        });
    }

    /// Gives a person a role in a repository.
    pub fn add_person(&self, login: &str, repo: &str, role: &str) {
        self.update(|world, _| {
            let repo = world.repo_mut(repo).expect("there is such a repository");
            repo.people.insert(login.to_owned(), role.to_owned());
        });
    }

    /// Sets the commit to which a branch points.
    pub fn set_branch(&self, repo: &str, branch: &str, sha: &str) {
        self.update(|world, _| {
            let repo = world.repo_mut(repo).expect("there is such a repository");
            repo.branches.insert(branch.to_owned(), sha.to_owned());
        });
    }

    /// Takes the branches of a repository from a bare repository on disk. As on GitHub, a pull
    /// request from a branch that was not pushed there is refused.
    pub fn set_remote(&self, repo: &str, path: &std::path::Path) {
        self.update(|world, _| {
            let repo = world.repo_mut(repo).expect("there is such a repository");
            repo.remote = Some(path.to_owned());
        });
    }

    /// Returns the id of an app's installation at an owner.
    pub fn installation(&self, app: &str, owner: &str) -> u64 {
        let app_index = self.app_index(app);
        let found = self.view(|view| {
            view.apps[app_index]
                .installations
                .iter()
                .find(|installation| installation.1 == owner)
                .map(|installation| installation.0)
        });
        found.expect("the app is installed at this owner")
    }

    /// Returns a token, signed with the app's key, that is valid for nine minutes.
    pub fn app_token(&self, app: &str) -> String {
        let app_index = self.app_index(app);
        self.view(|view| access::app_token(&view.apps[app_index].app, app_index))
    }

    /// Returns a token (JWT) with arbitrary claims, signed with the app's key.
    pub fn sign_claims(&self, app: &str, claims: &serde_json::Value) -> String {
        let part = |value: &serde_json::Value| {
            data_encoding::BASE64URL_NOPAD.encode(value.to_string().as_bytes())
        };
        let message = format!(
            "{}.{}",
            part(&json!({"alg": "RS256", "typ": "JWT"})),
            part(claims)
        );
        access::sign_with(self.app_index(app), message)
    }

    /// Opens an issue in the name of a person. Returns the issue's number.
    pub fn open_issue(&self, person: &str, repo: &str, title: &str, body: &str) -> u64 {
        self.update(|world, ledger| world.open(ledger, repo, (person, None), (title, body), None))
    }

    /// Opens a pull request in the name of a person. `said` contains the title and the body, and
    /// `diff` the changes. Returns the pull request's number.
    pub fn open_pull(
        &self,
        person: &str,
        repo: &str,
        said: (&str, &str),
        (head, base): (&str, &str),
        diff: &str,
    ) -> u64 {
        self.update(|world, ledger| {
            let repo_state = world.repo(repo).expect("there is such a repository");
            let pull = pulls::new_pull(repo_state, head, base, diff);
            world.open(ledger, repo, (person, None), said, Some(pull))
        })
    }

    /// Adds a comment to an issue or a pull request in the name of a person. Returns the comment's
    /// id.
    pub fn comment(&self, person: &str, repo: &str, number: u64, body: &str) -> u64 {
        self.update(|world, ledger| world.add_comment(ledger, repo, number, (person, None), body))
    }

    /// Changes the text of a comment in the name of a person.
    pub fn edit_comment(&self, person: &str, repo: &str, id: u64, body: &str) {
        self.update(|world, ledger| world.edit_comment(ledger, repo, id, person, body));
    }

    /// Deletes a comment in the name of a person.
    pub fn delete_comment(&self, person: &str, repo: &str, number: u64, id: u64) {
        self.update(|world, ledger| world.delete_comment(ledger, repo, (number, id), person));
    }

    /// Adds a comment on a line of a pull request, or a reply to such a comment, in the name of a
    /// person. Returns the comment's id.
    pub fn review_comment(
        &self,
        person: &str,
        repo: &str,
        number: u64,
        ((path, line), body): ((&str, u64), &str),
        reply_to: Option<u64>,
    ) -> u64 {
        self.update(|world, ledger| {
            world.add_review_comment(
                ledger,
                repo,
                number,
                (person, None),
                (path, line, reply_to, body),
            )
        })
    }

    /// Adds a label to an issue or a pull request in the name of a person.
    pub fn label(&self, person: &str, repo: &str, number: u64, label: &str) {
        self.update(|world, ledger| {
            let repo_state = world.repo_mut(repo).expect("there is such a repository");
            repo_state
                .issues
                .get_mut(&number)
                .expect("there is such an issue")
                .labels
                .push(label.to_owned());
            let (event, mut payload) = world.webhook_subject(repo, number);
            payload["label"] = json!({"name": label});
            world.queue_webhooks(ledger, repo, (event, "labeled", person), payload, None);
        });
    }

    /// Assigns an issue or a pull request to somebody in the name of a person.
    pub fn assign(&self, person: &str, repo: &str, number: u64, whom: &str) {
        self.update(|world, ledger| {
            let repo_state = world.repo_mut(repo).expect("there is such a repository");
            repo_state
                .issues
                .get_mut(&number)
                .expect("there is such an issue")
                .assignees
                .push(whom.to_owned());
            let (event, mut payload) = world.webhook_subject(repo, number);
            payload["assignee"] = payloads::user(whom);
            world.queue_webhooks(ledger, repo, (event, "assigned", person), payload, None);
        });
    }

    /// Adds a person's reaction to a comment. GitHub sends no webhook for reactions.
    pub fn react(&self, person: &str, repo: &str, comment: u64, content: &str) {
        self.update(|world, ledger| {
            let repo_state = world.repo_mut(repo).expect("there is such a repository");
            let reaction = GitHubReaction {
                id: ledger.next(),
                content: content.to_owned(),
                user: person.to_owned(),
            };
            repo_state
                .comment_mut(comment)
                .expect("there is such a comment")
                .1
                .reactions
                .push(reaction);
        });
    }

    /// Asks for a new run of a check in the name of a person.
    pub fn rerequest(&self, person: &str, repo: &str, check: u64) {
        self.queue_check_webhook(person, repo, check, ("rerequested", None));
    }

    /// Presses a button of a check run in the name of a person.
    pub fn request_action(&self, person: &str, repo: &str, check: u64, identifier: &str) {
        self.queue_check_webhook(person, repo, check, ("requested_action", Some(identifier)));
    }

    fn queue_check_webhook(
        &self,
        person: &str,
        repo: &str,
        check: u64,
        (action, identifier): (&str, Option<&str>),
    ) {
        self.update(|world, ledger| {
            let repo_state = world.repo(repo).expect("there is such a repository");
            let check = repo_state
                .checks
                .iter()
                .find(|check_run| check_run.id == check)
                .expect("there is such a check")
                .clone();
            let mut payload = json!({"check_run": payloads::check(world, repo_state, &check)});
            if let Some(identifier) = identifier {
                let offered = check.fields["actions"].as_array().into_iter().flatten();
                assert!(
                    offered
                        .clone()
                        .any(|offered| offered["identifier"] == identifier),
                    "there is no such button"
                );
                payload["requested_action"] = json!({"identifier": identifier});
            }
            world.queue_webhooks(
                ledger,
                repo,
                ("check_run", action, person),
                payload,
                Some(&check.app),
            );
        });
    }

    /// Returns the comments of an issue or a pull request.
    pub fn comments(&self, repo: &str, number: u64) -> Vec<GitHubComment> {
        self.view(|view| view.comments(repo, number).to_vec())
    }

    /// Returns the comments on lines of a pull request.
    pub fn review_comments(&self, repo: &str, number: u64) -> Vec<GitHubReviewComment> {
        self.view(|view| view.review_comments(repo, number).to_vec())
    }

    /// Returns an issue or a pull request, if it exists.
    pub fn issue(&self, repo: &str, number: u64) -> Option<GitHubIssue> {
        self.view(|view| view.issue(repo, number).cloned())
    }

    /// Returns all pull requests of a repository.
    pub fn pulls(&self, repo: &str) -> Vec<GitHubIssue> {
        self.view(|view| view.pulls(repo).cloned().collect())
    }

    /// Returns all check runs of a repository.
    pub fn checks(&self, repo: &str) -> Vec<CheckRun> {
        self.view(|view| view.checks(repo).to_vec())
    }

    /// Returns all webhooks for an app, those that were sent and those that still wait.
    pub fn deliveries(&self, app: &str) -> Vec<GitHubDelivery> {
        self.view(|view| view.deliveries(app).to_vec())
    }

    /// Deletes the records of an app's webhooks, as GitHub does after three days.
    pub fn forget_deliveries(&self, app: &str) {
        let app_index = self.app_index(app);
        self.update(|world, _| world.apps[app_index].deliveries.clear());
    }

    /// Signs the next `n` webhooks for an app with a wrong secret.
    pub fn corrupt_signatures(&self, app: &str, n: u32) {
        let app_index = self.app_index(app);
        self.update(|world, _| world.apps[app_index].forged_signatures += n);
    }

    /// Sends a webhook again with the same GUID, like the button on the app's page on GitHub.
    pub fn redeliver(&self, app: &str, delivery: u64) {
        let app_index = self.app_index(app);
        assert!(self.update(|world, ledger| hooks::queue_redelivery(
            &mut world.apps[app_index],
            ledger,
            delivery
        )));
    }

    fn app_index(&self, app: &str) -> usize {
        let found = self.view(|view| {
            view.apps
                .iter()
                .position(|github_app_state| github_app_state.app.slug == app)
        });
        found.unwrap_or_else(|| panic!("no app is called {app}"))
    }
}
