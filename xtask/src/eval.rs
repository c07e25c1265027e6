//! `cargo xtask eval multi-lead`: starts two missions in a project at once, and scores the result
//! with a list of checks.
//!
//! Afterwards each check runs on evidence with a planted fault. A check that does not find its
//! fault is worthless.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::args::Args;
use crate::bench::agents::fixture::BenchFixture;
use crate::bench::start::program_path;
use crate::report::{Report, median};

/// The lead's script: in its first turn it plans three tasks, the last one after the others; when
/// all have landed, it reports.
const LEAD_SCRIPT: &str = r#"cat > /dev/null
case "$("$REGATTA_BIN" mission show "$REGATTA_MISSION" --json)" in
*'"subject":"Part '*) "$REGATTA_BIN" mission finish "All parts of $REGATTA_MISSION have landed" ;;
*)
  add() { "$REGATTA_BIN" task add "$@" --type task --validate true --json | sed 's/.*"id":"\(T[0-9]*\)".*/\1/'; }
  a=$(add "Part a of $REGATTA_MISSION" --files "$REGATTA_MISSION/a" --exists "$REGATTA_MISSION/a")
  b=$(add "Part b of $REGATTA_MISSION" --files "$REGATTA_MISSION/b" --exists "$REGATTA_MISSION/b")
  add "Part c of $REGATTA_MISSION" --files "$REGATTA_MISSION/c" --exists "$REGATTA_MISSION/c" --blocked-by "$a,$b" > /dev/null ;;
esac
exit 0
"#;

/// The worker's script: it creates the file that its prompt names.
const WORKER_SCRIPT: &str = r#"file=$(sed -n 's/^- \(M[0-9]*\/[abc]\)$/\1/p' | head -n 1)
mkdir -p "${file%/*}" && echo "$REGATTA_AGENT" > "$file"
"#;

const MISSION_COUNT: usize = 2;
const TASKS_PER_MISSION: usize = 3;

/// The evidence that a run leaves behind for the checks.
#[derive(Clone, Debug, Default)]
struct RunEvidence {
    /// The output of `mission show` for each mission.
    missions: Vec<Value>,
    /// All messages of the project's channel.
    messages: Vec<Value>,
    /// All events.
    events: Vec<Value>,
    /// The subjects of the trunk's commits since the start, oldest first.
    subjects: Vec<String>,
    /// Commits of the trunk with more than one parent.
    merges: usize,
    /// The number of trunk commits on which the check fails.
    failing_tips: usize,
    /// The files on the trunk, with the agents that created them.
    files: Vec<(String, String)>,
    /// The number of programs that still ran after the end.
    leftover_programs: usize,
}

