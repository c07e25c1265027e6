//! Messages to people: what happened, why, and the next command.

use serde_json::json;

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// Agents that cannot work for the same reason are one row in every screen, and one command resumes
/// all of them.
#[test]
fn agents_with_the_same_fault_are_one_row_everywhere() {
    let world = World::with_project();
    let names = ["broken-1", "broken-2", "broken-3", "broken-4"];
    for name in names {
        world.run_ok(&[
            "agent",
            "add",
            name,
            "--runtime",
            "command",
            "--command",
            "sh -c 'exit 127'",
        ]);
    }
    let tasks: String = (1..=5)
        .map(|nth| format!("[[task]]\nsubject = \"Task {nth}\"\nfiles = [\"f{nth}\"]\n"))
        .collect();
    let plan = world.write_plan(&tasks);
    let run = world.run(&[&["run", &plan, "--wait", "--yes", "--agents"], &names[..]].concat());
    assert_eq!(run.exit_code, 3, "{run:?}");
    let all = world.run_json(&["inbox"]);
    let faults: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["kind"] == "settings")
        .collect();
    assert_eq!(faults.len(), names.len(), "{all}");

    let cause = "4 agents: its program exited with 127 before it had done its work";
    let inbox = world.run_ok(&["inbox"]);
    let rows: Vec<&str> = inbox.lines().filter(|line| line.contains(cause)).collect();
    assert!(rows.len() == 1 && rows[0].starts_with("agent:"), "{inbox}");
    let status = world.run_ok(&["status"]);
    let rows: Vec<&str> = status
        .lines()
        .filter(|line| line.trim_start().starts_with("agent:"))
        .collect();
    assert!(rows.len() == 1 && rows[0].contains(cause), "{status}");
    let explanation = world.run_ok(&["why", "T5"]);
    assert!(
        explanation
            .contains("4 agents cannot work as they are set up: its program exited with 127"),
        "{explanation}"
    );
    for name in names {
        assert!(explanation.contains(name), "{name}: {explanation}");
    }
    let doctor = world.run_ok(&["doctor"]);
    let rows: Vec<&str> = doctor
        .lines()
        .filter(|line| line.contains("broken-"))
        .collect();
    assert!(
        rows.len() == 1 && rows[0].starts_with('!') && rows[0].contains("4 agents: "),
        "{doctor}"
    );
    assert!(
        rows[0].contains("regatta resume broken-1 broken-2 broken-3 broken-4"),
        "{doctor}"
    );
    assert!(!doctor.contains("no problems"), "{doctor}");
    for text in [&inbox, &status, &explanation, &doctor] {
        assert!(!text.contains("bad_config"), "{text}");
    }

    world.run_ok(&["stop", "M1"]);
    let resumed = world.run_ok(&[&["resume"], &names[..]].concat());
    assert_eq!(
        resumed,
        "broken-1 is resumed\nbroken-2 is resumed\nbroken-3 is resumed\nbroken-4 is resumed\n"
    );
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_ok(&["inbox"])
            == "nothing needs you\n"),
        "{}",
        world.run_ok(&["inbox"])
    );
}

/// An error about a missing or wrong id names the right kind of thing and does not suggest adding
/// an agent.
#[test]
fn errors_about_missing_ids_name_the_right_kind() {
    let world = World::with_project();
    for command in ["show", "why"] {
        assert_eq!(
            world.run_refused(&[command, "Q99"], 1)["message"],
            "there is no request Q99",
            "{command}"
        );
    }
    let agent = world.run_refused(&["agent", "rm", "ghost"], 1);
    assert!(
        agent["hint"]
            .as_str()
            .unwrap()
            .starts_with("see them: regatta agent list"),
        "{agent}"
    );
    assert_eq!(
        world.run_refused(&["compare", "M1"], 2)["message"],
        "regatta compare needs at least two missions"
    );
    let set = world.run_refused(&["config", "set", "landing.review", "human"], 2);
    assert_eq!(
        set["message"],
        "landing.review can only be set in a file, not in the running daemon"
    );
    assert!(
        set["hint"]
            .as_str()
            .unwrap()
            .starts_with("write review = … under [landing]"),
        "{set}"
    );
}

/// In a repository that is not a project, `status` shows every project with its name, and a note.
#[test]
fn status_notes_a_repository_that_is_not_managed() {
    let world = World::with_project();
    let other = world.root.join("other");
    world.git_in(&world.root, &["init", "-q", "-b", "main", "other"]);
    let note = "other yet, so this shows all projects; to add it: regatta init";
    let status = world.run_ok(&["-C", other.to_str().unwrap(), "status"]);
    assert!(status.contains(note), "{status}");
    assert!(!world.run_ok(&["status"]).contains("shows all projects"));
    assert!(
        !world
            .run_ok(&["--project", "shop", "-C", other.to_str().unwrap(), "status"])
            .contains("shows all projects")
    );
    world.git_in(
        &other,
        &[
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "x",
        ],
    );
    world.run_ok(&["-C", other.to_str().unwrap(), "init", "--yes"]);
    let status = world.run_ok(&["-C", world.root.to_str().unwrap(), "status"]);
    assert!(
        status.contains("other main ") && status.contains("shop main "),
        "{status}"
    );
}

