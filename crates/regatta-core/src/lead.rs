//! Leads: a mission with a goal has a lead with a name of its own, and workers named under the
//! lead.
//!
//! A lead's turns are attempts at one task of its mission. Between two turns nothing runs: the lead
//! rests until an event concerns it, and its next turn begins with the events since the last one.
//! Nothing exists only in a model's memory, so another turn, session or agent can continue from the
//! board.

mod edits; // edits that a lead made itself

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{self, Role};
use crate::approval;
use crate::attempt::{self, Attempt, Cause, resume_of};
use crate::board::{Board, Draft};
use crate::budget::Spend;
use crate::bus::{self, Message};
use crate::claim::{self, Owner};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, ChannelName, Label, MessageId, MissionId, Now, ProjectName, TaskId};
use crate::mission::{self, Landed, Mission, Mode, State};
use crate::names::{self, Words};
use crate::project::Project;
use crate::refusal::Refusal;
use crate::steer;
use crate::task::{self, Add, Again, Duty, How, Status, Task};

pub(crate) use edits::adopt_edits;

/// The lead of a mission, or the agent that is to lead it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lead {
    /// The agent whose program leads.
    pub agent: AgentName,
    /// The lead's own name, once it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<AgentName>,
    /// The task whose attempts are its turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The channel of the request, which also gets the announcements about the mission.
    pub channel: ChannelName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    #[serde(default)]
    pub about: About,
    /// Events since its last turn, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<String>,
    /// Number of older events that were dropped.
    #[serde(default)]
    pub left_out: u32,
    /// One of the events cannot wait for the next turn.
    #[serde(default)]
    pub stirred: bool,
    /// Number of tasks that it has added to its mission.
    #[serde(default)]
    pub children: u32,
    /// The lead's final report; with it the mission ends after this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// Time of the mission's next summary on the fleet clock. `said` is the last summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_at: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
    /// The lead's deadline on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_at: Option<u64>,
    /// Reason why the mission has lost its lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

impl Lead {
    /// Returns the lead's name while it leads.
    pub fn at_work(&self) -> Option<&AgentName> {
        self.name.as_ref().filter(|_| self.lost.is_none())
    }

    /// Returns the time of its next timer on the fleet clock.
    pub(crate) fn due_at(&self) -> Option<u64> {
        self.at_work()?;
        [self.checkpoint_at, self.until_at].into_iter().flatten().min()
    }
}

/// The object of a lead's mission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// A goal in words.
    #[default]
    Goal,
    /// The waiting tasks of the project.
    Backlog,
    /// One existing task.
    Task(TaskId),
}

facts! {
    /// A mission's lead, its workers, or the lead's pending events changed.
    Changed { mission: MissionId, lead: Arc<Lead>, agents: Option<Vec<AgentName>>, state: Option<State> }
}

/// A request for a mission with a lead; see [`ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ask {
    pub project: ProjectName,
    pub goal: String,
    #[serde(default)]
    pub about: About,
    /// The agent whose program leads; by default the project's setting.
    #[serde(default)]
    pub agent: Option<AgentName>,
    /// The message that requests the mission.
    #[serde(default)]
    pub message: Option<MessageId>,
    #[serde(default)]
    pub channel: Option<ChannelName>,
}

/// Maximum number of pending events that are kept for a lead.
const MOST_NEWS: usize = 60;
/// Maximum length of a goal in bytes.
const LONGEST_GOAL: usize = 64 * 1024;

