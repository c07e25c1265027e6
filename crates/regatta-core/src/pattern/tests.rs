//! Tests of patterns, and of their index against a scan.

use super::*;
use proptest::prelude::*;

fn uri(text: &str) -> Uri {
    Uri::new(text).unwrap()
}

#[test]
fn uris_overlap_exactly_when_both_match_a_common_path() {
    let table = [
        ("file://p/src/**", "file://p/src/a.rs", true),
        ("file://p/src/**", "file://p/src", true),
        ("file://p/src/**", "file://p/srcx/a.rs", false),
        ("file://p/src/a.rs", "file://p/src/b/**", false),
        ("file://p/a*/*.t", "file://p/a/*", true),
        ("file://p/*/ab/b.t", "file://p/a/**", true),
        ("file://p/?/a.r", "file://p/b/*", true),
        ("file://p/**/x", "file://p/x", true),
        ("file://p/**/a/**", "file://p/b/**/c", true),
        ("file://p/*.rs", "file://p/*.toml", false),
        ("file://p/a*b", "file://p/*c*", true),
        ("file://p/ab", "file://p/a?c", false),
        ("file://p/**", "file://q/**", false),
        ("file://p/[id]/x", "file://p/i/x", false),
        ("file://p/ä", "file://p/?", true),
        ("task://p/bd-1", "task://p/bd-12", false),
        ("bead://p/*", "task://p/bd-12", true),
        ("agent://a", "agent://a/w", false),
        ("workspace://p/default", "workspace://p/*", true),
        ("file://p/a", "workspace://p/a", false),
        ("file://p/%61", "file://p/a", true),
        ("file://p/%2F", "file://p/%2f", true),
        ("file://p/a%20b", "file://p/a b", true),
        ("file://p/%C3%A4", "file://p/ä", true),
        ("file://p/50%25", "file://p/50?", true),
        ("file://p/50%25", "file://p/50???", false),
        ("file://p/%2561", "file://p/a", false),
        ("file://p/%2561", "file://p/%61", false),
        ("file://p/%2A", "file://p/?", true),
        ("file://p/%2A", "file://p/a", false),
        ("file://p/%FF", "file://p/?", true),
        ("file://p/%FF", "file://p/ÿ", false),
        ("file://p/%2F", "file://p/*/*", false),
    ];
    for (a, b, expected) in table {
        assert_eq!(uri(a).overlaps(&uri(b)), expected, "{a} {b}");
        assert_eq!(uri(b).overlaps(&uri(a)), expected, "{b} {a}");
    }
}

#[test]
fn invalid_uris_are_refused() {
    for bad in [
        "",
        "x",
        "file://",
        "file:///a",
        "file://p/",
        "file://p//a",
        "file://p/../a",
        "file://p/.",
        "http://x/y",
        "agent://*",
        "file://p/a**",
        "file://p/a\\b",
        "file://p/\0",
        "file://p/%zz",
        "file://p/%+1",
        "file://p/%",
        "file://p/a\nb",
        &format!("file://{}", "a/".repeat(70)),
        &format!("file://p/{}", "x".repeat(2000)),
    ] {
        assert!(Uri::new(bad).is_err(), "{bad:?}");
    }
}

/// L1, D9: a percent sign in a file's name is an ordinary character, and no two files share a
/// claim.
#[test]
fn d9_a_percent_sign_in_a_file_name_is_an_ordinary_character() {
    let project = ProjectName::new("p").unwrap();
    let claim = |path: &str| Uri::for_file(&project, &PathPattern::new(path).unwrap());
    for (path, text) in [
        (
            "web/50% off/index.html",
            "file://p/web/50%25 off/index.html",
        ),
        ("docs/100%.md", "file://p/docs/100%25.md"),
        ("%61.txt", "file://p/%2561.txt"),
        ("%zz/**", "file://p/%25zz/**"),
    ] {
        assert_eq!(claim(path).as_str(), text);
        assert_eq!(Uri::new(text), Ok(claim(path)), "{text} is not read back");
        assert_eq!(claim(path).file_pattern(&project).unwrap().as_str(), path);
    }
    assert!(!claim("%61.txt").overlaps(&claim("a.txt")));
    assert!(claim("a.txt").overlaps(&uri("file://p/%61.txt")));
    assert!(
        claim("50%.txt").overlaps(&claim("50?.txt"))
            && !claim("50%.txt").overlaps(&claim("50%25.txt"))
    );
    assert_eq!(uri("file://q/a").file_pattern(&project), None);
    assert_eq!(
        uri("file://p/%2A").file_pattern(&project),
        None,
        "as a pattern the URI would match every name"
    );
}

