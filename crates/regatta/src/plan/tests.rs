//! A valid plan, and every kind of mistake that a plan can have.

use super::*;

#[test]
fn a_plan_names_its_blockers_and_its_checks() {
    let plan = parse_plan(
        r#"
        title = "Two"
        [[task]]
        id = "a"
        subject = "first"
        files = ["src/{x,y}.rs"]
        validation = { tests = "make test", content_check = { file = "src/x.rs", pattern = "fn" } }
        script = [{ write = { path = "src/x.rs", text = "fn" } }]
        [[task]]
        subject = "second"
        blocked_by = ["a", "a"]
        effort = "high"
        "#,
        false,
        "p.toml",
    )
    .unwrap();
    assert_eq!(
        (plan.title.as_str(), &plan.names),
        ("Two", &vec!["a".to_owned(), "2".into()])
    );
    assert_eq!(plan.tasks[1].after, [0]);
    assert_eq!(plan.tasks[0].task.files.len(), 2);
    assert_eq!(plan.tasks[0].task.validation.tests, ["make test"]);
    assert_eq!(plan.tasks[0].task.validation.content_check.len(), 1);
    assert_eq!(plan.tasks[1].task.effort.as_deref(), Some("high"));
    assert_eq!(
        plan.warnings.len(),
        1,
        "the second task names no files: {:?}",
        plan.warnings
    );
    assert_eq!((plan.warnings[0].line, plan.warnings[0].column), (9, 9));
}

#[test]
fn toml_and_json_plans_are_read_alike() {
    let toml = parse_plan(
        "[[task]]\nid='a'\nsubject='x'\nfiles='f'\ntype='bug'\npriority=0",
        false,
        "p",
    )
    .unwrap();
    for json in [
        r#"[{"id":"a","subject":"x","files":["f"],"issue_type":"bug","priority":0}]"#,
        r#"{"tasks":[{"id":"a","title":"x","files":"f","type":"bug","priority":0}]}"#,
    ] {
        let json = parse_plan(json, true, "p").unwrap();
        assert_eq!(
            (json.tasks, json.names),
            (toml.tasks.clone(), toml.names.clone())
        );
    }
}

/// One row of the table: the plan, the position of the mistake, the message and the fix.
type InvalidPlan = (&'static str, &'static str, &'static str, &'static str);

