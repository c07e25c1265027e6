//! Prepares, starts, watches and stops the program of an attempt.

use std::time::{Duration, Instant};

use regatta_core::agent::Profile;
use regatta_core::attempt::{AttemptCause, ProgramExit, SetupFault};
use regatta_core::board::Board;
use regatta_core::bus;
use regatta_core::command::Report;
use regatta_core::effect::EffectKey;
use regatta_core::ids::AttemptId;
use regatta_core::task::Purpose;

use crate::ports::agents::{McpServer, ProcessState, ProgramLaunch, StartOutcome};
use crate::ports::site::{Site, SiteError};
use crate::session_sink::{self, LocalSink};
use crate::{Engine, brief};

use super::isolation::CheckoutMarks;
use super::workspaces::{make_ready, remove_workspace};
use super::{
    AttemptContext, POLL_INTERVAL, RETRY_DELAY, attempt_context, block_on_until, report_effect,
    validate_attempt, wait_out_shutdown,
};

/// Performs `Effect::RunAttempt`: runs the attempt's program until it exits, and reports how the
/// program ended.
pub(super) fn run_attempt(engine: &Engine, key: EffectKey, id: AttemptId) {
    let Ok(loaded) = attempt_context(engine, id) else {
        return;
    };
    let Some(context) = loaded else {
        return report_effect(engine, key, Report::Performed);
    };
    let token = context.attempt.token;
    if let Some(exit) = run_program(engine, &context) {
        report_effect(
            engine,
            key,
            Report::Exited {
                attempt: id,
                token,
                exit,
            },
        );
    }
}

