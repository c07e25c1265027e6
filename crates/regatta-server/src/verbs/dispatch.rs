//! Passes each call to the implementation of its verb (API operation).
//!
//! Simple verbs are implemented here: their input becomes a command, and the answer shows its
//! result. The others are methods of [`VerbHandler`] in one module per subject, such as `task` or
//! `claim`.

use super::*;

/// Runs the implementation of the API verb that a call names.
pub(super) async fn dispatch(
    shared: &Arc<ServerState>,
    call: Call,
    context: RequestContext,
) -> VerbResult {
    let precondition = context
        .expected_revision
        .map(|since| precondition_of(&call, since))
        .transpose()?;
    let handler = VerbHandler {
        shared,
        principal: context.principal,
        actor: context.actor,
        idempotency_key: context.idempotency_key,
        precondition,
    };
    let call = handler.restrict_to_attempt(call).await?;
    match call {
        Call::Status(input) => handler.status(input).await,
        Call::Why(input) => handler.why(&input.id).await,
        Call::Show(input) => handler.show(&input.id).await,
        Call::Graph(input) => handler.graph(input).await,
        Call::ProjectAdd(input) => handler.project_add(input).await,
        Call::ProjectList(_) => handler.project_list().await,
        Call::ProjectRm(input) => {
            handler
                .run_and_confirm(Command::RemoveProject(project::RemoveProject {
                    name: input.name,
                }))
                .await
        }
        Call::AgentAdd(input) => handler.agent_add(input).await,
        Call::AgentList(_) => handler.agent_list(),
        Call::AgentClose(input) => handler.agent_close(input).await,
        Call::AgentRm(input) => {
            handler
                .run_and_confirm(Command::RemoveAgent { agent: input.name })
                .await
        }
        Call::TaskAdd(input) => handler.task_add(input).await,
        Call::TaskList(input) => handler.task_list(input).await,
        Call::TaskExplore(input) => handler.task_explore(parse_id(&input.id)?).await,
        Call::TaskSet(input) => handler.task_set(input).await,
        Call::TaskAssign(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::AssignTask {
                        task: input.task,
                        to: input.to,
                        how: input.how,
                    },
                )
                .await
        }
        Call::TaskAccept(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::AnswerOffer {
                        task: input.task,
                        agent: input.agent,
                        accept: true,
                    },
                )
                .await
        }
        Call::TaskReject(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::AnswerOffer {
                        task: input.task,
                        agent: input.agent,
                        accept: false,
                    },
                )
                .await
        }
        Call::TaskCancel(input) => {
            let reason = input
                .reason
                .unwrap_or_else(|| "cancelled by a person".into());
            handler
                .run_on_task(
                    input.task,
                    Command::CancelTask {
                        task: input.task,
                        reason,
                    },
                )
                .await
        }
        Call::TaskPoll(input) => handler.task_poll(input).await,
        Call::TaskProgress(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::Progress {
                        task: input.task,
                        attempt: input.attempt,
                        token: input.token,
                        text: input.text,
                    },
                )
                .await
        }
        Call::TaskFinish(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::Finish {
                        task: input.task,
                        attempt: input.attempt,
                        token: input.token,
                        output: input.output,
                        not_needed: input.not_needed,
                        learnings: input.learnings,
                    },
                )
                .await
        }
        Call::TaskFail(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::GiveUp {
                        task: input.task,
                        attempt: input.attempt,
                        token: input.token,
                        reason: input.reason,
                    },
                )
                .await
        }
        Call::MissionStart(input) => handler.mission_start(input).await,
        Call::MissionAsk(input) => handler.mission_ask(input).await,
        Call::MissionList(input) => handler.mission_list(input),
        Call::MissionCancel(input) => handler.mission_cancel(input).await,
        Call::MissionHandover(input) => handler.mission_handover(input).await,
        Call::MissionFinish(input) => handler.mission_finish(input).await,
        Call::MissionAdopt(input) => handler.mission_adopt(input).await,
        Call::Route(input) => handler.route(input).await,
        Call::Guide(input) => handler.guide(&input),
        Call::MissionShow(input) => handler.mission_show(&input.id).await,
        Call::MissionReplay(input) => handler.mission_replay(input).await,
        Call::MissionCompare(input) => handler.mission_compare(input).await,
        Call::PlanAsk(input) => handler.plan_ask(input).await,
        Call::PlanShow(input) => handler.plan_show(input.task).await,
        Call::PlanDraw(input) => handler.plan_draw(input).await,
        Call::Stop(input) => handler.stop(input).await,
        Call::Resume(input) => handler.resume(&input.id).await,
        Call::Pause(input) => handler.pause(input).await,
        Call::Retry(input) => handler.retry(&input.id).await,
        Call::Tell(input) => handler.tell(input).await,
        Call::InboxList(input) => handler.inbox_list(input),
        Call::InboxAnswer(input) => handler.inbox_answer(input).await,
        Call::InboxSnooze(input) => handler.inbox_snooze(input).await,
        Call::AttemptAsk(input) => handler.attempt_ask(input).await,
        Call::AttemptAnswer(input) => handler.attempt_answer(input).await,
        Call::Siblings(input) => handler.siblings(input.attempt).await,
        Call::Briefing(input) => handler.briefing(input.attempt).await,
        Call::Transcript(input) => handler.transcript(input).await,
        Call::Checks(input) => handler.attempt_checks(input.attempt).await,
        Call::ScopeReport(input) => handler.scope_report(input).await,
        Call::ScopeList(input) => handler.scope_list(input).await,
        Call::ScopeFollow(input) => handler.scope_follow(&input.id).await,
        Call::RuleList(input) => handler.rule_list(input),
        Call::RuleTest(input) => handler.rule_test(input).await,
        Call::PolicyList(_) => encode_answer(
            handler.board().revision,
            &handler.board().rules.values().collect::<Vec<_>>(),
        ),
        Call::PolicyAdd(input) => handler.policy_add(input).await,
        Call::PolicyRm(input) => {
            handler
                .run_and_confirm(Command::RemoveRule { rule: input.rule })
                .await
        }
        Call::BudgetList(input) => encode_answer(
            handler.board().revision,
            &BudgetsView::new(&handler.board(), handler.engine().now(), input.days),
        ),
        Call::Cost(input) => handler.cost(&input).await,
        Call::BudgetSet(input) => handler.budget_set(input).await,
        Call::Land(input) => handler.land(input).await,
        Call::Queue(input) => handler.queue(input).await,
        Call::QueueHold(input) => handler.queue_hold(input).await,
        Call::QueueAccept(input) => handler.queue_accept(input).await,
        Call::QueueRelease(input) => handler.queue_release(input).await,
        Call::Diff(input) => handler.diff(input).await,
        Call::Revise(input) => handler.revise(input).await,
        Call::Drop(input) => handler.drop_work(input).await,
        Call::Takeover(input) => handler.take_over(&input.id).await,
        Call::Undo(input) => handler.undo(&input.id).await,
        Call::ClaimAcquire(input) => handler.claim_acquire(input).await,
        Call::ClaimRenew(input) => handler.claim_renew(input).await,
        Call::ClaimRelease(input) => {
            handler
                .run_and_confirm(Command::Release {
                    claim: input.claim,
                    token: input.token,
                })
                .await
        }
        Call::ClaimList(_) => handler.claim_list(),
        Call::ClaimCheck(input) => handler.claim_check(&input),
        Call::MsgSend(input) => handler.msg_send(input).await,
        Call::MsgHistory(input) => handler.msg_history(input).await,
        Call::MsgWait(input) => handler.msg_wait(input).await,
        Call::MsgRead(input) => handler.msg_read(input).await,
        Call::MsgInbox(input) => handler.msg_inbox(input).await,
        Call::MsgAttachment(input) => handler.msg_attachment(input).await,
        Call::HookAdd(input) => handler.hook_add(input).await,
        Call::BridgeList(_) => handler.bridge_list(),
        Call::BridgePause(input) => handler.bridge_pause(&input),
        Call::ConversationList(input) => handler.conversation_list(input).await,
        Call::ConversationShow(input) => handler.conversation_show(input.conversation).await,
        Call::ConversationAccept(input) => {
            handler
                .run_conversation_command(input.conversation, |conversation| {
                    ConversationCommand::Accept { conversation }
                })
                .await
        }
        Call::ConversationRefuse(input) => {
            handler
                .run_conversation_command(input.conversation, |conversation| {
                    ConversationCommand::Refuse { conversation }
                })
                .await
        }
        Call::ConversationStop(input) => {
            let by = handler.actor.to_string();
            handler
                .run_conversation_command(input.conversation, |conversation| {
                    ConversationCommand::Stop {
                        conversation,
                        by,
                        delivery: None,
                    }
                })
                .await
        }
        Call::ConversationClose(input) => {
            handler
                .run_conversation_command(input.conversation, |conversation| {
                    ConversationCommand::Close { conversation }
                })
                .await
        }
        Call::HookList(_) => handler.hook_list(),
        Call::HookTest(input) => handler.hook_test(input).await,
        Call::HookPause(input) => handler.hook_pause(input).await,
        Call::HookResume(input) => handler.hook_resume(input.hook).await,
        Call::HookRm(input) => {
            handler
                .run_and_confirm(Command::RemoveHook { hook: input.hook })
                .await
        }
        Call::HookLog(input) => handler.hook_log(input).await,
        Call::TeamCreate(input) => handler.team_create(input).await,
        Call::TeamEdit(input) => handler.team_edit(input).await,
        Call::TeamList(input) => handler.team_list(&input),
        Call::TeamShow(input) => handler.team_show(&input.team).await,
        Call::TeamExplain(input) => handler.team_explain(&input.team),
        Call::TeamLaunch(input) => handler.team_launch(input).await,
        Call::TeamRelaunch(input) => handler.team_relaunch(input).await,
        Call::TeamStop(input) => handler.team_stop(input).await,
        Call::TeamRetry(input) => handler.team_retry(input).await,
        Call::TeamDelete(input) => {
            handler
                .run_and_show_team(
                    &input.team,
                    team::TeamCommand::Delete {
                        team: input.team.clone(),
                    },
                )
                .await
        }
        Call::TeamUndelete(input) => {
            handler
                .run_and_show_team(
                    &input.team,
                    team::TeamCommand::Undelete {
                        team: input.team.clone(),
                    },
                )
                .await
        }
        Call::TeamBackup(input) => handler.team_backup(&input.team),
        Call::TeamRestore(input) => handler.team_restore(input).await,
        Call::RunnerList(_) => handler.runner_list(),
        Call::RunnerDrain(input) => handler.runner_drain(input).await,
        Call::RunnerRm(input) => {
            handler
                .run_and_confirm(Command::RemoveRunner { runner: input.name })
                .await
        }
        Call::RunnerRegister(input) => handler.runner_register(input).await,
        Call::RunnerBeat(input) => handler.runner_beat(input).await,
        Call::RunnerLeave(input) => handler.runner_leave(input).await,
        Call::RunnerCalls(input) => handler.runner_calls(input).await,
        Call::RunnerAnswer(input) => handler.runner_answer(input).await,
        Call::RunnerSaid(input) => handler.runner_output(input).await,
        Call::RunnerCopy(input) => handler.runner_copy(input).await,
        Call::Open(_) => handler.open(),
        Call::Name(input) => handler.unused_names(&input),
        Call::TokenAdd(input) => handler.token_add(input).await,
        Call::TokenList(_) => encode_answer(
            handler.board().revision,
            &shared.tokens.list(handler.engine().now().unix_ms),
        ),
        Call::TokenRm(input) => handler.token_rm(input).await,
        Call::Audit(input) => handler.audit(input).await,
        Call::LimitsSet(input) => handler.limits_set(input).await,
        Call::Backup(input) => handler.backup(input).await,
        Call::Check(_) => {
            handler
                .engine()
                .check_store()
                .await
                .map_err(problem_from_failure)?;
            encode_answer(handler.board().revision, &"ok")
        }
        Call::Doctor(_) => {
            let projects = handler
                .board()
                .projects
                .values()
                .map(|project| (project.name.clone(), project.location.clone().into()))
                .collect();
            let bridges = handler
                .shared
                .bridges
                .as_ref()
                .map(|bridges| bridges.list())
                .unwrap_or_default();
            let doctor_input = crate::DoctorInput {
                agents: handler.agents(),
                projects,
                bridges,
            };
            let doctor = handler.shared.doctor.clone();
            let view = run_blocking(move || doctor(&doctor_input)).await?;
            encode_answer(handler.board().revision, &view)
        }
        Call::Down(input) => handler.down(input.keep_agents).await,
    }
}

