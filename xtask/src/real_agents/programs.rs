//! The programs with their pinned versions, and the settings for running each without network and
//! key.

use std::path::{Path, PathBuf};

use serde_json::json;

/// A program in the npm registry.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// The file to start, relative to the installation directory.
    entry: &'static str,
    /// Whether the file is a script for Node.
    script: bool,
}

pub(crate) const NODE: Program =
    Program { name: "node", package: "node", version: "22", entry: "node_modules/node/bin/node", script: false };

const GOOSE: Program = Program {
    name: "goose",
    package: "@aaif/goose-binary-linux-x64",
    version: "1.52.0",
    entry: "node_modules/@aaif/goose-binary-linux-x64/bin/goose",
    script: false,
};

const CLAUDE: Program = Program {
    name: "claude",
    package: "@anthropic-ai/claude-code",
    version: "2.1.325",
    entry: "node_modules/@anthropic-ai/claude-code-linux-x64/claude",
    script: false,
};

const CLAUDE_ACP: Program = Program {
    name: "claude-agent-acp",
    package: "@agentclientprotocol/claude-agent-acp",
    version: "0.99.0",
    entry: "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
    script: true,
};

const CODEX: Program = Program {
    name: "codex",
    package: "@openai/codex",
    version: "0.166.0",
    // The package's own start script would keep a Node process between us and the program.
    entry: "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    script: false,
};

const CODEX_ACP: Program = Program {
    name: "codex-acp",
    package: "@agentclientprotocol/codex-acp",
    version: "2.6.0",
    entry: "node_modules/@agentclientprotocol/codex-acp/dist/index.js",
    script: true,
};

const GEMINI: Program = Program {
    name: "gemini",
    package: "@google/gemini-cli",
    version: "0.61.0",
    entry: "node_modules/@google/gemini-cli/bundle/gemini.js",
    script: true,
};

const OPENCODE: Program = Program {
    name: "opencode",
    package: "opencode-ai",
    version: "1.18.33",
    entry: "node_modules/opencode-linux-x64/bin/opencode",
    script: false,
};

/// All programs, in the order of the table.
pub(crate) const ALL: [&Program; 7] = [&GOOSE, &CLAUDE, &CLAUDE_ACP, &CODEX, &CODEX_ACP, &GEMINI, &OPENCODE];

impl Program {
    /// Returns the installation directory.
    pub(crate) fn home(&self, installed: &Path) -> PathBuf {
        installed.join(self.name)
    }

    /// Returns the file to start.
    pub(crate) fn entry(&self, installed: &Path) -> PathBuf {
        self.home(installed).join(self.entry)
    }

    fn argv(&self, installed: &Path, args: &[&str]) -> Vec<String> {
        let entry = text(&self.entry(installed));
        let mut argv = if self.script { vec![text(&NODE.entry(installed)), entry] } else { vec![entry] };
        argv.extend(args.iter().map(|it| (*it).to_owned()));
        argv
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The protocol with which a program is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    Acp,
    /// Claude Code's own stream.
    Claude,
    /// Codex with one `exec` per turn.
    CodexExec,
    /// Codex with one `app-server` per session.
    CodexServer,
}

impl Drive {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Drive::Acp => "acp",
            Drive::Claude => "claude",
            Drive::CodexExec => "codex (exec)",
            Drive::CodexServer => "codex (app-server)",
        }
    }
}

/// One row of the table: a program with its protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) program: &'static Program,
    pub(crate) drive: Drive,
    /// Regatta's preset for this row.
    pub(crate) preset: &'static str,
}

/// All rows of the table.
pub(crate) const ROWS: [Row; 8] = [
    Row { program: &GOOSE, drive: Drive::Acp, preset: "goose" },
    Row { program: &CLAUDE, drive: Drive::Claude, preset: "claude-native" },
    Row { program: &CLAUDE_ACP, drive: Drive::Acp, preset: "claude" },
    Row { program: &CODEX, drive: Drive::CodexExec, preset: "codex-exec" },
    Row { program: &CODEX, drive: Drive::CodexServer, preset: "codex-native" },
    Row { program: &CODEX_ACP, drive: Drive::Acp, preset: "codex" },
    Row { program: &GEMINI, drive: Drive::Acp, preset: "gemini" },
    Row { program: &OPENCODE, drive: Drive::Acp, preset: "opencode" },
];

