//! Answers to requests for permission and to questions: only the first answer counts, an answer
//! covers only similar requests, and only some actors may answer.

use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, RequestAnswer, RequestContent, ToolCall, ToolKind,
};
use regatta_core::approval::AnswerScope;
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::ids::ApprovalId;
use regatta_core::policy::RuleScope;
use regatta_core::refusal::Refusal;
use regatta_core::schedule::PollGrant;

use crate::world::{World, agent};

const Q1: ApprovalId = ApprovalId(1);
const Q2: ApprovalId = ApprovalId(2);

fn report_event(world: &mut World, grant: &PollGrant, n: u64, event: AgentEvent) {
    let (attempt, token) = (grant.attempt, grant.token);
    world.report(Report::AgentEvent {
        attempt,
        token,
        n,
        event,
    });
}

fn permission(line: &str) -> RequestContent {
    let tool = ToolCall {
        kind: ToolKind::Execute,
        command: Some(line.into()),
        ..ToolCall::default()
    };
    RequestContent::Permission {
        tool,
        options: vec![],
    }
}

fn question() -> RequestContent {
    RequestContent::Question {
        text: "Which?".into(),
        choices: vec![],
        schema: None,
    }
}

/// Returns a world in which ada and bob are working and have asked for these things.
fn world_with_requests(ada: &[RequestContent], bob: &[RequestContent]) -> (World, PollGrant) {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    world.add_task("one", &["a.rs"]);
    world.add_task("two", &["b.rs"]);
    let grants = ["ada", "bob"].map(|agent| world.take_supervised_task(agent));
    for (grant, wants) in grants.iter().zip([ada, bob]) {
        for (n, want) in (1..).zip(wants) {
            report_event(
                &mut world,
                grant,
                n,
                AgentEvent::RequestMade(AgentRequest {
                    id: n.to_string(),
                    content: want.clone(),
                }),
            );
        }
    }
    let [first, _] = grants;
    (world, first)
}

fn decide(approval: ApprovalId, answer: RequestAnswer, reach: AnswerScope) -> Command {
    Command::Decide {
        approval,
        answer,
        scope: reach,
        also: vec![],
    }
}

fn denial() -> RequestAnswer {
    RequestAnswer::Deny { reason: None }
}

/// Returns the requests that were answered, with their answers.
fn recorded_answers(world: &World) -> Vec<(u64, RequestAnswer)> {
    let all = world.board.approvals.values();
    all.filter_map(|approval| Some((approval.id.0, approval.decision.as_ref()?.answer.clone())))
        .collect()
}

#[test]
fn a_second_answer_is_refused_and_names_the_first_answerer() {
    let (mut world, grant) = world_with_requests(&[permission("npm install zod"), question()], &[]);
    world.ask("ann", decide(Q1, RequestAnswer::Allow, AnswerScope::Once));
    let late = world.ask_refused("regatta", decide(Q1, denial(), AnswerScope::Once));
    assert_eq!(
        late,
        Refusal::AlreadyAnswered {
            approval: Q1,
            by: "ann".into()
        }
    );
    assert_eq!(
        recorded_answers(&world),
        [(1, RequestAnswer::Allow)],
        "the first answer is unchanged"
    );
    // A request that the agent withdrew cannot be answered.
    report_event(
        &mut world,
        &grant,
        3,
        AgentEvent::RequestWithdrawn {
            request: "2".into(),
        },
    );
    let text = RequestAnswer::Text {
        text: "this".into(),
    };
    let late = world.ask_refused("ann", decide(Q2, text, AnswerScope::Once));
    assert!(
        matches!(late, Refusal::AlreadyAnswered { approval: Q2, .. }),
        "{late:?}"
    );
    assert_eq!(recorded_answers(&world).len(), 1);
}

