//! A daemon of the program in a temporary directory, for questions about its tools and metrics.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// A temporary home and repository with a running daemon.
pub(super) struct Scratch {
    program: PathBuf,
    directory: tempfile::TempDir,
}

impl Scratch {
    pub(super) fn start(program: &Path) -> io::Result<Scratch> {
        let directory = tempfile::Builder::new()
            .prefix("regatta-reference-")
            .tempdir()?;
        for name in ["home", "shop"] {
            std::fs::create_dir(directory.path().join(name))?;
        }
        let scratch = Scratch {
            program: program.canonicalize()?,
            directory,
        };
        let commit = ["commit", "-q", "--allow-empty", "-m", "Start"];
        let identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"];
        for args in [
            &["init", "-q", "-b", "main"][..],
            &[&identity[..], &commit[..]].concat(),
        ] {
            scratch.output(Path::new("git"), args, "", None)?;
        }
        scratch.run(&["init", "--yes", "--no-router", "--validate", "true"])?;
        Ok(scratch)
    }

    /// Runs the program and returns its standard output.
    pub(super) fn run(&self, args: &[&str]) -> io::Result<String> {
        self.output(&self.program, args, "", None)
    }

    fn output(
        &self,
        program: &Path,
        args: &[&str],
        input: &str,
        token: Option<&str>,
    ) -> io::Result<String> {
        let root = self.directory.path();
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(root.join("shop"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", root.join("home"))
            .env("TMPDIR", root)
            .env("LANG", "C.UTF-8")
            .env("USER", "ann")
            .env("REGATTA_DATA_DIR", root.join("data"))
            .env("REGATTA_LISTEN", "127.0.0.1:0")
            .envs(token.map(|token| ("REGATTA_TOKEN", token)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child
            .stdin
            .take()
            .expect("it is piped")
            .write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        if output.status.success() {
            return String::from_utf8(output.stdout).map_err(io::Error::other);
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!(
            "{} {args:?} failed: {error}",
            program.display()
        )))
    }

    /// Returns the tools that the MCP server shows to the owner of a token, or to a person.
    pub(super) fn tools(&self, token: Option<&str>) -> io::Result<Vec<Value>> {
        let client = json!({ "name": "reference", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        let calls = [
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }),
            json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }),
        ];
        let input: String = calls.iter().map(|call| format!("{call}\n")).collect();
        let output = self.output(&self.program, &["mcp"], &input, token)?;
        let answers: Vec<Value> = output
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        let answer = answers.iter().find(|answer| answer["id"] == 2);
        let tools = answer.and_then(|answer| answer["result"]["tools"].as_array());
        tools
            .cloned()
            .ok_or_else(|| io::Error::other(format!("no tools: {output}")))
    }

    /// Registers an outside agent, gives it a task and returns the token of its attempt.
    pub(super) fn attempt_token(&self, agent: &str, options: &[&str]) -> io::Result<String> {
        let add = [&["agent", "add", agent, "--runtime", "outside"], options].concat();
        self.run(&add)?;
        self.run(&["add", agent, "--files", agent, "--assign", agent])?;
        let answer = self.run(&["task", "poll", "--as", agent, "--json"])?;
        let answer: Value = serde_json::from_str(&answer)?;
        let token = answer["data"]["bearer"].as_str().map(str::to_owned);
        token.ok_or_else(|| io::Error::other(format!("no attempt for {agent}: {answer}")))
    }

    /// Returns the daemon's page of metrics.
    pub(super) fn metrics(&self) -> io::Result<String> {
        let opened = self.run(&["open"])?;
        let host = opened
            .trim()
            .trim_start_matches("http://")
            .split('/')
            .next()
            .unwrap_or("");
        let token = std::fs::read_to_string(self.directory.path().join("data/token"))?;
        let mut connection = TcpStream::connect(host)?;
        write!(
            connection,
            "GET /metrics HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n",
            token.trim()
        )?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _stops_a_daemon_that_a_failure_left = self.run(&["down"]);
    }
}
