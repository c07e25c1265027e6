//! Builds the entities of each topic from the board and the history.
//!
//! All topics of one frame are built from one board, so that they agree with each other. Figures of
//! ended work change rarely, so they are cached.
//!
//! Not here: which browser watches which topic ([`stream`](super::stream)), and the status of a task
//! or an agent, which comes from regatta-core and regatta-api.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use regatta_api::Problem;
use regatta_api::live_view::{
    AgentLaneView, ConversationPage, CostPage, DisplayState, FleetSize, FleetSummaryView,
    InboxItemView, LaneBarsView, MissionProgress, ProjectFilesView, ProjectSummary, QueuePage,
    SentencePart, StateSharesView, TaskRowView, TeamPage, TodaySpendView,
};
use regatta_api::team::TeamView;
use regatta_api::view::{
    self, BudgetsView, ConversationLineView, InboxView, LandingView, QueueView, RunnerView,
};
use regatta_core::board::Board;
use regatta_core::budget::{self, Spend};
use regatta_core::cost::CostGrouping;
use regatta_core::ids::{AgentName, LandingId, MissionId, Now, ProjectName, TaskId};
use regatta_core::landing::{self, LandingEnd};
use regatta_core::launch::{self, MemberActivity};
use regatta_core::task::{Task, TaskStatus};
use regatta_core::{agent, approval, file_map, lead, provider_outage, schedule};
use regatta_engine::ports::store::{StoreError, StoreHistory, TaskFilter};
use serde::Serialize;
use serde_json::value::RawValue;

use super::stream::{BuiltEntity, Topic};
use super::{actions, lanes, task};
use crate::ServerState;
use crate::cost_index::CostInput;
use crate::verbs::{problem_from_store, run_blocking};

/// Numbers of agents above which agents are shown as cells, and as thin rows.
const CELLS_ABOVE_AGENTS: usize = 60;
const THIN_ROWS_ABOVE_AGENTS: usize = 12;
/// Number of launches of a team that are shown.
const MAX_PAST_LAUNCHES: usize = 6;
/// Number of ended landings that a queue shows.
const MAX_ENDED_LANDINGS: usize = 20;
/// Maximum numbers of ended and of open tasks in the list.
const MAX_ENDED_TASKS: usize = 300;
const MAX_OPEN_TASKS: usize = 3_000;
/// Maximum number of changes that git is asked for per frame.
const MAX_DIFFS_PER_FRAME: usize = 8;
/// Maximum numbers of paths in the map of files, and of landings that are counted for it.
const MAX_PATHS: usize = 2_000;
const MAX_COUNTED_LANDINGS: usize = 1_000;

/// Returns the numbers of landed tasks and of all tasks of a mission. The task of a lead's own
/// turns does not count, because it lands nothing. A led mission has few tasks, so they are read
/// one by one.
pub(crate) fn landed_counts(
    history: &dyn StoreHistory,
    mission: MissionId,
    is_led: bool,
) -> Result<(u64, u64), StoreError> {
    let filter = |statuses| TaskFilter {
        mission: Some(mission),
        statuses,
        ..TaskFilter::default()
    };
    if !is_led {
        return Ok((
            history.count_tasks(&filter(vec![TaskStatus::Completed]))?,
            history.count_tasks(&filter(vec![]))?,
        ));
    }
    let mut tasks = history.tasks(&filter(vec![]))?;
    tasks.retain(Task::is_polled);
    let landed = tasks
        .iter()
        .filter(|task| task.status == TaskStatus::Completed)
        .count();
    Ok((landed as u64, tasks.len() as u64))
}

/// Builds topics from one board. Returns each topic's entities with the board's revision.
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

/// Ended landings, and the median time to land in milliseconds.
pub(super) type EndedLandings = (Vec<LandingView>, Option<u64>);
/// The queue, the number of ended tasks, and the second. While this key is unchanged, so are the
/// ended landings.
pub(super) type EndedLandingsKey = (Vec<LandingId>, usize, u64);

