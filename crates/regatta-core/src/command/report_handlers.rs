//! Passes each report to the function that handles it.

use super::command_handlers::done_outcome;
use super::*;

/// Runs one report on a draft and returns the answer for the caller.
pub(super) fn run(draft: &mut Draft, report: Report, now: Now) -> Result<CommandOutcome, Refusal> {
    Ok(match report {
        Report::PollSupervised { poll, facts } => {
            CommandOutcome::Polled(schedule::poll(draft, &poll, Some(&facts), now)?)
        }
        Report::Bridge(standing) => bridge_health::report(draft, standing, now),
        Report::AllBridges { all } => bridge_health::report_all(draft, all, now),
        Report::TeamResolved { launch, found } => {
            done_outcome(launch::on_resolved(draft, launch, found, now)?)
        }
        Report::DaemonStarted { pid } => {
            limits::resume_after_restart(draft, pid, now);
            CommandOutcome::Done
        }
        Report::Tick => done_outcome(tick::on_timers(draft, now)?),
        Report::Exited {
            attempt,
            token,
            exit,
        } => done_outcome(attempt::on_program_exit(draft, attempt, token, exit, now)?),
        Report::Launched {
            attempt,
            token,
            sandbox,
            warnings,
        } => done_outcome(attempt::on_launched(
            draft, attempt, token, sandbox, warnings,
        )?),
        Report::IsolationBreach {
            attempt,
            token,
            sign,
        } => done_outcome(isolation_breach::on_breach(
            draft, attempt, token, sign, now,
        )?),
        Report::PortsTaken {
            attempt,
            token,
            taken,
        } => done_outcome(attempt::on_ports_taken(draft, attempt, token, &taken, now)?),
        Report::AgentEvent {
            attempt,
            token,
            n,
            event,
        } => done_outcome(attempt::on_agent_event(
            draft, attempt, token, n, event, now,
        )?),
        Report::Silent {
            attempt,
            token,
            since_ms,
        } => done_outcome(intervention::on_silence(draft, attempt, token, since_ms)?),
        Report::WorkVerdict {
            attempt,
            token,
            verdict,
            findings,
        } => CommandOutcome::Judged {
            landing: attempt::apply_verdict(draft, attempt, token, verdict, findings, now)?,
        },
        Report::Trial { landing, outcome } => {
            done_outcome(landing::on_trial_result(draft, landing, outcome, now)?)
        }
        Report::TrunkMove {
            landing,
            fence,
            outcome,
        } => done_outcome(landing::on_move_result(
            draft, landing, fence, outcome, now,
        )?),
        Report::Pushed {
            project,
            remote,
            commit,
            failure,
        } => done_outcome(landing::remote_sync::on_pushed(
            draft,
            &project,
            (remote, commit),
            failure,
            now,
        )?),
        Report::CheckoutChanged { landing } => {
            landing::on_checkout_changed(draft, landing);
            CommandOutcome::Done
        }
        Report::Diverged {
            project,
            commit,
            found,
        } => done_outcome(landing::remote_sync::on_diverged(
            draft, &project, commit, found, now,
        )?),
        Report::TrunkCompared { project, seen } => done_outcome(landing::trunk_check::on_compared(
            draft, &project, &seen, now,
        )?),
        Report::Collisions { project, found } => done_outcome(collision_forecast::apply_scan(
            draft, &project, &found, now,
        )?),
        Report::HookEnded {
            firing,
            ended,
            output,
            sandbox_description,
        } => done_outcome(hook::on_command_ended(
            draft,
            firing,
            ended,
            output,
            sandbox_description,
        )?),
        Report::Performed => CommandOutcome::Done,
        Report::Conversation(report) => done_outcome(conversation::on_report(draft, *report, now)?),
    })
}
