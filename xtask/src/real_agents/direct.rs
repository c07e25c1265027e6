//! The scenarios with a program on a plain pipe: they test the driver without shim and daemon.

use std::time::Duration;

use regatta_agents::drivers::DriverSetup;
use regatta_core::agent::{Profile, Runtime, SandboxLevel, SecretSource, SecretVariable};
use regatta_core::agent_protocol::{AgentEvent, FailureClass, StopReason};
use regatta_testkit::models::{
    AnswerEnd, AnswerPace, ModelFailure, ModelScript, ModelTurn, TurnRepeat,
};

use super::bench::{AgentBench, FAKE_KEY, STORY_CONTENT, STORY_FILE, ScenarioRun};
use super::piped_program::{PermissionReply, PipedProgram, ProgramSetting};
use super::programs::{PermissionMode, ProgramDriver, ProgramRow};
use super::scenario::{Scenario, ScenarioResult};

/// The text above the table.
pub(crate) const ABOUT: &str = "A driver runs its program without shim and daemon. Without a \
    daemon there are no Regatta tools to call.";

/// Longer than a turn of any of these programs on a busy machine.
const TURN_TIMEOUT: Duration = Duration::from_secs(90);
/// The time for which a program may report nothing about a failing model.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// The time that a program may take to end after its input is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs one scenario. An error of our own also counts as a failure.
pub(crate) fn run(bench: &AgentBench<'_>, row: &ProgramRow, scenario: Scenario) -> ScenarioResult {
    let result = match scenario {
        Scenario::Write => scenario_write(bench, row),
        Scenario::Tool => Ok(ScenarioResult::NotRun("there is no daemon".into())),
        Scenario::Permission => scenario_permission(bench, row),
        Scenario::Cancel => scenario_cancel(bench, row),
        Scenario::Restart => scenario_restart(bench, row),
        Scenario::RateLimited => scenario_rate_limit(bench, row),
        Scenario::QuotaExhausted => scenario_refusal(bench, row, scenario, FailureClass::RateLimit),
        Scenario::Overloaded => scenario_refusal(bench, row, scenario, FailureClass::Overloaded),
        Scenario::Kill => scenario_kill(bench, row),
    };
    let faults = bench.models.errors();
    match result {
        Ok(cell) if faults.is_empty() => cell,
        Ok(_) => ScenarioResult::failed(format!("the model server reports: {}", faults.join("; "))),
        Err(error) => ScenarioResult::failed(format!("{error:#}")),
    }
}

fn setup(row: &ProgramRow, run: &ScenarioRun, resume: Option<String>) -> DriverSetup {
    let argv = run.outfit.argv.clone();
    let runtime = match row.driver {
        ProgramDriver::Acp => Runtime::Acp { argv },
        ProgramDriver::Claude => Runtime::Claude { argv },
        ProgramDriver::CodexExec => Runtime::Codex {
            argv,
            app_server: false,
        },
        ProgramDriver::CodexServer => Runtime::Codex {
            argv,
            app_server: true,
        },
    };
    let profile = Profile {
        preset: Some(row.preset.to_owned()),
        mode: run.outfit.mode.map(str::to_owned),
        env: run.outfit.env.clone(),
        keys: vec![SecretVariable {
            name: run.outfit.key_variable.to_owned(),
            from: SecretSource::Env(run.outfit.key_variable.to_owned()),
        }],
        sandbox: Some(SandboxLevel::Off),
        ..Profile::default()
    };
    DriverSetup {
        runtime,
        profile,
        workspace: run.work_dir.clone(),
        resume,
        used: Default::default(),
        mcp_url: None,
        regatta: None,
        seed: run.mark.clone(),
        sandboxed_root: false,
    }
}

fn stage(bench: &AgentBench<'_>, run: &ScenarioRun) -> ProgramSetting {
    ProgramSetting {
        account: bench.user,
        home: run.home.clone(),
        mark: run.mark.clone(),
        key: (run.outfit.key_variable, FAKE_KEY),
    }
}

fn start(
    bench: &AgentBench<'_>,
    row: &ProgramRow,
    run: &ScenarioRun,
    policy: PermissionReply,
) -> anyhow::Result<PipedProgram> {
    PipedProgram::start(
        &stage(bench, run),
        setup(row, run, None),
        &run.prompt(),
        policy,
    )
}

