//! Tests of how the checks are drawn.

use super::*;

/// In a narrow window a fix is printed in full below its text.
#[test]
fn a_fix_is_printed_in_full_in_a_narrow_window() {
    let fix = "sign in with `claude /login`, or give the agent a key in ANTHROPIC_API_KEY or \
        ANTHROPIC_AUTH_TOKEN";
    let checks = [
        check_line("git", CheckLevel::Ok, "2.47.3", ""),
        check_line(
            "provider",
            CheckLevel::Warn,
            "anthropic: claude-native 2.1.325, not signed in",
            fix,
        ),
    ];
    let out = Output {
        is_json: false,
        quiet_level: 0,
        has_colour: true,
        has_hints: false,
        is_unicode: true,
        pager: None,
    };
    let text = draw_checks(&out, &checks, Some(60));
    assert!(text.lines().all(|line| display_width(line) <= 60), "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains(fix), "{text}");
    let text = draw_checks(
        &Output {
            has_colour: false,
            ..out
        },
        &checks,
        Some(300),
    );
    assert_eq!(
        text.lines().next(),
        Some("✓ git       2.47.3"),
        "one line per check in a wide window: {text}"
    );
    assert_eq!(text.lines().count(), 2, "{text}");
}
