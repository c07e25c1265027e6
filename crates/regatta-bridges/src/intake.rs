//! Turns each event that arrives from a service (message, button, stop, …) into a command to the
//! engine. The rules are the same for every service.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use regatta_core::agent_protocol::{RequestAnswer, RequestContent};
use regatta_core::board::Board;
use regatta_core::bridge_health::{self, Bridge};
use regatta_core::command::{Actor, Command, CommandOutcome, Request};
use regatta_core::conversation::{
    Author, Conversation, ConversationCommand, ConversationPull, Service, ShowOutcome,
    ThreadMessage, ThreadMessageOutcome, find_by_key,
};
use regatta_core::ids::{AgentName, ApprovalId, ConversationId, ProjectName, RequestKey};
use regatta_engine::{BridgeReportSender, CommandFailure, CommandReply, Engine};

use crate::config::{
    BridgeRegistry, ChannelRules, ContextPolicy, RefusalPolicy, Requester, may_ask,
};
use crate::service::{IncomingEvent, IncomingMessage, ServiceError};

pub(crate) use regatta_api::view::BridgeHealthView as Health;

/// Accepts the events that one bridge (the connection of one agent to one service) receives.
#[derive(Clone)]
pub(crate) struct Intake {
    pub(crate) agent: AgentName,
    pub(crate) service: Service,
    pub(crate) engine: Engine,
    pub(crate) reports: BridgeReportSender,
    pub(crate) registry: Arc<BridgeRegistry>,
    pub(crate) directory: Arc<BridgeDirectory>,
}

/// The names and the state of all bridges. All bridges share this value.
#[derive(Debug, Default)]
pub(crate) struct BridgeDirectory {
    entries: Mutex<BTreeMap<(Service, AgentName), DirectoryEntry>>,
    /// Locked while the state of a credential is sent to the engine, so that a newer report never
    /// arrives before an older one.
    report_lock: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct DirectoryEntry {
    names: Vec<String>,
    health: Health,
    /// The reasons why the service rejects the bridge's credential, one for receiving events and
    /// one for posting. `None` while the service accepts the credential.
    rejections: [Option<String>; 2],
}

/// The direction of a bridge: receiving events or posting messages. Each direction makes its own
/// calls to the service, possibly with a separate credential.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BridgeSide {
    Receiving,
    Posting,
}

impl BridgeDirectory {
    fn update_entry<T>(
        &self,
        instance: (Service, AgentName),
        change: impl FnOnce(&mut DirectoryEntry) -> T,
    ) -> T {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        change(entries.entry(instance).or_default())
    }

    /// Returns the current state of an agent's bridge to a service.
    pub(crate) fn health(&self, service: Service, agent: &AgentName) -> Health {
        self.update_entry((service, agent.clone()), |directory| {
            directory.health.clone()
        })
    }
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn unix_time_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |duration| {
            u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
        })
}

impl Intake {
    fn instance_key(&self) -> (Service, AgentName) {
        (self.service, self.agent.clone())
    }

    /// Records the ids and names under which the service knows this bridge's agent.
    pub(crate) fn set_names(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.directory
            .update_entry(self.instance_key(), |directory| {
                directory.health.known_as = names.last().cloned();
                directory.names = names;
            });
    }

    /// Returns whether an id or name at this service belongs to another of Regatta's agents.
    pub(crate) fn is_other_agent(&self, name: &str) -> bool {
        let entries = self
            .directory
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        entries.iter().any(|((service, agent), directory)| {
            *service == self.service
                && *agent != self.agent
                && directory.names.iter().any(|known| known == name)
        })
    }

    /// Applies `change` to the recorded state of this bridge.
    pub(crate) fn update_health(&self, change: impl FnOnce(&mut Health)) {
        self.directory
            .update_entry(self.instance_key(), |directory| {
                change(&mut directory.health)
            });
    }

    pub(crate) async fn on_connected(&self) {
        self.on_connected_with_problem(None).await;
    }

    /// Records that the bridge receives events. `problem` is the reason why a person must
    /// nevertheless fix the bridge's credential, if there is such a reason.
    pub(crate) async fn on_connected_with_problem(&self, problem: Option<&str>) {
        self.update_health(|health| {
            health.connected = Some(unix_time_ms());
            health.trouble = problem.map(str::to_owned);
        });
        self.report_credential(BridgeSide::Receiving, problem).await;
    }

    /// Records that the bridge no longer receives events, with the reason.
    pub(crate) async fn on_disconnected(&self, error: &ServiceError) {
        let why = error.describe();
        tracing::warn!(agent = %self.agent, service = %self.service, "{why}");
        self.update_health(|health| {
            health.connected = None;
            health.trouble = Some(why.clone());
        });
        // Report a rejected credential only for `Unauthorized`. The other errors have causes that
        // the credential does not explain.
        if matches!(error, ServiceError::Unauthorized(_)) {
            self.report_credential(BridgeSide::Receiving, Some(&why))
                .await;
        }
    }