/// A check: its name, its points, and a function that returns the error, if there is one.
type EvalCheck = (&'static str, u32, fn(&RunEvidence) -> Option<String>);
/// A planted fault for the check of the same name.
type PlantedFault = (&'static str, fn(&mut RunEvidence));

const CHECKS: [EvalCheck; 9] = [
    ("each mission has a lead of its own", 10, check_own_leads),
    (
        "both missions end as done, with a report",
        15,
        check_both_done,
    ),
    (
        "workers are named under their own lead",
        10,
        check_own_workers,
    ),
    (
        "every change is on the trunk once",
        15,
        check_every_change_once,
    ),
    (
        "merges are serial: no divergent commit, no two moves at once",
        15,
        check_serial_landing,
    ),
    ("every tip of the trunk is green", 10, check_green_trunk),
    (
        "no task is worked on twice, or by another lead's workers",
        10,
        check_no_task_twice,
    ),
    (
        "landings are announced, and leads are notified of each other",
        10,
        check_messages,
    ),
    (
        "nothing is left running, claimed or registered",
        5,
        check_nothing_left,
    ),
];

const PLANTED_FAULTS: [PlantedFault; 9] = [
    ("each mission has a lead of its own", |run_evidence| {
        run_evidence.missions[1]["lead"]["name"] = run_evidence.missions[0]["lead"]["name"].clone()
    }),
    ("both missions end as done, with a report", |run_evidence| {
        run_evidence.missions[0]["result"]["how"] = json!("cancelled")
    }),
    ("workers are named under their own lead", |run_evidence| {
        run_evidence.files[0].1 = run_evidence.files[TASKS_PER_MISSION].1.clone()
    }),
    ("every change is on the trunk once", |run_evidence| {
        run_evidence.subjects.push(run_evidence.subjects[0].clone())
    }),
    (
        "merges are serial: no divergent commit, no two moves at once",
        |run_evidence| run_evidence.merges = 1,
    ),
    ("every tip of the trunk is green", |run_evidence| {
        run_evidence.failing_tips = 1
    }),
    (
        "no task is worked on twice, or by another lead's workers",
        |run_evidence| {
            let again = run_evidence
                .events
                .iter()
                .find(|event| event["kind"] == "attempt.started")
                .cloned();
            run_evidence.events.insert(0, again.unwrap_or_default());
        },
    ),
    (
        "landings are announced, and leads are notified of each other",
        |run_evidence| {
            run_evidence
                .messages
                .retain(|message| !has_label(message, "coord:merge"))
        },
    ),
    (
        "nothing is left running, claimed or registered",
        |run_evidence| run_evidence.leftover_programs = 1,
    ),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let mut report = Report::new("eval-multi-lead", args);
    let several = run_once(args, 3)?;
    let mut score = 0;
    for (name, points, check) in CHECKS {
        let wrong = check(&several);
        score += if wrong.is_none() { points } else { 0 };
        report.require(
            wrong.is_none(),
            format!(
                "{points:>3} {name}{}",
                wrong.map_or(String::new(), |wrong| format!(": {wrong}"))
            ),
        );
    }
    report.add_line(format!(
        "  score: {score} of {}",
        CHECKS.iter().map(|row| row.1).sum::<u32>()
    ));
    report.set_value("score", score);
    let waits = handover_times(&several);
    let longest = waits.iter().copied().fold(0.0, f64::max);
    report.add_line(format!(
        "  {} landings were ready while another moved the trunk: they landed {:.0} ms after it at \
        the median, {longest:.0} ms at most",
        waits.len(),
        median(waits.clone()),
    ));
    report.check_target(
        longest <= 1_000.0,
        "the next in line lands within 1 s of the trunk being free",
    );

    // The same missions one after the other must have the same outcome.
    let single_run = run_once(args, 1)?;
    let same = comparable_outcome(&single_run) == comparable_outcome(&several);
    report.require(
        same,
        format!(
            "with one lead the outcome is the same: {:?}",
            comparable_outcome(&single_run)
        ),
    );
    report.require(
        max_simultaneous_leads(&single_run) == 1,
        format!(
            "with room for one, {} lead at a time",
            max_simultaneous_leads(&single_run)
        ),
    );
    report.require(
        max_simultaneous_leads(&several) > 1,
        format!(
            "with room for three, {} at a time",
            max_simultaneous_leads(&several)
        ),
    );

    for (name, fault) in PLANTED_FAULTS {
        let mut broken = several.clone();
        fault(&mut broken);
        let seen = CHECKS
            .iter()
            .find(|check| check.0 == name)
            .and_then(|check| check.2(&broken));
        report.require(
            seen.is_some(),
            format!("the planted fault is found: {name}"),
        );
    }
    report.finish()
}

/// Sets up a project, starts the missions, waits for their end and collects the evidence.
fn run_once(args: &Args, max_leads: u32) -> anyhow::Result<RunEvidence> {
    let program = program_path(args)?;
    let fixture = BenchFixture::new(args, &program)?;
    let daemon = fixture.start_daemon()?;
    let shop = fixture.root.join("shop");
    std::fs::write(
        shop.join("test.sh"),
        "for file in M*/c; do [ ! -e $file ] || [ -e ${file%c}a ] || exit 1; done\n",
    )?;
    let leads = format!(
        "[leads]\nmax_leads = {max_leads}\nagent = \"boss\"\nworkers = [\"hand\"]\nmax_workers = \
        2\n"
    );
    let text = format!(
        "[project]\nname = \"shop\"\ntrunk = \"main\"\n[validation]\ncommands = [\"sh \
        ./test.sh\"]\n{leads}"
    );
    std::fs::write(shop.join("regatta.toml"), text)?;
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
    fixture.run_command(&["init"])?;
    for (name, script) in [("boss", LEAD_SCRIPT), ("hand", WORKER_SCRIPT)] {
        let file = fixture.root.join(format!("{name}.sh"));
        std::fs::write(&file, script)?;
        let (command, variable) = (
            format!("sh {}", file.display()),
            format!("REGATTA_BIN={}", program.display()),
        );
        let words = [
            "agent",
            "add",
            name,
            "--runtime",
            "command",
            "--command",
            &command,
            "--env",
            &variable,
        ];
        fixture.run_command(&[&words[..], &["--confine", "off"]].concat())?;
    }
    let start = fixture.git(&["rev-parse", "main"])?;
    for nth in 1..=MISSION_COUNT {
        fixture.run_command(&[
            "msg",
            "send",
            "shop",
            &format!("!mission Make the parts of mission {nth}"),
        ])?;
    }
    let began = Instant::now();
    while fixture
        .run_command(&["mission", "list"])?
        .as_array()
        .is_none_or(|fixture| !fixture.is_empty())
    {
        ensure!(
            began.elapsed() < Duration::from_secs(180),
            "the missions did not end: {}",
            fixture.run_command(&["mission", "list"])?
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let evidence = collect_evidence(&fixture, start.trim())?;
    fixture.stop_daemon(daemon)?;
    Ok(evidence)
}

fn collect_evidence(fixture: &BenchFixture, start: &str) -> anyhow::Result<RunEvidence> {
    let mut run_evidence = RunEvidence::default();
    for nth in 1..=MISSION_COUNT {
        run_evidence.missions.push(fixture.run_command(&[
            "mission",
            "show",
            &format!("M{nth}"),
        ])?);
    }
    let list = |value: Value| value.as_array().cloned().context("a list");
    run_evidence.messages =
        list(fixture.run_command(&["msg", "history", "shop", "--limit", "1000"])?)?;
    run_evidence.events = fixture.events()?;
    let range = format!("{start}..main");
    run_evidence.subjects = fixture
        .git(&["log", "--reverse", "--format=%s", &range])?
        .lines()
        .map(str::to_owned)
        .collect();
    run_evidence.merges = fixture
        .git(&["rev-list", "--merges", &range])?
        .lines()
        .count();
    for commit in fixture.git(&["rev-list", "--reverse", &range])?.lines() {
        fixture.git(&["checkout", "-q", "--detach", commit])?;
        run_evidence.failing_tips += usize::from(
            !fixture
                .command("sh")
                .arg("./test.sh")
                .output()?
                .status
                .success(),
        );
    }
    fixture.git(&["checkout", "-q", "main"])?;
    for file in fixture
        .git(&["ls-tree", "-r", "--name-only", "main"])?
        .lines()
        .filter(|fixture| fixture.starts_with('M'))
    {
        run_evidence.files.push((
            file.to_owned(),
            fixture
                .git(&["show", &format!("main:{file}")])?
                .trim()
                .to_owned(),
        ));
    }
    let agents = list(fixture.run_command(&["agent", "list"])?)?;
    let named = agents
        .iter()
        .filter(|agent| {
            agent["name"]
                .as_str()
                .is_some_and(|name| name.contains('/'))
        })
        .count();
    let held = fixture.run_command(&["claim", "list"])?["held"]
        .as_array()
        .map_or(0, Vec::len);
    run_evidence.leftover_programs = named + held;
    Ok(run_evidence)
}

fn has_label(message: &Value, label: &str) -> bool {
    message["labels"]
        .as_array()
        .is_some_and(|message| message.iter().any(|text| text == label))
}

fn lead_of(mission: &Value) -> &str {
    mission["lead"]["name"].as_str().unwrap_or_default()
}

fn check_own_leads(run_evidence: &RunEvidence) -> Option<String> {
    let names: BTreeSet<&str> = run_evidence
        .missions
        .iter()
        .map(lead_of)
        .filter(|mission| mission.starts_with("shop-dev/lead-"))
        .collect();
    let acked = run_evidence
        .messages
        .iter()
        .filter(|message| {
            has_label(message, "spawn-ack") && message["text"].to_string().contains(" leads M")
        })
        .count();
    (names.len() != MISSION_COUNT || acked != MISSION_COUNT)
        .then(|| format!("{names:?}, {acked} announced"))
}

fn check_both_done(run_evidence: &RunEvidence) -> Option<String> {
    let done = |value: &&Value| {
        value["result"]["how"] == "done"
            && value["result"]["report"]
                .as_str()
                .is_some_and(|text| text.contains("have landed"))
    };
    let many = run_evidence.missions.iter().filter(done).count();
    (many != MISSION_COUNT).then(|| format!("{many} are"))
}

fn check_own_workers(run_evidence: &RunEvidence) -> Option<String> {
    let worker_prefix = |nth: usize| {
        format!(
            "{}/worker-",
            run_evidence
                .missions
                .get(nth)
                .map(lead_of)
                .unwrap_or_default()
        )
    };
    let wrong = run_evidence.files.iter().find(|(file, by)| {
        let nth = file[1..]
            .split('/')
            .next()
            .and_then(|file| file.parse::<usize>().ok())
            .unwrap_or(1);
        !by.starts_with(&worker_prefix(nth - 1))
    });
    wrong.map(|(file, by)| format!("{file} was made by {by}"))
}

fn check_every_change_once(run_evidence: &RunEvidence) -> Option<String> {
    let different: BTreeSet<&String> = run_evidence.subjects.iter().collect();
    let expected = MISSION_COUNT * TASKS_PER_MISSION;
    (run_evidence.subjects.len() != expected
        || different.len() != expected
        || run_evidence.files.len() != expected)
        .then(|| {
            format!(
                "{} commits, {} different, {} files, for {expected} tasks",
                run_evidence.subjects.len(),
                different.len(),
                run_evidence.files.len()
            )
        })
}

fn check_serial_landing(run_evidence: &RunEvidence) -> Option<String> {
    let (mut moving, mut most) = (0_i32, 0);
    for event in &run_evidence.events {
        match event["kind"].as_str() {
            Some("landing.moving") => moving += 1,
            Some("landing.landed") => moving = (moving - 1).max(0),
            _ => {}
        }
        most = most.max(moving);
    }
    (run_evidence.merges > 0 || most > 1).then(|| {
        format!(
            "{} merge commits, {most} moves at once",
            run_evidence.merges
        )
    })
}

fn check_green_trunk(run_evidence: &RunEvidence) -> Option<String> {
    (run_evidence.failing_tips > 0).then(|| format!("{} are red", run_evidence.failing_tips))
}

fn check_no_task_twice(run_evidence: &RunEvidence) -> Option<String> {
    let mut live: Vec<(Value, Value)> = Vec::new();
    for event in &run_evidence.events {
        let attempt = &event["data"]["attempt"];
        match event["kind"].as_str() {
            Some("attempt.started") => {
                if live.iter().any(|live| live.0 == attempt["task"]) {
                    return Some(format!("{} had two attempts at once", attempt["task"]));
                }
                live.push((attempt["task"].clone(), attempt["id"].clone()));
                let of = run_evidence
                    .missions
                    .iter()
                    .find(|mission| mission["id"] == attempt["mission"]);
                let agent = attempt["agent"].as_str().unwrap_or_default();
                if of.is_some_and(|of| !agent.starts_with(lead_of(of))) {
                    return Some(format!("{} was worked on by {agent}", attempt["task"]));
                }
            }
            Some("attempt.ended") => live.retain(|live| live.1 != *attempt),
            _ => {}
        }
    }
    None
}

fn check_messages(run_evidence: &RunEvidence) -> Option<String> {
    let merged = run_evidence
        .messages
        .iter()
        .filter(|message| has_label(message, "coord:merge"))
        .count();
    (merged != MISSION_COUNT * TASKS_PER_MISSION).then(|| {
        format!(
            "{merged} of {} landings were announced",
            MISSION_COUNT * TASKS_PER_MISSION
        )
    })
}

fn check_nothing_left(run_evidence: &RunEvidence) -> Option<String> {
    (run_evidence.leftover_programs > 0).then(|| {
        format!(
            "{} agents and claims are left",
            run_evidence.leftover_programs
        )
    })
}

/// Returns the results that must not depend on the number of leads: files on the trunk and the ends
/// of the missions.
fn comparable_outcome(run_evidence: &RunEvidence) -> (Vec<&str>, Vec<&str>) {
    let mut files: Vec<&str> = run_evidence
        .files
        .iter()
        .map(|file| file.0.as_str())
        .collect();
    files.sort_unstable();
    (
        files,
        run_evidence
            .missions
            .iter()
            .filter_map(|mission| mission["result"]["how"].as_str())
            .collect(),
    )
}

/// Returns the largest number of concurrent leads.
fn max_simultaneous_leads(run_evidence: &RunEvidence) -> usize {
    let mut leading: BTreeSet<String> = BTreeSet::new();
    let mut most = 0;
    for event in &run_evidence.events {
        match event["kind"].as_str() {
            Some("mission.led") if event["data"]["lead"]["name"].is_string() => {
                leading.insert(event["data"]["mission"].to_string());
            }
            Some("mission.ended") => {
                leading.remove(&event["data"]["mission"].to_string());
            }
            _ => {}
        }
        most = most.max(leading.len());
    }
    most
}

/// Returns, for each landing that was ready while another one moved the trunk, the time between the
/// two landings.
fn handover_times(run_evidence: &RunEvidence) -> Vec<f64> {
    // Milliseconds of the day, from `2026-01-31T12:34:56.789Z`.
    let time = |event: &Value| {
        let text = event["time"]
            .as_str()?
            .split_once('T')?
            .1
            .trim_end_matches('Z')
            .to_owned();
        let mut parts = text
            .splitn(3, ':')
            .map(|text| text.parse::<f64>().unwrap_or(0.0));
        let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
        Some(((hours * 60.0 + minutes) * 60.0 + seconds) * 1e3)
    };
    let mut ready: BTreeSet<String> = BTreeSet::new();
    let (mut last, mut found): (Option<f64>, Vec<f64>) = (None, Vec::new());
    for event in &run_evidence.events {
        let landing = event["data"]["landing"].to_string();
        match event["kind"].as_str() {
            Some("landing.validated") if last.is_some() => {
                ready.insert(landing);
            }
            Some("landing.landed") => {
                if let (Some(before), Some(now), true) = (last, time(event), ready.remove(&landing))
                {
                    found.push(now - before);
                }
                last = time(event);
            }
            _ => {}
        }
    }
    found
}
