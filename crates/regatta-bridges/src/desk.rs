//! The intake of events: turns each event from a service into a command, by the same rules for
//! every service.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use regatta_core::board::Board;
use regatta_core::bridge::{self, Bridge};
use regatta_core::command::{Actor, Command, Outcome, Request};
use regatta_core::conversation::{Ask, Author, Conversation, Hear, Heard, Service, by_key};
use regatta_core::ids::{AgentName, ApprovalId, ProjectName, RequestKey};
use regatta_core::session::{Answer, Want};
use regatta_engine::{Engine, Failure};

use crate::registry::{Context, Refusals, Registry, Rules, Standing, may};
use crate::service::{Incoming, Said, Trouble};

pub use regatta_api::view::HealthView as Health;

/// The handle of one instance, to which its inbound side hands events.
#[derive(Clone)]
pub struct Desk {
    pub agent: AgentName,
    pub service: Service,
    pub(crate) engine: Engine,
    pub(crate) registry: Arc<Registry>,
    pub(crate) people: Arc<Directory>,
}

/// The names and the health of our agents at each service.
#[derive(Debug, Default)]
pub struct Directory {
    known: Mutex<BTreeMap<(Service, AgentName), Entry>>,
    /// Held while a credential's state is reported to the board, so that the reports arrive in
    /// order.
    telling: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    names: Vec<String>,
    health: Health,
    /// Why the service rejected the credential: for receiving, and for posting.
    locked: [Option<String>; 2],
}

/// A side of an instance. Each side makes its own calls, maybe with its own credential.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    In,
    Out,
}

impl Directory {
    fn with<T>(&self, of: (Service, AgentName), change: impl FnOnce(&mut Entry) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(of).or_default())
    }

    /// Returns the health of an instance.
    pub fn health(&self, service: Service, agent: &AgentName) -> Health {
        self.with((service, agent.clone()), |it| it.health.clone())
    }
}

/// Returns the date in milliseconds since 1970.
pub(crate) fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX))
}

impl Desk {
    fn own(&self) -> (Service, AgentName) {
        (self.service, self.agent.clone())
    }

    /// Records the ids and names of this instance at its service.
    pub fn known_as(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        self.people.with(self.own(), |it| {
            it.health.known_as = names.last().cloned();
            it.names = names;
        });
    }

