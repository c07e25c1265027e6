//! Answers to requests for permission and to questions: only the first answer counts, an answer
//! covers only similar requests, and only some actors may answer.

use regatta_core::approval::Reach;
use regatta_core::command::{Command, Outcome};
use regatta_core::ids::ApprovalId;
use regatta_core::policy::Scope;
use regatta_core::refusal::Refusal;
use regatta_core::schedule::Grant;
use regatta_core::session::{Answer, Ask, Said, Tool, ToolKind, Want};

use crate::world::{World, agent};

const Q1: ApprovalId = ApprovalId(1);
const Q2: ApprovalId = ApprovalId(2);

fn says(world: &mut World, grant: &Grant, n: u64, said: Said) {
    let (attempt, token) = (grant.attempt, grant.token);
    world.ask("regatta", Command::ReportSaid { attempt, token, n, said });
}

fn permission(line: &str) -> Want {
    let tool = Tool { kind: ToolKind::Execute, command: Some(line.into()), ..Tool::default() };
    Want::Permission { tool, options: vec![] }
}

fn question() -> Want {
    Want::Question { text: "Which?".into(), choices: vec![], schema: None }
}

/// Returns a world in which ada and bob are working and have asked for these things.
fn asking(ada: &[Want], bob: &[Want]) -> (World, Grant) {
    let mut world = World::with(&[("ada", 1), ("bob", 1)]);
    world.add_task("one", &["a.rs"]);
    world.add_task("two", &["b.rs"]);
    let grants = ["ada", "bob"].map(|it| world.take_supervised(it));
    for (grant, wants) in grants.iter().zip([ada, bob]) {
        for (n, want) in (1..).zip(wants) {
            says(&mut world, grant, n, Said::Asked(Ask { id: n.to_string(), want: want.clone() }));
        }
    }
    let [first, _] = grants;
    (world, first)
}

fn decide(approval: ApprovalId, answer: Answer, reach: Reach) -> Command {
    Command::Decide { approval, answer, reach, also: vec![] }
}

fn no() -> Answer {
    Answer::Deny { words: None }
}

/// Returns the requests that were answered, with their answers.
fn answered(world: &World) -> Vec<(u64, Answer)> {
    let all = world.board.approvals.values();
    all.filter_map(|it| Some((it.id.0, it.decision.as_ref()?.answer.clone()))).collect()
}

#[test]
fn a_second_answer_is_refused_and_names_the_first_answerer() {
    let (mut world, grant) = asking(&[permission("npm install zod"), question()], &[]);
    world.ask("ann", decide(Q1, Answer::Allow, Reach::Once));
    let late = world.refused("regatta", decide(Q1, no(), Reach::Once));
    assert_eq!(late, Refusal::AlreadyAnswered { approval: Q1, by: "ann".into() });
    assert_eq!(answered(&world), [(1, Answer::Allow)], "the first answer is unchanged");
    // A request that the agent withdrew cannot be answered.
    says(&mut world, &grant, 3, Said::Withdrew { ask: "2".into() });
    let text = Answer::Text { text: "this".into() };
    let late = world.refused("ann", decide(Q2, text, Reach::Once));
    assert!(matches!(late, Refusal::AlreadyAnswered { approval: Q2, .. }), "{late:?}");
    assert_eq!(answered(&world).len(), 1);
}

