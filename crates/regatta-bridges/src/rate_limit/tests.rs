//! Tests of the limits on calls to services.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Takes the units of a call that arrives as soon as it is sent.
fn acquire_and_arrive(
    limiter: &mut CallLimiter,
    limits: &[RateLimit],
    reserved_share: f64,
    now: Instant,
) -> Result<(), Duration> {
    let acquired = limiter.try_acquire(limits, reserved_share, now);
    if acquired.is_ok() {
        limiter.on_answered(limits, now);
    }
    acquired
}

#[test]
fn limit_allows_a_burst_then_its_rate_and_waits_after_a_refusal() {
    let (mut limiter, start) = (CallLimiter::default(), Instant::now());
    let limits = [
        RateLimit::bucket("post:C1", 2.0, SECOND),
        RateLimit::window("post", 100, 60 * SECOND),
    ];
    let at = |ms: u64| start + Duration::from_millis(ms);
    assert_eq!(
        acquire_and_arrive(&mut limiter, &limits, 0.0, at(0)),
        Ok(())
    );
    assert_eq!(
        acquire_and_arrive(&mut limiter, &limits, 0.0, at(0)),
        Ok(())
    );
    let wait = acquire_and_arrive(&mut limiter, &limits, 0.0, at(0)).unwrap_err();
    assert!((1_000..=1_030).contains(&wait.as_millis()), "{wait:?}");
    assert_eq!(
        acquire_and_arrive(&mut limiter, &limits, 0.0, at(1_030)),
        Ok(())
    );
    // Another channel is not delayed.
    assert_eq!(
        acquire_and_arrive(
            &mut limiter,
            &[RateLimit::bucket("post:C2", 1.0, SECOND)],
            0.0,
            at(1_030)
        ),
        Ok(())
    );
    limiter.block_until(&limits[..1], at(31_000));
    assert!(acquire_and_arrive(&mut limiter, &limits, 0.0, at(20_000)).unwrap_err() >= 10 * SECOND);
    assert_eq!(
        acquire_and_arrive(&mut limiter, &limits, 0.0, at(32_500)),
        Ok(())
    );
}

/// The interval has the window's length and may start at any time.
#[test]
fn no_interval_has_more_calls_than_its_limit() {
    let (mut limiter, start) = (CallLimiter::default(), Instant::now());
    let limit = [RateLimit::window("x", 50, 60 * SECOND)];
    let mut sent: Vec<u64> = Vec::new();
    for ms in (0..300_000).step_by(7) {
        if acquire_and_arrive(
            &mut limiter,
            &limit,
            if ms % 3 == 0 { 0.5 } else { 0.0 },
            start + Duration::from_millis(ms),
        )
        .is_ok()
        {
            sent.push(ms);
        }
    }
    for (index, ms) in sent.iter().enumerate() {
        let within = sent[index..]
            .iter()
            .take_while(|sent| **sent < ms + 60_000)
            .count();
        assert!(within <= 50, "{within} from {ms}");
    }
    assert!(
        sent.len() >= 240,
        "{}: the limit is not reached",
        sent.len()
    );
}

/// A call that is under way may arrive together with the next call. Until its arrival, the call
/// counts as if it arrived now.
#[test]
fn call_under_way_counts_as_if_it_arrived_now() {
    let (mut limiter, start) = (CallLimiter::default(), Instant::now());
    let limit = [RateLimit::bucket("post:C1", 2.0, SECOND)];
    let at = |ms: u64| start + Duration::from_millis(ms);
    assert_eq!(
        [0, 0, 1_030].map(|ms| limiter.try_acquire(&limit, 0.0, at(ms)).is_ok()),
        [true, true, false]
    );
    limiter.on_answered(&limit, at(1_800));
    limiter.on_answered(&limit, at(1_800));
    assert!(limiter.try_acquire(&limit, 0.0, at(2_100)).is_err());
    assert_eq!(limiter.try_acquire(&limit, 0.0, at(2_830)), Ok(()));
    let window = [RateLimit::window("x", 2, 10 * SECOND)];
    assert_eq!(
        [0, 0].map(|ms| limiter.try_acquire(&window, 0.0, at(ms)).is_ok()),
        [true; 2]
    );
    limiter.on_answered(&window, at(9_000));
    let wait = limiter.try_acquire(&window, 0.0, at(15_000)).unwrap_err();
    assert!((4_199..=4_201).contains(&wait.as_millis()), "{wait:?}");
    // A call that was cut off does not block others forever.
    assert_eq!(limiter.try_acquire(&window, 0.0, at(71_000)), Ok(()));
}

/// The service continues to count when this process restarts, so this process must not forget
/// its calls.
#[test]
fn counts_and_refusals_are_kept_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slack-claude");
    let limits = [
        RateLimit::window("all calls", 3, 60 * SECOND),
        RateLimit::bucket("post:C1", 2.0, 30 * SECOND),
    ];
    let now = Instant::now();
    let mut first = CallLimiter::open(&path, now).unwrap();
    assert_eq!(
        [0; 2].map(|_| acquire_and_arrive(&mut first, &limits, 0.0, now).is_ok()),
        [true; 2]
    );
    first.block_until(&[RateLimit::window("shut", 9, SECOND)], now + 40 * SECOND);
    drop(first);
    let now = Instant::now();
    let mut second = CallLimiter::open(&path, now).unwrap();
    let wait = acquire_and_arrive(&mut second, &limits[1..], 0.0, now).unwrap_err();
    assert!(wait > 20 * SECOND, "the bucket was reset: {wait:?}");
    let wait_after_refusal = acquire_and_arrive(
        &mut second,
        &[RateLimit::window("shut", 9, SECOND)],
        0.0,
        now,
    )
    .unwrap_err();
    assert!(
        wait_after_refusal > 30 * SECOND,
        "the refusal was forgotten: {wait_after_refusal:?}"
    );
    assert_eq!(
        acquire_and_arrive(&mut second, &limits[..1], 0.0, now),
        Ok(())
    );
    assert!(
        acquire_and_arrive(&mut second, &limits[..1], 0.0, now).is_err(),
        "the window was reset"
    );
    // Lines that no longer count are removed.
    drop(second);
    let old = format!(
        "{}sent 1000 old\nrubbish\n",
        std::fs::read_to_string(&path).unwrap()
    );
    std::fs::write(&path, old).unwrap();
    CallLimiter::open(&path, now).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        (text.lines().count(), text.contains("old")),
        (11, false),
        "{text}"
    );
}