/// Requests a mission with a lead. It starts at once if the project may have another lead, and is
/// queued otherwise.
pub fn ask(draft: &mut Draft, ask: Ask, now: Now) -> Result<MissionId, Refusal> {
    let board = draft.board();
    let Some(project) = board.projects.get(&ask.project).cloned() else {
        return Err(Refusal::NoSuchProject { project: ask.project });
    };
    let goal = ask.goal.trim();
    if goal.is_empty() || goal.len() > LONGEST_GOAL {
        return Err(Refusal::invalid(
            "a mission's goal has 1 byte to 64 KiB",
            "describe the goal in a few sentences; put the rest into a file of the repository",
        ));
    }
    if let About::Task(id) = ask.about {
        free_task(board, id, &ask.project)?;
    }
    let agent = who_leads(board, &project, ask.agent)?;
    let channel = ask.channel.unwrap_or_else(|| bus::channel_of(&project.name));
    let id = MissionId(board.counters.mission + 1);
    let lead = Lead {
        agent,
        name: None,
        task: None,
        channel,
        message: ask.message,
        about: ask.about,
        news: vec![],
        left_out: 0,
        stirred: false,
        children: 0,
        report: None,
        checkpoint_at: None,
        said: String::new(),
        until_at: None,
        lost: None,
    };
    let mission = Mission {
        id,
        project: ask.project.clone(),
        title: task::one_line(goal, 120),
        agents: vec![],
        max_workers: project.settings.leads.max_workers,
        mode: Mode::Flow,
        isolate: false,
        serialised: None,
        wave_commits: false,
        serial: vec![],
        state: State::Queued,
        goal: Some(goal.to_owned()),
        lead: Some(lead),
        result: None,
        landed: Landed::default(),
        held: vec![],
        spent: Spend::default(),
        created_wall: now.wall,
    };
    mission::begin(draft, mission);
    seat(draft, &ask.project, now)?;
    if let Some(place) = place(draft.board(), id) {
        let (busy, most) = (at_work(draft.board(), &ask.project).count(), project.settings.leads.max_leads);
        let text = format!(
            "{id} waits for a lead: it is number {place} in the queue, and {busy} of {most} leads are at work. It starts \
             automatically when one ends."
        );
        say(draft, id, "spawn-ack", text, now)?;
    }
    Ok(id)
}

/// Returns the missions of a project that have a lead now.
pub fn at_work<'a>(board: &'a Board, project: &ProjectName) -> impl Iterator<Item = &'a Arc<Mission>> {
    let led = |it: &&Arc<Mission>| it.lead.as_ref().is_some_and(|it| it.at_work().is_some());
    board.missions.values().filter(move |it| it.project == *project).filter(led)
}

/// Returns a mission's position in the queue for a lead, from 1, or `None` if it is not queued.
pub fn place(board: &Board, id: MissionId) -> Option<usize> {
    let project = &board.missions.get(&id)?.project;
    waiting(board, project).position(|it| it.id == id).map(|it| it + 1)
}

/// Returns the queued missions of a project, in order.
fn waiting<'a>(board: &'a Board, project: &ProjectName) -> impl Iterator<Item = &'a Arc<Mission>> {
    board.missions.values().filter(move |it| it.project == *project && it.state == State::Queued)
}

/// Returns the agent whose program leads: the requested one, the one in the project's settings, or
/// the only one.
pub(crate) fn who_leads(board: &Board, project: &Project, asked: Option<AgentName>) -> Result<AgentName, Refusal> {
    let settings = &project.settings;
    let named = asked.or_else(|| settings.leads.agent.clone());
    let first = || settings.run.agents.as_ref()?.first().and_then(|it| AgentName::new(it).ok());
    if let Some(name) = named.or_else(first) {
        let found = agent::find(board, &name)?;
        return match found.of {
            None => Ok(name),
            Some(_) => Err(Refusal::invalid(
                format!("{name} was named for one mission and ends with it"),
                "name an agent that was added by a person: regatta agents",
            )),
        };
    }
    let mut own: Vec<&AgentName> = board.agents.values().filter(|it| it.of.is_none()).map(|it| &it.name).collect();
    let leads = |it: &&&AgentName| board.agents.get(**it).is_some_and(|it| it.role == Role::Lead);
    if own.iter().filter(leads).count() == 1 {
        own.retain(|it| leads(&it));
    }
    match own.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(Refusal::invalid(
            "there is no agent that could lead",
            "add one: regatta agent add NAME --preset claude, and name it in regatta.toml: [leads] agent = \"NAME\"",
        )),
        _ => Err(Refusal::invalid(
            "several agents could lead, and the settings name none",
            "name one in regatta.toml: [leads] agent = \"NAME\"",
        )),
    }
}

