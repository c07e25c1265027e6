//! A daemon with bridges that connect to doubles, and the requests that services send to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regatta_bridges::config::Secret;
use regatta_bridges::signature;
use regatta_testkit::services::{github, linear, slack};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// A repository, and a daemon whose bridges connect to doubles of the services.
pub(crate) struct BridgeWorld {
    pub(crate) world: World,
    variables: Vec<(String, String)>,
}

/// How a Slack app receives its events.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum SlackTransport {
    Socket,
    Http,
}

/// The user's settings.
pub(crate) struct BridgeWorldSettings<'a> {
    /// The first agent is the default.
    pub(crate) agents: &'a [&'a str],
    pub(crate) allowed_people: Vec<String>,
    pub(crate) urls: Vec<(&'static str, String)>,
    pub(crate) clock_speed: f64,
    /// Further lines of `[bridges]`.
    pub(crate) extra_lines: &'a str,
}

impl BridgeWorld {
    /// Starts a daemon with these settings and variables. Agents are added by
    /// [`BridgeWorld::agent`].
    pub(crate) fn new(
        told: &BridgeWorldSettings<'_>,
        variables: Vec<(String, String)>,
    ) -> BridgeWorld {
        let world = World::with_project();
        let dir = world.root.join("home/.config/regatta");
        std::fs::create_dir_all(&dir).unwrap();
        let mut text = String::new();
        for (nth, name) in told.agents.iter().enumerate() {
            text += &format!("[agents.{name}]\ndefault = {}\n", nth == 0);
        }
        let (allow, clock, more) = (
            json!(told.allowed_people),
            told.clock_speed,
            told.extra_lines,
        );
        text += &format!("[bridges]\nallow = {allow}\nclock = {clock:.1}\n{more}\n[bridges.url]\n");
        for (service, url) in &told.urls {
            text += &format!("{service} = {}\n", json!(url));
        }
        std::fs::write(dir.join("config.toml"), text).unwrap();
        world.run_ok(&["down"]);
        let quay = BridgeWorld { world, variables };
        quay.start_daemon_without(&[]);
        quay
    }

    /// Adds a scripted agent.
    pub(crate) fn add_agent(&self, name: &str, max_tasks: usize, script: &Value) {
        let file = self.file_path(&format!("{name}.json"));
        std::fs::write(&file, script.to_string()).unwrap();
        let env = format!("REGATTA_SCRIPT_FILE={}", file.display());
        let most = max_tasks.to_string();
        let add = [
            "agent",
            "add",
            name,
            "--runtime",
            "scripted",
            "--confine",
            "off",
            "--max-tasks",
            &most,
        ];
        self.world.run_ok(&[&add[..], &["--env", &env]].concat());
    }

    /// Starts the daemon without the variables whose names end with one of these suffixes.
    pub(crate) fn start_daemon_without(&self, without: &[&str]) {
        let kept = self
            .variables
            .iter()
            .filter(|variable| !without.iter().any(|end| variable.0.ends_with(end)));
        self.start_daemon_with(kept.cloned().collect());
    }

    /// Starts the daemon with these variables instead of its own.
    pub(crate) fn start_daemon_with(&self, variables: Vec<(String, String)>) {
        let mut command = self.world.command(&["up"]);
        command.envs(variables);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Returns the daemon's present address.
    pub(crate) fn address(&self) -> String {
        let url = self
            .world
            .daemon_info()
            .map(|world| world["url"].as_str().unwrap_or_default().to_owned());
        url.unwrap_or_default()
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned()
    }

    /// Sends one request on a new connection. Returns the status, or nothing if the daemon did not
    /// answer.
    pub(crate) fn send_request(&self, letter: &InboundRequest) -> Option<u16> {
        let address = self.address();
        OpenConnection::new(&address)
            .request_status(&letter.bytes(&address))
            .ok()
    }

    /// Returns the present URL of one of the daemon's routes.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Returns the path of a file of the test, outside every repository.
    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.world.root.join("home").join(name)
    }

