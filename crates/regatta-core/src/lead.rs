//! Leads: a mission with a goal has one, under a name of its own, with workers named under it.
//!
//! A lead's turns are the attempts at one task of its mission. Between two of them nothing of it runs: it rests until
//! something happens that it must know of, and what happened meanwhile is what its next turn begins with. Nothing lives
//! only in a model's memory, so another turn, another session or another agent goes on from the board.

mod edits; // what a lead changed itself

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

/// Who leads a mission, or is to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lead {
    /// Whose program it is.
    pub agent: AgentName,
    /// Its own name, from when it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<AgentName>,
    /// The task that its turns are attempts at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Where it was asked for, and where it is told what became of it.
    pub channel: ChannelName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    #[serde(default)]
    pub about: About,
    /// What happened since its last turn, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<String>,
    /// How much of that was left out.
    #[serde(default)]
    pub left_out: u32,
    /// Something of it cannot wait.
    #[serde(default)]
    pub stirred: bool,
    /// How many tasks it gave its mission.
    #[serde(default)]
    pub children: u32,
    /// What it says its mission came to: it ends with this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// When the mission is summed up next, on the fleet clock, and what was said the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_at: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
    /// When its time is up, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_at: Option<u64>,
    /// Why nobody leads it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

impl Lead {
    /// Its name, while it is at work.
    pub fn at_work(&self) -> Option<&AgentName> {
        self.name.as_ref().filter(|_| self.lost.is_none())
    }

    /// When something is to be done about it next, on the fleet clock.
    pub(crate) fn due_at(&self) -> Option<u64> {
        self.at_work()?;
        [self.checkpoint_at, self.until_at].into_iter().flatten().min()
    }
}

/// What a lead was asked to see to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// A goal, in words.
    #[default]
    Goal,
    /// What waits in the project.
    Backlog,
    /// One task that is there already.
    Task(TaskId),
}

facts! {
    /// Who leads a mission, with whom, or what it is to know, changed.
    Changed { mission: MissionId, lead: Arc<Lead>, agents: Option<Vec<AgentName>>, state: Option<State> }
}

/// What is asked of [`ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ask {
    pub project: ProjectName,
    pub goal: String,
    #[serde(default)]
    pub about: About,
    /// Whose program leads; as the project says when not given.
    #[serde(default)]
    pub agent: Option<AgentName>,
    /// The message that asks for it.
    #[serde(default)]
    pub message: Option<MessageId>,
    #[serde(default)]
    pub channel: Option<ChannelName>,
}

/// How much of the news is kept for a lead that does not come to read it.
const MOST_NEWS: usize = 60;
/// The most that may be asked of a mission.
const LONGEST_GOAL: usize = 64 * 1024;

/// Asks for a mission with a lead: it begins at once if the project has room for another lead, else it waits in line.
pub fn ask(draft: &mut Draft, ask: Ask, now: Now) -> Result<MissionId, Refusal> {
    let board = draft.board();
    let Some(project) = board.projects.get(&ask.project).cloned() else {
        return Err(Refusal::NoSuchProject { project: ask.project });
    };
    let goal = ask.goal.trim();
    if goal.is_empty() || goal.len() > LONGEST_GOAL {
        return Err(Refusal::invalid(
            "a mission's goal has 1 byte to 64 KiB",
            "say in a sentence or a few what is to be reached; put the rest into a file of the repository",
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
            "{id} waits for a lead: it is number {place} in line, and {busy} of {most} leads are at work. It starts by \
             itself when one ends."
        );
        say(draft, id, "spawn-ack", text, now)?;
    }
    Ok(id)
}

/// The missions of a project that somebody leads now.
pub fn at_work<'a>(board: &'a Board, project: &ProjectName) -> impl Iterator<Item = &'a Arc<Mission>> {
    let led = |it: &&Arc<Mission>| it.lead.as_ref().is_some_and(|it| it.at_work().is_some());
    board.missions.values().filter(move |it| it.project == *project).filter(led)
}

/// A mission's place in the line for a lead, from 1; nothing when it does not stand in it.
pub fn place(board: &Board, id: MissionId) -> Option<usize> {
    let project = &board.missions.get(&id)?.project;
    waiting(board, project).position(|it| it.id == id).map(|it| it + 1)
}

fn waiting<'a>(board: &'a Board, project: &ProjectName) -> impl Iterator<Item = &'a Arc<Mission>> {
    board.missions.values().filter(move |it| it.project == *project && it.state == State::Queued)
}

