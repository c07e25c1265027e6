//! The presets: coding agents' programs that Regatta knows by name, with the ways to start, install
//! and sign in to each. The list was last checked on 2026-11-15.
//!
//! A preset is a suggestion and not a limit: any program that speaks ACP (the Agent Client
//! Protocol) or takes a prompt can be registered by its command. Regatta itself never downloads a
//! program.

use regatta_core::agent::{Agent, Runtime};
use regatta_core::provider_name;

/// The protocol or interface through which Regatta drives the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    Acp,
    Claude,
    CodexServer,
    CodexExec,
    Command,
}

/// The way in which Regatta learns the version of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSource {
    /// The program prints its version when it gets this argument.
    Flag(&'static str),
    /// The version is read from the installed package, because the program itself prints no version
    /// and would wait for a client.
    Package,
}

/// The way in which Regatta lists the models of a program without opening a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// The program prints one model per line when it gets these arguments.
    Lines(&'static [&'static str]),
    /// `codex app-server` lists the models on request.
    CodexServer,
    /// The program cannot list its models.
    Unknown,
}

/// A coding agent's program that Regatta knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// The provider, which is the company or project whose program this is, such as `anthropic`.
    pub provider: &'static str,
    pub driver: DriverKind,
    /// The names of the program's executable that are searched on PATH, the usual name first.
    pub programs: &'static [&'static str],
    /// The arguments with which Regatta starts the program.
    pub args: &'static [&'static str],
    /// Another program that must be installed for this program to work.
    pub required_program: Option<&'static str>,
    /// Other names by which people may ask for this preset, including old names of renamed
    /// packages.
    pub aliases: &'static [&'static str],
    /// Predecessors of the program that are no longer developed, as pairs of a program's name and
    /// the name of its package.
    pub obsolete_programs: &'static [(&'static str, &'static str)],
    /// The command that installs the program.
    pub install: &'static str,
    pub version: VersionSource,
    pub models: ModelSource,
    /// True if the program has a fast mode that Regatta can switch on.
    pub has_fast_mode: bool,
    /// The command with which a person continues a session of the program in a terminal.
    /// `{session}` stands for the session's id. Empty if the program cannot do that.
    pub resume_args: &'static [&'static str],
    /// The command with which a person signs in to the program's provider.
    pub sign_in: &'static str,
    /// The environment variables from which the program reads its API key.
    pub key_variables: &'static [&'static str],
    /// Files in the user's home directory whose existence shows that the user is signed in. The
    /// sandboxed program must be able to read these files.
    pub credential_files: &'static [&'static str],
    /// A remark about the program that is shown to people. May be empty.
    pub note: &'static str,
    /// True if Regatta's developers have run the program with Regatta. The data of the other
    /// presets comes from the ACP registry.
    pub is_tested: bool,
}

const DEFAULT_PRESET: Preset = Preset {
    name: "",
    provider: "",
    driver: DriverKind::Acp,
    programs: &[],
    args: &[],
    required_program: None,
    aliases: &[],
    obsolete_programs: &[],
    install: "",
    version: VersionSource::Flag("--version"),
    models: ModelSource::Unknown,
    has_fast_mode: false,
    resume_args: &[],
    sign_in: "",
    key_variables: &[],
    credential_files: &[],
    note: "",
    is_tested: true,
};

const CLAUDE_KEYS: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
];
const CLAUDE_FILES: &[&str] = &[".claude/.credentials.json"];
const CODEX_KEYS: &[&str] = &["OPENAI_API_KEY", "CODEX_API_KEY"];
const CODEX_FILES: &[&str] = &[".codex/auth.json"];
const ANY_KEY: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
];

