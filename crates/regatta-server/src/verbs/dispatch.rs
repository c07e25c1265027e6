//! Passes each call to the implementation of its verb (API operation).
//!
//! The table in `regatta_api::verb` names the method of [`VerbHandler`] that implements each verb.
//! Simple verbs are implemented here: their input becomes a command, and the answer shows its
//! result. The other methods are in one module per subject, such as `task` or `claim`.

use regatta_api::live_view::DoctorView;
use regatta_api::team::{self as team_input, TeamView};
use regatta_api::view::TokenView;
use regatta_core::conversation::Conversation;
use regatta_core::ids::RuleId;
use regatta_core::policy::PolicyRule;

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
    // Refuse before the verb does anything, because the caller expects a part of a list.
    if !context.paging.is_whole() && !call.verb().returns_list {
        return Err(Problem::new(
            400,
            "no_list",
            "the verb does not return a list, so its answer has no pages",
            "omit the parameters limit and after",
        ));
    }
    let call = handler.restrict_to_attempt(call).await?;
    Ok(regatta_api::dispatch_call!(handler, call, context.paging))
}

/// Returns the condition of a call with the header If-Match: the call's target must not have
/// changed since the revision `since` (the number of an event). Returns an error for a call that
/// does not support conditions, because its caller relies on the condition.
fn precondition_of(call: &Call, since: u64) -> Result<Precondition, Problem> {
    let subject = call.condition_subject().ok_or_else(|| {
        Problem::new(
            400,
            "no_condition",
            format!(
                "the verb {} does not support the header If-Match for this input",
                call.verb().name
            ),
            "omit If-Match; for project.add, give the project's name instead",
        )
    })?;
    Ok(Precondition {
        subject,
        unchanged_since: since,
    })
}