const INVALID_TOML: &[InvalidPlan] = &[
    ("", "1:1", "the plan has no [[task]]", "write [[task]]"),
    (
        "title = 'x'\n",
        "1:1",
        "the plan has no [[task]]",
        "write [[task]]",
    ),
    (
        "task = []\n",
        "1:1",
        "the plan has no [[task]]",
        "write [[task]]",
    ),
    (
        "not toml at all",
        "1:5",
        "this is not TOML",
        "name = \"value\"",
    ),
    (
        "[[task]\nsubject = 'x'",
        "1:8",
        "this is not TOML",
        "close the brackets, as in [[task]]",
    ),
    (
        "[[task]]\nsubject = 'x",
        "2:13",
        "this is not TOML",
        "name = \"value\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nsubject = 'y'",
        "3:1",
        "duplicate key",
        "name = \"value\"",
    ),
    (
        "[task]\nsubject = 'x'",
        "1:1",
        "`task` must be a list of tasks, not a table",
        "[[task]]",
    ),
    (
        "task = 'x'",
        "1:8",
        "`task` must be a list of tasks, not a string",
        "[[task]]",
    ),
    (
        "colour = 'red'\n[[task]]\nsubject = 'x'",
        "1:1",
        "unknown field `colour` in a plan",
        "title, commits, task",
    ),
    (
        "[[task]]\n",
        "1:1",
        "missing field `subject`",
        "in one line",
    ),
    (
        "[[task]]\nid = 'a'",
        "1:1",
        "missing field `subject` in task \"a\"",
        "in one line",
    ),
    (
        "[[task]]\nsubjct = 'x'",
        "2:1",
        "unknown field `subjct`",
        "write `subject`",
    ),
    (
        "[[task]]\nsubject = 'x'\ncolour = 'red'",
        "3:1",
        "unknown field `colour`",
        "a task has id, subject",
    ),
    (
        "[[task]]\nsubject = 'x'\nblockedBy = ['a']",
        "3:1",
        "unknown field `blockedBy`",
        "write `blocked_by`",
    ),
    (
        "[[task]]\nsubject = 'x'\ntitle = 'y'",
        "3:1",
        "unknown field `title`",
        "a task has",
    ),
    (
        "[[task]]\nsubject = 3",
        "2:11",
        "`subject` must be a string, not a number",
        "subject = \"…\"",
    ),
    (
        "[[task]]\nsubject = ' '",
        "2:11",
        "`subject` is empty",
        "fill it in",
    ),
    (
        "[[task]]\nsubject = \"a\\nb\"",
        "2:11",
        "more than one line",
        "into `description`",
    ),
    (
        "[[task]]\nsubject = 'x'\ndescription = ['y']",
        "3:15",
        "`description` must be",
        "description = \"…\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nid = 7",
        "3:6",
        "`id` must be",
        "id = \"…\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nid = ''",
        "3:6",
        "`id` is empty",
        "fill it in",
    ),
    (
        "[[task]]\nsubject = 'x'\nid = 'a'\n[[task]]\nsubject = 'y'\nid = 'a'",
        "6:6",
        "two tasks are called \"a\"; the other is at line 1",
        "its own id",
    ),
    (
        "[[task]]\nsubject = 'x'\n[[task]]\nsubject = 'y'\nid = '1'",
        "5:6",
        "two tasks are called \"1\"; the other is at line 1",
        "its own id",
    ),
    (
        "[[task]]\nsubject = 'x'\nblocked_by = ['b']",
        "3:15",
        "which is not in the plan",
        "add a task with that id",
    ),
    (
        "[[task]]\nid = 'login'\nsubject = 'x'\n[[task]]\nsubject = 'y'\nblocked_by = ['logn']",
        "6:15",
        "blocked by \"logn\", which is not in the plan",
        "write \"login\"",
    ),
    (
        "[[task]]\nid = 'a'\nsubject = 'x'\nblocked_by = ['a']",
        "4:15",
        "is blocked by itself",
        "from blocked_by",
    ),
    (
        "[[task]]\nid = 'a'\nsubject = 'x'\nblocked_by = ['b']\n[[task]]\nid = 'b'\nsubject = \
        'y'\nblocked_by = ['a']",
        "4:15",
        "wait for each other forever: a → b → a",
        "remove one of them",
    ),
    (
        "[[task]]\nid = 'a'\nsubject = 'x'\nblocked_by = ['c']\n[[task]]\nid = 'b'\nsubject = \
         'y'\nblocked_by = ['a']\n\
         [[task]]\nid = 'c'\nsubject = 'z'\nblocked_by = ['b']",
        "4:15",
        "forever: a → c → b → a",
        "remove one of them",
    ),
    (
        "[[task]]\nsubject = 'x'\nblocked_by = [1]",
        "3:15",
        "`blocked_by` has a number",
        "[\"…\", \"…\"]",
    ),
    (
        "[[task]]\nsubject = 'x'\nblocked_by = true",
        "3:14",
        "`blocked_by` must be",
        "[\"…\"]",
    ),
    (
        "[[task]]\nsubject = 'x'\nfiles = ['/etc/passwd']",
        "3:10",
        "absolute",
        "top: \"etc/passwd\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nfiles = ['a', '../x']",
        "3:15",
        ".. segment",
        "top: \"x\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nfiles = ['a//b']",
        "3:10",
        "empty segment",
        "top: \"a/b\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nfiles = ['src/a**']",
        "3:10",
        "** must be a whole segment",
        "web/**",
    ),
    (
        "[[task]]\nsubject = 'x'\nfiles = ['src/{a,b']",
        "3:10",
        "a { has no }",
        "web/**",
    ),
    (
        "[[task]]\nsubject = 'x'\nfiles = ['src\\a.rs']",
        "3:10",
        "backslash",
        "top: \"src/a.rs\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nfiles = ['']",
        "3:10",
        "`files` is empty",
        "fill it in",
    ),
    (
        "[[task]]\nsubject = 'x'\nfiles = 3",
        "3:9",
        "`files` must be",
        "files = [\"…\"]",
    ),
    (
        "[[task]]\nsubject = 'x'\nissue_type = 'epic'",
        "3:14",
        "\"epic\" is not a valid issue_type",
        "feature, bug, task",
    ),
    (
        "[[task]]\nsubject = 'x'\nissue_type = 'Bug'",
        "3:14",
        "\"Bug\" is not a valid issue_type",
        "write \"bug\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nissue_type = 1",
        "3:14",
        "`issue_type` must be",
        "issue_type = \"…\"",
    ),
    (
        "[[task]]\nsubject = 'x'\npriority = 10",
        "3:12",
        "10 is not a valid priority",
        "0 (first) to 9 (last)",
    ),
    (
        "[[task]]\nsubject = 'x'\npriority = -1",
        "3:12",
        "-1 is not a valid priority",
        "0 (first) to 9 (last)",
    ),
    (
        "[[task]]\nsubject = 'x'\npriority = 'high'",
        "3:12",
        "`priority` must be",
        "0 (first) to 9 (last)",
    ),
    (
        "[[task]]\nsubject = 'x'\npriority = 1.5",
        "3:12",
        "`priority` must be",
        "0 (first) to 9 (last)",
    ),
    (
        "[[task]]\nsubject = 'x'\neffort = 'hihg'",
        "3:10",
        "\"hihg\" is not a valid effort",
        "write \"high\"",
    ),
    (
        "[[task]]\nsubject = 'x'\neffort = 3",
        "3:10",
        "`effort` must be",
        "effort = \"…\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nexpects = 'money'",
        "3:11",
        "\"money\" is not a valid expects",
        "changes, report",
    ),
    (
        "[[task]]\nsubject = 'x'\nagent = 'a b'",
        "3:9",
        "a b",
        "regatta agent list",
    ),
    (
        "[[task]]\nsubject = 'x'\nprovider = ''",
        "3:12",
        "`provider` is empty",
        "remove `provider`",
    ),
    (
        "[[task]]\nsubject = 'x'\nvalidation = 'make'",
        "3:14",
        "`validation` must be",
        "{ tests = ",
    ),
    (
        "[[task]]\nsubject = 'x'\nvalidation = { test = 'x' }",
        "3:16",
        "unknown field `test`",
        "write `tests`",
    ),
    (
        "[[task]]\nsubject = 'x'\nvalidation = { tests = 1 }",
        "3:24",
        "`tests` must be",
        "tests = [\"…\"]",
    ),
    (
        "[[task]]\nsubject = 'x'\nvalidation = { tests = '' }",
        "3:24",
        "`tests` is empty",
        "remove `tests`",
    ),
    (
        "[[task]]\nsubject = 'x'\nvalidation = { files_exist = ['/a'] }",
        "3:31",
        "absolute",
        "top: \"a\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nvalidation = { content_check = { file = 'a' } }",
        "3:32",
        "missing field `pattern`",
        "pattern = \"fn main\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nvalidation = { content_check = { file = '../a', pattern = 'x' } \
        }",
        "3:41",
        ".. segment",
        "top: \"a\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nratchet = 'ol x'",
        "3:11",
        "`ratchet` must be",
        "ratchet = [\"program\"",
    ),
    (
        "[[task]]\nsubject = 'x'\nratchet = []",
        "3:11",
        "`ratchet` names no program",
        "remove it",
    ),
    (
        "[[task]]\nsubject = 'x'\nscript = 'x'",
        "3:10",
        "`script` must be",
        "write script = [{",
    ),
    (
        "[[task]]\nsubject = 'x'\nscript = [{ fly = 'high' }]",
        "3:11",
        "step 1 of the script is `fly`, which is not a step",
        "regatta schema plan",
    ),
    (
        "[[task]]\nsubject = 'x'\nscript = [{ say = 'hi' }, { write = { path = '../x', text = '' \
        } }]",
        "3:27",
        "step 2",
        "regatta schema plan",
    ),
];

