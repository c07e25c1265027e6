//! Several leads at once, each on its own mission, started by messages, with real git and real
//! programs.

use serde_json::Value;

use crate::world::{TEST_TIMEOUT, World, kill_process, wait_until};

/// A lead that plans two tasks at its first turn and finishes the mission when they have landed. If
/// its goal says so, it waits for `go` first.
const LEAD_SCRIPT: &str = r#"#!/bin/sh
cat > /dev/null
r="$REGATTA_BIN"
if [ -z "$REGATTA_MISSION" ]; then # a question
  printf '{"status": "done", "detail": "it is in a.txt"}' > "$REGATTA_RESULT"
  exit 0
fi
case "$("$r" mission show "$REGATTA_MISSION" --json)" in
  *"wait for go"*) "$r" msg wait "$REGATTA_CHANNEL" -L go --timeout 80s > /dev/null || exit 1 ;;
esac
parts=$("$r" mission show "$REGATTA_MISSION" --json | grep -o '"subject":"part' | wc -l)
if [ "$parts" -eq 0 ]; then
  for n in 1 2; do
    "$r" task add "part $n of $REGATTA_MISSION" --type task --files "src/$REGATTA_MISSION-$n.txt" \
      --validate true --exists "src/$REGATTA_MISSION-$n.txt" || exit 1
  done
else
  "$r" mission finish "both parts of $REGATTA_MISSION" # refused while one is open: it is woken again
fi
exit 0
"#;

/// A worker that writes the one file that its task names.
const WORKER_SCRIPT: &str = r#"#!/bin/sh
file=$(sed -n 's/^- \(src\/.*\)$/\1/p' | head -n 1)
mkdir -p src
echo "$REGATTA_AGENT" > "$file"
"#;

fn regatta_binary() -> &'static str {
    env!("CARGO_BIN_EXE_regatta")
}

/// Creates a project with a router, a lead, workers, and this limit of leads.
fn project_with_lead(max_leads: u32) -> World {
    let world = World::with_repo();
    for (name, text) in [("lead.sh", LEAD_SCRIPT), ("work.sh", WORKER_SCRIPT)] {
        std::fs::write(world.root.join(name), text).unwrap();
    }
    world.write_file(
        "regatta.toml",
        &format!(
            "[project]\nname = \"shop\"\ntrunk = \"main\"\n[validation]\ncommands = [\"sh \
             ./test.sh\"]\n[leads]\nmax_leads = \
             {max_leads}\nagent = \"boss\"\nworkers = [\"hand\"]\nmax_workers = 2\n"
        ),
    );
    world.commit_all("Use regatta");
    world.run_ok(&["init"]);
    for (name, script) in [("boss", "lead.sh"), ("hand", "work.sh")] {
        let command = format!("sh {}", world.root.join(script).display());
        let variable = format!("REGATTA_BIN={}", regatta_binary());
        let args = [
            "agent",
            "add",
            name,
            "--runtime",
            "command",
            "--command",
            &command,
            "--env",
            &variable,
        ];
        world.run_ok(&[&args[..], &["--confine", "off"]].concat());
    }
    world
}

