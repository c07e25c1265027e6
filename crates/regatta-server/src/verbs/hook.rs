//! Implements the API verbs for hooks (rules that run a command on a message or event): add, list,
//! test, pause, resume and log.
//!
//! The module `regatta_core::hook` decides when a hook runs; regatta-engine runs its command.

use regatta_api::view::{HookTestView, HookView, without_firing_token};
use regatta_core::bus::Message;
use regatta_core::hook::{self, HookAction, HookInput, HookMatch, HookTrigger};
use regatta_core::ids::{ChannelName, HookId};

use regatta_core::hook::Firing;

use super::*;

/// The largest number of firings that a caller who reads no pages can ask for.
const MAX_LISTED_FIRINGS: usize = 1_000;

impl VerbHandler<'_> {
    pub(super) async fn hook_add(&self, input: input::HookAdd) -> Reply<HookView> {
        let board = self.board();
        // If the caller names no project, the hook belongs to the project of the channel that
        // triggers the hook.
        let project_of_channel = match &input.trigger {
            HookTrigger::Message {
                channel: Some(channel),
                ..
            } => ProjectName::new(channel.as_str()).ok(),
            _ => None,
        };
        let project_of_channel =
            project_of_channel.filter(|project| board.projects.contains_key(project));
        let only_project = || match board.projects.len() {
            1 => board.projects.keys().next().cloned(),
            _ => None,
        };
        let add = hook::AddHook {
            project: input.project.or(project_of_channel).or_else(only_project),
            agent: input.agent,
            trigger: input.trigger,
            when: input.when,
            action: input.action,
            priority: input.priority.unwrap_or(2),
            timeout_ms: input.timeout_ms,
            sandbox: input.sandbox,
        };
        match self.run(Command::AddHook(Box::new(add))).await? {
            (revision, CommandOutcome::Hook(id)) => reply(revision, self.hook_view(id)?),
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    fn hook_view(&self, id: HookId) -> Result<HookView, Problem> {
        let board = self.board();
        hook::find(&board, id)
            .map(|hook| HookView::new(&board, hook))
            .map_err(|refusal| Problem::from(&refusal))
    }

    pub(super) async fn hook_list(
        &self,
        _: input::EmptyInput,
        page: &PageRequest,
    ) -> PageReply<Vec<HookView>> {
        let board = self.board();
        let hooks = board.hooks.range(page.id_range::<HookId>()?);
        let hooks = page.first_of(hooks, |(_, hook)| HookView::new(&board, hook));
        reply(board.revision, hooks)
    }

    pub(super) async fn hook_pause(&self, input: input::HookPause) -> Reply<HookView> {
        let reason = if input.reason.is_empty() {
            format!("paused by {}", self.actor)
        } else {
            input.reason
        };
        let (revision, _) = self
            .run(Command::PauseHook {
                hook: input.hook,
                reason,
            })
            .await?;
        reply(revision, self.hook_view(input.hook)?)
    }

    pub(super) async fn hook_resume(&self, input: input::HookIdInput) -> Reply<HookView> {
        let hook = input.hook;
        let (revision, _) = self.run(Command::ResumeHook { hook }).await?;
        reply(revision, self.hook_view(hook)?)
    }

    /// Returns whether a hook would run for a message, with the same rules as for a message that is
    /// really posted. Nothing is run.
    pub(super) async fn hook_test(&self, input: input::HookTest) -> Reply<HookTestView> {
        let board = self.board();
        let hook = hook::find(&board, input.hook)
            .map_err(|refusal| Problem::from(&refusal))?
            .clone();
        let message = match (input.message, input.text) {
            (Some(id), None) => self.find_message(id).await?,
            (None, Some(text)) => {
                let hook_channel = match &hook.trigger {
                    HookTrigger::Message { channel, .. } => channel.clone(),
                    _ => None,
                };
                let channel = input
                    .channel
                    .or(hook_channel)
                    .or_else(|| ChannelName::new("general").ok());
                Message {
                    id: MessageId(board.counters.message + 1),
                    channel: channel.expect("a plain word is a channel"),
                    sender: input.from.map_or(self.actor.clone(), Actor::Agent),
                    mentions: bus::mentions(&text),
                    text,
                    labels: input.labels,
                    reply_to: None,
                    thread: None,
                    attachments: vec![],
                    depth: 0,
                    unix_ms: self.engine().now().unix_ms,
                }
            }
            _ => {
                return Err(Problem::new(
                    400,
                    "bad_input",
                    "testing a hook needs either the id of a message or a text, and not both",
                    "for example: regatta hook test H3 --text '!dev hello'",
                ));
            }
        };
        let verdict = hook::evaluate(
            &board,
            &hook,
            &HookInput::Message(&message),
            self.engine().now(),
        );
        let (fires, why) = match verdict {
            HookMatch::Fires => (true, action_text(&hook.action)),
            HookMatch::NotTriggered { why } | HookMatch::ConditionFailed { why } => (false, why),
            HookMatch::WaitsForClaim { why } => (false, format!("{why}; it will fire afterwards")),
            HookMatch::MustPause { why } => (false, format!("it would be paused: {why}")),
        };
        reply(
            board.revision,
            HookTestView {
                hook: input.hook,
                fires,
                why,
            },
        )
    }

    pub(super) async fn hook_log(
        &self,
        input: input::HookLog,
        page: &PageRequest,
    ) -> PageReply<Vec<Firing>> {
        let (hook, mut before) = (input.hook, input.before);
        let limit = page.list_limit(input.limit, MAX_LISTED_FIRINGS);
        if limit.is_none() {
            // The list begins with the newest firing, so later pages have older firings.
            before = before.into_iter().chain(page.after_id()?).min();
        }
        let limit = limit.unwrap_or(page.read_limit());
        let firings = self
            .read_history(move |history| history.firings(hook, before, limit))
            .await?;
        let key = |firing: &&Firing| firing.id.to_string();
        let firings = page.select(&firings, key, without_firing_token)?;
        reply(self.board().revision, firings)
    }
}

fn action_text(action: &HookAction) -> String {
    match action {
        HookAction::Run { argv, cwd } => format!("it runs {} in {cwd}", argv.join(" ")),
        HookAction::Route => "it goes to the router".into(),
    }
}
