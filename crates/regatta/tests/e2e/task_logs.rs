//! The output of an agent's commands is stored once and shown once, on the page and in `logs`.

use serde_json::Value;

use crate::http::ApiClient;
use crate::world::World;

/// Returns a complete log as the page gets it.
fn log_of_page(world: &World, attempt: &str) -> String {
    let api = ApiClient::for_data_dir(&world.data_dir);
    let headers = [
        ("host", api.address()),
        ("authorization", format!("Bearer {}", api.token)),
    ];
    let (mut html, mut from) = (String::new(), 0);
    loop {
        let reply = api.request_over_tcp(
            "GET",
            &format!("/api/v1/page/log/{attempt}?from={from}"),
            &headers,
            b"",
        );
        assert_eq!(reply.status, 200, "{reply:?}");
        let piece: Value = serde_json::from_slice(&reply.body).unwrap();
        html += piece["html"].as_str().unwrap();
        from = piece["next"].as_u64().unwrap();
        if piece["more"] != true {
            return html;
        }
    }
}

fn journal_bytes(world: &World, attempt: &str) -> u64 {
    let files = std::fs::read_dir(world.data_dir.join("attempts").join(attempt))
        .unwrap()
        .map(Result::unwrap);
    let journals = files.filter(|file| file.file_name().to_string_lossy().starts_with("journal-"));
    journals.map(|file| file.metadata().unwrap().len()).sum()
}

fn land_with_checks(world: &World, commands: &str) {
    let plan = world.write_plan(&format!(
        "[[task]]\nsubject = \"Print\"\nfiles = [\"b.txt\"]\n\
         script = [{commands}, {{ write = {{ path = \"b.txt\", text = \"x\" }} }}]\n"
    ));
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes", "--wait"]);
}

#[test]
fn a_commands_log_is_one_group_with_its_output_once() {
    let world = World::with_project();
    land_with_checks(
        &world,
        r#"{ run = "for n in 1 2 3 4 5 6; do echo auth::t$n is quite well; sleep 0.05; done" }"#,
    );
    let html = log_of_page(&world, "A1");
    for n in 1..=6 {
        assert_eq!(html.matches(&format!("auth::t{n} is")).count(), 1, "{html}");
    }
    assert_eq!(html.matches("<details").count(), 1, "{html}");
    let logs = world.run_ok(&["logs", "T1"]);
    assert_eq!(
        logs.matches("auth::t$n").count(),
        2,
        "the start and the end of the command: {logs}"
    );
}

/// The journal must not repeat earlier output with each line: 2,000 lines of 100 bytes are 200 KB,
/// and a line of 3 MB is not stored again with every line after it.
#[test]
fn the_journal_of_a_command_grows_with_its_output() {
    let world = World::with_project();
    land_with_checks(
        &world,
        r#"{ run = "for n in $(seq 2000); do printf '%0100d\n' $n; done" }, { run = "head -c 3000000 /dev/zero | tr '\\0' y; echo; seq 200" }"#,
    );
    let bytes = journal_bytes(&world, "A1");
    assert!(bytes < 3_000_000, "{bytes} bytes");
    let logs = world.run_ok(&["logs", "T1"]);
    assert!(logs.len() < 20_000, "{} bytes", logs.len());
    assert!(
        logs.contains("bytes of the output of step-2"),
        "omitted output is counted: {logs}"
    );
    let html = log_of_page(&world, "A1");
    assert!(
        html.len() < 100_000 && html.contains("of the output of step-2"),
        "{} bytes",
        html.len()
    );
}
