//! The causes of inbox items. Items of the same kind with the same cause form one group, which every
//! view shows as one entry with one answer: thirty agents with one wrong model are one decision.
//!
//! A cause is derived from typed facts of the board, such as the class of a failure and the model in
//! an agent's settings. The texts are for people; only `class` and `detail` decide about the group.

use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::agent_protocol::FailureClass;
use crate::provider_outage::{self, ProviderOutage};

/// The class of the cause that several inbox items share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CauseClass {
    /// Agents ask for exactly the same thing. `detail` is the request.
    Request,
    /// The program of an agent does not offer the model in the agent's settings. `detail` is the
    /// model.
    Model,
    /// The program of an agent is not signed in. `detail` is the provider.
    SignIn,
    /// Another setting of an agent cannot work. `detail` is the reason.
    Settings,
    /// The program of an agent has printed nothing for a long time. `detail` is empty.
    Silence,
    /// Tasks stopped for the same reason. `detail` is the reason.
    Reason,
}

/// The cause of an inbox item, as far as other items can have the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InboxCause {
    pub class: CauseClass,
    /// The value that all items of the group share, such as the name of the model.
    pub detail: String,
    /// The cause in words for people, without the name of one agent or task.
    pub text: String,
    /// The way to fix the cause; empty if an answer to the items is enough.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// The word for the items of a group with several items, such as `agents`.
    pub noun: String,
}

impl CauseClass {
    /// Returns the word for several items with a cause of this class.
    pub fn noun(self) -> &'static str {
        match self {
            CauseClass::Request => "requests",
            CauseClass::Model | CauseClass::SignIn | CauseClass::Settings | CauseClass::Silence => {
                "agents"
            }
            CauseClass::Reason => "tasks",
        }
    }
}

impl InboxCause {
    /// Returns the headline of a group of `count` items: "30 agents: the provider does not know the
    /// model opus-5".
    pub fn headline(&self, count: usize) -> String {
        if count == 1 {
            return self.text.clone();
        }
        format!("{count} {}: {}", self.noun, self.text)
    }

    fn new(class: CauseClass, detail: &str, text: String, fix: String) -> InboxCause {
        InboxCause {
            class,
            detail: detail.to_owned(),
            text,
            fix,
            noun: class.noun().to_owned(),
        }
    }
}

/// Returns the cause of a permission request or a question with this text.
pub(super) fn same_request(subject: &str) -> InboxCause {
    InboxCause::new(
        CauseClass::Request,
        subject,
        subject.to_owned(),
        String::new(),
    )
}

/// Returns the cause of the item of an agent that cannot work until a person fixes the `outage`.
pub(super) fn of_outage(agent: Option<&Agent>, outage: &ProviderOutage) -> InboxCause {
    let provider = agent.and_then(|agent| agent.provider.as_deref());
    if outage.class == FailureClass::Auth {
        let text = match provider {
            Some(provider) => format!("the provider {provider} is not signed in"),
            None => "the program is not signed in".to_owned(),
        };
        let fix = "sign in as regatta provider says, then resume".to_owned();
        return InboxCause::new(CauseClass::SignIn, provider.unwrap_or_default(), text, fix);
    }
    let reason = provider_outage::short_reason(outage);
    let model = agent
        .and_then(|agent| agent.profile.model.as_deref())
        .filter(|model| names_model(reason, model));
    if let Some(model) = model {
        let text = format!("the provider does not know the model {model}");
        let offered = reason
            .rsplit_once("it offers ")
            .map_or(String::new(), |(_, offered)| format!(": {offered}"));
        let fix = format!("choose a model that the program offers{offered}");
        return InboxCause::new(CauseClass::Model, model, text, fix);
    }
    // Without the agent's name, the same fault of several agents has the same text.
    let reason = match agent {
        Some(agent) => reason.replace(agent.name.as_str(), "the agent"),
        None => reason.to_owned(),
    };
    let fix = "fix the settings, then resume; regatta doctor says how".to_owned();
    InboxCause::new(CauseClass::Settings, &reason, reason.clone(), fix)
}

