//! The programs with their pinned versions, and the settings for running each without network and
//! key.

use std::path::{Path, PathBuf};

use serde_json::json;

/// A program in the npm registry.
#[derive(Debug)]
pub(crate) struct NpmProgram {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// The file to start, relative to the installation directory.
    entry_path: &'static str,
    /// True if the file is a script for Node.
    is_node_script: bool,
}

pub(crate) const NODE: NpmProgram = NpmProgram {
    name: "node",
    package: "node",
    version: "22",
    entry_path: "node_modules/node/bin/node",
    is_node_script: false,
};

const GOOSE: NpmProgram = NpmProgram {
    name: "goose",
    package: "@aaif/goose-binary-linux-x64",
    version: "1.52.0",
    entry_path: "node_modules/@aaif/goose-binary-linux-x64/bin/goose",
    is_node_script: false,
};

const CLAUDE: NpmProgram = NpmProgram {
    name: "claude",
    package: "@anthropic-ai/claude-code",
    version: "2.1.325",
    entry_path: "node_modules/@anthropic-ai/claude-code-linux-x64/claude",
    is_node_script: false,
};

const CLAUDE_ACP: NpmProgram = NpmProgram {
    name: "claude-agent-acp",
    package: "@agentclientprotocol/claude-agent-acp",
    version: "0.99.0",
    entry_path: "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
    is_node_script: true,
};

const CODEX: NpmProgram = NpmProgram {
    name: "codex",
    package: "@openai/codex",
    version: "0.166.0",
    // The package's own start script would keep a Node process between us and the program.
    entry_path: "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    is_node_script: false,
};

const CODEX_ACP: NpmProgram = NpmProgram {
    name: "codex-acp",
    package: "@agentclientprotocol/codex-acp",
    version: "2.6.0",
    entry_path: "node_modules/@agentclientprotocol/codex-acp/dist/index.js",
    is_node_script: true,
};

const GEMINI: NpmProgram = NpmProgram {
    name: "gemini",
    package: "@google/gemini-cli",
    version: "0.61.0",
    entry_path: "node_modules/@google/gemini-cli/bundle/gemini.js",
    is_node_script: true,
};

const OPENCODE: NpmProgram = NpmProgram {
    name: "opencode",
    package: "opencode-ai",
    version: "1.18.33",
    entry_path: "node_modules/opencode-linux-x64/bin/opencode",
    is_node_script: false,
};

/// All programs, in the order of the table.
pub(crate) const ALL_PROGRAMS: [&NpmProgram; 7] = [
    &GOOSE,
    &CLAUDE,
    &CLAUDE_ACP,
    &CODEX,
    &CODEX_ACP,
    &GEMINI,
    &OPENCODE,
];

impl NpmProgram {
    /// Returns the installation directory.
    pub(crate) fn install_dir(&self, installed: &Path) -> PathBuf {
        installed.join(self.name)
    }

    /// Returns the file to start.
    pub(crate) fn entry(&self, installed: &Path) -> PathBuf {
        self.install_dir(installed).join(self.entry_path)
    }

    fn argv(&self, installed: &Path, args: &[&str]) -> Vec<String> {
        let entry = path_text(&self.entry(installed));
        let mut argv = if self.is_node_script {
            vec![path_text(&NODE.entry(installed)), entry]
        } else {
            vec![entry]
        };
        argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        argv
    }
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The protocol with which a program is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramDriver {
    Acp,
    /// Claude Code's own stream.
    Claude,
    /// Codex with one `exec` per turn.
    CodexExec,
    /// Codex with one `app-server` per session.
    CodexServer,
}

impl ProgramDriver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ProgramDriver::Acp => "acp",
            ProgramDriver::Claude => "claude",
            ProgramDriver::CodexExec => "codex (exec)",
            ProgramDriver::CodexServer => "codex (app-server)",
        }
    }
}

