//! Returns the version of the program, with its commit and date if the build knew them.

use std::sync::LazyLock;

static TEXT: LazyLock<String> = LazyLock::new(|| {
    text_of(
        env!("CARGO_PKG_VERSION"),
        option_env!("REGATTA_BUILD_COMMIT"),
        option_env!("REGATTA_BUILD_DATE"),
    )
});

/// Returns the version as `--version` prints it. `build.rs` or `cargo xtask dist` sets the commit and
/// the date.
pub(crate) fn text() -> &'static str {
    &TEXT
}

fn text_of(version: &str, commit: Option<&str>, date: Option<&str>) -> String {
    match (commit, date) {
        (Some(commit), Some(date)) => format!("{version} ({commit} {date})"),
        _ => format!("{version} (built without git)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_the_commit_and_the_date() {
        let release = text_of("0.1.0", Some("24a8c3a1"), Some("2026-11-19"));
        assert_eq!(release, "0.1.0 (24a8c3a1 2026-11-19)");
        assert_eq!(text_of("0.1.0", None, None), "0.1.0 (built without git)");
        assert!(text().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