/// Returns the cause of the item of an attempt that has printed nothing for a long time.
pub(super) fn silence() -> InboxCause {
    InboxCause::new(
        CauseClass::Silence,
        "",
        "no output for a long time".to_owned(),
        "look at one log, then wait, tell the agents something, or stop them".to_owned(),
    )
}

/// Returns the cause of the item of a task that stopped for this reason, or `None` if the reason is
/// unknown or names the task, so that no other task can have the same reason.
pub(super) fn same_reason(reason: &str) -> Option<InboxCause> {
    let first = reason.lines().next().unwrap_or_default().trim();
    if first.is_empty() {
        return None;
    }
    let text = first.to_owned();
    Some(InboxCause::new(
        CauseClass::Reason,
        first,
        text,
        String::new(),
    ))
}

/// Returns whether the reason of a wrong setting is about this model.
fn names_model(reason: &str, model: &str) -> bool {
    !model.is_empty() && reason.to_lowercase().contains("model") && reason.contains(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AgentName;

    fn agent(name: &str, provider: &str, model: Option<&str>) -> Agent {
        Agent {
            name: AgentName::new(name).unwrap(),
            runtime: crate::agent::Runtime::Scripted,
            role: crate::agent::Role::Worker,
            provider: Some(provider.to_owned()),
            profile: crate::agent::Profile {
                model: model.map(str::to_owned),
                ..Default::default()
            },
            description: String::new(),
            max_tasks: 1,
            derived_from: None,
            created_unix_ms: 0,
            updated_unix_ms: 0,
            offline: None,
            last_failed: None,
        }
    }

    fn outage(class: FailureClass, reason: &str) -> ProviderOutage {
        ProviderOutage {
            name: "agent:any".to_owned(),
            class,
            reason: reason.to_owned(),
            deadline_fleet_ms: None,
            since_unix_ms: 0,
            times: 0,
            has_resumed: false,
            snoozed: None,
        }
    }

    #[test]
    fn agents_with_the_same_wrong_model_share_a_cause_that_names_the_model() {
        let reason = "The program has no model \"opus-5\"; it offers small, big.";
        let outage = outage(FailureClass::BadConfig, reason);
        let first = of_outage(Some(&agent("claude-1", "claude", Some("opus-5"))), &outage);
        let second = of_outage(Some(&agent("codex-7", "codex", Some("opus-5"))), &outage);
        assert_eq!(first, second);
        assert_eq!(
            (first.class, first.detail.as_str()),
            (CauseClass::Model, "opus-5")
        );
        assert_eq!(
            first.headline(30),
            "30 agents: the provider does not know the model opus-5"
        );
        assert_eq!(
            first.headline(1),
            "the provider does not know the model opus-5"
        );
        assert_eq!(
            first.fix,
            "choose a model that the program offers: small, big"
        );
    }

    #[test]
    fn other_faults_are_not_taken_for_a_wrong_model() {
        let agent = agent("claude-1", "claude", Some("opus-5"));
        let cases = [
            (
                FailureClass::BadConfig,
                "claude-1: no such file",
                CauseClass::Settings,
            ),
            (
                FailureClass::BadConfig,
                "it has no mode opus-5",
                CauseClass::Settings,
            ),
            (
                FailureClass::Auth,
                "no model opus-5 for you",
                CauseClass::SignIn,
            ),
        ];
        for (class, reason, expected) in cases {
            assert_eq!(
                of_outage(Some(&agent), &outage(class, reason)).class,
                expected
            );
        }
        let settings = of_outage(
            Some(&agent),
            &outage(FailureClass::BadConfig, "claude-1: no such file"),
        );
        assert_eq!(settings.text, "the agent: no such file");
        assert_eq!(same_reason("\n"), None);
    }
}