    /// Records whether the service accepts the credential that one direction of the bridge
    /// (receiving or posting) uses. A rejection appears in the user's inbox, because a person must
    /// fix the credential.
    pub(crate) async fn report_credential(&self, side: BridgeSide, rejection: Option<&str>) {
        let _turn = self.directory.report_lock.lock().await;
        let rejection_of_instance = self
            .directory
            .update_entry(self.instance_key(), |directory| {
                directory.rejections[side as usize] = rejection.map(str::to_owned);
                directory.rejections.iter().flatten().next().cloned()
            });
        let own_instance = self
            .registry
            .instances
            .iter()
            .find(|instance| instance.agent == self.agent && instance.service == self.service);
        let problem = rejection_of_instance
            .or_else(|| own_instance.and_then(|instance| instance.warning.clone()));
        let problem = problem.map(|why| {
            own_instance.map_or(why.clone(), |instance| instance.credentials.redact(&why))
        });
        let bridge = Bridge::AgentService {
            service: self.service,
            agent: self.agent.clone(),
        };
        let health = bridge_health::BridgeHealth { bridge, problem };
        if let Err(failure) = self.reports.report_health(health).await {
            tracing::warn!(agent = %self.agent, service = %self.service, "could not record whether \
                {} accepts the credential of the agent {}; the inbox may show an old state: {failure}",
                self.service, self.agent);
        }
    }

    /// Returns the address of the service's API.
    pub(crate) fn url(&self) -> String {
        self.registry.service_url(self.service)
    }

    pub(crate) fn board(&self) -> Arc<Board> {
        self.engine.board()
    }

    pub(crate) fn registry(&self) -> &BridgeRegistry {
        &self.registry
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.directory.health(self.service, &self.agent).paused
    }

    /// Returns whether this agent has an open conversation with this key. If so, a message without
    /// a mention of the agent may belong to this conversation.
    pub(crate) fn has_conversation(&self, key: &str) -> bool {
        find_by_key(&self.board(), key).is_some()
    }

    /// Returns the open conversation with this key, if there is one.
    pub(crate) fn conversation(&self, key: &str) -> Option<Arc<Conversation>> {
        find_by_key(&self.board(), key).cloned()
    }

    /// Returns whether the settings allow a person or bot to ask this agent for work.
    pub(crate) fn may_ask(&self, requester: &Requester) -> bool {
        may_ask(&self.registry.config, self.service, requester)
    }

    /// Returns the rules for a channel or repository. `Err` contains the reason why no project
    /// belongs to the channel or repository.
    pub(crate) fn channel_rules(&self, channel: &str) -> Result<ChannelRules, String> {
        let projects: Vec<ProjectName> = self.board().projects.keys().cloned().collect();
        self.registry
            .channel_rules(self.service, channel, &projects)
    }

    /// Returns whether messages from this channel are passed to the agent together with the visible
    /// text of their thread.
    pub(crate) fn needs_context(&self, channel: &str) -> bool {
        self.channel_rules(channel)
            .is_ok_and(|rules| rules.context == ContextPolicy::Thread)
    }

    /// Handles an event from the service. `Err` means that the event could not be stored, so the
    /// service must send it again.
    pub(crate) async fn accept(&self, event: IncomingEvent) -> Result<(), String> {
        // The person could not be looked up, so the event is refused for now. Later the service
        // sends the event again, and the person is looked up again.
        if event.requester().is_uncertain && !self.may_ask(event.requester()) {
            return Err(format!(
                "could not look up {} at {}",
                event.requester().id,
                self.service
            ));
        }
        match event {
            IncomingEvent::Message(message) => self.on_message(message).await,
            IncomingEvent::ButtonPressed {
                delivery,
                approval,
                choice,
                requester,
            } => {
                self.answer_request(&self.delivery_id(&delivery), approval, &choice, &requester)
                    .await
            }
            IncomingEvent::StopRequested {
                delivery,
                key,
                requester,
            } => {
                let conversation_id =
                    find_by_key(&self.board(), &key).map(|conversation| conversation.id);
                let Some(conversation) = conversation_id.filter(|_| self.may_ask(&requester))
                else {
                    return Ok(());
                };
                let command = ConversationCommand::Stop {
                    conversation,
                    by: requester.name,
                    delivery: Some(self.delivery_id(&delivery)),
                };
                self.submit_conversation_command(command).await.map(drop)
            }
            IncomingEvent::MessageDeleted { key, source, .. } => {
                let Some(conversation) =
                    find_by_key(&self.board(), &key).map(|conversation| conversation.id)
                else {
                    return Ok(());
                };
                self.submit_conversation_command(ConversationCommand::Withdraw {
                    conversation,
                    source,
                })
                .await
                .map(drop)
            }
            IncomingEvent::RetryRequested {
                delivery,
                key,
                requester,
            } => {
                let task =
                    find_by_key(&self.board(), &key).and_then(|conversation| conversation.task);
                let Some(task) = task.filter(|_| self.may_ask(&requester)) else {
                    return Ok(());
                };
                self.submit_as_person(
                    &requester,
                    Some(&self.delivery_id(&delivery)),
                    Command::Land { task, first: false },
                )
                .await
                .map(drop)
            }
        }
    }

