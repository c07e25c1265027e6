//! Verbs of hooks.

use regatta_api::view::{HookTestView, HookView, without_firing_token};
use regatta_core::bus::Message;
use regatta_core::hook::{self, HookAction, HookInput, HookMatch, HookTrigger};
use regatta_core::ids::{ChannelName, HookId};

use super::*;

impl VerbHandler<'_> {
    pub(super) async fn hook_add(&self, ask: input::HookAdd) -> VerbResult {
        let board = self.board();
        // If no project is named, it is the channel's.
        let of_channel = match &ask.trigger {
            HookTrigger::Message {
                channel: Some(channel),
                ..
            } => ProjectName::new(channel.as_str()).ok(),
            _ => None,
        };
        let of_channel = of_channel.filter(|project| board.projects.contains_key(project));
        let only = || {
            (board.projects.len() == 1)
                .then(|| board.projects.keys().next().cloned())
                .flatten()
        };
        let add = hook::AddHook {
            project: ask.project.or(of_channel).or_else(only),
            agent: ask.agent,
            trigger: ask.trigger,
            when: ask.when,
            action: ask.action,
            priority: ask.priority.unwrap_or(2),
            timeout_ms: ask.timeout_ms,
            sandbox: ask.sandbox,
        };
        match self.run(Command::AddHook(Box::new(add))).await? {
            (revision, CommandOutcome::Hook(id)) => encode_answer(revision, &self.hook_view(id)?),
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    fn hook_view(&self, id: HookId) -> Result<HookView, Problem> {
        let board = self.board();
        hook::find(&board, id)
            .map(|hook| HookView::new(&board, hook))
            .map_err(|refusal| Problem::from(&refusal))
    }

    pub(super) fn hook_list(&self) -> VerbResult {
        let board = self.board();
        let all: Vec<HookView> = board
            .hooks
            .values()
            .map(|hook| HookView::new(&board, hook))
            .collect();
        encode_answer(board.revision, &all)
    }

    pub(super) async fn hook_pause(&self, ask: input::HookPause) -> VerbResult {
        let reason = if ask.reason.is_empty() {
            format!("paused by {}", self.actor)
        } else {
            ask.reason
        };
        let (revision, _) = self
            .run(Command::PauseHook {
                hook: ask.hook,
                reason,
            })
            .await?;
        encode_answer(revision, &self.hook_view(ask.hook)?)
    }

    pub(super) async fn hook_resume(&self, hook: HookId) -> VerbResult {
        let (revision, _) = self.run(Command::ResumeHook { hook }).await?;
        encode_answer(revision, &self.hook_view(hook)?)
    }

    /// Tests a hook in the same way as when a message is posted.
    pub(super) async fn hook_test(&self, ask: input::HookTest) -> VerbResult {
        let board = self.board();
        let found = hook::find(&board, ask.hook)
            .map_err(|refusal| Problem::from(&refusal))?
            .clone();
        let message = match (ask.message, ask.text) {
            (Some(id), None) => self.find_message(id).await?,
            (None, Some(text)) => {
                let of_hook = match &found.trigger {
                    HookTrigger::Message { channel, .. } => channel.clone(),
                    _ => None,
                };
                let channel = ask
                    .channel
                    .or(of_hook)
                    .or_else(|| ChannelName::new("general").ok());
                Message {
                    id: MessageId(board.counters.message + 1),
                    channel: channel.expect("a plain word is a channel"),
                    sender: ask.from.map_or(self.actor.clone(), Actor::Agent),
                    mentions: bus::mentions(&text),
                    text,
                    labels: ask.labels,
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
                    "a test needs either a message or a text",
                    "for example: regatta hook test H3 --text '!dev hello'",
                ));
            }
        };
        let verdict = hook::evaluate(
            &board,
            &found,
            &HookInput::Message(&message),
            self.engine().now(),
        );
        let (fires, why) = match verdict {
            HookMatch::Fires => (true, action_text(&found.action)),
            HookMatch::NotTriggered { why } | HookMatch::ConditionFailed { why } => (false, why),
            HookMatch::WaitsForClaim { why } => (false, format!("{why}; it will fire afterwards")),
            HookMatch::MustPause { why } => (false, format!("it would be paused: {why}")),
        };
        encode_answer(
            board.revision,
            &HookTestView {
                hook: ask.hook,
                fires,
                why,
            },
        )
    }

    pub(super) async fn hook_log(&self, ask: input::HookLog) -> VerbResult {
        let (hook, before, limit) = (ask.hook, ask.before, ask.limit.clamp(1, 1_000));
        let found = self
            .read_history(move |history| history.firings(hook, before, limit))
            .await?;
        let found: Vec<_> = found.iter().map(without_firing_token).collect();
        encode_answer(self.board().revision, &found)
    }
}

fn action_text(action: &HookAction) -> String {
    match action {
        HookAction::Run { argv, cwd } => format!("it runs {} in {cwd}", argv.join(" ")),
        HookAction::Route => "it goes to the router".into(),
    }
}
