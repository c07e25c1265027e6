//! The policy is a list of rules that allow or deny agents' tool calls (such as running a command)
//! without asking a person.
//!
//! Rules for one task are searched first, then rules for the task's mission, for the agent, for the
//! agent's role, and for all agents. The first scope with a matching rule decides. If no rule
//! matches, a call that cannot do harm outside the agent's workspace is allowed, and any other call
//! needs a person.

use serde::{Deserialize, Serialize};

use crate::agent::{Agent, Role};
use crate::agent_protocol::{ToolCall, ToolKind};
use crate::attempt::Attempt;
use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, MissionId, RuleId, TaskId};
use crate::refusal::Refusal;

/// The effect of a policy rule on a tool call that it covers: allow it, deny it, or ask a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    Allow,
    Deny,
    Ask,
}

impl RuleEffect {
    /// Returns the effect as one word, as in commands and JSON.
    pub fn name(self) -> &'static str {
        match self {
            RuleEffect::Allow => "allow",
            RuleEffect::Deny => "deny",
            RuleEffect::Ask => "ask",
        }
    }
}

/// The agents or work to which a policy rule applies, from the narrowest to the widest. Narrower
/// scopes are checked first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RuleScope {
    Task(TaskId),
    Mission(MissionId),
    Agent(AgentName),
    Role(Role),
    All,
}

/// The tool calls that a policy rule covers. All given fields must match; an omitted field matches
/// anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RuleSubject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolKind>,
    /// Pattern for the command line of the call; `*` matches any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Pattern for the paths of the call; `*` matches any text, including `/`. A rule that allows
    /// must match all paths of the call. A rule that denies or asks must match at least one of
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Pattern for the web addresses of the call; `*` matches any text. A rule that allows must
    /// match all addresses of the call. A rule that denies or asks must match at least one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Set if `*` is not a wildcard in these patterns, so that they match only exactly this
    /// command, path or address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
}

impl RuleSubject {
    /// Returns whether a rule with this subject covers a tool call. A rule that allows must cover
    /// every part of the call. A rule that denies or asks must cover at least one part of it.
    fn covers(&self, effect: RuleEffect, tool: &ToolCall) -> bool {
        let allow = effect == RuleEffect::Allow;
        let matches_text = |pattern: &str, text: &str| {
            if self.exact {
                pattern == text
            } else {
                matches_glob(pattern, text)
            }
        };
        let command = self
            .command
            .as_ref()
            .is_none_or(|pattern| match (&tool.command, allow) {
                (Some(line), true) => {
                    matches_text(pattern, line)
                        && (self.exact || !is_compound(line) || pattern == "*")
                }
                // A call without a command line has only a title, which the agent chooses itself,
                // so the title cannot satisfy a rule that allows.
                (None, true) => false,
                (line, false) => {
                    let line = line.as_deref().unwrap_or(&tool.title);
                    matches_text(pattern, line)
                        || split_commands(line).any(|part| matches_text(pattern, part))
                }
            });
        let path = self.path.as_ref().is_none_or(|pattern| {
            let mut paths = tool.paths.iter().map(|path| plain_path(path));
            if allow {
                !tool.paths.is_empty()
                    && paths.all(|path| matches_text(pattern, &path) && !leaves_directory(&path))
            } else {
                paths.any(|path| matches_text(pattern, &path))
            }
        });
        let url = self.url.as_ref().is_none_or(|pattern| {
            let mut urls = tool.urls.iter().map(|url| plain_url(url));
            if allow {
                !tool.urls.is_empty() && urls.all(|url| matches_text(pattern, &url))
            } else {
                urls.any(|url| matches_text(pattern, &url))
            }
        });
        self.tool.is_none_or(|kind| kind == tool.kind) && command && path && url
    }

