//! The landing queue with the real program and real git: whether every trunk commit is green and
//! every change is there once, the time between landings, and the gain from speculation.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::fixture::BenchFixture;
use crate::args::Args;
use crate::bench::landing::run_git;
use crate::bench::start::program_path;
use crate::report::{Report, median};

/// Of this many branches, two change the same line. Such branches are far apart, because a branch
/// is sent back at most three times.
const TEXTUAL_CONFLICT_EVERY: u64 = 40;
/// The queue is held until this many branches wait. They then have the same base, so that the
/// planned conflicts happen.
const HELD_UNTIL_BRANCHES: u64 = 20;
/// One in this many branches fails its first validation on the trunk, and only that one.
const FLAKE_EVERY: u64 = 25;
/// Of this many branches, two pass alone and fail together.
const SEMANTIC_CONFLICT_EVERY: u64 = 20;

/// The agents' script. Every branch adds a file of its own. Some branches change a shared line, or
/// add half of a pair that needs a third file. When a branch is sent back, the script keeps both
/// sides of the line, or adds the third file.
fn branch_script() -> String {
    format!(
        "n=${{REGATTA_TASK#T}}\n[ -e f$n ] || echo $REGATTA_TASK > f$n\n\
         if [ $((n % {TEXTUAL_CONFLICT_EVERY})) = 3 ] || [ $((n % {TEXTUAL_CONFLICT_EVERY})) = 4 \
         ]; then\n\
           if grep -q '^<<<<<<< ' shared; then sed -i '/^<<<<<<< /d;/^=======$/d;/^>>>>>>> /d' \
         shared\n\
           elif ! grep -qx $REGATTA_TASK shared; then {{ echo $REGATTA_TASK; cat shared; }} > \
         s.new; mv s.new shared; fi\n\
         fi\n\
         case $((n % {SEMANTIC_CONFLICT_EVERY})) in\n\
         7) echo > half$n; [ ! -e half$((n + 1)) ] || echo > whole$n;;\n\
         8) echo > half$n; [ ! -e half$((n - 1)) ] || echo > whole$((n - 1));;\n\
         esac\n"
    )
}

/// Returns whether a branch changes a shared line.
fn is_textual(nth: u64) -> bool {
    matches!(nth % TEXTUAL_CONFLICT_EVERY, 3 | 4)
}

/// Returns whether a branch is half of a pair.
fn is_semantic(nth: u64) -> bool {
    matches!(nth % SEMANTIC_CONFLICT_EVERY, 7 | 8)
}

/// Returns the files of a branch.
fn branch_manifest(nth: u64) -> String {
    let mut files = vec![format!("\"f{nth}\"")];
    if is_textual(nth) {
        files.push("\"shared\"".into());
    }
    match nth % SEMANTIC_CONFLICT_EVERY {
        7 => files.extend([format!("\"half{nth}\""), format!("\"whole{nth}\"")]),
        8 => files.extend([format!("\"half{nth}\""), format!("\"whole{}\"", nth - 1)]),
        _ => {}
    }
    files.join(", ")
}

/// The check. It fails if both halves of a pair meet without the third file, and in the queue once
/// for each flaky branch.
fn check_command(flakes: &str, queue_only: &str) -> String {
    format!(
        "for it in half*; do [ -e $it ] || continue; n=${{it#half}}\n\
           if [ -e half$((n + 1)) ] && [ $((n % {SEMANTIC_CONFLICT_EVERY})) = 7 ] && [ ! -e \
           whole$n ]; then echo pair $n; exit 1; fi\n\
         done\n\
         case $PWD in */staging/*)\n{queue_only}\n\
           for it in f*; do [ -e $it ] || continue; n=${{it#f}}\n\
             if [ $((n % {FLAKE_EVERY})) = 5 ] && mkdir {flakes}/$n 2>/dev/null; then echo flake \
           $n; exit 1; fi\n\
           done;;\n\
         esac\nexit 0\n"
    )
}

