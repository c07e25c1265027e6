//! Test cases for queries about the past. The expected results are computed by checking every
//! stored row.

use std::collections::BTreeSet;

use regatta_core::attempt::Attempt;
use regatta_core::board::Row;
use regatta_core::bus::Message;
use regatta_core::command::Actor;
use regatta_core::event::Recorded;
use regatta_core::hook::Firing;
use regatta_core::ids::{
    ApprovalId, AttemptId, ChannelName, FiringId, HookId, Label, MessageId, MissionId, TaskId,
};
use regatta_core::landing::Landing;
use regatta_core::search::SearchQuery;
use regatta_core::task::{Task, TaskStatus};
use regatta_engine::ports::store::{MessageFilter, StoreBatch, TaskFilter};

use super::history_fixture::{agent_named, all_steps, person, project_named};
use super::{StoreHarness, all_events, commit_all, last_rows};

pub fn a_row_written_again_replaces_the_old_one(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let (key, old) = last_rows(&steps)
        .into_iter()
        .find(|(_, row)| matches!(row, Row::Message(message) if !message.labels.is_empty() && !message.mentions.is_empty()))
        .unwrap();
    let Row::Message(old) = old else {
        unreachable!()
    };
    let new = Message {
        labels: vec![Label::new("new").unwrap()],
        mentions: vec![agent_named("newcomer")],
        channel: ChannelName::new("elsewhere").unwrap(),
        ..Message::clone(&old)
    };
    let last = &steps.last().unwrap().board;
    let batch = |row: Option<Row>| StoreBatch {
        base_revision: last.revision,
        meta: last.meta(),
        rows: [(key.clone(), row)].into(),
        ..StoreBatch::default()
    };
    store
        .commit(&batch(Some(Row::Message(new.clone().into()))))
        .unwrap();
    let history = store.history();
    let filter_for = |message: &Message| MessageFilter {
        channel: Some(message.channel.clone()),
        label: Some(message.labels[0].clone()),
        mention: Some(message.mentions[0].clone()),
        limit: 9,
        ..MessageFilter::default()
    };
    let narrow = |filter: MessageFilter, channel: bool, label: bool| MessageFilter {
        channel: filter.channel.filter(|_| channel),
        label: filter.label.filter(|_| label),
        mention: filter.mention.filter(|_| !channel && !label),
        ..filter
    };
    for (channel, label) in [(true, false), (false, true), (false, false)] {
        let found = history
            .messages(&narrow(filter_for(&new), channel, label))
            .unwrap();
        assert_eq!(found, std::slice::from_ref(&new));
        assert!(
            history
                .messages(&narrow(filter_for(&old), channel, label))
                .unwrap()
                .iter()
                .all(|message| message.id != old.id)
        );
    }
    store.check().unwrap();
    store.commit(&batch(None)).unwrap();
    assert_eq!(history.messages(&filter_for(&new)).unwrap(), []);
    store.check().unwrap();
}

pub fn history_sees_each_commit_at_once(harness: &mut dyn StoreHarness) {
    let mut store = harness.open();
    let history = store.history();
    for step in all_steps() {
        store.commit(&step.batch).unwrap();
        assert_eq!(
            history.events(step.batch.base_revision, 1000).unwrap(),
            step.batch.events
        );
        for task in step.board.tasks.values() {
            assert_eq!(history.task(task.id).unwrap().as_ref(), Some(&**task));
        }
    }
}

