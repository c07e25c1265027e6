//! The scripted agent as a separate program, for the conformance test.

use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    regatta_agents::scripted::acp(None, BufReader::new(stdin()), &mut stdout())
}
