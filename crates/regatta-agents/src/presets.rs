//! The programs that Regatta knows by name, with the ways to start, install and sign in to each.
//! State of 2026-11-15.
//!
//! A preset is a suggestion, not a limit: any program that speaks ACP or takes a prompt can be
//! registered by its command. Regatta itself never downloads a program.

use regatta_core::agent::{Agent, Runtime};
use regatta_core::provider_name;

/// The protocol or interface through which a program is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    Acp,
    Claude,
    CodexServer,
    CodexExec,
    Command,
}

/// The source of a program's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The program prints its version when it gets this argument.
    Flag(&'static str),
    /// The package that the program was installed from. The program itself would wait for a client.
    Package,
}

/// The way to list a program's models without a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Models {
    /// The program prints one model per line when it gets these arguments.
    Lines(&'static [&'static str]),
    /// Codex's `app-server` lists the models.
    CodexServer,
    /// The program cannot list its models.
    Unknown,
}

/// A program that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// The provider of the model program.
    pub provider: &'static str,
    pub drive: Drive,
    /// The program's names on PATH, the usual name first.
    pub programs: &'static [&'static str],
    /// The arguments after the program.
    pub args: &'static [&'static str],
    /// Another program that must be installed.
    pub needs: Option<&'static str>,
    /// Other names that people use, including old names of renamed packages.
    pub aliases: &'static [&'static str],
    /// Old programs for the same purpose that are no longer developed, as pairs of program and
    /// package.
    pub old: &'static [(&'static str, &'static str)],
    /// The command that installs the program.
    pub install: &'static str,
    pub version: Version,
    pub models: Models,
    /// Set if the program has a fast mode that Regatta can switch on.
    pub fast_mode: bool,
    /// The command with which a person resumes a session in a terminal. `{session}` is replaced by
    /// the session. Empty if the program cannot do that.
    pub interactive: &'static [&'static str],
    /// The command with which a person signs in.
    pub sign_in: &'static str,
    /// The variables that hold the keys that the program accepts.
    pub keys: &'static [&'static str],
    /// The files under the user's home that show a sign-in. The program must be able to read them.
    pub credentials: &'static [&'static str],
    /// A remark for people.
    pub note: &'static str,
    /// Set if this project has run the program. The other presets come from the ACP registry.
    pub tried: bool,
}

const PLAIN: Preset = Preset {
    name: "",
    provider: "",
    drive: Drive::Acp,
    programs: &[],
    args: &[],
    needs: None,
    aliases: &[],
    old: &[],
    install: "",
    version: Version::Flag("--version"),
    models: Models::Unknown,
    fast_mode: false,
    interactive: &[],
    sign_in: "",
    keys: &[],
    credentials: &[],
    note: "",
    tried: true,
};

const CLAUDE_KEYS: &[&str] = &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
const CLAUDE_FILES: &[&str] = &[".claude/.credentials.json"];
const CODEX_KEYS: &[&str] = &["OPENAI_API_KEY", "CODEX_API_KEY"];
const CODEX_FILES: &[&str] = &[".codex/auth.json"];
const ANY_KEY: &[&str] = &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"];