impl VerbHandler<'_> {
    pub(super) async fn project_rm(&self, input: input::ProjectNameInput) -> Reply<Done> {
        self.run_and_confirm(Command::RemoveProject(project::RemoveProject {
            name: input.name,
        }))
        .await
    }

    pub(super) async fn agent_rm(&self, input: input::AgentNameInput) -> Reply<Done> {
        self.run_and_confirm(Command::RemoveAgent { agent: input.name })
            .await
    }

    pub(super) async fn task_assign(&self, input: input::TaskAssign) -> Reply<TaskView> {
        self.run_on_task(
            input.task,
            Command::AssignTask {
                task: input.task,
                to: input.to,
                how: input.how,
            },
        )
        .await
    }

    pub(super) async fn task_accept(&self, input: input::OfferReply) -> Reply<TaskView> {
        self.answer_offer(input, true).await
    }

    pub(super) async fn task_reject(&self, input: input::OfferReply) -> Reply<TaskView> {
        self.answer_offer(input, false).await
    }

    async fn answer_offer(&self, input: input::OfferReply, accept: bool) -> Reply<TaskView> {
        let command = Command::AnswerOffer {
            task: input.task,
            agent: input.agent,
            accept,
        };
        self.run_on_task(input.task, command).await
    }

    pub(super) async fn task_cancel(&self, input: input::TaskCancel) -> Reply<TaskView> {
        let reason = input
            .reason
            .unwrap_or_else(|| "cancelled by a person".into());
        let task = input.task;
        self.run_on_task(task, Command::CancelTask { task, reason })
            .await
    }

    pub(super) async fn task_progress(&self, input: input::TaskProgress) -> Reply<TaskView> {
        self.run_on_task(
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

    pub(super) async fn task_finish(&self, input: input::TaskFinish) -> Reply<TaskView> {
        self.run_on_task(
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

    pub(super) async fn task_fail(&self, input: input::TaskFail) -> Reply<TaskView> {
        self.run_on_task(
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

    pub(super) async fn policy_list(
        &self,
        _: input::EmptyInput,
        page: &PageRequest,
    ) -> PageReply<Vec<PolicyRule>> {
        let board = self.board();
        let rules = board.rules.range(page.id_range::<RuleId>()?);
        let rules = page.first_of(rules, |(_, rule)| PolicyRule::clone(rule));
        reply(board.revision, rules)
    }

    pub(super) async fn policy_rm(&self, input: input::RuleIdInput) -> Reply<Done> {
        self.run_and_confirm(Command::RemoveRule { rule: input.rule })
            .await
    }

    pub(super) async fn budget_list(&self, input: input::BudgetListInput) -> Reply<BudgetsView> {
        let board = self.board();
        let view = BudgetsView::new(&board, self.engine().now(), input.days);
        reply(board.revision, view)
    }

    pub(super) async fn claim_release(&self, input: input::HeldClaimInput) -> Reply<Done> {
        self.run_and_confirm(Command::Release {
            claim: input.claim,
            token: input.token,
        })
        .await
    }

    pub(super) async fn conversation_accept(
        &self,
        input: input::ConversationIdInput,
    ) -> Reply<Conversation> {
        let conversation = input.conversation;
        self.run_conversation_command(conversation, ConversationCommand::Accept { conversation })
            .await
    }

    pub(super) async fn conversation_refuse(
        &self,
        input: input::ConversationIdInput,
    ) -> Reply<Conversation> {
        let conversation = input.conversation;
        self.run_conversation_command(conversation, ConversationCommand::Refuse { conversation })
            .await
    }

    pub(super) async fn conversation_close(
        &self,
        input: input::ConversationIdInput,
    ) -> Reply<Conversation> {
        let conversation = input.conversation;
        self.run_conversation_command(conversation, ConversationCommand::Close { conversation })
            .await
    }

    pub(super) async fn conversation_stop(
        &self,
        input: input::ConversationIdInput,
    ) -> Reply<Conversation> {
        let conversation = input.conversation;
        let command = ConversationCommand::Stop {
            conversation,
            by: self.actor.to_string(),
            delivery: None,
        };
        self.run_conversation_command(conversation, command).await
    }

    pub(super) async fn hook_rm(&self, input: input::HookIdInput) -> Reply<Done> {
        self.run_and_confirm(Command::RemoveHook { hook: input.hook })
            .await
    }

    pub(super) async fn team_delete(&self, input: team_input::TeamNameInput) -> Reply<TeamView> {
        let team = input.team.clone();
        self.run_and_show_team(&input.team, team::TeamCommand::Delete { team })
            .await
    }

    pub(super) async fn team_undelete(&self, input: team_input::TeamNameInput) -> Reply<TeamView> {
        let team = input.team.clone();
        self.run_and_show_team(&input.team, team::TeamCommand::Undelete { team })
            .await
    }

    pub(super) async fn runner_rm(&self, input: input::RunnerNameInput) -> Reply<Done> {
        self.run_and_confirm(Command::RemoveRunner { runner: input.name })
            .await
    }

    pub(super) async fn token_list(
        &self,
        _: input::EmptyInput,
        page: &PageRequest,
    ) -> PageReply<Vec<TokenView>> {
        let tokens = self.shared.tokens.list(self.engine().now().unix_ms);
        let tokens = page.select(tokens, |token| token.name.clone(), |token| token)?;
        reply(self.board().revision, tokens)
    }

    pub(super) async fn check(&self, _: input::EmptyInput) -> Reply<StoreIsSound> {
        self.engine()
            .check_store()
            .await
            .map_err(problem_from_failure)?;
        reply(self.board().revision, StoreIsSound::Ok)
    }

    pub(super) async fn doctor(&self, _: input::EmptyInput) -> Reply<DoctorView> {
        let board = self.board();
        let projects = board
            .projects
            .values()
            .map(|project| (project.name.clone(), project.location.clone().into()))
            .collect();
        let bridges = self.shared.bridges.as_ref();
        let doctor_input = crate::DoctorInput {
            agents: self.agent_views(&board, fleet::sorted_agent_names(&board)),
            projects,
            bridges: bridges.map(|bridges| bridges.list()).unwrap_or_default(),
        };
        let doctor = self.shared.doctor.clone();
        let view = run_blocking(move || doctor(&doctor_input)).await?;
        reply(self.board().revision, view)
    }
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
            ("project.rm", r#"{"name":"shop"}"#, "shop"),
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
            assert!(Verb::find(name).unwrap().supports_if_match, "{name}");
        }
        assert_eq!(
            regatta_api::VERBS
                .iter()
                .filter(|verb| verb.supports_if_match)
                .count(),
            conditional_calls.len()
        );
        assert_eq!(
            precondition_of(&call("status", "{}"), 7).unwrap_err().code,
            "no_condition"
        );
    }
}
