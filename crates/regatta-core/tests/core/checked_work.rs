//! The facts that the verdict on an attempt's work needs, in order, and the verdict that they give.

use regatta_core::attempt::{
    Capture, CheckEvidence, CheckPlace, CheckedWork, NextCheck, ResultStatus, RuleViolation,
    SetupFault, WorkResult, WorkVerdict, next_check, uncaptured_verdict,
};
use regatta_core::ids::{
    AttemptId, ChannelName, ConversationId, LaunchId, MemberName, MessageId, TaskId,
};
use regatta_core::landing::guard::{FileKind, SpecialFile};
use regatta_core::launch::SessionOf;
use regatta_core::project::{EscapePolicy, Project, RuleAction, StandingRule};
use regatta_core::task::{Expects, Fixup, Purpose, Task};

use crate::world::{World, commit, files, shop, task_to_add};

/// An attempt's work, and everything that the engine would find out about it when it is asked.
struct Case {
    task: Task,
    project: Project,
    checked: CheckedWork,
    conflicted: Vec<String>,
    special: Vec<SpecialFile>,
    misnamed_tests: Vec<String>,
    violations: Vec<RuleViolation>,
    evidence: Vec<CheckEvidence>,
    ratchet: Result<(), String>,
}

impl Case {
    /// Returns work that changed `src/a.rs`, of a task that may change `src/**`, in a project with
    /// one check, which passes.
    fn new() -> Case {
        let mut world = World::with_agents(&[]);
        let id = world.add(task_to_add("words", &["src/**"]));
        Case {
            task: world.task(id).clone(),
            project: Project::clone(&world.board.projects[&shop()]),
            checked: CheckedWork::new(AttemptId(1), capture(&["src/a.rs"])),
            conflicted: vec![],
            special: vec![],
            misnamed_tests: vec![],
            violations: vec![],
            evidence: vec![check(true)],
            ratchet: Ok(()),
        }
    }

    fn change(&mut self, paths: &[&str]) {
        self.checked.capture = capture(paths);
    }

    fn write_result(&mut self, status: ResultStatus, detail: &str) {
        self.checked.result_file = Some(Ok(result(status, detail)));
    }

    fn violate(&mut self, action: RuleAction) {
        self.project.settings.rule = vec![StandingRule::default()];
        let sentence = "no panic: src/a.rs".to_owned();
        self.violations = vec![RuleViolation { action, sentence }];
    }

    /// Answers every question as the engine does, and returns the questions and the verdict.
    fn judge(&mut self) -> String {
        let mut steps = Vec::new();
        loop {
            let Case { checked, .. } = self;
            match next_check(&self.task, &self.project, checked) {
                NextCheck::KeepFiles(paths) => {
                    steps.push(format!("keep {}", paths.join(" ")));
                    let changed = paths;
                    checked.kept = Some(Capture {
                        changed,
                        commit: commit(0xc1),
                        base: commit(0xb0),
                    });
                }
                NextCheck::ConflictMarkers(_) => {
                    steps.push("markers".into());
                    checked.conflicted = Some(self.conflicted.clone());
                }
                NextCheck::JoinFixup(kept) => {
                    steps.push("join".into());
                    checked.work = Some(kept.clone());
                }
                NextCheck::SpecialFiles(_) => {
                    steps.push("special".into());
                    checked.special = Some(self.special.clone());
                }
                NextCheck::TestNames(_) => {
                    steps.push("names".into());
                    checked.misnamed_tests = Some(self.misnamed_tests.clone());
                }
                NextCheck::Rules(_) => {
                    steps.push("rules".into());
                    checked.rule_violations = Some(self.violations.clone());
                }
                NextCheck::Checks(place) => {
                    steps.push(match place {
                        CheckPlace::Workspace => "checks".into(),
                        CheckPlace::Commit(id) => {
                            assert_eq!(*id, commit(0xc1), "the checks ran on other work");
                            "checks of the commit".into()
                        }
                    });
                    checked.evidence = Some(self.evidence.clone());
                }
                NextCheck::Ratchet => {
                    steps.push("ratchet".into());
                    checked.ratchet = Some(self.ratchet.clone());
                }
                NextCheck::Verdict(verdict) => {
                    steps.push(describe(verdict));
                    return steps.join(", ");
                }
            }
        }
    }
}

fn capture(paths: &[&str]) -> Capture {
    Capture {
        commit: commit(0xc0),
        base: commit(0xb0),
        changed: paths.iter().map(ToString::to_string).collect(),
    }
}