#[test]
fn an_answer_for_the_task_covers_only_similar_requests_of_that_task() {
    let lines = ["npm install zod", "npm install left-pad", "cargo test all"].map(permission);
    let (mut world, _) = asking(&lines, &lines[..1]);
    world.ask("ann", decide(Q2, no(), Reach::Once));
    assert_eq!(answered(&world), [(2, no())], "an answer for once covers one request");
    world.ask("ann", decide(Q1, Answer::Allow, Reach::Task));
    assert_eq!(
        answered(&world),
        [(1, Answer::Allow), (2, no())],
        "the answer covered another task's request or an answered one"
    );
    let (mut world, _) = asking(&lines, &lines[..1]);
    world.ask("ann", decide(Q1, Answer::Allow, Reach::Task));
    assert_eq!(answered(&world), [(1, Answer::Allow), (2, Answer::Allow)], "a different command is not similar");
    let scopes = |world: &World| world.board.rules.values().map(|it| it.scope.clone()).collect::<Vec<_>>();
    assert_eq!(scopes(&world), [Scope::Task(world.grants[0].task)]);
    world.ask("ann", decide(ApprovalId(4), no(), Reach::Always));
    assert_eq!(scopes(&world)[1], Scope::Agent(agent("bob")), "an answer for always covers the agent that asked");
    assert_eq!(answered(&world).len(), 3);
}

