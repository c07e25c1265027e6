//! Verbs of bridges and of conversations in outside services.

use regatta_api::view::{BridgeView, ConversationLineView};
use regatta_core::ids::ConversationId;

use super::*;

impl VerbHandler<'_> {
    pub(super) fn bridge_list(&self) -> VerbResult {
        let all: Vec<BridgeView> = self
            .shared
            .bridges
            .as_ref()
            .map(|bridge_control| bridge_control.list())
            .unwrap_or_default();
        encode_answer(self.board().revision, &all)
    }

    pub(super) fn bridge_pause(&self, ask: &input::BridgePause) -> VerbResult {
        let found = self.shared.bridges.as_ref().map_or(0, |bridge_control| {
            bridge_control.pause(&ask.agent, ask.service, ask.paused)
        });
        if found == 0 {
            let what = format!("{} has no running bridge", ask.agent);
            return Err(Problem::new(
                404,
                "no_such_bridge",
                what,
                "see them: regatta bridge list",
            ));
        }
        self.bridge_list()
    }

    pub(super) async fn conversation_list(&self, ask: input::ConversationFilter) -> VerbResult {
        self.require_project(ask.project.as_ref())?;
        let mut found: Vec<ConversationLineView> = if ask.all {
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
        found.retain(|conversation_line| {
            ask.project
                .as_ref()
                .is_none_or(|only| *only == conversation_line.project)
        });
        found.sort_by_key(|conversation_line| std::cmp::Reverse(conversation_line.updated_wall));
        encode_answer(self.board().revision, &found)
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
                    "see them: regatta bridge conversations",
                ))
            }
        }
    }

    pub(super) async fn run_conversation_command(
        &self,
        id: ConversationId,
        ask: impl FnOnce(ConversationId) -> ConversationCommand,
    ) -> VerbResult {
        self.run(Command::Converse(Box::new(ask(id)))).await?;
        self.conversation_show(id).await
    }
}