fn plan_json(tasks: u64, from: u64, files: impl Fn(u64) -> String) -> anyhow::Result<String> {
    let mut plan = String::new();
    for nth in from..from + tasks {
        writeln!(
            plan,
            "[[task]]\nid = \"t{nth}\"\nsubject = \"Branch {nth}\"\nfiles = [{}]",
            files(nth)
        )?;
    }
    Ok(plan)
}

/// Sets up the project with a check and a `[landing]` section.
fn set_up(fixture: &BenchFixture, script: &str, check: &str, landing: &str) -> anyhow::Result<()> {
    let shop = fixture.root.join("shop");
    fixture.add_agents(8, Some(script))?;
    std::fs::write(shop.join("test.sh"), check)?;
    std::fs::write(shop.join("shared"), "end\n")?;
    let file = shop.join("regatta.toml");
    let text = std::fs::read_to_string(&file)?.replace("\"true\"", "\"sh ./test.sh\"");
    ensure!(
        text.contains("test.sh"),
        "the check is not in regatta.toml: {text}"
    );
    let kept: String = text
        .lines()
        .take_while(|text| !text.starts_with("[landing]"))
        .map(|text| format!("{text}\n"))
        .collect();
    // Flaky failures are remembered outside of the checked tree, where a sandboxed check could not
    // write.
    ensure!(
        kept.contains("[run]\n"),
        "regatta.toml has no [run] section: {kept}"
    );
    let kept = kept.replace("[run]\n", "[run]\nsandbox = \"off\"\n");
    std::fs::write(&file, format!("{kept}[landing]\n{landing}"))?;
    fixture.run_command(&["init", "--yes"])?;
    fixture.git(&["add", "-A"])?;
    fixture.git(&[
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=ann@example.invalid",
        "commit",
        "-q",
        "-m",
        "Set up",
    ])?;
    Ok(())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let landings: u64 = args.number("runs", 200)?;
    let validation: u64 = args.number("validation-ms", 2_000)?;
    let mut report = Report::new("queue", args);
    measure_correctness(args, &mut report, landings)?;
    measure_handover(args, &mut report)?;
    measure_throughput(args, &mut report, validation)?;
    report.finish()
}

/// Lands the same fifty branches in every mode of the queue, and with a simple loop.
fn measure_throughput(args: &Args, report: &mut Report, validation: u64) -> anyhow::Result<()> {
    let plain = time_plain_loop(args, validation)?.as_secs_f64();
    let serial = time_queue(args, "mode = \"serial\"", validation)?.as_secs_f64();
    let every = time_queue(
        args,
        "mode = \"speculative\"\nverify = \"every\"",
        validation,
    )?
    .as_secs_f64();
    let tip =
        time_queue(args, "mode = \"speculative\"\nverify = \"tip\"", validation)?.as_secs_f64();
    report.add_line(format!(
        "  {PACED_BRANCHES} branches, {BAD_BRANCHES} of them bad, \
        {validation} ms to validate, 2 slots:"
    ));
    for (name, seconds) in [
        ("rebase loop", plain),
        ("serial", serial),
        ("every", every),
        ("tip", tip),
    ] {
        let landed = (PACED_BRANCHES - BAD_BRANCHES) as f64;
        report.add_line(format!(
            "    {name:<12} {seconds:>7.1} s   {:>6.1} landings a minute",
            60.0 * landed / seconds
        ));
    }
    report.set_value(
        "throughput",
        json!({ "plain_s": plain, "serial_s": serial, "every_s": every, "tip_s": tip }),
    );
    // Two slots validate at most two trees at once, so when every tree is validated twice, that
    // limits the speed.
    report.check_target(
        serial / every >= 1.5,
        format!(
            "verify = every is {:.1} times as fast as serial (1.5)",
            serial / every
        ),
    );
    report.check_target(
        serial / tip >= 2.5,
        format!(
            "verify = tip is {:.1} times as fast as serial (2.5)",
            serial / tip
        ),
    );
    Ok(())
}

/// The number of branches that [`time_queue`] and [`time_plain_loop`] land. [`BAD_BRANCHES`] of
/// them fail the check.
const PACED_BRANCHES: u64 = 50;
const BAD_BRANCHES: u64 = 3;

/// Returns whether a branch of [`time_queue`] and [`time_plain_loop`] fails the check.
fn is_bad(nth: u64) -> bool {
    nth % 20 == 7
}