fn result(status: ResultStatus, detail: &str) -> WorkResult {
    WorkResult {
        status,
        detail: detail.into(),
        ..WorkResult::default()
    }
}

fn check(passed: bool) -> CheckEvidence {
    CheckEvidence {
        check: "make".into(),
        passed,
        outcome: "`make` exited with 2".into(),
        output: String::new(),
        missing_command: None,
        duration_ms: 1,
    }
}

/// Returns the outcome of a check that could not run, because the machine has no `make`.
fn unrunnable_check() -> CheckEvidence {
    CheckEvidence {
        missing_command: Some("make".into()),
        ..check(false)
    }
}

fn describe(verdict: WorkVerdict) -> String {
    match verdict {
        WorkVerdict::Passed { changed, .. } => format!("passed [{}]", changed.join(" ")),
        WorkVerdict::Failed { reason } => format!("failed: {reason}"),
        WorkVerdict::Rejected { reason } => format!("rejected: {reason}"),
        WorkVerdict::NeedsPerson { kind, reason } => format!("{}: {reason}", kind.name()),
        WorkVerdict::Unknown { reason } => format!("unknown: {reason}"),
        WorkVerdict::NoWorkspace => "no workspace".into(),
    }
}

/// Changes a case so that it is about something else than work that passes.
type Setup = fn(&mut Case);

fn assert_cases(cases: &[(&str, Setup, &str)]) {
    for (name, set, expected) in cases {
        let mut case = Case::new();
        set(&mut case);
        assert_eq!(case.judge(), *expected, "{name}");
    }
}

const ALL_CHECKS: &str = "keep src/a.rs, join, special, names, checks, passed [src/a.rs]";
const NO_CHANGE: &str = "it said it was done, and nothing had changed";

#[test]
fn changes_are_checked_in_order_until_a_fact_decides() {
    assert_cases(&[
        ("a change that passes", |_| {}, ALL_CHECKS),
        (
            "every check passes",
            |case| {
                case.task.fixup = Some(Fixup {
                    paths: vec!["src/a.rs".into()],
                    ..Fixup::new(commit(1))
                });
                case.task.ratchet = Some(vec!["measure".into()]);
                case.violate(RuleAction::Warn);
            },
            "keep src/a.rs, markers, join, special, names, rules, checks, ratchet, \
             passed [src/a.rs]",
        ),
        (
            "a fix-up that left conflict markers",
            |case| {
                case.task.fixup = Some(Fixup {
                    paths: vec!["src/a.rs".into()],
                    ..Fixup::new(commit(1))
                });
                case.conflicted = vec!["src/a.rs".into()];
            },
            "keep src/a.rs, markers, failed: src/a.rs still has conflict markers",
        ),
        (
            "a link out of the repository",
            |case| {
                case.special = vec![SpecialFile {
                    path: "src/a.rs".into(),
                    before: None,
                    after: Some(FileKind::Symlink),
                    target: Some("/etc".into()),
                    unpublished: false,
                }];
            },
            "keep src/a.rs, join, special, failed: the symbolic link src/a.rs points outside of the \
             repository, to /etc; make it a file, or point it to another path inside the \
             repository",
        ),
        (
            "a misnamed test",
            |case| case.misnamed_tests = vec!["nobody runs src/a.rs".into()],
            "keep src/a.rs, join, special, names, failed: nobody runs src/a.rs",
        ),
        (
            "a project that does not care about the names of tests",
            |case| {
                case.project.settings.run.test_names = false;
                case.misnamed_tests = vec!["nobody runs src/a.rs".into()];
            },
            "keep src/a.rs, join, special, checks, passed [src/a.rs]",
        ),
        (
            "a rule that blocks",
            |case| case.violate(RuleAction::Block),
            "keep src/a.rs, join, special, names, rules, policy: a standing rule blocks it, no \
             panic: src/a.rs",
        ),
        (
            "a check that fails",
            |case| case.evidence = vec![check(true), check(false)],
            "keep src/a.rs, join, special, names, checks, failed: `make` exited with 2",
        ),
        (
            "a check that fails, before a ratchet",
            |case| {
                case.task.ratchet = Some(vec!["measure".into()]);
                case.evidence = vec![check(false)];
            },
            "keep src/a.rs, join, special, names, checks, failed: `make` exited with 2",
        ),
        (
            "a check that cannot run",
            |case| case.evidence = vec![unrunnable_check()],
            "keep src/a.rs, join, special, names, checks, review: this machine cannot run the \
             command make, so the check `make` exited with 2: install make where the daemon's \
             PATH has it, or set another check with regatta init --validate 'CMD'; then regatta \
             retry T1",
        ),
        (
            "a ratchet that refuses",
            |case| {
                case.task.ratchet = Some(vec!["measure".into()]);
                case.ratchet = Err("3 warnings more".into());
            },
            "keep src/a.rs, join, special, names, checks, ratchet, rejected: 3 warnings more",
        ),
    ]);
}