/// One row of the table: a program with its protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramRow {
    pub(crate) program: &'static NpmProgram,
    pub(crate) driver: ProgramDriver,
    /// Regatta's preset for this row.
    pub(crate) preset: &'static str,
}

/// All rows of the table.
pub(crate) const ROWS: [ProgramRow; 8] = [
    ProgramRow {
        program: &GOOSE,
        driver: ProgramDriver::Acp,
        preset: "goose",
    },
    ProgramRow {
        program: &CLAUDE,
        driver: ProgramDriver::Claude,
        preset: "claude-native",
    },
    ProgramRow {
        program: &CLAUDE_ACP,
        driver: ProgramDriver::Acp,
        preset: "claude",
    },
    ProgramRow {
        program: &CODEX,
        driver: ProgramDriver::CodexExec,
        preset: "codex-exec",
    },
    ProgramRow {
        program: &CODEX,
        driver: ProgramDriver::CodexServer,
        preset: "codex-native",
    },
    ProgramRow {
        program: &CODEX_ACP,
        driver: ProgramDriver::Acp,
        preset: "codex",
    },
    ProgramRow {
        program: &GEMINI,
        driver: ProgramDriver::Acp,
        preset: "gemini",
    },
    ProgramRow {
        program: &OPENCODE,
        driver: ProgramDriver::Acp,
        preset: "opencode",
    },
];

/// Returns the row of a preset.
pub(crate) fn row_of_preset(preset: &str) -> ProgramRow {
    *ROWS
        .iter()
        .find(|program| program.preset == preset)
        .expect("the preset is in the table")
}

/// Selects whether the program asks for permission before it uses a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermissionMode {
    Never,
    Always,
}

/// The command, variables and settings of a program. The settings have a directory of their own,
/// named by variables, so that the home directory does not matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramSettings {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// The variable with the key.
    pub(crate) key_variable: &'static str,
    /// The program's own permission mode, if the protocol sets it.
    pub(crate) mode: Option<&'static str>,
    /// The files of the settings directory.
    pub(crate) settings_files: Vec<(&'static str, String)>,
}

/// The paths and addresses for an outfit: installed programs, model server, settings directory.
pub(crate) struct SettingsContext<'a> {
    pub(crate) installed: &'a Path,
    pub(crate) models_url: &'a str,
    pub(crate) settings_dir: &'a Path,
}

impl ProgramRow {
    /// Returns the outfit for a run.
    pub(crate) fn program_settings(
        &self,
        place: &SettingsContext<'_>,
        asks: PermissionMode,
    ) -> ProgramSettings {
        let mut outfit = match self.program.name {
            "goose" => goose_program(place, asks),
            "claude" => claude_program(place, asks),
            "claude-agent-acp" => claude_acp_program(place, asks),
            "codex" => codex_program(place, asks),
            "codex-acp" => codex_acp_program(place, asks),
            "gemini" => gemini_program(place, asks),
            _ => opencode_program(place, asks),
        };
        // Scripts look for `node` in the path, and so may the programs that they start.
        let node = NODE.entry(place.installed);
        let dir = node.parent().map(path_text).unwrap_or_default();
        outfit
            .env
            .push(("PATH".into(), format!("{dir}:/usr/local/bin:/usr/bin:/bin")));
        outfit
    }

    /// Returns the arguments that the preset does not contain.
    pub(crate) fn more_args<'a>(&self, outfit: &'a ProgramSettings) -> &'a [String] {
        let args = &outfit.argv[if self.program.is_node_script { 2 } else { 1 }..];
        let brought = args
            .iter()
            .take_while(|arg| ["acp", "--acp"].contains(&arg.as_str()))
            .count();
        &args[brought..]
    }

    /// Returns the reason why the program never asks for permission, if that is so.
    pub(crate) fn never_asks(&self) -> Option<&'static str> {
        (self.driver == ProgramDriver::CodexExec).then_some("`codex exec` never asks")
    }
}

fn owned_pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|pair| (pair.0.to_owned(), pair.1.to_owned()))
        .collect()
}