/// Returns the time of a simple loop for the same branches: rebase, check, fast-forward. Failing
/// branches are skipped.
fn time_plain_loop(args: &Args, validation: u64) -> anyhow::Result<Duration> {
    let scratch = args.scratch_dir()?;
    let main = scratch.path().join("plain");
    std::fs::create_dir_all(&main)?;
    run_git(&main, &["init", "-q", "-b", "main"])?;
    std::fs::write(main.join("start"), "start\n")?;
    run_git(&main, &["add", "-A"])?;
    run_git(&main, &["commit", "-q", "-m", "start"])?;
    let mut trees = Vec::new();
    for nth in 1..=PACED_BRANCHES {
        let tree = scratch.path().join(format!("w{nth}"));
        run_git(
            &main,
            &[
                "worktree",
                "add",
                "-q",
                tree.to_str().context("a path is UTF-8")?,
                "-b",
                &format!("b{nth}"),
                "main",
            ],
        )?;
        std::fs::write(tree.join(format!("f{nth}")), format!("{nth}\n"))?;
        if is_bad(nth) {
            std::fs::write(tree.join(format!("bad{nth}")), "\n")?;
        }
        run_git(&tree, &["add", "-A"])?;
        run_git(&tree, &["commit", "-q", "-m", "change"])?;
        trees.push((nth, tree));
    }
    let began = Instant::now();
    let mut landed = 0;
    for (nth, tree) in &trees {
        run_git(tree, &["rebase", "-q", "main"])?;
        std::thread::sleep(Duration::from_millis(validation));
        if !is_bad(*nth) {
            run_git(&main, &["merge", "-q", "--ff-only", &format!("b{nth}")])?;
            landed += 1;
        }
    }
    ensure!(landed == PACED_BRANCHES - BAD_BRANCHES, "{landed} landed");
    Ok(began.elapsed())
}