/// Returns a story that writes the file.
pub(crate) fn writing_script(marker: &str) -> ModelScript {
    let turns = [
        ModelTurn::from_file_write(STORY_FILE, STORY_CONTENT).with_text("I write it now."),
        ModelTurn::from_text("It is written."),
    ];
    ModelScript::new(marker, turns)
}

/// Returns a turn that stops in the middle of its text until its gate opens, and then writes the
/// file.
pub(crate) fn hanging_script(marker: &str) -> ModelScript {
    let words = "I think about this long and hard, word by word, before I write anything at all \
        into that file.";
    let turn = ModelTurn::from_file_write(STORY_FILE, STORY_CONTENT)
        .with_text(words)
        .with_pace(AnswerPace::Hang {
            gate: marker.to_owned(),
        });
    ModelScript::new(marker, [turn, ModelTurn::from_text("It is written.")])
}

/// Ends the turn and the program. Returns the error of either.
fn finish_run(piped: &mut PipedProgram) -> anyhow::Result<Result<(), String>> {
    if !piped.run_until(TURN_TIMEOUT, |piped_program| {
        piped_program.ended_turns() > 0 || piped_program.has_ended()
    })? {
        return Ok(Err(format!(
            "no turn ended within {} s",
            TURN_TIMEOUT.as_secs()
        )));
    }
    if let Some((stop, class, detail)) = last_turn_end(piped)
        && class.is_some()
    {
        return Ok(Err(format!("the turn ended {stop:?}, {class:?}: {detail}")));
    }
    let judgement = piped.finish_session(EXIT_TIMEOUT)?;
    if let Some(class) = judgement.class {
        return Ok(Err(format!("judged {class}: {}", judgement.detail)));
    }
    if judgement.usage.iter().all(|usage| usage.1.tokens() == 0) {
        return Ok(Err("no usage was reported".into()));
    }
    Ok(Ok(()))
}

fn last_turn_end(piped: &PipedProgram) -> Option<(StopReason, Option<FailureClass>, String)> {
    piped
        .events
        .iter()
        .rev()
        .find_map(|agent_event| match agent_event {
            AgentEvent::TurnEnded {
                stop,
                class,
                detail,
            } => Some((*stop, *class, detail.clone())),
            _ => None,
        })
}

/// Stores the transcript of a failed run.
fn keep_transcript(
    bench: &AgentBench<'_>,
    run: &ScenarioRun,
    piped: &PipedProgram,
    cell: ScenarioResult,
) -> anyhow::Result<ScenarioResult> {
    std::fs::write(run.dir.join("transcript.txt"), piped.journal_text())?;
    std::fs::write(
        run.dir.join("models.txt"),
        format!("{:#?}\n", bench.models.requests()),
    )?;
    std::fs::write(run.dir.join("said.txt"), format!("{:#?}\n", piped.events))?;
    Ok(cell)
}

fn scenario_write(bench: &AgentBench<'_>, row: &ProgramRow) -> anyhow::Result<ScenarioResult> {
    let run = bench.create_run(row, Scenario::Write.name(), PermissionMode::Never)?;
    bench.models.add_script(writing_script(&run.marker));
    let mut piped = start(bench, row, &run, PermissionReply::Allow)?;
    let cell = match finish_run(&mut piped)? {
        Err(why) => ScenarioResult::failed(why),
        Ok(()) if !run.has_written() => {
            ScenarioResult::failed("the turn ended well, but the file is missing")
        }
        Ok(()) => ScenarioResult::passed(),
    };
    keep_transcript(bench, &run, &piped, cell)
}

/// Checks that the file is written if permission is granted, and is not written if it is denied.
fn scenario_permission(bench: &AgentBench<'_>, row: &ProgramRow) -> anyhow::Result<ScenarioResult> {
    if let Some(why) = row.never_asks() {
        return Ok(ScenarioResult::Unsupported(why.into()));
    }
    for (name, policy, wanted) in [
        ("permission", PermissionReply::Allow, true),
        ("denied", PermissionReply::Deny, false),
    ] {
        let run = bench.create_run(row, name, PermissionMode::Always)?;
        bench.models.add_script(writing_script(&run.marker));
        let mut piped = start(bench, row, &run, policy)?;
        let ended = piped.run_until(TURN_TIMEOUT, |piped_program| {
            piped_program.ended_turns() > 0 || piped_program.has_ended()
        })?;
        let asked = piped
            .events
            .iter()
            .any(|agent_event| matches!(agent_event, AgentEvent::RequestMade(_)));
        let failure = if !ended {
            Some(format!("no turn ended within {} s", TURN_TIMEOUT.as_secs()))
        } else if !asked {
            Some("the program did not ask for permission".to_owned())
        } else if run.has_written() != wanted {
            Some(format!("{name}: the file is there: {}", run.has_written()))
        } else {
            None
        };
        if let Some(reason) = failure {
            return keep_transcript(bench, &run, &piped, ScenarioResult::failed(reason));
        }
        // After a denial the turn may end in any way; after a grant it must end well.
        if wanted && let Err(why) = finish_run(&mut piped)? {
            return keep_transcript(bench, &run, &piped, ScenarioResult::failed(why));
        }
        keep_transcript(bench, &run, &piped, ScenarioResult::passed())?;
    }
    Ok(ScenarioResult::passed())
}

