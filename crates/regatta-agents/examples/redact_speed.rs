//! Measures the speed of the redactor: `cargo run --release -p regatta-agents --example
//! redact_speed`.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use regatta_agents::redact::Redactor;

fn main() {
    let secrets = (0..5)
        .map(|n| {
            (
                format!("KEY_{n}"),
                format!("s3cret-value-{n}-{}", "x7".repeat(20)),
            )
        })
        .collect();
    let redactor = Redactor::new(secrets);
    let prose = "The quick brown fox jumps over the lazy dog, and the bearer of this list begins \
        again in English. ";
    let code = "    let names: Vec<&str> = line.split(',').map(str::trim).filter(|name| \
        !name.is_empty()).collect(); // github ";
    let json = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"abc","update":{"content":{"text":"fn main() { let x = 1; }\n"}}}}"#;
    let base64 = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5eg/+";
    let keys =
        r#"{"text":"the key is sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789 and that is it"}"#;
    for (name, sample) in [
        ("prose", prose),
        ("code", code),
        ("json", json),
        ("base64", base64),
        ("a key in every line", keys),
    ] {
        for length in [200, 4096] {
            let line = if name.starts_with('a') {
                sample.to_owned()
            } else {
                sample.chars().cycle().take(length).collect()
            };
            let rounds = 200_000_000 / line.len();
            let start = Instant::now();
            for _ in 0..rounds {
                black_box(redactor.redact_line(black_box(&line)));
            }
            let rate = (rounds * line.len()) as f64 / start.elapsed().as_secs_f64() / 1e6;
            println!("{name:>20} lines of {:>4}: {rate:.0} MB/s", line.len());
        }
    }
}