/// All presets, the usual ones first.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "claude",
        interactive: &["claude", "--resume", "{session}"],
        provider: "anthropic",
        programs: &["claude-agent-acp"],
        aliases: &["claude-code", "claude-agent-acp", "claude-code-acp"],
        old: &[("claude-code-acp", "@zed-industries/claude-code-acp")],
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        version: Version::Package,
        sign_in: "claude /login",
        keys: CLAUDE_KEYS,
        credentials: CLAUDE_FILES,
        note: "It needs Node 22 or later and brings its own Claude Code.",
        ..PLAIN
    },
    Preset {
        name: "claude-native",
        interactive: &["claude", "--resume", "{session}"],
        provider: "anthropic",
        drive: Drive::Claude,
        fast_mode: true,
        programs: &["claude"],
        install: "npm install -g @anthropic-ai/claude-code",
        sign_in: "claude /login",
        keys: CLAUDE_KEYS,
        credentials: CLAUDE_FILES,
        ..PLAIN
    },
    Preset {
        name: "codex",
        interactive: &["codex", "resume", "{session}"],
        provider: "codex",
        programs: &["codex-acp"],
        aliases: &["codex-acp"],
        old: &[("codex-acp", "@zed-industries/codex-acp")],
        install: "npm install -g @agentclientprotocol/codex-acp",
        version: Version::Package,
        sign_in: "codex login",
        keys: CODEX_KEYS,
        credentials: CODEX_FILES,
        ..PLAIN
    },
    Preset {
        name: "codex-native",
        interactive: &["codex", "resume", "{session}"],
        provider: "codex",
        drive: Drive::CodexServer,
        models: Models::CodexServer,
        fast_mode: true,
        programs: &["codex"],
        aliases: &["codex-app-server"],
        install: "npm install -g @openai/codex",
        sign_in: "codex login",
        keys: CODEX_KEYS,
        credentials: CODEX_FILES,
        ..PLAIN
    },
    Preset {
        name: "codex-exec",
        interactive: &["codex", "resume", "{session}"],
        provider: "codex",
        drive: Drive::CodexExec,
        models: Models::CodexServer,
        fast_mode: true,
        programs: &["codex"],
        install: "npm install -g @openai/codex",
        sign_in: "codex login",
        keys: CODEX_KEYS,
        credentials: CODEX_FILES,
        note: "It runs one prompt per process, asks no questions and takes no messages.",
        ..PLAIN
    },
    Preset {
        name: "gemini",
        interactive: &["gemini", "--resume", "{session}"],
        provider: "gemini",
        programs: &["gemini"],
        args: &["--acp"],
        aliases: &["gemini-cli"],
        install: "npm install -g @google/gemini-cli",
        sign_in: "gemini",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        credentials: &[".gemini/oauth_creds.json", ".gemini/google_accounts.json"],
        note: "`--experimental-acp` is its old name for `--acp`.",
        ..PLAIN
    },
    Preset {
        name: "opencode",
        interactive: &["opencode", "--session", "{session}"],
        provider: "opencode",
        programs: &["opencode"],
        args: &["acp"],
        models: Models::Lines(&["models"]),
        aliases: &["opencode-ai"],
        install: "npm install -g opencode-ai",
        sign_in: "opencode auth login",
        keys: ANY_KEY,
        credentials: &[".local/share/opencode/auth.json"],
        ..PLAIN
    },
    Preset {
        name: "goose",
        interactive: &["goose", "session", "--resume", "--session-id", "{session}"],
        provider: "goose",
        programs: &["goose", "goose-binary-linux-x64"],
        args: &["acp", "--with-builtin", "developer"],
        aliases: &["block-goose"],
        install: "npm install -g @aaif/goose-binary-linux-x64",
        sign_in: "goose configure",
        keys: ANY_KEY,
        credentials: &[".config/goose/config.yaml", ".config/goose/secrets.yaml"],
        note: "Provider and model come from its configuration, or from GOOSE_PROVIDER and GOOSE_MODEL.",
        ..PLAIN
    },
    Preset {
        name: "qwen",
        interactive: &["qwen", "--resume", "{session}"],
        provider: "qwen",
        programs: &["qwen"],
        args: &["--acp"],
        aliases: &["qwen-code"],
        install: "npm install -g @qwen-code/qwen-code",
        sign_in: "qwen",
        keys: &["OPENAI_API_KEY", "DASHSCOPE_API_KEY"],
        credentials: &[".qwen/oauth_creds.json"],
        ..PLAIN
    },
    Preset {
        name: "pi",
        provider: "pi",
        programs: &["pi-acp"],
        needs: Some("pi"),
        aliases: &["pi-acp", "pi-coding-agent"],
        old: &[("pi", "@mariozechner/pi-coding-agent")],
        install: "npm install -g pi-acp @earendil-works/pi-coding-agent@0.87.1",
        version: Version::Package,
        sign_in: "pi /login",
        keys: ANY_KEY,
        credentials: &[".pi/agent/auth.json", ".pi/agent/models.json"],
        note: "Under the old package a session never opens; pi needs Node 22.19 or later.",
        ..PLAIN
    },
    Preset {
        name: "aider",
        provider: "aider",
        drive: Drive::Command,
        programs: &["aider"],
        args: &["--yes-always", "--no-gitignore", "--no-pretty", "--message", "{prompt}"],
        aliases: &["aider-chat"],
        install: "pipx install aider-chat",
        keys: ANY_KEY,
        note: "It exits with 0 even when its model fails, so only the changed files show success.",
        ..PLAIN
    },
    Preset {
        name: "mini-swe-agent",
        provider: "mini-swe-agent",
        drive: Drive::Command,
        programs: &["mini"],
        args: &["-y", "--exit-immediately", "-t", "{prompt}"],
        aliases: &["mini", "mini-swe"],
        install: "pipx install mini-swe-agent && pipx inject mini-swe-agent mcp",
        version: Version::Flag("--help"),
        sign_in: "mini-extra config setup",
        keys: ANY_KEY,
        credentials: &[".config/mini-swe-agent/.env"],
        ..PLAIN
    },
    Preset {
        name: "gc",
        provider: "gc",
        drive: Drive::Command,
        programs: &["gc"],
        aliases: &["gc-pool"],
        install: "see the documentation of your gc (its controller must run)",
        version: Version::Flag("version"),
        note: "A pool that gc manages. Name the worker: `--arg ALIAS`; its session persists from task to task.",
        ..PLAIN
    },
    Preset {
        name: "copilot",
        provider: "github",
        programs: &["copilot"],
        args: &["--acp"],
        aliases: &["github-copilot"],
        install: "npm install -g @github/copilot",
        sign_in: "copilot /login",
        keys: &["COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"],
        credentials: &[".copilot/config.json"],
        tried: false,
        ..PLAIN
    },
    Preset {
        name: "auggie",
        provider: "augment",
        programs: &["auggie"],
        args: &["--acp"],
        install: "npm install -g @augmentcode/auggie",
        sign_in: "auggie login",
        keys: &["AUGMENT_SESSION_AUTH"],
        credentials: &[".augment/session.json"],
        tried: false,
        ..PLAIN
    },
    Preset {
        name: "cline",
        provider: "cline",
        programs: &["cline"],
        args: &["--acp"],
        install: "npm install -g cline",
        sign_in: "cline auth",
        keys: ANY_KEY,
        tried: false,
        ..PLAIN
    },
    Preset {
        name: "cursor",
        provider: "cursor",
        programs: &["cursor-agent"],
        args: &["acp"],
        install: "curl https://cursor.com/install -fsS | bash",
        sign_in: "cursor-agent login",
        keys: &["CURSOR_API_KEY"],
        tried: false,
        ..PLAIN
    },
    Preset {
        name: "kimi",
        provider: "moonshot",
        programs: &["kimi"],
        args: &["acp"],
        aliases: &["kimi-cli"],
        install: "uv tool install kimi-cli",
        sign_in: "kimi",
        keys: &["KIMI_API_KEY", "MOONSHOT_API_KEY"],
        credentials: &[".kimi/config.toml"],
        tried: false,
        ..PLAIN
    },
    Preset {
        name: "vibe",
        provider: "mistral",
        programs: &["vibe-acp"],
        aliases: &["mistral-vibe"],
        install: "uv tool install mistral-vibe",
        sign_in: "vibe --setup",
        keys: &["MISTRAL_API_KEY"],
        credentials: &[".vibe/.env"],
        tried: false,
        ..PLAIN
    },
];