fn goose_program(place: &SettingsContext<'_>, asks: PermissionMode) -> ProgramSettings {
    let mode = if asks == PermissionMode::Always {
        "approve"
    } else {
        "auto"
    };
    ProgramSettings {
        argv: GOOSE.argv(place.installed, &["acp", "--with-builtin", "developer"]),
        env: owned_pairs(&[
            ("GOOSE_PROVIDER", "openai"),
            ("GOOSE_MODEL", "stub-model"),
            ("OPENAI_HOST", place.models_url),
            ("OPENAI_BASE_PATH", "v1/chat/completions"),
            ("GOOSE_MODE", mode),
            ("GOOSE_DISABLE_KEYRING", "1"),
            ("GOOSE_TELEMETRY_OFF", "1"),
        ]),
        key_variable: "OPENAI_API_KEY",
        ..ProgramSettings::default()
    }
}

/// Returns Claude's variables. Without them it opens six connections, and retries a failing model
/// for three minutes.
fn claude_env(place: &SettingsContext<'_>) -> Vec<(String, String)> {
    owned_pairs(&[
        ("ANTHROPIC_BASE_URL", place.models_url),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", "2"),
        ("CLAUDE_CONFIG_DIR", &path_text(place.settings_dir)),
    ])
}

fn claude_settings(asks: PermissionMode) -> Vec<(&'static str, String)> {
    let mode = if asks == PermissionMode::Always {
        "default"
    } else {
        "bypassPermissions"
    };
    vec![(
        "settings.json",
        json!({"permissions": {"defaultMode": mode}}).to_string(),
    )]
}

fn claude_program(place: &SettingsContext<'_>, asks: PermissionMode) -> ProgramSettings {
    ProgramSettings {
        argv: CLAUDE.argv(place.installed, &[]),
        env: claude_env(place),
        key_variable: "ANTHROPIC_API_KEY",
        mode: Some(if asks == PermissionMode::Always {
            "default"
        } else {
            "bypassPermissions"
        }),
        settings_files: claude_settings(asks),
    }
}

fn claude_acp_program(place: &SettingsContext<'_>, asks: PermissionMode) -> ProgramSettings {
    ProgramSettings {
        argv: CLAUDE_ACP.argv(place.installed, &[]),
        env: claude_env(place),
        key_variable: "ANTHROPIC_API_KEY",
        mode: None,
        settings_files: claude_settings(asks),
    }
}

/// Returns Codex's settings. Unless the features are off, every start loads plugins from a remote
/// server. Only with a model that Codex knows does it offer `apply_patch`.
fn codex_settings(
    place: &SettingsContext<'_>,
    asks: PermissionMode,
) -> Vec<(&'static str, String)> {
    let (policy, sandbox) = if asks == PermissionMode::Always {
        ("on-request", "read-only")
    } else {
        ("never", "danger-full-access")
    };
    let settings = format!(
        "model = \"gpt-5.5\"\n\
         model_provider = \"stub\"\n\
         check_for_update_on_startup = false\n\
         approval_policy = \"{policy}\"\n\
         sandbox_mode = \"{sandbox}\"\n\
         [model_providers.stub]\n\
         name = \"stub\"\n\
         base_url = \"{}/v1\"\n\
         env_key = \"STUB_API_KEY\"\n\
         wire_api = \"responses\"\n\
         request_max_retries = 2\n\
         stream_max_retries = 2\n\
         [features]\n\
         plugins = false\n\
         remote_plugin = false\n\
         plugin_discovery_prefetch = false\n\
         apps = false\n\
         shell_snapshot = false\n\
         multi_agent = false\n\
         goals = false\n\
         [analytics]\n\
         enabled = false\n\
         [otel]\n\
         exporter = \"none\"\n\
         metrics_exporter = \"none\"\n\
         trace_exporter = \"none\"\n",
        place.models_url
    );
    vec![("config.toml", settings)]
}