/// All presets (coding agents' programs that Regatta knows by name), the usual ones first.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "claude",
        resume_args: &["claude", "--resume", "{session}"],
        provider: "anthropic",
        programs: &["claude-agent-acp"],
        aliases: &["claude-code", "claude-agent-acp", "claude-code-acp"],
        obsolete_programs: &[("claude-code-acp", "@zed-industries/claude-code-acp")],
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        version: VersionSource::Package,
        sign_in: "claude /login",
        key_variables: CLAUDE_KEYS,
        credential_files: CLAUDE_FILES,
        note: "The adapter needs Node 22 or later and brings its own Claude Code.",
        ..DEFAULT_PRESET
    },
    Preset {
        name: "claude-native",
        resume_args: &["claude", "--resume", "{session}"],
        provider: "anthropic",
        driver: DriverKind::Claude,
        has_fast_mode: true,
        programs: &["claude"],
        install: "npm install -g @anthropic-ai/claude-code",
        sign_in: "claude /login",
        key_variables: CLAUDE_KEYS,
        credential_files: CLAUDE_FILES,
        ..DEFAULT_PRESET
    },
    Preset {
        name: "codex",
        resume_args: &["codex", "resume", "{session}"],
        provider: "codex",
        programs: &["codex-acp"],
        aliases: &["codex-acp"],
        obsolete_programs: &[("codex-acp", "@zed-industries/codex-acp")],
        install: "npm install -g @agentclientprotocol/codex-acp",
        version: VersionSource::Package,
        sign_in: "codex login",
        key_variables: CODEX_KEYS,
        credential_files: CODEX_FILES,
        ..DEFAULT_PRESET
    },
    Preset {
        name: "codex-native",
        resume_args: &["codex", "resume", "{session}"],
        provider: "codex",
        driver: DriverKind::CodexServer,
        models: ModelSource::CodexServer,
        has_fast_mode: true,
        programs: &["codex"],
        aliases: &["codex-app-server"],
        install: "npm install -g @openai/codex",
        sign_in: "codex login",
        key_variables: CODEX_KEYS,
        credential_files: CODEX_FILES,
        ..DEFAULT_PRESET
    },
    Preset {
        name: "codex-exec",
        resume_args: &["codex", "resume", "{session}"],
        provider: "codex",
        driver: DriverKind::CodexExec,
        models: ModelSource::CodexServer,
        has_fast_mode: true,
        programs: &["codex"],
        install: "npm install -g @openai/codex",
        sign_in: "codex login",
        key_variables: CODEX_KEYS,
        credential_files: CODEX_FILES,
        note: "`codex exec` runs one prompt per process, asks no questions and takes no messages.",
        ..DEFAULT_PRESET
    },
    Preset {
        name: "gemini",
        resume_args: &["gemini", "--resume", "{session}"],
        provider: "gemini",
        programs: &["gemini"],
        args: &["--acp"],
        aliases: &["gemini-cli"],
        install: "npm install -g @google/gemini-cli",
        sign_in: "gemini",
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        credential_files: &[".gemini/oauth_creds.json", ".gemini/google_accounts.json"],
        note: "Old versions of Gemini call the option `--acp` by the name `--experimental-acp`.",
        ..DEFAULT_PRESET
    },
    Preset {
        name: "opencode",
        resume_args: &["opencode", "--session", "{session}"],
        provider: "opencode",
        programs: &["opencode"],
        args: &["acp"],
        models: ModelSource::Lines(&["models"]),
        aliases: &["opencode-ai"],
        install: "npm install -g opencode-ai",
        sign_in: "opencode auth login",
        key_variables: ANY_KEY,
        credential_files: &[".local/share/opencode/auth.json"],
        ..DEFAULT_PRESET
    },
    Preset {
        name: "goose",
        resume_args: &["goose", "session", "--resume", "--session-id", "{session}"],
        provider: "goose",
        programs: &["goose", "goose-binary-linux-x64"],
        args: &["acp", "--with-builtin", "developer"],
        aliases: &["block-goose"],
        install: "npm install -g @aaif/goose-binary-linux-x64",
        sign_in: "goose configure",
        key_variables: ANY_KEY,
        credential_files: &[".config/goose/config.yaml", ".config/goose/secrets.yaml"],
        note: "Provider and model come from goose's configuration, or from GOOSE_PROVIDER and \
            GOOSE_MODEL.",
        ..DEFAULT_PRESET
    },
    Preset {
        name: "qwen",
        resume_args: &["qwen", "--resume", "{session}"],
        provider: "qwen",
        programs: &["qwen"],
        args: &["--acp"],
        aliases: &["qwen-code"],
        install: "npm install -g @qwen-code/qwen-code",
        sign_in: "qwen",
        key_variables: &["OPENAI_API_KEY", "DASHSCOPE_API_KEY"],
        credential_files: &[".qwen/oauth_creds.json"],
        ..DEFAULT_PRESET
    },
    Preset {
        name: "pi",
        provider: "pi",
        programs: &["pi-acp"],
        required_program: Some("pi"),
        aliases: &["pi-acp", "pi-coding-agent"],
        obsolete_programs: &[("pi", "@mariozechner/pi-coding-agent")],
        install: "npm install -g pi-acp @earendil-works/pi-coding-agent@0.87.1",
        version: VersionSource::Package,
        sign_in: "pi /login",
        key_variables: ANY_KEY,
        credential_files: &[".pi/agent/auth.json", ".pi/agent/models.json"],
        note: "Under the old package a session never opens; pi needs Node 22.19 or later.",
        ..DEFAULT_PRESET
    },
    Preset {
        name: "aider",
        provider: "aider",
        driver: DriverKind::Command,
        programs: &["aider"],
        args: &[
            "--yes-always",
            "--no-gitignore",
            "--no-pretty",
            "--message",
            "{prompt}",
        ],
        aliases: &["aider-chat"],
        install: "pipx install aider-chat",
        key_variables: ANY_KEY,
        note: "aider exits with 0 even when its model fails, so only changed files show success.",
        ..DEFAULT_PRESET
    },
    Preset {
        name: "mini-swe-agent",
        provider: "mini-swe-agent",
        driver: DriverKind::Command,
        programs: &["mini"],
        args: &["-y", "--exit-immediately", "-t", "{prompt}"],
        aliases: &["mini", "mini-swe"],
        install: "pipx install mini-swe-agent && pipx inject mini-swe-agent mcp",
        version: VersionSource::Flag("--help"),
        sign_in: "mini-extra config setup",
        key_variables: ANY_KEY,
        credential_files: &[".config/mini-swe-agent/.env"],
        ..DEFAULT_PRESET
    },
    Preset {
        name: "gc",
        provider: "gc",
        driver: DriverKind::Command,
        programs: &["gc"],
        aliases: &["gc-pool"],
        install: "see the documentation of your gc (its controller must run)",
        version: VersionSource::Flag("version"),
        note: "A pool that gc manages. Name the worker with `--arg ALIAS`; the worker's session \
            persists from task to task.",
        ..DEFAULT_PRESET
    },
    Preset {
        name: "copilot",
        provider: "github",
        programs: &["copilot"],
        args: &["--acp"],
        aliases: &["github-copilot"],
        install: "npm install -g @github/copilot",
        sign_in: "copilot /login",
        key_variables: &["COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"],
        credential_files: &[".copilot/config.json"],
        is_tested: false,
        ..DEFAULT_PRESET
    },
    Preset {
        name: "auggie",
        provider: "augment",
        programs: &["auggie"],
        args: &["--acp"],
        install: "npm install -g @augmentcode/auggie",
        sign_in: "auggie login",
        key_variables: &["AUGMENT_SESSION_AUTH"],
        credential_files: &[".augment/session.json"],
        is_tested: false,
        ..DEFAULT_PRESET
    },
    Preset {
        name: "cline",
        provider: "cline",
        programs: &["cline"],
        args: &["--acp"],
        install: "npm install -g cline",
        sign_in: "cline auth",
        key_variables: ANY_KEY,
        is_tested: false,
        ..DEFAULT_PRESET
    },
    Preset {
        name: "cursor",
        provider: "cursor",
        programs: &["cursor-agent"],
        args: &["acp"],
        install: "curl https://cursor.com/install -fsS | bash",
        sign_in: "cursor-agent login",
        key_variables: &["CURSOR_API_KEY"],
        is_tested: false,
        ..DEFAULT_PRESET
    },
    Preset {
        name: "kimi",
        provider: "moonshot",
        programs: &["kimi"],
        args: &["acp"],
        aliases: &["kimi-cli"],
        install: "uv tool install kimi-cli",
        sign_in: "kimi",
        key_variables: &["KIMI_API_KEY", "MOONSHOT_API_KEY"],
        credential_files: &[".kimi/config.toml"],
        is_tested: false,
        ..DEFAULT_PRESET
    },
    Preset {
        name: "vibe",
        provider: "mistral",
        programs: &["vibe-acp"],
        aliases: &["mistral-vibe"],
        install: "uv tool install mistral-vibe",
        sign_in: "vibe --setup",
        key_variables: &["MISTRAL_API_KEY"],
        credential_files: &[".vibe/.env"],
        is_tested: false,
        ..DEFAULT_PRESET
    },
];

