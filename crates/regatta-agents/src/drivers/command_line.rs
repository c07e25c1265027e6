//! Builds the command line and the environment variables with which each known program is started,
//! and the files that the program needs in its home directory.

use std::path::Path;

use regatta_core::agent::{Profile, Runtime, SandboxLevel};
use serde_json::{Value, json};

use super::{
    DriverSetup, PROMPT_PLACEHOLDER, REGATTA_PLACEHOLDER, TOKEN_PLACEHOLDER, TOKEN_VARIABLE,
};

/// Returns the command line of an agent's program: the program and its arguments. `regatta` is the
/// path of the regatta program, which also plays the scripted agent. No argument contains a secret,
/// because every user of the machine can read a command line.
pub fn command_line(setup: &DriverSetup, prompt: &str, regatta: &Path) -> Vec<String> {
    let to_strings = |list: &[&str]| {
        list.iter()
            .map(|argument| (*argument).to_owned())
            .collect::<Vec<_>>()
    };
    let own_program = regatta.to_string_lossy();
    let with_arguments = |argv: &[String]| -> Vec<String> {
        let arguments = argv.iter().chain(&setup.profile.args);
        arguments
            .map(|argument| {
                if argument == REGATTA_PLACEHOLDER {
                    own_program.to_string()
                } else {
                    argument.replace(PROMPT_PLACEHOLDER, prompt)
                }
            })
            .collect()
    };
    match &setup.runtime {
        Runtime::Scripted => [own_program.to_string()]
            .into_iter()
            .chain(to_strings(&["scripted-agent", "--acp"]))
            .chain(with_arguments(&[]))
            .collect(),
        Runtime::Command { argv } => with_arguments(argv),
        Runtime::Acp { argv } => {
            let mut line = argv.clone();
            // Pass the model as an argument to the programs that accept it in no other way. Other
            // programs get the model when their session is opened.
            if let Some(model) = &setup.profile.model
                && matches!(setup.program_name(), "gemini" | "qwen")
                && !line
                    .iter()
                    .any(|argument| argument == "-m" || argument == "--model")
            {
                line.extend(["--model".to_owned(), model.clone()]);
            }
            line.extend(setup.profile.args.clone());
            line
        }
        Runtime::Claude { argv } => [
            argv.clone(),
            claude_command_line(setup),
            setup.profile.args.clone(),
        ]
        .concat(),
        Runtime::Codex { argv, app_server } => {
            [argv.clone(), codex_command_line(setup, *app_server)].concat()
        }
        Runtime::Outside => vec![],
    }
}

fn claude_command_line(setup: &DriverSetup) -> Vec<String> {
    let mut line: Vec<String> = [
        "-p",
        "--output-format",
        "stream-json",
        "--input-format",
        "stream-json",
        "--verbose",
    ]
    .iter()
    .chain(&["--permission-prompt-tool", "stdio"])
    .map(|s| (*s).to_owned())
    .collect();
    let mut flag = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            line.extend([name.to_owned(), value.to_owned()]);
        }
    };
    let profile = &setup.profile;
    flag(
        if setup.resume.is_some() {
            "--resume"
        } else {
            "--session-id"
        },
        Some(&setup.session_id()),
    );
    flag("--model", profile.model.as_deref());
    flag("--effort", profile.effort.as_deref());
    flag("--permission-mode", profile.mode.as_deref());
    // Fast mode is switched on in the settings, because the program has no other switch for it when
    // it runs without a terminal.
    flag(
        "--settings",
        (profile.fast_mode == Some(true)).then_some(r#"{"fastMode":true}"#),
    );
    flag("--append-system-prompt", profile.system_prompt.as_deref());
    if let Some(url) = &setup.mcp_url {
        // The program replaces the placeholder by the value of its environment variable, so the
        // access token is not on the command line.
        let server = json!({
            "type": "http", "url": url, "headers": { "Authorization": format!("Bearer {TOKEN_PLACEHOLDER}") },
        });
        flag(
            "--mcp-config",
            Some(&json!({ "mcpServers": { "regatta": server } }).to_string()),
        );
        // Allow Regatta's tools without a permission request, because the attempt's token already
        // limits them.
        flag("--allowedTools", Some("mcp__regatta"));
        line.push("--strict-mcp-config".to_owned());
    }
    line
}