pub fn j12_tasks_are_found_by_every_filter(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let history = store.history();
    let all: Vec<Task> = last_rows(&steps)
        .into_values()
        .filter_map(|row| {
            if let Row::Task(task) = row {
                Some(Task::clone(&task))
            } else {
                None
            }
        })
        .collect();
    let mut statuses: Vec<Vec<TaskStatus>> = TaskStatus::ALL
        .iter()
        .map(|task_status| vec![*task_status])
        .collect();
    statuses.extend([
        vec![],
        TaskStatus::ALL.to_vec(),
        vec![
            TaskStatus::Completed,
            TaskStatus::Failed,
            TaskStatus::Completed,
        ],
        vec![TaskStatus::Offered, TaskStatus::Backlog],
    ]);
    let mut matched = 0;
    for statuses in &statuses {
        for project in [
            None,
            Some(project_named("shop")),
            Some(project_named("docs")),
            Some(project_named("none")),
        ] {
            for mission in [
                None,
                Some(MissionId(1)),
                Some(MissionId(2)),
                Some(MissionId(9)),
            ] {
                for after in [
                    None,
                    Some(TaskId(0)),
                    Some(TaskId(3)),
                    Some(TaskId(u64::MAX)),
                ] {
                    for limit in [0, 1, 2, 100] {
                        let filter = TaskFilter {
                            project: project.clone(),
                            mission,
                            statuses: statuses.clone(),
                            after,
                            limit,
                        };
                        let mut expected: Vec<&Task> = all
                            .iter()
                            .filter(|task| {
                                project.as_ref().is_none_or(|want| task.project == *want)
                            })
                            .filter(|task| mission.is_none() || task.mission == mission)
                            .filter(|task| statuses.is_empty() || statuses.contains(&task.status))
                            .filter(|task| after.is_none_or(|after| task.id > after))
                            .collect();
                        assert_eq!(
                            history.count_tasks(&filter).unwrap(),
                            expected.len() as u64,
                            "{filter:?}"
                        );
                        expected.truncate(if limit == 0 { usize::MAX } else { limit });
                        let found = history.tasks(&filter).unwrap();
                        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
                        matched += usize::from(!found.is_empty());
                    }
                }
            }
        }
    }
    assert!(matched > 100, "only {matched} filters found anything");
}

pub fn j12_ended_entities_are_found_in_history(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let (history, board) = (store.history(), &steps.last().unwrap().board);
    let rows: Vec<Row> = last_rows(&steps).into_values().collect();
    let attempts: Vec<&Attempt> = rows
        .iter()
        .filter_map(|row| {
            if let Row::Attempt(attempt) = row {
                Some(&**attempt)
            } else {
                None
            }
        })
        .collect();
    let landings: Vec<&Landing> = rows
        .iter()
        .filter_map(|row| {
            if let Row::Landing(landing) = row {
                Some(&**landing)
            } else {
                None
            }
        })
        .collect();
    assert!(
        attempts.iter().any(|attempt| attempt.end.is_some())
            && landings.iter().any(|landing| landing.end.is_some())
    );
    for attempt in &attempts {
        assert_eq!(
            history.attempt(attempt.id).unwrap().as_ref(),
            Some(*attempt)
        );
    }
    assert_eq!(history.attempt(AttemptId(999)).unwrap(), None);
    let approvals: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            if let Row::Approval(approval) = row {
                Some(approval)
            } else {
                None
            }
        })
        .collect();
    assert!(approvals.iter().any(|approval| approval.decision.is_some()));
    for approval in approvals {
        assert_eq!(
            history.approval(approval.id).unwrap().as_ref(),
            Some(&**approval)
        );
    }
    assert_eq!(history.approval(ApprovalId(999)).unwrap(), None);
    for task in (0..=board.counters.task + 1).map(TaskId) {
        let expected: Vec<&Attempt> = attempts
            .iter()
            .copied()
            .filter(|attempt| attempt.task == task)
            .collect();
        assert_eq!(
            history
                .attempts_of(task)
                .unwrap()
                .iter()
                .collect::<Vec<_>>(),
            expected
        );
    }
    for name in [
        project_named("shop"),
        project_named("docs"),
        project_named("none"),
    ] {
        for limit in [0, 1, 3, 100] {
            let expected: Vec<&Landing> = landings
                .iter()
                .rev()
                .copied()
                .filter(|landing| landing.project == name)
                .take(limit)
                .collect();
            assert_eq!(
                history
                    .landings(&name, limit)
                    .unwrap()
                    .iter()
                    .collect::<Vec<_>>(),
                expected
            );
        }
    }
    let mut seen = BTreeSet::new();
    for row in &rows {
        match row {
            Row::Mission(mission, running) => {
                assert_eq!(
                    history.mission(mission.id).unwrap(),
                    Some(((**mission).clone(), *running))
                );
                seen.insert(*running);
            }
            Row::Task(task) => assert_eq!(history.task(task.id).unwrap().as_ref(), Some(&**task)),
            _ => {}
        }
    }
    assert_eq!(
        seen.len(),
        2,
        "the story has a running mission and one that ended"
    );
}