/// Whose program leads: who is asked for, who the project names, or the only one there is.
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
            "no agent is there to lead",
            "add one: regatta agent add NAME --preset claude, and name it in regatta.toml: [leads] agent = \"NAME\"",
        )),
        _ => Err(Refusal::invalid(
            "several agents could lead, and none is named",
            "name one in regatta.toml: [leads] agent = \"NAME\"",
        )),
    }
}

/// Gives the first in line a lead, as long as the project has room for one more.
pub(crate) fn seat(draft: &mut Draft, project: &ProjectName, now: Now) -> Result<(), Refusal> {
    loop {
        let board = draft.board();
        let Some(most) = board.projects.get(project).map(|it| it.settings.leads.max_leads) else { return Ok(()) };
        if at_work(board, project).count() >= most as usize {
            return Ok(());
        }
        let Some(next) = waiting(board, project).next().cloned() else { return Ok(()) };
        // Whoever can no longer begin must not keep those behind from it.
        if let Err(refusal) = start(draft, &next, now) {
            give_up(draft, &next, &refusal.message(), now)?;
        }
    }
}

/// Begins to lead a mission. Everything that can be refused is, before anything is recorded.
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
    // What the workers before these were given and have not begun is anybody's again.
    for child in open_children(draft.board(), mission.id) {
        give_back(draft, child.id, now)?;
    }
    tidy(draft);
    let text = format!("{name} leads {}: {}", mission.id, mission.title);
    say(draft, mission.id, "spawn-ack", text.clone(), now)?;
    tell_siblings(draft, &mission.project, mission.id, &text);
    Ok(())
}

/// Gives a task back to its mission that waits for a worker who no longer works for it: nobody would ever take it.
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

/// The name under which a project's leads and answers go: `shop-dev`.
pub fn base_name(project: &ProjectName) -> Result<AgentName, Refusal> {
    AgentName::new(&format!("{project}-dev"))
        .map_err(|it| Refusal::invalid(it.to_string(), "give the project a shorter name"))
}

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

fn change(draft: &mut Draft, mission: MissionId, lead: Lead, agents: Option<Vec<AgentName>>, state: Option<State>) {
    draft.record(Event::MissionLed(Changed { mission, lead: lead.into(), agents, state }));
}

/// A lead whose work it is, and its mission.
fn lead_of(board: &Board, id: MissionId) -> Option<(Arc<Mission>, Lead)> {
    let mission = board.missions.get(&id)?;
    Some((mission.clone(), mission.lead.clone()?))
}

/// The mission that an agent leads or works for.
pub fn mission_of<'a>(board: &'a Board, agent: &AgentName) -> Option<&'a Arc<Mission>> {
    // Only a name under another one is that of a lead or of a worker.
    if !agent.as_str().contains('/') {
        return None;
    }
    let under = |lead: &AgentName| {
        agent == lead || agent.as_str().strip_prefix(lead.as_str()).is_some_and(|it| it.starts_with('/'))
    };
    board.missions.values().find(|it| it.lead.as_ref().and_then(|it| it.name.as_ref()).is_some_and(under))
}

/// The label that everything carries which a lead or its workers say.
pub fn label_of(lead: &AgentName) -> Option<Label> {
    Label::new(&format!("lead:{lead}")).ok()
}

/// Takes a task into a lead's mission that it adds, or refuses it.
pub fn add_child(draft: &mut Draft, id: MissionId, add: Add, now: Now) -> Result<TaskId, Refusal> {
    take_child(draft, id)?;
    task::add(draft, add, Some((id, Default::default())), now)
}

/// Takes a task into a lead's mission that waits in the project and that nobody has.
pub fn adopt_child(draft: &mut Draft, id: MissionId, task: TaskId) -> Result<(), Refusal> {
    let project = draft.board().missions.get(&id).ok_or(Refusal::NoSuchMission { mission: id })?.project.clone();
    free_task(draft.board(), task, &project)?;
    take_child(draft, id)?;
    task::adopt(draft, task, (id, Default::default()), &project)
}

