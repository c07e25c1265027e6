//! The release checklist of mixed teams, with the real binary and real processes: for each
//! provider, a lead that owns the primary lane, and OpenCode members beside it. The scripted agent
//! stands in for the providers' programs. `cargo xtask real-agents --layer team` runs the same list
//! with the real programs.

use serde_json::Value;

use crate::world::{LONG, World, alive, kill, until};

/// Returns a team file: a lead, one member of the lead's provider, and two OpenCode members on
/// their own lanes.
fn team(lead: &str) -> String {
    format!(
        "name = \"harbour\"\n[lead]\nname = \"amy\"\nprovider = \"{lead}\"\nbackend = \"scripted\"\n\
         [[member]]\nname = \"alice\"\ncwd = \"web\"\nscript = '[{{\"run\": \"pwd > here.txt\"}}, {{\"say\": \"here\"}}]'\n\
         [[member]]\nname = \"tom\"\nprovider = \"opencode\"\nbackend = \"scripted\"\n\
         [[member]]\nname = \"bob\"\nprovider = \"opencode\"\nbackend = \"scripted\"\n"
    )
}

fn set_up(lead: &str) -> World {
    let world = World::set_up();
    world.write("team.toml", &team(lead));
    world.write("web/index.html", "<p>\n");
    world.commit("A team");
    world.ok(&["team", "create"]);
    world
}

fn show(world: &World) -> Value {
    world.json(&["team", "show", "harbour"])
}

/// Returns the members' states, in the order of the roster.
fn states(world: &World) -> Vec<String> {
    let view = show(world);
    let members = view["resolved"]["members"].as_array().unwrap();
    members.iter().map(|it| it["state"].as_str().unwrap().to_owned()).collect()
}

fn lanes(world: &World) -> Vec<String> {
    let view = show(world);
    let members = view["resolved"]["members"].as_array().unwrap();
    members.iter().map(|it| it["lane"]["id"].as_str().unwrap().to_owned()).collect()
}

/// Returns the program of a member's session. Its shim and the program of a task do not count.
fn program(world: &World, name: &str) -> u32 {
    let view = show(world);
    let members = view["resolved"]["members"].as_array().unwrap();
    let session = members.iter().find(|it| it["name"] == name).and_then(|it| it["attempt"].as_str());
    let mark = format!("REGATTA_ATTEMPT={}", session.unwrap_or_else(|| panic!("{name} has no session: {view}")));
    let is = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        environ.split(|it| *it == 0).any(|it| it == mark.as_bytes())
            && String::from_utf8_lossy(&line).contains("scripted-agent")
    };
    world.processes().into_iter().find(is).unwrap_or_else(|| panic!("{name} has no program: {view}"))
}

/// Longer than a launch takes on a loaded machine. Only a failing test waits that long.
const WAIT: &str = "280s";

const UP: [&str; 4] = ["alive"; 4];

