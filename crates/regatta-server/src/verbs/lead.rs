//! Implements the API verbs for missions with a lead, for the router, and for guides. A lead is an
//! agent that breaks a goal into tasks. The router reads commands in messages.
//!
//! The module `task` has the verbs for missions that start from a plan. The module
//! `regatta_core::lead` chooses the lead.

use regatta_api::guide::{self, GUIDES};
use regatta_api::view::{GuideView, MissionLineView};
use regatta_core::lead::{LeadRequest, LeadSubject};

use super::*;

impl VerbHandler<'_> {
    pub(super) async fn mission_ask(&self, input: input::MissionAsk) -> Reply<MissionView> {
        let project = self.resolve_project(input.project)?;
        let subject = input.task.map_or(LeadSubject::Goal, LeadSubject::Task);
        let request = LeadRequest {
            project,
            goal: input.goal,
            subject,
            agent: input.agent,
            message: None,
            channel: None,
        };
        match self.run(Command::AskMission(request)).await? {
            (_, CommandOutcome::Mission { mission, .. }) => self.show_mission(mission).await,
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn mission_list(
        &self,
        input: input::ProjectFilter,
        page: &PageRequest,
    ) -> PageReply<Vec<MissionLineView>> {
        self.require_project(input.project.as_ref())?;
        let board = self.board();
        let missions = board.missions.range(page.id_range::<MissionId>()?);
        let missions = missions.map(|(_, mission)| mission).filter(|mission| {
            input
                .project
                .as_ref()
                .is_none_or(|name| mission.project == *name)
        });
        let lines = page.first_of(missions, |mission| MissionLineView::new(&board, mission));
        reply(board.revision, lines)
    }

    pub(super) async fn mission_cancel(&self, input: input::IdWithText) -> Reply<MissionView> {
        let mission: MissionId = parse_id(&input.id)?;
        let reason = if input.text.trim().is_empty() {
            "cancelled by a person".to_owned()
        } else {
            input.text
        };
        self.run(Command::CancelMission { mission, reason }).await?;
        self.show_mission(mission).await
    }

    pub(super) async fn mission_handover(
        &self,
        input: input::MissionHandover,
    ) -> Reply<MissionView> {
        let mission: MissionId = parse_id(&input.id)?;
        self.run(Command::HandOverMission {
            mission,
            to: input.to,
        })
        .await?;
        self.show_mission(mission).await
    }

    pub(super) async fn mission_finish(&self, input: input::MissionFinish) -> Reply<Done> {
        let input::MissionFinish {
            task,
            attempt,
            token,
            report,
        } = input;
        self.run_and_confirm(Command::FinishMission {
            task,
            attempt,
            token,
            report,
        })
        .await
    }

    pub(super) async fn mission_adopt(&self, input: input::MissionAdopt) -> Reply<TaskView> {
        let named = input
            .mission
            .as_deref()
            .map(parse_id::<MissionId>)
            .transpose()?;
        let mission = named.or_else(|| self.led_mission()).ok_or_else(|| {
            Problem::new(
                400,
                "bad_input",
                "the call does not say which mission takes over the task",
                "add the mission's id, such as M3; see the missions: regatta mission list",
            )
        })?;
        self.run_on_task(
            input.task,
            Command::AdoptTask {
                task: input.task,
                mission,
            },
        )
        .await
    }

    /// Returns the mission that the caller leads, or `None` if the caller's token does not belong
    /// to the lead of a mission.
    pub(super) fn led_mission(&self) -> Option<MissionId> {
        let Principal::Attempt {
            id, is_lead: true, ..
        } = &self.principal
        else {
            return None;
        };
        let board = self.board();
        let mission = board.attempts.get(id)?.mission?;
        board
            .missions
            .get(&mission)
            .filter(|mission| mission.lead.is_some())
            .map(|mission| mission.id)
    }

    pub(super) async fn route(&self, input: input::RouteInput) -> Reply<Done> {
        let id = input.message;
        let filter = MessageFilter {
            after: Some(MessageId(id.0.saturating_sub(1))),
            limit: 1,
            ..MessageFilter::default()
        };
        let found = self
            .read_history(move |history| history.messages(&filter))
            .await?;
        let Some(message) = found.into_iter().find(|message| message.id == id) else {
            return Err(Problem::new(
                404,
                "no_such_message",
                format!("there is no message {id}"),
                "see the messages: regatta msg history CHANNEL",
            ));
        };
        let board = self.board();
        let project_of_channel = || {
            board
                .projects
                .keys()
                .find(|project| bus::channel_of(project) == message.channel)
                .cloned()
        };
        let project = input.project.or_else(project_of_channel).ok_or_else(|| {
            Problem::new(
                422,
                "invalid",
                format!(
                    "the message's channel {} does not belong to a project",
                    message.channel
                ),
                "name the project whose router should read the message",
            )
        })?;
        self.require_project(Some(&project))?;
        self.run_and_confirm(Command::Route {
            project,
            message: Box::new(message),
        })
        .await
    }

    pub(super) async fn guide(&self, input: input::GuideQuery) -> Reply<Vec<GuideView>> {
        let view = |guide: &guide::Guide| GuideView {
            name: guide.name.into(),
            title: guide.title.into(),
            text: guide.text.into(),
        };
        let guides: Vec<GuideView> = match &input.name {
            None => GUIDES.iter().map(view).collect(),
            Some(name) => {
                let names: Vec<&str> = GUIDES.iter().map(|guide| guide.name).collect();
                let found = guide::find_guide(name).ok_or_else(|| {
                    let what = format!(
                        "there is no guide {:?}",
                        name.chars().take(40).collect::<String>()
                    );
                    Problem::new(
                        404,
                        "no_such_guide",
                        what,
                        format!("choose one of these guides: {}", names.join(", ")),
                    )
                })?;
                vec![view(found)]
            }
        };
        reply(self.board().revision, guides)
    }
}