/// The sources of the entities.
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
                let items = inbox_items(self.board, self.now);
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
        // Counted as in the lanes and in the list: an attempt that waits for an answer is not
        // working.
        let counts = StateCounts::new(board, |_| true);
        let count = |at: DisplayState| counts.count(at);
        let needs_you = inbox_items(board, self.now).len();
        let missions = self.missions()?;
        let sentence_part = |text: String, strong: bool, to: &str| SentencePart {
            text,
            strong,
            to: Some(to.into()),
        };
        let mut sentence = vec![
            sentence_part(
                format!("{} working", count(DisplayState::Working)),
                true,
                "/tasks?at=working",
            ),
            sentence_part(
                format!("{} waiting", count(DisplayState::Waiting)),
                false,
                "/tasks?at=waiting",
            ),
            sentence_part(
                format!(
                    "{needs_you} need{} you",
                    if needs_you == 1 { "s" } else { "" }
                ),
                needs_you > 0,
                "/inbox",
            ),
        ];
        let landing = count(DisplayState::Landing);
        if landing > 0 {
            sentence.push(sentence_part(format!("{landing} landing"), false, "/queue"));
        }
        for mission in missions.iter().take(2) {
            let text = format!("“{}” {}", mission.title, mission.progress_text());
            sentence.push(sentence_part(
                text,
                false,
                &format!("/tasks?mission={}", mission.id),
            ));
        }
        if missions.len() > 2 {
            sentence.push(sentence_part(
                format!("{} more missions", missions.len() - 2),
                false,
                "/tasks",
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
        let agents = board.agents.len();
        Ok(FleetSummaryView {
            sentence,
            needs_you,
            running: schedule::machine_running(board),
            slots: board.limits.max_attempts,
            agents,
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
            missions,
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

    fn missions(&self) -> Result<Vec<MissionProgress>, StoreError> {
        let running = self.board.missions.values().rev().take(20);
        running
            .map(|mission| {
                let (id, title) = (mission.id, mission.title.clone());
                let (landed, tasks) = landed_counts(self.history, id, mission.lead.is_some())?;
                Ok(MissionProgress {
                    id,
                    title,
                    landed,
                    tasks,
                    place: lead::queue_position(self.board, id),
                })
            })
            .collect()
    }

    fn lanes(&self) -> Vec<AgentLaneView> {
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
                provider: lanes::provider_or_runtime(agent),
                at: lane_state.state,
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
                .filter(|agent| lanes::provider_or_runtime(agent) == name)
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

    fn queues(&self) -> Result<Vec<QueuePage>, StoreError> {
        let board = self.board;
        let queue_page = |project: &Arc<regatta_core::project::Project>| {
            let (recent, median_ms) = self.ended_landings(project)?;
            let queued = || board.queue_of(&project.name);
            let landing_actions = queued().filter_map(|landing| {
                Some((
                    landing.id,
                    actions::task_actions(board.tasks.get(&landing.task)?, Some(landing)),
                ))
            });
            let expected = queued()
                .filter_map(|landing| Some((landing.id, landing.queued_unix_ms + median_ms?)))
                .collect();
            Ok(QueuePage {
                tip: recent.iter().find_map(|landing| landing.commit.clone()),
                text: queue_text(queued().count(), median_ms),
                actions: actions::queue_actions(&project.name, project.queue.held.is_some()),
                landing_actions: landing_actions.collect(),
                expected,
                queue: QueueView::new(board, project, self.now, (recent, median_ms)),
            })
        };
        board.projects.values().map(queue_page).collect()
    }

    fn ended_key(&self, project: &regatta_core::project::Project) -> EndedLandingsKey {
        let landing_ids: Vec<_> = self
            .board
            .queue_of(&project.name)
            .map(|landing| landing.id)
            .collect();
        (
            landing_ids,
            self.shared.event_fanout.finished_after(0).len(),
            self.now.unix_ms / 1_000,
        )
    }

    /// Returns a project's ended landings and the median time to land, from a cache. They change
    /// only when a landing ends, which also changes the queue or the ended tasks. The second in the
    /// key covers changes between two requests.
    fn ended_landings(
        &self,
        project: &regatta_core::project::Project,
    ) -> Result<EndedLandings, StoreError> {
        let key = self.ended_key(project);
        let mut cache = self
            .shared
            .live_caches
            .ended_landings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ended)) = cache
            .get(&project.name)
            .filter(|(cached_key, _)| *cached_key == key)
        {
            return Ok(ended.clone());
        }
        let landings = self
            .history
            .landings(&project.name, MAX_ENDED_LANDINGS)?
            .into_iter()
            .filter(|landing| landing.end.is_some());
        let landings_with_tasks = landings
            .map(|landing| Ok((self.history.task(landing.task)?, landing)))
            .collect::<Result<Vec<_>, StoreError>>()?;
        let median_ms = landing::median_time_ms(
            landings_with_tasks
                .iter()
                .map(|(task, landing)| (landing, task.as_ref())),
        );
        let ended = (
            landings_with_tasks
                .iter()
                .map(|(task, landing)| LandingView::from_ended(landing, task.as_ref()))
                .collect(),
            median_ms,
        );
        cache.insert(project.name.clone(), (key, ended.clone()));
        Ok(ended)
    }

    /// Returns the teams that are not deleted, each with its last launches.
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
            // The time since the last output is left out, because it would be a change in every
            // frame.
            view.live
                .iter_mut()
                .for_each(|member_live| member_live.silent_ms = None);
            let member_actions = view
                .live
                .iter()
                .map(|member| {
                    (
                        member.name.clone(),
                        actions::member_actions(&team.name, member),
                    )
                })
                .collect();
            Ok(TeamPage {
                actions: actions::team_actions(&team.name, view.up),
                member_actions,
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
            text: spend_text(&spent, today.cap),
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

    fn cost_input(&self) -> CostInput<'_> {
        let git = &**self.shared.engine.git();
        CostInput {
            board: self.board,
            now: self.now,
            history: self.history,
            git,
            max_measured: MAX_DIFFS_PER_FRAME,
        }
    }

    /// Returns an ended task from a cache. An ended task does not change until it is started again
    /// and ends again.
    fn ended_task(&self, id: TaskId, wall: u64) -> Result<Option<Arc<Task>>, StoreError> {
        let mut cache = self
            .shared
            .live_caches
            .ended_tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, task)) = cache.get(&id).filter(|(ended_at, _)| *ended_at == wall) {
            return Ok(Some(task.clone()));
        }
        let Some(task) = self.history.task(id)?.map(Arc::new) else {
            return Ok(None);
        };
        if cache.len() >= 2 * MAX_ENDED_TASKS {
            cache.clear();
        }
        cache.insert(id, (wall, task.clone()));
        Ok(Some(task))
    }

    fn task_rows(&self) -> Result<Vec<TaskRowView>, StoreError> {
        Ok(self
            .listed_tasks()?
            .iter()
            .map(|task| self.task_row(task))
            .collect())
    }

    /// Returns the open tasks, and the tasks that ended recently.
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
                file_map::file_cells(self.board, &project.name, &landed, (self.now, MAX_PATHS));
            let text = files_text(&cells, landed.values().sum());
            let (project, radar) = (project.name.clone(), project.collision_forecast.clone());
            Ok(ProjectFilesView {
                project,
                folders: file_map::folder_cells(cells),
                text,
                radar,
            })
        };
        self.board.projects.values().map(files_view).collect()
    }

    /// Returns the number of changes that landed today, per file, from a cache. It changes only
    /// when a landing ends.
    fn landed_today(
        &self,
        project: &regatta_core::project::Project,
    ) -> Result<BTreeMap<String, u32>, StoreError> {
        let key = self.ended_key(project);
        let mut cache = self
            .shared
            .live_caches
            .landed_today
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, landed)) = cache
            .get(&project.name)
            .filter(|(cached_key, _)| *cached_key == key)
        {
            return Ok(landed.clone());
        }
        let day = budget::day_of(self.now);
        let mut landed = BTreeMap::new();
        for landing in self.history.landings(&project.name, MAX_COUNTED_LANDINGS)? {
            let Some(LandingEnd::Landed { unix_ms: wall, .. }) = landing.end else {
                continue;
            };
            if wall / 86_400_000 == day {
                landing
                    .submission
                    .changed
                    .into_iter()
                    .for_each(|path| *landed.entry(path).or_default() += 1);
            }
        }
        cache.insert(project.name.clone(), (key, landed.clone()));
        Ok(landed)
    }
}