    /// Returns whether an id or name at this service belongs to another agent of ours.
    pub fn is_another(&self, name: &str) -> bool {
        let known = self.people.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|((service, agent), it)| {
            *service == self.service && *agent != self.agent && it.names.iter().any(|it| it == name)
        })
    }

    /// Returns the names of all other agents of ours at this service.
    pub fn others(&self) -> Vec<String> {
        let known = self.people.known.lock().unwrap_or_else(PoisonError::into_inner);
        let others = known.iter().filter(|(of, _)| of.0 == self.service && of.1 != self.agent);
        others.flat_map(|(_, it)| it.names.clone()).collect()
    }

    /// Changes the health of this instance.
    pub fn note(&self, change: impl FnOnce(&mut Health)) {
        self.people.with(self.own(), |it| change(&mut it.health));
    }

    pub async fn connected(&self) {
        self.connected_but(None).await;
    }

    /// Records that the instance receives events, but that its credential has a problem.
    pub async fn connected_but(&self, wrong: Option<&str>) {
        self.note(|it| {
            it.connected = Some(wall());
            it.trouble = wrong.map(str::to_owned);
        });
        self.let_in(Side::In, wrong).await;
    }

    /// Records that the instance no longer receives events, and why.
    pub async fn disconnected(&self, trouble: &Trouble, why: &str) {
        tracing::warn!(agent = %self.agent, service = %self.service, "{why}");
        self.note(|it| {
            it.connected = None;
            it.trouble = Some(why.to_owned());
        });
        // Other errors say nothing about the credential.
        if matches!(trouble, Trouble::Locked(_)) {
            self.let_in(Side::In, Some(why)).await;
        }
    }

    /// Records that the service accepted or rejected the credential of one side. The board shows
    /// problems that a person must fix.
    pub(crate) async fn let_in(&self, side: Side, refused: Option<&str>) {
        let _turn = self.people.telling.lock().await;
        let locked = self.people.with(self.own(), |it| {
            it.locked[side as usize] = refused.map(str::to_owned);
            it.locked.iter().flatten().next().cloned()
        });
        let own = self.registry.instances.iter().find(|it| it.agent == self.agent && it.service == self.service);
        let broken = locked.or_else(|| own.and_then(|it| it.warning.clone()));
        let broken = broken.map(|why| own.map_or(why.clone(), |it| it.credentials.kept_out_of(&why)));
        let bridge = Bridge::At { service: self.service, agent: self.agent.clone() };
        let command = Command::ReportBridge(bridge::Standing { bridge, broken });
        let request = Request { by: Actor::Regatta, key: None, command };
        if let Err(failure) = self.engine.ask(request).await {
            tracing::warn!(agent = %self.agent, service = %self.service, "could not record the state of the credential: {failure}");
        }
    }

    /// Returns the address of the service.
    pub fn url(&self) -> String {
        self.registry.url(self.service)
    }

    pub fn board(&self) -> Arc<Board> {
        self.engine.board()
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn is_paused(&self) -> bool {
        self.people.health(self.service, &self.agent).paused
    }

    /// Returns whether this instance has a conversation of this key. Then unaddressed messages
    /// there may be for it.
    pub fn has_conversation(&self, key: &str) -> bool {
        by_key(&self.board(), key).is_some()
    }

    /// Returns the open conversation of a key.
    pub(crate) fn conversation(&self, key: &str) -> Option<Arc<Conversation>> {
        by_key(&self.board(), key).cloned()
    }

    /// Returns whether a person or bot may ask for work.
    pub fn may(&self, who: &Standing) -> bool {
        may(&self.registry.config, self.service, who)
    }

    /// Returns the rules for a channel or repository.
    pub fn rules(&self, channel: &str) -> Result<Rules, String> {
        let projects: Vec<ProjectName> = self.board().projects.keys().cloned().collect();
        self.registry.rules(self.service, channel, &projects)
    }

    /// Returns whether the agent should receive the visible text of the thread.
    pub fn wants_context(&self, channel: &str) -> bool {
        self.rules(channel).is_ok_and(|it| it.context == Context::Thread)
    }

    /// Handles an event. `Err` means that it could not be stored, so the service must send it
    /// again.
    pub async fn take(&self, it: Incoming) -> Result<(), String> {
        // A person who could not be looked up is not treated as a stranger: the event is refused,
        // and the person is looked up again when the service repeats it.
        if it.by().unsure && !self.may(it.by()) {
            return Err(format!("could not look up {} at {}", it.by().id, self.service));
        }
        match it {
            Incoming::Said(said) => self.hear(said).await,
            Incoming::Chosen { delivery, approval, choice, by } => {
                self.choose(&self.mark(&delivery), approval, &choice, &by).await
            }
            Incoming::Stop { delivery, key, by } => {
                let found = by_key(&self.board(), &key).map(|it| it.id);
                let Some(conversation) = found.filter(|_| self.may(&by)) else { return Ok(()) };
                let ask = Ask::Stop { conversation, by: by.name, delivery: Some(self.mark(&delivery)) };
                self.converse(ask).await.map(drop)
            }
            Incoming::Deleted { key, source, .. } => {
                let Some(conversation) = by_key(&self.board(), &key).map(|it| it.id) else { return Ok(()) };
                self.converse(Ask::Withdraw { conversation, source }).await.map(drop)
            }
            Incoming::Rerun { delivery, key, by } => {
                let task = by_key(&self.board(), &key).and_then(|it| it.task);
                let Some(task) = task.filter(|_| self.may(&by)) else { return Ok(()) };
                self.ask(&by, Some(&self.mark(&delivery)), Command::Land { task, first: false }).await.map(drop)
            }
        }
    }

    /// Returns an id of a delivery that is unique across services and agents.
    fn mark(&self, delivery: &str) -> String {
        format!("{}:{}:{delivery}", self.service, self.agent)
    }

    /// Returns whether a delivery was handled before.
    pub(crate) fn has_taken(&self, delivery: &str) -> bool {
        self.board().deliveries.contains_key(&self.mark(delivery))
    }

    async fn hear(&self, said: Said) -> Result<(), String> {
        if said.by.is_bot && !self.may(&said.by) {
            return Ok(()); // bots cannot ask for work
        }
        if self.has_taken(&said.delivery) {
            return Ok(()); // the engine would refuse it too; most repeated deliveries end here
        }
        let rules = match self.rules(&said.channel) {
            Ok(rules) => rules,
            Err(why) => {
                if said.called {
                    self.note(|it| it.trouble = Some(why));
                }
                return Ok(());
            }
        };
        let may = self.may(&said.by);
        let name = if said.by.name.is_empty() { said.by.id.clone() } else { said.by.name.clone() };
        let hear = Hear {
            delivery: self.mark(&said.delivery),
            service: self.service,
            agent: self.agent.clone(),
            project: rules.project,
            key: said.key,
            thread: said.thread,
            place: said.place,
            title: said.title,
            url: said.url,
            author: Author { id: said.by.id.clone(), name },
            may,
            refuse_aloud: self.registry.config.refusals == Refusals::Reply,
            text: said.text,
            source: said.source,
            called: said.called,
            calls_another: said.calls_another,
            follow_ups: rules.follow_ups,
            deliver: rules.deliver,
            prompt: rules.prompt,
            context: said.context,
            attachments: said.attachments,
            pull: said.pull,
            idle_ms: rules.idle_ms,
        };
        match self.converse(Ask::Hear(hear)).await? {
            Some(Outcome::Heard(Heard::Again | Heard::NotForUs)) | None => {}
            Some(Outcome::Heard(Heard::Held { .. })) => self.note(|it| it.refused += 1),
            Some(_) => self.note(|it| it.taken += 1),
        }
        Ok(())
    }

    /// Sends a conversation command as Regatta itself. A refusal is recorded, and is no reason to
    /// send it again.
    pub(crate) async fn converse(&self, ask: Ask) -> Result<Option<Outcome>, String> {
        let by = Actor::Regatta;
        self.submit(Request { by, key: None, command: Command::Converse(Box::new(ask)) }).await
    }

    async fn ask(&self, by: &Standing, key: Option<&str>, command: Command) -> Result<Option<Outcome>, String> {
        let name = if by.name.is_empty() { &by.id } else { &by.name };
        let by = Actor::Person(format!("{}:{name}", self.service));
        let key = key.and_then(|it| RequestKey::new(it).ok());
        self.submit(Request { by, key, command }).await
    }

    async fn submit(&self, request: Request) -> Result<Option<Outcome>, String> {
        match self.engine.ask(request).await {
            Ok(reply) => Ok(Some(reply.outcome)),
            Err(Failure::Refused { refusal, .. }) => {
                let why = format!("{}. {}", refusal.message(), refusal.hint());
                tracing::info!(agent = %self.agent, service = %self.service, "refused an event: {why}");
                self.note(|it| it.trouble = Some(why));
                Ok(None)
            }
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Answers a request with a pressed button. Only permitted people may answer, and only requests
    /// of this instance.
    async fn choose(&self, mark: &str, id: ApprovalId, choice: &str, by: &Standing) -> Result<(), String> {
        let board = self.board();
        let Some(approval) = board.approvals.get(&id).filter(|it| it.is_open()) else { return Ok(()) };
        let ours = |it: &&Arc<regatta_core::conversation::Conversation>| it.task == Some(approval.task);
        let own = board.conversations.values().find(ours).is_some_and(|it| it.agent == self.agent);
        if !own || !self.may(by) {
            self.note(|it| it.refused += 1);
            return Ok(());
        }
        let Some(answer) = answer_of(&approval.ask.want, choice) else { return Ok(()) };
        let command = Command::Decide { approval: id, answer, reach: reach_of(choice), also: vec![] };
        self.ask(by, Some(mark), command).await.map(drop)
    }
}

fn reach_of(choice: &str) -> regatta_core::approval::Reach {
    match choice {
        "always" => regatta_core::approval::Reach::Task,
        _ => regatta_core::approval::Reach::Once,
    }
}

/// Returns the answer that a choice stands for. An unknown choice is never replaced by another one.
fn answer_of(want: &Want, choice: &str) -> Option<Answer> {
    match want {
        Want::Permission { .. } => match choice {
            "allow" | "always" => Some(Answer::Allow),
            "deny" => Some(Answer::Deny { words: None }),
            _ => None,
        },
        Want::Question { choices, .. } => {
            let nth = choice.strip_prefix("choice-").and_then(|it| it.parse::<usize>().ok());
            let text = nth.and_then(|it| choices.get(it).cloned())?;
            Some(Answer::Text { text })
        }
    }
}

#[cfg(test)]
mod tests {
    use regatta_core::session::{AskOption, OptionKind, Tool};

    use super::*;

    /// Guards against a fault of an older bridge, which used the first option if no option matched.
    #[test]
    fn unknown_choice_selects_no_option_of_a_permission_request() {
        let option = |id: &str, kind| AskOption { id: id.into(), name: id.into(), kind };
        let options = vec![option("no", OptionKind::RejectAlways), option("go", OptionKind::AllowOnce)];
        let want = Want::Permission { tool: Tool::default(), options };
        for choice in ["", "go", "no", "0", "choice-0", "choice-1", "ALLOW", "yes please"] {
            assert_eq!(answer_of(&want, choice), None, "{choice}");
        }
        assert_eq!(answer_of(&want, "allow"), Some(Answer::Allow));
        assert_eq!(answer_of(&want, "deny"), Some(Answer::Deny { words: None }));
        let question = Want::Question { text: "?".into(), choices: vec!["a".into()], schema: None };
        assert_eq!(answer_of(&question, "choice-0"), Some(Answer::Text { text: "a".into() }));
        assert_eq!(answer_of(&question, "choice-1"), None);
    }
}
