//! Builds the entities of each topic from the store and the board. An entity is a unit of live
//! data, and the board is the daemon's state in memory.
//!
//! All topics of one frame (a set of changes for a browser) are built from one board, so that they
//! agree with each other.
//!
//! The module [`stream`](super::stream) decides which browser watches which topic. The module
//! [`ended_work`](super::ended_work) reads ended work. The status of a task or agent comes from
//! regatta-core and regatta-api.

use std::collections::BTreeMap;
use std::sync::Arc;

use regatta_api::Problem;
use regatta_api::cost_tables::CostGrouping;
use regatta_api::file_map;
use regatta_api::live_view::{
    AgentLaneView, ConversationPage, CostPage, FleetSize, FleetSummaryView, LaneBarsView,
    MissionProgress, ProjectFilesView, ProjectSummary, SentencePart, StateSharesView, TaskRowView,
    TeamPage, TodaySpendView,
};
use regatta_api::team::TeamView;
use regatta_api::view::{BudgetsView, ConversationLineView, LandingView, RunnerView};
use regatta_core::board::Board;
use regatta_core::budget;
use regatta_core::ids::{AgentName, LandingId, MemberName, Now, TaskId};
use regatta_core::launch::MemberState;
use regatta_core::plural;
use regatta_core::task::Task;
use regatta_core::{agent, display, provider_outage};
use regatta_engine::ports::store::{StoreError, StoreHistory};
use serde::Serialize;
use serde_json::value::RawValue;

use super::inbox_items::InboxBuilder;
use super::stream::{BuiltEntity, Topic};
use super::task_row::task_row;
use super::texts::files_text;
use super::{actions, file_conflicts, task};
use crate::cost_index::CostInput;
use crate::verbs::{problem_from_store, run_blocking};
use crate::{ServerState, fleet_summary};

/// Number of agents above which the page shows each agent only as a small cell. Above
/// `THIN_ROWS_ABOVE_AGENTS`, each agent is a thin row.
const CELLS_ABOVE_AGENTS: usize = 60;
const THIN_ROWS_ABOVE_AGENTS: usize = 12;
/// Maximum number of running missions in the page's head, newest first.
const MAX_MISSIONS: usize = 20;
/// Number of past launches that the page shows for each team.
const MAX_PAST_LAUNCHES: usize = 6;
/// Maximum number of ended tasks in the page's list of tasks. `MAX_OPEN_TASKS` is the limit for
/// open tasks.
pub(super) const MAX_ENDED_TASKS: usize = 300;
const MAX_OPEN_TASKS: usize = 3_000;
/// Maximum number of landed changes whose lines git counts for one frame (one set of changes for
/// the page). The number is limited because counting is slow.
const MAX_DIFFS_PER_FRAME: usize = 8;
/// Maximum number of paths in the page's map of files.
const MAX_PATHS: usize = 2_000;

/// Builds several topics (parts of the page's data) from one state of the board, which is the
/// daemon's state in memory. Returns the entities of each topic, with the board's revision.
pub(super) async fn build_topics(
    shared: &Arc<ServerState>,
    topics: Vec<Topic>,
) -> BTreeMap<Topic, Result<(u64, Vec<BuiltEntity>), Problem>> {
    if topics.is_empty() {
        return BTreeMap::new();
    }
    let (board, now, requested) = (shared.engine.board(), shared.engine.now(), topics.clone());
    let shared = shared.clone();
    let work = move || {
        let history = &**shared.engine.history();
        shared.live_caches.lanes.record(&board, now);
        let context = TopicContext {
            board: &board,
            now,
            shared: &shared,
            history,
        };
        let build = |topic: Topic| {
            (
                topic,
                context
                    .build_topic(topic)
                    .map(|entities| (board.revision, entities))
                    .map_err(problem_from_store),
            )
        };
        topics.into_iter().map(build).collect()
    };
    match run_blocking(work).await {
        Ok(entities) => entities,
        Err(problem) => requested
            .into_iter()
            .map(|topic| (topic, Err(problem.clone())))
            .collect(),
    }
}

/// A project's ended landings (merged or failed work) that the page shows, and the median time to
/// land in milliseconds.
pub(super) type EndedLandings = (Vec<LandingView>, Option<u64>);
/// The key of a project's cached ended landings (merged or failed work): the queue, the number of
/// ended tasks, and the present second. As long as the key is the same, the ended landings are the
/// same too.
pub(super) type EndedLandingsKey = (Vec<LandingId>, usize, u64);

/// The sources from which topics are built: one board (the daemon's state in memory), the store,
/// and the caches. A topic is a part of the page's data.
pub(super) struct TopicContext<'a> {
    pub(super) board: &'a Arc<Board>,
    pub(super) now: Now,
    pub(super) shared: &'a ServerState,
    pub(super) history: &'a dyn StoreHistory,
}