/// Launches the team, gives each member a task, kills a side lane, kills the daemon, stops and
/// starts the daemon, and relaunches and stops the team.
fn whole_life(lead: &str) {
    let world = set_up(lead);
    world.ok(&["team", "launch", "harbour", "--wait", WAIT]);
    assert_eq!(states(&world), UP, "{}", show(&world));
    assert_eq!(lanes(&world), ["primary", "primary", "opencode:tom", "opencode:bob"]);

    // The member runs in the requested directory, and the record has both the requested and the
    // actual one.
    let alice = show(&world)["resolved"]["members"][1].clone();
    assert_eq!((&alice["asked"]["cwd"], &alice["got"]["cwd"]), (&"web".into(), &"web".into()));
    let workspace = world.data.join("workspaces/shop").join(alice["attempt"].as_str().unwrap());
    let here = std::fs::read_to_string(workspace.join("web/here.txt")).unwrap();
    assert!(here.trim_end().ends_with("/web"), "{here}");

    // Each member gets a task.
    for name in ["amy", "alice", "tom", "bob"] {
        let file = format!("web/{name}.txt");
        // Alice also works in her own directory.
        let path = if name == "alice" { "alice.txt" } else { &file };
        let script = format!(r#"[{{"write": {{"path": "{path}", "text": "{name}\n"}}}}]"#);
        let (subject, agent) = (format!("Write {name}"), format!("harbour/{name}"));
        let add = ["add", &subject, "--type", "docs", "--files", &file, "--exists", &file, "--assign", &agent];
        world.ok(&[&add[..], &["--script", &script]].concat());
    }
    for name in ["amy", "alice", "tom", "bob"] {
        let landed = || world.git(&["ls-tree", "--name-only", "main", "web/"]).contains(&format!("web/{name}.txt"));
        assert!(until(LONG, landed), "the task of {name} did not land: {}", world.ok(&["status"]));
    }
    assert_eq!(states(&world), UP, "a member must live on after its task");

    // The program of a side lane is killed. Only its member is down, and a retry starts only that
    // member.
    let before = ["amy", "alice", "bob"].map(|it| program(&world, it));
    kill(program(&world, "tom"));
    assert!(until(LONG, || states(&world)[2] == "degraded"), "{}", show(&world));
    assert_eq!(states(&world), ["alive", "alive", "degraded", "alive"], "T3");
    let summary = show(&world)["summary"].clone();
    assert_eq!((&summary["outcome"], &summary["alive"]), (&"partial_failure".into(), &3.into()), "T2");
    world.ok(&["team", "retry", "harbour", "tom", "--wait", WAIT]);
    assert_eq!(states(&world), UP);
    assert_eq!(
        ["amy", "alice", "bob"].map(|it| program(&world, it)),
        before,
        "a retry of tom restarted another member"
    );

    // The daemon is killed, and the team lives on (P1).
    let all = ["amy", "alice", "tom", "bob"].map(|it| program(&world, it));
    let daemon = u32::try_from(world.card().unwrap()["pid"].as_u64().unwrap()).unwrap();
    kill(daemon);
    assert!(until(LONG, || !alive(daemon)));
    world.ok(&["up"]);
    assert_eq!(states(&world), UP);
    assert_eq!(["amy", "alice", "tom", "bob"].map(|it| program(&world, it)), all, "P1");

    // The daemon is stopped and started. No member lives, none is shown as alive, and none starts
    // by itself.
    world.ok(&["down"]);
    assert_eq!(world.left(), [""; 0], "P3");
    world.ok(&["up"]);
    let after = states(&world);
    assert!(after.iter().all(|it| it == "stopped" || it == "degraded"), "{after:?}");
    assert_eq!(world.left(), [""; 0], "a restart launches nothing");

    // A relaunch uses the stored team, not the present file.
    world.write("team.toml", &team("scripted"));
    world.ok(&["team", "relaunch", "harbour", "--wait", WAIT]);
    assert_eq!(states(&world), UP);
    assert_eq!(show(&world)["resolved"]["members"][0]["got"]["provider"], lead);
    assert_eq!(show(&world)["history"].as_array().unwrap().len(), 1);
    world.ok(&["team", "relaunch", "harbour", "--wait", WAIT]);
    assert_eq!((states(&world), show(&world)["history"].as_array().unwrap().len()), (UP.map(String::from).to_vec(), 2));

    world.ok(&["team", "stop", "harbour", "--wait", WAIT]);
    assert_eq!(world.left(), [""; 0], "P10");
    assert_eq!(states(&world), ["stopped"; 4]);
}

#[test]
fn p1_p10_a_codex_led_team_survives_kills_and_stops_completely() {
    whole_life("codex");
}

#[test]
fn p1_p10_an_anthropic_led_team_survives_kills_and_stops_completely() {
    whole_life("anthropic");
}

#[test]
fn p1_p10_a_gemini_led_team_survives_kills_and_stops_completely() {
    whole_life("gemini");
}

/// Two OpenCode members are allowed while each lane has its own store, and refused when the team
/// shares one. An OpenCode lead of a mixed team is refused unless the policy allows it. A refusal
/// creates nothing.
#[test]
fn two_opencode_members_need_a_store_per_lane() {
    let world = World::set_up();
    let settings = world.read("regatta.toml");
    world.write("team.toml", &team("codex"));
    world.write(
        "regatta.toml",
        &format!("{settings}\n[lanes.policy]\nopencode = {{ lane = \"secondary\", store = \"team\" }}\n"),
    );
    world.commit("One store for a team");
    world.ok(&["init", "--yes"]);
    let refused = world.refused(&["team", "create"], 2);
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("at most one opencode member, not 2: tom, bob"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("store = \"lane\""), "{refused}");
    assert_eq!(world.json(&["team", "list"]), serde_json::json!([]));

    let one =
        team("codex").replace("[[member]]\nname = \"bob\"\nprovider = \"opencode\"\nbackend = \"scripted\"\n", "");
    world.write("team.toml", &one);
    world.ok(&["team", "create"]);
    world.ok(&["team", "delete", "harbour"]);

    world.write("regatta.toml", &settings);
    world.write("team.toml", &team("codex"));
    world.commit("A store for each lane");
    world.ok(&["init", "--yes"]);
    world.ok(&["team", "create", "both"]);
    let explained = world.ok(&["team", "explain", "both"]);
    for lane in ["member tom goes to secondary lane opencode:tom", "member bob goes to secondary lane opencode:bob"] {
        assert!(explained.contains(lane), "{explained}");
    }

    let mixed = "name = \"odd\"\n[lead]\nname = \"tom\"\nprovider = \"opencode\"\n[[member]]\nname = \"amy\"\nprovider = \"codex\"\n";
    world.write("team.toml", mixed);
    let refused = world.refused(&["team", "create"], 2);
    assert!(refused["message"].as_str().unwrap().contains("opencode cannot lead a mixed team"), "{refused}");
    let able = "\n[lanes.policy]\nopencode = { lane = \"secondary\", leads = \"any\" }\n";
    world.write("regatta.toml", &format!("{settings}{able}"));
    world.commit("OpenCode may lead");
    world.ok(&["init", "--yes"]);
    world.ok(&["team", "create"]);
}
