//! The names of providers (the makers of agents' programs, such as `anthropic`), with the other
//! names that people use for them.
//!
//! Wherever a provider's name is read (in teams, plans, agents and the settings `[lanes]`),
//! [`canonical`] converts it to the provider's own name. Stored records keep the name with which
//! they were written.

/// All known providers: each has its own name and a list of other names. Case, `-`, `_` and dots
/// are ignored when names are compared.
///
/// The name of each program that Regatta knows (see `regatta provider`) is also a name of its
/// provider.
pub const PROVIDERS: &[(&str, &[&str])] = &[
    (
        "anthropic",
        &[
            "claude",
            "claude-code",
            "claude-native",
            "claude-agent-acp",
            "claude-code-acp",
        ],
    ),
    (
        "codex",
        &[
            "openai",
            "openai-codex",
            "codex-cli",
            "codex-acp",
            "codex-native",
            "codex-app-server",
            "codex-exec",
        ],
    ),
    ("gemini", &["google", "google-gemini", "gemini-cli"]),
    ("opencode", &["opencode-ai"]),
    ("goose", &["block-goose"]),
    ("qwen", &["qwen-code"]),
    ("pi", &["pi-acp", "pi-coding-agent"]),
    ("aider", &["aider-chat"]),
    ("mini-swe-agent", &["mini", "mini-swe"]),
    ("gc", &["gc-pool"]),
    ("github", &["copilot", "github-copilot"]),
    ("augment", &["auggie", "augment-code"]),
    ("cline", &[]),
    ("cursor", &["cursor-agent"]),
    ("moonshot", &["kimi", "kimi-cli"]),
    ("mistral", &["vibe", "vibe-acp", "mistral-vibe"]),
    ("scripted", &[]),
];

/// Returns the provider's own name if `name` is any of the names of a known provider, in any
/// spelling. Otherwise returns `name` unchanged.
pub fn canonical(name: &str) -> &str {
    known_provider(name).unwrap_or(name)
}

/// Returns whether any known provider has this name in any spelling.
pub fn is_known(name: &str) -> bool {
    known_provider(name).is_some()
}

/// Returns whether two names mean the same provider.
pub fn is_same(left: &str, right: &str) -> bool {
    left == right || canonical(left) == canonical(right)
}

/// Returns the own name of the provider that was most likely meant by a misspelled name. Returns
/// `None` if no known name is similar enough.
pub fn nearest(name: &str) -> Option<&'static str> {
    let all: Vec<&'static str> = PROVIDERS
        .iter()
        .flat_map(|(own, others)| others.iter().copied().chain([*own]))
        .collect();
    crate::spelling::nearest(name, &all).map(|found| known_provider(found).unwrap_or(found))
}

fn known_provider(name: &str) -> Option<&'static str> {
    let has_name = |(own, others): &&(&'static str, &'static [&'static str])| {
        std::iter::once(own)
            .chain(others.iter())
            .any(|candidate| comparable_chars(candidate).eq(comparable_chars(name)))
    };
    PROVIDERS.iter().find(has_name).map(|(own, _)| *own)
}

/// Returns the characters of a provider's name that count in a comparison, in lower case. Dashes,
/// underscores, dots and spaces do not count.
fn comparable_chars(name: &str) -> impl Iterator<Item = char> {
    name.chars()
        .filter(|c| !matches!(c, '-' | '_' | '.' | ' '))
        .flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_names_and_spellings_are_read_as_their_provider() {
        for (written, provider) in [
            ("anthropic", "anthropic"),
            ("claude", "anthropic"),
            ("Claude", "anthropic"),
            ("claude_code", "anthropic"),
            ("Codex", "codex"),
            ("openai", "codex"),
            ("OpenAI", "codex"),
            ("OpenCode", "opencode"),
            ("open-code", "opencode"),
            ("Google", "gemini"),
            ("acme", "acme"),
            ("Acme", "Acme"),
        ] {
            assert_eq!(canonical(written), provider, "{written}");
        }
    }

    #[test]
    fn no_name_belongs_to_two_providers() {
        let mut all: Vec<String> = PROVIDERS
            .iter()
            .flat_map(|(own, others)| {
                others
                    .iter()
                    .chain([own])
                    .map(|name| comparable_chars(name).collect())
            })
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_suggestion_for_a_misspelt_name_is_the_providers_own_name() {
        for (written, meant) in [
            ("codx", Some("codex")),
            ("cluade", Some("anthropic")),
            ("acme", None),
        ] {
            assert_eq!(nearest(written), meant, "{written}");
        }
    }
}
