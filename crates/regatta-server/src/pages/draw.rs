//! Builds the entities of each topic from the board and the history.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use regatta_api::Problem;
use regatta_api::page::{
    At, BarsView, ConversationPage, CostPage, FilesView, HeadView, ItemView, LaneView, MissionLine, Part, ProjectLine,
    RowView, SharesView, Size, SpendView, TeamPage, TrainView,
};
use regatta_api::team::TeamView;
use regatta_api::view::{self, BudgetsView, ConversationLineView, InboxView, LandingView, QueueView, RunnerView};
use regatta_core::board::Board;
use regatta_core::budget::{self, Spend};
use regatta_core::cost::By;
use regatta_core::ids::{AgentName, LandingId, MissionId, Now, ProjectName, TaskId};
use regatta_core::landing::{self, End};
use regatta_core::launch::{self, Live};
use regatta_core::task::{Status, Task};
use regatta_core::{agent, approval, lead, map, provider, schedule};
use regatta_engine::ports::store::{History, StoreError, TaskFilter};
use serde::Serialize;
use serde_json::value::RawValue;

use super::live::{Drawn, Topic};
use super::{act, lanes, task};
use crate::Shared;
use crate::calls::{blocking, unread};
use crate::spent::Ground;

/// Numbers of agents above which agents are shown as cells, and as thin rows.
const MANY: usize = 60;
const FEW: usize = 12;
/// Number of launches of a team that are shown.
const LAUNCHES: usize = 6;
/// Number of ended landings that a queue shows.
const RECENT: usize = 20;
/// Maximum numbers of ended and of open tasks in the list.
const MOST_ENDED: usize = 300;
const MOST_OPEN: usize = 3_000;
/// Maximum number of changes that git is asked for per frame.
const MEASURED_A_FRAME: usize = 8;
/// Maximum numbers of paths in the map of files, and of landings that are counted for it.
const MOST_PATHS: usize = 2_000;
const MOST_HEAT: usize = 1_000;

/// Returns the numbers of landed tasks and of all tasks of a mission. The task of a lead's own
/// turns does not count, because it lands nothing. A led mission has few tasks, so they are read
/// one by one.
pub(crate) fn landed_of(history: &dyn History, mission: MissionId, is_led: bool) -> Result<(u64, u64), StoreError> {
    let filter = |statuses| TaskFilter { mission: Some(mission), statuses, ..TaskFilter::default() };
    if !is_led {
        return Ok((history.count_tasks(&filter(vec![Status::Completed]))?, history.count_tasks(&filter(vec![]))?));
    }
    let mut tasks = history.tasks(&filter(vec![]))?;
    tasks.retain(Task::is_work);
    let landed = tasks.iter().filter(|task| task.status == Status::Completed).count();
    Ok((landed as u64, tasks.len() as u64))
}

/// Builds topics from one board. Returns each topic's entities with the board's revision.
pub(super) async fn topics(
    shared: &Arc<Shared>,
    topics: Vec<Topic>,
) -> BTreeMap<Topic, Result<(u64, Vec<Drawn>), Problem>> {
    if topics.is_empty() {
        return BTreeMap::new();
    }
    let (board, now, wanted) = (shared.engine.board(), shared.engine.now(), topics.clone());
    let shared = shared.clone();
    let work = move || {
        let history = &**shared.engine.history();
        shared.pages.lanes.look(&board, now);
        let scene = Scene { board: &board, now, shared: &shared, history };
        let draw = |it: Topic| (it, scene.draw(it).map(|drawn| (board.revision, drawn)).map_err(unread));
        topics.into_iter().map(draw).collect()
    };
    match blocking(work).await {
        Ok(drawn) => drawn,
        Err(problem) => wanted.into_iter().map(|it| (it, Err(problem.clone()))).collect(),
    }
}

/// Ended landings, and the median time to land in milliseconds.
pub(super) type Ended = (Vec<LandingView>, Option<u64>);
/// The queue, the number of ended tasks, and the second. While this key is unchanged, so are the
/// ended landings.
pub(super) type EndedKey = (Vec<LandingId>, usize, u64);