pub fn j12_messages_are_found_by_every_filter(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let history = store.history();
    let all: Vec<Message> = last_rows(&steps)
        .into_values()
        .filter_map(|row| {
            if let Row::Message(message) = row {
                Some(Message::clone(&message))
            } else {
                None
            }
        })
        .collect();
    let channels = ["general", "shop", "@ann", "none"].map(|name| ChannelName::new(name).unwrap());
    let labels = ["task", "coord:merge", "count", "none"].map(|label| Label::new(label).unwrap());
    let senders = [
        person("ann"),
        Actor::Agent(agent_named("bob")),
        Actor::Regatta,
    ]
    .map(|actor| actor.to_string());
    let mentions = ["ann", "bob", "none"].map(agent_named);
    fn or_none<T: Clone>(items: &[T]) -> Vec<Option<T>> {
        [None]
            .into_iter()
            .chain(items.iter().cloned().map(Some))
            .collect()
    }
    let mut matched = 0;
    for channel in or_none(&channels) {
        for label in or_none(&labels) {
            for from in or_none(&senders) {
                for mention in or_none(&mentions) {
                    for (after, limit) in [
                        (None, 100),
                        (None, 2),
                        (None, 0),
                        (Some(0), 2),
                        (Some(3), 100),
                        (Some(4), 1),
                        (Some(u64::MAX), 9),
                    ] {
                        let after = after.map(MessageId);
                        let filter = MessageFilter {
                            channel: channel.clone(),
                            label: label.clone(),
                            from: from.clone(),
                            mention: mention.clone(),
                            after,
                            limit,
                            ..MessageFilter::default()
                        };
                        let mut expected: Vec<&Message> = all
                            .iter()
                            .filter(|message| {
                                channel.as_ref().is_none_or(|want| message.channel == *want)
                            })
                            .filter(|message| {
                                label
                                    .as_ref()
                                    .is_none_or(|want| message.labels.contains(want))
                            })
                            .filter(|message| {
                                from.as_ref()
                                    .is_none_or(|want| message.sender.to_string() == *want)
                            })
                            .filter(|message| {
                                mention
                                    .as_ref()
                                    .is_none_or(|want| message.mentions.contains(want))
                            })
                            .filter(|message| after.is_none_or(|after| message.id > after))
                            .collect();
                        let skipped = if after.is_none() {
                            expected.len().saturating_sub(limit)
                        } else {
                            0
                        };
                        expected = expected.into_iter().skip(skipped).take(limit).collect();
                        assert_eq!(
                            history
                                .messages(&filter)
                                .unwrap()
                                .iter()
                                .collect::<Vec<_>>(),
                            expected,
                            "{filter:?}"
                        );
                        matched += usize::from(!expected.is_empty());
                    }
                }
            }
        }
    }
    assert!(matched > 100, "only {matched} filters found anything");
    for channel in &channels {
        for after in [0, 3, 5, u64::MAX] {
            let expected = all
                .iter()
                .filter(|message| message.channel == *channel && message.id.0 > after)
                .count() as u64;
            assert_eq!(
                history.count_messages(channel, MessageId(after)).unwrap(),
                expected
            );
        }
    }
}