/// Returns the preset of a name, and whether the name is the preset's own. Old and other names are
/// accepted too.
pub fn find(name: &str) -> Option<(&'static Preset, bool)> {
    let exact = PRESETS.iter().find(|preset| preset.name == name).map(|preset| (preset, true));
    // The scope and the version of a package's name are ignored.
    let plain = name.rsplit('/').next().unwrap_or(name);
    let plain = plain.split('@').next().unwrap_or(plain).to_lowercase();
    let by_name = || PRESETS.iter().find(|preset| preset.name == plain || preset.aliases.contains(&plain.as_str()));
    // Every name of a provider selects the provider's usual program.
    let by_provider = || PRESETS.iter().find(|preset| preset.provider == provider_name::canonical(&plain));
    exact.or_else(|| by_name().or_else(by_provider).map(|preset| (preset, false)))
}

/// Returns the preset that an agent was made with, or else the preset whose program the agent runs.
pub fn of(agent: &Agent) -> Option<&'static Preset> {
    let named = agent.profile.preset.as_deref().and_then(find).map(|it| it.0);
    named.or_else(|| agent.runtime.argv().and_then(|argv| argv.first()).and_then(|program| of_program(program)))
}

/// Returns the preset whose program this is, by the file name of its path.
pub fn of_program(path: &str) -> Option<&'static Preset> {
    let name = path.rsplit('/').next().unwrap_or(path);
    PRESETS.iter().find(|preset| preset.programs.contains(&name))
}