/// Lands many branches with conflicts of both kinds and flaky checks, and then validates every
/// trunk commit again.
fn measure_correctness(args: &Args, report: &mut Report, landings: u64) -> anyhow::Result<()> {
    let fixture = BenchFixture::new(args, &program_path(args)?)?;
    let flakes = fixture.root.join("flakes");
    std::fs::create_dir(&flakes)?;
    let daemon = fixture.start_daemon()?;
    set_up(
        &fixture,
        &branch_script(),
        &check_command(&flakes.to_string_lossy(), ""),
        "checkout = \"update\"\n",
    )?;
    let start = fixture.git(&["rev-parse", "main"])?;
    let began = Instant::now();
    fixture.run_command(&["queue", "hold", "--because", "until many are there"])?;
    fixture.start_isolated(&plan_json(landings, 1, branch_manifest)?, 8, "bench-0")?;
    fixture.wait_for_status(|status| {
        status["landing"].as_u64() >= Some(landings.min(HELD_UNTIL_BRANCHES))
    })?;
    fixture.run_command(&["queue", "release"])?;
    let number = |status: &Value, name: &str| status[name].as_u64().unwrap_or(0);
    fixture.wait_for_status(|fixture| {
        number(fixture, "completed") >= landings
            || number(fixture, "needs_you") + number(fixture, "failed") > 0
    })?;
    let took = began.elapsed();
    let status = fixture.run_command(&["status"])?;
    ensure!(
        number(&status, "completed") >= landings,
        "some did not land: {}",
        fixture.run_command(&["queue"])?
    );
    let events = QueueEvents::from_events(&fixture.events()?);
    fixture.stop_daemon(daemon)?;

    let (mut red, commits) = (
        0,
        fixture.git(&["rev-list", "--reverse", &format!("{start}..main")])?,
    );
    for commit in commits.lines() {
        fixture.git(&["checkout", "-q", "--detach", commit])?;
        red += usize::from(
            !fixture
                .command("sh")
                .arg("./test.sh")
                .output()?
                .status
                .success(),
        );
    }
    fixture.git(&["checkout", "-q", "main"])?;
    let trailers = fixture.git(&[
        "log",
        "--format=%(trailers:key=Regatta-Task,valueonly)",
        "main",
    ])?;
    let mut wrong = 0;
    for nth in 1..=landings {
        let name = format!("T{nth}");
        let file = std::fs::read_to_string(fixture.root.join("shop").join(format!("f{nth}")))
            .unwrap_or_default();
        let landed = trailers
            .split_whitespace()
            .filter(|trailer| *trailer == name)
            .count();
        wrong += usize::from(file.trim() != name || landed != 1);
    }
    let shared = std::fs::read_to_string(fixture.root.join("shop/shared"))?;
    let mut lines = 0;
    for nth in (1..=landings).filter(|number| is_textual(*number)) {
        wrong += usize::from(
            shared
                .lines()
                .filter(|shared| *shared == format!("T{nth}"))
                .count()
                != 1,
        );
        lines += 1;
    }
    let merges = fixture
        .git(&["rev-list", "--min-parents=2", "main"])?
        .lines()
        .count();
    let flaky = std::fs::read_dir(&flakes)?.count();
    let wanted = (1..=landings)
        .filter(|number| number % FLAKE_EVERY == 5)
        .count();
    let pairs = (1..=landings).filter(|number| is_semantic(*number)).count();
    report.add_line(format!(
        "  {landings} branches landed in {:.1} s: {lines} on one line, {pairs} in pairs, {wanted} \
        flaky",
        took.as_secs_f64()
    ));
    report.add_line(format!(
        "  {} left the queue for a textual conflict and {} for a semantic one, {} were deferred, \
        {} batches were red, {} by a flake",
        events.textual, events.semantic, events.deferred, events.failed_trials, events.flaky
    ));
    report.set_value(
        "seen",
        json!({ "textual": events.textual, "semantic": events.semantic, "deferred": events.deferred, "red": events.failed_trials,
                "flakes": flaky, "flaky_batches": events.flaky, "blamed_for_flakes": events.blamed }),
    );
    // A run without conflicts would prove nothing, so they are required.
    report.require(
        events.textual > 0,
        format!("{} textual conflicts were resolved", events.textual),
    );
    report.require(
        events.semantic > 0,
        format!("{} semantic conflicts were resolved", events.semantic),
    );
    report.require(
        flaky == wanted && wanted > 0,
        format!("{flaky} checks failed once for no reason, of {wanted}"),
    );
    report.require(
        events.blamed == 0,
        format!("{} branches were sent back for such a check", events.blamed),
    );
    report.set_value(
        "landings",
        json!({ "landed": landings, "red": red, "wrong": wrong, "seconds": took.as_secs_f64() }),
    );
    report.require(
        red == 0,
        format!(
            "{red} of {} tips are red when they are validated again",
            commits.lines().count()
        ),
    );
    report.require(
        merges == 0,
        format!("{merges} merge commits: the trunk is a line"),
    );
    report.require(
        wrong == 0,
        format!("{wrong} changes are missing or appear twice"),
    );
    Ok(())
}

/// Problems during the run, counted from the events.
#[derive(Default)]
struct QueueEvents {
    /// Landings sent back because of a conflict with the trunk.
    textual: usize,
    /// Landings sent back because they fail together with landed work.
    semantic: usize,
    /// Landings deferred because of a conflict with an earlier landing.
    deferred: usize,
    failed_trials: usize,
    flaky: usize,
    /// Landings sent back because of a flaky check.
    blamed: usize,
}

impl QueueEvents {
    fn from_events(events: &[Value]) -> QueueEvents {
        let mut seen = QueueEvents::default();
        for event in events {
            let text = event.to_string();
            match event["kind"].as_str() {
                Some("landing.ended") if text.contains("it conflicts with") => seen.textual += 1,
                Some("landing.ended") if text.contains("flake ") => seen.blamed += 1,
                Some("landing.ended") if text.contains("pair ") => seen.semantic += 1,
                Some("landing.deferred") => seen.deferred += 1,
                Some("landing.red") => {
                    seen.failed_trials += 1;
                    seen.flaky += usize::from(text.contains("flake "));
                }
                _ => {}
            }
        }
        seen
    }
}