fn codex_program(place: &SettingsContext<'_>, asks: PermissionMode) -> ProgramSettings {
    let mode = if asks == PermissionMode::Always {
        "on-request+read-only"
    } else {
        "never+danger-full-access"
    };
    ProgramSettings {
        argv: CODEX.argv(place.installed, &[]),
        env: owned_pairs(&[("CODEX_HOME", &path_text(place.settings_dir))]),
        key_variable: "STUB_API_KEY",
        mode: Some(mode),
        settings_files: codex_settings(place, asks),
    }
}

fn codex_acp_program(place: &SettingsContext<'_>, asks: PermissionMode) -> ProgramSettings {
    let mode = if asks == PermissionMode::Always {
        "read-only"
    } else {
        "agent-full-access"
    };
    ProgramSettings {
        argv: CODEX_ACP.argv(place.installed, &[]),
        env: owned_pairs(&[
            ("CODEX_HOME", &path_text(place.settings_dir)),
            ("NO_BROWSER", "1"),
            ("INITIAL_AGENT_MODE", mode),
        ]),
        key_variable: "STUB_API_KEY",
        mode: None,
        settings_files: codex_settings(place, asks),
    }
}

fn gemini_program(place: &SettingsContext<'_>, asks: PermissionMode) -> ProgramSettings {
    let mut args = vec!["--acp", "-m", "gemini-2.5-flash"];
    if asks == PermissionMode::Never {
        args.extend(["--approval-mode", "yolo"]);
    }
    let settings = json!({
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
        "general": {"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true, "maxAttempts": 2},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "ide": {"enabled": false},
    });
    ProgramSettings {
        argv: GEMINI.argv(place.installed, &args),
        env: owned_pairs(&[
            ("GOOGLE_GEMINI_BASE_URL", place.models_url),
            // System-wide settings would work, but the number of attempts is not read from there.
            ("GEMINI_CLI_HOME", &path_text(place.settings_dir)),
            ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            ("GEMINI_TELEMETRY_ENABLED", "false"),
            ("GEMINI_CLI_NO_RELAUNCH", "true"),
            ("NO_COLOR", "1"),
        ]),
        key_variable: "GEMINI_API_KEY",
        mode: None,
        settings_files: vec![(".gemini/settings.json", settings.to_string())],
    }
}

fn opencode_program(place: &SettingsContext<'_>, asks: PermissionMode) -> ProgramSettings {
    let may = if asks == PermissionMode::Always {
        "ask"
    } else {
        "allow"
    };
    let limits = json!({"context": 200_000, "output": 8192});
    let settings = json!({
        "autoupdate": false,
        "share": "disabled",
        "model": "stub/stub-model",
        "small_model": "stub/stub-model",
        "enabled_providers": ["stub"],
        "permission": {"*": may},
        "provider": {"stub": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Stub",
            "options": {"baseURL": format!("{}/v1", place.models_url), "apiKey": "{env:STUB_API_KEY}"},
            "models": {"stub-model": {"name": "Stub", "tool_call": true, "limit": limits}},
        }},
    });
    let version = OPENCODE.version;
    ProgramSettings {
        argv: OPENCODE.argv(place.installed, &["acp"]),
        env: owned_pairs(&[
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
            ("OPENCODE_DISABLE_SHARE", "1"),
            ("OPENCODE_DISABLE_CLAUDE_CODE", "1"),
            ("OPENCODE_CONFIG_CONTENT", &settings.to_string()),
            ("XDG_CONFIG_HOME", &path_text(place.settings_dir)),
        ]),
        key_variable: "STUB_API_KEY",
        mode: None,
        // Without these two files OpenCode loads its plugin package from the registry at every
        // start.
        settings_files: vec![
            (
                "opencode/package.json",
                json!({"dependencies": {"@opencode-ai/plugin": version}}).to_string(),
            ),
            (
                "opencode/node_modules/@opencode-ai/plugin/package.json",
                json!({"name": "@opencode-ai/plugin", "version": version}).to_string(),
            ),
        ],
    }
}