    /// Waits until an agent waits at a gate in the middle of a turn.
    pub(crate) fn wait_until_at_gate(&self, gate: &str) {
        let waits = self.file_path(&format!("{gate}.waits"));
        assert!(
            wait_until(TEST_TIMEOUT, || waits.exists()),
            "no agent reaches the gate {gate}: {:?}",
            self.conversations()
        );
    }

    /// Opens a gate.
    pub(crate) fn open_gate(&self, gate: &str) {
        std::fs::write(self.file_path(gate), "").unwrap();
    }

    pub(crate) fn conversations(&self) -> Vec<Value> {
        self.world
            .run_json(&["bridge", "conversations"])
            .as_array()
            .unwrap()
            .clone()
    }

    /// Returns an agent's only conversation in full.
    pub(crate) fn only_conversation(&self, agent: &str) -> Value {
        let all = self.conversations();
        let conversations: Vec<&Value> = all.iter().filter(|post| post["agent"] == agent).collect();
        assert_eq!(
            conversations.len(),
            1,
            "{agent} is in one conversation: {all:?}"
        );
        self.world
            .run_json(&["bridge", "show", conversations[0]["id"].as_str().unwrap()])
    }

    /// Returns the number of events of a kind.
    pub(crate) fn event_count(&self, kind: &str) -> usize {
        self.world
            .events()
            .iter()
            .filter(|event| event["kind"] == kind)
            .count()
    }
}

/// Returns the variables that connect a Slack app to an agent.
pub(crate) fn slack_variables(
    app: &slack::SlackApp,
    suffix: &str,
    by: SlackTransport,
) -> Vec<(String, String)> {
    let second = match by {
        SlackTransport::Socket => (format!("SLACK_APP_TOKEN{suffix}"), app.app_token.clone()),
        SlackTransport::Http => (
            format!("SLACK_SIGNING_SECRET{suffix}"),
            app.signing_secret.clone(),
        ),
    };
    vec![
        (format!("SLACK_BOT_TOKEN{suffix}"), app.bot_token.clone()),
        second,
    ]
}

/// Returns the variables that connect a GitHub app to an agent.
pub(crate) fn github_variables(app: &github::GitHubApp, suffix: &str) -> Vec<(String, String)> {
    let (id, key, secret) = (
        app.id.to_string(),
        app.private_key.clone(),
        app.webhook_secret.clone(),
    );
    let pairs = [
        ("GITHUB_APP_ID", id),
        ("GITHUB_PRIVATE_KEY", key),
        ("GITHUB_WEBHOOK_SECRET", secret),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| (format!("{name}{suffix}"), value))
        .collect()
}

/// Returns the variables that connect a Linear app to an agent.
pub(crate) fn linear_variables(app: &linear::LinearApp, suffix: &str) -> Vec<(String, String)> {
    let (token, id, secret) = (
        app.access_token.clone(),
        app.app_user_id.clone(),
        app.webhook_secret.clone(),
    );
    let pairs = [
        ("LINEAR_ACCESS_TOKEN", token),
        ("LINEAR_AGENT_ID", id),
        ("LINEAR_WEBHOOK_SECRET", secret),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| (format!("{name}{suffix}"), value))
        .collect()
}

/// Returns a step that waits until a file exists. A second file beside it shows that the step
/// waits.
pub(crate) fn gate_step(file: &Path) -> Value {
    let file = file.display();
    json!({ "run": format!("touch {file}.waits; while [ ! -e {file} ]; do sleep 0.05; done") })
}