/// The sources of the entities.
pub(super) struct Scene<'a> {
    pub(super) board: &'a Arc<Board>,
    pub(super) now: Now,
    pub(super) shared: &'a Shared,
    pub(super) history: &'a dyn History,
}

fn entity<T: Serialize>(key: String, value: &T) -> Option<Drawn> {
    let text = serde_json::to_string(value).ok()?;
    Some((key, RawValue::from_string(text).ok()?))
}

impl Scene<'_> {
    fn draw(&self, topic: Topic) -> Result<Vec<Drawn>, StoreError> {
        Ok(match topic {
            Topic::Head => entity("head".into(), &self.head()?).into_iter().collect(),
            Topic::Inbox => {
                let items = items(self.board, self.now);
                items.iter().filter_map(|it| entity(format!("item/{}", it.item.id), it)).collect()
            }
            Topic::Lanes => {
                let lanes = self.lanes();
                lanes.iter().filter_map(|it| entity(format!("lane/{}", it.agent), it)).collect()
            }
            Topic::Bars => {
                let names = self.board.agents.keys().take(MANY);
                names.filter_map(|it| entity(format!("bars/{it}"), &self.bars(it))).collect()
            }
            Topic::Shares => {
                self.shares().iter().filter_map(|it| entity(format!("share/{}", it.provider), it)).collect()
            }
            Topic::Queue => {
                let trains = self.trains()?;
                trains.iter().filter_map(|it| entity(format!("train/{}", it.queue.project), it)).collect()
            }
            Topic::Spend => entity("spend".into(), &self.spend()?).into_iter().collect(),
            Topic::Cost => entity("cost".into(), &self.cost()?).into_iter().collect(),
            Topic::Tasks => self.rows()?.iter().filter_map(|it| entity(format!("task/{}", it.id), it)).collect(),
            Topic::Files => self.files()?.iter().filter_map(|it| entity(format!("files/{}", it.project), it)).collect(),
            Topic::Runners => {
                let runners = self.board.runners.values().map(|it| RunnerView::of(self.board, it));
                runners.filter_map(|it| entity(format!("runner/{}", it.name), &it)).collect()
            }
            Topic::Teams => {
                let teams = self.teams()?;
                teams.iter().filter_map(|it| entity(format!("team/{}", it.team.desired.name), it)).collect()
            }
            Topic::Conversations => {
                let open = self
                    .board
                    .conversations
                    .values()
                    .map(|it| ConversationPage { line: ConversationLineView::of(it), actions: act::conversation(it) });
                open.filter_map(|it| entity(format!("conversation/{}", it.line.id), &it)).collect()
            }
            Topic::Graph(of) => self.graph(of, None)?.and_then(|it| entity("graph".into(), &it)).into_iter().collect(),
            Topic::Task(id) => self.task(id)?.and_then(|it| entity(id.to_string(), &it)).into_iter().collect(),
        })
    }

    fn task(&self, id: TaskId) -> Result<Option<regatta_api::page::TaskPage>, StoreError> {
        task::page(self, id)
    }

    fn head(&self) -> Result<HeadView, StoreError> {
        let board = self.board;
        // Counted as in the lanes and in the list: an attempt that waits for an answer is not
        // working.
        let counts = Counts::new(board, |_| true);
        let count = |at: At| counts.of(at);
        let needs_you = items(board, self.now).len();
        let missions = self.missions()?;
        let part = |text: String, strong: bool, to: &str| Part { text, strong, to: Some(to.into()) };
        let mut sentence = vec![
            part(format!("{} working", count(At::Working)), true, "/tasks?at=working"),
            part(format!("{} waiting", count(At::Waiting)), false, "/tasks?at=waiting"),
            part(format!("{needs_you} need{} you", if needs_you == 1 { "s" } else { "" }), needs_you > 0, "/inbox"),
        ];
        let landing = count(At::Landing);
        if landing > 0 {
            sentence.push(part(format!("{landing} landing"), false, "/queue"));
        }
        for it in missions.iter().take(2) {
            let text = format!("“{}” {}", it.title, it.progress());
            sentence.push(part(text, false, &format!("/tasks?mission={}", it.id)));
        }
        if missions.len() > 2 {
            sentence.push(part(format!("{} more missions", missions.len() - 2), false, "/tasks"));
        }
        if let Some(text) = &self.shared.recovered {
            sentence.push(Part { text: text.clone(), strong: false, to: Some("/events".into()) });
        }
        if board.projects.is_empty() {
            let text = "no repository is under management yet: regatta init".into();
            sentence = vec![Part { text, strong: true, to: None }];
        }
        let agents = board.agents.len();
        Ok(HeadView {
            sentence,
            needs_you,
            running: schedule::machine_running(board),
            slots: board.limits.max_attempts,
            agents,
            size: if agents > MANY {
                Size::Many
            } else if agents > FEW {
                Size::Some
            } else {
                Size::Few
            },
            projects: board
                .projects
                .values()
                .map(|it| ProjectLine { name: it.name.clone(), trunk: it.trunk.to_string(), path: it.location.clone() })
                .collect(),
            missions,
            version: env!("CARGO_PKG_VERSION").into(),
            composers: act::composers(board, board.projects.values().any(|it| it.settings.leads.agent.is_some())),
            tasks: board.counters.task,
        })
    }

    fn missions(&self) -> Result<Vec<MissionLine>, StoreError> {
        let running = self.board.missions.values().rev().take(20);
        running
            .map(|it| {
                let (id, title) = (it.id, it.title.clone());
                let (landed, tasks) = landed_of(self.history, id, it.lead.is_some())?;
                Ok(MissionLine { id, title, landed, tasks, place: lead::place(self.board, id) })
            })
            .collect()
    }

    fn lanes(&self) -> Vec<LaneView> {
        let (board, day) = (self.board, budget::day_of(self.now));
        let stands = self.shared.pages.lanes.stands(board, self.now);
        let mut live = BTreeMap::new();
        for attempt in board.attempts.values() {
            live.entry(&attempt.agent).or_insert(attempt);
        }
        let lane = |agent: &Arc<agent::Agent>| {
            let (stand, since_wall) = stands.get(&agent.name)?.clone();
            let attempt = live.get(&agent.name);
            let context = attempt.and_then(|it| it.talk.context).filter(|it| it.1 > 0);
            let context = context.map(|(used, size)| u32::try_from((used * 100 / size).min(100)).unwrap_or(100));
            let subject = stand.task.and_then(|it| board.tasks.get(&it)).map(|it| it.subject.clone());
            let held = agent.offline.is_some() || provider::parked(board, agent).is_some();
            Some(LaneView {
                provider: lanes::family(agent),
                at: stand.at,
                text: stand.text,
                task: stand.task,
                subject: subject.unwrap_or_default(),
                since_wall,
                capacity: agent::capacity(board, agent),
                wanted: agent.profile.model.clone().unwrap_or_default(),
                running: attempt.and_then(|it| it.talk.model.clone()).unwrap_or_default(),
                context,
                micro_usd: budget::spent_on(board, day, Some(&agent.name)).usage.micro_usd,
                actions: act::agent(&agent.name, held, attempt.map(|it| it.standing.is_some())),
                agent: agent.name.clone(),
            })
        };
        board.agents.values().filter_map(lane).collect()
    }

    fn bars(&self, agent: &AgentName) -> BarsView {
        BarsView { agent: agent.clone(), bars: self.shared.pages.lanes.bars(agent) }
    }

    fn shares(&self) -> Vec<SharesView> {
        let lanes = |name: &str| self.board.agents.values().filter(|it| lanes::family(it) == name).count();
        let all = self.shared.pages.lanes.shares().into_iter();
        all.map(|(provider, minutes)| SharesView { lanes: lanes(&provider), provider, minutes }).collect()
    }

    fn trains(&self) -> Result<Vec<TrainView>, StoreError> {
        let board = self.board;
        let train = |project: &Arc<regatta_core::project::Project>| {
            let (recent, usual) = self.ended_landings(project)?;
            let queued = || board.queue_of(&project.name);
            let each = queued().filter_map(|it| Some((it.id, act::task(board.tasks.get(&it.task)?, Some(it)))));
            let expected = queued().filter_map(|it| Some((it.id, it.queued_wall + usual?))).collect();
            Ok(TrainView {
                tip: recent.iter().find_map(|it| it.commit.clone()),
                text: queue_text(queued().count(), usual),
                actions: act::queue(&project.name, project.queue.held.is_some()),
                each: each.collect(),
                expected,
                queue: QueueView::of(board, project, self.now, (recent, usual)),
            })
        };
        board.projects.values().map(train).collect()
    }

    fn ended_key(&self, project: &regatta_core::project::Project) -> EndedKey {
        let line: Vec<_> = self.board.queue_of(&project.name).map(|it| it.id).collect();
        (line, self.shared.hub.finished_after(0).len(), self.now.wall / 1_000)
    }

    /// Returns a project's ended landings and the median time to land, from a cache. They change
    /// only when a landing ends, which also changes the queue or the ended tasks. The second in the
    /// key covers changes between two requests.
    fn ended_landings(&self, project: &regatta_core::project::Project) -> Result<Ended, StoreError> {
        let key = self.ended_key(project);
        let mut kept = self.shared.pages.landings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ended)) = kept.get(&project.name).filter(|it| it.0 == key) {
            return Ok(ended.clone());
        }
        let landings = self.history.landings(&project.name, RECENT)?.into_iter().filter(|it| it.end.is_some());
        let all = landings.map(|it| Ok((self.history.task(it.task)?, it))).collect::<Result<Vec<_>, StoreError>>()?;
        let usual = landing::usual(all.iter().map(|(task, it)| (it, task.as_ref())));
        let ended = (all.iter().map(|(task, it)| LandingView::ended(it, task.as_ref())).collect(), usual);
        kept.insert(project.name.clone(), (key, ended.clone()));
        Ok(ended)
    }

    /// Returns the teams that are not deleted, each with its last launches.
    fn teams(&self) -> Result<Vec<TeamPage>, StoreError> {
        let (board, agents, wall) = (self.board, self.shared.engine.agents(), self.now.wall);
        let silent = |id| agents.last_word(id).map(|it| wall.saturating_sub(it));
        let draw = |it: &Arc<regatta_core::team::Team>| {
            let past = self.history.launches(&it.name, LAUNCHES)?;
            let history = past.into_iter().filter(|one| Some(one.id) != it.launch).collect();
            let mut team = TeamView { history, ..TeamView::of(board, it, silent) };
            // The time since the last output is left out, because it would be a change in every
            // frame.
            team.live.iter_mut().for_each(|it| it.silent_ms = None);
            let each = team.live.iter().map(|one| (one.name.clone(), act::member(&it.name, one))).collect();
            Ok(TeamPage { actions: act::team(&it.name, team.up), each, team })
        };
        board.teams.values().filter(|it| it.deleted_wall.is_none()).map(draw).collect()
    }

    fn spend(&self) -> Result<SpendView, StoreError> {
        let today = self.shared.spent.today(&self.ground())?;
        let spent = budget::spent_on(self.board, budget::day_of(self.now), None);
        Ok(SpendView {
            text: spend_text(&spent, today.cap),
            today: spent,
            cap: today.cap,
            forecast: today.forecast,
            line: today.line,
            bands: today.bands,
        })
    }

    fn cost(&self) -> Result<CostPage, StoreError> {
        let budgets = BudgetsView::of(self.board, self.now, 0).budgets;
        Ok(CostPage { cost: self.shared.spent.cost(&self.ground(), 0, &By::ALL)?, budgets })
    }

    fn ground(&self) -> Ground<'_> {
        let git = &**self.shared.engine.git();
        Ground { board: self.board, now: self.now, history: self.history, git, measured: MEASURED_A_FRAME }
    }

    /// Returns an ended task from a cache. An ended task does not change until it is started again
    /// and ends again.
    fn ended_task(&self, id: TaskId, wall: u64) -> Result<Option<Arc<Task>>, StoreError> {
        let mut kept = self.shared.pages.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, task)) = kept.get(&id).filter(|it| it.0 == wall) {
            return Ok(Some(task.clone()));
        }
        let Some(task) = self.history.task(id)?.map(Arc::new) else { return Ok(None) };
        if kept.len() >= 2 * MOST_ENDED {
            kept.clear();
        }
        kept.insert(id, (wall, task.clone()));
        Ok(Some(task))
    }

    fn rows(&self) -> Result<Vec<RowView>, StoreError> {
        Ok(self.shown()?.iter().map(|it| self.row(it)).collect())
    }

    /// Returns the open tasks, and the tasks that ended recently.
    pub(super) fn shown(&self) -> Result<Vec<Arc<Task>>, StoreError> {
        let mut shown: Vec<Arc<Task>> = self.board.tasks.values().take(MOST_OPEN).cloned().collect();
        for it in self.shared.hub.finished_after(0).into_iter().rev().take(MOST_ENDED) {
            if !self.board.tasks.contains_key(&it.task)
                && let Some(task) = self.ended_task(it.task, it.wall)?
            {
                shown.push(task);
            }
        }
        Ok(shown)
    }

    pub(super) fn row(&self, it: &Task) -> RowView {
        row(self.board, it, self.now)
    }

    fn files(&self) -> Result<Vec<FilesView>, StoreError> {
        let draw = |project: &Arc<regatta_core::project::Project>| {
            let landed = self.landed_today(project)?;
            let spots = map::spots(self.board, &project.name, &landed, (self.now, MOST_PATHS));
            let text = files_text(&spots, landed.values().sum());
            let (project, radar) = (project.name.clone(), project.radar.clone());
            Ok(FilesView { project, folders: map::folders(spots), text, radar })
        };
        self.board.projects.values().map(draw).collect()
    }

    /// Returns the number of changes that landed today, per file, from a cache. It changes only
    /// when a landing ends.
    fn landed_today(&self, project: &regatta_core::project::Project) -> Result<BTreeMap<String, u32>, StoreError> {
        let key = self.ended_key(project);
        let mut kept = self.shared.pages.heat.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, landed)) = kept.get(&project.name).filter(|it| it.0 == key) {
            return Ok(landed.clone());
        }
        let day = budget::day_of(self.now);
        let mut landed = BTreeMap::new();
        for it in self.history.landings(&project.name, MOST_HEAT)? {
            let Some(End::Landed { wall, .. }) = it.end else { continue };
            if wall / 86_400_000 == day {
                it.submission.changed.into_iter().for_each(|path| *landed.entry(path).or_default() += 1);
            }
        }
        kept.insert(project.name.clone(), (key, landed.clone()));
        Ok(landed)
    }
}