    /// Describes in words which tool calls are covered, as `regatta policy list` shows it.
    pub fn describe(&self) -> String {
        let exactly = if self.exact { "exactly " } else { "" };
        let parts: Vec<String> = [
            self.tool.map(|kind| format!("{kind:?}").to_lowercase()),
            self.command
                .as_ref()
                .map(|command| format!("command {exactly}{command}")),
            self.path
                .as_ref()
                .map(|path| format!("path {exactly}{path}")),
            self.url.as_ref().map(|url| format!("url {exactly}{url}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() {
            "anything".into()
        } else {
            parts.join(", ")
        }
    }
}

/// Parts of a command line that join several commands, nest one in another, or redirect to a file.
/// A line that contains one of them is not a single plain command.
const COMMAND_JOINERS: [&str; 8] = ["&", "|", ";", "`", "$(", "<(", "\n", ">"];

/// Returns whether a command line is more than one plain command. A rule that allows `npm install
/// *` must not allow `npm install x && rm -rf /`.
pub(crate) fn is_compound(line: &str) -> bool {
    COMMAND_JOINERS.iter().any(|joiner| line.contains(joiner))
}

/// Splits a command line into the single commands that are joined or nested in it.
fn split_commands(line: &str) -> impl Iterator<Item = &str> {
    line.split(['&', '|', ';', '`', '\n', '(', ')', '<', '>', '{', '}'])
        .map(str::trim)
        .filter(|line| !line.is_empty())
}

/// Simplifies a path: removes `.` and empty parts, and resolves `..` as far as the text of the path
/// allows.
pub fn plain_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|part| *part != "..") => _ = parts.pop(),
            ".." if path.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    if path.starts_with('/') {
        format!("/{}", parts.join("/"))
    } else {
        parts.join("/")
    }
}

/// Converts a web address to one spelling: scheme and host in lower case, no default port, and at
/// least `/` after the host.
pub fn plain_url(url: &str) -> String {
    let url = url.trim();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let scheme = scheme.to_ascii_lowercase();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, host) = authority
        .rsplit_once('@')
        .map_or(("", authority), |(user, host)| (user, host));
    let host = host.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let host = host.strip_suffix(default_port).unwrap_or(&host);
    let user = if user.is_empty() {
        String::new()
    } else {
        format!("{user}@")
    };
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{scheme}://{user}{host}{slash}{path}")
}

/// Returns a pattern that matches all addresses at the same host, such as `https://docs.rs/*`, or
/// `None` if `url` is not a plain web address.
pub(crate) fn same_host(url: &str) -> Option<String> {
    let url = plain_url(url);
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split('/').next()?;
    let is_plain = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    (is_plain && matches!(scheme, "http" | "https")).then(|| format!("{scheme}://{host}/*"))
}

/// Returns whether a simplified relative path leads out of the directory that it is relative to.
fn leaves_directory(path: &str) -> bool {
    path == ".." || path.starts_with("../")
}

/// Returns whether all of `text` matches `pattern`, in which `*` matches any text.
pub fn matches_glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A rule for agents' tool calls: it allows or denies the calls that it covers, or makes Regatta
/// ask a person about them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyRule {
    pub id: RuleId,
    pub scope: RuleScope,
    pub effect: RuleEffect,
    #[serde(flatten)]
    pub subject: RuleSubject,
}

impl PolicyRule {
    /// Describes the rule in one line for people, such as "allow command cargo * for workers".
    pub fn describe(&self) -> String {
        let scope_name = match &self.scope {
            RuleScope::Task(id) => id.to_string(),
            RuleScope::Mission(id) => id.to_string(),
            RuleScope::Agent(agent) => agent.to_string(),
            RuleScope::Role(Role::Lead) => "leads".into(),
            RuleScope::Role(Role::Worker) => "workers".into(),
            RuleScope::All => "everybody".into(),
        };
        format!(
            "{} {} for {scope_name}",
            self.effect.name(),
            self.subject.describe()
        )
    }
}

facts! {
    PolicyAdded { rule: PolicyRule }
    PolicyRemoved { rule: RuleId }
}

/// Adds a policy rule and returns its id. If an equal rule already exists, returns the id of the
/// existing rule.
pub fn add(
    draft: &mut Draft,
    scope: RuleScope,
    effect: RuleEffect,
    subject: RuleSubject,
) -> Result<RuleId, Refusal> {
    if subject
        .command
        .as_ref()
        .is_some_and(|command| command.is_empty())
        || subject.path.as_ref().is_some_and(|path| path.is_empty())
        || subject.url.as_ref().is_some_and(|url| url.is_empty())
    {
        return Err(Refusal::invalid(
            "a rule's pattern for a command, path or address is empty",
            "leave the pattern out to match anything",
        ));
    }
    if let RuleScope::Agent(name) = &scope {
        crate::agent::find(draft.board(), name)?;
    }
    let existing = draft
        .board()
        .rules
        .values()
        .find(|rule| rule.scope == scope && rule.effect == effect && rule.subject == subject);
    if let Some(rule) = existing {
        return Ok(rule.id);
    }
    let id = RuleId(draft.board().counters.rule + 1);
    draft.record(Event::PolicyAdded(PolicyAdded {
        rule: PolicyRule {
            id,
            scope,
            effect,
            subject,
        },
    }));
    Ok(id)
}

