//! The scenarios with a program on a plain pipe: they test the driver without shim and daemon.

use std::time::Duration;

use regatta_agents::drivers::Setup;
use regatta_core::agent::{Key, KeySource, Level, Profile, Runtime};
use regatta_core::session::{Class, Said, Stop};
use regatta_testkit::models::{Ended, Failure, Hold, Pace, Story, Turn};

use super::bench::{Bench, CONTENT, FILE, KEY, Run};
use super::cell::{Cell, Scenario};
use super::pipe::{Piped, Policy, Stage};
use super::programs::{Asks, Drive, Row};

/// The text above the table.
pub(crate) const ABOUT: &str = "A driver runs its program without shim and daemon. Without a \
    daemon there are no Regatta tools to call.";

/// Longer than a turn of any of these programs on a busy machine.
const TURN: Duration = Duration::from_secs(90);
/// How long a program may report nothing about a failing model.
const SILENCE: Duration = Duration::from_secs(120);
/// How long a program may take to end after its input is closed.
const END: Duration = Duration::from_secs(30);

/// Runs one scenario. An error of our own also counts as a failure.
pub(crate) fn run(bench: &Bench<'_>, row: &Row, scenario: Scenario) -> Cell {
    let done = match scenario {
        Scenario::Write => write(bench, row),
        Scenario::Tool => Ok(Cell::NotRun("there is no daemon".into())),
        Scenario::Permission => permission(bench, row),
        Scenario::Cancel => cancel(bench, row),
        Scenario::Restart => restart(bench, row),
        Scenario::Limited => limited(bench, row),
        Scenario::UsedUp => refused(bench, row, scenario, Class::RateLimit),
        Scenario::Overloaded => refused(bench, row, scenario, Class::Overloaded),
        Scenario::Kill => kill(bench, row),
    };
    let faults = bench.models.faults();
    match done {
        Ok(cell) if faults.is_empty() => cell,
        Ok(_) => Cell::failed(format!("the model server reports: {}", faults.join("; "))),
        Err(error) => Cell::failed(format!("{error:#}")),
    }
}

fn setup(row: &Row, run: &Run, resume: Option<String>) -> Setup {
    let argv = run.outfit.argv.clone();
    let runtime = match row.drive {
        Drive::Acp => Runtime::Acp { argv },
        Drive::Claude => Runtime::Claude { argv },
        Drive::CodexExec => Runtime::Codex { argv, app_server: false },
        Drive::CodexServer => Runtime::Codex { argv, app_server: true },
    };
    let profile = Profile {
        preset: Some(row.preset.to_owned()),
        mode: run.outfit.mode.map(str::to_owned),
        env: run.outfit.env.clone(),
        keys: vec![Key { name: run.outfit.key.to_owned(), from: KeySource::Env(run.outfit.key.to_owned()) }],
        confine: Some(Level::Off),
        ..Profile::default()
    };
    Setup {
        runtime,
        profile,
        workspace: run.work.clone(),
        resume,
        used: Default::default(),
        mcp_url: None,
        regatta: None,
        seed: run.mark.clone(),
        sandboxed_root: false,
    }
}

fn stage(bench: &Bench<'_>, run: &Run) -> Stage {
    Stage { account: bench.account, home: run.home.clone(), mark: run.mark.clone(), key: (run.outfit.key, KEY) }
}

fn start(bench: &Bench<'_>, row: &Row, run: &Run, policy: Policy) -> anyhow::Result<Piped> {
    Piped::start(&stage(bench, run), setup(row, run, None), &run.prompt(), policy)
}

/// Returns a story that writes the file.
pub(crate) fn writes(marker: &str) -> Story {
    let turns = [Turn::write(FILE, CONTENT).saying("I write it now."), Turn::say("It is written.")];
    Story::new(marker, turns)
}

/// Returns a turn that stops in the middle of its text until its gate opens, and then writes the
/// file.
pub(crate) fn hangs(marker: &str) -> Story {
    let words = "I think about this long and hard, word by word, before I write anything at all into that file.";
    let turn = Turn::write(FILE, CONTENT).saying(words).paced(Pace::Hang { gate: marker.to_owned() });
    Story::new(marker, [turn, Turn::say("It is written.")])
}