/// Returns the preset for a name, and whether the name is the preset's own name. Other names, old
/// names and package names are accepted too.
pub fn find_preset(name: &str) -> Option<(&'static Preset, bool)> {
    let exact = PRESETS
        .iter()
        .find(|preset| preset.name == name)
        .map(|preset| (preset, true));
    // Ignore the scope and the version in the name of a package, such as `@scope/name@1.2`.
    let package_name = name.rsplit('/').next().unwrap_or(name);
    let package_name = package_name
        .split('@')
        .next()
        .unwrap_or(package_name)
        .to_lowercase();
    let by_name = || {
        PRESETS.iter().find(|preset| {
            preset.name == package_name || preset.aliases.contains(&package_name.as_str())
        })
    };
    // If no preset has this name, take the name as a provider's name, which selects that provider's
    // usual program.
    let by_provider = || {
        PRESETS
            .iter()
            .find(|preset| preset.provider == provider_name::canonical(&package_name))
    };
    exact.or_else(|| by_name().or_else(by_provider).map(|preset| (preset, false)))
}

/// Returns the preset (the description of a known agent program) from which an agent was created,
/// or else the preset whose program the agent runs.
pub fn preset_of_agent(agent: &Agent) -> Option<&'static Preset> {
    let named = agent
        .profile
        .preset
        .as_deref()
        .and_then(find_preset)
        .map(|(preset, _)| preset);
    named.or_else(|| {
        agent
            .runtime
            .argv()
            .and_then(|argv| argv.first())
            .and_then(|program| preset_of_program(program))
    })
}