/// Removes a policy rule, or refuses if there is no rule with this id.
pub fn remove(draft: &mut Draft, id: RuleId) -> Result<(), Refusal> {
    if !draft.board().rules.contains_key(&id) {
        return Err(Refusal::missing(
            format!("policy rule {id} does not exist"),
            "see all rules: regatta policy list",
        ));
    }
    draft.record(Event::PolicyRemoved(PolicyRemoved { rule: id }));
    Ok(())
}

/// Removes the policy rules that applied only to a task or mission that has ended.
pub(crate) fn end_scope(draft: &mut Draft, scope: &RuleScope) {
    let ended: Vec<RuleId> = draft
        .board()
        .rules
        .values()
        .filter(|rule| rule.scope == *scope)
        .map(|rule| rule.id)
        .collect();
    for rule in ended {
        draft.record(Event::PolicyRemoved(PolicyRemoved { rule }));
    }
}

/// Decides whether an attempt's tool call is allowed, denied, or needs a person. Also returns the
/// rule or the reason behind the decision.
pub fn decide(
    board: &Board,
    attempt: &Attempt,
    agent: &Agent,
    tool: &ToolCall,
) -> (RuleEffect, String) {
    let mut scopes = vec![RuleScope::Task(attempt.task)];
    scopes.extend(attempt.mission.map(RuleScope::Mission));
    scopes.extend([
        RuleScope::Agent(agent.name.clone()),
        RuleScope::Role(agent.role),
        RuleScope::All,
    ]);
    for scope in scopes {
        // Among the rules of one scope, a rule that denies takes precedence. If no rule denies, the
        // newest rule decides.
        let matching = || {
            board
                .rules
                .values()
                .rev()
                .filter(|rule| rule.scope == scope && rule.subject.covers(rule.effect, tool))
        };
        let found = matching()
            .find(|rule| rule.effect == RuleEffect::Deny)
            .or_else(|| matching().next());
        if let Some(rule) = found {
            return (rule.effect, format!("{}: {}", rule.id, rule.describe()));
        }
    }
    default_decision(attempt.sandbox.is_some(), tool)
}