fn take_child(draft: &mut Draft, id: MissionId) -> Result<(), Refusal> {
    let mission = draft.board().missions.get(&id).cloned().ok_or(Refusal::NoSuchMission { mission: id })?;
    let Some(lead) = mission.lead.clone() else { return Ok(()) };
    if lead.report.is_some() {
        return Err(Refusal::invalid(
            format!("{id} is reported as finished"),
            "end your turn; say the rest in a new mission",
        ));
    }
    let settings = draft.board().projects.get(&mission.project).map(|it| it.settings.leads.max_children);
    let most = settings.unwrap_or(u32::MAX);
    if lead.children >= most {
        return Err(Refusal::invalid(
            format!("{id} has had {} of at most {most} tasks", lead.children),
            "put what is left into the tasks there are, or into your report; the limit is [leads] max_children",
        ));
    }
    change(draft, id, Lead { children: lead.children + 1, ..lead }, None, None);
    Ok(())
}

/// What is open of a mission beside its lead's own task.
fn open_children(board: &Board, id: MissionId) -> Vec<Arc<Task>> {
    let tasks = board.open_tasks_of(id).filter_map(|(_, id)| board.tasks.get(&id));
    tasks.filter(|it| it.is_work()).cloned().collect()
}

/// Takes a lead's word that its mission is done; it ends with the turn.
pub fn finish(
    draft: &mut Draft,
    (task, attempt, token): (TaskId, AttemptId, u64),
    report: String,
) -> Result<(), Refusal> {
    let live = attempt::speaks_for(draft.board(), task, attempt, token)?;
    let of = task::find(draft.board(), task)?;
    let found = live.mission.filter(|_| of.duty == Some(Duty::Lead)).and_then(|it| lead_of(draft.board(), it));
    let Some((mission, lead)) = found else {
        return Err(Refusal::invalid(format!("{task} leads no mission"), "say finish instead"));
    };
    if report.trim().is_empty() || report.len() > 64 * 1024 {
        return Err(Refusal::invalid(
            "a report has 1 byte to 64 KiB",
            "say in a few sentences what was reached and what was not",
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

/// Takes the end of a lead's turn: its mission is done, or it rests until something happens.
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
        let words = if said.trim().is_empty() { "Its lead said nothing more." } else { said.trim() };
        let report = lead.report.clone().unwrap_or_else(|| words.to_owned());
        change(draft, mission.id, Lead { report: Some(report), ..lead }, None, None);
        attempt::end(draft, attempt.id, Cause::Reported, "");
        return task::complete(draft, task.id, None);
    }
    // After an edit of its own it begins in a fresh workspace, so that the same change is not taken twice.
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

/// Lets a resting lead have its next turn, which begins with what happened meanwhile.
fn wake(draft: &mut Draft, id: MissionId) {
    let Some((_, lead)) = lead_of(draft.board(), id) else { return };
    let Some(task) = lead.task.and_then(|it| draft.board().tasks.get(&it)).cloned() else { return };
    if !task.asleep || lead.at_work().is_none() {
        return;
    }
    if !lead.news.is_empty() {
        let mut text = String::from("What happened since your last turn:\n");
        if lead.left_out > 0 {
            text += &format!("- {} older things are left out; `mission` shows how everything stands\n", lead.left_out);
        }
        for line in &lead.news {
            text += &format!("- {line}\n");
        }
        steer::note(draft, task.id, text);
    }
    change(draft, id, Lead { news: vec![], left_out: 0, stirred: false, ..lead }, None, None);
    task::due(draft, task.id);
}

/// Notes something for a mission's lead; `wakes` when it cannot wait for its next turn.
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

/// Something became of a task: its mission's lead is told; `wakes` when it must do something about it.
pub(crate) fn task_news(draft: &mut Draft, task: &Task, what: &str) {
    if let (Some(mission), true) = (task.mission, task.is_work()) {
        stir(draft, mission, &format!("{} \"{}\" {what}", task.id, task.subject), true);
    }
}

/// A message was posted: the leads it is for hear of it.
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
            let text = format!("{} says to you ({}): {}", message.sender, message.id, message.text);
            stir(draft, mission, &text, true);
        } else if near && (merged || conflict) {
            let label = if merged { "coord:merge" } else { "coord:conflict" };
            stir(draft, mission, &format!("{label}: {}", message.text), false);
        }
    }
}

/// Something asked by an attempt waits for an answer: its mission's lead is told.
pub(crate) fn asked(draft: &mut Draft, approval: crate::ids::ApprovalId) {
    let Some(item) = draft.board().approvals.get(&approval).cloned() else { return };
    let Some(attempt) = draft.board().attempts.get(&item.attempt).cloned() else { return };
    let Some(mission) = attempt.mission.filter(|_| !attempt.light && item.is_open()) else { return };
    let text = format!("{} asks {approval} for {}: {}", attempt.agent, attempt.task, item.subject());
    stir(draft, mission, &text, true);
}

