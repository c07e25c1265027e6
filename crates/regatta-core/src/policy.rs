//! Policy: what an agent may do without asking a person. Rules are data; the first that fits decides.
//!
//! A person's grant for one task or mission comes first, then the agent's own rules, then its role's, then
//! everybody's. Where none fits, what the sandbox contains is allowed and the rest is asked (DESIGN §5).

use serde::{Deserialize, Serialize};

use crate::agent::{Agent, Role};
use crate::attempt::Attempt;
use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, MissionId, RuleId, TaskId};
use crate::refusal::Refusal;
use crate::session::{Tool, ToolKind};

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Allow,
    Deny,
    Ask,
}

impl Effect {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Allow => "allow",
            Effect::Deny => "deny",
            Effect::Ask => "ask",
        }
    }
}

/// Whom a rule is for, from the narrowest: a narrower one is asked first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Task(TaskId),
    Mission(MissionId),
    Agent(AgentName),
    Role(Role),
    All,
}

/// What a rule is about. A field that is left out fits anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Matter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolKind>,
    /// The command line; `*` stands for anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Every path it names; `*` stands for anything, also over `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Matter {
    fn fits(&self, tool: &Tool) -> bool {
        let command = tool.command.as_deref().unwrap_or(&tool.title);
        self.tool.is_none_or(|it| it == tool.kind)
            && self.command.as_ref().is_none_or(|it| command_fits(it, command))
            && self
                .path
                .as_ref()
                .is_none_or(|it| !tool.paths.is_empty() && tool.paths.iter().all(|path| like(it, path)))
    }

    /// In words, as `policy list` shows it.
    pub fn describe(&self) -> String {
        let parts: Vec<String> = [
            self.tool.map(|it| format!("{it:?}").to_lowercase()),
            self.command.as_ref().map(|it| format!("command {it}")),
            self.path.as_ref().map(|it| format!("path {it}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() { "anything".into() } else { parts.join(", ") }
    }
}

/// Whether a command line fits a pattern. A line of several commands fits only if the pattern says so itself: who
/// allowed `npm install *` did not allow `npm install x && rm -rf /`.
fn command_fits(pattern: &str, command: &str) -> bool {
    const JOINTS: [&str; 8] = ["&&", "||", ";", "|", "`", "$(", "\n", ">"];
    let joined = |text: &str| JOINTS.iter().any(|it| text.contains(it)) || text.contains('&');
    like(pattern, command) && (joined(pattern) || !joined(command) || pattern == "*")
}

/// Whether `text` is like `pattern`, in which `*` stands for anything.
pub fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rule {
    pub id: RuleId,
    pub scope: Scope,
    pub effect: Effect,
    #[serde(flatten)]
    pub matter: Matter,
}

impl Rule {
    /// In one line.
    pub fn describe(&self) -> String {
        let who = match &self.scope {
            Scope::Task(it) => it.to_string(),
            Scope::Mission(it) => it.to_string(),
            Scope::Agent(it) => it.to_string(),
            Scope::Role(Role::Lead) => "leads".into(),
            Scope::Role(Role::Worker) => "workers".into(),
            Scope::All => "everybody".into(),
        };
        format!("{} {} for {who}", self.effect.name(), self.matter.describe())
    }
}

facts! {
    Added { rule: Rule }
    Removed { rule: RuleId }
}

/// Adds a rule; one that is there already is not added again.
pub fn add(draft: &mut Draft, scope: Scope, effect: Effect, matter: Matter) -> Result<RuleId, Refusal> {
    if matter.command.as_ref().is_some_and(|it| it.is_empty()) || matter.path.as_ref().is_some_and(|it| it.is_empty()) {
        return Err(Refusal::invalid("a pattern is not empty", "leave it out to fit anything"));
    }
    if let Scope::Agent(name) = &scope {
        crate::agent::find(draft.board(), name)?;
    }
    let same = draft.board().rules.values().find(|it| it.scope == scope && it.effect == effect && it.matter == matter);
    if let Some(rule) = same {
        return Ok(rule.id);
    }
    let id = RuleId(draft.board().counters.rule + 1);
    draft.record(Event::RuleAdded(Added { rule: Rule { id, scope, effect, matter } }));
    Ok(id)
}

/// Takes a rule away.
pub fn remove(draft: &mut Draft, id: RuleId) -> Result<(), Refusal> {
    if !draft.board().rules.contains_key(&id) {
        return Err(Refusal::invalid(format!("there is no rule {id}"), "see regatta policy list"));
    }
    draft.record(Event::RuleRemoved(Removed { rule: id }));
    Ok(())
}

/// Takes away what was granted for something that has ended.
pub(crate) fn end_scope(draft: &mut Draft, scope: &Scope) {
    let ended: Vec<RuleId> = draft.board().rules.values().filter(|it| it.scope == *scope).map(|it| it.id).collect();
    for rule in ended {
        draft.record(Event::RuleRemoved(Removed { rule }));
    }
}

/// What the policy says to a tool call, and which rule did.
pub fn judge(board: &Board, attempt: &Attempt, agent: &Agent, tool: &Tool) -> (Effect, String) {
    let mut scopes = vec![Scope::Task(attempt.task)];
    scopes.extend(attempt.mission.map(Scope::Mission));
    scopes.extend([Scope::Agent(agent.name.clone()), Scope::Role(agent.role), Scope::All]);
    for scope in scopes {
        // Within one scope a denial comes before a permission, and the newest before the older.
        let fitting = || board.rules.values().rev().filter(|it| it.scope == scope && it.matter.fits(tool));
        let found = fitting().find(|it| it.effect == Effect::Deny).or_else(|| fitting().next());
        if let Some(rule) = found {
            return (rule.effect, format!("{}: {}", rule.id, rule.describe()));
        }
    }
    by_default(attempt.sandbox.is_some(), tool)
}

/// Where no rule fits.
fn by_default(confined: bool, tool: &Tool) -> (Effect, String) {
    let outside =
        tool.paths.iter().any(|it| it.starts_with('/') || it.starts_with('~') || it.split('/').any(|it| it == ".."));
    let harmless = matches!(tool.kind, ToolKind::Read | ToolKind::Search | ToolKind::Think);
    match tool.kind {
        _ if outside => (Effect::Ask, "it reaches outside its workspace".into()),
        _ if confined => (Effect::Allow, "its sandbox contains it".into()),
        _ if harmless => (Effect::Allow, "it only looks".into()),
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move if !tool.paths.is_empty() => {
            (Effect::Allow, "it stays in its workspace".into())
        }
        _ => (Effect::Ask, "it has no sandbox and no rule allows it".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
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
            assert_eq!(like(pattern, text), fits, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_permitted_command_does_not_carry_a_second_one_along() {
        for more in [
            "npm install x && rm -rf /",
            "npm install x; id",
            "npm install $(id)",
            "npm install x | sh",
            "npm install x > /etc/passwd",
            "npm install x & id",
        ] {
            assert!(!command_fits("npm install *", more), "{more}");
        }
        assert!(command_fits("npm install *", "npm install x"));
        assert!(command_fits("*", "a && b"), "who allows everything allows that");
    }
}
