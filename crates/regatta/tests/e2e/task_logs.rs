//! The output of an agent's commands is stored once and shown once, on the page and in `logs`.

use std::time::Duration;

use serde_json::Value;

use crate::http::ApiClient;
use crate::world::{World, wait_until};

/// The daemon's API as the page uses it, with the daemon's token.
struct PageLog<'a> {
    api: ApiClient,
    attempt: &'a str,
}

impl PageLog<'_> {
    fn get(&self, path: &str) -> String {
        let headers = [
            ("host", self.api.address()),
            ("authorization", format!("Bearer {}", self.api.token)),
        ];
        let reply = self.api.request_over_tcp("GET", path, &headers, b"");
        assert_eq!(reply.status, 200, "{reply:?}");
        String::from_utf8(reply.body).unwrap()
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path)).unwrap()
    }

    /// Returns all entries of the log.
    fn entries(&self) -> Vec<Value> {
        let path = format!("/api/v1/page/log/{}?from=0", self.attempt);
        // The first answers come before the daemon has read the whole journal.
        let mut window = Value::Null;
        let is_complete = wait_until(Duration::from_secs(60), || {
            window = self.json(&path);
            window["is_complete"] == true
        });
        assert!(is_complete, "{window}");
        window["entries"].as_array().unwrap().clone()
    }

    /// Returns the body of an entry.
    fn body(&self, number: usize, query: &str) -> Value {
        self.json(&format!(
            "/api/v1/page/log/{}/{number}{query}",
            self.attempt
        ))
    }
}

fn log_of_page<'a>(world: &World, attempt: &'a str) -> PageLog<'a> {
    let api = ApiClient::for_data_dir(&world.data_dir);
    PageLog { api, attempt }
}

/// Returns the numbers of the entries of tool calls.
fn calls(entries: &[Value]) -> Vec<usize> {
    let is_call = |entry: &&Value| entry["class"] == "tool";
    entries
        .iter()
        .filter(is_call)
        .map(|entry| usize::try_from(entry["number"].as_u64().unwrap()).unwrap())
        .collect()
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
    let page = log_of_page(&world, "A1");
    let entries = page.entries();
    let calls = calls(&entries);
    assert_eq!(
        calls.len(),
        2,
        "the command and the written file: {entries:?}"
    );
    let html = page.body(calls[0], "")["html"].as_str().unwrap().to_owned();
    for n in 1..=6 {
        assert_eq!(html.matches(&format!("auth::t{n} is")).count(), 1, "{html}");
    }
    // `logs` prints the end of the same calls in the same order.
    let printed = world.run_ok(&["logs", "T1"]);
    let ended: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("✓ ").or(line.strip_prefix("+ ")))
        .collect();
    assert_eq!(ended.len(), calls.len(), "{printed}");
    for (number, title) in calls.iter().zip(ended) {
        let row = entries[*number]["html"].as_str().unwrap();
        let first_word = title.split(' ').next().unwrap();
        assert!(
            row.contains(&format!("\"title\">{first_word} ")),
            "{title}: {row}"
        );
    }
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
    // The page sends little of it until a person asks, and then every byte that is stored (P2).
    let page = log_of_page(&world, "A1");
    let entries = page.entries();
    let html: String = entries
        .iter()
        .map(|entry| entry["html"].as_str().unwrap())
        .collect();
    assert!(
        html.len() < 100_000 && html.contains("of the output of step-2"),
        "{} bytes",
        html.len()
    );
    let first = calls(&entries)[0];
    let body = page.body(first, "");
    assert_eq!(body["total"], 2_000);
    let folded = body["html"].as_str().unwrap();
    assert!(folded.contains("show 1,900 more lines"), "{folded}");
    let middle = page.body(first, "?from=1000&to=1009");
    assert_eq!(
        middle["html"]
            .as_str()
            .unwrap()
            .matches("class=\"ln\"")
            .count(),
        10
    );
    let plain = page.get(&format!("/api/v1/page/log/A1/{first}?plain=true"));
    let expected: Vec<String> = (1..=2_000).map(|n| format!("{n:0100}")).collect();
    assert_eq!(plain.trim_end(), expected.join("\n"));
    let found = page.json("/api/v1/page/log-search/A1?q=0001234");
    assert_eq!(found["total"], 1);
    assert_eq!(found["hits"][0]["line"], 1_234);
    let raw = page.get("/api/v1/page/log-raw/A1");
    // The answer is sent in chunks of whole lines, and the size of each chunk is a line that ends
    // with a carriage return.
    let lines = raw.split('\n').filter(|line| !line.ends_with('\r'));
    let printed = world.run_ok(&["logs", "A1", "--raw"]);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, printed.lines().collect::<Vec<_>>());
}