/// Returns Codex's settings for approvals and for its own sandbox. The agent's mode may name one or
/// both settings (`untrusted`, `read-only`, `never+workspace-write`).
pub(super) fn codex_mode(profile: &Profile) -> (String, String) {
    let mode = profile.mode.as_deref().unwrap_or_default();
    let find_mode = |known: &[&str]| {
        mode.split(['+', ',', ' '])
            .find(|name| known.contains(name))
            .map(str::to_owned)
    };
    let approval =
        find_mode(&["untrusted", "on-request", "never"]).unwrap_or_else(|| "on-request".to_owned());
    let sandbox = find_mode(&["read-only", "workspace-write", "danger-full-access"]);
    // Switch off Codex's own sandbox inside Regatta's sandbox, because a second sandbox would make
    // `.git` read-only.
    let default_sandbox = if profile.sandbox == Some(SandboxLevel::Off) {
        "workspace-write"
    } else {
        "danger-full-access"
    };
    (
        approval,
        sandbox.unwrap_or_else(|| default_sandbox.to_owned()),
    )
}

fn codex_command_line(setup: &DriverSetup, app_server: bool) -> Vec<String> {
    let profile = &setup.profile;
    let mut settings = vec![
        // Prevent downloads and reports that Codex would make in the background.
        "check_for_update_on_startup=false".to_owned(),
        "features.plugins=false".to_owned(),
        "features.remote_plugin=false".to_owned(),
        "features.plugin_discovery_prefetch=false".to_owned(),
        "features.apps=false".to_owned(),
        // Prevent Codex's shell snapshot, a file with the whole environment, including keys in
        // clear text (S4).
        "features.shell_snapshot=false".to_owned(),
        "analytics.enabled=false".to_owned(),
    ];
    if let Some(url) = &setup.mcp_url {
        settings.push(format!("mcp_servers.regatta.url={}", json!(url)));
        settings.push(format!(
            "mcp_servers.regatta.bearer_token_env_var={}",
            json!(TOKEN_VARIABLE)
        ));
        // Approve Regatta's tools in advance, because the attempt's token already limits them.
        // `codex exec` cannot ask for approval and would refuse these tools.
        settings.push("mcp_servers.regatta.default_tools_approval_mode=\"approve\"".to_owned());
    }
    if let Some(effort) = &profile.effort {
        settings.push(format!("model_reasoning_effort={}", json!(effort)));
    }
    if profile.fast_mode == Some(true) {
        settings.push("service_tier=\"fast\"".to_owned());
    }
    let settings = settings
        .into_iter()
        .flat_map(|setting| ["-c".to_owned(), setting]);
    if app_server {
        return ["app-server".to_owned()]
            .into_iter()
            .chain(settings)
            .chain(profile.args.clone())
            .collect();
    }
    let mut line: Vec<String> = [
        "exec".to_owned(),
        "--json".to_owned(),
        "--skip-git-repo-check".to_owned(),
    ]
    .into_iter()
    .chain(settings)
    .collect();
    if let Some(instructions) = &profile.system_prompt {
        line.extend([
            "-c".to_owned(),
            format!("developer_instructions={}", json!(instructions)),
        ]);
    }
    if let Some(model) = &profile.model {
        line.extend(["-m".to_owned(), model.clone()]);
    }
    line.extend(["-s".to_owned(), codex_mode(profile).1]);
    line.extend(profile.args.clone());
    if let Some(session) = &setup.resume {
        line.extend(["resume".to_owned(), session.clone()]);
    }
    // `-` makes Codex read the prompt from its input, because the length of a command line is
    // limited.
    line.push("-".to_owned());
    line
}

