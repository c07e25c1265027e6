//! Passes each command to the function that handles it.

use super::*;

/// Runs one command on a draft and returns the answer for the caller.
pub(super) fn run(
    draft: &mut Draft,
    request: Request,
    now: Now,
) -> Result<CommandOutcome, Refusal> {
    Ok(match request.command {
        Command::AddProject(ask) => CommandOutcome::Project(project::add(draft, ask, now)?),
        Command::ChangeProject(ask) => CommandOutcome::Project(project::change(draft, ask, now)?),
        Command::RemoveProject(ask) => done_outcome(project::remove(draft, &ask.name)?),
        Command::RegisterAgent(ask) => CommandOutcome::Agent(agent::register(draft, ask, now)?),
        Command::RemoveAgent { agent } => done_outcome(agent::remove(draft, &agent)?),
        Command::LeaveAgent { agent, reason } => {
            done_outcome(agent::take_offline(draft, &agent, &reason, now)?)
        }
        Command::SetLimits { limits } => done_outcome(limits::set_limits(draft, limits)?),
        Command::RegisterRunner(ask) => CommandOutcome::Runner {
            session: runner::register(draft, ask, now)?,
        },
        Command::BeatRunner { runner, session } => {
            done_outcome(runner::heartbeat(draft, &runner, session, now)?)
        }
        Command::LeaveRunner { runner, session } => {
            done_outcome(runner::sign_off(draft, &runner, session)?)
        }
        Command::DrainRunner { runner, reason } => {
            done_outcome(runner::drain(draft, &runner, &reason)?)
        }
        Command::RemoveRunner { runner } => done_outcome(runner::remove(draft, &runner)?),
        Command::AddChild {
            mission,
            task,
            assign,
            how,
        } => {
            let id = lead::add_child(draft, mission, task, now)?;
            if assign.is_some() {
                task::assign(draft, id, assign, how, now)?;
            }
            CommandOutcome::Task(id)
        }
        Command::AddTask { task, assign, how } => {
            let id = task::add(draft, task, None, now)?;
            if assign.is_some() {
                task::assign(draft, id, assign, how, now)?;
            }
            CommandOutcome::Task(id)
        }
        Command::AdoptTask { task, mission } => {
            done_outcome(lead::adopt_child(draft, mission, task)?)
        }
        Command::EditTask { task, edit } => done_outcome(task::edit(draft, task, edit)?),
        Command::Explore { task } => {
            CommandOutcome::Task(manifest_discovery::begin(draft, task, now)?)
        }
        Command::AssignTask { task, to, how } => done_outcome(
            task::assign(draft, task, to, how, now)
                .map_err(|refusal| refusal.addressed_to(&request.by))?,
        ),
        Command::AnswerOffer {
            task,
            agent,
            accept,
        } => done_outcome(task::answer_offer(draft, task, &agent, accept)?),
        Command::CancelTask { task, reason } => done_outcome(task::cancel(draft, task, &reason)?),
        Command::StopTask {
            task,
            reason,
            pause,
        } => {
            if pause {
                task::edit(
                    draft,
                    task,
                    task::EditTask {
                        paused: Some(task::SetPause::Pause(reason.clone())),
                        ..task::EditTask::default()
                    },
                )?;
                landing::hold_landing(draft, task, &reason, now)?;
            }
            done_outcome(attempt::stop_task(draft, task, &reason)?)
        }
        Command::Poll(ask) => CommandOutcome::Polled(schedule::poll(draft, &ask, None, now)?),
        Command::Progress {
            task,
            attempt,
            token,
            text,
        } => done_outcome(task::progress(draft, task, attempt, token, text, now)?),
        Command::ReportEscape {
            task,
            attempt,
            token,
            finding,
        } => done_outcome(scope_escape::report_escape(
            draft,
            (task, attempt, token),
            finding,
            now,
        )?),
        Command::Finish {
            task,
            attempt,
            token,
            output,
            not_needed,
            learnings,
        } => {
            // An attempt whose program Regatta runs is finished only when the program has ended, so
            // its report is stored now and takes effect later.
            let is_supervised =
                attempt::require_attempt_of_task(draft.board(), task, attempt, token)?.supervised;
            approval::check_finish(draft.board(), attempt)?;
            let report = attempt::FinishReport {
                output: output.clone(),
                not_needed,
                learnings,
            };
            if is_supervised {
                return Ok(done_outcome(attempt::record_report(
                    draft, attempt, token, report,
                )?));
            }
            if report.is_result() {
                attempt::record_report(draft, attempt, token, report)?;
            }
            done_outcome(task::finish(draft, task, attempt, token, output)?)
        }
        Command::Ask {
            task,
            attempt,
            token,
            request: agent_request,
        } => {
            attempt::require_attempt_of_task(draft.board(), task, attempt, token)?;
            CommandOutcome::Approval(approval::on_tool_request(
                draft,
                attempt,
                agent_request,
                now,
            )?)
        }
        Command::ContinueWithoutAnswer {
            task,
            attempt,
            token,
            approval,
            assumed,
        } => {
            attempt::require_attempt_of_task(draft.board(), task, attempt, token)?;
            done_outcome(approval::continue_without_answer(
                draft, attempt, approval, assumed,
            )?)
        }
        Command::MarkAnswerRead { attempt, approval } => {
            approval::mark_answer_read(draft, attempt, approval);
            CommandOutcome::Done
        }
        Command::GiveUp {
            task,
            attempt,
            token,
            reason,
        } => done_outcome(task::give_up(draft, task, attempt, token, reason)?),
        Command::Land { task, first } => {
            CommandOutcome::Queued(landing::land(draft, task, first, &request.by, now)?)
        }
        Command::LandWithLentClaim { task, lent_claim } => CommandOutcome::Queued(
            landing::land_with_lent_claim(draft, task, lent_claim, &request.by, now)?,
        ),
        Command::Revise { task, text } => done_outcome(landing::revise(draft, task, text)?),
        Command::Undo { done } => {
            CommandOutcome::Queued(landing::undo(draft, &done, &request.by, now)?)
        }
        Command::HoldQueue { project, reason } => done_outcome(landing::hold_queue(
            draft,
            &project,
            reason,
            &request.by,
            now,
        )?),
        Command::AcceptTrunk { project, tip } => done_outcome(landing::trunk_check::accept(
            draft,
            &project,
            tip,
            request.by.to_string(),
        )?),
        Command::ReleaseQueue { project } => done_outcome(landing::release_queue(draft, &project)?),
        Command::Tell { task, text } => {
            CommandOutcome::Tell(intervention::send_message(draft, task, text)?)
        }
        Command::PauseTask { task, reason } => {
            done_outcome(intervention::pause(draft, task, &reason)?)
        }
        Command::ResumeTask { task } => done_outcome(intervention::resume(draft, task)?),
        Command::RetryTask { task, failed } => {
            CommandOutcome::Task(intervention::retry(draft, task, failed.as_deref(), now)?)
        }
        Command::ResumeAgent { agent } => done_outcome(provider_outage::resume(draft, &agent)?),
        Command::Decide {
            approval,
            answer,
            scope,
            also,
        } => {
            let answer = approval::ApprovalAnswer {
                answer,
                scope,
                by: request.by,
            };
            CommandOutcome::Decided(approval::decide_all(draft, approval, &also, &answer, now)?)
        }
        Command::Snooze { item, ms } => done_outcome(inbox::snooze(draft, item, ms, now)?),
        Command::Dismiss { task } => done_outcome(inbox::dismiss(draft, task)?),
        Command::AddRule {
            scope,
            effect,
            subject,
        } => CommandOutcome::Rule(policy::add(draft, scope, effect, subject)?),
        Command::RemoveRule { rule } => done_outcome(policy::remove(draft, rule)?),
        Command::SetBudget { scope, ceiling } => done_outcome(budget::set(draft, scope, ceiling)?),
        Command::StartMission {
            mission,
            tasks,
            adopt,
        } => plan::start_mission(draft, mission, tasks, adopt, now)?,
        Command::AskPlan(ask) => {
            let (mission, task) = plan_request::request_plan(draft, ask, now)?;
            CommandOutcome::Mission {
                mission,
                tasks: vec![task],
            }
        }
        Command::AskMission(ask) => CommandOutcome::Mission {
            mission: lead::request_mission(draft, ask, now)?,
            tasks: vec![],
        },
        Command::FinishMission {
            task,
            attempt,
            token,
            report,
        } => done_outcome(lead::finish(draft, (task, attempt, token), report)?),
        Command::CancelMission { mission, reason } => {
            done_outcome(mission::cancel(draft, mission, &reason, now)?)
        }
        Command::HandOverMission { mission, to } => {
            done_outcome(lead::hand_over(draft, mission, to, now)?)
        }
        Command::DrainMission { mission } => done_outcome(mission::drain(draft, mission)?),
        Command::ResumeMission { mission } => done_outcome(mission::resume(draft, mission, now)?),
        Command::StopMission { mission, reason } => {
            mission::drain(draft, mission)?;
            let tasks: Vec<TaskId> = draft
                .board()
                .open_tasks_of(mission)
                .map(|(_, task)| task)
                .collect();
            for task in tasks {
                attempt::stop_task(draft, task, &reason)?;
                landing::hold_landing(draft, task, &reason, now)?;
            }
            CommandOutcome::Done
        }
        Command::Team(ask) => team::run(draft, *ask, now)?,
        Command::Converse(ask) => conversation::run(draft, *ask, now)?,
        Command::Acquire(ask) => CommandOutcome::Claim(claim::acquire(draft, ask, now)?),
        Command::Renew { claim, token } => CommandOutcome::Renewed {
            ttl_ms: claim::renew(draft, claim, token, now)?,
        },
        Command::Release { claim, token } => done_outcome(claim::release(draft, claim, token)?),
        Command::CancelWait { wait } => {
            claim::cancel_wait(draft, wait);
            CommandOutcome::Done
        }
        Command::Post(ask) => CommandOutcome::Message(bus::post(draft, ask, request.by, now)?),
        Command::Route { project, message } => {
            done_outcome(message_router::on_message(draft, &project, &message, now)?)
        }
        Command::PostWith { post, extra } => {
            CommandOutcome::Message(bus::post_with(draft, post, extra, request.by, now)?)
        }
        Command::AddHook(ask) => CommandOutcome::Hook(hook::add(draft, *ask, &request.by, now)?),
        Command::PauseHook { hook, reason } => done_outcome(hook::pause(draft, hook, reason)?),
        Command::ResumeHook { hook } => done_outcome(hook::resume(draft, hook, now)?),
        Command::RemoveHook { hook } => done_outcome(hook::remove(draft, hook)?),
        Command::MarkRead {
            agent,
            channel,
            read,
        } => done_outcome(bus::mark_read(draft, agent, channel, read)?),
    })
}

/// Returns the answer to a command whose function returns no value.
pub(super) fn done_outcome((): ()) -> CommandOutcome {
    CommandOutcome::Done
}
