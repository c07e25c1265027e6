//! Tables of the requests of attempts: who may make them, and with which values they continue.

use serde_json::{Value, json};

use super::*;

/// Each character of a row in the tables stands for one of these callers.
const CALLERS: [&str; 5] = [
    "the worker A1 of M1",
    "its lead A2",
    "the lead A3 of M2",
    "the lead A4 without a mission",
    "the lead A5 of another project",
];

fn row<T: serde::de::DeserializeOwned>(fields: Value) -> T {
    serde_json::from_value(fields).unwrap()
}

fn merged(mut fields: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        fields[name] = value.clone();
    }
    fields
}

/// Returns a task of the project `shop` with these fields.
fn task(id: u64, fields: &Value) -> Arc<Task> {
    let base = json!({
        "id": TaskId(id), "project": "shop", "subject": "", "description": "",
        "issue_type": "task", "files": [], "validation": {}, "blocked_by": [], "priority": 2,
        "wave": 0, "status": "unassigned", "failures": 0, "progress": "", "created_wall": 0,
        "updated_wall": 0,
    });
    row(merged(base, fields))
}

fn attempt(id: u64, agent: &str, fields: &Value) -> Arc<Attempt> {
    let base = json!({
        "id": AttemptId(id), "task": TaskId(id), "project": "shop", "agent": agent,
        "token": 100 + id, "supervised": true, "phase": "working", "started_wall": 0,
    });
    row(merged(base, fields))
}

fn approval(id: u64, fields: &Value) -> Arc<Approval> {
    let base = json!({
        "id": ApprovalId(id), "attempt": "A1", "task": "T1", "project": "shop", "mission": "M1",
        "agent": "ann", "ask": { "id": "1", "want": "question", "text": "Which?", "choices": [] },
        "asked_wall": 0, "escalate_at": null, "escalated": false, "decision": null,
        "closed": false,
    });
    row(merged(base, fields))
}

fn claim(id: u64, owner: Value, ttl_ms: Option<u64>) -> Arc<crate::claim::Claim> {
    row(json!({
        "id": ClaimId(id), "owner": owner, "uris": ["port://8080"], "mode": "exclusive",
        "token": id, "ttl_ms": ttl_ms, "expires_at": null, "granted_wall": 0,
    }))
}

fn message(channel: &str, sender: &str) -> Message {
    row(json!({
        "id": "B7", "channel": channel, "sender": sender, "text": "", "labels": [],
        "mentions": [], "reply_to": null, "wall": 0,
    }))
}

fn add_tasks(board: &mut Board, tasks: impl IntoIterator<Item = Arc<Task>>) {
    for task in tasks {
        board.tasks.insert(task.id, task);
    }
}

/// Returns a board with the callers, a claim of each kind and requests of several attempts.
fn board() -> Board {
    let mut board = Board::default();
    for (name, role) in [
        ("ann", "worker"),
        ("eve", "lead"),
        ("mia", "lead"),
        ("ida", "lead"),
        ("pat", "lead"),
    ] {
        let agent: crate::agent::Agent = row(json!({
            "name": name, "runtime": { "runtime": "outside" }, "role": role, "provider": null,
            "description": "", "max_tasks": 1, "created_wall": 0, "updated_wall": 0,
        }));
        board.agents.insert(agent.name.clone(), Arc::new(agent));
    }
    add_tasks(
        &mut board,
        [
            task(1, &json!({ "mission": "M1", "status": "in_progress" })),
            task(2, &json!({ "mission": "M1", "purpose": "lead" })),
            task(3, &json!({ "mission": "M2", "purpose": "lead" })),
            task(4, &json!({})),
            task(5, &json!({ "project": "depot" })),
        ],
    );
    for attempt in [
        attempt(1, "ann", &json!({ "mission": "M1" })),
        attempt(2, "eve", &json!({ "mission": "M1" })),
        attempt(3, "mia", &json!({ "mission": "M2" })),
        attempt(4, "ida", &json!({})),
        attempt(5, "pat", &json!({ "project": "depot" })),
    ] {
        board.attempts.insert(attempt.id, attempt);
    }
    for claim in [
        claim(1, json!({ "attempt": "A1" }), Some(1_000)),
        claim(2, json!({ "attempt": "A1" }), None),
        claim(3, json!({ "agent": "ann" }), Some(1_000)),
    ] {
        board.claims.insert(claim.id, claim);
    }
    for approval in [
        approval(1, &json!({})),
        approval(2, &json!({ "attempt": "A2", "agent": "eve" })),
        approval(3, &json!({ "mission": null })),
        approval(
            4,
            &json!({ "ask": { "id": "1", "want": "permission", "tool": {}, "options": [] } }),
        ),
    ] {
        board.approvals.insert(approval.id, approval);
    }
    board
}