/// Starts queued missions, in order, while the project may have another lead.
pub(crate) fn seat(draft: &mut Draft, project: &ProjectName, now: Now) -> Result<(), Refusal> {
    loop {
        let board = draft.board();
        let Some(most) = board.projects.get(project).map(|it| it.settings.leads.max_leads) else { return Ok(()) };
        if at_work(board, project).count() >= most as usize {
            return Ok(());
        }
        let Some(next) = waiting(board, project).next().cloned() else { return Ok(()) };
        // A mission that cannot start any more must not block the missions behind it.
        if let Err(refusal) = start(draft, &next, now) {
            give_up(draft, &next, &refusal.message(), now)?;
        }
    }
}

/// Starts a mission's lead and workers. All checks that can refuse come before the first record.
fn start(draft: &mut Draft, mission: &Mission, now: Now) -> Result<(), Refusal> {
    let board = draft.board();
    let Some(lead) = mission.lead.clone() else { return Ok(()) };
    let Some(project) = board.projects.get(&mission.project).cloned() else { return Ok(()) };
    let settings = &project.settings.leads;
    agent::find(board, &lead.agent)?;
    let mut sorts = settings.workers.clone();
    sorts.retain(|it| board.agents.get(it).is_some_and(|it| it.of.is_none()));
    if sorts.is_empty() {
        sorts.push(lead.agent.clone());
    }
    let base = base_name(&mission.project)?;
    let name = names::fresh(board, &format!("{base}/lead-"), Words::Two, mission.id.0)?;
    let count = settings.max_workers as usize;
    let workers = names::several(board, &format!("{name}/worker-"), Words::One, mission.id.0, count)?;

    agent::derive(draft, &lead.agent, name.clone(), (Role::Lead, 1), now)?;
    for (nth, worker) in workers.iter().enumerate() {
        agent::derive(draft, &sorts[nth % sorts.len()], worker.clone(), (Role::Worker, 1), now)?;
    }
    claim::hold_name(draft, &name, format!("leads {}: {}", mission.id, mission.title), now);
    let goal = mission.goal.clone().unwrap_or_default();
    let add = Add::report(mission.project.clone(), &format!("Lead {}: {}", mission.id, mission.title), goal);
    let task = task::add(draft, add, Some((mission.id, Default::default())), now)?;
    task::set_duty(draft, task, Duty::Lead, None)?;
    task::assign(draft, task, Some(name.clone()), How::Queue, now)?;
    if let About::Task(id) = lead.about
        && free_task(draft.board(), id, &mission.project).is_ok()
    {
        task::adopt(draft, id, (mission.id, Default::default()), &mission.project)?;
    }
    let span = |it: crate::project::Span| Some(it.ms()).filter(|it| *it > 0).map(|it| now.at + it);
    let lead = Lead {
        name: Some(name.clone()),
        task: Some(task),
        lost: None,
        checkpoint_at: span(settings.checkpoint_interval),
        until_at: span(settings.timeout),
        ..lead
    };
    change(draft, mission.id, lead, Some(workers), Some(State::Active));
    // Tasks of former workers that have not started become available to the new ones.
    for child in open_children(draft.board(), mission.id) {
        give_back(draft, child.id, now)?;
    }
    tidy(draft);
    let text = format!("{name} leads {}: {}", mission.id, mission.title);
    say(draft, mission.id, "spawn-ack", text.clone(), now)?;
    tell_siblings(draft, &mission.project, mission.id, &text);
    Ok(())
}

/// Unassigns a waiting task whose worker no longer works for its mission, because nobody would ever
/// take it.
pub(crate) fn give_back(draft: &mut Draft, id: TaskId, now: Now) -> Result<(), Refusal> {
    let board = draft.board();
    let Some(task) = board.tasks.get(&id).filter(|it| it.status.is_waiting() && it.is_work()) else {
        return Ok(());
    };
    let (Some(name), Some(mission)) = (&task.assignee, task.mission.and_then(|it| board.missions.get(&it))) else {
        return Ok(());
    };
    let led = mission.lead.is_some() && mission.state == State::Active;
    let named = board.agents.get(name).is_none_or(|it| it.of.is_some());
    let member = board.launches.values().any(|it| it.members.iter().any(|it| it.agent == *name));
    if led && named && !member && !mission.agents.contains(name) {
        task::assign(draft, id, None, How::Direct, now)?;
    }
    Ok(())
}

