//! Implements the API verbs for messages: post messages to channels, read them, wait for them, and
//! read their attachments.
//!
//! Messages are read from the store, because the board (the daemon's state in memory) has only
//! their number and how far each agent has read. The module `attempt_scope` restricts the channels
//! that an attempt may name; this module also leaves out single messages that the caller must not
//! read.

use data_encoding::HEXLOWER;
use regatta_api::view::{AttachmentView, UnreadView};
use regatta_core::bus::Message;
use regatta_core::ids::ChannelName;
use regatta_core::search::SearchQuery;

use crate::attachments::{self, AttachmentSources};

use super::*;

/// Number of unread mentions at which the count stops.
const MAX_COUNTED_MENTIONS: usize = 1_000;

/// The largest number of messages that a caller who reads no pages can ask for.
const MAX_LISTED_MESSAGES: usize = 10_000;

impl VerbHandler<'_> {
    pub(super) async fn msg_send(&self, input: input::MsgSend) -> Reply<Message> {
        let sender = match (&self.principal, input.agent) {
            (_, None) => self.actor.clone(),
            // A message must show its real sender. So a hook's command can post only as the hook's
            // agent, or as an agent below that one such as `claude-1/helper`.
            (Principal::Firing { agent: own, .. }, Some(agent))
                if !bus::is_same_or_below(&agent, own) =>
            {
                return Err(Problem::new(
                    403,
                    "not_yours",
                    format!("a hook's command of the agent {own} cannot post as {agent}"),
                    "omit --as",
                ));
            }
            (_, Some(agent)) => Actor::Agent(agent),
        };
        let thread = match input.reply_to {
            Some(to) => Some(self.message_replied_to(to, &input.channel).await?.root()),
            None => None,
        };
        let firing = match &self.principal {
            Principal::Firing { id, .. } => Some(*id),
            _ => None,
        };
        let attachments = self.store_attachments(input.attach).await?;
        let extra = bus::PostContext {
            thread,
            attachments,
            firing,
        };
        let post = bus::PostMessage {
            channel: input.channel,
            text: input.text,
            labels: input.labels,
            reply_to: input.reply_to,
        };
        match self
            .run_as(sender, Command::PostWith { post, extra })
            .await?
        {
            (revision, CommandOutcome::Message(id)) => {
                reply(revision, self.find_message(id).await?)
            }
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    /// Reads the message with this id from the store, or returns an error if it does not exist.
    pub(super) async fn find_message(&self, id: MessageId) -> Result<Message, Problem> {
        let found = self
            .read_history(move |history| history.message(id))
            .await?;
        found.ok_or_else(|| {
            Problem::new(
                404,
                "no_such_message",
                format!("there is no message {id}"),
                "see the messages: regatta msg history",
            )
        })
    }

    /// Returns the message to which a new message replies. The reply must be posted to the same
    /// channel, or to the mailbox of the other person or agent.
    async fn message_replied_to(
        &self,
        replied_to: MessageId,
        channel: &ChannelName,
    ) -> Result<Message, Problem> {
        let found = self.find_message(replied_to).await?;
        let both_private =
            bus::addressee(&found.channel).is_some() && bus::addressee(channel).is_some();
        if found.channel != *channel && !both_private {
            return Err(Problem::new(
                422,
                "elsewhere",
                format!(
                    "the message {replied_to} is in the channel {}, not in {channel}",
                    found.channel
                ),
                format!(
                    "answer in its channel: regatta msg send {} --reply-to {replied_to} …",
                    found.channel
                ),
            ));
        }
        Ok(found)
    }

    /// Copies the attached files of a message. An attempt can attach files from its workspace, a
    /// hook's command from its working directory, and the holder of an access token from the
    /// checkouts of projects. The daemon's own user can attach any file.
    async fn store_attachments(&self, paths: Vec<String>) -> Result<Vec<bus::Attachment>, Problem> {
        if paths.is_empty() {
            return Ok(vec![]);
        }
        let (engine, principal, dir) = (
            self.engine().clone(),
            self.principal.clone(),
            self.shared.data_dir.clone(),
        );
        run_blocking(move || {
            let sources = match principal {
                Principal::Owner => AttachmentSources::Everywhere,
                // The hook's command may run in a sandbox. So the daemon must not read files for
                // the command that are outside the command's directory.
                Principal::Firing { id, .. } => AttachmentSources::Within(
                    engine
                        .board()
                        .firings
                        .get(&id)
                        .map(|firing| firing.cwd.clone().into())
                        .into_iter()
                        .collect(),
                ),
                Principal::Named { .. } => AttachmentSources::Within(
                    engine
                        .board()
                        .projects
                        .values()
                        .map(|project| ProjectRepo::from_project(project).path)
                        .collect(),
                ),
                Principal::Attempt { id, .. } => {
                    let workspace = engine.workspace_of(id).ok().flatten().ok_or_else(|| {
                        Problem::new(
                            422,
                            "bad_attachment",
                            "this attempt has no workspace on the daemon's machine, so its files cannot be attached",
                            "put the text into the message",
                        )
                    })?;
                    AttachmentSources::Within(vec![workspace])
                }
            };
            attachments::store_files(&dir, &sources, &paths)
        })
        .await?
    }

    pub(super) async fn msg_attachment(
        &self,
        input: input::MsgAttachment,
    ) -> Reply<AttachmentView> {
        let message = self.find_message(input.message).await?;
        let Some(attachment) = message.attachments.get(input.nth).cloned() else {
            return Err(Problem::new(
                404,
                "no_such_attachment",
                format!(
                    "the message {} has only {} attachments, so it has no attachment with the given number",
                    input.message,
                    message.attachments.len()
                ),
                format!(
                    "count from 0; the first attachment is: regatta msg attachment {} 0",
                    input.message
                ),
            ));
        };
        let (dir, stored) = (self.shared.data_dir.clone(), attachment.clone());
        let bytes = run_blocking(move || attachments::read_stored(&dir, &stored)).await??;
        let (text, hex) = match String::from_utf8(bytes) {
            Ok(text) => (Some(text), None),
            Err(other) => (None, Some(HEXLOWER.encode(other.as_bytes()))),
        };
        let view = AttachmentView {
            message: input.message,
            name: attachment.name,
            bytes: attachment.bytes,
            sha256: attachment.sha256,
            text,
            hex,
        };
        reply(self.board().revision, view)
    }

    pub(super) async fn msg_history(
        &self,
        input: input::MsgHistory,
        page: &PageRequest,
    ) -> PageReply<Vec<Message>> {
        let text = match input
            .search
            .as_deref()
            .map(|search| (search, SearchQuery::new(search)))
        {
            None => None,
            Some((_, Some(query))) => Some(query),
            Some((_, None)) => {
                return Err(Problem::new(
                    400,
                    "bad_search",
                    "the search text has no letters or digits, so nothing can match",
                    "search for words with letters or digits",
                ));
            }
        };
        let thread = self.thread_root(input.thread).await?;
        let limit = page.list_limit(input.limit, MAX_LISTED_MESSAGES);
        let filter = MessageFilter {
            channel: input.channel,
            label: input.label,
            from: input.from,
            mention: input.mention,
            reply_to: input.reply_to,
            thread,
            text,
            since_unix_ms: input.since,
            until_unix_ms: input.until,
            after: input.after,
            before: input.before,
            limit: limit.unwrap_or(page.read_limit()),
        };
        let messages = if limit.is_none() {
            let after = input.after.max(page.after_id()?).unwrap_or_default();
            self.readable_messages_after(after, filter).await?
        } else {
            let mut messages = self
                .read_history(move |history| history.messages(&filter))
                .await?;
            messages.retain(|message| self.may_read(message));
            messages
        };
        let key = |message: &Message| message.id.to_string();
        let messages = page.select(messages, key, |message| message)?;
        reply(self.board().revision, messages)
    }

    /// Returns the first messages after `after` that match a filter and that the caller may read.
    /// Continues after messages that the caller must not read, because a page must not end at them.
    async fn readable_messages_after(
        &self,
        mut after: MessageId,
        filter: MessageFilter,
    ) -> Result<Vec<Message>, Problem> {
        let mut readable = Vec::new();
        loop {
            let rest = MessageFilter {
                after: Some(after),
                limit: filter.limit - readable.len(),
                ..filter.clone()
            };
            let limit = rest.limit;
            let found = self
                .read_history(move |history| history.messages(&rest))
                .await?;
            let is_last_read = found.len() < limit;
            after = found.last().map_or(after, |message| message.id);
            readable.extend(found.into_iter().filter(|message| self.may_read(message)));
            if is_last_read || readable.len() == filter.limit {
                return Ok(readable);
            }
        }
    }

    /// Returns the first message of the thread to which a message belongs.
    async fn thread_root(&self, message: Option<MessageId>) -> Result<Option<MessageId>, Problem> {
        match message {
            None => Ok(None),
            Some(id) => self
                .find_message(id)
                .await
                .map(|message| Some(message.root())),
        }
    }

    /// Returns whether the caller may read a message. Agents cannot read other agents' mailboxes.
    fn may_read(&self, message: &Message) -> bool {
        match &self.principal {
            Principal::Attempt { agent, .. } => message.may_be_read_by(agent),
            Principal::Owner | Principal::Named { .. } | Principal::Firing { .. } => true,
        }
    }

    pub(super) async fn msg_wait(&self, input: input::MsgWait) -> Reply<Message> {
        let mut board_changes = self.shared.event_fanout.watch_board();
        let mut last_seen = self.board().counters.message;
        let mut after = input.after.unwrap_or(MessageId(last_seen));
        let deadline = deadline(input.timeout_ms);
        let filter = MessageFilter {
            channel: input.channel,
            label: input.label,
            from: input.from,
            mention: input.mention,
            reply_to: input.reply_to,
            thread: self.thread_root(input.thread).await?,
            limit: 50,
            ..MessageFilter::default()
        };
        loop {
            while last_seen > after.0 {
                let filter = MessageFilter {
                    after: Some(after),
                    ..filter.clone()
                };
                let found = self
                    .read_history(move |history| history.messages(&filter))
                    .await?;
                let Some(last) = found.last().map(|message| message.id) else {
                    break;
                };
                if let Some(found) = found.iter().find(|message| self.may_read(message)) {
                    return reply(self.board().revision, found.clone());
                }
                after = last;
            }
            let next_message = async {
                loop {
                    board_changes.mark_unchanged();
                    match self.board().counters.message {
                        now if now > last_seen => return now,
                        _ => _ = board_changes.changed().await,
                    }
                }
            };
            let Ok(now) = tokio::time::timeout_at(deadline, next_message).await else {
                return Err(Problem::new(
                    408,
                    "timed_out",
                    "no matching message arrived in time",
                    "wait longer: --timeout 5m",
                ));
            };
            last_seen = now;
        }
    }

    pub(super) async fn msg_read(&self, input: input::MsgRead) -> Reply<Vec<Message>> {
        let last_read = self
            .board()
            .cursors
            .get(&(input.agent.clone(), input.channel.clone()))
            .copied()
            .unwrap_or_default();
        let filter = MessageFilter {
            channel: Some(input.channel.clone()),
            after: Some(last_read),
            limit: 1_000,
            ..MessageFilter::default()
        };
        let messages = self
            .read_history(move |history| history.messages(&filter))
            .await?;
        if let (Some(last), false) = (messages.last(), input.keep_unread) {
            self.run(Command::MarkRead {
                agent: input.agent,
                channel: input.channel,
                read: last.id,
            })
            .await?;
        }
        reply(self.board().revision, messages)
    }

    /// Counts an agent's unread messages in its mailbox, in channels that the agent has read
    /// before, in the channels of its work, and in channels where it was mentioned. The verb
    /// `msg.read` returns the same messages.
    pub(super) async fn msg_inbox(
        &self,
        input: input::MsgInbox,
        page: &PageRequest,
    ) -> PageReply<Vec<UnreadView>> {
        let (board, agent) = (self.board(), input.agent);
        let mut channels: Vec<ChannelName> = vec![mailbox_of(&agent)?];
        channels.extend(
            board
                .cursors
                .keys()
                .filter(|(reader, _)| *reader == agent)
                .map(|(_, channel)| channel.clone()),
        );
        let attempts = board
            .attempts
            .values()
            .filter(|attempt| attempt.agent == agent);
        channels
            .extend(attempts.filter_map(|attempt| ChannelName::new(attempt.project.as_str()).ok()));
        let (cursors, is_attempt) = (
            board.cursors.clone(),
            matches!(self.principal, Principal::Attempt { .. }),
        );
        let mention_filter = MessageFilter {
            mention: Some(agent.clone()),
            limit: MAX_COUNTED_MENTIONS,
            ..MessageFilter::default()
        };
        let (filter, reader) = (mention_filter.clone(), agent.clone());
        let find_channels = move |history: &dyn StoreHistory| {
            // For an attempt, channels that it cannot read are left out, so that its program does
            // not learn that they exist.
            if !is_attempt {
                let mentioned = history.messages(&filter)?;
                channels.extend(
                    mentioned
                        .into_iter()
                        .filter(|message| message.may_be_read_by(&reader))
                        .map(|message| message.channel),
                );
            }
            channels.sort();
            channels.dedup();
            Ok(channels)
        };
        let channels = self.read_history(find_channels).await?;
        let key = |channel: &ChannelName| channel.to_string();
        let channels = page.select(channels, key, |channel| channel)?;
        let count_unread = move |history: &dyn StoreHistory| {
            let count = |channel: ChannelName| {
                let read = cursors
                    .get(&(agent.clone(), channel.clone()))
                    .copied()
                    .unwrap_or_default();
                let unread = history.count_messages(&channel, read)?;
                let filter = MessageFilter {
                    channel: Some(channel.clone()),
                    after: Some(read),
                    ..mention_filter.clone()
                };
                let mentions = history.messages(&filter)?.len() as u64;
                Ok(UnreadView {
                    channel,
                    read,
                    unread,
                    mentions,
                })
            };
            channels.try_map(|channels| channels.into_iter().map(count).collect())
        };
        let views = self.read_history(count_unread).await?;
        reply(board.revision, views)
    }
}

/// Returns the name of the channel that is an agent's mailbox, such as `@claude-1`.
fn mailbox_of(agent: &AgentName) -> Result<ChannelName, Problem> {
    parse_id(&format!("@{agent}"))
}
