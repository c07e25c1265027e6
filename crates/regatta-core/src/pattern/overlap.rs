//! Tests exactly whether two patterns overlap.
//!
//! Two patterns overlap if some path matches both. The test compares the patterns segment by
//! segment (a segment is a part between slashes), and two segments character by character. A
//! wildcard can match in several ways, and the test tries all of them.

use super::escape::{self, Symbol};

/// Returns whether some path matches both patterns.
pub(super) fn paths_overlap(a: &str, b: &str, spelling: Spelling) -> bool {
    segments_overlap(&segments(a, spelling), &segments(b, spelling))
}

/// Splits a pattern at its slashes into segments.
pub(super) fn segments(pattern: &str, spelling: Spelling) -> Vec<PatternSegment<'_>> {
    pattern
        .split('/')
        .map(|segment| PatternSegment::pattern(segment, spelling))
        .collect()
}

/// The form in which a pattern is written, which decides whether `%` starts an escape.
#[derive(Clone, Copy)]
pub(super) enum Spelling {
    /// Written as in the file system: `%` is an ordinary character.
    Raw,
    /// Written as in a URI: special characters are escaped with `%`.
    Escaped,
}

/// One segment of a path pattern, that is, a part between slashes.
#[derive(Clone, Copy)]
pub(super) enum PatternSegment<'a> {
    /// `**`, which matches any number of segments.
    AnyDepth,
    /// A segment with the wildcards `*` or `?`.
    Glob(&'a str, Spelling),
    /// A segment without wildcards, which matches only itself.
    Plain(&'a str, Spelling),
}

impl<'a> PatternSegment<'a> {
    fn pattern(text: &'a str, spelling: Spelling) -> PatternSegment<'a> {
        if text == "**" {
            PatternSegment::AnyDepth
        } else if text.contains(['*', '?']) {
            PatternSegment::Glob(text, spelling)
        } else {
            PatternSegment::Plain(text, spelling)
        }
    }

    /// Returns a segment that matches exactly `text`, in which `*` and `?` are plain characters.
    pub(super) fn literal(text: &'a str) -> PatternSegment<'a> {
        PatternSegment::Plain(text, Spelling::Raw)
    }

    /// Returns whether some name matches both segments.
    fn overlaps(self, other: PatternSegment) -> bool {
        match (self, other) {
            (PatternSegment::AnyDepth, _) | (_, PatternSegment::AnyDepth) => true,
            // Both names are written in the same form here, so the segments match a common name
            // only if their texts are equal.
            (PatternSegment::Plain(a, _), PatternSegment::Plain(b, _)) => a == b,
            _ => globs_overlap(&self.tokens(), &other.tokens()),
        }
    }

    /// Splits a segment into its characters and wildcards.
    fn tokens(self) -> Vec<GlobToken> {
        let wildcard = |raw: char, symbol: Symbol| match raw {
            '*' => GlobToken::Star,
            '?' => GlobToken::Any,
            _ => GlobToken::One(symbol),
        };
        match self {
            PatternSegment::AnyDepth => vec![GlobToken::Star],
            PatternSegment::Plain(text, Spelling::Raw) => text
                .chars()
                .map(|raw| GlobToken::One(Symbol::from_char(raw)))
                .collect(),
            PatternSegment::Plain(text, Spelling::Escaped) => escape::symbols(text)
                .map(|(_, symbol)| GlobToken::One(symbol))
                .collect(),
            PatternSegment::Glob(text, Spelling::Raw) => text
                .chars()
                .map(|raw| wildcard(raw, Symbol::from_char(raw)))
                .collect(),
            PatternSegment::Glob(text, Spelling::Escaped) => escape::symbols(text)
                .map(|(raw, symbol)| wildcard(raw, symbol))
                .collect(),
        }
    }
}

/// Returns whether some path matches both lists of segments.
pub(super) fn segments_overlap(a: &[PatternSegment], b: &[PatternSegment]) -> bool {
    has_common_text(
        a.len(),
        b.len(),
        |i| matches!(a[i], PatternSegment::AnyDepth),
        |j| matches!(b[j], PatternSegment::AnyDepth),
        |i, j| a[i].overlaps(b[j]),
    )
}

/// A character or a wildcard in a segment.
#[derive(Clone, Copy, PartialEq)]
enum GlobToken {
    One(Symbol),
    Any,
    Star,
}

/// Returns whether some name matches both segments, given as characters and wildcards.
fn globs_overlap(a: &[GlobToken], b: &[GlobToken]) -> bool {
    let meet = |i: usize, j: usize| match (a[i], b[j]) {
        (GlobToken::One(x), GlobToken::One(y)) => x == y,
        _ => true,
    };
    has_common_text(
        a.len(),
        b.len(),
        |i| a[i] == GlobToken::Star,
        |j| b[j] == GlobToken::Star,
        meet,
    )
}

/// Returns whether some text matches both of two patterns. The patterns have `n` and `m` elements.
/// `star_a` and `star_b` tell which elements of the first and the second pattern repeat any number
/// of times. `meet` tells whether an element of the first pattern and an element of the second
/// pattern can match the same thing.
///
/// Computes for each `i` and `j` whether some text matches both the first `i` elements of the first
/// pattern and the first `j` elements of the second pattern; `row[j]` has the result for the
/// current `i`.
fn has_common_text(
    n: usize,
    m: usize,
    star_a: impl Fn(usize) -> bool,
    star_b: impl Fn(usize) -> bool,
    meet: impl Fn(usize, usize) -> bool,
) -> bool {
    let mut row = vec![false; m + 1];
    row[0] = true;
    for i in 0..=n {
        let mut next = vec![false; m + 1];
        for j in 0..=m {
            if !row[j] {
                continue;
            }
            // A repeating element, such as `*`, can match nothing, so it can be skipped. It can
            // also match the next element of the other pattern and be used again.
            if j < m && (star_b(j) || (i < n && star_a(i))) {
                row[j + 1] = true;
            }
            if i < n && (star_a(i) || (j < m && star_b(j))) {
                next[j] = true;
            }
            if i < n && j < m && meet(i, j) {
                next[j + 1] = true;
            }
        }
        if i == n {
            return row[m];
        }
        row = next;
    }
    false
}