    /// Returns the id of a delivery, made from the service's id so that it is unique across all
    /// services and agents.
    fn delivery_id(&self, delivery: &str) -> String {
        format!("{}:{}:{delivery}", self.service, self.agent)
    }

    /// Returns whether a delivery with this id was handled before, so that a repetition can be
    /// ignored.
    pub(crate) fn was_handled(&self, delivery: &str) -> bool {
        self.board()
            .deliveries
            .contains_key(&self.delivery_id(delivery))
    }

    async fn on_message(&self, message: IncomingMessage) -> Result<(), String> {
        if message.author.is_bot && !self.may_ask(&message.author) {
            return Ok(()); // bots cannot ask for work
        }
        if self.was_handled(&message.delivery) {
            return Ok(()); // the engine would refuse it too; most repeated deliveries end here
        }
        let rules = match self.channel_rules(&message.channel) {
            Ok(rules) => rules,
            Err(why) => {
                if message.mentions_agent {
                    self.update_health(|health| health.trouble = Some(why));
                }
                return Ok(());
            }
        };
        let may_ask = self.may_ask(&message.author);
        let name = if message.author.name.is_empty() {
            message.author.id.clone()
        } else {
            message.author.name.clone()
        };
        let thread_message = ThreadMessage {
            delivery: self.delivery_id(&message.delivery),
            service: self.service,
            agent: self.agent.clone(),
            project: rules.project,
            key: message.key,
            thread: message.thread,
            address: message.address,
            title: message.title,
            url: message.url,
            author: Author {
                id: message.author.id.clone(),
                name,
            },
            may_ask_for_work: may_ask,
            should_reply_to_refused: self.registry.config.refusals == RefusalPolicy::Reply,
            text: message.text,
            source: message.source,
            mentions_agent: message.mentions_agent,
            addresses_another: message.addresses_another,
            follow_ups: rules.follow_ups,
            deliver: rules.deliver,
            prompt: rules.prompt,
            context: message.context,
            attachments: message.attachments,
            pull: message.pull,
            idle_ms: rules.idle_ms,
        };
        match self
            .submit_conversation_command(ConversationCommand::HandleMessage(thread_message))
            .await?
        {
            Some(CommandOutcome::ThreadMessage(
                ThreadMessageOutcome::Duplicate | ThreadMessageOutcome::Ignored,
            ))
            | None => {}
            Some(CommandOutcome::ThreadMessage(ThreadMessageOutcome::Held { .. })) => {
                self.update_health(|health| health.refused += 1)
            }
            Some(_) => self.update_health(|health| health.taken += 1),
        }
        Ok(())
    }

    /// Submits a conversation command in the name of Regatta. If the engine refuses the command,
    /// records the refusal and returns `None`, because the engine would refuse a repetition too.
    pub(crate) async fn submit_conversation_command(
        &self,
        command: ConversationCommand,
    ) -> Result<Option<CommandOutcome>, String> {
        let by = Actor::Regatta;
        self.submit(Request {
            by,
            key: None,
            command: Command::Converse(Box::new(command)),
        })
        .await
    }

    async fn submit_as_person(
        &self,
        requester: &Requester,
        key: Option<&str>,
        command: Command,
    ) -> Result<Option<CommandOutcome>, String> {
        let name = if requester.name.is_empty() {
            &requester.id
        } else {
            &requester.name
        };
        let by = Actor::Person(format!("{}:{name}", self.service));
        let key = key.and_then(|key| RequestKey::new(key).ok());
        self.submit(Request { by, key, command }).await
    }

    async fn submit(&self, request: Request) -> Result<Option<CommandOutcome>, String> {
        self.outcome(self.engine.submit_async(request).await)
    }

    /// Reports that a post of a conversation was shown, or why it never can be.
    pub(crate) async fn report_shown(
        &self,
        conversation: ConversationId,
        post: u64,
        shown: ShowOutcome,
    ) -> Result<(), String> {
        let reply = self.reports.report_shown(conversation, post, shown).await;
        self.outcome(reply).map(|_| ())
    }

