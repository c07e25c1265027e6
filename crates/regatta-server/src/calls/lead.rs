//! Verbs of missions with a lead, of the router, and of guides.

use regatta_api::guide::{self, GUIDES};
use regatta_api::view::{GuideView, MissionLineView};
use regatta_core::lead::{About, Ask};

use super::*;

impl Caller<'_> {
    pub(super) async fn mission_ask(&self, ask: input::MissionAsk) -> Json {
        let project = self.project(ask.project)?;
        let about = ask.task.map_or(About::Goal, About::Task);
        let ask = Ask { project, goal: ask.goal, about, agent: ask.agent, message: None, channel: None };
        match self.ask(Command::AskMission(ask)).await? {
            (_, Outcome::Mission { mission, .. }) => self.mission_show(&mission.to_string()).await,
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) fn mission_list(&self, ask: input::Scope) -> Json {
        self.known(ask.project.as_ref())?;
        let board = self.board();
        let wanted = |it: &&Arc<mission::Mission>| ask.project.as_ref().is_none_or(|name| it.project == *name);
        let lines: Vec<MissionLineView> =
            board.missions.values().filter(wanted).map(|it| MissionLineView::of(&board, it)).collect();
        answer(board.revision, &lines)
    }

    pub(super) async fn mission_cancel(&self, ask: input::Said) -> Json {
        let mission: MissionId = parse(&ask.id)?;
        let reason = if ask.text.trim().is_empty() { "cancelled by a person".to_owned() } else { ask.text };
        self.ask(Command::CancelMission { mission, reason }).await?;
        self.mission_show(&ask.id).await
    }

    pub(super) async fn mission_handover(&self, ask: input::MissionHandover) -> Json {
        let mission: MissionId = parse(&ask.id)?;
        self.ask(Command::HandOverMission { mission, to: ask.to }).await?;
        self.mission_show(&ask.id).await
    }

    pub(super) async fn mission_finish(&self, ask: input::MissionFinish) -> Json {
        let input::MissionFinish { task, attempt, token, report } = ask;
        self.done(Command::FinishMission { task, attempt, token, report }).await
    }

    pub(super) async fn mission_adopt(&self, ask: input::MissionAdopt) -> Json {
        let named = ask.mission.as_deref().map(parse::<MissionId>).transpose()?;
        let mission = named.or_else(|| self.led_mission()).ok_or_else(|| {
            Problem::new(
                400,
                "bad_input",
                "the call names no mission",
                "add its id, such as M3; see them: regatta mission list",
            )
        })?;
        self.task(ask.task, Command::AdoptTask { task: ask.task, mission }).await
    }

    /// Returns the mission that the caller leads, according to its token.
    pub(super) fn led_mission(&self) -> Option<MissionId> {
        let Visitor::Attempt { id, lead: true, .. } = &self.visitor else { return None };
        let board = self.board();
        let mission = board.attempts.get(id)?.mission?;
        board.missions.get(&mission).filter(|it| it.lead.is_some()).map(|it| it.id)
    }

    pub(super) async fn route(&self, ask: input::Route) -> Json {
        let id = ask.message;
        let filter =
            MessageFilter { after: Some(MessageId(id.0.saturating_sub(1))), limit: 1, ..MessageFilter::default() };
        let found = self.read(move |history| history.messages(&filter)).await?;
        let Some(message) = found.into_iter().find(|it| it.id == id) else {
            return Err(Problem::new(
                404,
                "no_such_message",
                format!("there is no message {id}"),
                "see them: regatta msg history CHANNEL",
            ));
        };
        let board = self.board();
        let of_channel = || board.projects.keys().find(|it| bus::channel_of(it) == message.channel).cloned();
        let project = ask.project.or_else(of_channel).ok_or_else(|| {
            Problem::new(
                422,
                "invalid",
                format!("{} does not belong to a project", message.channel),
                "name the project whose router should read the message",
            )
        })?;
        self.known(Some(&project))?;
        self.done(Command::Route { project, message: Box::new(message) }).await
    }

    pub(super) fn guide(&self, ask: &input::Guide) -> Json {
        let view = |it: &guide::Guide| GuideView { name: it.name.into(), title: it.title.into(), text: it.text.into() };
        let found: Vec<GuideView> = match &ask.name {
            None => GUIDES.iter().map(view).collect(),
            Some(name) => {
                let names: Vec<&str> = GUIDES.iter().map(|it| it.name).collect();
                let found = guide::find(name).ok_or_else(|| {
                    let what = format!("there is no guide {:?}", name.chars().take(40).collect::<String>());
                    Problem::new(404, "no_such_guide", what, format!("there are: {}", names.join(", ")))
                })?;
                vec![view(found)]
            }
        };
        answer(self.board().revision, &found)
    }
}
