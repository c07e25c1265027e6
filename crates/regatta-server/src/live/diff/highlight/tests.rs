//! Tests of the syntax of source code.

use super::*;

/// Returns the tokens of lines as `class:text`, in one text per line.
fn shape(path: &str, lines: &[&str]) -> Vec<String> {
    let syntax = syntax_for_path(path).expect("a known language");
    let mut state = syntax.state_before(lines.iter().copied());
    lines
        .iter()
        .map(|line| {
            let tokens = syntax.tokens(line, &mut state);
            let texts = tokens
                .iter()
                .map(|token| format!("{}:{}", token.class, &line[token.range.clone()]));
            texts.collect::<Vec<_>>().join(" ")
        })
        .collect()
}

#[test]
fn each_common_language_shows_comments_strings_numbers_and_keywords() {
    let table = [
        (
            "a.rs",
            "let x: u8 = 0x1f; // no",
            "hk:let hk:u8 hn:0x1f hc:// no",
        ),
        (
            "a.py",
            "def f(a): return 'x' # no",
            "hk:def hf:f hk:return hs:'x' hc:# no",
        ),
        (
            "a.ts",
            "const a = `b` + 1.5; // no",
            "hk:const hs:`b` hn:1.5 hc:// no",
        ),
        (
            "a.jsx",
            "return call(\"a\\\"b\")",
            "hk:return hf:call hs:\"a\\\"b\"",
        ),
        (
            "a.go",
            "func Run() error { /* no */ }",
            "hk:func hf:Run hk:error hc:/* no */",
        ),
        (
            "a.java",
            "@Override public String a()",
            "ha:@Override hk:public ht:String hf:a",
        ),
        ("a.cpp", "#include <x> // no", "hk:include hc:// no"),
        (
            "a.rb",
            "def a; 'b'; end # no",
            "hk:def hs:'b' hk:end hc:# no",
        ),
        (
            "a.sh",
            "if test -f a#b; then # no",
            "hk:if hk:test hk:then hc:# no",
        ),
        (
            "a.sql",
            "SELECT 'a' FROM t -- no",
            "hk:SELECT hs:'a' hk:FROM hc:-- no",
        ),
        ("a.css", "color: red; /* no */", "hp:color hc:/* no */"),
        (
            "a.html",
            "<a href=\"b\">don't</a>",
            "hk:a hp:href hs:\"b\" hk:a",
        ),
        ("a.toml", "name = \"x\" # no", "hp:name hs:\"x\" hc:# no"),
        ("a.json", "\"a\": true", "hp:\"a\" hk:true"),
        ("a.yaml", "max-workers: 3", "hp:max-workers hn:3"),
        ("a.md", "use `cargo` here", "hs:`cargo`"),
    ];
    for (path, line, expected) in table {
        assert_eq!(shape(path, &[line]), [expected], "{path}");
    }
    assert!(syntax_for_path("a.unknown").is_none() && syntax_for_path("LICENSE").is_none());
    assert!(syntax_for_path("deep/Dockerfile").is_some());
}

#[test]
fn comments_and_strings_continue_on_the_next_line() {
    assert_eq!(
        shape("a.rs", &["a /* b", "c */ let", "\"d", "e\" 1"]),
        ["hc:/* b", "hc:c */ hk:let", "hs:\"d", "hs:e\" hn:1"]
    );
    assert_eq!(
        shape("a.py", &["'''a", "b''' None"]),
        ["hs:'''a", "hs:b''' hk:None"]
    );
    assert_eq!(
        shape("a.md", &["# A", "```", "let", "```", "> q"]),
        ["hk:# A", "hs:```", "hs:let", "hs:```", "hc:> q"]
    );
}

#[test]
fn a_part_of_a_file_that_begins_inside_a_comment_is_a_comment() {
    assert_eq!(
        shape("a.ts", &[" * says `what", " */", "let a"]),
        ["hc: * says `what", "hc: */", "hk:let"]
    );
}

#[test]
fn a_lifetime_is_no_string() {
    assert_eq!(
        shape("a.rs", &["fn a<'b>(c: &'b str) { 'd' '\\'' }"]),
        ["hk:fn hk:str hs:'d' hs:'\\''"]
    );
}

/// S12: hostile text has tokens only inside the line, in order, and on the borders of characters.
#[test]
fn s12_tokens_of_hostile_text_are_ordered_and_inside_the_line() {
    let parts = [
        "\"", "'", "`", "\\", "/*", "*/", "ü", "漢", "#[", "@", "0x", "<", "'''", "\u{202e}",
    ];
    for path in ["a.rs", "a.py", "a.ts", "a.html", "a.json", "a.md", "a.sh"] {
        let syntax = syntax_for_path(path).expect("a known language");
        for seed in 0..2_000_usize {
            let line: String = (0..12)
                .map(|n| parts[(seed * 31 + n * n * 7 + seed / 13) % parts.len()])
                .collect();
            let mut state = LineState::Code;
            let mut last = 0;
            for token in syntax.tokens(&line, &mut state) {
                assert!(
                    token.range.start >= last && !token.range.is_empty(),
                    "{path} {line}"
                );
                assert!(line.get(token.range.clone()).is_some(), "{path} {line}");
                last = token.range.end;
            }
        }
    }
}
