//! Tests of the redactor with known values, with a corpus of secrets, and with harmless text.

use std::borrow::Cow;

use proptest::prelude::*;

use super::{BASE64, BASE64URL, Redactor, redact_text};

#[path = "redact_corpus.rs"]
mod corpus;

fn redactor_for(value: &str) -> Redactor {
    Redactor::new(vec![("API_KEY".to_owned(), value.to_owned())])
}

fn percent_encode(value: &str, everything: bool) -> String {
    let keep = |byte: u8| !everything && (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    value
        .bytes()
        .map(|byte| {
            if keep(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn percent_encode_lower(value: &str) -> String {
    value
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02x}")
            }
        })
        .collect()
}

fn utf16_escapes(value: &str) -> String {
    value
        .encode_utf16()
        .map(|unit| format!("\\u{unit:04x}"))
        .collect()
}

/// Returns every spelling in which a secret must be recognised.
fn spellings(value: &str) -> Vec<String> {
    let json = serde_json::to_string(value).unwrap();
    let nested = serde_json::to_string(&json).unwrap();
    vec![
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        nested[3..nested.len() - 3].to_owned(),
        utf16_escapes(value),
        value.replace('/', "\\/"),
        percent_encode(value, false),
        percent_encode(value, true),
        percent_encode_lower(value),
        percent_encode(value, false).replace("%20", "+"),
        BASE64.encode(value.as_bytes()),
        BASE64URL.encode(value.as_bytes()),
        BASE64.encode(format!("u:{value}").as_bytes()),
        BASE64.encode(format!("me:{value}:x").as_bytes()),
    ]
}

#[test]
fn s4_a_known_value_is_replaced_by_its_name() {
    let redactor = redactor_for("correct horse/battery+staple\"1");
    assert_eq!(
        redactor.redact_line("key=correct horse/battery+staple\"1;"),
        "key=[redacted API_KEY];"
    );
    assert_eq!(
        redactor.redact_line(r#"{"k":"correct horse\/battery+staple\"1"}"#),
        r#"{"k":"[redacted API_KEY]"}"#
    );
    assert_eq!(
        redactor.redact_line("?k=correct+horse%2fbattery%2Bstaple%221&x"),
        "?k=[redacted API_KEY]&x"
    );
}

#[test]
fn s4_a_value_of_several_lines_is_redacted_line_by_line() {
    let redactor = redactor_for("first line of it\nsecond line of it\n");
    assert_eq!(
        redactor.redact_line("> second line of it"),
        "> [redacted API_KEY]"
    );
    assert_eq!(
        redactor.redact_line(r#""first line of it\nsecond line of it""#),
        r#""[redacted API_KEY]""#
    );
}

#[test]
fn short_value_is_not_redacted_and_gets_a_warning() {
    let redactor = redactor_for("seven77");
    assert!(matches!(
        redactor.redact_line("seven77"),
        Cow::Borrowed("seven77")
    ));
    assert!(
        redactor.warnings()[0].contains("API_KEY") && !redactor.warnings()[0].contains("seven77"),
        "{:?}",
        redactor.warnings()
    );
    assert!(!format!("{:?}", redactor_for("long enough to count")).contains("enough"));
}

#[test]
fn s4_text_that_looks_like_a_key_is_redacted() {
    let long = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0";
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";
    let upper = &long.to_uppercase()[..16];
    let keys = [
        format!("sk-{long}"),
        format!("sk-ant-api03-{long}-{long}_AA"),
        format!("ghp_{long}"),
        format!("gho_{long}"),
        format!("github_pat_11AA_{long}"),
        format!("xoxb-123456789012-{long}"),
        format!("xoxp-{long}"),
        format!("AKIA{upper}"),
        format!("AIza{}", &long[..35]),
        format!("glpat-{}", &long[..20]),
        format!("npm_{}", &long[..36]),
        format!("lin_api_{long}"),
        jwt.to_owned(),
        format!(
            "-----BEGIN RSA PRIVATE KEY-----\\nProc-Type: 4,ENCRYPTED\\n{long}\\n-----END RSA \
            PRIVATE KEY-----"
        ),
    ];
    let redactor = Redactor::default();
    for key in &keys {
        for (before, after) in [
            ("", ""),
            ("x=", " y"),
            (r#"{"a":""#, r#"\n"}"#),
            (r#"{"a":"\n"#, r#""}"#),
            ("%22", "%22"),
        ] {
            assert_eq!(
                redactor.redact_line(&format!("{before}{key}{after}")),
                format!("{before}[redacted]{after}"),
                "{key}"
            );
        }
    }
    for (line, clean) in [
        (
            "Authorization: Bearer abcdef-ghijkl",
            "Authorization: Bearer [redacted]",
        ),
        (
            r#"{"authorization":"Basic dXNlcjpwYXNz"}"#,
            r#"{"authorization":"Basic [redacted]"}"#,
        ),
        (
            r#"-H \"Authorization: Bearer tok_123\""#,
            r#"-H \"Authorization: Bearer [redacted]\""#,
        ),
        ("bearer 0123456789abcdef", "bearer [redacted]"),
    ] {
        assert_eq!(redactor.redact_line(line), clean);
    }
}

#[test]
fn text_that_does_not_look_like_a_key_is_not_changed() {
    let redactor = Redactor::default();
    for line in [
        "a task-1234567890123456789 and a desk-1234567890123456789",
        "class=\"sk-fading-circle-container\"",
        "npm_config_registry npm_package_name ghp_ AKIA glpat-",
        "Bearer authentication is described elsewhere; the bearer of this letter",
        "Authorization is a topic. Authorization: none",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
        "a hash 3b18e512dba79e4c8300dd08aeb37f8e728b8dad and eyJust.some.words",
    ] {
        assert!(
            matches!(redactor.redact_line(line), Cow::Borrowed(same) if same == line),
            "{line}: {}",
            redactor.redact_line(line)
        );
    }
}

#[test]
fn s4_a_private_key_is_redacted_with_the_lines_of_its_body() {
    let redactor = Redactor::default();
    let lines = [
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ",
        "    7\tAAAAB3Nz==",
    ];
    for line in lines {
        assert_eq!(redactor.redact_line(line), "[redacted]", "{line}");
    }
    assert_eq!(
        redactor.redact_line("-----END OPENSSH PRIVATE KEY-----"),
        "-----END OPENSSH PRIVATE KEY-----"
    );
    assert_eq!(redactor.redact_line("word"), "word");
}

#[test]
fn redacted_json_line_is_still_json() {
    for (secret, line) in [
        ("12345678", r#"{"id":12345678}"#),
        (r#"{"type":"service"}"#, r#"{"type":"service"}"#),
        ("nabcdefgh", r#"{"a":"\nabcdefgh"}"#),
        ("00e9abcdef", r#"{"a":"\u00e9abcdef"}"#),
        ("abcdefgh\\", r#"{"a":"abcdefgh\"b"}"#),
        ("abcdefgu", r#"{"a":"abcdefg\u00e9"}"#),
        ("tail-is-a-\\", r#"{"a":"tail-is-a-\\"}"#),
    ] {
        let redactor = redactor_for(secret);
        let clean = redactor.redact_line(line);
        assert!(
            serde_json::from_str::<serde_json::Value>(&clean).is_ok(),
            "{secret}: {clean}"
        );
        assert_ne!(clean, line);
    }
}

/// The corpus combines providers, names and syntaxes.
#[test]
fn s4_every_secret_of_the_corpus_is_redacted() {
    let all = corpus::secrets();
    assert!(all.len() >= 3_000, "{}", all.len());
    let missed: Vec<String> = all
        .iter()
        .filter_map(|(line, secret)| {
            let cleaned = Redactor::default().redact_line(line).into_owned();
            cleaned
                .contains(secret.as_str())
                .then(|| format!("{line} -> {cleaned}"))
        })
        .collect();
    assert!(
        missed.is_empty(),
        "{} of {}: {:#?}",
        missed.len(),
        all.len(),
        &missed[..missed.len().min(20)]
    );
}

/// Only the value is replaced. The text around the value stays, and JSON stays valid.
#[test]
fn s4_only_the_value_of_a_named_secret_is_redacted() {
    for (line, cleaned) in [
        ("password=hunter2secret", "password=[redacted]"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [redacted]",
        ),
        (
            "postgres://admin:s3cretPass@db.example.com/x",
            "postgres://admin:[redacted]@db.example.com/x",
        ),
        (
            r#"{"password":"hunter2secret","n":1}"#,
            r#"{"password":"[redacted]","n":1}"#,
        ),
        ("a?token=abcd1234efgh5678&b=c", "a?token=[redacted]&b=c"),
        (
            "Pwd=hunter2secret;Encrypt=true",
            "Pwd=[redacted];Encrypt=true",
        ),
        (
            "one https://u:s3cretPass@h/ and password: hunter2",
            "one https://u:[redacted]@h/ and password: [redacted]",
        ),
    ] {
        assert_eq!(Redactor::default().redact_line(line), cleaned);
    }
}

/// The value is on another line than its name.
#[test]
fn s4_a_value_on_a_line_after_its_name_is_redacted() {
    for text in [
        "password: |\n  hunter2secret\nnext: 1",
        "  api_key: >-\n    abcd1234efgh5678\nnext: 1",
        "token = \"\"\"\nhunter2secret abcd1234efgh5678\n\"\"\"\nnext: 1",
        "- name: DB_PASSWORD\n  value: hunter2secret\nnext: 1",
        "{\n  \"name\": \"API_KEY\",\n  \"value\": \"abcd1234efgh5678\"\n}\nnext: 1",
    ] {
        let cleaned = super::redact_text(text);
        assert!(
            !cleaned.contains("hunter2") && !cleaned.contains("abcd1234"),
            "{cleaned}"
        );
        assert!(cleaned.ends_with("\nnext: 1"), "{cleaned}");
    }
    for text in [
        "notes: |\n  a password is a word",
        "- name: PATH\n  value: /usr/bin",
        "a > b\nc",
    ] {
        assert_eq!(super::redact_text(text), text);
    }
}

#[test]
fn harmless_text_that_resembles_a_named_secret_is_not_changed() {
    let wrong: Vec<String> = corpus::HARMLESS
        .iter()
        .filter_map(|line| match Redactor::default().redact_line(line) {
            Cow::Borrowed(_) => None,
            Cow::Owned(cleaned) => Some(format!("{line} -> {cleaned}")),
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The sources and pages of this repository contain almost no text that is redacted, apart from
/// made-up secrets of tests.
#[test]
fn false_positives_in_this_repository_are_few() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut lines, mut changed) = (0, Vec::new());
    let mut pending = vec![root.join("crates"), root.join("docs")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_text = name.ends_with(".rs") || name.ends_with(".md") || name.ends_with(".toml");
        if !is_text
            || name.starts_with("redact")
            || path.to_string_lossy().contains("named_secrets")
            || path.ends_with("target")
        {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            lines += 1;
            if let Cow::Owned(cleaned) = Redactor::default().redact_line(line) {
                changed.push(format!("{}: {cleaned}", path.display()));
            }
        }
    }
    assert!(lines > 10_000, "{lines}");
    assert!(
        changed.len() * 4_000 <= lines,
        "{} of {lines}: {changed:#?}",
        changed.len()
    );
}

/// A line is assembled before it is redacted, so the places where the output was cut do not matter.
#[test]
fn s4_a_secret_in_a_line_that_arrives_in_pieces_is_redacted() {
    let text = "log: password=hunter2secret and postgres://u:s3cretPass@h/x\nnext\n";
    for cut in 0..text.len() {
        let mut lines = crate::shim::output_limits::LineSplitter::default();
        let (redactor, mut written) = (Redactor::default(), String::new());
        for piece in [&text[..cut], &text[cut..]] {
            let kept: Result<(), ()> = lines.push_piece(piece.as_bytes(), 1_000, |line, _| {
                written += &redactor.redact_line(&String::from_utf8_lossy(line));
                written.push('\n');
                Ok(())
            });
            kept.unwrap();
        }
        assert_eq!(
            written, "log: password=[redacted] and postgres://u:[redacted]@h/x\nnext\n",
            "cut at {cut}"
        );
    }
}

/// No position is read again and again, so twice the text takes about twice the steps.
#[test]
fn redacting_a_long_line_takes_linear_time() {
    for piece in [
        "password=",
        "secret:\"",
        "://a:",
        "curl -u a:",
        "token = ",
        "eyJ.",
        "-----BEGIN ",
    ] {
        let line = piece.repeat(200_000 / piece.len());
        // A quadratic search would read 40,000,000,000 bytes here and would exceed the test's time
        // limit.
        let _cleaned = Redactor::default().redact_line(&line);
    }
}

proptest! {
    #[test]
    fn s4_every_spelling_of_a_secret_is_redacted(
        secret in r#"[ -~é😀\n\t]{8,40}"#,
        before in r#"[ -~]{0,12}"#,
        after in r#"[ -~]{0,12}"#,
    ) {
        prop_assume!(secret.trim_end_matches(['\r', '\n']).chars().count() >= 8 && !"[redacted API_KEY]".contains(&secret));
        let secret = secret.trim_end_matches(['\r', '\n']);
        let redactor = redactor_for(secret);
        for spelling in spellings(secret) {
            let clean = redactor.redact_line(&format!("{before}{spelling}{after}")).into_owned();
            // The surrounding text may complete another copy of the secret, which must be removed
            // too.
            prop_assert!(!clean.contains(secret), "{spelling:?} left {clean:?}");
            prop_assert!(clean.contains("[redacted"), "{spelling:?} left {clean:?}");
            prop_assert!(spelling.len() < 12 || !clean.contains(&spelling), "{spelling:?} left {clean:?}");
        }
    }

    #[test]
    fn s4_a_secret_in_json_is_redacted_and_the_line_stays_json(
        secret in r#"[ -~é\n]{8,24}"#,
        before in r#"[ -~\n"\\é]{0,12}"#,
        after in r#"[ -~\n"\\é]{0,12}"#,
        number in any::<u64>(),
    ) {
        let secret = secret.trim_end_matches(['\r', '\n']);
        prop_assume!(secret.chars().count() >= 8);
        let value = serde_json::json!({ "n": number, "text": format!("{before}{secret}{after}"), "more": [before, after] });
        let clean = redactor_for(secret).redact_line(&value.to_string()).into_owned();
        let read: serde_json::Value = serde_json::from_str(&clean).map_err(|error| TestCaseError::fail(format!("{error}: {clean}")))?;
        let text = read["text"].as_str().unwrap_or_default();
        prop_assert!(!text.contains(secret), "{clean}");
    }

    #[test]
    fn line_without_secrets_is_not_changed(line in r#"[a-z0-9 .,:;{}"\\/=%é]{0,200}"#) {
        let redactor = redactor_for("A-SECRET-IN-CAPITALS");
        prop_assert!(matches!(redactor.redact_line(&line), Cow::Borrowed(same) if same.len() == line.len()), "{}", redactor.redact_line(&line));
    }
}

/// S4: a secret is removed whole, regardless of its length and of the characters at the position
/// where the search stops.
#[test]
fn s4_a_long_secret_is_redacted_to_its_end() {
    let long = "q7Zk2Lx9".repeat(1_000);
    for line in [
        format!("password={long} end"),
        format!("password=\"{long}\" end"),
        format!("API_KEY: '{long}' end"),
        format!("<password>{long}</password> end"),
        format!("Cookie: session={long} end"),
    ] {
        let clean = redact_text(&line);
        assert!(
            !clean.contains("q7Zk2Lx9"),
            "{} bytes of {:.40} are left",
            clean.len(),
            line
        );
        assert!(
            clean.ends_with(" end") || clean.starts_with("Cookie"),
            "{clean:.200}"
        );
    }
    // Some of these lengths put the limit inside a character.
    for filler in 4_080..4_100 {
        let clean = redact_text(&format!(
            "password={}éüß{long}",
            "k9".repeat(filler / 2) + &"x".repeat(filler % 2)
        ));
        assert!(!clean.contains("q7Zk2Lx9"), "{filler}");
    }
}

/// S4: a password in a URL is removed regardless of its length, also in a line that was cut before
/// the host. The same holds for the login of a curl command and for a value on the line after its
/// name.
#[test]
fn s4_a_long_password_in_a_url_is_redacted_whole() {
    for times in [511, 512, 513, 625, 5_000] {
        let long = "q7Zk2Lx9".repeat(times);
        for line in [
            format!("postgres://u:{long}@host/db end"),
            format!("\"url\": \"https://u:{long}@host\" end"),
            format!("postgres%3A%2F%2Fu%3A{long}%40host%2Fdb end"),
            format!("https://{long}@host/ end"),
            format!("curl -u bob:{long} https://host end"),
            format!("curl -u 'bob:{long}' https://host end"),
            format!("- name: DB_PASSWORD\n  value: {long} end"),
            format!("- name: DB_PASSWORD\n  value: \"{long}\" end"),
        ] {
            let clean = redact_text(&line);
            assert!(
                !clean.contains("q7Zk2Lx9"),
                "{} bytes of {:.40} are left",
                clean.len(),
                line
            );
            assert!(
                clean.ends_with(" end") && clean.contains("[redacted]"),
                "{clean:.200}"
            );
        }
    }
    // A port and a host stay unchanged, also before a long text.
    for line in [
        format!("http://localhost:8080/{}", "x/".repeat(4_000)),
        format!("http://host:{}", "8".repeat(5)),
    ] {
        assert_eq!(redact_text(&line), line);
    }
}

/// S4: the pieces of a long URL may have any size, and an overlong line may be cut inside the
/// password.
#[test]
fn s4_a_long_password_in_a_url_that_arrives_in_pieces_is_redacted() {
    let long = "q7Zk2Lx9".repeat(1_000);
    let text = format!("log postgres://u:{long}@h/x end\n");
    let read = |pieces: &[&[u8]], most: usize| {
        let mut lines = crate::shim::output_limits::LineSplitter::default();
        let (redactor, mut written) = (Redactor::default(), String::new());
        for piece in pieces {
            let kept: Result<(), ()> = lines.push_piece(piece, most, |line, _| {
                written += &redactor.redact_line(&String::from_utf8_lossy(line));
                written.push('\n');
                Ok(())
            });
            kept.unwrap();
        }
        written
    };
    for size in [1, 7, 512, 4_095, 4_096, 4_097] {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        assert_eq!(
            read(&pieces, 1 << 20),
            "log postgres://u:[redacted]@h/x end\n",
            "pieces of {size} bytes"
        );
    }
    for most in [4_096, 4_120, 5_000, 8_000] {
        let written = read(&[text.as_bytes()], most);
        assert!(
            written.starts_with("log postgres://u:[redacted]"),
            "{most}: {written:.60}"
        );
        assert!(
            !written.contains("q7Zk2Lx9"),
            "{most}: {} bytes are left",
            written.len()
        );
    }
}