/// Waits until the model server holds the answer.
fn wait_until_hanging(
    bench: &AgentBench<'_>,
    run: &ScenarioRun,
    piped: &mut PipedProgram,
) -> anyhow::Result<bool> {
    let asked = |_: &PipedProgram| {
        bench
            .models
            .requests_of(&run.marker)
            .iter()
            .any(|request| request.outcome.is_none())
    };
    piped.run_until(TURN_TIMEOUT, |piped_program| {
        asked(piped_program)
            && piped_program
                .events
                .iter()
                .any(|agent_event| matches!(agent_event, AgentEvent::TurnStarted { .. }))
    })
}

fn scenario_cancel(bench: &AgentBench<'_>, row: &ProgramRow) -> anyhow::Result<ScenarioResult> {
    if row.driver == ProgramDriver::CodexExec {
        return Ok(ScenarioResult::Unsupported(
            "`codex exec` accepts no input while it runs; it is stopped by a signal".into(),
        ));
    }
    let run = bench.create_run(row, Scenario::Cancel.name(), PermissionMode::Never)?;
    bench.models.add_script(hanging_script(&run.marker));
    bench.models.add_script(writing_script(&run.next_marker()));
    let mut piped = start(bench, row, &run, PermissionReply::Allow)?;
    if !wait_until_hanging(bench, &run, &mut piped)? {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed("the model was not asked"),
        );
    }
    piped.session_input.cancels = 1;
    if !piped.run_until(EXIT_TIMEOUT, |piped_program| {
        piped_program.ended_turns() > 0
    })? {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed(format!(
                "the turn did not end within {} s of the cancel",
                EXIT_TIMEOUT.as_secs()
            )),
        );
    }
    let (stop, ..) = last_turn_end(&piped).unwrap_or((StopReason::Error, None, String::new()));
    if stop != StopReason::Cancelled {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed(format!("the cancelled turn ended {stop:?}")),
        );
    }
    let hung_up = || {
        bench
            .models
            .requests_of(&run.marker)
            .iter()
            .all(|request| request.outcome == Some(AnswerEnd::ClientHungUp))
    };
    let quiet = super::sandbox_user::wait_until(Duration::from_secs(10), hung_up);
    // The session must be usable for another turn.
    piped
        .session_input
        .prompts
        .push(run.prompt_for(&run.next_marker()));
    let again = piped.run_until(TURN_TIMEOUT, |piped_program| {
        piped_program.ended_turns() > 1 || piped_program.has_ended()
    })?;
    let cell = match last_turn_end(&piped) {
        _ if !again || piped.ended_turns() < 2 => {
            ScenarioResult::failed("the prompt after the cancel was not answered")
        }
        Some((_, Some(class), detail)) => {
            ScenarioResult::failed(format!("the next turn ended {class}: {detail}"))
        }
        _ if !run.has_written() => {
            ScenarioResult::failed("the next turn ended well, but the file is missing")
        }
        _ if !quiet => {
            ScenarioResult::Passed("but the program continued to read the model's answer".into())
        }
        _ => ScenarioResult::passed(),
    };
    keep_transcript(bench, &run, &piped, cell)
}