/// Builds the row of a task from a board.
pub(crate) fn row(board: &Board, it: &Task, now: Now) -> RowView {
    let reason = || schedule::wait_reasons(board, it, now).into_iter().next().map(|it| it.text);
    let at = at(board, it);
    let text = match it.attempt {
        // The request says more than the last progress report.
        Some(_) if at == At::Needs => regatta_core::life::doing(board, it, now).1,
        Some(_) => it.progress.lines().next().unwrap_or_default().to_owned(),
        None => reason().or_else(|| it.reason.clone()).unwrap_or_default(),
    };
    RowView {
        id: it.id,
        project: it.project.clone(),
        mission: it.mission,
        subject: it.subject.clone(),
        // As it is drawn: an attempt that waits for an answer, or an idle session, is not working.
        word: if at == At::Needs { Status::NeedsHuman.word() } else { view::word_on(board, it) }.into(),
        at,
        agent: it.agent.clone().or_else(|| it.assignee.clone()),
        text,
        since_wall: it.updated_wall,
        blocked_by: it.blocked_by.clone(),
        wave: it.wave,
        priority: it.priority,
        micro_usd: it.spent.usage.micro_usd,
    }
}

/// Returns a summary of a project's files in words.
fn files_text(spots: &[map::Spot], landed: u32) -> String {
    let count = |of: &dyn Fn(&map::Spot) -> bool| spots.iter().filter(|it| of(it)).count();
    let meet = count(&|it| !it.clash.is_empty());
    let meet = if meet == 0 { String::new() } else { format!("overlaps at {meet} · ") };
    let (held, wanted) = (count(&|it| !it.held.is_empty()), count(&|it| !it.wanted.is_empty()));
    format!("{meet}{held} held · {wanted} wanted · {landed} changes landed today")
}