#[test]
fn the_agents_own_result_decides_before_any_check() {
    assert_cases(&[
        (
            "blocked",
            |case| case.write_result(ResultStatus::Blocked, " no key "),
            "question: it says it is blocked: no key",
        ),
        (
            "blocked without a reason",
            |case| case.write_result(ResultStatus::Blocked, " "),
            "question: it says it is blocked: it does not say why",
        ),
        (
            "failed",
            |case| case.write_result(ResultStatus::Failed, "too hard"),
            "failed: it says it failed: too hard",
        ),
        (
            "failed, although a tool reported that no change is needed",
            |case| {
                case.checked.recorded_result = Some(result(ResultStatus::NotNeeded, "it exists"));
                case.write_result(ResultStatus::Failed, "too hard");
            },
            "failed: it says it failed: too hard",
        ),
        (
            "blocked, and a forbidden change",
            |case| {
                case.project.settings.run.on_scope_escape = EscapePolicy::Block;
                case.change(&["b", "src/a.rs"]);
                case.write_result(ResultStatus::Blocked, "no key");
            },
            "question: it says it is blocked: no key",
        ),
        (
            "done",
            |case| case.write_result(ResultStatus::Done, "words"),
            ALL_CHECKS,
        ),
        (
            "not needed, but there is a change",
            |case| case.write_result(ResultStatus::NotNeeded, "it exists"),
            ALL_CHECKS,
        ),
        (
            "a result that cannot be read",
            |case| case.checked.result_file = Some(Err("it is not JSON".into())),
            ALL_CHECKS,
        ),
    ]);
}

#[test]
fn changes_outside_the_manifest_are_held_back_or_need_a_person() {
    assert_cases(&[
        (
            "held back",
            |case| case.change(&["b", "src/a.rs"]),
            "keep src/a.rs, join, special, names, checks of the commit, passed [src/a.rs]",
        ),
        (
            "held back, and a check fails",
            |case| {
                case.change(&["1", "2", "3", "4", "5", "6", "7", "src/a.rs"]);
                case.evidence = vec![check(false)];
            },
            "keep src/a.rs, join, special, names, checks of the commit, failed: `make` exited \
             with 2; the checks ran without 1, 2, 3, 4, 5 and 2 more, held back because outside \
             its manifest",
        ),
        (
            "only changes outside",
            |case| case.change(&["b"]),
            "keep , join, passed []",
        ),
        (
            "the project forbids them",
            |case| {
                case.project.settings.run.on_scope_escape = EscapePolicy::Block;
                case.change(&["b", "c", "src/a.rs"]);
            },
            "policy: it changed files outside its manifest: b, c",
        ),
        (
            "messages to Regatta are not part of the work",
            |case| {
                case.project.settings.run.on_scope_escape = EscapePolicy::Block;
                case.change(&[
                    ".agents/swarm/results/T1.json",
                    ".agents/swarm/scope-escapes.jsonl",
                    "src/a.rs",
                ]);
            },
            ALL_CHECKS,
        ),
        (
            "a task without a manifest may change all files but messages to Regatta",
            |case| {
                case.task.files = vec![];
                case.change(&[".agents/swarm/results/T1.json", "b"]);
            },
            "keep b, join, special, names, checks, passed [b]",
        ),
        (
            "a manifest may name messages to Regatta",
            |case| {
                case.task.files = files(&[".agents/**"]);
                case.change(&[".agents/swarm/results/T1.json"]);
            },
            "keep .agents/swarm/results/T1.json, join, special, names, checks, passed \
             [.agents/swarm/results/T1.json]",
        ),
    ]);
}