fn caller(board: &Board, id: u64) -> AttemptPrincipal {
    AttemptPrincipal::find(board, AttemptId(id)).unwrap()
}

/// Checks rows of a name, a request, and one character for each of the [`CALLERS`]: `+` if the
/// caller may make the request, `-` if the request is refused as not the caller's own.
fn check_table(board: &Board, table: &[(&str, AttemptRequest<'_>, &str)]) {
    for (name, request, expected) in table {
        assert_eq!(expected.len(), CALLERS.len(), "{name}");
        for (n, (who, expected)) in CALLERS.iter().zip(expected.chars()).enumerate() {
            let answer = narrow(board, &caller(board, n as u64 + 1), request);
            let code = answer.as_ref().err().map(Refusal::code);
            let expected = (expected == '-').then_some("not_yours");
            assert_eq!(code, expected, "{name} by {who}: {answer:?}");
        }
    }
}

fn uris(texts: &[&str]) -> Vec<Uri> {
    texts.iter().map(|text| Uri::new(text).unwrap()).collect()
}

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

#[test]
fn principal_is_read_from_the_board() {
    let mut board = board();
    let roles = |board: &Board| {
        [1, 2, 4].map(|id| {
            let caller = caller(board, id);
            (caller.is_lead(), caller.leads_mission)
        })
    };
    let expected = [(false, false), (true, true), (true, false)];
    assert_eq!(roles(&board), expected);
    let worker = caller(&board, 1);
    assert_eq!(
        (worker.task, worker.mission, worker.fencing_token),
        (TaskId(1), Some(MissionId(1)), 101)
    );
    // The attempt of a removed agent has the fewest rights.
    board.agents.remove(&agent("eve"));
    assert!(!caller(&board, 2).is_lead());
}

#[test]
fn s1_token_of_an_ended_or_stopping_attempt_is_refused() {
    let mut board = board();
    board.attempts.remove(&AttemptId(1));
    let refusal = AttemptPrincipal::find(&board, AttemptId(1)).unwrap_err();
    assert_eq!(
        refusal.message(),
        "this attempt's token does not allow any call, because the attempt has ended"
    );
    for (fields, is_valid) in [
        (json!({}), true),
        (json!({ "phase": "validating" }), false),
        (json!({ "stopping": "stopped" }), false),
    ] {
        assert_eq!(is_token_valid(&attempt(1, "ann", &fields)), is_valid);
    }
}

#[test]
fn j3_attempt_reports_asks_and_reads_only_for_itself() {
    let report = |task, attempt| AttemptRequest::Report {
        task: TaskId(task),
        attempt: AttemptId(attempt),
    };
    let ask = |task, attempt| AttemptRequest::Ask {
        task: TaskId(task),
        attempt: AttemptId(attempt),
        wait_ms: 0,
    };
    let attempt = AttemptId(1);
    let wait_ms = 0;
    check_table(
        &board(),
        &[
            ("a report of A1", report(1, 1), "+----"),
            ("a report of A2", report(2, 2), "-+---"),
            ("a report of A1 on T2", report(2, 1), "-----"),
            ("a question of A1", ask(1, 1), "+----"),
            ("a question of A1 on T2", ask(2, 1), "-----"),
            (
                "the answer to A1",
                AttemptRequest::AwaitAnswer { attempt, wait_ms },
                "+----",
            ),
            (
                "the briefing of A1",
                AttemptRequest::ReadBriefing { attempt },
                "+----",
            ),
            ("a guide", AttemptRequest::ReadPublic, "+++++"),
            (
                "a verb of people",
                AttemptRequest::Other { verb: "stop" },
                "-----",
            ),
        ],
    );
}

#[test]
fn attempt_claims_only_bounded_things_of_its_own() {
    let board = board();
    for (text, expected) in [
        ("file://shop/src/a.rs", "++++-"),
        ("file://shop/src/*", "++++-"),
        ("file://shop/src/**", "-+++-"),
        ("file://shop/**", "-----"),
        ("file://shop/*", "-----"),
        ("file://depot/src/a.rs", "----+"),
        ("port://8080", "+++++"),
        ("task://shop/T1", "+----"),
        ("workspace://shop/T1", "+----"),
        ("workspace://shop/default", "-+++-"),
        ("agent://ann", "+----"),
        ("respond://shop", "-----"),
    ] {
        let uris = uris(&[text]);
        let both = [
            (text, AttemptRequest::CheckClaim { uris: &uris }, expected),
            (
                text,
                AttemptRequest::AcquireClaim {
                    uris: &uris,
                    ttl_ms: 1,
                    wait_ms: 0,
                },
                expected,
            ),
        ];
        check_table(&board, &both);
    }
    // One URI that is not allowed is enough for a refusal.
    let mixed = uris(&["port://8080", "agent://bob"]);
    let request = AttemptRequest::CheckClaim { uris: &mixed };
    check_table(&board, &[("a mixed claim", request, "-----")]);
}

#[test]
fn l8_attempt_changes_only_claims_that_it_acquired() {
    let board = board();
    let change = |id| AttemptRequest::ChangeClaim { claim: ClaimId(id) };
    check_table(
        &board,
        &[
            ("its own claim", change(1), "+----"),
            ("the claim on the files of its task", change(2), "-----"),
            ("the claim of its agent", change(3), "-----"),
        ],
    );
    let ended = narrow(&board, &caller(&board, 1), &change(9)).unwrap_err();
    assert_eq!(ended, Refusal::ClaimEnded { claim: ClaimId(9) });
}

#[test]
fn claims_of_an_attempt_have_a_maximum_number() {
    let mut board = board();
    let ports = uris(&["port://8080"]);
    let request = AttemptRequest::AcquireClaim {
        uris: &ports,
        ttl_ms: 1,
        wait_ms: 0,
    };
    // A1 has one claim that it acquired; the claim on its task's files does not count.
    for id in 10..40 {
        let claim = claim(id, json!({ "attempt": "A1" }), Some(1_000));
        board.claims.insert(claim.id, claim);
    }
    assert!(narrow(&board, &caller(&board, 1), &request).is_ok());
    let last = claim(40, json!({ "attempt": "A1" }), Some(1_000));
    board.claims.insert(last.id, last);
    let refusal = narrow(&board, &caller(&board, 1), &request).unwrap_err();
    assert_eq!(refusal.code(), "too_many");
    assert_eq!(
        refusal.message(),
        "the attempt A1 already holds 32 claims, which is the limit"
    );
    assert!(narrow(&board, &caller(&board, 2), &request).is_ok());
}

#[test]
fn attempt_reads_and_posts_only_in_its_channels() {
    let board = board();
    for (name, may_read, may_post) in [
        ("shop", "++++-", "++++-"),
        ("shop-dev", "++++-", "++++-"),
        ("shopping", "-----", "-----"),
        ("depot", "----+", "----+"),
        ("M1", "++---", "++---"),
        ("T1", "+----", "+----"),
        ("@ann", "+----", "+++++"),
        ("@bob", "-----", "+++++"),
    ] {
        let channel = channel(name);
        let post = AttemptRequest::PostMessage(ProposedMessage {
            channel: &channel,
            agent: None,
            reply_to: None,
            labels: &[],
        });
        let mark = AttemptRequest::MarkRead { channel: &channel };
        let attachment = AttemptRequest::ReadAttachment {
            message: message(name, "bob"),
        };
        check_table(
            &board,
            &[
                (name, post, may_post),
                (name, mark, may_read),
                (name, attachment, may_read),
            ],
        );
    }
    // The sender may read a message in another agent's mailbox.
    let sent = AttemptRequest::ReadAttachment {
        message: message("@bob", "ann"),
    };
    check_table(&board, &[("a message of ann", sent, "+----")]);
}

#[test]
fn posted_messages_carry_the_own_agent_and_no_reserved_label() {
    let board = board();
    let shop = channel("shop");
    let post = |agent: Option<&AgentName>, reply_to, labels: &[&str]| {
        let labels: Vec<Label> = labels
            .iter()
            .map(|label| Label::new(label).unwrap())
            .collect();
        let message = ProposedMessage {
            channel: &shop,
            agent,
            reply_to,
            labels: &labels,
        };
        let request = AttemptRequest::PostMessage(message);
        narrow(&board, &caller(&board, 1), &request).map_err(|refusal| refusal.message())
    };
    let as_agent = |name| Ok(NarrowedRequest::AsAgent { agent: agent(name) });
    let refused = |message: &str| Err(message.to_owned());
    assert_eq!(post(None, None, &["plan"]), as_agent("ann"));
    assert_eq!(
        post(Some(&agent("ann/helper")), None, &[]),
        as_agent("ann/helper")
    );
    assert_eq!(
        post(Some(&agent("anna")), None, &[]),
        refused("an attempt of ann cannot post as anna")
    );
    assert_eq!(
        post(None, Some(message("shop", "bob")), &[]),
        as_agent("ann")
    );
    assert_eq!(
        post(None, Some(message("@bob", "mia")), &[]),
        refused("this attempt's token does not allow B7, which was sent to another agent")
    );
    for label in ["coord:merge", "lead:eve"] {
        assert_eq!(
            post(None, None, &["plan", label]),
            refused(&format!("only Regatta may use the label {label}"))
        );
    }
}

#[test]
fn reading_messages_is_limited_to_what_the_attempt_may_read() {
    let board = board();
    let read = |name: Option<&str>, from, selected_by| {
        let channel = name.map(channel);
        let request = AttemptRequest::ReadMessages {
            channel: channel.as_ref(),
            from,
            selected_by,
            wait_ms: 1,
        };
        match narrow(&board, &caller(&board, 1), &request) {
            Ok(NarrowedRequest::ReadMessages { channel, from, .. }) => {
                Ok((channel.map(|channel| channel.to_string()), from))
            }
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal.code()),
        }
    };
    let limited = |channel: Option<&str>, from: Option<&str>| {
        Ok((channel.map(str::to_owned), from.map(str::to_owned)))
    };
    let bob = Some("bob");
    assert_eq!(read(None, bob, vec![]), limited(Some("shop"), bob));
    assert_eq!(read(Some("@ann"), bob, vec![]), limited(Some("@ann"), bob));
    // In the mailbox of another agent, the attempt reads its own messages only.
    assert_eq!(
        read(Some("@bob"), bob, vec![]),
        limited(Some("@bob"), Some("ann"))
    );
    assert_eq!(read(Some("depot"), None, vec![]), Err("not_yours"));
    let thread = vec![message("@bob", "ann")];
    assert_eq!(read(None, None, thread), limited(None, None));
    let thread = vec![message("shop", "bob"), message("@bob", "mia")];
    assert_eq!(read(None, None, thread), Err("not_yours"));
}

#[test]
fn attempt_sees_only_its_own_things_and_tasks_of_its_project() {
    let board = board();
    let show = |target| AttemptRequest::Show { id: "it", target };
    let of_approval = |id| {
        let found = board.approvals.get(&ApprovalId(id));
        show(ShowTarget::Approval(
            found.map(|found| Box::new(Approval::clone(found))),
        ))
    };
    check_table(
        &board,
        &[
            ("ann", show(ShowTarget::Agent(agent("ann"))), "+----"),
            ("A1", show(ShowTarget::Attempt(AttemptId(1))), "+----"),
            ("M1", show(ShowTarget::Mission(MissionId(1))), "++---"),
            ("T4", show(ShowTarget::Task(task(4, &json!({})))), "++++-"),
            ("a request of A1", of_approval(1), "++---"),
            ("a request of A1 without a mission", of_approval(3), "+----"),
            ("no request", of_approval(99), "-----"),
        ],
    );
    // A refusal repeats only the beginning of the name.
    let id = "x".repeat(100);
    let target = ShowTarget::Attempt(AttemptId(9));
    let request = AttemptRequest::Show { id: &id, target };
    let refusal = narrow(&board, &caller(&board, 1), &request).unwrap_err();
    assert!(refusal.message().ends_with(&format!(" {}", &id[..20])));
}

#[test]
fn only_the_lead_of_a_task_directs_it() {
    let board = board();
    for (fields, expected) in [
        (json!({ "mission": "M1" }), "-+-+-"),
        (json!({ "mission": "M2" }), "--++-"),
        (json!({}), "---+-"),
        (json!({ "project": "depot" }), "----+"),
    ] {
        let name = fields.to_string();
        let bob = agent("bob");
        let direct = AttemptRequest::DirectTask {
            task: task(9, &fields),
            verb: "land",
        };
        let assign = AttemptRequest::AssignTask {
            task: task(9, &fields),
            to: Some(&bob),
            how: AssignMode::Offer,
        };
        check_table(
            &board,
            &[(&name, direct, expected), (&name, assign, expected)],
        );
    }
}

#[test]
fn worker_takes_unassigned_tasks_and_returns_tasks_that_have_not_begun() {
    let board = board();
    let ann = agent("ann");
    let bob = agent("bob");
    let pending =
        |mine: bool| json!({ "status": "pending", "assignee": if mine { "ann" } else { "bob" } });
    for (fields, to, how, is_allowed) in [
        (json!({}), Some(&ann), AssignMode::Direct, true),
        (
            json!({ "mission": "M1" }),
            Some(&ann),
            AssignMode::Direct,
            true,
        ),
        (
            json!({ "mission": "M2" }),
            Some(&ann),
            AssignMode::Direct,
            false,
        ),
        (
            json!({ "project": "depot" }),
            Some(&ann),
            AssignMode::Direct,
            false,
        ),
        (json!({}), Some(&ann), AssignMode::Queue, false),
        (json!({}), Some(&bob), AssignMode::Direct, false),
        (
            json!({ "status": "backlog" }),
            Some(&ann),
            AssignMode::Direct,
            false,
        ),
        (pending(false), Some(&ann), AssignMode::Direct, false),
        (pending(true), None, AssignMode::Direct, true),
        (pending(false), None, AssignMode::Direct, false),
        (
            json!({ "status": "in_progress", "assignee": "ann" }),
            None,
            AssignMode::Direct,
            false,
        ),
    ] {
        let name = format!("{fields} to {to:?} {how:?}");
        let task = task(9, &fields);
        let request = AttemptRequest::AssignTask { task, to, how };
        let answer = narrow(&board, &caller(&board, 1), &request);
        assert_eq!(answer.is_ok(), is_allowed, "{name}: {answer:?}");
    }
}

#[test]
fn lead_answers_questions_of_its_workers_once() {
    let board = board();
    let answer = |approval, scope| AttemptRequest::AnswerApproval {
        approval: ApprovalId(approval),
        scope,
        also_identical: false,
    };
    let answer_all = AttemptRequest::AnswerApproval {
        approval: ApprovalId(1),
        scope: AnswerScope::Once,
        also_identical: true,
    };
    let once = AnswerScope::Once;
    check_table(
        &board,
        &[
            ("a question of its worker", answer(1, once), "-+---"),
            ("a question of the lead itself", answer(2, once), "-----"),
            ("a question outside a mission", answer(3, once), "-----"),
            ("a request for permission", answer(4, once), "-----"),
            ("an unknown request", answer(9, once), "-----"),
            ("also identical requests", answer_all, "-----"),
            (
                "an answer for the task",
                answer(1, AnswerScope::Task),
                "-----",
            ),
            (
                "an answer for good",
                answer(1, AnswerScope::Always),
                "-----",
            ),
        ],
    );
}

#[test]
fn worker_proposes_tasks_and_lead_adds_them() {
    let mut board = board();
    let (shop, depot) = ([TaskId(1), TaskId(99)], [TaskId(1), TaskId(5)]);
    let (ours, theirs, bob) = (
        ProjectName::new("shop").unwrap(),
        ProjectName::new("depot").unwrap(),
        agent("bob"),
    );
    let nothing = Validation::default();
    let tests: Validation = row(json!({ "tests": ["id"] }));
    let lint: Validation = row(json!({ "lint": ["id"] }));
    let files: Validation = row(json!({ "files_exist": ["a"] }));
    let plain = ProposedTask {
        project: None,
        blocked_by: &shop[..0],
        validation: &nothing,
        has_script: false,
        has_ratchet: false,
        assign: None,
        backlog: false,
    };
    let add = AttemptRequest::AddTask;
    check_table(
        &board,
        &[
            ("a plain task", add(plain), "+++++"),
            (
                "its project",
                add(ProposedTask {
                    project: Some(&ours),
                    ..plain
                }),
                "++++-",
            ),
            (
                "another project",
                add(ProposedTask {
                    project: Some(&theirs),
                    ..plain
                }),
                "----+",
            ),
            (
                "blockers",
                add(ProposedTask {
                    blocked_by: &shop,
                    ..plain
                }),
                "++++-",
            ),
            (
                "foreign blockers",
                add(ProposedTask {
                    blocked_by: &depot,
                    ..plain
                }),
                "-----",
            ),
            (
                "files",
                add(ProposedTask {
                    validation: &files,
                    ..plain
                }),
                "+++++",
            ),
            (
                "tests",
                add(ProposedTask {
                    validation: &tests,
                    ..plain
                }),
                "-++++",
            ),
            (
                "lint",
                add(ProposedTask {
                    validation: &lint,
                    ..plain
                }),
                "-++++",
            ),
            (
                "an assignee",
                add(ProposedTask {
                    assign: Some(&bob),
                    ..plain
                }),
                "-++++",
            ),
            (
                "a script",
                add(ProposedTask {
                    has_script: true,
                    ..plain
                }),
                "-----",
            ),
            (
                "a ratchet",
                add(ProposedTask {
                    has_ratchet: true,
                    ..plain
                }),
                "-----",
            ),
        ],
    );
    for (id, asks_for_backlog, backlog) in [
        (1, false, true),
        (1, true, true),
        (2, false, false),
        (2, true, true),
    ] {
        let request = add(ProposedTask {
            backlog: asks_for_backlog,
            ..plain
        });
        let project = ours.clone();
        assert_eq!(
            narrow(&board, &caller(&board, id), &request),
            Ok(NarrowedRequest::AddTask { project, backlog })
        );
    }
    let in_backlog = json!({ "status": "backlog" });
    add_tasks(&mut board, (100..299).map(|id| task(id, &in_backlog)));
    check_table(&board, &[("room for one", add(plain), "+++++")]);
    add_tasks(&mut board, [task(299, &in_backlog)]);
    check_table(&board, &[("a full backlog", add(plain), "----+")]);
}

/// The values that identify the caller, and the limits of times, do not come from the request.
#[test]
fn narrowed_requests_have_the_values_of_the_principal() {
    let board = board();
    let ports = uris(&["port://8080"]);
    let own = (TaskId(1), AttemptId(1));
    let ask = |wait_ms| AttemptRequest::Ask {
        task: own.0,
        attempt: own.1,
        wait_ms,
    };
    let acquire = |ttl_ms, wait_ms| AttemptRequest::AcquireClaim {
        uris: &ports,
        ttl_ms,
        wait_ms,
    };
    let acquired = |ttl_ms, wait_ms| NarrowedRequest::AcquireClaim {
        agent: agent("ann"),
        ttl_ms,
        wait_ms,
    };
    let as_ann = NarrowedRequest::AsAgent {
        agent: agent("ann"),
    };
    let mailbox = channel("@ann");
    for (request, narrowed) in [
        (
            AttemptRequest::Report {
                task: own.0,
                attempt: own.1,
            },
            NarrowedRequest::Report { token: 101 },
        ),
        (
            ask(5),
            NarrowedRequest::Ask {
                token: 101,
                wait_ms: 5,
            },
        ),
        (
            ask(u64::MAX),
            NarrowedRequest::Ask {
                token: 101,
                wait_ms: 600_000,
            },
        ),
        (
            AttemptRequest::AwaitAnswer {
                attempt: own.1,
                wait_ms: u64::MAX,
            },
            NarrowedRequest::AwaitAnswer { wait_ms: 600_000 },
        ),
        (acquire(5, 6), acquired(5, 6)),
        (acquire(u64::MAX, u64::MAX), acquired(1_800_000, 600_000)),
        (
            AttemptRequest::ReadMessages {
                channel: Some(&mailbox),
                from: None,
                selected_by: vec![],
                wait_ms: u64::MAX,
            },
            NarrowedRequest::ReadMessages {
                channel: Some(mailbox.clone()),
                from: None,
                wait_ms: 600_000,
            },
        ),
        (
            AttemptRequest::MarkRead { channel: &mailbox },
            as_ann.clone(),
        ),
        (AttemptRequest::CountUnread, as_ann.clone()),
        (AttemptRequest::AnswerOffer, as_ann),
        (
            AttemptRequest::ListByProject,
            NarrowedRequest::InProject {
                project: ProjectName::new("shop").unwrap(),
            },
        ),
        (AttemptRequest::AdoptTask, NarrowedRequest::InLedMission),
        (AttemptRequest::ReadPublic, NarrowedRequest::Unchanged),
    ] {
        assert_eq!(narrow(&board, &caller(&board, 1), &request), Ok(narrowed));
    }
}