/// Returns the name under which a project's leads and answers run, such as `shop-dev`.
pub fn base_name(project: &ProjectName) -> Result<AgentName, Refusal> {
    AgentName::new(&format!("{project}-dev"))
        .map_err(|it| Refusal::invalid(it.to_string(), "give the project a shorter name"))
}

/// Checks that a task waits in this project and belongs to no mission.
fn free_task(board: &Board, id: TaskId, project: &ProjectName) -> Result<(), Refusal> {
    let task = task::find(board, id)?;
    if task.project != *project {
        return Err(Refusal::NoSuchTask { task: id });
    }
    match task.mission {
        Some(other) => Err(Refusal::InUse { what: id.to_string(), by: other.to_string() }),
        None if !task.status.is_waiting() => Err(Refusal::InUse { what: id.to_string(), by: task.status.to_string() }),
        None => Ok(()),
    }
}

/// Records a change of a mission's lead.
fn change(draft: &mut Draft, mission: MissionId, lead: Lead, agents: Option<Vec<AgentName>>, state: Option<State>) {
    draft.record(Event::MissionLed(Changed { mission, lead: lead.into(), agents, state }));
}

/// Returns a mission with its lead, if it has one.
fn lead_of(board: &Board, id: MissionId) -> Option<(Arc<Mission>, Lead)> {
    let mission = board.missions.get(&id)?;
    Some((mission.clone(), mission.lead.clone()?))
}

/// Returns the mission that an agent leads or works for.
pub fn mission_of<'a>(board: &'a Board, agent: &AgentName) -> Option<&'a Arc<Mission>> {
    // Only a name with a `/` can be a lead's or a worker's.
    if !agent.as_str().contains('/') {
        return None;
    }
    let under = |lead: &AgentName| {
        agent == lead || agent.as_str().strip_prefix(lead.as_str()).is_some_and(|it| it.starts_with('/'))
    };
    board.missions.values().find(|it| it.lead.as_ref().and_then(|it| it.name.as_ref()).is_some_and(under))
}

/// Returns the label of all messages of a lead and its workers.
pub fn label_of(lead: &AgentName) -> Option<Label> {
    Label::new(&format!("lead:{lead}")).ok()
}

/// Adds a new task to a lead's mission, within the limits of the mission.
pub fn add_child(draft: &mut Draft, id: MissionId, add: Add, now: Now) -> Result<TaskId, Refusal> {
    take_child(draft, id)?;
    task::add(draft, add, Some((id, Default::default())), now)
}

/// Adds a waiting task of the project to a lead's mission.
pub fn adopt_child(draft: &mut Draft, id: MissionId, task: TaskId) -> Result<(), Refusal> {
    let project = draft.board().missions.get(&id).ok_or(Refusal::NoSuchMission { mission: id })?.project.clone();
    free_task(draft.board(), task, &project)?;
    take_child(draft, id)?;
    task::adopt(draft, task, (id, Default::default()), &project)
}

/// Counts one more task of a lead's mission, or refuses it.
fn take_child(draft: &mut Draft, id: MissionId) -> Result<(), Refusal> {
    let mission = draft.board().missions.get(&id).cloned().ok_or(Refusal::NoSuchMission { mission: id })?;
    let Some(lead) = mission.lead.clone() else { return Ok(()) };
    if lead.report.is_some() {
        return Err(Refusal::invalid(
            format!("{id} is reported as finished"),
            "end your turn; use a new mission for the rest",
        ));
    }
    let settings = draft.board().projects.get(&mission.project).map(|it| it.settings.leads.max_children);
    let most = settings.unwrap_or(u32::MAX);
    if lead.children >= most {
        return Err(Refusal::invalid(
            format!("{id} has had {} of at most {most} tasks", lead.children),
            "put the rest into the existing tasks or into your report; the limit is [leads] max_children",
        ));
    }
    change(draft, id, Lead { children: lead.children + 1, ..lead }, None, None);
    Ok(())
}

/// Returns a mission's open tasks, without the lead's own task.
fn open_children(board: &Board, id: MissionId) -> Vec<Arc<Task>> {
    let tasks = board.open_tasks_of(id).filter_map(|(_, id)| board.tasks.get(&id));
    tasks.filter(|it| it.is_work()).cloned().collect()
}