/// Tells the other leads of a project something that changes nothing for them now.
fn tell_siblings(draft: &mut Draft, project: &ProjectName, but: MissionId, text: &str) {
    let others: Vec<MissionId> = at_work(draft.board(), project).map(|it| it.id).filter(|it| *it != but).collect();
    for id in others {
        stir(draft, id, text, false);
    }
}

/// Says something where the mission was asked for.
fn say(draft: &mut Draft, id: MissionId, label: &str, text: String, now: Now) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id) else { return Ok(()) };
    post(draft, &mission, &lead, label, text, now)
}

/// Returns the labels by which a mission's messages are found: its id, and its lead.
pub(crate) fn mission_labels(mission: &Mission) -> Vec<Label> {
    let lead = mission.lead.as_ref().and_then(|lead| lead.name.as_ref()).and_then(label_of);
    Label::new(&mission.id.to_string()).ok().into_iter().chain(lead).collect()
}

fn post(draft: &mut Draft, mission: &Mission, lead: &Lead, label: &str, text: String, now: Now) -> Result<(), Refusal> {
    let own = [Label::new(label).ok(), Label::new(&mission.id.to_string()).ok(), lead.name.as_ref().and_then(label_of)];
    let labels = own.into_iter().flatten().collect();
    // A reason may be an agent's own words, of any length; that must not keep what happened from being written down.
    let text: String = text.trim_end().chars().take(bus::LONGEST_TEXT / 4).collect();
    bus::say(draft, lead.channel.clone(), text, (labels, lead.message), now).map(|_| ())
}

/// Sums a mission up if its interval is over, and ends a lead's time.
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

/// How a mission stands, in a sentence, from the board alone.
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

/// Nobody leads a mission any more: its workers stop, with their work kept, until somebody takes it over.
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

/// A lead is gone: its name is free, its place goes to the next in line.
fn leave(draft: &mut Draft, mission: &Mission, lead: &Lead, now: Now) -> Result<(), Refusal> {
    if let Some(name) = &lead.name {
        claim::release_all(draft, &Owner::Agent(name.clone()));
        tell_siblings(draft, &mission.project, mission.id, &format!("{name} no longer leads {}", mission.id));
    }
    tidy(draft);
    seat(draft, &mission.project, now)
}

/// A lead's own task came to an end that it did not choose.
pub(crate) fn task_lost(draft: &mut Draft, task: &Task, reason: &str, now: Now) -> Result<(), Refusal> {
    let found = task.mission.and_then(|it| lead_of(draft.board(), it));
    match found.filter(|it| task.duty == Some(Duty::Lead) && it.1.task == Some(task.id)) {
        Some((mission, _)) => give_up(draft, &mission, reason, now),
        None => Ok(()),
    }
}

/// Gives a mission another lead: at once if there is room, else as the next in line. Its workers finish what they have.
pub fn hand_over(draft: &mut Draft, id: MissionId, to: Option<AgentName>, now: Now) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id) else {
        return Err(match draft.board().missions.contains_key(&id) {
            true => Refusal::invalid(
                format!("{id} has no lead: its plan is all there is to it"),
                "see it: regatta mission show",
            ),
            false => Refusal::NoSuchMission { mission: id },
        });
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

/// A mission has ended: what it came to is said, and its lead's place goes to the next in line.
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

/// What a mission took, in a sentence; of money only what is known.
fn cost(spent: &Spend) -> String {
    let money = spent.usage.micro_usd.map_or(String::new(), |it| format!(", ${:.2}", it as f64 / 1e6));
    let attempts = if spent.attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", spent.attempts) };
    format!(" It took {attempts} and {} tokens{money}.", spent.usage.tokens())
}

/// Forgets who was named for a mission that is over, once nothing of theirs runs.
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

/// What a lead is told of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sibling {
    pub lead: AgentName,
    pub mission: MissionId,
    pub title: String,
    /// The open tasks that it or its workers have.
    pub tasks: Vec<TaskId>,
    /// The trunk's commit that carries the last of its mission.
    pub landed: Option<crate::ids::CommitId>,
}

/// The other leads of a project.
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
