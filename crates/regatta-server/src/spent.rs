//! An index of cost, read from the event log once and then kept up to date.
//!
//! The first request of a day reads the log from that day's first revision; later requests continue
//! from there. Ended attempts and tasks no longer change and are read once. Git is asked once for
//! the number of lines of a change. When a new day begins, the days before those that were
//! requested on the previous day are dropped, and read again if somebody asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use regatta_api::view::{CameView, CostRow, CostTable, CostView, LinesView};
use regatta_core::attempt::Attempt;
use regatta_core::board::Board;
use regatta_core::budget::{self, Spend};
use regatta_core::cost::{self, Band, Book, By, Entry, Forecast, Pace, Sum};
use regatta_core::event::Event;
use regatta_core::ids::{AgentName, AttemptId, CommitId, MissionId, Now, ProjectName, TaskId};
use regatta_core::task::{Status, Task};
use regatta_engine::ports::git::{Git, Repo};
use regatta_engine::ports::store::{History, StoreError, first_since};

use crate::pages::family;

const DAY_MS: u64 = 24 * 3_600_000;
/// Maximum number of landed changes whose lines are counted, the latest first.
pub(crate) const MOST_MEASURED: usize = 200;

/// The sources of the figures.
pub(crate) struct Ground<'a> {
    pub(crate) board: &'a Board,
    pub(crate) now: Now,
    pub(crate) history: &'a dyn History,
    pub(crate) git: &'a dyn Git,
    /// Maximum number of changes that git is asked for per request.
    pub(crate) measured: usize,
}

/// The part of the log that is kept in memory.
#[derive(Default)]
pub(crate) struct Spent {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The first day in the book.
    first: Option<u64>,
    /// The day of the last request, and the largest number of days before it that were requested.
    today: u64,
    back: u64,
    /// The revision up to which the log was read.
    after: u64,
    book: Book,
    /// Attempts that have ended.
    ended: BTreeMap<AttemptId, Who>,
    /// Tasks that have ended, with the date.
    finished: BTreeMap<TaskId, (u64, Finished)>,
    /// Number of lines of each landed change.
    lines: BTreeMap<CommitId, u64>,
}

/// The facts about an attempt that cost is grouped by.
#[derive(Clone)]
struct Who {
    task: TaskId,
    mission: Option<MissionId>,
    agent: AgentName,
    model: Option<String>,
    lost: bool,
}

impl Who {
    fn of(it: &Attempt) -> Who {
        Who {
            task: it.task,
            mission: it.mission,
            agent: it.agent.clone(),
            model: it.talk.model.clone(),
            lost: it.ended.as_ref().is_some_and(|it| cost::is_lost(it.cause)),
        }
    }

    /// Returns the provider that is paid; the agent's name if the agent was removed.
    fn provider(&self, board: &Board) -> String {
        board.agents.get(&self.agent).map_or_else(|| self.agent.to_string(), |it| family(it))
    }
}

/// Returns the facts about an attempt. Those of an ended attempt are read once and then kept.
fn who(
    ground: &Ground<'_>,
    ended: &mut BTreeMap<AttemptId, Who>,
    attempt: AttemptId,
) -> Result<Option<Who>, StoreError> {
    if let Some(who) = ended.get(&attempt) {
        return Ok(Some(who.clone()));
    }
    if let Some(live) = ground.board.attempts.get(&attempt) {
        return Ok(Some(Who::of(live)));
    }
    let Some(found) = ground.history.attempt(attempt)? else { return Ok(None) };
    let who = Who::of(&found);
    if found.ended.is_some() {
        ended.insert(attempt, who.clone());
    }
    Ok(Some(who))
}

/// The result of a task.
#[derive(Clone)]
struct Finished {
    project: ProjectName,
    status: Status,
    spent: Spend,
    /// The landed change: the commits before and after it.
    landed: Option<(CommitId, CommitId)>,
}

impl Finished {
    fn is_dropped(&self) -> bool {
        matches!(self.status, Status::Failed | Status::Cancelled)
    }

    fn of(it: &Task) -> Finished {
        let work = it.submission.as_ref().filter(|_| it.landed.is_some());
        Finished {
            project: it.project.clone(),
            status: it.status,
            spent: it.spent,
            landed: work.map(|it| (it.base.clone(), it.commit.clone())),
        }
    }
}

