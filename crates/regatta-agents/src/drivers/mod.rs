//! The drivers, one per protocol of agents' programs, and the facts that each needs to start its
//! program.
//!
//! [`DriverSetup`] holds all facts that a driver gets from outside. `command_line` builds the
//! command line, the environment variables and the files of a program. `acp`, `claude`, `codex`,
//! `codex_server` and `command` are the drivers; they share `rpc`, `error_class`, `input` and
//! `common`.
//!
//! No driver contains the attempt's access token. If a program needs the token in its input, the
//! driver writes [`TOKEN_PLACEHOLDER`], and [`fill_token`] replaces the placeholder just before the
//! line is sent to the program. The token is therefore neither in the journal nor in `launch.json`,
//! and a restarted daemon does not need it. Programs that read the token from their environment
//! find it in [`TOKEN_VARIABLE`].

mod acp;
mod claude;
mod codex;
mod codex_server;
mod command;
mod command_line;
mod common;
mod error_class;
pub(crate) mod rpc;
mod tool_call_object;

#[cfg(test)]
mod test_harness;

use std::path::PathBuf;

use regatta_core::agent::{Profile, Runtime};
use regatta_core::agent_protocol::Usage;
use serde::{Deserialize, Serialize};

use crate::driver::Driver;
use crate::run_dir::InputSource;

pub use command_line::{command_line, environment, home_files};

/// The placeholder for the prompt in an argument.
pub const PROMPT_PLACEHOLDER: &str = "{prompt}";

/// The placeholder for the regatta program, as a whole argument.
pub const REGATTA_PLACEHOLDER: &str = "{regatta}";

/// The environment variable in which a program finds the access token of its attempt.
pub const TOKEN_VARIABLE: &str = "REGATTA_TOKEN";

/// The placeholder for the attempt's access token in a driver's input to the program.
pub const TOKEN_PLACEHOLDER: &str = "${REGATTA_TOKEN}";

/// The facts that a driver gets from outside, enough to create it again after a restart. They
/// contain no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverSetup {
    pub runtime: Runtime,
    pub profile: Profile,
    /// The absolute path of the workspace, as the program sees it.
    pub workspace: PathBuf,
    /// The native session to resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// The usage that is already recorded for that session. Programs that report the usage per turn
    /// start counting here.
    #[serde(default)]
    pub used: Usage,
    /// The URL of Regatta's tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_url: Option<String>,
    /// The regatta program, which serves the tools to programs that must start their tool servers
    /// themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regatta: Option<PathBuf>,
    /// The name of the attempt. Session ids are derived from it for programs that accept a chosen
    /// id.
    pub seed: String,
    /// True if the program runs as root inside a sandbox of Regatta.
    #[serde(default)]
    pub sandboxed_root: bool,
}

impl DriverSetup {
    /// Returns the directory in which the program starts: the workspace or a directory in it.
    pub(crate) fn start_dir(&self) -> PathBuf {
        self.profile
            .cwd
            .as_ref()
            .map_or_else(|| self.workspace.clone(), |cwd| self.workspace.join(cwd))
    }

    /// Returns the id of the native session, for programs that accept a chosen id. It is always the
    /// same for one attempt.
    pub fn session_id(&self) -> String {
        self.resume
            .clone()
            .unwrap_or_else(|| uuid_from_names(&[&self.seed, &self.workspace.to_string_lossy()]))
    }

    /// Returns the program's name according to its preset or its command, such as `goose` or
    /// `codex-acp`.
    pub(crate) fn program_name(&self) -> &str {
        if let Some(preset) = &self.profile.preset {
            return preset;
        }
        let first = self
            .runtime
            .argv()
            .and_then(|argv| argv.first())
            .map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or(first)
    }
}