pub fn j12_messages_are_found_by_thread_time_and_words(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let history = store.history();
    let all: Vec<Message> = last_rows(&steps)
        .into_values()
        .filter_map(|row| {
            if let Row::Message(message) = row {
                Some(Message::clone(&message))
            } else {
                None
            }
        })
        .collect();
    let (early, late) = (all[2].unix_ms, all[all.len() - 3].unix_ms);
    let mut filters = Vec::new();
    for text in [
        None,
        Some("number"),
        Some("NUMBER ümlaut"),
        Some("\"is late\""),
        Some("\"late is\""),
        Some("nowhere"),
    ] {
        for (thread, reply_to) in [
            (None, None),
            (Some(1), None),
            (Some(2), None),
            (Some(99), None),
            (None, Some(1)),
        ] {
            for (since, until) in [
                (None, None),
                (Some(early), None),
                (None, Some(late)),
                (Some(early), Some(late)),
            ] {
                for (after, before, limit) in [
                    (None, None, 100),
                    (None, None, 2),
                    (None, Some(8), 3),
                    (Some(4), Some(9), 2),
                ] {
                    for (channel, from) in [
                        (None, None),
                        (Some("shop"), None),
                        (Some("general"), Some("bob")),
                    ] {
                        filters.push(MessageFilter {
                            channel: channel.map(|channel| ChannelName::new(channel).unwrap()),
                            from: from.map(str::to_owned),
                            text: text.and_then(SearchQuery::new),
                            thread: thread.map(MessageId),
                            reply_to: reply_to.map(MessageId),
                            since_unix_ms: since,
                            until_unix_ms: until,
                            after: after.map(MessageId),
                            before: before.map(MessageId),
                            limit,
                            ..MessageFilter::default()
                        });
                    }
                }
            }
        }
    }
    let mut matched = 0;
    for filter in filters {
        let matches_filter = |message: &&Message| {
            filter
                .channel
                .as_ref()
                .is_none_or(|want| message.channel == *want)
                && filter
                    .from
                    .as_ref()
                    .is_none_or(|want| message.sender.to_string() == *want)
                && filter
                    .text
                    .as_ref()
                    .is_none_or(|want| want.matches(&message.text))
                && filter
                    .thread
                    .is_none_or(|want| message.id == want || message.thread == Some(want))
                && filter
                    .reply_to
                    .is_none_or(|want| message.reply_to == Some(want))
                && filter
                    .since_unix_ms
                    .is_none_or(|want| message.unix_ms >= want)
                && filter
                    .until_unix_ms
                    .is_none_or(|want| message.unix_ms <= want)
                && filter.after.is_none_or(|after| message.id > after)
                && filter.before.is_none_or(|before| message.id < before)
        };
        let mut expected: Vec<&Message> = all.iter().filter(matches_filter).collect();
        let skipped = if filter.after.is_none() {
            expected.len().saturating_sub(filter.limit)
        } else {
            0
        };
        expected = expected
            .into_iter()
            .skip(skipped)
            .take(filter.limit)
            .collect();
        assert_eq!(
            history
                .messages(&filter)
                .unwrap()
                .iter()
                .collect::<Vec<_>>(),
            expected,
            "{filter:?}"
        );
        matched += usize::from(!expected.is_empty());
    }
    assert!(matched > 100, "only {matched} filters found anything");
    for message in &all {
        assert_eq!(history.message(message.id).unwrap().as_ref(), Some(message));
    }
    assert_eq!(history.message(MessageId(999)).unwrap(), None);
}

pub fn j12_firings_are_found_newest_first(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let history = store.history();
    let all: Vec<Firing> = last_rows(&steps)
        .into_values()
        .filter_map(|row| {
            if let Row::Firing(firing) = row {
                Some(Firing::clone(&firing))
            } else {
                None
            }
        })
        .collect();
    assert!(
        all.iter().any(|firing| firing.ended.is_some())
            && all.iter().any(|firing| firing.ended.is_none())
    );
    for hook in [None, Some(HookId(1)), Some(HookId(2)), Some(HookId(9))] {
        for before in [None, Some(FiringId(1)), Some(FiringId(2))] {
            for limit in [0, 1, 9] {
                let mut expected: Vec<&Firing> = all
                    .iter()
                    .rev()
                    .filter(|firing| hook.is_none_or(|want| firing.hook == want))
                    .filter(|firing| before.is_none_or(|before| firing.id < before))
                    .collect();
                expected.truncate(limit);
                assert_eq!(
                    history
                        .firings(hook, before, limit)
                        .unwrap()
                        .iter()
                        .collect::<Vec<_>>(),
                    expected
                );
            }
        }
    }
}

pub fn events_are_read_page_by_page(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let (history, expected) = (store.history(), all_events(&steps));
    for size in [1, 7, 1000] {
        let mut found: Vec<Recorded> = Vec::new();
        loop {
            let page = history
                .events(found.last().map_or(0, |event| event.revision), size)
                .unwrap();
            assert!(page.len() <= size);
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, expected);
    }
    assert_eq!(history.events(0, 0).unwrap(), []);
    assert_eq!(history.events(u64::MAX, 9).unwrap(), []);
}
