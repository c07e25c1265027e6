//! Verbs of hooks.

use regatta_api::view::{HookTestView, HookView, without_firing_token};
use regatta_core::bus::Message;
use regatta_core::hook::{self, Action, Occasion, Trigger, Verdict};
use regatta_core::ids::{ChannelName, HookId};

use super::*;

impl Caller<'_> {
    pub(super) async fn hook_add(&self, ask: input::HookAdd) -> Json {
        let board = self.board();
        // If no project is named, it is the channel's.
        let of_channel = match &ask.trigger {
            Trigger::Message { channel: Some(channel), .. } => ProjectName::new(channel.as_str()).ok(),
            _ => None,
        };
        let of_channel = of_channel.filter(|it| board.projects.contains_key(it));
        let only = || (board.projects.len() == 1).then(|| board.projects.keys().next().cloned()).flatten();
        let add = hook::Add {
            project: ask.project.or(of_channel).or_else(only),
            agent: ask.agent,
            trigger: ask.trigger,
            when: ask.when,
            action: ask.action,
            priority: ask.priority.unwrap_or(2),
            timeout_ms: ask.timeout_ms,
            sandbox: ask.sandbox,
        };
        match self.ask(Command::AddHook(Box::new(add))).await? {
            (revision, Outcome::Hook(id)) => answer(revision, &self.hook_view(id)?),
            other => Err(unexpected(&other.1)),
        }
    }

    fn hook_view(&self, id: HookId) -> Result<HookView, Problem> {
        let board = self.board();
        hook::find(&board, id).map(|it| HookView::of(&board, it)).map_err(|it| Problem::from(&it))
    }

    pub(super) fn hook_list(&self) -> Json {
        let board = self.board();
        let all: Vec<HookView> = board.hooks.values().map(|it| HookView::of(&board, it)).collect();
        answer(board.revision, &all)
    }

    pub(super) async fn hook_pause(&self, ask: input::HookPause) -> Json {
        let reason = if ask.reason.is_empty() { format!("paused by {}", self.by) } else { ask.reason };
        let (revision, _) = self.ask(Command::PauseHook { hook: ask.hook, reason }).await?;
        answer(revision, &self.hook_view(ask.hook)?)
    }

    pub(super) async fn hook_resume(&self, hook: HookId) -> Json {
        let (revision, _) = self.ask(Command::ResumeHook { hook }).await?;
        answer(revision, &self.hook_view(hook)?)
    }

    /// Tests a hook in the same way as when a message is posted.
    pub(super) async fn hook_test(&self, ask: input::HookTest) -> Json {
        let board = self.board();
        let found = hook::find(&board, ask.hook).map_err(|it| Problem::from(&it))?.clone();
        let message = match (ask.message, ask.text) {
            (Some(id), None) => self.message(id).await?,
            (None, Some(text)) => {
                let of_hook = match &found.trigger {
                    Trigger::Message { channel, .. } => channel.clone(),
                    _ => None,
                };
                let channel = ask.channel.or(of_hook).or_else(|| ChannelName::new("general").ok());
                Message {
                    id: MessageId(board.counters.message + 1),
                    channel: channel.expect("a plain word is a channel"),
                    sender: ask.from.map_or(self.by.clone(), Actor::Agent),
                    mentions: bus::mentions(&text),
                    text,
                    labels: ask.labels,
                    reply_to: None,
                    thread: None,
                    attachments: vec![],
                    depth: 0,
                    wall: self.engine().now().wall,
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
        let verdict = hook::judge(&board, &found, &Occasion::Message(&message), self.engine().now());
        let (fires, why) = match verdict {
            Verdict::Fires => (true, runs(&found.action)),
            Verdict::Unmoved { why } | Verdict::Held { why } => (false, why),
            Verdict::Queues { why } => (false, format!("{why}; it will fire afterwards")),
            Verdict::Cut { why } => (false, format!("it would be paused: {why}")),
        };
        answer(board.revision, &HookTestView { hook: ask.hook, fires, why })
    }

    pub(super) async fn hook_log(&self, ask: input::HookLog) -> Json {
        let (hook, before, limit) = (ask.hook, ask.before, ask.limit.clamp(1, 1_000));
        let found = self.read(move |history| history.firings(hook, before, limit)).await?;
        let found: Vec<_> = found.iter().map(without_firing_token).collect();
        answer(self.board().revision, &found)
    }
}

fn runs(action: &Action) -> String {
    match action {
        Action::Run { argv, cwd } => format!("it runs {} in {cwd}", argv.join(" ")),
        Action::Route => "it goes to the router".into(),
    }
}
