//! Runs a program in a sandbox, for experiments: `cargo run --example confined -- LEVEL MECHANISM
//! EXE PROGRAM…`.
//! EXE is a program with the `confine` command, such as `regatta`.
#![allow(clippy::print_stderr, clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use regatta_agents::confine::{self, Confine, Limits, Mechanism, Network};
use regatta_core::agent::Level;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let directory = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let path: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    let level = if words[0] == "strict" { Level::Strict } else { Level::Workspace };
    let confine = Confine {
        level,
        asked: true,
        mechanism: Mechanism::ALL.into_iter().find(|it| it.to_string().starts_with(&words[1])),
        network: Network::of(level, None, &[]),
        tools: None,
        limits: Limits::default(),
        program: words[3].clone(),
        path,
        held: false,
        exe: PathBuf::from(&words[2]),
        data_dir: make("data"),
        run_dir: make("data/run"),
        workspace: make("data/workspace"),
        begins: None,
        home: make("data/home"),
        tmp: make("data/tmp"),
        outbox: make("data/outbox"),
        vault_objects: None,
        inputs: vec![],
        real_homes: confine::real_homes(),
        hidden: vec![],
        read: vec![],
        write: vec![],
    };
    let prepared = confine::prepare(&confine).unwrap_or_else(|error| panic!("{} {}", error.what, error.hint));
    eprintln!("{}", prepared.description);
    let (program, arguments) = prepared.argv_prefix.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).args(&words[3..]).env("HOME", &confine.home).env("TMPDIR", &confine.tmp).envs(prepared.env);
    let status = command.status().unwrap();
    ExitCode::from(u8::try_from(status.code().unwrap_or(255)).unwrap_or(255))
}
