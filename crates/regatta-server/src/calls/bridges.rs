//! Verbs of bridges and of conversations in outside services.

use regatta_api::view::{BridgeView, ConversationLineView};
use regatta_core::ids::ConversationId;

use super::*;

impl Caller<'_> {
    pub(super) fn bridge_list(&self) -> Json {
        let all: Vec<BridgeView> = self.shared.bridges.as_ref().map(|it| it.list()).unwrap_or_default();
        answer(self.board().revision, &all)
    }

    pub(super) fn bridge_pause(&self, ask: &input::BridgePause) -> Json {
        let found = self.shared.bridges.as_ref().map_or(0, |it| it.pause(&ask.agent, ask.service, ask.paused));
        if found == 0 {
            let what = format!("{} has no running bridge", ask.agent);
            return Err(Problem::new(404, "no_such_bridge", what, "see them: regatta bridge list"));
        }
        self.bridge_list()
    }

    pub(super) async fn conversation_list(&self, ask: input::Conversations) -> Json {
        self.known(ask.project.as_ref())?;
        let mut found: Vec<ConversationLineView> = if ask.all {
            let all = self.read(|history| history.conversations(1_000)).await?;
            all.iter().map(ConversationLineView::of).collect()
        } else {
            self.board().conversations.values().map(|it| ConversationLineView::of(it)).collect()
        };
        found.retain(|it| ask.project.as_ref().is_none_or(|only| *only == it.project));
        found.sort_by_key(|it| std::cmp::Reverse(it.updated_wall));
        answer(self.board().revision, &found)
    }

    pub(super) async fn conversation_show(&self, id: ConversationId) -> Json {
        let board = self.board();
        if let Some(it) = board.conversations.get(&id) {
            return answer(board.revision, it);
        }
        match self.read(move |history| history.conversation(id)).await? {
            Some(it) => answer(board.revision, &it),
            None => {
                let what = format!("there is no conversation {id}");
                Err(Problem::new(404, "no_such_conversation", what, "see them: regatta bridge conversations"))
            }
        }
    }

    pub(super) async fn converse(&self, id: ConversationId, ask: impl FnOnce(ConversationId) -> Ask) -> Json {
        self.ask(Command::Converse(Box::new(ask(id)))).await?;
        self.conversation_show(id).await
    }
}
