//! Mixed teams with the real binary. The scripted agent stands in for the programs of two
//! providers.

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::pages::{entity, read_live_stream};
use crate::world::{TEST_TIMEOUT, World, kill_process, wait_until};

/// A Codex lead with alice on its lane. Tom has his own lane, and so has bob, whose program is not
/// installed.
const TEAM_FILE: &str = r#"
name = "harbour"

[lead]
name = "amy"
provider = "codex"
backend = "scripted"

[[member]]
name = "alice"
provider = "codex"

[[member]]
name = "tom"
provider = "opencode"
backend = "scripted"
environment = "own"
script = '[{"run": "env | sort > env.txt"}, {"say": "here"}]'

[[member]]
name = "bob"
provider = "opencode"
backend = "no-such-program"

[environments.own]
env = { WHOSE = "tom" }
"#;

fn world_with_team() -> World {
    let world = World::with_project();
    world.write_file("team.toml", TEAM_FILE);
    world.commit_all("A team");
    world.run_ok(&["team", "create"]);
    // A field that a newer version would write.
    let edit = json!({ "team": "harbour", "edit": { "motto": "a field of tomorrow" } });
    ApiClient::for_data_dir(&world.data_dir).call_ok("team.edit", edit);
    world
}

/// A run can be given to a team and have a budget. The team is launched, its members do the work,
/// and the mission has its budget from its first commit on. `--from` names the plan.
#[test]
fn a_run_can_use_a_team_and_a_budget() {
    let world = World::with_project();
    let team = "name = \"harbour\"\n[lead]\nname = \"amy\"\nprovider = \"codex\"\nbackend \
        = \"scripted\"\n\n[[member]]\nname = \"alice\"\nprovider = \"codex\"\n";
    world.write_file("team.toml", team);
    world.commit_all("A team");
    world.run_ok(&["team", "create"]);
    let plan = "[[task]]\nid = \"b\"\nsubject = \"Write b\"\nfiles = [\"b.txt\"]\nscript = [{ \
        write = { path = \"b.txt\", text = \"b\\n\" } }]\n";
    let file = world.root.join("plan.toml");
    std::fs::write(&file, plan).unwrap();
    let base = [
        "run",
        "--from",
        file.to_str().unwrap(),
        "--team",
        "harbour",
        "--budget",
        "2.50",
    ];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    let shown = world.run(&with(&["--plan-only"]));
    assert!(
        shown.exit_code == 0 && shown.stdout.contains("Write b"),
        "{shown:?}"
    );
    assert_eq!(
        world.run_json(&["team", "show", "harbour"])["up"],
        false,
        "a preview must not launch the team"
    );
    let refused = world.run(&["run", file.to_str().unwrap(), "--team", "nobody", "--yes"]);
    assert!(
        refused.exit_code != 0 && refused.stderr.contains("there is no team nobody"),
        "{refused:?}"
    );
    world.run_ok(&with(&["--yes", "--wait"]));
    let mission = world.run_json(&["mission", "show", "M1"]);
    assert_eq!(
        mission["agents"],
        json!(["harbour/alice"]),
        "the lead takes no tasks: {mission}"
    );
    assert!(
        world.read_file("b.txt").contains('b'),
        "the task did not land"
    );
    let log = world.run_ok(&["events", "--json"]);
    let set = log
        .lines()
        .find(|log| log.contains("\"budget.set\""))
        .unwrap_or_else(|| panic!("no budget: {log}"));
    assert!(set.contains("\"M1\"") && set.contains("2500000"), "{set}");
}