/// Today's cost against its ceiling.
pub(crate) struct Today {
    pub(crate) line: Vec<(u64, u64)>,
    pub(crate) bands: Vec<Band>,
    pub(crate) cap: Option<u64>,
    pub(crate) forecast: Option<Forecast>,
}

impl Spent {
    /// Returns the cost of today and of `days` days before, grouped by each dimension in `by`.
    pub(crate) fn cost(&self, ground: &Ground<'_>, days: u32, by: &[By]) -> Result<CostView, StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let day = budget::day_of(ground.now).saturating_sub(u64::from(days));
        kept.read(ground, day)?;
        let pace = kept.book.pace(ground.now);
        let finished = kept.finished(ground, day)?;
        let mut entries = kept.entries(ground, day)?;
        let dropped: BTreeSet<TaskId> = finished.iter().filter(|it| it.1.is_dropped()).map(|it| it.0).collect();
        entries.iter_mut().for_each(|it| it.lost |= dropped.contains(&it.task));
        let table = |by: &By| CostTable { by: *by, rows: rows(ground.board, ground.history, &entries, *by, &pace) };
        let cap = cap(ground.board).filter(|_| days == 0);
        let total = cost::sum(entries.iter(), &pace);
        Ok(CostView {
            days,
            since_wall: day * DAY_MS,
            tables: by.iter().map(table).collect(),
            cap,
            forecast: forecast(&total, cap, ground.now),
            total,
            came: kept.came(ground, &finished, &entries, &dropped),
        })
    }

    /// Returns today's cost by the minute, and when its ceiling is reached.
    pub(crate) fn today(&self, ground: &Ground<'_>) -> Result<Today, StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (day, cap) = (budget::day_of(ground.now), cap(ground.board));
        kept.read(ground, day)?;
        let mut total = Sum { spent: budget::spent_on(ground.board, day, None), ..Sum::default() };
        total.rate = kept.book.pace(ground.now).all();
        let (line, bands) = (kept.book.line(day), kept.book.bands(day));
        Ok(Today { line, bands, cap, forecast: forecast(&total, cap, ground.now) })
    }
}

fn cap(board: &Board) -> Option<u64> {
    board.budgets.get(&budget::Scope::Day).and_then(|it| it.ceiling.micro_usd)
}

fn forecast(total: &Sum, cap: Option<u64>, now: Now) -> Option<Forecast> {
    cost::forecast(total.spent.usage.micro_usd?, cap?, total.rate, now)
}

impl Kept {
    /// Reads new events, starting at the beginning of `day` if that was not read yet.
    fn read(&mut self, ground: &Ground<'_>, day: u64) -> Result<(), StoreError> {
        let (history, until) = (ground.history, ground.board.revision);
        self.ask(budget::day_of(ground.now), day);
        if self.first.is_none_or(|it| day < it) {
            let dated = |revision: u64| {
                let found = history.events(revision.saturating_sub(1), 1)?;
                Ok::<_, StoreError>(found.first().map(|it| (it.revision, it.now.wall)))
            };
            let first = first_since(day * DAY_MS, until, dated)?;
            (self.first, self.after, self.book) = (Some(day), first.saturating_sub(1), Book::default());
        }
        while self.after < until {
            let page = history.events(self.after, 500)?;
            if page.is_empty() {
                break;
            }
            for recorded in &page {
                let paid = match &recorded.event {
                    Event::BudgetSpent(it) => who(ground, &mut self.ended, *it.attempt())?,
                    _ => None,
                };
                self.book.fold(recorded, paid.map(|it| it.provider(ground.board)));
                self.after = recorded.revision;
            }
        }
        Ok(())
    }

    /// Records which day is requested. At the first request of a new day, days that were not
    /// requested on the previous day are dropped.
    fn ask(&mut self, today: u64, day: u64) {
        if today > self.today {
            let first = today.saturating_sub(self.back);
            if self.first.is_some_and(|it| it < first) {
                self.forget_before(first);
            }
            (self.today, self.back) = (today, 0);
        }
        self.back = self.back.max(today.saturating_sub(day));
    }