#[test]
fn an_attempt_that_changed_nothing_is_judged_by_its_checks() {
    let done = |rest: &str| format!("keep , join, checks, {rest}");
    let cases: [(&str, Setup, String); 13] = [
        (
            "done, and the checks pass",
            |_| {},
            done(&format!(
                "review: {NO_CHANGE}; its checks pass without a change. If the work is there \
                 already: regatta task cancel T1; if not: regatta retry T1"
            )),
        ),
        (
            "done, and there is no check",
            |case| case.evidence = vec![],
            done(&format!(
                "review: {NO_CHANGE}; no check can tell whether the work exists. If the work is \
                 there already: regatta task cancel T1; if not: regatta retry T1"
            )),
        ),
        (
            "done, and a check fails",
            |case| case.evidence = vec![check(false)],
            done(&format!("failed: {NO_CHANGE}: `make` exited with 2")),
        ),
        (
            "done, and the check cannot run",
            |case| case.evidence = vec![unrunnable_check()],
            done(
                "review: this machine cannot run the command make, so the check `make` exited \
                 with 2: install make where the daemon's PATH has it, or set another check with \
                 regatta init --validate 'CMD'; then regatta retry T1",
            ),
        ),
        (
            "not needed, and the checks pass",
            |case| case.write_result(ResultStatus::NotNeeded, "it exists"),
            done("passed []"),
        ),
        (
            "not needed, and there is no check",
            |case| {
                case.write_result(ResultStatus::NotNeeded, "it exists");
                case.evidence = vec![];
            },
            done(
                "review: it says that nothing has to be changed, and no check can confirm it. If \
                 you agree: regatta task cancel T1; if not: regatta retry T1",
            ),
        ),
        (
            "not needed, and a check fails",
            |case| {
                case.write_result(ResultStatus::NotNeeded, "it exists");
                case.evidence = vec![check(false)];
            },
            done("failed: it says that nothing has to be changed, but `make` exited with 2"),
        ),
        (
            "not needed, says a tool",
            |case| {
                case.checked.recorded_result = Some(result(ResultStatus::NotNeeded, "it exists"))
            },
            done("passed []"),
        ),
        (
            "not needed, says a tool, and the result file says done",
            |case| {
                case.checked.recorded_result = Some(result(ResultStatus::NotNeeded, "it exists"));
                case.write_result(ResultStatus::Done, "");
            },
            done("passed []"),
        ),
        (
            "not needed, says a tool, and the result file cannot be read",
            |case| {
                case.checked.recorded_result = Some(result(ResultStatus::NotNeeded, "it exists"));
                case.checked.result_file = Some(Err("it is not JSON".into()));
            },
            done("passed []"),
        ),
        (
            "not needed, although only files outside were changed",
            |case| {
                case.change(&["b"]);
                case.write_result(ResultStatus::NotNeeded, "it exists");
            },
            done("passed []"),
        ),
        (
            "a report needs no change",
            |case| {
                case.task.purpose = Purpose::Work {
                    expects: Expects::Report,
                };
            },
            "keep , join, passed []".into(),
        ),
        (
            "a fix-up needs no change",
            |case| case.task.fixup = Some(Fixup::new(commit(1))),
            "keep , join, passed []".into(),
        ),
    ];
    for (name, set, expected) in cases {
        let mut case = Case::new();
        case.change(&[]);
        set(&mut case);
        assert_eq!(case.judge(), expected, "{name}");
    }
}

/// The work of each purpose is judged in one of four ways. A failing check fails only changed
/// files, and only they are compared with the rules.
#[test]
fn the_purpose_of_a_task_decides_how_its_work_is_judged() {
    let channel = || ChannelName::new("shop").unwrap();
    let landing = "keep src/a.rs, join, special, names, checks, failed: `make` exited with 2";
    let reading = "passed []";
    let note = "A1 was meant only to read files, but changed src/a.rs; these changes do not land";
    for (purpose, steps, warning, checks) in [
        (Purpose::default(), landing, None, None),
        (
            Purpose::Session(SessionOf {
                launch: LaunchId(1),
                member: MemberName::new("alice").unwrap(),
            }),
            landing,
            None,
            None,
        ),
        (
            Purpose::MergeRemote {
                remote: "origin".into(),
            },
            landing,
            None,
            None,
        ),
        (
            Purpose::Explore { task: TaskId(9) },
            reading,
            Some(note),
            None,
        ),
        (
            Purpose::Review {
                task: TaskId(9),
                commit: None,
            },
            reading,
            Some(note),
            None,
        ),
        (
            Purpose::Answer {
                channel: channel(),
                root: MessageId(1),
            },
            reading,
            Some(note),
            None,
        ),
        (
            Purpose::Triage {
                channel: channel(),
                message: MessageId(1),
            },
            reading,
            Some(note),
            None,
        ),
        (
            Purpose::Plan {
                goal: "Add login".into(),
            },
            reading,
            Some(note),
            None,
        ),
        (
            Purpose::Lead,
            "keep src/a.rs, join, special, passed [src/a.rs]",
            None,
            None,
        ),
        (
            Purpose::Converse {
                conversation: ConversationId(1),
            },
            "keep src/a.rs, join, special, checks, passed [src/a.rs]",
            None,
            Some("a check fails: `make` exited with 2"),
        ),
    ] {
        let mut case = Case::new();
        case.task.purpose = purpose;
        case.evidence = vec![check(false)];
        assert_eq!(case.judge(), steps, "{:?}", case.task.purpose);
        let findings = case.checked.findings(&case.task, &case.project);
        assert_eq!(
            (
                findings.warnings.first().map(String::as_str),
                findings.checks.as_deref()
            ),
            (warning, checks),
            "{:?}",
            case.task.purpose
        );
    }
}

