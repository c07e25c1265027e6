//! Returns the version of the program. A release build adds its commit and date.

use std::sync::LazyLock;

static TEXT: LazyLock<String> = LazyLock::new(|| {
    text_of(
        env!("CARGO_PKG_VERSION"),
        option_env!("REGATTA_BUILD_COMMIT"),
        option_env!("REGATTA_BUILD_DATE"),
    )
});

/// Returns the version as `--version` prints it. The version of a build in a checkout contains no
/// commit and date, because otherwise cargo would build the program again after every commit.
pub(crate) fn text() -> &'static str {
    &TEXT
}

fn text_of(version: &str, commit: Option<&str>, date: Option<&str>) -> String {
    match (commit, date) {
        (Some(commit), Some(date)) => format!("{version} ({commit} {date})"),
        _ => format!("{version} (built from a checkout)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_names_its_commit_and_date() {
        let release = text_of("0.1.0", Some("24a8c3a1"), Some("2026-11-19"));
        assert_eq!(release, "0.1.0 (24a8c3a1 2026-11-19)");
        assert_eq!(
            text_of("0.1.0", None, None),
            "0.1.0 (built from a checkout)"
        );
        assert!(text().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