/// Number of open tasks per state; the same numbers for the page and for `status`.
pub(crate) struct Counts(BTreeMap<At, usize>);

impl Counts {
    /// Counts the tasks of the projects that are `wanted`. The sessions of teams are left out,
    /// because the team's page shows them.
    pub(crate) fn new(board: &Board, wanted: impl Fn(&ProjectName) -> bool) -> Counts {
        let mut counts = BTreeMap::new();
        for task in board.tasks.values().filter(|task| task.standing.is_none() && wanted(&task.project)) {
            *counts.entry(at(board, task)).or_default() += 1;
        }
        Counts(counts)
    }

    pub(crate) fn of(&self, at: At) -> usize {
        self.0.get(&at).copied().unwrap_or_default()
    }
}

/// Returns the state of a task.
pub(super) fn at(board: &Board, it: &Task) -> At {
    let attempt = it.attempt.and_then(|id| board.attempts.get(&id));
    let asked = attempt.is_some_and(|it| approval::open_of(board, it).is_some());
    match it.status {
        _ if asked => At::Needs,
        Status::Completed => At::Landed,
        Status::Failed | Status::Cancelled => At::Failed,
        Status::NeedsHuman => At::Needs,
        Status::InReview => At::Review,
        Status::Landing => At::Landing,
        // A member's session is in progress as long as it runs, even if the member is idle.
        _ if launch::at(board, it, None).is_some_and(|it| it == Live::Idle) => At::Idle,
        Status::InProgress | Status::Validating => At::Working,
        Status::Backlog | Status::Unassigned | Status::Offered | Status::Pending => At::Waiting,
    }
}