#[test]
fn an_answer_for_the_task_covers_only_similar_requests_of_that_task() {
    let lines = ["npm install zod", "npm install left-pad", "cargo test all"].map(permission);
    let (mut world, _) = world_with_requests(&lines, &lines[..1]);
    world.ask("ann", decide(Q2, denial(), AnswerScope::Once));
    assert_eq!(
        recorded_answers(&world),
        [(2, denial())],
        "an answer for once covers one request"
    );
    world.ask("ann", decide(Q1, RequestAnswer::Allow, AnswerScope::Task));
    assert_eq!(
        recorded_answers(&world),
        [(1, RequestAnswer::Allow), (2, denial())],
        "the answer covered another task's request or an answered one"
    );
    let (mut world, _) = world_with_requests(&lines, &lines[..1]);
    world.ask("ann", decide(Q1, RequestAnswer::Allow, AnswerScope::Task));
    assert_eq!(
        recorded_answers(&world),
        [(1, RequestAnswer::Allow), (2, RequestAnswer::Allow)],
        "a different command is not similar"
    );
    let scopes = |world: &World| {
        world
            .board
            .rules
            .values()
            .map(|policy_rule| policy_rule.scope.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(scopes(&world), [RuleScope::Task(world.grants[0].task)]);
    world.ask("ann", decide(ApprovalId(4), denial(), AnswerScope::Always));
    assert_eq!(
        scopes(&world)[1],
        RuleScope::Agent(agent("bob")),
        "an answer for always covers the agent that asked"
    );
    assert_eq!(recorded_answers(&world).len(), 3);
}

/// The outcome lists every request that the command answered, also those that its own new rule
/// answered first.
#[test]
fn an_answer_to_several_requests_is_one_commit_and_counts_them_all() {
    let lines = ["npm install zod", "npm install left-pad", "cargo test all"].map(permission);
    let all = |also: &[u64], reach| Command::Decide {
        approval: Q1,
        answer: RequestAnswer::Allow,
        scope: reach,
        also: also.iter().map(|id| ApprovalId(*id)).collect(),
    };
    let ids = |outcome: CommandOutcome| match outcome {
        CommandOutcome::Decided(ids) => ids.iter().map(|id| id.0).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    // Q1's rule answers Q2 (the same agent). Q4 is another agent's request and gets a rule of its
    // own.
    let (mut world, _) = world_with_requests(&lines, &lines[..1]);
    assert_eq!(
        ids(world.ask("ann", all(&[2, 4], AnswerScope::Always))),
        [1, 2, 4]
    );
    assert_eq!(recorded_answers(&world).len(), 3);
    assert_eq!(world.board.rules.len(), 2);
    // A request that was answered before, or that does not exist, is skipped and not counted.
    let (mut world, _) = world_with_requests(&lines, &lines[..1]);
    world.ask("ann", decide(ApprovalId(4), denial(), AnswerScope::Once));
    assert_eq!(
        ids(world.ask("ann", all(&[4, 2, 77, 2], AnswerScope::Once))),
        [1, 2]
    );
    assert_eq!(
        recorded_answers(&world),
        [
            (1, RequestAnswer::Allow),
            (2, RequestAnswer::Allow),
            (4, denial())
        ]
    );
    // If one of the requests cannot be answered in this way, the whole command is refused.
    let (mut world, _) = world_with_requests(&[lines[0].clone(), question()], &[]);
    world.ask_refused("ann", all(&[2], AnswerScope::Always));
    assert_eq!(
        (recorded_answers(&world), world.board.rules.len()),
        (vec![], 0)
    );
}

#[test]
fn answers_of_the_wrong_kind_or_from_the_asking_agent_are_refused() {
    let (mut world, _) = world_with_requests(&[permission("npm install zod"), question()], &[]);
    let text = || RequestAnswer::Text {
        text: "this".into(),
    };
    world.ask_refused("ann", decide(Q1, text(), AnswerScope::Once));
    world.ask_refused("ann", decide(Q2, RequestAnswer::Allow, AnswerScope::Once));
    // The agent that asked and its helpers may not answer. Another agent may answer a question, but
    // only a person answers a request for permission.
    for own in ["ada", "ada/helper"] {
        world.ask_refused(own, decide(Q2, text(), AnswerScope::Once));
    }
    world.ask_refused("bob", decide(Q1, RequestAnswer::Allow, AnswerScope::Once));
    assert_eq!(recorded_answers(&world), []);
    world.ask("bob", decide(Q2, text(), AnswerScope::Once));
    assert_eq!(recorded_answers(&world), [(2, text())]);
}

/// S13: a request that does not name its object is denied by default, and the agent gets the
/// reason.
#[test]
fn s13_a_request_that_does_not_show_its_object_is_denied_with_the_reason() {
    let tool = |kind, title: &str| ToolCall {
        kind,
        title: title.into(),
        ..ToolCall::default()
    };
    let hidden = [
        tool(ToolKind::Fetch, "WebFetch"),
        tool(ToolKind::Execute, "Run a command"),
        tool(ToolKind::Edit, "change files"),
        tool(ToolKind::Other, "mcp__github__merge"),
        ToolCall {
            arguments: Some("{}".into()),
            ..tool(ToolKind::Fetch, "WebFetch")
        },
        ToolCall {
            command: Some("echo a".into()),
            is_cut: true,
            ..tool(ToolKind::Execute, "x")
        },
    ];
    let shown = [
        ToolCall {
            urls: vec!["https://docs.rs/".into()],
            ..tool(ToolKind::Fetch, "WebFetch")
        },
        ToolCall {
            arguments: Some(r#"{"query":"rust"}"#.into()),
            ..tool(ToolKind::Fetch, "WebSearch")
        },
        ToolCall {
            command: Some("make".into()),
            ..tool(ToolKind::Execute, "")
        },
        ToolCall {
            arguments: Some("{}".into()),
            ..tool(ToolKind::Other, "mcp__linear__list_teams")
        },
        ToolCall {
            paths: vec!["/etc/hosts".into()],
            ..tool(ToolKind::Edit, "Write")
        },
    ];
    let all: Vec<RequestContent> = hidden
        .iter()
        .chain(&shown)
        .map(|tool| RequestContent::Permission {
            tool: tool.clone(),
            options: vec![],
        })
        .collect();
    let (world, grant) = world_with_requests(&all, &[]);
    let asked: Vec<_> = world
        .board
        .approvals
        .values()
        .filter(|asked| asked.attempt == grant.attempt)
        .collect();
    assert_eq!(asked.len(), all.len());
    for (nth, approval) in asked.iter().enumerate() {
        let RequestContent::Permission { tool, .. } = &approval.request.content else {
            panic!("{approval:?}")
        };
        if nth < hidden.len() {
            let decision = approval
                .decision
                .as_ref()
                .unwrap_or_else(|| panic!("{tool:?} was put to a person"));
            let RequestAnswer::Deny {
                reason: Some(words),
            } = &decision.answer
            else {
                panic!("{decision:?}")
            };
            assert!(words.contains("because the request"), "{words}");
            assert!(
                decision
                    .rule
                    .as_ref()
                    .is_some_and(|rule| words.contains(rule)),
                "{decision:?}"
            );
            assert_eq!(approval.escalate_fleet_ms, None);
        } else {
            assert!(approval.is_open(), "{approval:?}");
            assert!(
                approval.subject().contains(
                    &tool
                        .object()
                        .expect("the request shows its object")
                        .replace("{}", "")
                ),
                "{approval:?}"
            );
        }
    }
}

/// A person's rule decides also on a request that does not name its object.
#[test]
fn a_rule_for_a_kind_of_tool_needs_no_object() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("one", &["a.rs"]);
    let grant = world.take_supervised_task("ada");
    let matter = regatta_core::policy::RuleSubject {
        tool: Some(ToolKind::Fetch),
        ..Default::default()
    };
    world.ask(
        "ann",
        Command::AddRule {
            scope: RuleScope::All,
            effect: regatta_core::policy::RuleEffect::Allow,
            subject: matter,
        },
    );
    let tool = ToolCall {
        kind: ToolKind::Fetch,
        title: "WebFetch".into(),
        ..ToolCall::default()
    };
    let want = RequestContent::Permission {
        tool,
        options: vec![],
    };
    report_event(
        &mut world,
        &grant,
        1,
        AgentEvent::RequestMade(AgentRequest {
            id: "1".into(),
            content: want,
        }),
    );
    assert_eq!(recorded_answers(&world), [(1, RequestAnswer::Allow)]);
}

/// An answer that allows a fetch for a task allows its host, and no other host.
#[test]
fn a_fetch_is_allowed_for_a_task_by_its_host() {
    let fetch = |url: &str| {
        let tool = ToolCall {
            kind: ToolKind::Fetch,
            title: "WebFetch".into(),
            urls: vec![url.into()],
            ..ToolCall::default()
        };
        RequestContent::Permission {
            tool,
            options: vec![],
        }
    };
    let wants = [
        fetch("https://docs.rs/serde"),
        fetch("https://docs.rs/tokio"),
        fetch("https://evil.test/docs.rs/"),
    ];
    let (mut world, grant) = world_with_requests(&wants, &[]);
    world.ask("ann", decide(Q1, RequestAnswer::Allow, AnswerScope::Task));
    assert_eq!(
        recorded_answers(&world),
        [(1, RequestAnswer::Allow), (2, RequestAnswer::Allow)]
    );
    report_event(
        &mut world,
        &grant,
        9,
        AgentEvent::RequestMade(AgentRequest {
            id: "9".into(),
            content: fetch("https://DOCS.rs/x"),
        }),
    );
    assert_eq!(
        recorded_answers(&world).last().map(|last| last.1.clone()),
        Some(RequestAnswer::Allow)
    );
}