/// A service counts arrivals. The arriving calls stay within the limits despite delays of
/// calls, stalls of the machine and kills of this process, because each call is counted until
/// its arrival is certain.
#[test]
fn random_delays_stalls_and_kills_exceed_no_limit_at_the_service() {
    let mut random_state = 20_261_118_u64;
    let mut random_below = move |bound: u64| {
        random_state = random_state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random_state >> 33) % bound.max(1)
    };
    let mut used = [0; 2];
    for round in 0..200 {
        let directory = tempfile::tempdir().unwrap();
        let (path, start) = (directory.path().join("slack-claude"), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let window = RateLimit::window("update", 5, SECOND);
        let bucket = RateLimit::bucket("post:C1", 2.0, SECOND / 4);
        let mut limiter = CallLimiter::open_at(&path, start, 1_000_000).unwrap();
        // Calls under way, with the time of arrival, the time of the answer, and the limit that
        // the call uses.
        let mut flights: Vec<(u64, u64, bool)> = Vec::new();
        let (mut arrivals, mut now) = ([Vec::new(), Vec::new()], 0_u64);
        while now < 20_000 {
            // Most steps are short, and sometimes the machine stalls.
            now += if random_below(40) == 0 {
                300 + random_below(900)
            } else {
                1 + random_below(15)
            };
            if random_below(300) == 0 {
                // The process is killed. Calls under way may still arrive for a while, and
                // their answers are lost.
                for (arrives_at, _, is_post) in flights.drain(..) {
                    if arrives_at <= now || random_below(2) == 0 {
                        arrivals[usize::from(is_post)].push(arrives_at.min(now + 2_900));
                    }
                }
                now += 20 + random_below(1_500);
                limiter = CallLimiter::open_at(&path, at(now), 1_000_000 + now).unwrap();
            }
            flights.retain(|(arrives_at, answered_at, is_post)| {
                if *answered_at <= now {
                    arrivals[usize::from(*is_post)].push(*arrives_at);
                    limiter.on_answered(
                        std::slice::from_ref(if *is_post { &bucket } else { &window }),
                        at(now),
                    );
                }
                *answered_at > now
            });
            let is_post = random_below(2) == 0;
            let limit = std::slice::from_ref(if is_post { &bucket } else { &window });
            if flights.len() < 16 && limiter.try_acquire(limit, 0.0, at(now)).is_ok() {
                let longest = if random_below(5) == 0 { 800 } else { 20 };
                let arrives_at = now + random_below(longest);
                flights.push((arrives_at, arrives_at + random_below(200), is_post));
            }
        }
        let [updates, posts] = &mut arrivals;
        updates.sort_unstable();
        posts.sort_unstable();
        for (index, ms) in updates.iter().enumerate() {
            let within = updates[index..]
                .iter()
                .take_while(|later| **later < ms + 1_000)
                .count();
            assert!(
                within <= 5,
                "round {round}: {within} updates within a second from {ms}"
            );
        }
        let (mut tokens, mut since) = (2.0_f64, 0_u64);
        for ms in posts.iter() {
            tokens = (tokens + (ms - since) as f64 / 250.0).min(2.0) - 1.0;
            assert!(
                tokens >= -0.001,
                "round {round}: a post at {ms} finds {tokens} tokens"
            );
            since = *ms;
        }
        used = [used[0] + updates.len(), used[1] + posts.len()];
    }
    assert!(
        used.iter().all(|calls| *calls > 200 * 20),
        "the limits are not reached: {used:?}"
    );
}

/// A call that takes several units leaves fewer for the others.
#[test]
fn call_uses_as_many_units_as_it_costs() {
    let (mut limiter, now) = (CallLimiter::default(), Instant::now());
    let write = [RateLimit::window("points", 12, 60 * SECOND).with_cost(5)];
    let read = [RateLimit::window("points", 12, 60 * SECOND)];
    assert_eq!(
        [0; 3].map(|_| acquire_and_arrive(&mut limiter, &write, 0.0, now).is_ok()),
        [true, true, false]
    );
    assert_eq!(
        [0; 3].map(|_| acquire_and_arrive(&mut limiter, &read, 0.0, now).is_ok()),
        [true, true, false]
    );
    assert_eq!(
        acquire_and_arrive(&mut limiter, &write, 0.0, now + 62 * SECOND),
        Ok(())
    );
}

#[test]
fn calls_that_can_wait_leave_room_for_urgent_calls() {
    let (mut limiter, now) = (CallLimiter::default(), Instant::now());
    let limit = [RateLimit::window("x", 10, 60 * SECOND)];
    let taken = (0..20)
        .filter(|_| acquire_and_arrive(&mut limiter, &limit, 0.5, now).is_ok())
        .count();
    assert_eq!(taken, 5);
    let taken = (0..20)
        .filter(|_| acquire_and_arrive(&mut limiter, &limit, 0.0, now).is_ok())
        .count();
    assert_eq!(taken, 5);
}