/// Ends the turn and the program. Returns the error of either.
fn finished(piped: &mut Piped) -> anyhow::Result<Result<(), String>> {
    if !piped.until(TURN, |it| it.turns_ended() > 0 || it.has_ended())? {
        return Ok(Err(format!("no turn ended within {} s", TURN.as_secs())));
    }
    if let Some((stop, class, detail)) = last_end(piped)
        && class.is_some()
    {
        return Ok(Err(format!("the turn ended {stop:?}, {class:?}: {detail}")));
    }
    let judgement = piped.finish(END)?;
    if let Some(class) = judgement.class {
        return Ok(Err(format!("judged {class}: {}", judgement.detail)));
    }
    if judgement.usage.iter().all(|it| it.1.tokens() == 0) {
        return Ok(Err("no usage was reported".into()));
    }
    Ok(Ok(()))
}

fn last_end(piped: &Piped) -> Option<(Stop, Option<Class>, String)> {
    piped.said.iter().rev().find_map(|it| match it {
        Said::TurnEnded { stop, class, detail } => Some((*stop, *class, detail.clone())),
        _ => None,
    })
}

/// Stores the transcript of a failed run.
fn kept(bench: &Bench<'_>, run: &Run, piped: &Piped, cell: Cell) -> anyhow::Result<Cell> {
    std::fs::write(run.dir.join("transcript.txt"), piped.transcript())?;
    std::fs::write(run.dir.join("models.txt"), format!("{:#?}\n", bench.models.seen()))?;
    std::fs::write(run.dir.join("said.txt"), format!("{:#?}\n", piped.said))?;
    Ok(cell)
}

fn write(bench: &Bench<'_>, row: &Row) -> anyhow::Result<Cell> {
    let run = bench.place(row, Scenario::Write.word(), Asks::Never)?;
    bench.models.tell(writes(&run.marker));
    let mut piped = start(bench, row, &run, Policy::Allow)?;
    let cell = match finished(&mut piped)? {
        Err(why) => Cell::failed(why),
        Ok(()) if !run.wrote() => Cell::failed("the turn ended well, but the file is missing"),
        Ok(()) => Cell::passed(),
    };
    kept(bench, &run, &piped, cell)
}

/// Checks that the file is written if permission is granted, and is not written if it is denied.
fn permission(bench: &Bench<'_>, row: &Row) -> anyhow::Result<Cell> {
    if let Some(why) = row.never_asks() {
        return Ok(Cell::NotPossible(why.into()));
    }
    for (name, policy, wanted) in [("permission", Policy::Allow, true), ("denied", Policy::Deny, false)] {
        let run = bench.place(row, name, Asks::Always)?;
        bench.models.tell(writes(&run.marker));
        let mut piped = start(bench, row, &run, policy)?;
        let ended = piped.until(TURN, |it| it.turns_ended() > 0 || it.has_ended())?;
        let asked = piped.said.iter().any(|it| matches!(it, Said::Asked(_)));
        let why = match () {
            () if !ended => Some(format!("no turn ended within {} s", TURN.as_secs())),
            () if !asked => Some("the program did not ask for permission".to_owned()),
            () if run.wrote() != wanted => Some(format!("{name}: the file is there: {}", run.wrote())),
            () => None,
        };
        if let Some(why) = why {
            return kept(bench, &run, &piped, Cell::failed(why));
        }
        // After a denial the turn may end in any way; after a grant it must end well.
        if wanted && let Err(why) = finished(&mut piped)? {
            return kept(bench, &run, &piped, Cell::failed(why));
        }
        kept(bench, &run, &piped, Cell::passed())?;
    }
    Ok(Cell::passed())
}

/// Waits until the model server holds the answer.
fn until_hanging(bench: &Bench<'_>, run: &Run, piped: &mut Piped) -> anyhow::Result<bool> {
    let asked = |_: &Piped| bench.models.seen_of(&run.marker).iter().any(|it| it.ended.is_none());
    piped.until(TURN, |it| asked(it) && it.said.iter().any(|it| matches!(it, Said::TurnStarted { .. })))
}

