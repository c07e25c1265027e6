//! The scripted agent as a program of its own, for the test to talk with.

use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    regatta_agents::scripted::acp(None, BufReader::new(stdin()), &mut stdout())
}