    fn forget_before(&mut self, day: u64) {
        self.first = Some(day);
        self.book.forget_before(day);
        let (spends, ends) = (self.book.since(day), self.book.ended_since(day));
        self.ended.retain(|it, _| spends.contains_key(it));
        let ends: BTreeSet<TaskId> = ends.into_iter().map(|it| it.1).collect();
        self.finished.retain(|it, _| ends.contains(it));
        let landed: BTreeSet<&CommitId> =
            self.finished.values().filter_map(|it| it.1.landed.as_ref().map(|it| &it.1)).collect();
        self.lines.retain(|it, _| landed.contains(it));
    }

    /// Returns the usage of each attempt with all dimensions that it can be grouped by.
    fn entries(&mut self, ground: &Ground<'_>, day: u64) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for (attempt, spend) in self.book.since(day) {
            let Some(who) = who(ground, &mut self.ended, attempt)? else { continue };
            entries.push(Entry {
                attempt,
                task: who.task,
                mission: who.mission,
                provider: who.provider(ground.board),
                agent: who.agent,
                model: who.model,
                spend,
                lost: who.lost,
            });
        }
        Ok(entries)
    }

    /// Returns the tasks that ended on or after a day and were not started again.
    fn finished(&mut self, ground: &Ground<'_>, day: u64) -> Result<Vec<(TaskId, Finished)>, StoreError> {
        let mut found = Vec::new();
        for (wall, id) in self.book.ended_since(day) {
            if ground.board.tasks.get(&id).is_some_and(|it| !it.status.is_terminal()) {
                continue;
            }
            if let Some((_, it)) = self.finished.get(&id).filter(|it| it.0 == wall) {
                found.push((id, it.clone()));
                continue;
            }
            let Some(task) = ground.history.task(id)? else { continue };
            let it = Finished::of(&task);
            self.finished.insert(id, (wall, it.clone()));
            found.push((id, it));
        }
        Ok(found)
    }

    fn came(
        &mut self,
        ground: &Ground<'_>,
        finished: &[(TaskId, Finished)],
        entries: &[Entry],
        dropped: &BTreeSet<TaskId>,
    ) -> CameView {
        let mut landed = Sum::default();
        for (_, it) in finished.iter().filter(|it| it.1.landed.is_some()) {
            landed.tasks += 1;
            landed.spent = landed.spent.plus(&it.spent);
            if it.spent.usage.micro_usd.is_none() {
                landed.unpriced += it.spent.usage.tokens();
            }
        }
        let each = landed.spent.usage.micro_usd.filter(|_| landed.unpriced == 0 && landed.tasks > 0);
        let lost: Vec<&Entry> = entries.iter().filter(|it| it.lost).collect();
        CameView {
            each: each.map(|it| it / landed.tasks as u64),
            landed,
            wasted: cost::sum(lost.iter().copied(), &Pace::default()),
            failed_attempts: lost.iter().filter(|it| !dropped.contains(&it.task)).count(),
            dropped_tasks: finished.iter().filter(|it| it.1.is_dropped() && !it.1.spent.is_nothing()).count(),
            lines: self.lines(ground, finished),
        }
    }

    /// Returns the number of landed lines and the tokens per line, over the latest changes that
    /// were counted.
    fn lines(&mut self, ground: &Ground<'_>, finished: &[(TaskId, Finished)]) -> Option<LinesView> {
        let (mut tasks, mut lines, mut tokens, mut asked) = (0, 0, 0, 0);
        for (_, it) in finished.iter().rev().filter(|it| it.1.landed.is_some()).take(MOST_MEASURED) {
            let Some((base, commit)) = &it.landed else { continue };
            let known = match self.lines.get(commit) {
                Some(known) => Some(*known),
                None if asked >= ground.measured => None,
                None => {
                    asked += 1;
                    let repo = ground.board.projects.get(&it.project).map(|it| Repo::of(it));
                    match repo.map(|it| ground.git.diff(&it, base, commit)) {
                        Some(Ok(patch)) => {
                            Some(*self.lines.entry(commit.clone()).or_insert(regatta_api::patch::lines(&patch)))
                        }
                        // A change that could not be counted is left out now, and tried again at
                        // the next request.
                        Some(Err(error)) => {
                            tracing::debug!(%commit, "could not count the lines of a change: {error}");
                            None
                        }
                        None => None,
                    }
                }
            };
            if let Some(many) = known.filter(|it| *it > 0) {
                (tasks, lines, tokens) = (tasks + 1, lines + many, tokens + it.spent.usage.tokens());
            }
        }
        (lines > 0 && tokens > 0).then(|| LinesView { tasks, lines, tokens_each: tokens.div_ceil(lines) })
    }
}