/// Creates the driver for a program.
pub fn new_driver(setup: &DriverSetup) -> Box<dyn Driver> {
    match &setup.runtime {
        Runtime::Scripted | Runtime::Acp { .. } => Box::new(acp::AcpDriver::new(setup)),
        Runtime::Claude { .. } => Box::new(claude::ClaudeDriver::new(setup)),
        Runtime::Codex {
            app_server: false, ..
        } => Box::new(codex::CodexExecDriver::new(setup)),
        Runtime::Codex {
            app_server: true, ..
        } => Box::new(codex_server::CodexServerDriver::new(setup)),
        // An outside agent is never started. If it were, it would count as any program.
        Runtime::Command { .. } | Runtime::Outside => Box::new(command::CommandDriver::new(setup)),
    }
}

/// Returns the source of the input for a program of this runtime.
pub(crate) fn input_source(runtime: &Runtime) -> InputSource {
    match runtime {
        // These programs get one prompt with many lines, while a driver sends single lines.
        Runtime::Command { .. }
        | Runtime::Codex {
            app_server: false, ..
        }
        | Runtime::Outside => InputSource::Prompt,
        Runtime::Scripted
        | Runtime::Acp { .. }
        | Runtime::Claude { .. }
        | Runtime::Codex { .. } => InputSource::Lines,
    }
}

/// Replaces the placeholder by the access token in a line that opens a session. Other lines, above
/// all prompts, stay unchanged.
pub fn fill_token(line: &str, token: &str) -> String {
    if !line.contains(TOKEN_PLACEHOLDER) {
        return line.to_owned();
    }
    let opens_session = matches!(rpc::parse_message(line), Some(rpc::RpcMessage::Request { method, .. }) if acp::opens_session(&method));
    // The access token needs no escaping, because Regatta creates it without characters that JSON
    // escapes.
    if opens_session {
        line.replace(TOKEN_PLACEHOLDER, token)
    } else {
        line.to_owned()
    }
}

/// Builds a UUID from names. The same names give the same UUID.
fn uuid_from_names(names: &[&str]) -> String {
    // The hash is FNV-1a with 128 bits, which is good enough because no secret depends on it.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in names.iter().flat_map(|name| name.bytes().chain([0])) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    // Some programs check that the UUID has version 4 and variant 1.
    let hash = hash & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{hash:032x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_id_is_a_uuid_that_depends_on_attempt_and_workspace() {
        let setup = |seed: &str, workspace: &str| DriverSetup {
            workspace: workspace.into(),
            seed: seed.to_owned(),
            ..test_harness::setup(Runtime::Scripted)
        };
        let id = setup("A1", "/w").session_id();
        assert_eq!(id, setup("A1", "/w").session_id());
        assert_ne!(id, setup("A2", "/w").session_id());
        assert_ne!(id, setup("A1", "/v").session_id());
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert!(
            parts[2].starts_with('4') && "89ab".contains(&parts[3][..1]),
            "{id}"
        );
    }

    /// S4: the access token is inserted when the line is sent, and only into a line that opens a
    /// session.
    #[test]
    fn s4_the_token_is_inserted_only_into_a_line_that_opens_a_session() {
        let line = |method: &str| {
            rpc::RpcDialect::Standard.request(
                1,
                method,
                serde_json::json!({ "t": TOKEN_PLACEHOLDER }),
            )
        };
        assert!(fill_token(&line("session/new"), "tok-1").contains("tok-1"));
        assert!(fill_token(&line("session/load"), "tok-1").contains("tok-1"));
        assert_eq!(
            fill_token(&line("session/prompt"), "tok-1"),
            line("session/prompt")
        );
        assert_eq!(
            fill_token("plain ${REGATTA_TOKEN}", "tok-1"),
            "plain ${REGATTA_TOKEN}"
        );
    }

    #[test]
    fn setup_survives_serialisation() {
        let mut setup = test_harness::setup(Runtime::Acp {
            argv: vec!["goose".into(), "acp".into()],
        });
        setup.mcp_url = Some("http://127.0.0.1:1/mcp".to_owned());
        let json = serde_json::to_string(&setup).unwrap();
        assert_eq!(serde_json::from_str::<DriverSetup>(&json).unwrap(), setup);
    }
}