/// Builds the row of a task from a board.
pub(crate) fn task_row(board: &Board, task: &Task, now: Now) -> TaskRowView {
    let reason = || {
        schedule::wait_reasons(board, task, now)
            .into_iter()
            .next()
            .map(|wait_reason| wait_reason.text)
    };
    let at = display_state(board, task);
    let text = match task.attempt {
        // The request says more than the last progress report.
        Some(_) if at == DisplayState::Needs => {
            regatta_core::task_timeline::current_activity(board, task, now).1
        }
        Some(_) => task.progress.lines().next().unwrap_or_default().to_owned(),
        None => reason().or_else(|| task.reason.clone()).unwrap_or_default(),
    };
    TaskRowView {
        id: task.id,
        project: task.project.clone(),
        mission: task.mission,
        subject: task.subject.clone(),
        // The same as the state on the page: an attempt that waits for an answer, or an idle
        // session, is not working.
        word: if at == DisplayState::Needs {
            TaskStatus::NeedsHuman.label()
        } else {
            view::task_state_label(board, task)
        }
        .into(),
        at,
        agent: task.agent.clone().or_else(|| task.assignee.clone()),
        text,
        since_wall: task.updated_unix_ms,
        blocked_by: task.blocked_by.clone(),
        wave: task.wave,
        priority: task.priority,
        micro_usd: task.spent.usage.micro_usd,
    }
}

