//! Quotes words for a shell, in commands that a person copies and in commands that Regatta runs
//! with `sh`.

/// Returns a word so that every shell reads it as the same single word: unchanged if the word is
/// plain, and otherwise in single quotes.
///
/// A leading dash is no reason for quotes, because a program reads even a quoted word with a
/// leading dash as an option.
pub fn quote(word: &str) -> String {
    if is_plain(word) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns whether a word needs no quotes in any shell. `A=b` at the beginning of a line would set
/// a variable, and `=b` is a program's path in zsh, so an equals sign is plain only in an option.
/// Letters outside ASCII are quoted, because how a shell reads them depends on its settings.
fn is_plain(word: &str) -> bool {
    let is_option = word.starts_with('-');
    let is_plain_char =
        |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c) || (is_option && c == '=');
    !word.is_empty() && word.chars().all(is_plain_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_quoted_only_if_a_shell_would_interpret_it() {
        let cases = [
            ("keep", "keep"),
            ("src/a_b-c.rs:10@x%2+1,3", "src/a_b-c.rs:10@x%2+1,3"),
            ("", "''"),
            ("410 Gone", "'410 Gone'"),
            ("tab\there", "'tab\there'"),
            ("it's", r"'it'\''s'"),
            ("'", r"''\'''"),
            ("$HOME", "'$HOME'"),
            ("`id`", "'`id`'"),
            ("two\nlines", "'two\nlines'"),
            (r"a\b", r"'a\b'"),
            ("\"a\"", "'\"a\"'"),
            ("-m", "-m"),
            ("--mode=flow", "--mode=flow"),
            ("-m flow", "'-m flow'"),
            ("~", "'~'"),
            ("~/plan.md", "'~/plan.md'"),
            ("a~", "'a~'"),
            ("=ls", "'=ls'"),
            ("CI=1", "'CI=1'"),
            ("*.rs", "'*.rs'"),
            ("why?", "'why?'"),
            ("[a]{b,c}", "'[a]{b,c}'"),
            ("a;b&c|d<e>f(g)", "'a;b&c|d<e>f(g)'"),
            ("#1", "'#1'"),
            ("no!", "'no!'"),
            ("a^b", "'a^b'"),
            ("Grüße", "'Grüße'"),
            ("a\u{a0}b", "'a\u{a0}b'"),
            ("船", "'船'"),
        ];
        for (word, quoted) in cases {
            assert_eq!(quote(word), quoted, "{word:?}");
        }
    }
}