/// Returns the inbox items that are not hidden, the longest waiting first.
pub(super) fn items(board: &Board, now: Now) -> Vec<ItemView> {
    let all = InboxView::all(board, None, now).into_iter().filter(InboxView::is_awake);
    let drawn = |it: InboxView| ItemView { actions: act::item(&it), group: it.group(), item: it };
    all.map(drawn).collect()
}

/// Returns the length of the queue and the usual time to land, in words.
fn queue_text(many: usize, usual: Option<u64>) -> String {
    let text = match many {
        0 => "nothing waits to land".to_owned(),
        many => format!("{many} in line"),
    };
    match usual.map(|it| it.div_ceil(1_000).max(1)) {
        None => text,
        Some(seconds @ 0..120) => format!("{text} · one took about {seconds} s to land"),
        Some(seconds) => format!("{text} · one took about {} min to land", seconds.div_ceil(60)),
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
            let mut it = Spend::default();
            (it.usage.micro_usd, it.usage.input) = (micro_usd, input);
            it
        };
        assert_eq!(spend_text(&spend(None, 0), None), "nothing yet");
        assert_eq!(spend_text(&spend(None, 12), None), "12 tokens, no price reported");
        assert_eq!(spend_text(&spend(Some(2_845_000), 9), None), "$2.85");
        assert_eq!(spend_text(&spend(Some(1_000_000), 9), Some(4_000_000)), "$1.00 of $4.00");
        assert_eq!(spend_text(&spend(None, 0), Some(4_000_000)), "nothing yet of $4.00");
    }

    #[test]
    fn queue_text_has_the_duration_of_one_landing() {
        assert_eq!(queue_text(0, None), "nothing waits to land");
        assert_eq!(queue_text(2, Some(1_900)), "2 in line · one took about 2 s to land");
        assert_eq!(queue_text(1, Some(150_000)), "1 in line · one took about 3 min to land");
    }
}