/// Returns a summary of a project's files in words.
fn files_text(cells: &[file_map::FileCell], landed: u32) -> String {
    let count = |is_counted: &dyn Fn(&file_map::FileCell) -> bool| {
        cells.iter().filter(|cell| is_counted(cell)).count()
    };
    let overlaps = count(&|cell| !cell.clashing_tasks.is_empty());
    let overlaps = if overlaps == 0 {
        String::new()
    } else {
        format!("overlaps at {overlaps} · ")
    };
    let (held_count, wanted_count) = (
        count(&|cell| !cell.held.is_empty()),
        count(&|cell| !cell.wanted.is_empty()),
    );
    format!("{overlaps}{held_count} held · {wanted_count} wanted · {landed} changes landed today")
}

/// Number of open tasks per state; the same numbers for the page and for `status`.
pub(crate) struct StateCounts(BTreeMap<DisplayState, usize>);

impl StateCounts {
    /// Counts the tasks of the projects that are `wanted`. The sessions of teams are left out,
    /// because the team's page shows them.
    pub(crate) fn new(board: &Board, wanted: impl Fn(&ProjectName) -> bool) -> StateCounts {
        let mut counts = BTreeMap::new();
        for task in board
            .tasks
            .values()
            .filter(|task| task.session_of.is_none() && wanted(&task.project))
        {
            *counts.entry(display_state(board, task)).or_default() += 1;
        }
        StateCounts(counts)
    }

    pub(crate) fn count(&self, at: DisplayState) -> usize {
        self.0.get(&at).copied().unwrap_or_default()
    }
}