/// Returns the environment variables that a program gets in addition to the inherited ones. The
/// variables of the agent's profile (its settings) come last and override the others.
pub fn environment(setup: &DriverSetup) -> Vec<(String, String)> {
    let mut variables: Vec<(&str, &str)> = match (&setup.runtime, setup.program_name()) {
        (Runtime::Claude { .. }, _)
        | (Runtime::Acp { .. }, "claude" | "claude-agent-acp" | "claude-code-acp") => vec![
            ("DISABLE_AUTOUPDATER", "1"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            // Without this variable Claude offers Regatta's tools to the model only through a
            // search.
            ("ENABLE_TOOL_SEARCH", "false"),
        ],
        (Runtime::Acp { .. }, "codex" | "codex-acp") => vec![("NO_BROWSER", "1")],
        (_, "gemini") => vec![
            ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            ("GEMINI_TELEMETRY_ENABLED", "false"),
            // With this variable Gemini runs as one process. Without this variable Gemini runs as
            // two processes, of which the first ignores signals.
            ("GEMINI_CLI_NO_RELAUNCH", "true"),
        ],
        (_, "qwen") => vec![
            ("QWEN_TELEMETRY_ENABLED", "false"),
            ("QWEN_CODE_SUPPRESS_YOLO_WARNING", "1"),
        ],
        (_, "opencode") => vec![
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_SHARE", "1"),
        ],
        (_, "goose") => vec![("GOOSE_DISABLE_KEYRING", "1"), ("GOOSE_TELEMETRY_OFF", "1")],
        (_, "pi" | "pi-acp") => vec![("PI_TELEMETRY", "0")],
        (_, "aider") => vec![
            ("AIDER_CHECK_UPDATE", "false"),
            ("AIDER_ANALYTICS_DISABLE", "true"),
        ],
        (_, "mini" | "mini-swe-agent") => {
            vec![("MSWEA_SILENT_STARTUP", "1"), ("MSWEA_CONFIGURED", "true")]
        }
        _ => vec![],
    };
    let is_claude = variables
        .iter()
        .any(|(name, _)| *name == "DISABLE_AUTOUPDATER");
    if is_claude && setup.sandboxed_root {
        // Without this variable Claude refuses to run as root, even inside Regatta's sandbox.
        variables.push(("IS_SANDBOX", "1"));
    }
    let start_dir = setup.start_dir();
    let start_dir = start_dir.to_string_lossy();
    // OpenCode takes its start directory from this variable and not from the process.
    variables.push(("PWD", &start_dir));
    variables.push(("NO_COLOR", "1"));
    let own = variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.chain(setup.profile.env.iter().cloned()).collect()
}

/// Returns files that a program needs in its home directory, as pairs of relative path and content.
/// The caller creates the files that do not exist yet.
pub fn home_files(setup: &DriverSetup) -> Vec<(String, String)> {
    let has_key = |name: &str| {
        let keys = setup.profile.keys.iter().map(|key| key.name.as_str());
        let variables = setup.profile.env.iter().map(|(name, _)| name.as_str());
        keys.chain(variables).any(|known| known == name)
    };
    let gemini_settings = |sign_in: &str| -> Value {
        json!({
            "security": { "auth": { "selectedType": sign_in }, "folderTrust": { "enabled": false } },
            "general": { "enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true },
            "privacy": { "usageStatisticsEnabled": false },
            "telemetry": { "enabled": false },
            "ide": { "enabled": false },
        })
    };
    match setup.program_name() {
        "gemini" => {
            let sign_in = if has_key("GEMINI_API_KEY") {
                "gemini-api-key"
            } else if has_key("GOOGLE_API_KEY") {
                "vertex-ai"
            } else {
                "oauth-personal"
            };
            vec![(
                ".gemini/settings.json".to_owned(),
                gemini_settings(sign_in).to_string(),
            )]
        }
        // Disable Codex's shell snapshot (a file with all environment variables) in this file too.
        // The adapter starts Codex itself, so the setting cannot be an argument.
        "codex-acp" => vec![(
            ".codex/config.toml".to_owned(),
            "[features]\nshell_snapshot = false\n".to_owned(),
        )],
        "qwen" => {
            let sign_in = if has_key("OPENAI_API_KEY") {
                "openai"
            } else {
                "qwen-oauth"
            };
            vec![(
                ".qwen/settings.json".to_owned(),
                gemini_settings(sign_in).to_string(),
            )]
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::test_harness::setup;

    fn joined_command_line(setup: &DriverSetup) -> String {
        command_line(setup, "Do it.", Path::new("/bin/regatta")).join(" ")
    }

    fn to_strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn every_runtime_has_its_command_line() {
        assert_eq!(
            joined_command_line(&setup(Runtime::Scripted)),
            "/bin/regatta scripted-agent --acp"
        );
        let command = Runtime::Command {
            argv: to_strings(&["mini", "-t", "{prompt}"]),
        };
        assert_eq!(joined_command_line(&setup(command)), "mini -t Do it.");
        let pool = crate::presets::find_preset("gc").unwrap().0.runtime(None);
        let mut pool = setup(pool);
        pool.profile.args = to_strings(&["frost"]);
        assert_eq!(
            joined_command_line(&pool),
            "/bin/regatta gc-worker --gc gc frost"
        );

        let mut gemini = setup(Runtime::Acp {
            argv: to_strings(&["gemini", "--acp"]),
        });
        gemini.profile.model = Some("g-1".to_owned());
        gemini.profile.args = to_strings(&["--debug"]);
        assert_eq!(
            joined_command_line(&gemini),
            "gemini --acp --model g-1 --debug"
        );
    }

    #[test]
    fn s4_claude_gets_a_chosen_session_id_and_no_token_on_its_command_line() {
        let mut claude = setup(Runtime::Claude {
            argv: to_strings(&["claude"]),
        });
        claude.mcp_url = Some("http://127.0.0.1:7/mcp".to_owned());
        claude.profile.model = Some("opus".to_owned());
        claude.profile.effort = Some("high".to_owned());
        let text = joined_command_line(&claude);
        assert!(
            text.contains(&format!("--session-id {}", claude.session_id())),
            "{text}"
        );
        assert!(
            text.contains("Bearer ${REGATTA_TOKEN}") && text.contains("--strict-mcp-config"),
            "{text}"
        );
        assert!(text.contains("--model opus --effort high"), "{text}");
        claude.resume = Some("old".to_owned());
        assert!(
            joined_command_line(&claude).contains("--resume old")
                && !joined_command_line(&claude).contains("--session-id")
        );
    }

    #[test]
    fn codex_gets_its_settings_but_not_the_prompt_on_its_command_line() {
        let argv = to_strings(&["codex"]);
        let mut codex = setup(Runtime::Codex {
            argv: argv.clone(),
            app_server: false,
        });
        codex.resume = Some("t-1".to_owned());
        codex.profile.mode = Some("read-only".to_owned());
        assert!(joined_command_line(&codex).starts_with("codex exec --json"));
        assert!(
            joined_command_line(&codex).ends_with("-s read-only resume t-1 -"),
            "{}",
            joined_command_line(&codex)
        );
        let server = setup(Runtime::Codex {
            argv,
            app_server: true,
        });
        assert!(joined_command_line(&server).starts_with("codex app-server -c "));
    }

    /// S4: a shell snapshot would contain every key of the environment in clear text.
    #[test]
    fn s4_codex_keeps_no_snapshot_of_its_shell() {
        for app_server in [false, true] {
            let codex = setup(Runtime::Codex {
                argv: to_strings(&["codex"]),
                app_server,
            });
            assert!(
                joined_command_line(&codex).contains("features.shell_snapshot=false"),
                "{}",
                joined_command_line(&codex)
            );
        }
        let acp = setup(Runtime::Acp {
            argv: to_strings(&["codex-acp"]),
        });
        let written = home_files(&acp);
        assert!(
            written
                .iter()
                .any(|(_, text)| text.contains("shell_snapshot = false")),
            "{written:?}"
        );
    }

    #[test]
    fn fast_mode_is_switched_on_only_on_request() {
        for (runtime, switch) in [
            (
                Runtime::Claude {
                    argv: to_strings(&["claude"]),
                },
                r#"--settings {"fastMode":true}"#,
            ),
            (
                Runtime::Codex {
                    argv: to_strings(&["codex"]),
                    app_server: true,
                },
                "-c service_tier=\"fast\"",
            ),
            (
                Runtime::Codex {
                    argv: to_strings(&["codex"]),
                    app_server: false,
                },
                "-c service_tier=\"fast\"",
            ),
        ] {
            let mut driver_setup = setup(runtime);
            for (requested, expected) in [(None, false), (Some(false), false), (Some(true), true)] {
                driver_setup.profile.fast_mode = requested;
                assert_eq!(
                    joined_command_line(&driver_setup).contains(switch),
                    expected,
                    "{requested:?}: {}",
                    joined_command_line(&driver_setup)
                );
            }
        }
    }

    #[test]
    fn codex_mode_sets_the_approval_policy_and_the_sandbox() {
        let mode = |mode: Option<&str>, sandbox| {
            let (approval, sandbox) = codex_mode(&Profile {
                mode: mode.map(str::to_owned),
                sandbox,
                ..Profile::default()
            });
            format!("{approval} {sandbox}")
        };
        assert_eq!(
            mode(None, Some(SandboxLevel::Workspace)),
            "on-request danger-full-access"
        );
        assert_eq!(
            mode(None, Some(SandboxLevel::Off)),
            "on-request workspace-write"
        );
        assert_eq!(
            mode(Some("never+read-only"), Some(SandboxLevel::Off)),
            "never read-only"
        );
        assert_eq!(
            mode(Some("untrusted"), Some(SandboxLevel::Strict)),
            "untrusted danger-full-access"
        );
    }

    #[test]
    fn profile_variables_override_defaults_and_is_sandbox_is_set_only_for_sandboxed_root() {
        let mut claude = setup(Runtime::Claude {
            argv: to_strings(&["claude"]),
        });
        claude.profile.env = vec![("ENABLE_TOOL_SEARCH".to_owned(), "true".to_owned())];
        let last_value = |setup: &DriverSetup, name: &str| {
            environment(setup)
                .into_iter()
                .rfind(|(known, _)| known == name)
                .map(|(_, value)| value)
        };
        assert_eq!(
            last_value(&claude, "ENABLE_TOOL_SEARCH").as_deref(),
            Some("true")
        );
        assert_eq!(last_value(&claude, "PWD").as_deref(), Some("/workspace"));
        claude.profile.cwd = Some("web/src".to_owned());
        assert_eq!(
            last_value(&claude, "PWD").as_deref(),
            Some("/workspace/web/src")
        );
        assert_eq!(last_value(&claude, "IS_SANDBOX"), None);
        claude.sandboxed_root = true;
        assert_eq!(last_value(&claude, "IS_SANDBOX").as_deref(), Some("1"));
    }

    #[test]
    fn gemini_gets_its_sign_in_method_in_a_settings_file() {
        let gemini = setup(Runtime::Acp {
            argv: to_strings(&["/opt/bin/gemini", "--acp"]),
        });
        let [(path, content)] = home_files(&gemini).try_into().unwrap();
        assert_eq!(path, ".gemini/settings.json");
        assert!(content.contains("oauth-personal"), "{content}");
    }
}