/// Returns the members' states, in the order of the roster.
fn member_states(world: &World) -> Vec<String> {
    let view = world.run_json(&["team", "show", "harbour"]);
    let members = view["resolved"]["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| member["state"].as_str().unwrap().to_owned())
        .collect()
}

/// T6: checks that every reader shows the same summary: the list and the detail of the command line
/// as data and as text, the list and the detail of the API, the page, and the bus. Returns the
/// summary.
fn assert_same_summary(world: &World) -> Value {
    let listed = world.run_json(&["team", "list"])[0].clone();
    let shown = world.run_json(&["team", "show", "harbour"])["summary"].clone();
    assert_eq!(listed, shown, "T6: the list and the detail differ");
    let api = ApiClient::for_data_dir(&world.data_dir);
    assert_eq!(
        api.call_ok("team.list", json!({}))[0],
        listed,
        "T6: the API's list differs"
    );
    assert_eq!(
        api.call_ok("team.show", json!({ "team": "harbour" }))["summary"],
        listed,
        "T6: the API's detail differs"
    );
    let (_, frames) = read_live_stream(&api, "teams");
    assert_eq!(
        entity(&frames, "team/harbour")["summary"],
        listed,
        "T6: the page differs"
    );
    let text = listed["said"].as_str().unwrap();
    let output = world.run_ok(&["team", "list"]);
    assert!(
        output.contains(text),
        "T6: the printed list differs: {output}"
    );
    let output = world.run_ok(&["team", "show", "harbour"]);
    assert!(
        output.contains(text),
        "T6: the printed detail differs: {output}"
    );
    for member in listed["members"].as_array().unwrap() {
        let text = member["said"].as_str().unwrap();
        assert!(
            output.contains(text),
            "T6: the printed detail of {member} differs: {output}"
        );
    }
    // The bus gets only the result of a launch, not its progress.
    if listed["launch"].is_string() && listed["phase"] != "active" {
        let history = api.call_ok(
            "msg.history",
            json!({ "channel": "shop", "label": "team:harbour", "limit": 10_000 }),
        );
        let last = history
            .as_array()
            .unwrap()
            .last()
            .unwrap_or_else(|| panic!("T6: the bus has no message"));
        assert_eq!(
            last["text"],
            format!("team harbour: {text}"),
            "T6: the bus differs"
        );
    }
    listed
}

/// A team is launched, survives a kill of the daemon, gets a message and a task, is retried,
/// relaunched and stopped, and no process is left (P1, P3, P10).
#[test]
fn p1_p10_a_mixed_team_survives_a_kill_and_stops_completely() {
    let world = world_with_team();
    assert_eq!(assert_same_summary(&world)["said"], "never launched");
    let explained = world.run_ok(&["team", "explain", "harbour"]);
    for line in [
        "member alice stays on the primary lane (codex)",
        "member tom goes to secondary lane opencode:tom",
    ] {
        assert!(explained.contains(line), "{explained}");
    }
    // The launch names the member that did not start, with the reason, and fails.
    let output = world.run(&["team", "launch", "harbour", "--wait", "280s"]);
    assert!(
        output.exit_code == 1 && output.stdout.contains("  bob: did not start: "),
        "{output:?}"
    );
    assert_eq!(
        member_states(&world),
        ["alive", "alive", "alive", "failed_to_start"]
    );
    let summary = assert_same_summary(&world);
    assert_eq!(
        (&summary["phase"], &summary["outcome"]),
        (&"finished".into(), &"partial_failure".into())
    );
    let view = world.run_json(&["team", "show", "harbour"]);
    assert_eq!(view["desired"]["motto"], "a field of tomorrow");
    assert!(
        view["resolved"]["members"][3]["cause"]["text"]
            .as_str()
            .unwrap()
            .contains("no-such-program"),
        "{view}"
    );
    assert_eq!(view["live"][2]["live"], "idle");

    // The daemon is killed and no member ends (P1).
    let before = world.foreign_processes();
    let daemon = world.daemon_info().unwrap()["pid"].as_u64().unwrap();
    kill_process(u32::try_from(daemon).unwrap());
    world.run_ok(&["up"]);
    assert_eq!(member_states(&world)[..3], ["alive", "alive", "alive"]);
    assert_eq!(
        world.foreign_processes(),
        before,
        "P1: the members are the same processes"
    );

    // A message reaches a member, and a task lands in its name.
    world.run_ok(&["msg", "send", "@harbour/tom", "are you there?"]);
    let session = world.run_json(&["team", "show", "harbour"])["live"][2]["session"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        wait_until(TEST_TIMEOUT, || world
            .run_ok(&["logs", &session])
            .contains("turn 2")),
        "tom did not get the message"
    );
    let add = [
        "add",
        "Write b",
        "--type",
        "docs",
        "--files",
        "b.txt",
        "--assign",
        "harbour/tom",
    ];
    let script = r#"[{"write": {"path": "b.txt", "text": "b\n"}}]"#;
    world.run_ok(&[&add[..], &["--script", script]].concat());
    assert!(
        wait_until(TEST_TIMEOUT, || world
            .git(&["log", "--format=%s"])
            .contains("Write b")),
        "tom's task did not land"
    );

    // The roster of a running team cannot change. A failed lane can be retried alone.
    world.write_file(
        "team.toml",
        &TEAM_FILE.replace("name = \"alice\"", "name = \"eve\""),
    );
    let refused = world.run_refused(&["team", "edit"], 5);
    assert!(
        refused["hint"]
            .as_str()
            .unwrap_or_default()
            .contains("regatta team stop harbour"),
        "{refused}"
    );
    assert_eq!(world.run(&["team", "retry", "harbour", "bob"]).exit_code, 1);
    assert_eq!(
        member_states(&world),
        ["alive", "alive", "alive", "failed_to_start"]
    );

    // A relaunch uses the stored team. After a stop no process lives.
    assert_eq!(
        world
            .run(&["team", "relaunch", "harbour", "--wait", "280s"])
            .exit_code,
        1
    );
    assert_eq!(
        member_states(&world),
        ["alive", "alive", "alive", "failed_to_start"]
    );
    assert_eq!(
        world.run_json(&["team", "show", "harbour"])["history"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    world.run_ok(&["team", "stop", "harbour"]);
    assert_eq!(
        member_states(&world),
        ["stopped", "stopped", "stopped", "failed_to_start"]
    );
    assert_eq!(assert_same_summary(&world)["said"], "stopped; bob is down");
    assert_eq!(
        world.describe_foreign_processes(),
        [""; 0],
        "P10: the team has stopped and a process lives"
    );
}

/// T5: the program of a side lane has its own environment and no variable of the lead's.
#[test]
fn t5_a_side_lane_has_an_environment_of_its_own() {
    let world = World::with_project();
    let team = TEAM_FILE.replace(
        "backend = \"scripted\"\n\n[[member]]\nname = \"alice\"",
        "backend = \"scripted\"\nenvironment = \"leads\"\nscript = '[{\"run\": \"env | sort > \
        env.txt\"}]'\n\n[[member]]\nname = \"alice\"",
    ) + "[environments.leads]\nenv = { WHOSE = \"amy\", LEADS_OWN = \"1\" }\n";
    world.write_file("team.toml", &team);
    world.commit_all("A team");
    world.run_ok(&["team", "create"]);
    world.run_ok(&[
        "team",
        "launch",
        "harbour",
        "--without",
        "bob",
        "--wait",
        "280s",
    ]);
    let environment = |nth: usize| {
        let session = world.run_json(&["team", "show", "harbour"])["live"][nth]["session"]
            .as_str()
            .unwrap()
            .to_owned();
        let file = world
            .data_dir
            .join("workspaces/shop")
            .join(session)
            .join("env.txt");
        let found = std::fs::read_to_string(file).unwrap();
        found.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (amy, tom) = (environment(0), environment(2));
    assert!(
        amy.contains(&"WHOSE=amy".to_owned()) && amy.contains(&"LEADS_OWN=1".to_owned()),
        "{amy:?}"
    );
    assert!(tom.contains(&"WHOSE=tom".to_owned()), "{tom:?}");
    assert!(
        !tom.iter().any(|tom| tom.starts_with("LEADS_OWN")),
        "T5: {tom:?}"
    );
    assert!(
        tom.contains(&"REGATTA_AGENT=harbour/tom".to_owned()),
        "{tom:?}"
    );
    world.run_ok(&["team", "stop", "harbour"]);
}

/// A team can be restored from its backup file, and a deleted team can be undeleted.
#[test]
fn a_team_can_be_backed_up_deleted_and_restored() {
    let world = world_with_team();
    world.run_ok(&[
        "team",
        "launch",
        "harbour",
        "--without",
        "bob",
        "--wait",
        "280s",
    ]);
    let file = world.root.join("harbour.json");
    let file = file.to_str().unwrap();
    world.run_ok(&["team", "backup", "harbour", file]);
    world.run_refused(&["team", "restore", file], 5);
    world.run_ok(&["team", "stop", "harbour"]);
    let before = world.run_json(&["team", "show", "harbour"])["desired"].clone();
    world.run_ok(&["team", "delete", "harbour"]);
    assert_eq!(
        world.run_json(&["team", "list"]).as_array().unwrap().len(),
        0
    );
    world.run_ok(&["team", "undelete", "harbour"]);
    world.run_ok(&["team", "restore", file]);
    let after = world.run_json(&["team", "show", "harbour"]);
    for field in [
        "name",
        "project",
        "lead",
        "members",
        "environments",
        "motto",
    ] {
        assert_eq!(after["desired"][field], before[field], "{field}");
    }
    assert_eq!(after["up"], false, "a restore starts nothing");
    assert_same_summary(&world);
}

/// Files and commands accept the common names of providers.
#[test]
fn a_team_can_use_the_common_names_of_providers() {
    let world = World::with_project();
    let members = [
        "--lead",
        "amy=claude",
        "--member",
        "bob=Codex",
        "--member",
        "tom=OpenCode",
    ];
    world.run_ok(&[&["team", "create", "harbour"], &members[..]].concat());
    let lanes = world.run_ok(&["team", "explain", "harbour"]);
    assert!(
        lanes.contains("lead amy owns the primary lane (anthropic)"),
        "{lanes}"
    );
    assert!(
        lanes.contains("member bob stays on the primary lane (codex)"),
        "{lanes}"
    );
    assert!(
        lanes.contains("member tom goes to secondary lane opencode:tom"),
        "{lanes}"
    );
    world.write_file("quay.toml", &TEAM_FILE.replacen("harbour", "quay", 1));
    let made = world.run_ok(&["team", "create", "./quay.toml"]);
    assert!(
        made.starts_with("created quay: "),
        "a file may be named without --file: {made}"
    );
    let error = world.run_refused(&["team", "create", "a b"], 2);
    assert!(
        error["hint"].as_str().unwrap().contains("--file FILE"),
        "{error}"
    );
    let error = world.run_refused(&["team", "create", "pier", "--lead", "amy=cluade"], 2);
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .starts_with("write anthropic"),
        "{error}"
    );
}

/// A misspelt key in a file gives an error with its line and the intended key, and nothing is
/// created.
#[test]
fn unknown_keys_of_team_and_settings_files_are_errors() {
    let world = World::with_project();
    for (from, to, words) in [
        (
            "provider = \"opencode\"",
            "provder = \"opencode\"",
            "unknown field `provder` in a member; write `provider`",
        ),
        (
            "[lead]",
            "led = 1\n[lead]",
            "unknown field `led` in a team file; write `lead`",
        ),
        (
            "[lead]",
            "[environments.x]\nenvs = {}\n[lead]",
            "unknown field `envs` in a environment; write `env`",
        ),
        (
            "[lead]",
            "colour = \"red\"\n[lead]",
            "unknown field `colour` in a team file; a team file has name, lead",
        ),
    ] {
        assert!(TEAM_FILE.contains(from), "{from}");
        world.write_file("team.toml", &TEAM_FILE.replacen(from, to, 1));
        let error = world.run_refused(&["team", "create"], 2);
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{to}: {error}"
        );
        assert!(
            error["message"].as_str().unwrap().contains("team.toml:"),
            "{error}"
        );
    }
    assert_eq!(world.run_json(&["team", "list"]), serde_json::json!([]));
    for (text, meant) in [
        ("[landing]\nrevew = \"human\"\n", "review"),
        ("[lannding]\n", "landing"),
    ] {
        world.write_file("regatta.toml", text);
        let error = world.run_refused(&["init"], 1);
        assert_eq!(
            error["hint"].as_str().unwrap(),
            format!("write `{meant}`"),
            "{error}"
        );
    }
}