/// Records a lead's final report. The mission ends with the turn.
pub fn finish(
    draft: &mut Draft,
    (task, attempt, token): (TaskId, AttemptId, u64),
    report: String,
) -> Result<(), Refusal> {
    let live = attempt::speaks_for(draft.board(), task, attempt, token)?;
    let of = task::find(draft.board(), task)?;
    let found = live.mission.filter(|_| of.duty == Some(Duty::Lead)).and_then(|it| lead_of(draft.board(), it));
    let Some((mission, lead)) = found else {
        return Err(Refusal::invalid(format!("{task} leads no mission"), "use finish instead"));
    };
    if report.trim().is_empty() || report.len() > 64 * 1024 {
        return Err(Refusal::invalid(
            "a report has 1 byte to 64 KiB",
            "describe in a few sentences the results and the open points",
        ));
    }
    let open = open_children(draft.board(), mission.id);
    if !open.is_empty() {
        let names: Vec<String> = open.iter().map(|it| it.id.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(Refusal::invalid(
            format!("{} is not done: {} are open", mission.id, attempt::first_few(&names)),
            "end your turn and you are woken when they have ended; or cancel them first",
        ));
    }
    change(draft, mission.id, Lead { report: Some(report), ..lead }, None, None);
    Ok(())
}

/// Applies the end of a lead's turn: its mission is done, or the lead rests until an event concerns
/// it.
pub(crate) fn turned(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    (said, adopted): (&str, Option<TaskId>),
) -> Result<(), Refusal> {
    let found = task.mission.and_then(|it| lead_of(draft.board(), it));
    let Some((mission, lead)) = found.filter(|it| it.1.task == Some(task.id)) else {
        attempt::end(draft, attempt.id, Cause::Reported, "");
        return task::complete(draft, task.id, None);
    };
    let open = open_children(draft.board(), mission.id);
    let asks = approval::open_question(draft.board(), task.id).map(|asked| asked.id);
    if open.is_empty() && (lead.report.is_some() || (!lead.stirred && asks.is_none())) {
        let words = if said.trim().is_empty() { "Its lead gave no report." } else { said.trim() };
        let report = lead.report.clone().unwrap_or_else(|| words.to_owned());
        change(draft, mission.id, Lead { report: Some(report), ..lead }, None, None);
        attempt::end(draft, attempt.id, Cause::Reported, "");
        return task::complete(draft, task.id, None);
    }
    // After edits of its own the lead starts in a fresh workspace, so that the same change is not
    // taken twice.
    let resume = adopted.is_none().then(|| resume_of(attempt, true));
    let again = Again { resume, asleep: true, ..Again::default() };
    let reason = match asks {
        Some(asks) if open.is_empty() => format!("its turn is over, and it waits for the answer to {asks}"),
        _ => format!("its turn is over, and {} of its tasks are open", open.len()),
    };
    task::try_again_after(draft, task.id, Cause::Rested, &reason, again)?;
    attempt::end(draft, attempt.id, Cause::Rested, &reason);
    if lead.stirred {
        wake(draft, mission.id);
    }
    Ok(())
}

/// Starts a resting lead's next turn, with a note about the events since its last turn.
fn wake(draft: &mut Draft, id: MissionId) {
    let Some((_, lead)) = lead_of(draft.board(), id) else { return };
    let Some(task) = lead.task.and_then(|it| draft.board().tasks.get(&it)).cloned() else { return };
    if !task.asleep || lead.at_work().is_none() {
        return;
    }
    if !lead.news.is_empty() {
        let mut text = String::from("What happened since your last turn:\n");
        if lead.left_out > 0 {
            text += &format!("- {} older events are left out; `mission` shows the current state\n", lead.left_out);
        }
        for line in &lead.news {
            text += &format!("- {line}\n");
        }
        steer::note(draft, task.id, text);
    }
    change(draft, id, Lead { news: vec![], left_out: 0, stirred: false, ..lead }, None, None);
    task::due(draft, task.id);
}

/// Adds an event for a mission's lead. With `wakes` the lead gets a turn now.
pub(crate) fn stir(draft: &mut Draft, id: MissionId, text: &str, wakes: bool) {
    let Some((_, mut lead)) = lead_of(draft.board(), id).filter(|it| it.1.at_work().is_some()) else { return };
    let line = task::one_line(text, 400);
    if lead.news.last() != Some(&line) {
        lead.news.push(line);
    }
    if lead.news.len() > MOST_NEWS {
        lead.news.remove(0);
        lead.left_out += 1;
    }
    lead.stirred |= wakes;
    change(draft, id, lead, None, None);
    if wakes {
        wake(draft, id);
    }
}

/// Notifies the lead of a task's mission about the task.
pub(crate) fn task_news(draft: &mut Draft, task: &Task, what: &str) {
    if let (Some(mission), true) = (task.mission, task.is_work()) {
        stir(draft, mission, &format!("{} \"{}\" {what}", task.id, task.subject), true);
    }
}

/// Notifies the leads that a posted message concerns.
pub(crate) fn heard(draft: &mut Draft, message: &Message) {
    let coordinates = |label: &str| message.labels.iter().any(|it| it.as_str() == label);
    let (merged, conflict) = (coordinates("coord:merge"), coordinates("coord:conflict"));
    let mailbox = message.channel.as_str().strip_prefix('@').and_then(|it| AgentName::new(it).ok());
    if !merged && !conflict && message.mentions.is_empty() && mailbox.is_none() {
        return;
    }
    let live: Vec<(MissionId, AgentName, ProjectName)> = draft
        .board()
        .missions
        .values()
        .filter_map(|it| Some((it.id, it.lead.as_ref()?.at_work()?.clone(), it.project.clone())))
        .collect();
    for (mission, name, project) in live {
        if message.sender == Actor::Agent(name.clone()) {
            continue;
        }
        let called = message.mentions.contains(&name) || mailbox.as_ref() == Some(&name);
        let near = message.channel == bus::channel_of(&project);
        if called {
            let text = format!("{} wrote to you ({}): {}", message.sender, message.id, message.text);
            stir(draft, mission, &text, true);
        } else if near && (merged || conflict) {
            let label = if merged { "coord:merge" } else { "coord:conflict" };
            stir(draft, mission, &format!("{label}: {}", message.text), false);
        }
    }
}

/// Notifies the lead of a mission about an open request of one of its attempts.
pub(crate) fn asked(draft: &mut Draft, approval: crate::ids::ApprovalId) {
    let Some(item) = draft.board().approvals.get(&approval).cloned() else { return };
    let Some(attempt) = draft.board().attempts.get(&item.attempt).cloned() else { return };
    let Some(mission) = attempt.mission.filter(|_| !attempt.light && item.is_open()) else { return };
    let text = format!("{} asks {approval} for {}: {}", attempt.agent, attempt.task, item.subject());
    stir(draft, mission, &text, true);
}

/// Adds an event for the other leads of a project, without waking them.
fn tell_siblings(draft: &mut Draft, project: &ProjectName, but: MissionId, text: &str) {
    let others: Vec<MissionId> = at_work(draft.board(), project).map(|it| it.id).filter(|it| *it != but).collect();
    for id in others {
        stir(draft, id, text, false);
    }
}

/// Posts a message in the channel where the mission was requested.
fn say(draft: &mut Draft, id: MissionId, label: &str, text: String, now: Now) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id) else { return Ok(()) };
    post(draft, &mission, &lead, label, text, now)
}

