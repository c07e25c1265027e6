//! Collects the events that a lead gets with its next turn, and posts messages about its mission.
//!
//! An urgent event starts the next turn of a resting lead at once. Other events wait until the next
//! turn starts.

use crate::board::Draft;
use crate::bus::{self, Message};
use crate::command::Actor;
use crate::ids::{AgentName, Label, MissionId, Now, ProjectName};
use crate::intervention;
use crate::mission::Mission;
use crate::refusal::Refusal;
use crate::task::{self, Task};

use super::{Lead, label_of, lead_of, led_missions, record_lead};

/// Maximum number of events that are kept for a lead's next turn. Older events are only counted.
const MAX_NEWS: usize = 60;

/// Starts a resting lead's next turn, with a note about the events since its last turn.
pub(super) fn wake(draft: &mut Draft, id: MissionId) {
    let Some((_, lead)) = lead_of(draft.board(), id) else {
        return;
    };
    let Some(task) = lead
        .task
        .and_then(|id| draft.board().tasks.get(&id))
        .cloned()
    else {
        return;
    };
    if !task.resting || lead.acting_name().is_none() {
        return;
    }
    if !lead.news.is_empty() {
        let mut text = String::from("What happened since your last turn:\n");
        if lead.dropped_news_count > 0 {
            text += &format!(
                "- {} older events are left out; `mission` shows the current state\n",
                lead.dropped_news_count
            );
        }
        for line in &lead.news {
            text += &format!("- {line}\n");
        }
        intervention::leave_note(draft, task.id, text);
    }
    record_lead(
        draft,
        id,
        Lead {
            news: vec![],
            dropped_news_count: 0,
            has_urgent_news: false,
            ..lead
        },
        None,
        None,
    );
    task::clear_delay(draft, task.id);
}

/// Adds an event for a mission's lead. With `wakes`, the event is urgent: it starts the lead's next
/// turn at once if the lead is between two turns.
pub(crate) fn add_news(draft: &mut Draft, id: MissionId, text: &str, wakes: bool) {
    let Some((_, mut lead)) =
        lead_of(draft.board(), id).filter(|(_, lead)| lead.acting_name().is_some())
    else {
        return;
    };
    let line = task::one_line(text, 400);
    if lead.news.last() != Some(&line) {
        lead.news.push(line);
    }
    if lead.news.len() > MAX_NEWS {
        lead.news.remove(0);
        lead.dropped_news_count += 1;
    }
    lead.has_urgent_news |= wakes;
    record_lead(draft, id, lead, None, None);
    if wakes {
        wake(draft, id);
    }
}

/// Adds an urgent event for the lead of a task's mission. The event's text is the task, followed by
/// `change`.
pub(crate) fn notify_lead(draft: &mut Draft, task: &Task, change: &str) {
    if let (Some(mission), true) = (task.mission, task.is_polled()) {
        add_news(
            draft,
            mission,
            &format!("{} \"{}\" {change}", task.id, task.subject),
            true,
        );
    }
}

/// Adds a posted message to the events of the leads that it concerns. A message that is addressed
/// to a lead is an urgent event for that lead. A message in a project's channel that announces
/// merged work or a conflict is an event for every lead of the project, but not an urgent one.
pub(crate) fn on_message_posted(draft: &mut Draft, message: &Message) {
    let has_label = |label: &str| message.labels.iter().any(|known| known.as_str() == label);
    let is_merge = has_label("coord:merge");
    let is_conflict = has_label("coord:conflict");
    let mailbox = message
        .channel
        .as_str()
        .strip_prefix('@')
        .and_then(|channel| AgentName::new(channel).ok());
    if !is_merge && !is_conflict && message.mentions.is_empty() && mailbox.is_none() {
        return;
    }
    let leads: Vec<(MissionId, AgentName, ProjectName)> = draft
        .board()
        .missions
        .values()
        .filter_map(|mission| {
            Some((
                mission.id,
                mission.lead.as_ref()?.acting_name()?.clone(),
                mission.project.clone(),
            ))
        })
        .collect();
    for (mission, name, project) in leads {
        if message.sender == Actor::Agent(name.clone()) {
            continue;
        }
        let is_addressed = message.mentions.contains(&name) || mailbox.as_ref() == Some(&name);
        let is_in_channel = message.channel == bus::channel_of(&project);
        if is_addressed {
            let text = format!(
                "{} wrote to you ({}): {}",
                message.sender, message.id, message.text
            );
            add_news(draft, mission, &text, true);
        } else if is_in_channel && (is_merge || is_conflict) {
            let label = if is_merge {
                "coord:merge"
            } else {
                "coord:conflict"
            };
            add_news(draft, mission, &format!("{label}: {}", message.text), false);
        }
    }
}

/// Adds an urgent event for a mission's lead when one of the mission's workers asks a question or
/// for permission.
pub(crate) fn on_approval_asked(draft: &mut Draft, approval: crate::ids::ApprovalId) {
    let Some(request) = draft.board().approvals.get(&approval).cloned() else {
        return;
    };
    let Some(attempt) = draft.board().attempts.get(&request.attempt).cloned() else {
        return;
    };
    let Some(mission) = attempt
        .mission
        .filter(|_| !attempt.takes_no_slot && request.is_open())
    else {
        return;
    };
    let text = format!(
        "{} asks {approval} for {}: {}",
        attempt.agent,
        attempt.task,
        request.subject()
    );
    add_news(draft, mission, &text, true);
}

/// Adds an event for all leads of a project except the lead of the mission `except`. The event is
/// not urgent.
pub(super) fn notify_siblings(
    draft: &mut Draft,
    project: &ProjectName,
    except: MissionId,
    text: &str,
) {
    let others: Vec<MissionId> = led_missions(draft.board(), project)
        .map(|mission| mission.id)
        .filter(|id| *id != except)
        .collect();
    for id in others {
        add_news(draft, id, text, false);
    }
}

/// Posts a message about a mission in the channel in which the mission was requested.
pub(super) fn post_to_requester(
    draft: &mut Draft,
    id: MissionId,
    label: &str,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id) else {
        return Ok(());
    };
    post_about_mission(draft, &mission, &lead, label, text, now)
}

/// Returns the labels (search words) by which a mission's messages are found: the mission's id and
/// its lead's label.
pub(crate) fn mission_labels(mission: &Mission) -> Vec<Label> {
    let lead = mission
        .lead
        .as_ref()
        .and_then(|lead| lead.name.as_ref())
        .and_then(label_of);
    Label::new(&mission.id.to_string())
        .ok()
        .into_iter()
        .chain(lead)
        .collect()
}

/// Posts a message about a mission, with the mission's labels, as a reply to the message that
/// requested the mission.
pub(super) fn post_about_mission(
    draft: &mut Draft,
    mission: &Mission,
    lead: &Lead,
    label: &str,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    let labels = [
        Label::new(label).ok(),
        Label::new(&mission.id.to_string()).ok(),
        lead.name.as_ref().and_then(label_of),
    ];
    let labels = labels.into_iter().flatten().collect();
    // The text may contain an agent's own words. Shorten the text to the limit for messages, so
    // that the post is never refused because of its length.
    let text: String = text
        .trim_end()
        .chars()
        .take(bus::MAX_TEXT_BYTES / 4)
        .collect();
    bus::post_as_regatta(
        draft,
        lead.channel.clone(),
        text,
        (labels, lead.message),
        now,
    )
    .map(|_| ())
}