/// Checks that a new driver continues in the middle of a turn after reading the journal.
fn scenario_restart(bench: &AgentBench<'_>, row: &ProgramRow) -> anyhow::Result<ScenarioResult> {
    let run = bench.create_run(row, Scenario::Restart.name(), PermissionMode::Never)?;
    bench.models.add_script(hanging_script(&run.marker));
    let mut piped = start(bench, row, &run, PermissionReply::Allow)?;
    if !wait_until_hanging(bench, &run, &mut piped)? {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed("the model was not asked"),
        );
    }
    let records = piped.replay_journal();
    bench.models.release(&run.marker);
    let cell = match finish_run(&mut piped)? {
        Err(why) => ScenarioResult::failed(why),
        Ok(()) if !run.has_written() => {
            ScenarioResult::failed("the turn ended well, but the file is missing")
        }
        Ok(()) if bench.models.requests_of(&run.marker).len() != 2 => {
            ScenarioResult::failed("the model was asked more than once")
        }
        Ok(()) => ScenarioResult::Passed(format!("new driver after {records} records")),
    };
    keep_transcript(bench, &run, &piped, cell)
}

/// A short rate limit: the program waits on its own, or reports the limit and its session can be
/// continued.
fn scenario_rate_limit(bench: &AgentBench<'_>, row: &ProgramRow) -> anyhow::Result<ScenarioResult> {
    let run = bench.create_run(row, Scenario::RateLimited.name(), PermissionMode::Never)?;
    let reset = Duration::from_secs(3);
    let limit = ModelTurn::from_failure(ModelFailure::RateLimited {
        resets_after: reset,
    })
    .with_repeat(TurnRepeat::For(reset));
    bench.models.add_script(ModelScript::new(
        &run.marker,
        [
            limit,
            ModelTurn::from_file_write(STORY_FILE, STORY_CONTENT),
            ModelTurn::from_text("It is written."),
        ],
    ));
    let mut piped = start(bench, row, &run, PermissionReply::Allow)?;
    if !piped.run_until(TURN_TIMEOUT, |piped_program| {
        piped_program.ended_turns() > 0 || piped_program.has_ended()
    })? {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed(format!("no reaction within {} s", TURN_TIMEOUT.as_secs())),
        );
    }
    let class = failure_class(&mut piped)?;
    if run.has_written() {
        let cell = match class {
            None => ScenarioResult::Passed("the program waits on its own".into()),
            Some(class) => ScenarioResult::failed(format!(
                "the program waits on its own and does the work, but is classified as {class}"
            )),
        };
        return keep_transcript(bench, &run, &piped, cell);
    }
    if class != Some(FailureClass::RateLimit) {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed(format!("classed {class:?}")),
        );
    }
    keep_transcript(bench, &run, &piped, ScenarioResult::passed())?;
    let session = piped.native_session();
    drop(piped);
    // However long the turn took, the limit must be over by now.
    std::thread::sleep(reset);
    let again = setup(row, &run, session);
    let mut piped = PipedProgram::start(
        &stage(bench, &run),
        again,
        &run.prompt(),
        PermissionReply::Allow,
    )?;
    let cell = match finish_run(&mut piped)? {
        Err(why) => ScenarioResult::failed(format!("after the reset: {why}")),
        Ok(()) if !run.has_written() => {
            ScenarioResult::failed("after the reset the file is missing")
        }
        Ok(()) => ScenarioResult::Passed(
            "the program reports the limit; its session continues after the reset".into(),
        ),
    };
    keep_transcript(bench, &run, &piped, cell)
}

/// Returns the driver's class for the end of the turn, or of the program.
fn failure_class(piped: &mut PipedProgram) -> anyhow::Result<Option<FailureClass>> {
    if let Some((_, Some(class), _)) = last_turn_end(piped) {
        return Ok(Some(class));
    }
    Ok(piped.finish_session(EXIT_TIMEOUT)?.class)
}