/// Returns the state of a task.
pub(super) fn display_state(board: &Board, task: &Task) -> DisplayState {
    let attempt = task.attempt.and_then(|id| board.attempts.get(&id));
    let has_open_request =
        attempt.is_some_and(|attempt| approval::open_request_of(board, attempt).is_some());
    match task.status {
        _ if has_open_request => DisplayState::Needs,
        TaskStatus::Completed => DisplayState::Landed,
        TaskStatus::Failed | TaskStatus::Cancelled => DisplayState::Failed,
        TaskStatus::NeedsHuman => DisplayState::Needs,
        TaskStatus::InReview => DisplayState::Review,
        TaskStatus::Landing => DisplayState::Landing,
        // A member's session is in progress as long as it runs, even if the member is idle.
        _ if launch::activity_of_task(board, task, None)
            .is_some_and(|member_activity| member_activity == MemberActivity::Idle) =>
        {
            DisplayState::Idle
        }
        TaskStatus::InProgress | TaskStatus::Validating => DisplayState::Working,
        TaskStatus::Backlog
        | TaskStatus::Unassigned
        | TaskStatus::Offered
        | TaskStatus::Pending => DisplayState::Waiting,
    }
}

/// Returns the inbox items that are not hidden, the longest waiting first.
pub(super) fn inbox_items(board: &Board, now: Now) -> Vec<InboxItemView> {
    let all = InboxView::list(board, None, now)
        .into_iter()
        .filter(InboxView::is_shown);
    let view = |inbox: InboxView| InboxItemView {
        actions: actions::inbox_actions(&inbox),
        group: inbox.group_key(),
        item: inbox,
    };
    all.map(view).collect()
}

/// Returns the length of the queue and the usual time to land, in words.
fn queue_text(count: usize, median_ms: Option<u64>) -> String {
    let text = match count {
        0 => "nothing waits to land".to_owned(),
        count => format!("{count} queued"),
    };
    match median_ms.map(|ms| ms.div_ceil(1_000).max(1)) {
        None => text,
        Some(seconds @ 0..120) => format!("{text} · one took about {seconds} s to land"),
        Some(seconds) => format!(
            "{text} · one took about {} min to land",
            seconds.div_ceil(60)
        ),
    }
}

/// Returns the cost in words. An unknown cost is not shown as zero.
fn spend_text(today: &Spend, cap: Option<u64>) -> String {
    let usd = |micro: u64| {
        let cents = (micro + 5_000) / 10_000;
        format!("${}.{:02}", cents / 100, cents % 100)
    };
    let tokens = today.usage.tokens();
    let spent = match today.usage.micro_usd {
        Some(micro) => usd(micro),
        None if tokens == 0 => "nothing yet".into(),
        None => format!("{tokens} tokens, no price reported"),
    };
    cap.map_or(spent.clone(), |cap| format!("{spent} of {}", usd(cap)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spend_is_described_in_words_and_an_unknown_price_is_not_zero() {
        let spend = |micro_usd: Option<u64>, input: u64| {
            let mut spend = Spend::default();
            (spend.usage.micro_usd, spend.usage.input) = (micro_usd, input);
            spend
        };
        assert_eq!(spend_text(&spend(None, 0), None), "nothing yet");
        assert_eq!(
            spend_text(&spend(None, 12), None),
            "12 tokens, no price reported"
        );
        assert_eq!(spend_text(&spend(Some(2_845_000), 9), None), "$2.85");
        assert_eq!(
            spend_text(&spend(Some(1_000_000), 9), Some(4_000_000)),
            "$1.00 of $4.00"
        );
        assert_eq!(
            spend_text(&spend(None, 0), Some(4_000_000)),
            "nothing yet of $4.00"
        );
    }

    #[test]
    fn queue_text_has_the_duration_of_one_landing() {
        assert_eq!(queue_text(0, None), "nothing waits to land");
        assert_eq!(
            queue_text(2, Some(1_900)),
            "2 queued · one took about 2 s to land"
        );
        assert_eq!(
            queue_text(1, Some(150_000)),
            "1 queued · one took about 3 min to land"
        );
    }
}
