//! Implements the API verbs for bridges (connections of agents to chat services), and for the
//! conversations in these services.
//!
//! The server reaches the bridges only through [`BridgeControl`](crate::BridgeControl).
//! Conversations are read from the board (the daemon's state in memory).

use std::cmp::Reverse;

use regatta_api::view::{BridgeView, ConversationLineView};
use regatta_core::conversation::Conversation;
use regatta_core::ids::ConversationId;

use super::*;

impl VerbHandler<'_> {
    pub(super) async fn bridge_list(
        &self,
        _: input::EmptyInput,
        page: &PageRequest,
    ) -> PageReply<Vec<BridgeView>> {
        let bridges = page.select(
            self.bridges(),
            |bridge| bridge.name.clone(),
            |bridge| bridge,
        )?;
        reply(self.board().revision, bridges)
    }

    fn bridges(&self) -> Vec<BridgeView> {
        let bridges = self.shared.bridges.as_ref();
        bridges.map(|bridges| bridges.list()).unwrap_or_default()
    }

    pub(super) async fn bridge_pause(&self, input: input::BridgePause) -> Reply<Vec<BridgeView>> {
        let paused_count = self.shared.bridges.as_ref().map_or(0, |bridges| {
            bridges.pause(&input.agent, input.service, input.paused)
        });
        if paused_count == 0 {
            let what = format!("{} has no running bridge", input.agent);
            return Err(Problem::new(
                404,
                "no_such_bridge",
                what,
                "see the bridges: regatta bridge list",
            ));
        }
        reply(self.board().revision, self.bridges())
    }

    pub(super) async fn conversation_list(
        &self,
        input: input::ConversationFilter,
        page: &PageRequest,
    ) -> PageReply<Vec<ConversationLineView>> {
        self.require_project(input.project.as_ref())?;
        let board = self.board();
        let mut conversations: Vec<Arc<Conversation>> = if input.all {
            let all = self
                .read_history(|history| history.conversations(usize::MAX))
                .await?;
            all.into_iter().map(Arc::new).collect()
        } else {
            board.conversations.values().cloned().collect()
        };
        conversations.retain(|conversation| {
            input
                .project
                .as_ref()
                .is_none_or(|only| *only == conversation.project)
        });
        conversations.sort_by_key(|conversation| Reverse(conversation.updated_unix_ms));
        let lines = page.select(
            conversations,
            |conversation| conversation.id.to_string(),
            |conversation| ConversationLineView::new(&conversation),
        )?;
        reply(board.revision, lines)
    }

    pub(super) async fn conversation_show(
        &self,
        input: input::ConversationIdInput,
    ) -> Reply<Conversation> {
        self.show_conversation(input.conversation).await
    }

    async fn show_conversation(&self, id: ConversationId) -> Reply<Conversation> {
        let board = self.board();
        if let Some(conversation) = board.conversations.get(&id) {
            return reply(board.revision, Conversation::clone(conversation));
        }
        match self
            .read_history(move |history| history.conversation(id))
            .await?
        {
            Some(conversation) => reply(board.revision, conversation),
            None => {
                let what = format!("there is no conversation {id}");
                Err(Problem::new(
                    404,
                    "no_such_conversation",
                    what,
                    "see the conversations: regatta bridge conversations",
                ))
            }
        }
    }

    pub(super) async fn run_conversation_command(
        &self,
        id: ConversationId,
        command: ConversationCommand,
    ) -> Reply<Conversation> {
        self.run(Command::Converse(Box::new(command))).await?;
        self.show_conversation(id).await
    }
}