fn entity<T: Serialize>(key: String, value: &T) -> Option<BuiltEntity> {
    let text = serde_json::to_string(value).ok()?;
    Some((key, RawValue::from_string(text).ok()?))
}

impl TopicContext<'_> {
    fn build_topic(&self, topic: Topic) -> Result<Vec<BuiltEntity>, StoreError> {
        Ok(match topic {
            Topic::Head => entity("head".into(), &self.head()?).into_iter().collect(),
            Topic::Inbox => {
                let builder = InboxBuilder {
                    board: self.board,
                    now: self.now,
                    git: &*self.shared.engine.git(),
                    sizes: &self.shared.live_caches.change_sizes,
                };
                let items = builder.items();
                items
                    .iter()
                    .filter_map(|item| entity(format!("item/{}", item.item.id), item))
                    .collect()
            }
            Topic::Lanes => {
                let lanes = self.lanes();
                lanes
                    .iter()
                    .filter_map(|lane| entity(format!("lane/{}", lane.agent), lane))
                    .collect()
            }
            Topic::Bars => {
                let names = self.board.agents.keys().take(CELLS_ABOVE_AGENTS);
                names
                    .filter_map(|agent| entity(format!("bars/{agent}"), &self.bars(agent)))
                    .collect()
            }
            Topic::Shares => self
                .shares()
                .iter()
                .filter_map(|shares| entity(format!("share/{}", shares.provider), shares))
                .collect(),
            Topic::Queue => {
                let queues = self.queues()?;
                queues
                    .iter()
                    .filter_map(|page| entity(format!("train/{}", page.queue.project), page))
                    .collect()
            }
            Topic::Spend => entity("spend".into(), &self.spend()?).into_iter().collect(),
            Topic::Cost => entity("cost".into(), &self.cost()?).into_iter().collect(),
            Topic::Tasks => self
                .task_rows()?
                .iter()
                .filter_map(|row| entity(format!("task/{}", row.id), row))
                .collect(),
            Topic::Files => self
                .project_files()?
                .iter()
                .filter_map(|files| entity(format!("files/{}", files.project), files))
                .collect(),
            Topic::Runners => {
                let runners = self
                    .board
                    .runners
                    .values()
                    .map(|runner| RunnerView::new(self.board, runner));
                runners
                    .filter_map(|runner| entity(format!("runner/{}", runner.name), &runner))
                    .collect()
            }
            Topic::Teams => {
                let teams = self.teams()?;
                teams
                    .iter()
                    .filter_map(|team| entity(format!("team/{}", team.team.desired.name), team))
                    .collect()
            }
            Topic::Conversations => {
                let open = self
                    .board
                    .conversations
                    .values()
                    .map(|conversation| ConversationPage {
                        line: ConversationLineView::new(conversation),
                        actions: actions::conversation_actions(conversation),
                    });
                open.filter_map(|page| entity(format!("conversation/{}", page.line.id), &page))
                    .collect()
            }
            Topic::Graph(of) => self
                .graph(of, None)?
                .and_then(|graph| entity("graph".into(), &graph))
                .into_iter()
                .collect(),
            Topic::Missions => self
                .mission_rows()?
                .iter()
                .filter_map(|row| entity(format!("mission/{}", row.id), row))
                .collect(),
            Topic::Mission(id) => self
                .mission_page(id)?
                .and_then(|page| entity(id.to_string(), &page))
                .into_iter()
                .collect(),
            Topic::MissionTasks(id) => self
                .mission_task_rows(id)?
                .iter()
                .filter_map(|row| entity(format!("task/{}", row.id), row))
                .collect(),
            Topic::Task(id) => self
                .task_page(id)?
                .and_then(|page| entity(id.to_string(), &page))
                .into_iter()
                .collect(),
        })
    }

    fn task_page(
        &self,
        id: TaskId,
    ) -> Result<Option<regatta_api::live_view::TaskPage>, StoreError> {
        task::task_page(self, id)
    }

    fn head(&self) -> Result<FleetSummaryView, StoreError> {
        let board = self.board;
        let summary = fleet_summary::read(self.shared, board, None, self.now)?;
        let needs_you = summary.needs_you;
        let newest_missions = || summary.missions.iter().rev();
        let sentence_part = |text: String, strong: bool, to: &str| SentencePart {
            text,
            strong,
            to: Some(to.into()),
        };
        let mut sentence = vec![
            sentence_part(
                format!("{} working", summary.working),
                true,
                "/tasks?at=working",
            ),
            sentence_part(
                format!("{} waiting", summary.waiting),
                false,
                "/tasks?at=waiting",
            ),
            sentence_part(summary.needs_you_text(), needs_you > 0, "/inbox"),
        ];
        if summary.landing > 0 {
            let text = format!("{} landing", summary.landing);
            sentence.push(sentence_part(text, false, "/queue"));
        }
        if summary.backlog > 0 {
            let text = format!("{} in the backlog", summary.backlog);
            sentence.push(sentence_part(text, false, "/tasks?at=backlog"));
        }
        if summary.has_spent() {
            let text = format!("{} today", summary.spend_text());
            sentence.push(sentence_part(text, false, "/cost"));
        }
        for mission in newest_missions().take(2) {
            let text = format!("“{}” {}", mission.title, mission.progress_text());
            sentence.push(sentence_part(text, false, &format!("/m/{}", mission.id)));
        }
        if summary.missions.len() > 2 {
            sentence.push(sentence_part(
                plural::count(summary.missions.len() - 2, "more mission"),
                false,
                "/missions",
            ));
        }
        if let Some(text) = &self.shared.recovery_notice {
            sentence.push(SentencePart {
                text: text.clone(),
                strong: false,
                to: Some("/events".into()),
            });
        }
        if board.projects.is_empty() {
            let text = "no repository is under management yet: regatta init".into();
            sentence = vec![SentencePart {
                text,
                strong: true,
                to: None,
            }];
        }
        let agents = summary.agents;
        Ok(FleetSummaryView {
            sentence,
            needs_you,
            running: summary.running,
            slots: summary.slots,
            agents,
            missions: newest_missions()
                .take(MAX_MISSIONS)
                .map(MissionProgress::from)
                .collect(),
            summary,
            size: if agents > CELLS_ABOVE_AGENTS {
                FleetSize::Many
            } else if agents > THIN_ROWS_ABOVE_AGENTS {
                FleetSize::Some
            } else {
                FleetSize::Few
            },
            projects: board
                .projects
                .values()
                .map(|project| ProjectSummary {
                    name: project.name.clone(),
                    trunk: project.trunk.to_string(),
                    path: project.location.clone(),
                })
                .collect(),
            version: env!("CARGO_PKG_VERSION").into(),
            composers: actions::composers(
                board,
                board
                    .projects
                    .values()
                    .any(|project| project.settings.leads.agent.is_some()),
            ),
            tasks: board.counters.task,
        })
    }

    pub(super) fn lanes(&self) -> Vec<AgentLaneView> {
        let (board, day) = (self.board, budget::day_of(self.now));
        let states = self.shared.live_caches.lanes.states(board, self.now);
        let mut live_attempts = BTreeMap::new();
        for attempt in board.attempts.values() {
            live_attempts.entry(&attempt.agent).or_insert(attempt);
        }
        let lane = |agent: &Arc<agent::Agent>| {
            let (lane_state, since_wall) = states.get(&agent.name)?.clone();
            let attempt = live_attempts.get(&agent.name);
            let context = attempt
                .and_then(|attempt| attempt.session.context)
                .filter(|(_, size)| *size > 0);
            let context = context
                .map(|(used, size)| u32::try_from((used * 100 / size).min(100)).unwrap_or(100));
            let subject = lane_state
                .task
                .and_then(|id| board.tasks.get(&id))
                .map(|task| task.subject.clone());
            let is_held =
                agent.offline.is_some() || provider_outage::find_parked(board, agent).is_some();
            Some(AgentLaneView {
                provider: display::provider_or_runtime(agent),
                at: lane_state.state,
                word: lane_state.label.into(),
                text: lane_state.text,
                task: lane_state.task,
                subject: subject.unwrap_or_default(),
                since_wall,
                capacity: agent::capacity(board, agent),
                wanted: agent.profile.model.clone().unwrap_or_default(),
                running: attempt
                    .and_then(|attempt| attempt.session.model.clone())
                    .unwrap_or_default(),
                context,
                micro_usd: budget::spent_on(board, day, Some(&agent.name))
                    .usage
                    .micro_usd,
                actions: actions::agent_actions(
                    &agent.name,
                    is_held,
                    attempt.map(|attempt| attempt.session_of.is_some()),
                ),
                agent: agent.name.clone(),
            })
        };
        board.agents.values().filter_map(lane).collect()
    }

    fn bars(&self, agent: &AgentName) -> LaneBarsView {
        LaneBarsView {
            agent: agent.clone(),
            bars: self.shared.live_caches.lanes.bars(agent),
        }
    }

    fn shares(&self) -> Vec<StateSharesView> {
        let lanes = |name: &str| {
            self.board
                .agents
                .values()
                .filter(|agent| display::provider_or_runtime(agent) == name)
                .count()
        };
        let all = self.shared.live_caches.lanes.shares().into_iter();
        all.map(|(provider, minutes)| StateSharesView {
            lanes: lanes(&provider),
            provider,
            minutes,
        })
        .collect()
    }

    /// Returns the pages of all teams that are not deleted, each with its last launches.
    fn teams(&self) -> Result<Vec<TeamPage>, StoreError> {
        let (board, agents, wall) = (self.board, self.shared.engine.agents(), self.now.unix_ms);
        let silent_ms = |id| {
            agents
                .last_record_unix_ms(id)
                .map(|last_record_unix_ms| wall.saturating_sub(last_record_unix_ms))
        };
        let team_page = |team: &Arc<regatta_core::team::Team>| {
            let launches = self.history.launches(&team.name, MAX_PAST_LAUNCHES)?;
            let history = launches
                .into_iter()
                .filter(|launch| Some(launch.id) != team.launch)
                .collect();
            let mut view = TeamView {
                history,
                ..TeamView::new(board, team, silent_ms)
            };
            // Leave out the time since a member's last output, because this time is different in
            // every frame, so that the team would be sent again each time.
            view.live
                .iter_mut()
                .for_each(|member_live| member_live.silent_ms = None);
            // Only a member of a launch that is up can be started again by itself.
            let failed: Vec<MemberName> = view
                .resolved
                .iter()
                .filter(|_| view.up)
                .flat_map(|launch| &launch.members)
                .filter(|entry| entry.state == MemberState::FailedToStart)
                .map(|entry| entry.name.clone())
                .collect();
            let member_actions = view
                .live
                .iter()
                .map(|member| {
                    (
                        member.name.clone(),
                        actions::member_actions(&team.name, member, failed.contains(&member.name)),
                    )
                })
                .collect();
            Ok(TeamPage {
                actions: actions::team_actions(&team.name, view.up),
                each: member_actions,
                team: view,
            })
        };
        board
            .teams
            .values()
            .filter(|team| team.deleted_unix_ms.is_none())
            .map(team_page)
            .collect()
    }

    fn spend(&self) -> Result<TodaySpendView, StoreError> {
        let today = self.shared.cost_index.today_spend(&self.cost_input())?;
        let spent = budget::spent_on(self.board, budget::day_of(self.now), None);
        Ok(TodaySpendView {
            text: display::spend_text(spent.usage.micro_usd, spent.usage.tokens(), today.cap),
            today: spent,
            cap: today.cap,
            forecast: today.forecast,
            line: today.spent_by_minute,
            bands: today.bands,
        })
    }

    fn cost(&self) -> Result<CostPage, StoreError> {
        let budgets = BudgetsView::new(self.board, self.now, 0).budgets;
        Ok(CostPage {
            cost: self
                .shared
                .cost_index
                .cost_view(&self.cost_input(), 0, &CostGrouping::ALL)?,
            budgets,
        })
    }

    pub(super) fn cost_input(&self) -> CostInput<'_> {
        CostInput {
            board: self.board,
            now: self.now,
            history: self.history,
            git: self.shared.engine.git(),
            max_measured: MAX_DIFFS_PER_FRAME,
        }
    }

    fn task_rows(&self) -> Result<Vec<TaskRowView>, StoreError> {
        Ok(self
            .listed_tasks()?
            .iter()
            .map(|task| self.task_row(task))
            .collect())
    }

    /// Returns the tasks of the page's list: the open tasks, and those that ended recently.
    pub(super) fn listed_tasks(&self) -> Result<Vec<Arc<Task>>, StoreError> {
        let mut tasks: Vec<Arc<Task>> = self
            .board
            .tasks
            .values()
            .take(MAX_OPEN_TASKS)
            .cloned()
            .collect();
        for finished_task in self
            .shared
            .event_fanout
            .finished_after(0)
            .into_iter()
            .rev()
            .take(MAX_ENDED_TASKS)
        {
            if !self.board.tasks.contains_key(&finished_task.task)
                && let Some(task) =
                    self.ended_task(finished_task.task, finished_task.ended_unix_ms)?
            {
                tasks.push(task);
            }
        }
        Ok(tasks)
    }

    pub(super) fn task_row(&self, task: &Task) -> TaskRowView {
        task_row(self.board, task, self.now)
    }

    fn project_files(&self) -> Result<Vec<ProjectFilesView>, StoreError> {
        let files_view = |project: &Arc<regatta_core::project::Project>| {
            let landed = self.landed_today(project)?;
            let cells =
                file_map::file_cells(self.board, &project.name, &landed, self.now, MAX_PATHS);
            Ok(ProjectFilesView {
                project: project.name.clone(),
                text: files_text(&cells, landed.values().sum()),
                radar: project.collision_forecast.clone(),
                tasks: file_conflicts::file_tasks(self.board, &cells, self.now),
                conflicts: file_conflicts::file_conflicts(self.board, project, &cells),
                folders: file_map::folder_cells(cells),
            })
        };
        self.board.projects.values().map(files_view).collect()
    }
}