/// Returns a runtime for doubles of services.
pub(crate) fn new_runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A request that a service sends to the daemon.
#[derive(Clone, Debug)]
pub(crate) struct InboundRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl InboundRequest {
    pub(crate) fn new(
        path: &str,
        headers: Vec<(&'static str, String)>,
        body: impl Into<Vec<u8>>,
    ) -> InboundRequest {
        InboundRequest {
            method: "POST",
            path: path.to_owned(),
            headers,
            body: body.into(),
        }
    }

    /// Returns a request that is signed as by Slack, `age` seconds ago.
    pub(crate) fn slack(path: &str, secret: &str, body: &str, age: u64) -> InboundRequest {
        let timestamp = (unix_time().as_secs() - age).to_string();
        let parts = [
            b"v0:".as_slice(),
            timestamp.as_bytes(),
            b":",
            body.as_bytes(),
        ];
        let signed = format!(
            "v0={}",
            signature::hex_signature(&Secret::new(secret), &parts)
        );
        InboundRequest::new(
            path,
            vec![
                ("x-slack-request-timestamp", timestamp),
                ("x-slack-signature", signed),
            ],
            body,
        )
    }

    pub(crate) fn github(path: &str, secret: &str, event: &str, body: &str) -> InboundRequest {
        let signed = format!(
            "sha256={}",
            signature::hex_signature(&Secret::new(secret), &[body.as_bytes()])
        );
        let guid = format!("{:x}", unix_time().as_nanos());
        let headers = vec![
            ("x-hub-signature-256", signed),
            ("x-github-event", event.to_owned()),
            ("x-github-delivery", guid),
        ];
        InboundRequest::new(path, headers, body)
    }

    pub(crate) fn linear(path: &str, secret: &str, body: &str) -> InboundRequest {
        let signed = signature::hex_signature(&Secret::new(secret), &[body.as_bytes()]);
        InboundRequest::new(path, vec![("linear-signature", signed)], body)
    }

    pub(crate) fn without_signature(mut self) -> InboundRequest {
        self.headers
            .retain(|header| !header.0.contains("signature"));
        self
    }

    pub(crate) fn head_text(&self, host: &str, length: &str) -> String {
        let headers: String = self
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let kind = "content-type: application/json\r\n";
        format!(
            "{} {} HTTP/1.1\r\nhost: {host}\r\n{kind}{length}\r\n{headers}\r\n",
            self.method, self.path
        )
    }

    pub(crate) fn bytes(&self, host: &str) -> Vec<u8> {
        let mut bytes = self
            .head_text(host, &format!("content-length: {}", self.body.len()))
            .into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A connection that stays open as long as the daemon keeps it open.
pub(crate) struct OpenConnection {
    address: String,
    stream: Option<BufReader<TcpStream>>,
}

impl OpenConnection {
    pub(crate) fn new(address: &str) -> OpenConnection {
        OpenConnection {
            address: address.to_owned(),
            stream: None,
        }
    }

    /// Sends some bytes and returns the status of the answer.
    pub(crate) fn request_status(&mut self, bytes: &[u8]) -> std::io::Result<u16> {
        let kept = self.stream.is_some();
        match self.exchange(bytes) {
            // The daemon may have closed the connection in the meantime.
            Err(_) if kept => {
                self.stream = None;
                self.exchange(bytes)
            }
            other => other,
        }
    }

    fn exchange(&mut self, bytes: &[u8]) -> std::io::Result<u16> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.address)?;
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        // A daemon that refuses a request early may close the connection before all bytes are sent.
        // The answer still counts.
        let _cut = stream.get_mut().write_all(bytes);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let cut = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the answer was cut");
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|line| line.parse().ok())
            .ok_or_else(cut)?;
        let (mut length, mut closes) = (0, false);
        loop {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Err(cut());
            }
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(s) = header.strip_prefix("content-length: ") {
                length = s.parse().map_err(|_| cut())?;
            }
            closes |= header == "connection: close";
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        self.stream = (!closes).then_some(stream);
        Ok(status)
    }
}

/// Returns a number from the environment that sets the size of a run.
pub(crate) fn number_from_environment(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}
