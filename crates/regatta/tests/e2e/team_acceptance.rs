//! The release checklist of mixed teams, with the real binary and real processes: for each
//! provider, a lead that owns the primary lane, and OpenCode members beside it. The scripted agent
//! stands in for the providers' programs. `cargo xtask real-agents --layer team` runs the same list
//! with the real programs.

use serde_json::Value;

use crate::world::{TEST_TIMEOUT, World, is_alive, kill_process, wait_until};

/// Returns a team file: a lead, one member of the lead's provider, and two OpenCode members on
/// their own lanes.
fn team_file(lead: &str) -> String {
    format!(
        "name = \"harbour\"\n[lead]\nname = \"amy\"\nprovider = \"{lead}\"\nbackend = \
         \"scripted\"\n\
         [[member]]\nname = \"alice\"\ncwd = \"web\"\nscript = '[{{\"run\": \"pwd > here.txt\"}}, \
         {{\"say\": \"here\"}}]'\n\
         [[member]]\nname = \"tom\"\nprovider = \"opencode\"\nbackend = \"scripted\"\n\
         [[member]]\nname = \"bob\"\nprovider = \"opencode\"\nbackend = \"scripted\"\n"
    )
}

fn world_with_team(lead: &str) -> World {
    let world = World::with_project();
    world.write_file("team.toml", &team_file(lead));
    world.write_file("web/index.html", "<p>\n");
    world.commit_all("A team");
    world.run_ok(&["team", "create"]);
    world
}

fn show_team(world: &World) -> Value {
    world.run_json(&["team", "show", "harbour"])
}