/// D9: the longest and deepest manifest is accepted again in its own spelling and as a claim.
#[test]
fn d9_the_longest_patterns_are_read_back() {
    let project = ProjectName::new(&"p".repeat(64)).unwrap();
    let (long, percent, deep) = (
        "x".repeat(1024),
        "%".repeat(1024),
        format!("{}x", "d/".repeat(63)),
    );
    let (folder, whole) = (format!("{long}/"), format!("{}**", "d/".repeat(63)));
    for text in [&long, &percent, &folder, &deep, &whole, &"ä".repeat(512)] {
        let pattern = PathPattern::new(text).unwrap();
        assert_eq!(PathPattern::new(pattern.as_str()), Ok(pattern.clone()));
        let claim = Uri::for_file(&project, &pattern);
        assert_eq!(Uri::new(claim.as_str()), Ok(claim));
    }
    assert!(
        PathPattern::new(&"x".repeat(1025)).is_err() && PathPattern::new(&"d/".repeat(64)).is_err()
    );
    assert_eq!(PathPattern::new("./src/").unwrap().as_str(), "src/**");
}

#[test]
fn manifests_expand_braces_and_refuse_escapes() {
    let texts = |text: &str| {
        PathPattern::expand(text).map(|path_patterns| {
            path_patterns
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(texts("src/{a,b}.rs").unwrap(), ["src/a.rs", "src/b.rs"]);
    assert_eq!(texts("{a,b{c,d}}").unwrap(), ["a", "bc", "bd"]);
    assert_eq!(texts("src/").unwrap(), ["src/**"]);
    assert_eq!(texts("./src/x").unwrap(), ["src/x"]);
    for bad in [
        "/etc/passwd",
        "../x",
        "a/../b",
        "",
        "a/{b",
        "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}",
        "a//b",
    ] {
        assert!(PathPattern::expand(bad).is_err(), "{bad:?}");
    }
    assert!(
        PathPattern::new("a/[id]/*")
            .unwrap()
            .matches("a/[id]/page.tsx")
    );
    assert!(!PathPattern::new("a/?").unwrap().matches("a/**"));
}

fn pattern() -> impl Strategy<Value = String> {
    let glob = prop::collection::vec(
        prop_oneof![Just('a'), Just('b'), Just('*'), Just('?')],
        1..4,
    )
    .prop_map(|cs| cs.into_iter().collect::<String>())
    .prop_filter("** must be a whole segment", |s| !s.contains("**"));
    let segment = prop_oneof![3 => glob, 1 => Just("**".to_owned())];
    prop::collection::vec(segment, 1..4).prop_map(|items| items.join("/"))
}

/// Returns paths that match the pattern `text`, with short texts of the letters a and b in place of
/// the wildcards. Trying all paths of up to 4 segments with up to 4 letters each would take too
/// long.
fn witnesses(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    for segment in text.split('/') {
        let mut grown = Vec::new();
        for before in &out {
            let glue = if before.is_empty() { "" } else { "/" };
            if segment == "**" {
                grown.push(before.clone());
                for deep in [
                    "a", "b", "ab", "ba", "aa", "bb", "aaa", "bbb", "aba", "bab", "aab", "abb",
                    "baa", "bba",
                ] {
                    grown.push(format!("{before}{glue}{deep}"));
                }
                continue;
            }
            let mut words = vec![String::new()];
            for item in segment.chars() {
                let choices: &[&str] = match item {
                    '*' => &["", "a", "b", "aa", "ab", "ba", "bb"],
                    '?' => &["a", "b"],
                    'a' => &["a"],
                    _ => &["b"],
                };
                words = words
                    .iter()
                    .flat_map(|w| choices.iter().map(move |c| format!("{w}{c}")))
                    .collect();
            }
            grown.extend(
                words
                    .into_iter()
                    .filter(|word| !word.is_empty())
                    .map(|word| format!("{before}{glue}{word}")),
            );
        }
        out = grown;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    /// A path that matches both patterns is a witness. Patterns with a witness must always be
    /// found to overlap, because L1 depends on it.
    #[test]
    fn patterns_that_match_a_common_path_overlap(a in pattern(), b in pattern()) {
        let (left, right) = (PathPattern::new(&a).unwrap(), PathPattern::new(&b).unwrap());
        let witness = witnesses(&a).into_iter().chain(witnesses(&b)).find(|witness| !witness.is_empty() && left.matches(witness) && right.matches(witness));
        prop_assert_eq!(left.overlaps(&right), right.overlaps(&left));
        if let Some(witness) = witness {
            prop_assert!(left.overlaps(&right), "{} and {} both match {}", a, b, witness);
        } else if !a.contains("**") && !b.contains("**") {
            // Without `**` the pieces above are enough to find every witness of these lengths.
            prop_assert!(!left.overlaps(&right) || a.contains('*') && b.contains('*'), "{} and {} have no witness", a, b);
        }
    }

    /// D9, L1: claims are read back as they were written, and overlap exactly when their files
    /// do.
    #[test]
    fn d9_every_manifest_becomes_a_claim_that_is_read_back(
        a in "[a%5/.*?é 2\"\\[{]{1,8}", b in "[a%5/.*?é 2\"\\[{]{1,8}", c in any::<String>(),
    ) {
        let project = ProjectName::new("p").unwrap();
        let patterns: Vec<PathPattern> = [a, b, c].iter().filter_map(|text| PathPattern::new(text).ok()).collect();
        for one in &patterns {
            let claim = Uri::for_file(&project, one);
            prop_assert_eq!(&PathPattern::new(one.as_str()).unwrap(), one);
            prop_assert_eq!(&Uri::new(claim.as_str()).unwrap(), &claim);
            prop_assert_eq!(&claim.file_pattern(&project).unwrap(), one);
            for other in &patterns {
                let overlap = claim.overlaps(&Uri::for_file(&project, other));
                prop_assert_eq!(overlap, one.overlaps(other), "{} {}", one, other);
            }
        }
    }

    /// D9: every spelling of a URI is read back as the same one.
    #[test]
    fn d9_every_uri_is_read_back(path in "([a./*?é ]|%[0-9A-Fa-f]{2}){1,9}") {
        if let Ok(uri) = Uri::new(&format!("file://p/{path}")) {
            prop_assert_eq!(&Uri::new(uri.as_str()).unwrap(), &uri);
            prop_assert!(uri.overlaps(&uri));
        }
    }

    /// The index finds exactly what a scan finds.
    #[test]
    fn the_index_finds_what_a_scan_finds(held in prop::collection::vec(pattern(), 0..12), asked in pattern()) {
        let held: Vec<Uri> = held.iter().map(|held| uri(&format!("file://{held}"))).collect();
        let asked = uri(&format!("file://{asked}"));
        let mut index = PatternIndex::default();
        for (number, uri) in (0..).zip(&held) { index.insert(number, std::slice::from_ref(uri)); }
        let mut found: Vec<u64> = index.overlapping(&asked).map(|index| index.0).collect();
        found.sort();
        let scanned: Vec<u64> = (0..).zip(&held).filter(|(_, uri)| uri.overlaps(&asked)).map(|pair| pair.0).collect();
        prop_assert_eq!(found, scanned);
        for (number, uri) in (0..).zip(&held) { index.remove(number, std::slice::from_ref(uri)); }
        prop_assert_eq!(index, PatternIndex::default());
    }
}