/// `--server` without its token, with a wrong token or with an invalid address gives an error that
/// names the variable or flag to set.
#[test]
fn errors_about_another_daemon_name_the_variable_to_set() {
    let world = World::with_project();
    let url = world.daemon_info().unwrap()["url"]
        .as_str()
        .unwrap()
        .to_owned();
    let elsewhere = world.root.join("elsewhere");
    let with_token = |token: Option<&str>, server: &str| {
        let mut command = world.command(&["--json", "--server", server, "status"]);
        command.env("REGATTA_DATA_DIR", &elsewhere);
        if let Some(token) = token {
            command.env("REGATTA_TOKEN", token);
        }
        let output = crate::world::run_command(command, None);
        let problem = serde_json::from_str::<serde_json::Value>(&output.stderr)
            .unwrap_or_else(|_| json!(output.stderr));
        (
            output.exit_code,
            problem["error"].to_string() + &problem.to_string(),
        )
    };
    for token in [None, Some("wrong")] {
        let (code, problem) = with_token(token, &url);
        assert!(
            code == 1 && problem.contains("REGATTA_TOKEN"),
            "{token:?}: {code} {problem}"
        );
        assert!(!problem.contains("Bearer"), "{problem}");
    }
    let token = std::fs::read_to_string(world.data_dir.join("token")).unwrap();
    assert_eq!(with_token(Some(token.trim()), &url).0, 0);
    let (code, problem) = with_token(Some("x"), "notaurl");
    assert!(
        code == 2 && problem.contains("is not the address of a daemon"),
        "{code} {problem}"
    );
    let (code, problem) = with_token(Some("x"), "http://127.0.0.1:9");
    assert!(
        code == 6 && problem.contains("127.0.0.1:9") && problem.contains("--server"),
        "{code} {problem}"
    );
}

/// An answer counts the remaining items of its project, as `inbox` does.
#[test]
fn an_answer_counts_the_items_left_in_its_project() {
    let world = World::with_project();
    let other = world.root.join("other");
    world.git_in(&world.root, &["init", "-q", "-b", "main", "other"]);
    world.git_in(
        &other,
        &[
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "x",
        ],
    );
    world.run_ok(&["-C", other.to_str().unwrap(), "init", "--yes"]);
    let script = json!([{ "ask": { "question": "Which?", "choices": ["a", "b"] } }]).to_string();
    for place in [&world.repo, &other] {
        let place = place.to_str().unwrap();
        world.run_ok(&[
            "-C", place, "add", "Ask", "--type", "chore", "--script", &script,
        ]);
        world.run_ok(&["-C", place, "run", "--agents", "scripted", "--yes"]);
    }
    let open = || {
        world
            .run_json(&["-C", world.root.to_str().unwrap(), "inbox"])
            .as_array()
            .unwrap()
            .clone()
    };
    assert!(
        wait_until(TEST_TIMEOUT, || open().len() == 2),
        "{:?}",
        open()
    );
    let own = open()
        .into_iter()
        .find(|item| item["project"] == "shop")
        .unwrap();
    let output = world.run_ok(&["answer", own["id"].as_str().unwrap(), "a"]);
    assert!(output.contains("0 left in the inbox"), "{output}");
}

/// `stop` prints which missions it stopped, and `retry` how the new task starts.
#[test]
fn stop_and_retry_print_their_results() {
    let world = World::with_project();
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Fail\"\nfiles = [\"a\"]\n\
         script = [{ write = { path = \"a\", text = \"x\" } }]\nvalidation = { tests = \"false\" \
         }\n",
    );
    world.run(&["run", &plan, "--agents", "scripted", "--wait", "--yes"]);
    let again = world.run_ok(&["retry", "T1"]);
    let expected = "T1 stays as it is, because it has ended; the new task T2 asks for the same \
                    work, and starts after \
                    regatta run --yes or regatta assign T2 NAME\n";
    assert_eq!(again, expected);
    let plan = world
        .write_plan("[[task]]\nsubject = \"Wait\"\nfiles = [\"b\"]\nscript = [{ hang = true }]\n");
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    let stopped = world.run_ok(&["stop"]);
    assert!(
        stopped.starts_with("stopped M2, the only running mission; all work is kept"),
        "{stopped}"
    );
}