const INVALID_JSON: &[InvalidPlan] = &[
    ("", "1:1", "this is not JSON", "missing comma"),
    ("{", "1:1", "this is not JSON", "missing comma"),
    (
        "[{\"subject\": \"x\"\n \"id\": \"a\"}]",
        "2:2",
        "this is not JSON",
        "missing comma",
    ),
    ("null", "1:1", "`plan` must be", "{ \"task\""),
    ("[]", "1:1", "the plan has no [[task]]", "{ \"task\""),
    ("{}", "1:1", "the plan has no [[task]]", "{ \"task\""),
    ("{\"task\": {}}", "1:10", "`task` must be", "[{ \"subject\""),
    (
        "[3]",
        "1:2",
        "`task` must be a table, not a number",
        "subject",
    ),
    (
        "[{\"subject\": 1}]",
        "1:14",
        "`subject` must be",
        "subject = \"…\"",
    ),
    (
        "[\n  {\"subject\": \"x\",\n   \"fils\": []}]",
        "3:4",
        "unknown field `fils`",
        "write `files`",
    ),
    (
        "[{\"subject\": \"x\", \"subject\": \"y\"}]",
        "1:19",
        "duplicate key `subject`",
        "keep one",
    ),
    (
        "[{\"subject\":\"x\"},\n{\"subject\":\"y\",\"blocked_by\":[\"1\",\"9\"]}]",
        "2:34",
        "not in the plan",
        "add a task",
    ),
    (
        "[{\"subject\":\"ü\",\"files\":[\"/x\"]}]",
        "1:26",
        "absolute",
        "top: \"x\"",
    ),
    (
        "[{\"subject\":\"x\",\"priority\":99999999999999999999}]",
        "1:28",
        "`priority` must be",
        "0 (first)",
    ),
];