/// Returns the labels by which a mission's messages are found: its id, and its lead.
pub(crate) fn mission_labels(mission: &Mission) -> Vec<Label> {
    let lead = mission.lead.as_ref().and_then(|lead| lead.name.as_ref()).and_then(label_of);
    Label::new(&mission.id.to_string()).ok().into_iter().chain(lead).collect()
}

/// Posts a message about a mission, with its labels, as a reply to the request.
fn post(draft: &mut Draft, mission: &Mission, lead: &Lead, label: &str, text: String, now: Now) -> Result<(), Refusal> {
    let own = [Label::new(label).ok(), Label::new(&mission.id.to_string()).ok(), lead.name.as_ref().and_then(label_of)];
    let labels = own.into_iter().flatten().collect();
    // The text may have an agent's own words of any length. The length limit must not stop the
    // record of the event.
    let text: String = text.trim_end().chars().take(bus::LONGEST_TEXT / 4).collect();
    bus::say(draft, lead.channel.clone(), text, (labels, lead.message), now).map(|_| ())
}

/// Runs a lead's timers: posts a due summary, and ends the lead at its deadline.
pub(crate) fn tick(draft: &mut Draft, id: MissionId, now: Now) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id).filter(|it| it.1.at_work().is_some()) else { return Ok(()) };
    if lead.until_at.is_some_and(|at| at <= now.at) {
        return give_up(draft, &mission, "its time is up ([leads] timeout)", now);
    }
    if lead.checkpoint_at.is_some_and(|at| at <= now.at) {
        let every =
            draft.board().projects.get(&mission.project).map_or(0, |it| it.settings.leads.checkpoint_interval.ms());
        let said = summary(draft.board(), &mission);
        let news = said != lead.said;
        let checkpoint_at = Some(every).filter(|it| *it > 0).map(|it| now.at + it);
        change(draft, id, Lead { checkpoint_at, said: said.clone(), ..lead }, None, None);
        if news {
            say(draft, id, "feedback", said, now)?;
        }
    }
    Ok(())
}

