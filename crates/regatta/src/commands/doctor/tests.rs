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
        program: None,
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

/// The commands of `regatta.toml` count. Without any in the file, those of the project count.
#[test]
fn missing_checks_of_the_file_or_the_project_are_a_warning() {
    let some = || Some(vec!["make test".to_owned()]);
    let none = || Some(vec![]);
    let cases = [
        (some(), none(), false),
        (none(), some(), true),
        (none(), None, true),
        (None, none(), true),
        (None, some(), false),
        // The directory is no project, which another check reports.
        (None, None, false),
    ];
    for (file, project, expected) in cases {
        let case = format!("{file:?}, {project:?}");
        let found = check_validation(file, project);
        assert_eq!(found.is_some(), expected, "{case}");
    }
}

#[test]
fn a_copy_that_the_shell_does_not_start_is_a_warning() {
    let own = Path::new("/opt/regatta/bin/regatta");
    assert!(path_warning(own, Some(own)).is_none());
    let other = path_warning(own, Some(Path::new("/usr/bin/regatta"))).unwrap();
    assert!(other.text.contains("another program: /usr/bin/regatta"));
    let missing = path_warning(own, None).unwrap();
    assert!(
        missing
            .text
            .starts_with("the shell does not find `regatta`")
    );
    assert!(missing.fix.contains("PATH=\"/opt/regatta/bin:$PATH\""));
}

/// `docs/platforms.md` and the install script name the same kernel.
#[test]
fn kernels_are_compared_by_number_and_the_oldest_is_documented() {
    for (release, expected) in [
        ("6.1.0-28-amd64", Some((6, 1))),
        ("5.15.167.4-microsoft-standard-WSL2", Some((5, 15))),
        ("5.6", Some((5, 6))),
        ("unknown", None),
    ] {
        assert_eq!(parse_kernel_release(release), expected, "{release}");
    }
    assert!((4, 18) < MIN_KERNEL && (5, 10) > MIN_KERNEL);
    let (major, minor) = MIN_KERNEL;
    let page = include_str!("../../../../../docs/platforms.md");
    assert!(page.contains(&format!("| kernel | {major}.{minor} |")));
    let script = include_str!("../../../../../packaging/install.sh");
    assert!(script.contains(&format!("needs Linux {major}.{minor} or later")));
}