/// The outcome lists every request that the command answered, also those that its own new rule
/// answered first.
#[test]
fn an_answer_to_several_requests_is_one_commit_and_counts_them_all() {
    let lines = ["npm install zod", "npm install left-pad", "cargo test all"].map(permission);
    let all = |also: &[u64], reach| Command::Decide {
        approval: Q1,
        answer: Answer::Allow,
        reach,
        also: also.iter().map(|id| ApprovalId(*id)).collect(),
    };
    let ids = |outcome: Outcome| match outcome {
        Outcome::Decided(ids) => ids.iter().map(|id| id.0).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    // Q1's rule answers Q2 (the same agent). Q4 is another agent's request and gets a rule of its
    // own.
    let (mut world, _) = asking(&lines, &lines[..1]);
    assert_eq!(ids(world.ask("ann", all(&[2, 4], Reach::Always))), [1, 2, 4]);
    assert_eq!(answered(&world).len(), 3);
    assert_eq!(world.board.rules.len(), 2);
    // A request that was answered before, or that does not exist, is skipped and not counted.
    let (mut world, _) = asking(&lines, &lines[..1]);
    world.ask("ann", decide(ApprovalId(4), no(), Reach::Once));
    assert_eq!(ids(world.ask("ann", all(&[4, 2, 77, 2], Reach::Once))), [1, 2]);
    assert_eq!(answered(&world), [(1, Answer::Allow), (2, Answer::Allow), (4, no())]);
    // If one of the requests cannot be answered in this way, the whole command is refused.
    let (mut world, _) = asking(&[lines[0].clone(), question()], &[]);
    world.refused("ann", all(&[2], Reach::Always));
    assert_eq!((answered(&world), world.board.rules.len()), (vec![], 0));
}

#[test]
fn answers_of_the_wrong_kind_or_from_the_asking_agent_are_refused() {
    let (mut world, _) = asking(&[permission("npm install zod"), question()], &[]);
    let text = || Answer::Text { text: "this".into() };
    world.refused("ann", decide(Q1, text(), Reach::Once));
    world.refused("ann", decide(Q2, Answer::Allow, Reach::Once));
    // The agent that asked and its helpers may not answer. Another agent may answer a question, but
    // only a person answers a request for permission.
    for own in ["ada", "ada/helper"] {
        world.refused(own, decide(Q2, text(), Reach::Once));
    }
    world.refused("bob", decide(Q1, Answer::Allow, Reach::Once));
    assert_eq!(answered(&world), []);
    world.ask("bob", decide(Q2, text(), Reach::Once));
    assert_eq!(answered(&world), [(2, text())]);
}

/// S13: a request that does not name its object is denied by default, and the agent gets the
/// reason.
#[test]
fn s13_a_request_that_does_not_show_its_object_is_denied_with_the_reason() {
    let tool = |kind, title: &str| Tool { kind, title: title.into(), ..Tool::default() };
    let hidden = [
        tool(ToolKind::Fetch, "WebFetch"),
        tool(ToolKind::Execute, "Run a command"),
        tool(ToolKind::Edit, "change files"),
        tool(ToolKind::Other, "mcp__github__merge"),
        Tool { arguments: Some("{}".into()), ..tool(ToolKind::Fetch, "WebFetch") },
        Tool { command: Some("echo a".into()), is_cut: true, ..tool(ToolKind::Execute, "x") },
    ];
    let shown = [
        Tool { urls: vec!["https://docs.rs/".into()], ..tool(ToolKind::Fetch, "WebFetch") },
        Tool { arguments: Some(r#"{"query":"rust"}"#.into()), ..tool(ToolKind::Fetch, "WebSearch") },
        Tool { command: Some("make".into()), ..tool(ToolKind::Execute, "") },
        Tool { arguments: Some("{}".into()), ..tool(ToolKind::Other, "mcp__linear__list_teams") },
        Tool { paths: vec!["/etc/hosts".into()], ..tool(ToolKind::Edit, "Write") },
    ];
    let all: Vec<Want> =
        hidden.iter().chain(&shown).map(|tool| Want::Permission { tool: tool.clone(), options: vec![] }).collect();
    let (world, grant) = asking(&all, &[]);
    let asked: Vec<_> = world.board.approvals.values().filter(|asked| asked.attempt == grant.attempt).collect();
    assert_eq!(asked.len(), all.len());
    for (nth, approval) in asked.iter().enumerate() {
        let Want::Permission { tool, .. } = &approval.ask.want else { panic!("{approval:?}") };
        if nth < hidden.len() {
            let decision = approval.decision.as_ref().unwrap_or_else(|| panic!("{tool:?} was put to a person"));
            let Answer::Deny { words: Some(words) } = &decision.answer else { panic!("{decision:?}") };
            assert!(words.contains("because the request"), "{words}");
            assert!(decision.rule.as_ref().is_some_and(|rule| words.contains(rule)), "{decision:?}");
            assert_eq!(approval.escalate_at, None);
        } else {
            assert!(approval.is_open(), "{approval:?}");
            assert!(
                approval.subject().contains(&tool.object().expect("the request shows its object").replace("{}", "")),
                "{approval:?}"
            );
        }
    }
}

/// A person's rule decides also on a request that does not name its object.
#[test]
fn a_rule_for_a_kind_of_tool_needs_no_object() {
    let mut world = World::with(&[("ada", 1)]);
    world.add_task("one", &["a.rs"]);
    let grant = world.take_supervised("ada");
    let matter = regatta_core::policy::Matter { tool: Some(ToolKind::Fetch), ..Default::default() };
    world.ask("ann", Command::AddRule { scope: Scope::All, effect: regatta_core::policy::Effect::Allow, matter });
    let tool = Tool { kind: ToolKind::Fetch, title: "WebFetch".into(), ..Tool::default() };
    let want = Want::Permission { tool, options: vec![] };
    says(&mut world, &grant, 1, Said::Asked(Ask { id: "1".into(), want }));
    assert_eq!(answered(&world), [(1, Answer::Allow)]);
}

/// An answer that allows a fetch for a task allows its host, and no other host.
#[test]
fn a_fetch_is_allowed_for_a_task_by_its_host() {
    let fetch = |url: &str| {
        let tool = Tool { kind: ToolKind::Fetch, title: "WebFetch".into(), urls: vec![url.into()], ..Tool::default() };
        Want::Permission { tool, options: vec![] }
    };
    let wants = [fetch("https://docs.rs/serde"), fetch("https://docs.rs/tokio"), fetch("https://evil.test/docs.rs/")];
    let (mut world, grant) = asking(&wants, &[]);
    world.ask("ann", decide(Q1, Answer::Allow, Reach::Task));
    assert_eq!(answered(&world), [(1, Answer::Allow), (2, Answer::Allow)]);
    says(&mut world, &grant, 9, Said::Asked(Ask { id: "9".into(), want: fetch("https://DOCS.rs/x") }));
    assert_eq!(answered(&world).last().map(|last| last.1.clone()), Some(Answer::Allow));
}