    /// Reports that a pull request for a conversation's work was opened.
    pub(crate) async fn report_pull_request(
        &self,
        conversation: ConversationId,
        pull: ConversationPull,
    ) -> Result<(), String> {
        let reply = self.reports.report_pull_request(conversation, pull).await;
        self.outcome(reply).map(|_| ())
    }

    /// Returns the outcome of an answer of the engine. If the engine refused, records the refusal
    /// and returns `None`, because the engine would refuse a repetition too.
    fn outcome(
        &self,
        reply: Result<CommandReply, CommandFailure>,
    ) -> Result<Option<CommandOutcome>, String> {
        match reply {
            Ok(reply) => Ok(Some(reply.outcome)),
            Err(CommandFailure::Refused { refusal, .. }) => {
                let why = format!("{}. {}", refusal.message(), refusal.hint());
                tracing::info!(agent = %self.agent, service = %self.service, "the engine refused a request or a report of the bridge of the agent {} to {}, so it is ignored: {why}", self.agent, self.service);
                self.update_health(|health| health.trouble = Some(why));
                Ok(None)
            }
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Answers an agent's request with the choice of a person who pressed a button. Only permitted
    /// people may answer, and only requests of this bridge's agent.
    async fn answer_request(
        &self,
        delivery: &str,
        id: ApprovalId,
        choice: &str,
        requester: &Requester,
    ) -> Result<(), String> {
        let board = self.board();
        let Some(approval) = board
            .approvals
            .get(&id)
            .filter(|approval| approval.is_open())
        else {
            return Ok(());
        };
        let is_for_task = |conversation: &&Arc<regatta_core::conversation::Conversation>| {
            conversation.task == Some(approval.task)
        };
        let is_own = board
            .conversations
            .values()
            .find(is_for_task)
            .is_some_and(|conversation| conversation.agent == self.agent);
        if !is_own || !self.may_ask(requester) {
            self.update_health(|health| health.refused += 1);
            return Ok(());
        }
        let Some(answer) = answer_for_choice(&approval.request.content, choice) else {
            return Ok(());
        };
        let command = Command::Decide {
            approval: id,
            answer,
            scope: scope_of_choice(choice),
            also: vec![],
        };
        self.submit_as_person(requester, Some(delivery), command)
            .await
            .map(drop)
    }
}

fn scope_of_choice(choice: &str) -> regatta_core::approval::AnswerScope {
    match choice {
        "always" => regatta_core::approval::AnswerScope::Task,
        _ => regatta_core::approval::AnswerScope::Once,
    }
}

/// Converts the value of a pressed button (`choice`) to an answer to the request. Returns `None`
/// for an unknown value.
fn answer_for_choice(content: &RequestContent, choice: &str) -> Option<RequestAnswer> {
    match content {
        RequestContent::Permission { .. } => match choice {
            "allow" | "always" => Some(RequestAnswer::Allow),
            "deny" => Some(RequestAnswer::Deny { reason: None }),
            _ => None,
        },
        RequestContent::Question { choices, .. } => {
            let index = choice
                .strip_prefix("choice-")
                .and_then(|index| index.parse::<usize>().ok());
            let text = index.and_then(|index| choices.get(index).cloned())?;
            Some(RequestAnswer::Text { text })
        }
    }
}

#[cfg(test)]
mod tests {
    use regatta_core::agent_protocol::{PermissionOption, PermissionOptionKind, ToolCall};

    use super::*;

    /// Guards against a fault of an older bridge, which used the first option if no option matched.
    #[test]
    fn unknown_choice_selects_no_option_of_a_permission_request() {
        let option = |id: &str, kind| PermissionOption {
            id: id.into(),
            name: id.into(),
            kind,
        };
        let options = vec![
            option("no", PermissionOptionKind::RejectAlways),
            option("go", PermissionOptionKind::AllowOnce),
        ];
        let permission = RequestContent::Permission {
            tool: ToolCall::default(),
            options,
        };
        for choice in [
            "",
            "go",
            "no",
            "0",
            "choice-0",
            "choice-1",
            "ALLOW",
            "yes please",
        ] {
            assert_eq!(answer_for_choice(&permission, choice), None, "{choice}");
        }
        assert_eq!(
            answer_for_choice(&permission, "allow"),
            Some(RequestAnswer::Allow)
        );
        assert_eq!(
            answer_for_choice(&permission, "deny"),
            Some(RequestAnswer::Deny { reason: None })
        );
        let question = RequestContent::Question {
            text: "?".into(),
            choices: vec!["a".into()],
            schema: None,
        };
        assert_eq!(
            answer_for_choice(&question, "choice-0"),
            Some(RequestAnswer::Text { text: "a".into() })
        );
        assert_eq!(answer_for_choice(&question, "choice-1"), None);
    }
}
