//! Runs a program in a sandbox, for experiments: `cargo run --example confined -- LEVEL MECHANISM
//! EXE PROGRAM…`.
//! EXE is a program with the `confine` command, such as `regatta`.
#![allow(clippy::print_stderr, clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use regatta_agents::sandbox::{self, NetworkAccess, ResourceLimits, SandboxMechanism, SandboxSpec};
use regatta_core::agent::SandboxLevel;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let directory = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let path: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    let level = if words[0] == "strict" {
        SandboxLevel::Strict
    } else {
        SandboxLevel::Workspace
    };
    let confine = SandboxSpec {
        level,
        is_requested: true,
        mechanism: SandboxMechanism::ALL
            .into_iter()
            .find(|sandbox_mechanism| sandbox_mechanism.to_string().starts_with(&words[1])),
        network: NetworkAccess::from_profile(level, None, &[]),
        tools_url: None,
        limits: ResourceLimits::default(),
        program: words[3].clone(),
        search_path: path,
        waits_for_shim: false,
        regatta_exe: PathBuf::from(&words[2]),
        data_dir: make("data"),
        run_dir: make("data/run"),
        workspace: make("data/workspace"),
        start_dir: None,
        home: make("data/home"),
        tmp: make("data/tmp"),
        outbox: make("data/outbox"),
        vault_objects: None,
        input_files: vec![],
        user_homes: sandbox::user_homes(),
        hidden_paths: vec![],
        read_paths: vec![],
        write_paths: vec![],
    };
    let prepared = sandbox::prepare(&confine)
        .unwrap_or_else(|error| panic!("{} {}", error.message, error.hint));
    eprintln!("{}", prepared.description);
    let (program, arguments) = prepared.argv_prefix.split_first().unwrap();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(&words[3..])
        .env("HOME", &confine.home)
        .env("TMPDIR", &confine.tmp)
        .envs(prepared.env);
    let status = command.status().unwrap();
    ExitCode::from(u8::try_from(status.code().unwrap_or(255)).unwrap_or(255))
}