/// Only a purpose with a manifest has changes outside it. A turn keeps all files but messages to
/// Regatta, and a turn without a change needs no check.
#[test]
fn turns_keep_all_files_and_answers_have_no_changes_outside() {
    let outside = |case: &Case| {
        case.checked
            .findings(&case.task, &case.project)
            .outside_manifest
    };
    for (purpose, changed, steps, expected) in [
        (
            Purpose::Lead,
            &[".agents/swarm/results/T1.json", "b"][..],
            "keep b, join, special, passed [b]",
            &[][..],
        ),
        (
            Purpose::Converse {
                conversation: ConversationId(1),
            },
            &[".agents/swarm/results/T1.json"],
            "keep , join, passed []",
            &[],
        ),
        (Purpose::Plan { goal: "x".into() }, &["b"], "passed []", &[]),
        (
            Purpose::Explore { task: TaskId(9) },
            &["b"],
            "policy: it changed files outside its manifest: b",
            &["b"],
        ),
    ] {
        let mut case = Case::new();
        case.project.settings.run.on_scope_escape = EscapePolicy::Block;
        case.task.purpose = purpose;
        case.change(changed);
        assert_eq!(case.judge(), steps, "{:?}", case.task.purpose);
        assert_eq!(outside(&case), expected, "{:?}", case.task.purpose);
    }
}

#[test]
fn the_findings_have_the_result_and_the_warnings_of_all_gathered_facts() {
    let mut case = Case::new();
    case.checked.recorded_result = Some(result(ResultStatus::Done, "words"));
    case.violate(RuleAction::Warn);
    case.judge();
    let findings = case.checked.findings(&case.task, &case.project);
    assert_eq!(findings.result, case.checked.recorded_result);
    assert_eq!(findings.warnings, ["no panic: src/a.rs"]);
    assert_eq!(findings.checks, None, "only a conversation has this line");

    let mut case = Case::new();
    case.change(&["b", "src/a.rs"]);
    case.checked.recorded_result = Some(result(ResultStatus::Done, "words"));
    case.checked.result_file = Some(Err("it is not JSON".into()));
    let findings = case.checked.findings(&case.task, &case.project);
    assert_eq!(findings.result, None);
    assert_eq!(
        findings.warnings,
        ["its result could not be read: it is not JSON"]
    );
    assert_eq!(findings.outside_manifest, ["b"]);
}

#[test]
fn the_checks_of_a_conversation_are_reported_in_one_line() {
    for (evidence, expected) in [
        (vec![], None),
        (vec![check(true)], Some("its check passes")),
        (vec![check(true), check(true)], Some("all 2 checks pass")),
        (
            vec![check(true), check(false)],
            Some("a check fails: `make` exited with 2"),
        ),
    ] {
        let mut case = Case::new();
        case.task.purpose = Purpose::Converse {
            conversation: ConversationId(1),
        };
        case.evidence = evidence;
        case.judge();
        let findings = case.checked.findings(&case.task, &case.project);
        assert_eq!(findings.checks.as_deref(), expected);
    }
}

#[test]
fn work_that_cannot_be_captured_needs_a_person_only_if_the_task_is_at_fault() {
    for (fault, expected) in [
        (Some(SetupFault::Task), "policy: no disk"),
        (Some(SetupFault::Agent), "unknown: no disk"),
        (None, "unknown: no disk"),
    ] {
        let verdict = uncaptured_verdict(fault, "no disk".into());
        assert_eq!(describe(verdict), expected, "{fault:?}");
    }
}