/// Returns a mission's state in a sentence, from the board alone.
pub fn summary(board: &Board, mission: &Mission) -> String {
    let open = open_children(board, mission.id);
    let count = |what: fn(Status) -> bool| open.iter().filter(|it| what(it.status)).count();
    let children = mission.lead.as_ref().map_or(0, |it| it.children) as usize;
    let parts = [
        (children.saturating_sub(open.len()), "ended"),
        (count(|it| it.is_running()), "working"),
        (count(|it| it == Status::Landing), "landing"),
        (count(|it| it.is_waiting() || it == Status::Backlog), "waiting"),
        (count(|it| matches!(it, Status::NeedsHuman | Status::InReview)), "for a person"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|it| it.0 > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let parts = if parts.is_empty() { "no task yet".to_owned() } else { parts.join(", ") };
    format!("{} \"{}\": {parts}", mission.id, mission.title)
}

/// Marks a mission as without a lead. Its workers stop and their work is kept until somebody takes
/// over.
fn give_up(draft: &mut Draft, mission: &Mission, reason: &str, now: Now) -> Result<(), Refusal> {
    let Some((_, lead)) = lead_of(draft.board(), mission.id) else { return Ok(()) };
    if lead.lost.is_some() {
        return Ok(());
    }
    let task = lead.task;
    change(draft, mission.id, Lead { lost: Some(reason.to_owned()), ..lead.clone() }, None, Some(State::Draining));
    if let Some(task) = task.filter(|it| draft.board().tasks.contains_key(it)) {
        task::cancel(draft, task, reason)?;
    }
    for child in open_children(draft.board(), mission.id) {
        attempt::stop_task(draft, child.id, &format!("nobody leads {} any more", mission.id))?;
    }
    let who = lead.name.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string);
    let text = format!(
        "{} is without a lead ({who}): {reason}. Its work is kept. Next: regatta mission handover {0}, or regatta \
         mission cancel {0}",
        mission.id
    );
    say(draft, mission.id, "mission:lost", text, now)?;
    leave(draft, mission, &lead, now)
}

/// Releases the name of a lead that has ended, and starts the next queued mission.
fn leave(draft: &mut Draft, mission: &Mission, lead: &Lead, now: Now) -> Result<(), Refusal> {
    if let Some(name) = &lead.name {
        claim::release_all(draft, &Owner::Agent(name.clone()));
        tell_siblings(draft, &mission.project, mission.id, &format!("{name} no longer leads {}", mission.id));
    }
    tidy(draft);
    seat(draft, &mission.project, now)
}

/// Gives a mission's lead up, if the ended task was the lead's own.
pub(crate) fn task_lost(draft: &mut Draft, task: &Task, reason: &str, now: Now) -> Result<(), Refusal> {
    let found = task.mission.and_then(|it| lead_of(draft.board(), it));
    match found.filter(|it| task.duty == Some(Duty::Lead) && it.1.task == Some(task.id)) {
        Some((mission, _)) => give_up(draft, &mission, reason, now),
        None => Ok(()),
    }
}

/// Gives a mission another lead, at once if the project may have one more, and otherwise from the
/// queue. Workers finish their current tasks.
pub fn hand_over(draft: &mut Draft, id: MissionId, to: Option<AgentName>, now: Now) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id) else {
        if draft.board().missions.contains_key(&id) {
            let what = format!("{id} has no lead, because it runs a plan");
            return Err(Refusal::invalid(what, "see it: regatta mission show"));
        }
        return Err(Refusal::NoSuchMission { mission: id });
    };
    let Some(project) = draft.board().projects.get(&mission.project).cloned() else { return Ok(()) };
    let agent = match to {
        Some(to) => who_leads(draft.board(), &project, Some(to))?,
        None => lead.agent.clone(),
    };
    agent::find(draft.board(), &agent)?;
    if mission.state == State::Queued {
        change(draft, id, Lead { agent, ..lead }, None, None);
        return seat(draft, &mission.project, now);
    }
    let old = lead.clone();
    let next = Lead { agent, name: None, task: None, lost: None, report: None, stirred: false, until_at: None, ..lead };
    change(draft, id, next, None, Some(State::Queued));
    if let Some(task) = old.task.filter(|it| draft.board().tasks.contains_key(it)) {
        task::cancel(draft, task, "its mission was handed over")?;
    }
    leave(draft, &mission, &old, now)
}