/// Returns the condition of a call with the header If-Match, which is that the call's target has
/// not changed since the revision (number of an event) `since`. Returns an error for a call that
/// does not support conditions, because its caller relies on the condition.
fn precondition_of(call: &Call, since: u64) -> Result<Precondition, Problem> {
    let subject = match call {
        Call::TaskSet(input) => input.task.to_string(),
        Call::TaskAssign(input) => input.task.to_string(),
        Call::TaskCancel(input) => input.task.to_string(),
        Call::AgentAdd(input) => input.name.to_string(),
        Call::AgentClose(input) => input.name.to_string(),
        Call::AgentRm(input) => input.name.to_string(),
        Call::ProjectAdd(input::ProjectAdd {
            name: Some(name), ..
        }) => name.to_string(),
        Call::ProjectRm(input) => input.name.to_string(),
        Call::LimitsSet(_) => "fleet".into(),
        Call::BudgetSet(input) => input.scope.to_string(),
        other => {
            return Err(Problem::new(
                400,
                "no_condition",
                format!(
                    "the verb {} does not support the header If-Match for this input",
                    other.verb().name
                ),
                "omit If-Match; for project.add, give the project's name instead",
            ));
        }
    };
    Ok(Precondition {
        subject,
        unchanged_since: since,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If-Match is supported by exactly the verbs that the table marks as conditional.
    #[test]
    fn conditional_verbs_of_the_table_accept_a_condition() {
        let call = |name: &str, input: &str| Call::parse(name, input.as_bytes()).unwrap();
        let conditional_calls = [
            ("task.set", r#"{"task":"T1","edit":{}}"#, "T1"),
            ("task.assign", r#"{"task":"T1"}"#, "T1"),
            ("task.cancel", r#"{"task":"T1"}"#, "T1"),
            ("agent.add", r#"{"name":"ann","runtime":"outside"}"#, "ann"),
            ("agent.close", r#"{"name":"ann"}"#, "ann"),
            ("agent.rm", r#"{"name":"ann"}"#, "ann"),
            ("project.add", r#"{"path":"/x","name":"shop"}"#, "shop"),
            ("limits.set", "{}", "fleet"),
            ("budget.set", r#"{"scope":"day"}"#, "day"),
        ];
        for (name, input, subject) in conditional_calls {
            assert_eq!(
                precondition_of(&call(name, input), 7).unwrap(),
                Precondition {
                    subject: subject.into(),
                    unchanged_since: 7
                },
                "{name}"
            );
            assert!(Verb::find(name).unwrap().supports_if_match(), "{name}");
        }
        assert_eq!(
            regatta_api::VERBS
                .iter()
                .filter(|verb| verb.supports_if_match())
                .count(),
            conditional_calls.len()
        );
        assert_eq!(
            precondition_of(&call("status", "{}"), 7).unwrap_err().code,
            "no_condition"
        );
    }
}