fn cancel(bench: &Bench<'_>, row: &Row) -> anyhow::Result<Cell> {
    if row.drive == Drive::CodexExec {
        return Ok(Cell::NotPossible("`codex exec` accepts no input while it runs; it is stopped by a signal".into()));
    }
    let run = bench.place(row, Scenario::Cancel.word(), Asks::Never)?;
    bench.models.tell(hangs(&run.marker));
    bench.models.tell(writes(&run.later()));
    let mut piped = start(bench, row, &run, Policy::Allow)?;
    if !until_hanging(bench, &run, &mut piped)? {
        return kept(bench, &run, &piped, Cell::failed("the model was not asked"));
    }
    piped.wishes.cancels = 1;
    if !piped.until(END, |it| it.turns_ended() > 0)? {
        return kept(
            bench,
            &run,
            &piped,
            Cell::failed(format!("the turn did not end within {} s of the cancel", END.as_secs())),
        );
    }
    let (stop, ..) = last_end(&piped).unwrap_or((Stop::Error, None, String::new()));
    if stop != Stop::Cancelled {
        return kept(bench, &run, &piped, Cell::failed(format!("the cancelled turn ended {stop:?}")));
    }
    let hung_up = || bench.models.seen_of(&run.marker).iter().all(|it| it.ended == Some(Ended::HungUp));
    let quiet = super::account::until(Duration::from_secs(10), hung_up);
    // The session must be usable for another turn.
    piped.wishes.prompts.push(run.prompt_for(&run.later()));
    let again = piped.until(TURN, |it| it.turns_ended() > 1 || it.has_ended())?;
    let cell = match last_end(&piped) {
        _ if !again || piped.turns_ended() < 2 => Cell::failed("the prompt after the cancel was not answered"),
        Some((_, Some(class), detail)) => Cell::failed(format!("the next turn ended {class}: {detail}")),
        _ if !run.wrote() => Cell::failed("the next turn ended well, but the file is missing"),
        _ if !quiet => Cell::Passed("but the program continued to read the model's answer".into()),
        _ => Cell::passed(),
    };
    kept(bench, &run, &piped, cell)
}

/// Checks that a new driver continues in the middle of a turn after reading the journal.
fn restart(bench: &Bench<'_>, row: &Row) -> anyhow::Result<Cell> {
    let run = bench.place(row, Scenario::Restart.word(), Asks::Never)?;
    bench.models.tell(hangs(&run.marker));
    let mut piped = start(bench, row, &run, Policy::Allow)?;
    if !until_hanging(bench, &run, &mut piped)? {
        return kept(bench, &run, &piped, Cell::failed("the model was not asked"));
    }
    let records = piped.start_anew();
    bench.models.release(&run.marker);
    let cell = match finished(&mut piped)? {
        Err(why) => Cell::failed(why),
        Ok(()) if !run.wrote() => Cell::failed("the turn ended well, but the file is missing"),
        Ok(()) if bench.models.seen_of(&run.marker).len() != 2 => Cell::failed("the model was asked more than once"),
        Ok(()) => Cell::Passed(format!("new driver after {records} records")),
    };
    kept(bench, &run, &piped, cell)
}

/// A short rate limit: the program waits on its own, or reports the limit and its session can be
/// continued.
fn limited(bench: &Bench<'_>, row: &Row) -> anyhow::Result<Cell> {
    let run = bench.place(row, Scenario::Limited.word(), Asks::Never)?;
    let reset = Duration::from_secs(3);
    let limit = Turn::fail(Failure::RateLimited { reset }).held(Hold::For(reset));
    bench.models.tell(Story::new(&run.marker, [limit, Turn::write(FILE, CONTENT), Turn::say("It is written.")]));
    let mut piped = start(bench, row, &run, Policy::Allow)?;
    if !piped.until(TURN, |it| it.turns_ended() > 0 || it.has_ended())? {
        return kept(bench, &run, &piped, Cell::failed(format!("no reaction within {} s", TURN.as_secs())));
    }
    let class = class_of(&mut piped)?;
    if run.wrote() {
        let cell = match class {
            None => Cell::Passed("the program waits on its own".into()),
            Some(class) => Cell::failed(format!("the program waits on its own and does the work, but is classified as {class}")),
        };
        return kept(bench, &run, &piped, cell);
    }
    if class != Some(Class::RateLimit) {
        return kept(bench, &run, &piped, Cell::failed(format!("classed {class:?}")));
    }
    kept(bench, &run, &piped, Cell::passed())?;
    let session = piped.session();
    drop(piped);
    // However long the turn took, the limit must be over by now.
    std::thread::sleep(reset);
    let again = setup(row, &run, session);
    let mut piped = Piped::start(&stage(bench, &run), again, &run.prompt(), Policy::Allow)?;
    let cell = match finished(&mut piped)? {
        Err(why) => Cell::failed(format!("after the reset: {why}")),
        Ok(()) if !run.wrote() => Cell::failed("after the reset the file is missing"),
        Ok(()) => Cell::Passed("the program reports the limit; its session continues after the reset".into()),
    };
    kept(bench, &run, &piped, cell)
}

/// Returns the driver's class for the end of the turn, or of the program.
fn class_of(piped: &mut Piped) -> anyhow::Result<Option<Class>> {
    if let Some((_, Some(class), _)) = last_end(piped) {
        return Ok(Some(class));
    }
    Ok(piped.finish(END)?.class)
}

