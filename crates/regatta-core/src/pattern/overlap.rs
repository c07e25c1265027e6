//! The exact test for an overlap of two patterns.
//!
//! Two patterns overlap if some single path is matched by both. The test walks the product of the
//! two patterns: first of their segments, and within two segments of their characters.

use super::escape::{self, Symbol};

/// Returns whether some single path is matched by both patterns.
pub(super) fn paths_overlap(a: &str, b: &str, spelling: Spelling) -> bool {
    segments_overlap(&segments(a, spelling), &segments(b, spelling))
}

/// Splits a pattern into its segments.
pub(super) fn segments(pattern: &str, spelling: Spelling) -> Vec<PatternSegment<'_>> {
    pattern
        .split('/')
        .map(|segment| PatternSegment::pattern(segment, spelling))
        .collect()
}

/// The spelling of a pattern, which decides if `%` starts an escape.
#[derive(Clone, Copy)]
pub(super) enum Spelling {
    /// The spelling of the file system, in which `%` is an ordinary character.
    Raw,
    /// The canonical path of a URI.
    Escaped,
}

/// One segment of a path pattern.
#[derive(Clone, Copy)]
pub(super) enum PatternSegment<'a> {
    /// `**`: any number of segments.
    AnyDepth,
    /// A name with `*` or `?`.
    Glob(&'a str, Spelling),
    /// A name without wildcards.
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

    /// Returns the segment of a literal path, in which `*` and `?` are plain characters.
    pub(super) fn literal(text: &'a str) -> PatternSegment<'a> {
        PatternSegment::Plain(text, Spelling::Raw)
    }

    /// Returns whether some single name is matched by both segments.
    fn overlaps(self, other: PatternSegment) -> bool {
        match (self, other) {
            (PatternSegment::AnyDepth, _) | (_, PatternSegment::AnyDepth) => true,
            // Both are raw or both are canonical, so equal names have equal texts.
            (PatternSegment::Plain(a, _), PatternSegment::Plain(b, _)) => a == b,
            _ => globs_overlap(&self.tokens(), &other.tokens()),
        }
    }

    /// Returns the segment's characters and wildcards.
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

/// Returns whether two lists of segments match a common path.
pub(super) fn segments_overlap(a: &[PatternSegment], b: &[PatternSegment]) -> bool {
    has_common_text(
        a.len(),
        b.len(),
        |i| matches!(a[i], PatternSegment::AnyDepth),
        |j| matches!(b[j], PatternSegment::AnyDepth),
        |i, j| a[i].overlaps(b[j]),
    )
}

/// A character or wildcard of a segment.
#[derive(Clone, Copy, PartialEq)]
enum GlobToken {
    One(Symbol),
    Any,
    Star,
}

/// Returns whether two segments match a common name.
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

/// Returns whether two patterns of `n` and `m` steps match a common text, by walking their product.
/// `row[j]` is true if the state (i, j) can be reached. The `star` functions mark steps that repeat
/// any number of times.
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
            // Leave a star behind, or let it swallow the other side's next step.
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