impl Preset {
    /// Returns the command with which a person resumes this session in a terminal, or `None` if the
    /// program cannot do that.
    pub fn takes_up(&self, session: &str) -> Option<Vec<String>> {
        let line: Vec<String> = self.interactive.iter().map(|it| it.replace("{session}", session)).collect();
        (!line.is_empty()).then_some(line)
    }

    /// Returns the runtime of this preset, with `program` in place of its usual program.
    pub fn runtime(&self, program: Option<&str>) -> Runtime {
        let program = program.unwrap_or(self.programs[0]).to_owned();
        let mut argv = vec![program];
        argv.extend(self.args.iter().map(|it| (*it).to_owned()));
        match self.drive {
            Drive::Acp => Runtime::Acp { argv },
            Drive::Claude => Runtime::Claude { argv },
            Drive::CodexServer => Runtime::Codex { argv, app_server: true },
            Drive::CodexExec => Runtime::Codex { argv, app_server: false },
            // gc runs the workers of its pool. The attempt runs a helper that nudges a worker and
            // watches it.
            Drive::Command if self.name == "gc" => {
                let argv = ["{regatta}".to_owned(), "gc-worker".to_owned(), "--gc".to_owned(), argv.swap_remove(0)];
                Runtime::Command { argv: argv.to_vec() }
            }
            Drive::Command => Runtime::Command { argv },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_names_are_unique_and_every_preset_is_complete() {
        let mut names: Vec<&str> = PRESETS.iter().flat_map(|it| it.aliases.iter().copied().chain([it.name])).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        // `claude-agent-acp` and `codex-acp` are programs and also aliases of a preset, once each.
        assert_eq!(names.len(), all, "a name belongs to two presets");
        for preset in PRESETS {
            assert!(!preset.programs.is_empty() && !preset.install.is_empty(), "{}", preset.name);
            assert!(preset.credentials.iter().all(|it| !it.starts_with('/') && !it.contains("..")), "{}", preset.name);
            let argv = preset.runtime(None);
            assert!(argv.argv().is_some_and(|it| !it.is_empty()));
            let line = preset.takes_up("s-1");
            assert!(line.is_none_or(|it| it.len() > 1 && it.iter().filter(|it| *it == "s-1").count() == 1));
        }
    }

    /// Every name of a program is also accepted as a provider's name, so a team can have `provider
    /// = "claude"`.
    #[test]
    fn every_name_of_a_preset_is_a_name_of_its_provider() {
        for preset in PRESETS {
            for name in preset.aliases.iter().chain([&preset.name, &preset.provider]) {
                assert_eq!(provider_name::canonical(name), preset.provider, "{name}");
            }
        }
        let has_program = |name: &str| name == "scripted" || PRESETS.iter().any(|preset| preset.provider == name);
        assert!(provider_name::PROVIDERS.iter().all(|(name, _)| has_program(name)));
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
            let (found, is_own) = find(name).unwrap_or_else(|| panic!("{name} is not known"));
            assert_eq!((found.name, is_own), (preset, own), "{name}");
        }
        assert!(find("nobody").is_none());
    }

    #[test]
    fn preset_uses_the_program_that_was_found() {
        let (goose, _) = find("goose").unwrap();
        let runtime = goose.runtime(Some("/opt/goose-binary-linux-x64"));
        assert_eq!(runtime.argv().unwrap()[..2], ["/opt/goose-binary-linux-x64", "acp"]);
        assert!(matches!(find("codex-native").unwrap().0.runtime(None), Runtime::Codex { app_server: true, .. }));
    }
}
