//! Tests of the outbox.

use super::*;

fn post(n: u64, stage: u32) -> ThreadPost {
    ThreadPost {
        number: n,
        content: PostContent::Turn { turn: 1 },
        stage,
        shown: 0,
        begun: true,
        refs: vec![],
        answer: None,
        failure: None,
    }
}

/// An edit that the limits delay for most of a minute does not delay the end of the turn.
#[test]
fn end_of_a_turn_does_not_wait_behind_a_delayed_edit() {
    let (now, minute) = (Instant::now(), Duration::from_secs(60));
    let (edit, end) = (
        PostWork::Progress(post(2, 1)),
        PostWork::DuePost(post(2, 2)),
    );
    let mut memory = ConversationMemory {
        delayed_work: Some((edit.key(), now + minute)),
        ..ConversationMemory::default()
    };
    assert_eq!(ready_at(&memory, &edit, Duration::ZERO, now), now + minute);
    assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now);
    // A delay by the rate limits applies only to the same version of a post. A failing service
    // delays all posts.
    memory.delayed_work = Some((end.key(), now + minute));
    assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now + minute);
    (memory.delayed_work, memory.not_before) = (None, Some(now + minute));
    assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now + minute);
}

#[test]
fn edits_leave_room_for_the_ends_of_working_turns() {
    let limits = [
        RateLimit::window("chat.update", 50, Duration::from_secs(60)),
        RateLimit::bucket("x", 3.0, Duration::ZERO),
    ];
    for (working, keep) in [(0, 0.5), (20, 0.5), (40, 0.8), (50, 1.0), (200, 1.0)] {
        assert_eq!(share_for_turn_ends(&limits, working), keep, "{working}");
    }
}