/// Returns the row of a preset.
pub(crate) fn row(preset: &str) -> Row {
    *ROWS.iter().find(|it| it.preset == preset).expect("the preset is in the table")
}

/// Whether the program asks for permission before it uses a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Never,
    Always,
}

/// The command, variables and settings of a program. The settings have a directory of their own,
/// named by variables, so that the home directory does not matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outfit {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// The variable with the key.
    pub(crate) key: &'static str,
    /// The program's own permission mode, if the protocol sets it.
    pub(crate) mode: Option<&'static str>,
    /// The files of the settings directory.
    pub(crate) files: Vec<(&'static str, String)>,
}

/// The paths and addresses for an outfit: installed programs, model server, settings directory.
pub(crate) struct Place<'a> {
    pub(crate) installed: &'a Path,
    pub(crate) models: &'a str,
    pub(crate) settings: &'a Path,
}

impl Row {
    /// Returns the outfit for a run.
    pub(crate) fn outfit(&self, place: &Place<'_>, asks: Asks) -> Outfit {
        let mut outfit = match self.program.name {
            "goose" => goose(place, asks),
            "claude" => claude(place, asks),
            "claude-agent-acp" => claude_acp(place, asks),
            "codex" => codex(place, asks),
            "codex-acp" => codex_acp(place, asks),
            "gemini" => gemini(place, asks),
            _ => opencode(place, asks),
        };
        // Scripts look for `node` in the path, and so may the programs that they start.
        let node = NODE.entry(place.installed);
        let dir = node.parent().map(text).unwrap_or_default();
        outfit.env.push(("PATH".into(), format!("{dir}:/usr/local/bin:/usr/bin:/bin")));
        outfit
    }

    /// Returns the arguments that the preset does not contain.
    pub(crate) fn more_args<'a>(&self, outfit: &'a Outfit) -> &'a [String] {
        let args = &outfit.argv[if self.program.script { 2 } else { 1 }..];
        let brought = args.iter().take_while(|it| ["acp", "--acp"].contains(&it.as_str())).count();
        &args[brought..]
    }

    /// Returns the reason why the program never asks for permission, if that is so.
    pub(crate) fn never_asks(&self) -> Option<&'static str> {
        (self.drive == Drive::CodexExec).then_some("`codex exec` never asks")
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect()
}

fn goose(place: &Place<'_>, asks: Asks) -> Outfit {
    let mode = if asks == Asks::Always { "approve" } else { "auto" };
    Outfit {
        argv: GOOSE.argv(place.installed, &["acp", "--with-builtin", "developer"]),
        env: pairs(&[
            ("GOOSE_PROVIDER", "openai"),
            ("GOOSE_MODEL", "stub-model"),
            ("OPENAI_HOST", place.models),
            ("OPENAI_BASE_PATH", "v1/chat/completions"),
            ("GOOSE_MODE", mode),
            ("GOOSE_DISABLE_KEYRING", "1"),
            ("GOOSE_TELEMETRY_OFF", "1"),
        ]),
        key: "OPENAI_API_KEY",
        ..Outfit::default()
    }
}

/// Returns Claude's variables. Without them it opens six connections, and retries a failing model
/// for three minutes.
fn claude_env(place: &Place<'_>) -> Vec<(String, String)> {
    pairs(&[
        ("ANTHROPIC_BASE_URL", place.models),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", "2"),
        ("CLAUDE_CONFIG_DIR", &text(place.settings)),
    ])
}

fn claude_settings(asks: Asks) -> Vec<(&'static str, String)> {
    let mode = if asks == Asks::Always { "default" } else { "bypassPermissions" };
    vec![("settings.json", json!({"permissions": {"defaultMode": mode}}).to_string())]
}

fn claude(place: &Place<'_>, asks: Asks) -> Outfit {
    Outfit {
        argv: CLAUDE.argv(place.installed, &[]),
        env: claude_env(place),
        key: "ANTHROPIC_API_KEY",
        mode: Some(if asks == Asks::Always { "default" } else { "bypassPermissions" }),
        files: claude_settings(asks),
    }
}