/// A model that fails permanently: the driver must classify the failure, and never report success.
fn refused(bench: &Bench<'_>, row: &Row, scenario: Scenario, wanted: Class) -> anyhow::Result<Cell> {
    let run = bench.place(row, scenario.word(), Asks::Never)?;
    let failure = match scenario {
        Scenario::UsedUp => Failure::UsedUp { reset: Duration::from_secs(3600) },
        _ => Failure::Overloaded,
    };
    bench.models.tell(Story::new(&run.marker, []).then_always(Turn::fail(failure)));
    let mut piped = start(bench, row, &run, Policy::Allow)?;
    let limited = |it: &Piped| it.said.iter().any(|it| matches!(it, Said::Limited { .. }));
    let told = piped.until(SILENCE, |it| it.turns_ended() > 0 || it.has_ended() || limited(it))?;
    if !told {
        let tries = bench.models.seen_of(&run.marker).len();
        let why = format!("the program reports nothing for {} s ({tries} tries), so only Regatta's limit of silence helps", SILENCE.as_secs());
        return kept(bench, &run, &piped, Cell::NotPossible(why));
    }
    let reset = piped.said.iter().find_map(|it| match it {
        Said::Limited { until_wall, .. } => Some(until_wall.is_some()),
        _ => None,
    });
    let class =
        if reset.is_some() && piped.turns_ended() == 0 { Some(Class::RateLimit) } else { class_of(&mut piped)? };
    let cell = match (class, reset) {
        (Some(class), _) if class != wanted => Cell::failed(format!("classed {class}")),
        (None, _) => Cell::failed("reported as success"),
        (_, Some(true)) => Cell::Passed("with the time of the reset".into()),
        (_, Some(false)) => Cell::Passed("the time of the reset is unknown".into()),
        _ => Cell::passed(),
    };
    kept(bench, &run, &piped, cell)
}

/// The program is killed during a turn: its driver reports that, and a new process continues the
/// session.
fn kill(bench: &Bench<'_>, row: &Row) -> anyhow::Result<Cell> {
    let run = bench.place(row, Scenario::Kill.word(), Asks::Never)?;
    bench.models.tell(hangs(&run.marker));
    bench.models.tell(writes(&run.later()));
    let mut piped = start(bench, row, &run, Policy::Allow)?;
    if !until_hanging(bench, &run, &mut piped)? {
        return kept(bench, &run, &piped, Cell::failed("the model was not asked"));
    }
    let left = piped.kill()?;
    let judgement = piped.judge()?;
    if judgement.class != Some(Class::Crashed) {
        return kept(bench, &run, &piped, Cell::failed(format!("classed {:?}", judgement.class)));
    }
    let Some(session) = piped.session() else {
        return kept(bench, &run, &piped, Cell::failed("its session has no id"));
    };
    kept(bench, &run, &piped, Cell::passed())?;
    drop(piped);
    let mut how = match left.len() {
        0 => String::new(),
        _ => format!("{} outlived it; ", left.join(", ")),
    };
    let prompt = run.prompt_for(&run.later());
    let mut piped = Piped::start(&stage(bench, &run), setup(row, &run, Some(session.clone())), &prompt, Policy::Allow)?;
    let mut ended = finished(&mut piped)?;
    if ended.is_err() {
        kept(bench, &run, &piped, Cell::passed())?;
        // Some programs store nothing of an unfinished turn; then a new session does the work.
        drop(piped);
        bench.models.tell(writes(&run.later()));
        piped = Piped::start(&stage(bench, &run), setup(row, &run, None), &prompt, Policy::Allow)?;
        how.push_str("its session was lost, a new one did the work");
        ended = finished(&mut piped)?;
    } else if piped.session() != Some(session) {
        how.push_str("its session was lost, the driver opened a new one");
    } else if bench.models.seen_of(&run.later()).iter().all(|it| it.users.iter().any(|it| it.contains(&run.prompt()))) {
        how.push_str("its session continued");
    } else {
        // Opening the old session without its content is not a continuation.
        let why = "the session was resumed, but the model did not get the earlier messages";
        return kept(bench, &run, &piped, Cell::failed(why));
    }
    let cell = match ended {
        Err(why) => Cell::failed(format!("after the kill: {why}")),
        Ok(()) if !run.wrote() => Cell::failed("after the kill the file is missing"),
        Ok(()) => Cell::Passed(how),
    };
    kept(bench, &run, &piped, cell)
}
