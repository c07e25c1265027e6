//! Implements the API verbs for bridges (connections of agents to chat services), and for the
//! conversations in these services.
//!
//! The server reaches the bridges only through [`BridgeControl`](crate::BridgeControl).
//! Conversations are read from the board (the daemon's state in memory).

use regatta_api::view::{BridgeView, ConversationLineView};
use regatta_core::ids::ConversationId;

use super::*;

impl VerbHandler<'_> {
    pub(super) fn bridge_list(&self) -> VerbResult {
        let all: Vec<BridgeView> = self
            .shared
            .bridges
            .as_ref()
            .map(|bridges| bridges.list())
            .unwrap_or_default();
        encode_answer(self.board().revision, &all)
    }

    pub(super) fn bridge_pause(&self, input: &input::BridgePause) -> VerbResult {
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
        self.bridge_list()
    }

    pub(super) async fn conversation_list(&self, input: input::ConversationFilter) -> VerbResult {
        self.require_project(input.project.as_ref())?;
        let mut lines: Vec<ConversationLineView> = if input.all {
            let all = self
                .read_history(|history| history.conversations(1_000))
                .await?;
            all.iter().map(ConversationLineView::new).collect()
        } else {
            self.board()
                .conversations
                .values()
                .map(|conversation| ConversationLineView::new(conversation))
                .collect()
        };
        lines.retain(|line| {
            input
                .project
                .as_ref()
                .is_none_or(|only| *only == line.project)
        });
        lines.sort_by_key(|line| std::cmp::Reverse(line.updated_wall));
        encode_answer(self.board().revision, &lines)
    }

    pub(super) async fn conversation_show(&self, id: ConversationId) -> VerbResult {
        let board = self.board();
        if let Some(conversation) = board.conversations.get(&id) {
            return encode_answer(board.revision, conversation);
        }
        match self
            .read_history(move |history| history.conversation(id))
            .await?
        {
            Some(conversation) => encode_answer(board.revision, &conversation),
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
        command: impl FnOnce(ConversationId) -> ConversationCommand,
    ) -> VerbResult {
        self.run(Command::Converse(Box::new(command(id)))).await?;
        self.conversation_show(id).await
    }
}