fn claude_acp(place: &Place<'_>, asks: Asks) -> Outfit {
    Outfit {
        argv: CLAUDE_ACP.argv(place.installed, &[]),
        env: claude_env(place),
        key: "ANTHROPIC_API_KEY",
        mode: None,
        files: claude_settings(asks),
    }
}

/// Returns Codex's settings. Unless the features are off, every start loads plugins from a remote
/// server. Only with a model that Codex knows does it offer `apply_patch`.
fn codex_settings(place: &Place<'_>, asks: Asks) -> Vec<(&'static str, String)> {
    let (policy, sandbox) =
        if asks == Asks::Always { ("on-request", "read-only") } else { ("never", "danger-full-access") };
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
        place.models
    );
    vec![("config.toml", settings)]
}

fn codex(place: &Place<'_>, asks: Asks) -> Outfit {
    let mode = if asks == Asks::Always { "on-request+read-only" } else { "never+danger-full-access" };
    Outfit {
        argv: CODEX.argv(place.installed, &[]),
        env: pairs(&[("CODEX_HOME", &text(place.settings))]),
        key: "STUB_API_KEY",
        mode: Some(mode),
        files: codex_settings(place, asks),
    }
}

fn codex_acp(place: &Place<'_>, asks: Asks) -> Outfit {
    let mode = if asks == Asks::Always { "read-only" } else { "agent-full-access" };
    Outfit {
        argv: CODEX_ACP.argv(place.installed, &[]),
        env: pairs(&[("CODEX_HOME", &text(place.settings)), ("NO_BROWSER", "1"), ("INITIAL_AGENT_MODE", mode)]),
        key: "STUB_API_KEY",
        mode: None,
        files: codex_settings(place, asks),
    }
}

fn gemini(place: &Place<'_>, asks: Asks) -> Outfit {
    let mut args = vec!["--acp", "-m", "gemini-2.5-flash"];
    if asks == Asks::Never {
        args.extend(["--approval-mode", "yolo"]);
    }
    let settings = json!({
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
        "general": {"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true, "maxAttempts": 2},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "ide": {"enabled": false},
    });
    Outfit {
        argv: GEMINI.argv(place.installed, &args),
        env: pairs(&[
            ("GOOGLE_GEMINI_BASE_URL", place.models),
            // System-wide settings would work, but the number of attempts is not read from there.
            ("GEMINI_CLI_HOME", &text(place.settings)),
            ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            ("GEMINI_TELEMETRY_ENABLED", "false"),
            ("GEMINI_CLI_NO_RELAUNCH", "true"),
            ("NO_COLOR", "1"),
        ]),
        key: "GEMINI_API_KEY",
        mode: None,
        files: vec![(".gemini/settings.json", settings.to_string())],
    }
}

fn opencode(place: &Place<'_>, asks: Asks) -> Outfit {
    let may = if asks == Asks::Always { "ask" } else { "allow" };
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
            "options": {"baseURL": format!("{}/v1", place.models), "apiKey": "{env:STUB_API_KEY}"},
            "models": {"stub-model": {"name": "Stub", "tool_call": true, "limit": limits}},
        }},
    });
    let version = OPENCODE.version;
    Outfit {
        argv: OPENCODE.argv(place.installed, &["acp"]),
        env: pairs(&[
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
            ("OPENCODE_DISABLE_SHARE", "1"),
            ("OPENCODE_DISABLE_CLAUDE_CODE", "1"),
            ("OPENCODE_CONFIG_CONTENT", &settings.to_string()),
            ("XDG_CONFIG_HOME", &text(place.settings)),
        ]),
        key: "STUB_API_KEY",
        mode: None,
        // Without these two files OpenCode loads its plugin package from the registry at every
        // start.
        files: vec![
            ("opencode/package.json", json!({"dependencies": {"@opencode-ai/plugin": version}}).to_string()),
            (
                "opencode/node_modules/@opencode-ai/plugin/package.json",
                json!({"name": "@opencode-ai/plugin", "version": version}).to_string(),
            ),
        ],
    }
}
