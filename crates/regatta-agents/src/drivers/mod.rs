//! The drivers, one for each protocol, and what each needs to start its program.
//!
//! Layout: [`Setup`] is all a driver knows from outside; `start` is the command line, the variables and the files of a
//! program; `acp`, `claude`, `codex`, `codex_server` and `command` are the drivers; `rpc`, `verdict`, `input` and
//! `common` are what they share.
//!
//! The attempt's token is in none of it. Where a program must be told it on its input, the driver says
//! [`TOKEN_PLACE`] instead and [`fill`] puts the token in just before the line is written, so that neither the journal
//! nor `launch.json` ever holds it and a daemon that starts anew needs it no more than the old one did. Programs that
//! take it from their environment find it in [`TOKEN_VARIABLE`].

mod acp;
mod claude;
mod codex;
mod codex_server;
mod command;
mod common;
mod input;
pub(crate) mod rpc;
mod start;
mod verdict;

#[cfg(test)]
mod replay;

use std::path::PathBuf;

use regatta_core::agent::{Profile, Runtime};
use regatta_core::session::Usage;
use serde::{Deserialize, Serialize};

use crate::driver::Driver;
use crate::rundir::Input;

pub use start::{command_line, environment, files};

/// Stands for the prompt in an argument.
pub const PROMPT: &str = "{prompt}";

/// Stands for our own program, as a whole argument.
pub const REGATTA: &str = "{regatta}";

/// The variable in which a program finds the token of its attempt.
pub const TOKEN_VARIABLE: &str = "REGATTA_TOKEN";

/// Stands for the token in what a driver says.
pub const TOKEN_PLACE: &str = "${REGATTA_TOKEN}";

/// What a driver knows from outside: enough to drive, and to be made again after a restart. It holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    pub runtime: Runtime,
    pub profile: Profile,
    /// Where it works: absolute, as the program sees it.
    pub workspace: PathBuf,
    /// The native session to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// What the books already have for that session. Programs that report turn by turn start counting here.
    #[serde(default)]
    pub used: Usage,
    /// Where it reaches Regatta's tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_url: Option<String>,
    /// Our own program, which serves the tools to programs that must start their tool servers themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regatta: Option<PathBuf>,
    /// Names the attempt; session ids are derived from it where a program lets us choose.
    pub seed: String,
    /// It runs as root inside a sandbox of ours.
    #[serde(default)]
    pub sandboxed_root: bool,
}

impl Setup {
    /// Where its program begins: a directory of the workspace, or all of it.
    pub(crate) fn begins(&self) -> PathBuf {
        self.profile.cwd.as_ref().map_or_else(|| self.workspace.clone(), |it| self.workspace.join(it))
    }

    /// The native session's id, for programs that let us choose: always the same for one attempt.
    pub fn session_id(&self) -> String {
        self.resume.clone().unwrap_or_else(|| uuid(&[&self.seed, &self.workspace.to_string_lossy()]))
    }

    /// What the program is, as far as its preset or its command tells: `goose`, `codex-acp`.
    pub(crate) fn program(&self) -> &str {
        if let Some(preset) = &self.profile.preset {
            return preset;
        }
        let first = self.runtime.argv().and_then(|it| it.first()).map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or(first)
    }
}

/// The driver for a program.
pub fn of(setup: &Setup) -> Box<dyn Driver> {
    match &setup.runtime {
        Runtime::Scripted | Runtime::Acp { .. } => Box::new(acp::Acp::new(setup)),
        Runtime::Claude { .. } => Box::new(claude::Claude::new(setup)),
        Runtime::Codex { app_server: false, .. } => Box::new(codex::Codex::new(setup)),
        Runtime::Codex { app_server: true, .. } => Box::new(codex_server::Server::new(setup)),
        // Nothing is started for an outside agent; were it, it would be any program.
        Runtime::Command { .. } | Runtime::Outside => Box::new(command::AnyProgram::new(setup)),
    }
}

/// Where a program of this runtime reads what it is asked.
pub(crate) fn input(runtime: &Runtime) -> Input {
    match runtime {
        // One prompt, as it is: it has many lines, and what is said has one.
        Runtime::Command { .. } | Runtime::Codex { app_server: false, .. } | Runtime::Outside => Input::Prompt,
        Runtime::Scripted | Runtime::Acp { .. } | Runtime::Claude { .. } | Runtime::Codex { .. } => Input::Said,
    }
}

/// Puts the token into a line that opens a session; any other line, a prompt above all, stays as it is.
pub fn fill(line: &str, token: &str) -> String {
    if !line.contains(TOKEN_PLACE) {
        return line.to_owned();
    }
    let opens = matches!(rpc::read(line), Some(rpc::Message::Request { method, .. }) if acp::opens_session(&method));
    // The token is of our own making and holds nothing that JSON would escape.
    if opens { line.replace(TOKEN_PLACE, token) } else { line.to_owned() }
}

/// A UUID made of names: the same for the same names, and different enough for different ones.
fn uuid(names: &[&str]) -> String {
    // FNV-1a, 128 bits wide: no secret depends on it.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in names.iter().flat_map(|it| it.bytes().chain([0])) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    // Version 4, variant 1: programs check that.
    let hash = hash & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{hash:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_is_a_uuid_and_belongs_to_its_attempt() {
        let setup = |seed: &str, workspace: &str| Setup {
            workspace: workspace.into(),
            seed: seed.to_owned(),
            ..replay::setup(Runtime::Scripted)
        };
        let id = setup("A1", "/w").session_id();
        assert_eq!(id, setup("A1", "/w").session_id());
        assert_ne!(id, setup("A2", "/w").session_id());
        assert_ne!(id, setup("A1", "/v").session_id());
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!(parts.iter().map(|it| it.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('4') && "89ab".contains(&parts[3][..1]), "{id}");
    }

    /// S4: the token is put in at the last moment, and only where a session is opened.
    #[test]
    fn the_token_is_filled_in_only_where_a_session_is_opened() {
        let line = |method: &str| rpc::Dialect::Standard.request(1, method, serde_json::json!({ "t": TOKEN_PLACE }));
        assert!(fill(&line("session/new"), "tok-1").contains("tok-1"));
        assert!(fill(&line("session/load"), "tok-1").contains("tok-1"));
        assert_eq!(fill(&line("session/prompt"), "tok-1"), line("session/prompt"));
        assert_eq!(fill("plain ${REGATTA_TOKEN}", "tok-1"), "plain ${REGATTA_TOKEN}");
    }

    #[test]
    fn a_setup_survives_the_disk() {
        let mut setup = replay::setup(Runtime::Acp { argv: vec!["goose".into(), "acp".into()] });
        setup.mcp_url = Some("http://127.0.0.1:1/mcp".to_owned());
        let json = serde_json::to_string(&setup).unwrap();
        assert_eq!(serde_json::from_str::<Setup>(&json).unwrap(), setup);
    }
}