/// Returns the preset (the description of a known agent program) to which a program belongs, judged
/// by the file name in its path.
pub fn preset_of_program(path: &str) -> Option<&'static Preset> {
    let name = path.rsplit('/').next().unwrap_or(path);
    PRESETS
        .iter()
        .find(|preset| preset.programs.contains(&name))
}

impl Preset {
    /// Returns the command with which a person continues this session in a terminal, or `None` if
    /// the program cannot do that.
    pub fn resume_command(&self, session: &str) -> Option<Vec<String>> {
        let line: Vec<String> = self
            .resume_args
            .iter()
            .map(|argument| argument.replace("{session}", session))
            .collect();
        (!line.is_empty()).then_some(line)
    }

    /// Returns the settings with which Regatta starts and drives this preset's program. `program`
    /// replaces the usual executable.
    pub fn runtime(&self, program: Option<&str>) -> Runtime {
        let program = program.unwrap_or(self.programs[0]).to_owned();
        let mut argv = vec![program];
        argv.extend(self.args.iter().map(|arg| (*arg).to_owned()));
        match self.driver {
            DriverKind::Acp => Runtime::Acp { argv },
            DriverKind::Claude => Runtime::Claude { argv },
            DriverKind::CodexServer => Runtime::Codex {
                argv,
                app_server: true,
            },
            DriverKind::CodexExec => Runtime::Codex {
                argv,
                app_server: false,
            },
            // gc is a foreign program that runs its workers itself. The attempt therefore runs a
            // helper program that sends the prompt to a worker and watches the worker.
            DriverKind::Command if self.name == "gc" => {
                let argv = [
                    "{regatta}".to_owned(),
                    "gc-worker".to_owned(),
                    "--gc".to_owned(),
                    argv.swap_remove(0),
                ];
                Runtime::Command {
                    argv: argv.to_vec(),
                }
            }
            DriverKind::Command => Runtime::Command { argv },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_names_are_unique_and_every_preset_is_complete() {
        let mut names: Vec<&str> = PRESETS
            .iter()
            .flat_map(|preset| preset.aliases.iter().copied().chain([preset.name]))
            .collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        // `claude-agent-acp` and `codex-acp` are programs and also aliases of a preset, once each.
        assert_eq!(names.len(), all, "a name belongs to two presets");
        for preset in PRESETS {
            assert!(
                !preset.programs.is_empty() && !preset.install.is_empty(),
                "{}",
                preset.name
            );
            assert!(
                preset
                    .credential_files
                    .iter()
                    .all(|file| !file.starts_with('/') && !file.contains("..")),
                "{}",
                preset.name
            );
            let argv = preset.runtime(None);
            assert!(argv.argv().is_some_and(|argv| !argv.is_empty()));
            let line = preset.resume_command("s-1");
            assert!(line.is_none_or(|line| line.len() > 1
                && line.iter().filter(|argument| *argument == "s-1").count() == 1));
        }
    }

    /// Every name of a program is also accepted as a provider's name, so a team can have `provider
    /// = "claude"`.
    #[test]
    fn every_name_of_a_preset_is_a_name_of_its_provider() {
        for preset in PRESETS {
            for name in preset
                .aliases
                .iter()
                .chain([&preset.name, &preset.provider])
            {
                assert_eq!(provider_name::canonical(name), preset.provider, "{name}");
            }
        }
        let has_program =
            |name: &str| name == "scripted" || PRESETS.iter().any(|preset| preset.provider == name);
        assert!(
            provider_name::PROVIDERS
                .iter()
                .all(|(name, _)| has_program(name))
        );
    }

    #[test]
    fn old_names_and_aliases_find_the_preset() {
        for (name, preset, own) in [
            ("claude", "claude", true),
            ("claude-code-acp", "claude", false),
            ("@zed-industries/claude-code-acp", "claude", false),
            ("@agentclientprotocol/codex-acp@2.6.0", "codex", false),
            ("gemini-cli", "gemini", false),
            ("pi-coding-agent", "pi", false),
            ("mini", "mini-swe-agent", false),
            ("Claude", "claude", false),
            ("anthropic", "claude", false),
            ("OpenAI", "codex", false),
            ("Codex-Native", "codex-native", false),
            ("google", "gemini", false),
            ("OpenCode", "opencode", false),
        ] {
            let (found, is_own) =
                find_preset(name).unwrap_or_else(|| panic!("{name} is not known"));
            assert_eq!((found.name, is_own), (preset, own), "{name}");
        }
        assert!(find_preset("nobody").is_none());
    }

    #[test]
    fn preset_uses_the_program_that_was_found() {
        let (goose, _) = find_preset("goose").unwrap();
        let runtime = goose.runtime(Some("/opt/goose-binary-linux-x64"));
        assert_eq!(
            runtime.argv().unwrap()[..2],
            ["/opt/goose-binary-linux-x64", "acp"]
        );
        assert!(matches!(
            find_preset("codex-native").unwrap().0.runtime(None),
            Runtime::Codex {
                app_server: true,
                ..
            }
        ));
    }
}