/// Decides about a tool call that no rule covers. `confined` is true if the agent's program runs in
/// a sandbox.
fn default_decision(confined: bool, tool: &ToolCall) -> (RuleEffect, String) {
    let paths: Vec<String> = tool.paths.iter().map(|path| plain_path(path)).collect();
    let is_outside = paths
        .iter()
        .any(|path| path.starts_with('/') || path.starts_with('~') || leaves_directory(path))
        || tool
            .urls
            .iter()
            .any(|url| plain_url(url).starts_with("file:"));
    // A tool call that is declared as reading or searching is harmless only if it names its paths
    // and runs no command.
    let is_look = matches!(tool.kind, ToolKind::Read | ToolKind::Search) && !paths.is_empty();
    let is_harmless = tool.command.is_none() && (is_look || tool.kind == ToolKind::Think);
    match tool.kind {
        _ if is_outside => (RuleEffect::Ask, "it reaches outside its workspace".into()),
        _ if confined => (RuleEffect::Allow, "its sandbox contains it".into()),
        _ if is_harmless => (RuleEffect::Allow, "it only reads or searches".into()),
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move if !tool.paths.is_empty() => {
            (RuleEffect::Allow, "it stays in its workspace".into())
        }
        _ => (
            RuleEffect::Ask,
            "it has no sandbox and no rule allows it".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, text, fits) in [
            ("npm install *", "npm install zod@4", true),
            ("npm install *", "npm installer", false),
            ("*", "", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("a*b*c", "a-b-b-c", true),
            ("src/*", "src/a/b.rs", true),
            ("cargo test", "cargo test", true),
            ("cargo test", "cargo test --all", false),
            ("*.rs", "x.rs", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches_glob(pattern, text), fits, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_url_rule_matches_its_host_and_no_other() {
        let fetch = |url: &str| ToolCall {
            kind: ToolKind::Fetch,
            urls: vec![url.into()],
            ..ToolCall::default()
        };
        let host = RuleSubject {
            url: same_host("HTTPS://Docs.rs:443"),
            ..RuleSubject::default()
        };
        assert_eq!(host.url.as_deref(), Some("https://docs.rs/*"));
        for url in [
            "https://docs.rs",
            "https://docs.rs/a?b=c",
            "HTTPS://DOCS.RS:443/x",
            "https://docs.rs?q",
            " https://docs.rs/ ",
        ] {
            assert!(host.covers(RuleEffect::Allow, &fetch(url)), "{url}");
        }
        for url in [
            "http://docs.rs/",
            "https://docs.rs.evil.test/",
            "https://docs.rs@evil.test/",
            "https://evil.test/https://docs.rs/",
            "https://docs.rs:444/",
            "https://docs.rs\\@evil.test/",
            "docs.rs/a",
            "file:///etc/passwd",
        ] {
            assert!(!host.covers(RuleEffect::Allow, &fetch(url)), "{url}");
        }
        let two = ToolCall {
            urls: vec!["https://docs.rs/a".into(), "https://evil.test/".into()],
            ..fetch("")
        };
        assert!(
            !host.covers(RuleEffect::Allow, &two),
            "a call with an address that is not allowed was allowed"
        );
        assert!(
            host.covers(RuleEffect::Deny, &two),
            "a call with one denied address was not denied"
        );
        assert!(!host.covers(
            RuleEffect::Allow,
            &ToolCall {
                kind: ToolKind::Fetch,
                ..ToolCall::default()
            }
        ));
        for url in [
            "https://a@b.test/",
            "ftp://b.test/",
            "b.test",
            "https:///x",
            "https://b.test\\@c/",
        ] {
            assert_ne!(same_host(url).as_deref(), Some("https://b.test/*"), "{url}");
        }
        assert_eq!(
            default_decision(true, &fetch("file:///etc/passwd")).0,
            RuleEffect::Ask
        );
    }

    fn run(line: &str) -> ToolCall {
        ToolCall {
            kind: ToolKind::Execute,
            command: Some(line.into()),
            ..ToolCall::default()
        }
    }

    fn command(pattern: &str) -> RuleSubject {
        RuleSubject {
            command: Some(pattern.into()),
            ..RuleSubject::default()
        }
    }

    #[test]
    fn a_permitted_command_does_not_permit_a_second_one_in_the_same_line() {
        for more in [
            "npm install x && rm -rf /",
            "npm install x; id",
            "npm install $(id)",
            "npm install <(id)",
            "npm install x | sh",
            "npm install x > /etc/passwd",
            "npm install x & id",
        ] {
            assert!(
                !command("npm install *").covers(RuleEffect::Allow, &run(more)),
                "{more}"
            );
        }
        assert!(command("npm install *").covers(RuleEffect::Allow, &run("npm install x")));
        assert!(
            command("*").covers(RuleEffect::Allow, &run("a && b")),
            "a rule that allows everything does not allow this"
        );
        let titled = ToolCall {
            kind: ToolKind::Fetch,
            title: "npm install x".into(),
            ..ToolCall::default()
        };
        assert!(
            !command("npm *").covers(RuleEffect::Allow, &titled),
            "a title was matched although the agent chooses it"
        );
    }

    #[test]
    fn a_denied_command_or_path_is_denied_next_to_others() {
        for line in [
            "rm -rf x",
            "true && rm -rf x",
            "cd a; rm x",
            "echo $(rm x)",
            "sh -c 'a' | rm x",
        ] {
            assert!(
                command("rm *").covers(RuleEffect::Deny, &run(line)),
                "{line}"
            );
        }
        let secrets = RuleSubject {
            path: Some("secrets/*".into()),
            ..RuleSubject::default()
        };
        for path in ["secrets/k", "./secrets/k", "src/../secrets/k"] {
            let paths = vec!["README.md".to_owned(), path.to_owned()];
            assert!(
                secrets.covers(
                    RuleEffect::Deny,
                    &ToolCall {
                        paths,
                        ..ToolCall::default()
                    }
                ),
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_that_leaves_the_directory_does_not_match() {
        let sources = RuleSubject {
            path: Some("src/*".into()),
            ..RuleSubject::default()
        };
        let edits = |path: &str| ToolCall {
            kind: ToolKind::Edit,
            paths: vec![path.to_owned()],
            ..ToolCall::default()
        };
        assert!(sources.covers(RuleEffect::Allow, &edits("src/./a.rs")));
        assert!(!sources.covers(RuleEffect::Allow, &edits("src/../../.ssh/authorized_keys")));
        let all = RuleSubject {
            path: Some("*".into()),
            ..RuleSubject::default()
        };
        assert!(!all.covers(RuleEffect::Allow, &edits("../x")));
        for (path, plain) in [
            ("a/./b//c", "a/b/c"),
            ("a/../../b", "../b"),
            ("/a/../../b", "/b"),
            ("..", ".."),
        ] {
            assert_eq!(plain_path(path), plain);
        }
        assert_eq!(
            default_decision(true, &edits("src/../../x")).0,
            RuleEffect::Ask
        );
        let read = ToolCall {
            kind: ToolKind::Read,
            ..ToolCall::default()
        };
        assert_eq!(
            default_decision(false, &read).0,
            RuleEffect::Ask,
            "a read without a path was allowed by default"
        );
    }
}