fn send_message(world: &World, text: &str) -> String {
    world.run_json(&["msg", "send", "shop", text])["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn mission_list(world: &World) -> Vec<Value> {
    world
        .run_json(&["mission", "list"])
        .as_array()
        .unwrap()
        .clone()
}

fn messages_with_label(world: &World, label: &str) -> Vec<Value> {
    world
        .run_json(&["msg", "history", "shop", "-L", label, "--limit", "500"])
        .as_array()
        .unwrap()
        .clone()
}

#[track_caller]
fn wait_until_done(world: &World, many: usize) {
    let all = wait_until(TEST_TIMEOUT, || {
        messages_with_label(world, "mission:done").len() >= many
    });
    assert!(
        all,
        "{:?}\n{}",
        mission_list(world),
        world.run_ok(&["status"])
    );
}

/// Checks that the trunk is linear and has the change of every task of every mission once.
#[track_caller]
fn assert_landed(world: &World, expected: usize) {
    world.assert_green_everywhere();
    assert_eq!(
        world.git(&["rev-list", "--merges", "main"]),
        "",
        "the trunk has a merge commit"
    );
    let subjects = world.git(&["log", "--format=%s", "main"]);
    let mut parts: Vec<&str> = subjects
        .lines()
        .filter(|subject| subject.starts_with("part "))
        .collect();
    parts.sort_unstable();
    let many = parts.len();
    parts.dedup();
    assert_eq!(
        (many, parts.len()),
        (expected, expected),
        "every change once: {subjects}"
    );
    let files = world.git(&["ls-tree", "-r", "--name-only", "main", "src/"]);
    assert_eq!(files.lines().count(), expected, "{files}");
}

/// J2: checks in the event log that no task had two attempts at the same time.
fn assert_no_task_twice(world: &World) {
    let mut live = std::collections::BTreeMap::new();
    for event in world.events() {
        match event["kind"].as_str() {
            Some("attempt.started") => {
                let attempt = &event["data"]["attempt"];
                let before = live.insert(attempt["task"].to_string(), attempt["id"].clone());
                assert_eq!(
                    before, None,
                    "J2: {} had two attempts at once",
                    attempt["task"]
                );
            }
            Some("attempt.ended") => live.retain(|_, live| *live != event["data"]["attempt"]),
            _ => {}
        }
    }
}

#[test]
fn two_missions_at_once_each_have_a_lead_and_end_independently() {
    let world = project_with_lead(3);
    send_message(&world, "!mission Build the first thing");
    send_message(&world, "!MISSION   Build the second thing");
    wait_until_done(&world, 2);
    assert_landed(&world, 4);
    assert_no_task_twice(&world);
    let leads: std::collections::BTreeSet<String> = messages_with_label(&world, "spawn-ack")
        .iter()
        .map(|value| {
            value["text"]
                .as_str()
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(leads.len(), 2, "{leads:?}");
    // Workers are named under their lead.
    for mission in 1..=2 {
        let by: std::collections::BTreeSet<String> = (1..=2)
            .map(|n| world.git(&["show", &format!("main:src/M{mission}-{n}.txt")]))
            .collect();
        let lead = by.first().unwrap().rsplit_once('/').unwrap().0.to_owned();
        assert!(
            leads.contains(&lead)
                && by
                    .iter()
                    .all(|by| by.starts_with(&format!("{lead}/worker-"))),
            "{by:?} {leads:?}"
        );
    }
    assert_eq!(messages_with_label(&world, "coord:merge").len(), 4);
    let shown = world.run_ok(&["mission", "show", "M1"]);
    assert!(shown.contains("done  both parts of M1"), "{shown}");
    assert!(mission_list(&world).is_empty());
}

#[test]
fn missions_beyond_the_limit_of_leads_queue_and_all_complete_across_a_kill() {
    let world = project_with_lead(3);
    let mut asked = Vec::new();
    for nth in 1..=5 {
        asked.push(send_message(
            &world,
            &format!("!dev wait for go, thing {nth}"),
        ));
    }
    world.run_ok(&["mission", "route", &asked[4]]); // delivered again
    let at_work = || {
        mission_list(&world)
            .iter()
            .filter(|mission| mission["lead"].is_string())
            .count()
    };
    assert!(wait_until(TEST_TIMEOUT, || at_work() == 3));
    assert_eq!(
        mission_list(&world).len(),
        5,
        "a message that is delivered twice starts one mission"
    );
    let acks = messages_with_label(&world, "spawn-ack");
    let waits: Vec<&str> = acks
        .iter()
        .filter_map(|ack| ack["text"].as_str())
        .filter(|ack| ack.contains("waits for a lead"))
        .collect();
    assert_eq!(waits.len(), 2, "{waits:?}");
    assert!(
        waits[0].contains("number 1 in the queue, and 3 of 3") && waits[1].contains("number 2"),
        "{waits:?}"
    );

    // A question does not wait for a lead. Messages of agents and tools start nothing.
    let question = send_message(&world, "!q where is it?");
    world.run_ok(&[
        "msg",
        "send",
        "shop",
        "!mission from an agent",
        "--as",
        "hand",
    ]);
    world.run_ok(&[
        "msg",
        "send",
        "shop",
        "!mission as an announcement",
        "-L",
        "coord:merge",
    ]);
    assert!(
        wait_until(TEST_TIMEOUT, || messages_with_label(&world, "answer")
            .iter()
            .any(|message| message["reply_to"] == question.as_str())),
        "{}",
        world.run_ok(&["status"])
    );
    assert_eq!(at_work(), 3);
    assert_eq!(mission_list(&world).len(), 5);

    let pid = world.daemon_info().unwrap()["pid"].as_u64().unwrap();
    kill_process(u32::try_from(pid).unwrap());
    world.run_ok(&["up"]);
    assert_eq!(
        mission_list(&world).len(),
        5,
        "D1: queued missions survive the kill"
    );
    world.run_ok(&["mission", "route", &asked[0]]);
    // Leads that start later wait for a `go` of their own.
    let all = wait_until(TEST_TIMEOUT * 2, || {
        world.run_ok(&["msg", "send", "shop", "go", "-L", "go"]);
        messages_with_label(&world, "mission:done").len() >= 5
    });
    assert!(
        all,
        "{}\n{}",
        world.run_ok(&["mission", "list"]),
        world.run_ok(&["status"])
    );
    assert_landed(&world, 10);
    assert_no_task_twice(&world);
}

/// L11: a lead's claims are released when its processes have ended, in the commit that records the
/// end, and not earlier.
#[test]
fn l11_a_dead_leads_claim_on_the_trunk_ends_with_its_attempt() {
    let world = project_with_lead(1);
    let holds = "#!/bin/sh\ncat > /dev/null\n\"$REGATTA_BIN\" claim acquire \
        workspace://shop/default --as \"$REGATTA_AGENT\" --ttl 20m || exit 1\nexec sleep 600\n";
    std::fs::write(world.root.join("lead.sh"), holds).unwrap();
    send_message(&world, "!mission hold the trunk");
    let trunk = || {
        let claims = world.run_json(&["claim", "list"])["held"]
            .as_array()
            .unwrap()
            .clone();
        claims
            .into_iter()
            .find(|claim| claim["uris"][0] == "workspace://shop/default")
    };
    assert!(
        wait_until(TEST_TIMEOUT, || trunk().is_some()),
        "{}",
        world.run_ok(&["status"])
    );
    let owner = trunk().unwrap()["owner"].clone();
    assert!(
        owner.to_string().contains('A'),
        "an attempt holds it: {owner}"
    );
    let sleeper = world
        .foreign_processes()
        .into_iter()
        .find(|foreign_process| {
            std::fs::read(format!("/proc/{foreign_process}/cmdline"))
                .is_ok_and(|bytes| bytes.starts_with(b"sleep\x00600"))
        });
    kill_process(sleeper.unwrap());
    assert!(wait_until(TEST_TIMEOUT, || trunk().is_none()));
    let events = world.events();
    let released = events
        .iter()
        .position(|event| event["kind"] == "claim.released")
        .unwrap();
    let ended = events
        .iter()
        .position(|event| event["kind"] == "attempt.ended")
        .unwrap();
    assert!(
        ended.abs_diff(released) < 5,
        "both in one commit: {released} {ended}"
    );
    world.run_ok(&["mission", "cancel", "M1"]);
}

#[test]
fn a_mission_that_lost_its_lead_can_be_handed_over() {
    let world = project_with_lead(1);
    std::fs::write(world.root.join("lead.sh"), "#!/bin/sh\nexit 3\n").unwrap();
    send_message(&world, "!mission Build it");
    world.run_ok(&["config", "set", "retry", "10ms"]);
    assert!(
        wait_until(TEST_TIMEOUT, || !messages_with_label(
            &world,
            "mission:lost"
        )
        .is_empty()),
        "{}",
        world.run_ok(&["status"])
    );
    let list = world.run_ok(&["mission", "list"]);
    assert!(list.contains("without a lead"), "{list}");
    assert_eq!(
        world.run_refused(&["mission", "resume", "M1"], 2)["code"],
        "invalid"
    );
    std::fs::write(world.root.join("lead.sh"), LEAD_SCRIPT).unwrap();
    world.run_ok(&["mission", "handover", "M1"]);
    wait_until_done(&world, 1);
    assert_landed(&world, 2);
}

/// A lead that edits files itself: the change becomes a task of the mission, is validated and
/// lands, and a message reports it.
#[test]
fn edits_by_a_lead_land_as_a_task() {
    let world = project_with_lead(1);
    let script = "#!/bin/sh\ncat > /dev/null\nmkdir -p src\n[ -e src/by-lead.txt ] || echo x > \
                  src/by-lead.txt\n\
                  printf '{\"status\": \"done\", \"detail\": \"wrote it\"}' > \"$REGATTA_RESULT\"\n";
    std::fs::write(world.root.join("lead.sh"), script).unwrap();
    send_message(&world, "!mission write it");
    wait_until_done(&world, 1);
    assert!(
        world
            .git(&["ls-tree", "-r", "--name-only", "main"])
            .contains("src/by-lead.txt")
    );
    let messages = messages_with_label(&world, "mission:edited");
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("src/by-lead.txt")),
        "{messages:?}"
    );
    let tasks = world.run_json(&["task", "list", "--all"]);
    let made = tasks.as_array().unwrap().iter().find(|task| {
        task["subject"]
            .as_str()
            .unwrap()
            .contains("Edits by the lead")
    });
    assert_eq!(
        made.map(|task| &task["status"]),
        Some(&serde_json::json!("completed")),
        "{tasks}"
    );
}

#[test]
fn missions_can_be_started_paused_resumed_and_cancelled_by_command() {
    let world = project_with_lead(1);
    let first = world.run_json(&["mission", "start", "wait for go, and build it"]);
    assert!(
        first["lead"]["name"]
            .as_str()
            .unwrap()
            .starts_with("shop-dev/lead-"),
        "{first}"
    );
    world.run_json(&["mission", "start", "another"]);
    let list = world.run_ok(&["mission", "list"]);
    assert!(list.contains("queued, position 1"), "{list}");
    let status = world.run_ok(&["status"]);
    assert!(status.contains("queued for a lead, position 1"), "{status}");
    assert!(
        status.contains("no task yet") && !status.contains("0 of 1 landed"),
        "a lead's turns are not counted as tasks: {status}"
    );
    world.run_ok(&["mission", "pause", "M2"]);
    world.run_ok(&["mission", "cancel", "M1", "--because", "not wanted"]);
    let shown = world.run_ok(&["mission", "show", "M1"]);
    assert!(shown.contains("cancelled  not wanted"), "{shown}");
    assert_eq!(
        world.run_json(&["mission", "list"])[0]["state"],
        "draining",
        "a paused mission does not start"
    );
    assert_eq!(
        messages_with_label(&world, "mission:cancelled").len(),
        1,
        "a cancelled mission is announced once"
    );
    world.run_ok(&["mission", "resume", "M2"]);
    wait_until_done(&world, 1);
    assert_landed(&world, 2);
    let guide = world.run_ok(&["guide", "lead"]);
    assert!(guide.contains("mission_finish"), "{guide}");
    assert!(world.run_ok(&["guide"]).contains("landing"));
}

#[test]
fn migrate_shows_applies_and_undoes_changes_to_older_settings() {
    let world = World::with_project();
    world.write_file(
        ".botbox.json",
        r#"{"agents": {"dev": {"multiLead": {"enabled": false, "maxLeads": 3, "mergeTimeoutSec": 90}}}}"#,
    );
    world.run_ok(&[
        "hook",
        "add",
        "--project",
        "shop",
        "--channel",
        "shop",
        "--claim",
        "agent://shop-dev",
        "--",
        "true",
    ]);
    let before = world.read_file("regatta.toml");
    let plan = world.run_ok(&["migrate"]);
    assert!(
        plan.contains("would change")
            && plan.contains("max_leads = 1")
            && plan.contains("becomes respond://shop-dev"),
        "{plan}"
    );
    assert_eq!(
        world.read_file("regatta.toml"),
        before,
        "the settings must not change yet"
    );
    world.run_ok(&["migrate", "--yes"]);
    let after = world.read_file("regatta.toml");
    assert!(
        after.contains("max_leads = 1") && after.contains("merge_timeout = \"90s\""),
        "{after}"
    );
    let hooks = world.run_ok(&["hook", "list"]);
    assert!(
        hooks.contains("respond://shop-dev") && !hooks.contains("agent://shop-dev"),
        "{hooks}"
    );
    assert_eq!(
        world.run_ok(&["migrate", "--yes"]),
        "everything is up to date\n"
    );
    world.run_ok(&["migrate", "--undo"]);
    assert_eq!(world.read_file("regatta.toml"), before);
    assert!(world.run_ok(&["hook", "list"]).contains("agent://shop-dev"));
    assert_eq!(
        world.run_refused(&["migrate", "--undo"], 1)["code"],
        "nothing_to_undo"
    );
}