/// Returns the members' states, in the order of the roster.
fn member_states(world: &World) -> Vec<String> {
    let view = show_team(world);
    let members = view["resolved"]["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| member["state"].as_str().unwrap().to_owned())
        .collect()
}

fn member_lanes(world: &World) -> Vec<String> {
    let view = show_team(world);
    let members = view["resolved"]["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| member["lane"]["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the program of a member's session. Its shim and the program of a task do not count.
fn member_program(world: &World, name: &str) -> u32 {
    let view = show_team(world);
    let members = view["resolved"]["members"].as_array().unwrap();
    let session = members
        .iter()
        .find(|member| member["name"] == name)
        .and_then(|member| member["attempt"].as_str());
    let mark = format!(
        "REGATTA_ATTEMPT={}",
        session.unwrap_or_else(|| panic!("{name} has no session: {view}"))
    );
    let is = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        environ
            .split(|byte| *byte == 0)
            .any(|environ| environ == mark.as_bytes())
            && String::from_utf8_lossy(&line).contains("scripted-agent")
    };
    world
        .processes()
        .into_iter()
        .find(is)
        .unwrap_or_else(|| panic!("{name} has no program: {view}"))
}

/// Longer than a launch takes on a loaded machine. Only a failing test waits that long.
const LAUNCH_WAIT: &str = "280s";

const ALL_ALIVE: [&str; 4] = ["alive"; 4];

/// Launches the team, gives each member a task, kills a side lane, kills the daemon, stops and
/// starts the daemon, and relaunches and stops the team.
fn run_team_lifecycle(lead: &str) {
    let world = world_with_team(lead);
    world.run_ok(&["team", "launch", "harbour", "--wait", LAUNCH_WAIT]);
    assert_eq!(member_states(&world), ALL_ALIVE, "{}", show_team(&world));
    assert_eq!(
        member_lanes(&world),
        ["primary", "primary", "opencode:tom", "opencode:bob"]
    );

    // The member runs in the requested directory, and the record has both the requested and the
    // actual one.
    let alice = show_team(&world)["resolved"]["members"][1].clone();
    assert_eq!(
        (&alice["asked"]["cwd"], &alice["got"]["cwd"]),
        (&"web".into(), &"web".into())
    );
    let workspace = world
        .data_dir
        .join("workspaces/shop")
        .join(alice["attempt"].as_str().unwrap());
    let here = std::fs::read_to_string(workspace.join("web/here.txt")).unwrap();
    assert!(here.trim_end().ends_with("/web"), "{here}");

    // Each member gets a task.
    for name in ["amy", "alice", "tom", "bob"] {
        let file = format!("web/{name}.txt");
        // Alice also works in her own directory.
        let path = if name == "alice" { "alice.txt" } else { &file };
        let script = format!(r#"[{{"write": {{"path": "{path}", "text": "{name}\n"}}}}]"#);
        let (subject, agent) = (format!("Write {name}"), format!("harbour/{name}"));
        let add = [
            "add", &subject, "--type", "docs", "--files", &file, "--exists", &file, "--assign",
            &agent,
        ];
        world.run_ok(&[&add[..], &["--script", &script]].concat());
    }
    for name in ["amy", "alice", "tom", "bob"] {
        let landed = || {
            world
                .git(&["ls-tree", "--name-only", "main", "web/"])
                .contains(&format!("web/{name}.txt"))
        };
        assert!(
            wait_until(TEST_TIMEOUT, landed),
            "the task of {name} did not land: {}",
            world.run_ok(&["status"])
        );
    }
    assert_eq!(
        member_states(&world),
        ALL_ALIVE,
        "a member must live on after its task"
    );

    // The program of a side lane is killed. Only its member is down, and a retry starts only that
    // member.
    let before = ["amy", "alice", "bob"].map(|member| member_program(&world, member));
    kill_process(member_program(&world, "tom"));
    assert!(
        wait_until(TEST_TIMEOUT, || member_states(&world)[2] == "degraded"),
        "{}",
        show_team(&world)
    );
    assert_eq!(
        member_states(&world),
        ["alive", "alive", "degraded", "alive"],
        "T3"
    );
    let summary = show_team(&world)["summary"].clone();
    assert_eq!(
        (&summary["outcome"], &summary["alive"]),
        (&"partial_failure".into(), &3.into()),
        "T2"
    );
    world.run_ok(&["team", "retry", "harbour", "tom", "--wait", LAUNCH_WAIT]);
    assert_eq!(member_states(&world), ALL_ALIVE);
    assert_eq!(
        ["amy", "alice", "bob"].map(|member| member_program(&world, member)),
        before,
        "a retry of tom restarted another member"
    );

    // The daemon is killed, and the team lives on (P1).
    let all = ["amy", "alice", "tom", "bob"].map(|member| member_program(&world, member));
    let daemon = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
    kill_process(daemon);
    assert!(wait_until(TEST_TIMEOUT, || !is_alive(daemon)));
    world.run_ok(&["up"]);
    assert_eq!(member_states(&world), ALL_ALIVE);
    assert_eq!(
        ["amy", "alice", "tom", "bob"].map(|member| member_program(&world, member)),
        all,
        "P1"
    );

    // The daemon is stopped and started. No member lives, none is shown as alive, and none starts
    // by itself.
    world.run_ok(&["down"]);
    assert_eq!(world.describe_foreign_processes(), [""; 0], "P3");
    world.run_ok(&["up"]);
    let after = member_states(&world);
    assert!(
        after
            .iter()
            .all(|after| after == "stopped" || after == "degraded"),
        "{after:?}"
    );
    assert_eq!(
        world.describe_foreign_processes(),
        [""; 0],
        "a restart launches nothing"
    );

    // A relaunch uses the stored team, not the present file.
    world.write_file("team.toml", &team_file("scripted"));
    world.run_ok(&["team", "relaunch", "harbour", "--wait", LAUNCH_WAIT]);
    assert_eq!(member_states(&world), ALL_ALIVE);
    assert_eq!(
        show_team(&world)["resolved"]["members"][0]["got"]["provider"],
        lead
    );
    assert_eq!(show_team(&world)["history"].as_array().unwrap().len(), 1);
    world.run_ok(&["team", "relaunch", "harbour", "--wait", LAUNCH_WAIT]);
    assert_eq!(
        (
            member_states(&world),
            show_team(&world)["history"].as_array().unwrap().len()
        ),
        (ALL_ALIVE.map(String::from).to_vec(), 2)
    );

    world.run_ok(&["team", "stop", "harbour", "--wait", LAUNCH_WAIT]);
    assert_eq!(world.describe_foreign_processes(), [""; 0], "P10");
    assert_eq!(member_states(&world), ["stopped"; 4]);
}

#[test]
fn p1_p10_a_codex_led_team_survives_kills_and_stops_completely() {
    run_team_lifecycle("codex");
}

#[test]
fn p1_p10_an_anthropic_led_team_survives_kills_and_stops_completely() {
    run_team_lifecycle("anthropic");
}

#[test]
fn p1_p10_a_gemini_led_team_survives_kills_and_stops_completely() {
    run_team_lifecycle("gemini");
}

/// Two OpenCode members are allowed while each lane has its own store, and refused when the team
/// shares one. An OpenCode lead of a mixed team is refused unless the policy allows it. A refusal
/// creates nothing.
#[test]
fn two_opencode_members_need_a_store_per_lane() {
    let world = World::with_project();
    let settings = world.read_file("regatta.toml");
    world.write_file("team.toml", &team_file("codex"));
    world.write_file(
        "regatta.toml",
        &format!(
            "{settings}\n[lanes.policy]\nopencode = {{ lane = \"secondary\", store = \"team\" }}\n"
        ),
    );
    world.commit_all("One store for a team");
    world.run_ok(&["init", "--yes"]);
    let refused = world.run_refused(&["team", "create"], 2);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("at most one opencode member, not 2: tom, bob"),
        "{refused}"
    );
    assert!(
        refused["hint"]
            .as_str()
            .unwrap()
            .contains("store = \"lane\""),
        "{refused}"
    );
    assert_eq!(world.run_json(&["team", "list"]), serde_json::json!([]));

    let one = team_file("codex").replace(
        "[[member]]\nname = \"bob\"\nprovider = \"opencode\"\nbackend = \"scripted\"\n",
        "",
    );
    world.write_file("team.toml", &one);
    world.run_ok(&["team", "create"]);
    world.run_ok(&["team", "delete", "harbour"]);

    world.write_file("regatta.toml", &settings);
    world.write_file("team.toml", &team_file("codex"));
    world.commit_all("A store for each lane");
    world.run_ok(&["init", "--yes"]);
    world.run_ok(&["team", "create", "both"]);
    let explained = world.run_ok(&["team", "explain", "both"]);
    for lane in [
        "member tom goes to secondary lane opencode:tom",
        "member bob goes to secondary lane opencode:bob",
    ] {
        assert!(explained.contains(lane), "{explained}");
    }

    let mixed = "name = \"odd\"\n[lead]\nname = \"tom\"\nprovider \
        = \"opencode\"\n[[member]]\nname = \"amy\"\nprovider = \"codex\"\n";
    world.write_file("team.toml", mixed);
    let refused = world.run_refused(&["team", "create"], 2);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("opencode cannot lead a mixed team"),
        "{refused}"
    );
    let able = "\n[lanes.policy]\nopencode = { lane = \"secondary\", leads = \"any\" }\n";
    world.write_file("regatta.toml", &format!("{settings}{able}"));
    world.commit_all("OpenCode may lead");
    world.run_ok(&["init", "--yes"]);
    world.run_ok(&["team", "create"]);
}