fn diagnostics(text: &str, json: bool) -> Vec<String> {
    let source = SourceText::new("p", text);
    let found = parse_source(&source, json).expect_err(text);
    found
        .iter()
        .map(|diagnostic| source.format_line(diagnostic))
        .collect()
}

/// Covers at least 40 kinds of mistakes. Each is reported exactly once, with its position, a
/// message and the fix.
#[test]
fn every_mistake_is_reported_with_its_place_and_its_fix() {
    assert!(INVALID_TOML.len() + INVALID_JSON.len() >= 40);
    let mut untold = Vec::new();
    for (bad, json) in [(INVALID_TOML, false), (INVALID_JSON, true)] {
        for (text, place, what, fix) in bad {
            let messages = diagnostics(text, json);
            let good = messages.len() == 1
                && messages[0].starts_with(&format!("p:{place}: "))
                && messages[0].contains(what)
                && messages[0]
                    .split_once("; ")
                    .is_some_and(|messages| messages.1.contains(fix));
            if !good {
                untold.push(format!(
                    "{text}\n  expected {place} {what} {fix}\n  found {messages:#?}"
                ));
            }
        }
    }
    assert!(untold.is_empty(), "{}", untold.join("\n\n"));
}

/// All mistakes are reported at once, in the order of the file, and the list has a limit.
#[test]
fn several_mistakes_are_reported_together() {
    let messages = diagnostics(
        "[[task]]\nsubject = 'x'\npriority = 11\nfiles = ['/a']\n[[task]]\nid = 'b'\nblocked_by = \
        ['c']",
        false,
    );
    let places: Vec<&str> = messages.iter().map(|message| &message[..5]).collect();
    assert_eq!(
        places,
        ["p:3:1", "p:4:1", "p:5:1", "p:7:1"],
        "{messages:#?}"
    );
    let many = "[[task]]\n".repeat(30);
    let Err(CommandError::Problem(problem)) = parse_plan(&many, false, "p") else {
        panic!("the plan was accepted")
    };
    assert!(
        problem.message.ends_with("and 10 more"),
        "{}",
        problem.message
    );
    assert_eq!(
        problem.hint,
        "fix these 30 places and try again; nothing was created"
    );
}

#[test]
fn binary_or_too_large_file_is_refused_with_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.toml");
    std::fs::write(&path, b"[[task]]\nsubject = '\xff'").unwrap();
    let (source, found) = check_plan(&path).unwrap();
    assert!(
        source
            .format_line(&found.problems[0])
            .contains(":2:12: this is not UTF-8; save the file as UTF-8")
    );
    std::fs::write(&path, vec![b' '; MAX_PLAN_BYTES as usize + 1]).unwrap();
    let (_, found) = check_plan(&path).unwrap();
    assert!(
        found.problems[0].what.contains("more than 4 MiB"),
        "{found:?}"
    );
    assert!(load_source(&path).is_err());
    std::fs::write(&path, "\u{feff}[[task]]\nsubject = 'x'").unwrap();
    assert_eq!(
        check_plan(&path).unwrap().1.tasks,
        1,
        "a byte order mark is allowed"
    );
    assert!(check_plan(dir.path()).is_err(), "a directory is not a plan");
}