/// A model that fails permanently: the driver must classify the failure, and never report success.
fn scenario_refusal(
    bench: &AgentBench<'_>,
    row: &ProgramRow,
    scenario: Scenario,
    wanted: FailureClass,
) -> anyhow::Result<ScenarioResult> {
    let run = bench.create_run(row, scenario.name(), PermissionMode::Never)?;
    let failure = match scenario {
        Scenario::QuotaExhausted => ModelFailure::QuotaExhausted {
            resets_after: Duration::from_secs(3600),
        },
        _ => ModelFailure::Overloaded,
    };
    bench.models.add_script(
        ModelScript::new(&run.marker, []).repeat_after(ModelTurn::from_failure(failure)),
    );
    let mut piped = start(bench, row, &run, PermissionReply::Allow)?;
    let limited = |piped_program: &PipedProgram| {
        piped_program
            .events
            .iter()
            .any(|agent_event| matches!(agent_event, AgentEvent::Limited { .. }))
    };
    let told = piped.run_until(SILENCE_TIMEOUT, |piped_program| {
        piped_program.ended_turns() > 0 || piped_program.has_ended() || limited(piped_program)
    })?;
    if !told {
        let tries = bench.models.requests_of(&run.marker).len();
        let why = format!(
            "the program reports nothing for {} s ({tries} tries), so only Regatta's limit of \
            silence helps",
            SILENCE_TIMEOUT.as_secs()
        );
        return keep_transcript(bench, &run, &piped, ScenarioResult::Unsupported(why));
    }
    let reset = piped
        .events
        .iter()
        .find_map(|agent_event| match agent_event {
            AgentEvent::Limited {
                deadline_unix_ms: until_wall,
                ..
            } => Some(until_wall.is_some()),
            _ => None,
        });
    let class = if reset.is_some() && piped.ended_turns() == 0 {
        Some(FailureClass::RateLimit)
    } else {
        failure_class(&mut piped)?
    };
    let cell = match (class, reset) {
        (Some(class), _) if class != wanted => ScenarioResult::failed(format!("classed {class}")),
        (None, _) => ScenarioResult::failed("reported as success"),
        (_, Some(true)) => ScenarioResult::Passed("with the time of the reset".into()),
        (_, Some(false)) => ScenarioResult::Passed("the time of the reset is unknown".into()),
        _ => ScenarioResult::passed(),
    };
    keep_transcript(bench, &run, &piped, cell)
}

/// The program is killed during a turn: its driver reports that, and a new process continues the
/// session.
fn scenario_kill(bench: &AgentBench<'_>, row: &ProgramRow) -> anyhow::Result<ScenarioResult> {
    let run = bench.create_run(row, Scenario::Kill.name(), PermissionMode::Never)?;
    bench.models.add_script(hanging_script(&run.marker));
    bench.models.add_script(writing_script(&run.next_marker()));
    let mut piped = start(bench, row, &run, PermissionReply::Allow)?;
    if !wait_until_hanging(bench, &run, &mut piped)? {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed("the model was not asked"),
        );
    }
    let left = piped.kill()?;
    let judgement = piped.judge_end()?;
    if judgement.class != Some(FailureClass::Crashed) {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed(format!("classed {:?}", judgement.class)),
        );
    }
    let Some(session) = piped.native_session() else {
        return keep_transcript(
            bench,
            &run,
            &piped,
            ScenarioResult::failed("its session has no id"),
        );
    };
    keep_transcript(bench, &run, &piped, ScenarioResult::passed())?;
    drop(piped);
    let mut how = match left.len() {
        0 => String::new(),
        _ => format!("{} outlived it; ", left.join(", ")),
    };
    let prompt = run.prompt_for(&run.next_marker());
    let mut piped = PipedProgram::start(
        &stage(bench, &run),
        setup(row, &run, Some(session.clone())),
        &prompt,
        PermissionReply::Allow,
    )?;
    let mut ended = finish_run(&mut piped)?;
    if ended.is_err() {
        keep_transcript(bench, &run, &piped, ScenarioResult::passed())?;
        // Some programs store nothing of an unfinished turn; then a new session does the work.
        drop(piped);
        bench.models.add_script(writing_script(&run.next_marker()));
        piped = PipedProgram::start(
            &stage(bench, &run),
            setup(row, &run, None),
            &prompt,
            PermissionReply::Allow,
        )?;
        how.push_str("its session was lost, a new one did the work");
        ended = finish_run(&mut piped)?;
    } else if piped.native_session() != Some(session) {
        how.push_str("its session was lost, the driver opened a new one");
    } else if bench
        .models
        .requests_of(&run.next_marker())
        .iter()
        .all(|request| {
            request
                .user_texts
                .iter()
                .any(|user_text| user_text.contains(&run.prompt()))
        })
    {
        how.push_str("its session continued");
    } else {
        // Opening the old session without its content is not a continuation.
        let why = "the session was resumed, but the model did not get the earlier messages";
        return keep_transcript(bench, &run, &piped, ScenarioResult::failed(why));
    }
    let cell = match ended {
        Err(why) => ScenarioResult::failed(format!("after the kill: {why}")),
        Ok(()) if !run.has_written() => {
            ScenarioResult::failed("after the kill the file is missing")
        }
        Ok(()) => ScenarioResult::Passed(how),
    };
    keep_transcript(bench, &run, &piped, cell)
}