fn rows(board: &Board, history: &dyn History, entries: &[Entry], by: By, pace: &Pace) -> Vec<CostRow> {
    let draw = |it: cost::Row| {
        let name = it.name.as_deref();
        let about = match by {
            By::Mission => name.and_then(|it| it.parse().ok()).and_then(|it| title(board, history, it)),
            By::Agent => name.and_then(|it| board.agents.get(&AgentName::new(it).ok()?)).map(|it| family(it)),
            By::Provider | By::Model => None,
        };
        let none = match by {
            By::Mission => "no mission",
            By::Model => "unknown model",
            By::Provider | By::Agent => "",
        };
        let name = it.name.unwrap_or_else(|| none.to_owned());
        CostRow { name, about: about.unwrap_or_default(), sum: it.sum }
    };
    cost::table(entries, by, pace).into_iter().map(draw).collect()
}

fn title(board: &Board, history: &dyn History, id: MissionId) -> Option<String> {
    let live = board.missions.get(&id).map(|it| it.title.clone());
    live.or_else(|| history.mission(id).ok().flatten().map(|it| it.0.title))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::command::Actor;
    use regatta_core::event::Recorded;
    use serde_json::json;

    /// Adds a day on which an attempt spent something and a task was cancelled.
    fn note(kept: &mut Kept, day: u64) {
        let now = Now { at: 0, wall: day * DAY_MS };
        let spent = json!({ "attempt": format!("A{day}"), "day": day, "spend": Spend::default() });
        let ended = json!({ "task": format!("T{day}"), "reason": "enough" });
        for (kind, data) in [("budget.spent", spent), ("task.cancelled", ended)] {
            let text = format!(r#"{{"kind":"{kind}","data":{data}}}"#);
            let event: Event = serde_json::from_str(&text).unwrap();
            kept.book.fold(&Recorded { revision: day, now, by: Actor::Regatta, event }, None);
        }
        let agent = AgentName::new("ada").unwrap();
        let who = Who { task: TaskId(day), mission: None, agent, model: None, lost: false };
        kept.ended.insert(AttemptId(day), who);
        let commit = CommitId::new(&format!("{day:040x}")).unwrap();
        let project = ProjectName::new("shop").unwrap();
        let landed = Some((commit.clone(), commit.clone()));
        let it = Finished { project, status: Status::Cancelled, spent: Spend::default(), landed };
        kept.finished.insert(TaskId(day), (now.wall, it));
        kept.lines.insert(commit, 7);
    }

    /// The size of the index depends on the requested days, not on the age of the daemon.
    #[test]
    fn days_that_are_no_longer_requested_are_dropped_when_a_day_begins() {
        let mut kept = Kept::default();
        let size = |it: &Kept| {
            let book = (it.book.since(0).len(), it.book.ended_since(0).len());
            assert_eq!(book, (it.ended.len(), it.finished.len()));
            (it.first, it.ended.len(), it.finished.len(), it.lines.len())
        };
        for today in 100..110 {
            kept.ask(today, today - 2);
            kept.first = kept.first.or(Some(today - 2));
            note(&mut kept, today);
        }
        assert_eq!(size(&kept), (Some(107), 3, 3, 3), "today and the two days before are kept, as requested yesterday");
        kept.ask(109, 109);
        assert_eq!(size(&kept).0, Some(107), "nothing is dropped within a day");
        kept.ask(110, 110);
        assert_eq!(size(&kept), (Some(108), 2, 2, 2));
        kept.ask(111, 111);
        assert_eq!(size(&kept), (Some(111), 0, 0, 0), "only one day was requested yesterday");
        // A clock that is set back drops nothing.
        note(&mut kept, 111);
        kept.ask(110, 110);
        assert_eq!(size(&kept), (Some(111), 1, 1, 1));
    }
}