/// Runs the attempt's program until it exits. If the program already runs, because the daemon was
/// restarted, attaches to the running program. Returns `None` when the engine stops first.
fn run_program(engine: &Engine, context: &AttemptContext) -> Option<ProgramExit> {
    let (id, site) = (context.attempt.id, engine.site_of(context));
    let state = match site.state(id) {
        Ok(state) => state,
        Err(error) => return give_up_attempt(engine, context, error.to_string().into()),
    };
    let mut before = None;
    if state == ProcessState::NotStarted {
        if engine.is_ending(id) {
            // The attempt was stopped before its program started. A setup command that an earlier
            // daemon process started may still run, and the attempt ends when that command is gone.
            return end_program_and_commands(engine, &*site, id).then_some(ProgramExit::Lost);
        }
        // Wait during a shutdown, because no program may start then, even if the store could not
        // record that this attempt must stop.
        while !engine.can_start() {
            if engine.is_ending(id) {
                return Some(ProgramExit::Lost);
            }
            if engine.is_stopping() {
                return None;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        match launch(engine, context) {
            Ok(started) => {
                for warning in &started.warnings {
                    tracing::warn!(attempt = %id, "attempt {id} was started with a warning: {warning}");
                }
                // Without a sandbox, the engine compares the user's checkout before and after the
                // agent's program ran, to find out whether the program wrote there.
                let should_compare = started.sandbox.is_none() && context.attempt.runner.is_none();
                before = should_compare
                    .then(|| CheckoutMarks::read(engine, context))
                    .flatten();
                let StartOutcome { sandbox, warnings } = started;
                let report = Report::Launched {
                    attempt: id,
                    token: context.attempt.token,
                    sandbox,
                    warnings,
                };
                // The report is refused if the attempt has been stopped in the meantime. If the
                // store fails, the only loss is that people do not see that the program has
                // started.
                if let Err(failure) = engine.report(report) {
                    tracing::debug!(attempt = %id, "could not record that the program of \
                        attempt {id} has started; the program runs anyway: {failure}");
                }
            }
            Err(error) => return give_up_attempt(engine, context, error),
        }
        // A stop that was requested while the agent's program was being started found no process to
        // stop, so the stop is repeated here.
        if engine.is_ending(id)
            && let Err(error) = site.stop(id, engine.stop_grace())
        {
            tracing::error!(attempt = %id, "could not stop the program of attempt {id} right after \
                its start, although the attempt must stop; the program may still run: {error}");
        }
    }
    let workspace = site.working_dir(&context.spec()).unwrap_or_default();
    let sink = LocalSink::new(
        engine,
        &context.attempt,
        workspace,
        brief::attempt_prompt(engine, context, false),
    );
    match site.attend(id, &sink) {
        Ok(None) => None, // the program goes on, and the next start of the daemon attaches to it
        Ok(Some(verdict)) => {
            if let Some(before) = before {
                before.report_changes(engine, context);
            }
            sink.record_final_usage(&verdict.usage);
            let tail = engine.shared.agents.tail(id, 4096).unwrap_or_else(|error| {
                tracing::warn!(attempt = %id, "could not read the last output of attempt \
                    {id}'s program, so the reason for its end lacks that output: {error}");
                String::new() // the reason is complete without the output
            });
            let tail = regatta_core::check_output::summary(&tail);
            Some(session_sink::program_exit(
                verdict,
                validate_attempt::worker_detail(engine, context),
                &tail,
            ))
        }
        Err(error) => give_up_attempt(engine, context, error.to_string().into()),
    }
}

/// Gives up an attempt whose program could not be started or watched. First stops everything that
/// still runs for the attempt, because the next attempt may work with the same files. Returns
/// `None` when the engine stops first.
fn give_up_attempt(
    engine: &Engine,
    context: &AttemptContext,
    SiteError { reason, fault }: SiteError,
) -> Option<ProgramExit> {
    let id = context.attempt.id;
    end_program_and_commands(engine, &*engine.site_of(context), id)
        .then_some(ProgramExit::NotRun { reason, fault })
}

/// Stops the program and the commands of an attempt and waits until all of them are gone, because
/// only then may the attempt be reported as ended (P10). Returns `false` when the engine stops
/// first; the next start of the daemon then tries again.
pub(super) fn end_program_and_commands(engine: &Engine, site: &dyn Site, id: AttemptId) -> bool {
    while let Err(error) = site.stop(id, engine.stop_grace()) {
        if has_ended(engine, id) {
            break; // the attempt was given up in the meantime
        }
        tracing::error!(attempt = %id, "could not end the program of attempt {id} or one of its \
            commands, trying again: {error}");
        let retry_at = Instant::now() + RETRY_DELAY;
        while Instant::now() < retry_at {
            if engine.is_stopping() {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    true
}

/// Prepares the workspace and starts the attempt's program in it.
fn launch(engine: &Engine, context: &AttemptContext) -> Result<StartOutcome, SiteError> {
    let AttemptContext {
        attempt,
        task,
        repo,
        ..
    } = context;
    let board = engine.board();
    if let Some(agent) = board
        .agents
        .get(&attempt.agent)
        .filter(|_| attempt.runner.is_none())
    {
        let problems = engine
            .shared
            .agents
            .launch_problems(&agent.runtime, &agent.profile);
        if !problems.is_empty() {
            let descriptions: Vec<String> = problems
                .iter()
                .map(|(_, error)| format!("{} {}", error.message, error.hint))
                .collect();
            return Err(SiteError {
                reason: descriptions.join(" "),
                fault: Some(SetupFault::Agent),
            });
        }
    }
    let (workspace, ports) = make_ready(engine, context)?;
    let agent = board
        .agents
        .get(&attempt.agent)
        .ok_or_else(|| format!("the agent {} is gone", attempt.agent))?;
    let mut env = engine.shared.settings.attempt_env.clone();
    env.extend(
        [
            ("REGATTA_AGENT", attempt.agent.to_string()),
            ("REGATTA_PROJECT", attempt.project.to_string()),
            ("REGATTA_TASK", task.id.to_string()),
            ("REGATTA_ATTEMPT", attempt.id.to_string()),
            ("REGATTA_ATTEMPT_TOKEN", attempt.token.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    env.extend(name_variables(&board, context));
    let prompt = brief::attempt_prompt(engine, context, true);
    env.extend(ports);
    let tools = engine.shared.settings.tool_server.as_ref();
    // The agent's program may call the `regatta` command, which finds this daemon by this variable.
    env.extend(tools.map(|server| ("REGATTA_SERVER".to_owned(), server.url.clone())));
    let launch = ProgramLaunch {
        attempt: attempt.id,
        agent: agent
            .derived_from
            .clone()
            .unwrap_or_else(|| attempt.agent.clone()),
        runtime: agent.runtime.clone(),
        profile: Profile {
            effort: brief::effort(task, &agent.profile),
            model: task.model.clone().or_else(|| agent.profile.model.clone()),
            ..agent.profile.clone()
        },
        resume: attempt.resumed_session().map(str::to_owned),
        mcp: tools.map(|server| McpServer {
            url: format!("{}/mcp", server.url),
            token: (server.mint_attempt_token)(attempt.id, attempt.token),
        }),
        recorded_usage: attempt
            .resumed_session()
            .and(attempt.resumes.as_ref())
            .map(|resume| resume.used)
            .unwrap_or_default(),
        workspace: workspace.path,
        objects: workspace.objects,
        hidden: vec![repo.path.clone()],
        prompt,
        script: task.script.clone(),
        env,
    };
    engine
        .site_of(context)
        .start(&launch)
        .map_err(|error| format!("{} {}", error.message, error.hint).into())
}

/// Returns environment variables that name an attempt's channel, message and mission (a goal with
/// its tasks), both under Regatta's own names and under the names that older scripts read.
fn name_variables(board: &Board, context: &AttemptContext) -> Vec<(String, String)> {
    let AttemptContext { attempt, task, .. } = context;
    let mission = attempt.mission.and_then(|id| board.missions.get(&id));
    let lead = mission.and_then(|mission| mission.lead.as_ref());
    let channel = lead.map_or_else(
        || bus::channel_of(&attempt.project),
        |lead| lead.channel.clone(),
    );
    let message = if task.purpose == Purpose::Lead {
        lead.and_then(|lead| lead.message)
    } else {
        task.purpose.message().map(|(_, message)| message)
    };
    let mut variables = vec![
        ("REGATTA_CHANNEL", channel.to_string()),
        ("BOTBUS_CHANNEL", channel.to_string()),
        ("BOTBUS_AGENT", attempt.agent.to_string()),
        ("BOTBOX_PROJECT", attempt.project.to_string()),
    ];
    for (ours, older, value) in [
        (
            "REGATTA_MISSION",
            "BOTBOX_MISSION",
            mission.map(|mission| mission.id.to_string()),
        ),
        (
            "REGATTA_MESSAGE_ID",
            "BOTBUS_MESSAGE_ID",
            message.map(|id| id.to_string()),
        ),
    ] {
        variables.extend(
            value
                .into_iter()
                .flat_map(|value| [(ours, value.clone()), (older, value)]),
        );
    }
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Performs `Effect::PrepareWorkspace`: prepares the workspace before the attempt's program starts.
pub(super) fn prepare(engine: &Engine, key: EffectKey, id: AttemptId) {
    let Ok(loaded) = attempt_context(engine, id) else {
        return;
    };
    let Some(context) = loaded else {
        return complete_for_ended_attempt(engine, key, id);
    };
    let result = loop {
        match make_ready(engine, &context) {
            Err(_) if !engine.can_start() && !engine.is_ending(id) => {}
            result => break result,
        }
        if !wait_out_shutdown(engine, id) {
            return;
        }
    };
    match result {
        Ok(_) if has_ended(engine, id) => complete_for_ended_attempt(engine, key, id),
        Ok(_) => report_effect(engine, key, Report::Performed),
        Err(_) if has_ended(engine, id) => complete_for_ended_attempt(engine, key, id),
        Err(SiteError { reason, fault }) => {
            let exit = ProgramExit::NotRun { reason, fault };
            report_effect(
                engine,
                key,
                Report::Exited {
                    attempt: id,
                    token: context.attempt.token,
                    exit,
                },
            );
        }
    }
}

pub(super) fn has_ended(engine: &Engine, id: AttemptId) -> bool {
    !engine.board().attempts.contains_key(&id)
}

/// Completes an effect (an outside action such as starting a program) whose attempt has ended in
/// the meantime. Removes the attempt's workspace once more, because the effect may have created the
/// workspace again after its removal.
pub(super) fn complete_for_ended_attempt(engine: &Engine, key: EffectKey, id: AttemptId) {
    let workspace = match engine.history().attempt(id) {
        Ok(attempt) => attempt.map_or(id, |attempt| attempt.workspace()),
        // The effect is not reported as completed, so the effect stays stored and the next start of
        // the daemon performs it again.
        Err(error) => {
            return tracing::warn!(attempt = %id, "could not read attempt {id}, so its workspace is \
                kept until the next start of the daemon: {error}");
        }
    };
    if engine
        .board()
        .attempts
        .values()
        .any(|attempt| attempt.workspace() == workspace)
    {
        // Another attempt uses the workspace now.
        return report_effect(engine, key, Report::Performed);
    }
    match remove_workspace(engine, workspace) {
        Ok(()) => report_effect(engine, key, Report::Performed),
        Err(reason) => {
            tracing::warn!(attempt = %id, "could not remove the workspace of attempt {id}, trying \
                again at the next start of the daemon: {reason}")
        }
    }
}

/// The time that a program may take to end its turn and exit when a message asks it to. After that
/// time, a signal stops the program.
const GRACE_BEFORE_SIGNAL: Duration = Duration::from_secs(2);

/// Asks an attempt's program to end, through the session (the thread that talks to the program),
/// and waits a moment until the attempt has ended.
fn ask_to_end(engine: &Engine, site: &dyn Site, id: AttemptId) {
    site.refresh_input(id);
    let mut board = engine.watch_board();
    let deadline = Instant::now() + GRACE_BEFORE_SIGNAL.min(engine.stop_grace());
    while board.borrow_and_update().attempts.contains_key(&id)
        && Instant::now() < deadline
        && !engine.is_stopping()
    {
        let _changed = block_on_until(board.changed(), deadline);
    }
}

/// Performs `Effect::StopAttempt`: stops an attempt's program and the commands that run for the
/// attempt.
pub(super) fn stop_attempt(engine: &Engine, key: EffectKey, id: AttemptId) {
    let runner = engine
        .board()
        .attempts
        .get(&id)
        .and_then(|attempt| attempt.runner.clone());
    let site = engine.site_of_runner(runner.as_ref());
    let ends_by_request = engine.board().attempts.get(&id).is_some_and(|attempt| {
        attempt.accepts_follow_ups && attempt.stopping != Some(AttemptCause::OverBudget)
    });
    if ends_by_request {
        ask_to_end(engine, &*site, id);
    }
    // The end of the program is not reported here. The thread that runs the attempt notices the end
    // and reports it.
    if end_program_and_commands(engine, &*site, id) {
        report_effect(engine, key, Report::Performed);
    }
}