/// Runs two missions with ten branches each. Returns the times between landings when the next
/// landing was waiting.
fn measure_handover(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let fixture = BenchFixture::new(args, &program_path(args)?)?;
    let daemon = fixture.start_daemon()?;
    let script = "echo $REGATTA_TASK > f${REGATTA_TASK#T}\n";
    set_up(&fixture, script, "exit 0\n", "mode = \"serial\"\n")?;
    fixture.run_command(&["queue", "hold", "--because", "until all are there"])?;
    for from in [1, 11] {
        fixture.start_plan(
            &plan_json(10, from, |nth| format!("\"f{nth}\""))?,
            10,
            "bench-0",
        )?;
    }
    fixture.wait_for_status(|status| status["landing"] == 20)?;
    let began = Instant::now();
    fixture.run_command(&["queue", "release"])?;
    fixture.wait_until_landed(20, Duration::from_secs(120))?;
    let took = began.elapsed();
    let queue = fixture.run_command(&["queue"])?;
    let landings: Vec<Value> = queue[0]["recent"].as_array().context("landings")?.clone();
    ensure!(landings.len() == 20, "{} landings", landings.len());
    let mut walls: Vec<u64> = Vec::new();
    for event in fixture
        .events()?
        .iter()
        .filter(|event| event["kind"] == "landing.landed")
    {
        walls.push(
            event["time"]
                .as_str()
                .and_then(millisecond_of_day)
                .context("when it landed")?,
        );
    }
    fixture.stop_daemon(daemon)?;
    let gaps: Vec<f64> = walls
        .windows(2)
        .map(|walls| walls[1].saturating_sub(walls[0]) as f64)
        .collect();
    let middle = median(gaps);
    report.add_line(format!(
        "  two missions with ten branches each, one after the other: {:.1} s",
        took.as_secs_f64()
    ));
    report.set_value("hand_over_ms", middle);
    report.check_target(
        middle < 1_000.0,
        format!("{middle:.0} ms from one landing to the next at the median (target 1000)"),
    );
    Ok(())
}

/// Returns the millisecond of the day of a date such as `2026-11-15T19:34:09.868Z`.
fn millisecond_of_day(time: &str) -> Option<u64> {
    let mut parts = time
        .split_once('T')?
        .1
        .trim_end_matches('Z')
        .split([':', '.'])
        .map(|trim_end_match| trim_end_match.parse::<u64>().ok());
    let mut next = || parts.next().flatten();
    Some(((next()? * 60 + next()?) * 60 + next()?) * 1_000 + next()?)
}

/// Returns how long fifty branches take with these settings of the queue.
fn time_queue(args: &Args, settings: &str, validation: u64) -> anyhow::Result<Duration> {
    let fixture = BenchFixture::new(args, &program_path(args)?)?;
    let daemon = fixture.start_daemon()?;
    let script = "n=${REGATTA_TASK#T}\necho $n > f$n\n[ $((n % 20)) != 7 ] || echo > bad$n\n";
    let slow = format!(
        "case $PWD in */staging/*) sleep {}; for it in bad*; do [ ! -e $it ] || exit 1; done;; \
        esac\nexit 0\n",
        validation as f64 / 1e3
    );
    set_up(
        &fixture,
        script,
        &slow,
        &format!("{settings}\nslots = 2\non_conflict = \"fail\"\n"),
    )?;
    fixture.run_command(&["queue", "hold", "--because", "until all are there"])?;
    fixture.start_plan(
        &plan_json(PACED_BRANCHES, 1, |nth| format!("\"f{nth}\", \"bad{nth}\""))?,
        8,
        "bench-0",
    )?;
    fixture.wait_for_status(|status| status["landing"] == PACED_BRANCHES)?;
    let began = Instant::now();
    fixture.run_command(&["queue", "release"])?;
    fixture.wait_for_status(|status| status["landing"] == 0)?;
    let took = began.elapsed();
    let landed = fixture.run_command(&["status"])?["completed"]
        .as_u64()
        .unwrap_or(0);
    ensure!(landed == PACED_BRANCHES - BAD_BRANCHES, "{landed} landed");
    fixture.stop_daemon(daemon)?;
    Ok(took)
}
