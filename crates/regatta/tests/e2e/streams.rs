//! Streams of events without gaps, from any revision, at any speed and across connections.

use serde_json::json;

use crate::http::ApiClient;
use crate::world::World;

const EVENT_COUNT: u64 = 2_000;

/// Two thousand events are written while a slow reader reads. The reader gets each event once and
/// in order. Resuming from any revision gives exactly the rest.
#[test]
fn a_slow_reader_gets_every_event_once_and_can_resume_anywhere() {
    let world = World::new();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let slow = api.open_event_stream("?after=0", None);
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let api = &api;
                threads.spawn(move || {
                    for nth in 0..EVENT_COUNT / 4 {
                        api.call_ok(
                            "msg.send",
                            json!({ "channel": "dev", "text": format!("{writer}-{nth}") }),
                        );
                    }
                })
            })
            .collect();
        let reader = threads.spawn(move || {
            let mut expected = 1;
            let mut posted = 0;
            for event in slow {
                assert_eq!(
                    event["revision"], expected,
                    "no gap, no repetition: {event}"
                );
                expected += 1;
                posted += u64::from(event["kind"] == "message.posted");
                if expected % 50 == 0 {
                    // Makes the reader slow. The test does not wait for anything here.
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                if posted == EVENT_COUNT {
                    break;
                }
            }
            posted
        });
        writers
            .into_iter()
            .for_each(|scoped_join_handle| scoped_join_handle.join().unwrap());
        assert_eq!(reader.join().unwrap(), EVENT_COUNT);
    });
    let last = world.events().len() as u64;
    assert!(last >= EVENT_COUNT);
    let mut dice = crate::kills::SeededRng(7);
    for _ in 0..20 {
        let from = dice.below(last);
        // A browser sends the header after a lost connection. The header overrides the address.
        let revisions: Vec<u64> = api
            .open_event_stream("?after=3&follow=false", Some(from))
            .map(|api| api["revision"].as_u64().unwrap())
            .collect();
        assert!(
            revisions.iter().copied().eq(from + 1..=last),
            "after {from}: {} of {last}",
            revisions.len()
        );
    }
    assert_eq!(
        api.open_event_stream(&format!("?after={last}&follow=false"), None)
            .count(),
        0
    );
    // Without a revision the stream has only new events.
    let mut coming = api.open_event_stream("", None);
    api.call_ok("msg.send", json!({ "channel": "dev", "text": "last" }));
    assert_eq!(coming.next().unwrap()["revision"], last + 1);
}

/// A stream ends with its daemon, and a new stream from the next daemon continues at the same
/// place.
#[test]
fn a_stream_can_be_resumed_after_a_restart() {
    let world = World::new();
    world.run_ok(&["msg", "send", "dev", "one"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let mut stream = api.open_event_stream("?after=0", None);
    let first = stream.next().unwrap()["revision"].as_u64().unwrap();
    world.run_ok(&["up", "--restart"]);
    let rest = stream
        .map(|stream| stream["revision"].as_u64().unwrap())
        .last()
        .unwrap_or(first);
    let next = api
        .open_event_stream(&format!("?after={rest}"), None)
        .next()
        .unwrap();
    assert_eq!(
        (&next["revision"], &next["kind"]),
        (&json!(rest + 1), &json!("fleet.resumed"))
    );
}