/// Announces the result of an ended mission, and starts the next queued one.
pub(crate) fn over(draft: &mut Draft, before: &Mission, end: Option<&mission::End>, now: Now) -> Result<(), Refusal> {
    let Some(lead) = before.lead.clone() else { return Ok(()) };
    let (how, label, report) = match end {
        Some(end) if end.how == mission::How::Cancelled => ("was cancelled", "mission:cancelled", end.report.as_str()),
        Some(end) => ("is done", "mission:done", end.report.as_str()),
        None => ("is over", "mission:done", ""),
    };
    let text = format!("{} \"{}\" {how}.{} {report}", before.id, before.title, cost(&before.spent));
    post(draft, before, &lead, label, text, now)?;
    leave(draft, before, &lead, now)
}

/// Returns a sentence about a mission's attempts, tokens and, if known, cost.
fn cost(spent: &Spend) -> String {
    let money = spent.usage.micro_usd.map_or(String::new(), |it| format!(", ${:.2}", it as f64 / 1e6));
    let attempts = if spent.attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", spent.attempts) };
    format!(" It took {attempts} and {} tokens{money}.", spent.usage.tokens())
}

/// Removes the agents that were named for ended missions, once nothing of theirs runs.
pub(crate) fn tidy(draft: &mut Draft) {
    let board = draft.board();
    let needed = |name: &AgentName| {
        board
            .missions
            .values()
            .any(|it| it.agents.contains(name) || it.lead.as_ref().is_some_and(|it| it.at_work() == Some(name)))
            || board.running.contains_key(name)
            || board.tasks.values().any(|it| it.assignee.as_ref() == Some(name))
    };
    let named = board.agents.values().filter(|it| it.of.is_some() && it.name.as_str().contains('/'));
    let gone: Vec<AgentName> = named.map(|it| it.name.clone()).filter(|it| !needed(it)).collect();
    for name in gone {
        agent::forget(draft, &name);
    }
}

/// Facts about another lead of the same project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sibling {
    pub lead: AgentName,
    pub mission: MissionId,
    pub title: String,
    /// The open tasks that it or its workers have.
    pub tasks: Vec<TaskId>,
    /// The trunk's commit with the last landed work of its mission.
    pub landed: Option<crate::ids::CommitId>,
}

/// Returns the other leads of a project.
pub fn siblings(board: &Board, project: &ProjectName, but: Option<MissionId>) -> Vec<Sibling> {
    at_work(board, project)
        .filter(|it| Some(it.id) != but)
        .filter_map(|it| {
            Some(Sibling {
                lead: it.lead.as_ref()?.at_work()?.clone(),
                mission: it.id,
                title: it.title.clone(),
                tasks: open_children(board, it.id).iter().map(|it| it.id).collect(),
                landed: it.landed.last.clone(),
            })
        })
        .collect()
}
