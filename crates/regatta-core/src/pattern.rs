//! URI patterns: the names in claims, and the exact test for an overlap of two patterns.
//!
//! The language is small on purpose: literal characters, `*` and `?` inside a segment, and `**` as
//! a whole segment (zero or more segments). Overlap is decided exactly, by walking the product of
//! the two patterns. A heuristic on prefixes would miss overlaps and report false ones. `[` and `]`
//! are plain characters, because real files are called `app/[id]/page.tsx`.
//!
//! A [`PathPattern`] is spelled as in the file system. A [`Uri`] is escaped, and
//! `pattern/escape.rs` is the only way from one to the other.

use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use self::escape::Symbol;
use crate::ids::{AgentName, BadName, ProjectName, TaskId, described};

mod escape; // percent escapes in URIs

/// Maximum length of a path pattern in bytes, without a final `/**`. The limit keeps the test for
/// overlaps cheap.
const MAX_PATTERN_BYTES: usize = 1024;
/// Maximum number of segments of a path pattern.
const MAX_SEGMENTS: usize = 64;
/// Maximum unescaped length of a URI's path in bytes: a project's name before the longest path
/// pattern.
const MAX_URI_PATH_BYTES: usize = 64 + 1 + MAX_PATTERN_BYTES + "/**".len();
/// Maximum length of a URI's text in bytes: each byte of its path can be an escape of three
/// characters.
const MAX_URI_BYTES: usize = 16 + 3 * MAX_URI_PATH_BYTES;
/// Maximum number of segments of a URI: a project's name before the deepest path pattern.
const MAX_URI_SEGMENTS: usize = 1 + MAX_SEGMENTS;

/// A URI or URI pattern in its one canonical spelling: `file://shop/src/**`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Uri(Arc<str>);

impl Serialize for Uri {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

described!(
    Uri,
    "scheme://path, with *, ? and ** where the scheme takes patterns"
);

/// Schemes whose URIs name exactly one thing. A wildcard there would claim things that nobody
/// listed.
const EXACT_SCHEMES: [&str; 4] = ["agent", "respond", "message", "release"];
/// Schemes whose URIs may be patterns.
const PATTERN_SCHEMES: [&str; 4] = ["file", "workspace", "port", "task"];

impl Uri {
    /// Checks and normalises `text`.
    pub fn new(text: &str) -> Result<Uri, BadName> {
        let bad = |why| Err(BadName::new("a claim URI", text, why));
        if text.len() > MAX_URI_BYTES {
            return bad("it is longer than 3292 bytes");
        }
        let Some((scheme, path)) = text.split_once("://") else {
            return bad("it is written scheme://name, for example file://shop/src/**");
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "bead" => "task".to_owned(), // another word for a task
            other => other.to_owned(),
        };
        let exact = EXACT_SCHEMES.contains(&scheme.as_str());
        if !exact && !PATTERN_SCHEMES.contains(&scheme.as_str()) {
            return bad(
                "its scheme is none of agent, task (or bead), respond, message, release, file, \
                workspace, port",
            );
        }
        let Some(path) = escape::canonical(path) else {
            return bad("it has a broken percent escape; a percent sign itself is written %25");
        };
        if escape::unescaped_len(&path) > MAX_URI_PATH_BYTES {
            return bad("its path is longer than 1092 bytes");
        }
        if let Err(why) = check_path(&path, MAX_URI_SEGMENTS) {
            return bad(why);
        }
        if exact && path.contains(['*', '?']) {
            return bad("this scheme matches exactly, so * and ? have no meaning in it");
        }
        Ok(Uri(format!("{scheme}://{path}").into()))
    }

    /// Returns the URI of a path pattern in a project.
    pub fn for_file(project: &ProjectName, pattern: &PathPattern) -> Uri {
        Uri(format!("file://{project}/{}", escape::escape(&pattern.0)).into())
    }

    /// Returns the path pattern of a claim on files of `project`, or `None` if the claim is on
    /// something else.
    pub fn file_pattern(&self, project: &ProjectName) -> Option<PathPattern> {
        let path = self
            .0
            .strip_prefix("file://")?
            .strip_prefix(project.as_str())?
            .strip_prefix('/')?;
        PathPattern::new(&escape::unescape(path)?).ok()
    }

    /// Returns the URI of a project's trunk. The claim on it is the fence of each move.
    pub fn for_trunk(project: &ProjectName) -> Uri {
        Uri(format!("workspace://{project}/default").into())
    }

    /// Returns the URI of one port of the machine.
    pub fn for_port(port: u16) -> Uri {
        Uri(format!("port://{port}").into())
    }

    /// Returns the URI of a task, which its attempt claims.
    pub fn for_task(project: &ProjectName, task: TaskId) -> Uri {
        Uri(format!("task://{project}/{task}").into())
    }

    /// Returns the URI of a task's workspace.
    pub fn for_workspace(project: &ProjectName, task: TaskId) -> Uri {
        Uri(format!("workspace://{project}/{task}").into())
    }

    /// Returns the URI of an agent's identity.
    pub fn for_agent(agent: &AgentName) -> Uri {
        Uri(format!("agent://{agent}").into())
    }

    /// Returns the URI of a project's releases. The claim on it makes releases one at a time.
    pub fn for_release(project: &ProjectName) -> Uri {
        Uri(format!("release://{project}").into())
    }

    /// Returns the name in a URI of an agent.
    pub fn agent(&self) -> Option<&str> {
        self.0.strip_prefix("agent://")
    }

    /// Returns whether the URI names workspaces.
    pub fn is_workspace(&self) -> bool {
        self.0.starts_with("workspace://")
    }

    /// Returns whether the URI names exactly this task or its workspace.
    pub fn names_task(&self, project: &ProjectName, task: TaskId) -> bool {
        let Some((named, name)) = self.parts().1.split_once('/') else {
            return false;
        };
        matches!(self.parts().0, "task" | "workspace")
            && named == project.as_str()
            && name.parse() == Ok(task)
    }

    /// Returns whether the URI has wildcards.
    pub fn is_pattern(&self) -> bool {
        self.0.contains(['*', '?'])
    }

    /// Returns whether the URI names tasks, workspaces or an agent. Running work holds such URIs
    /// besides its files.
    pub fn is_identity(&self) -> bool {
        matches!(self.parts().0, "agent" | "task" | "workspace")
    }

    /// Returns the project in the URI, which can be a pattern; `None` if its scheme has no project.
    pub fn project(&self) -> Option<&str> {
        match self.parts() {
            ("file" | "workspace" | "task" | "release", path) => path.split('/').next(),
            _ => None,
        }
    }

    /// Returns whether the URI names ports.
    pub fn is_port(&self) -> bool {
        self.0.starts_with("port://")
    }

    /// Returns the canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the scheme and the path.
    fn parts(&self) -> (&str, &str) {
        self.0.split_once("://").unwrap_or(("", &self.0))
    }

    /// Returns whether some single URI is matched by both patterns.
    pub fn overlaps(&self, other: &Uri) -> bool {
        if self.0 == other.0 {
            return true;
        }
        let ((scheme, path), (other_scheme, other_path)) = (self.parts(), other.parts());
        scheme == other_scheme && paths_overlap(path, other_path, Spelling::Escaped)
    }

    /// Returns a value that sorts before each URI.
    pub(crate) fn smallest() -> Uri {
        Uri(Arc::from(""))
    }

    /// Returns the whole segments before the first wildcard.
    pub(crate) fn literal_segments(&self) -> &str {
        self.literal_prefix()
    }

    /// Returns the part before the first segment with a wildcard, without a trailing `/`.
    ///
    /// Two patterns can overlap only if one literal prefix is a prefix of the other.
    fn literal_prefix(&self) -> &str {
        let Some(wild) = self.0.find(['*', '?']) else {
            return &self.0;
        };
        match self.0[..wild].rfind('/') {
            Some(slash) => self.0[..slash].trim_end_matches('/'),
            None => "",
        }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Uri {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Uri, BadName> {
        Uri::new(text)
    }
}

impl From<Uri> for String {
    fn from(uri: Uri) -> String {
        uri.0.to_string()
    }
}

impl TryFrom<String> for Uri {
    type Error = BadName;
    fn try_from(text: String) -> Result<Uri, BadName> {
        Uri::new(&text)
    }
}

/// A pattern of paths inside a repository, as in a manifest: `src/**`, `web/login.*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct PathPattern(Arc<str>);

impl Serialize for PathPattern {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

described!(PathPattern, "a path in the repository, with *, ? and **");

impl PathPattern {
    /// Returns the pattern if `text` is well formed. A trailing `/` means everything below.
    pub fn new(text: &str) -> Result<PathPattern, BadName> {
        let bad = |why| Err(BadName::new("a path pattern", text, why));
        if text.starts_with('/') {
            return bad("it is absolute; name files relative to the repository's top");
        }
        let path = text.strip_prefix("./").unwrap_or(text);
        let pattern = match path.strip_suffix('/') {
            Some(folder) => format!("{folder}/**"),
            None => path.to_owned(),
        };
        // The stored pattern is measured, not the text, because a stored pattern must be accepted
        // again (D9).
        if pattern.strip_suffix("/**").unwrap_or(&pattern).len() > MAX_PATTERN_BYTES {
            return bad("it is longer than 1024 bytes");
        }
        match check_path(&pattern, MAX_SEGMENTS) {
            Ok(()) => Ok(PathPattern(pattern.into())),
            Err(why) => bad(why),
        }
    }

    /// Returns the patterns of one manifest entry, expanding `{a,b}` to at most 64 patterns.
    pub fn expand(text: &str) -> Result<Vec<PathPattern>, BadName> {
        let mut open = vec![text.to_owned()];
        let mut done = Vec::new();
        while let Some(next) = open.pop() {
            if open.len() + done.len() > 64 {
                return Err(BadName::new(
                    "a path pattern",
                    text,
                    "its braces expand to more than 64 patterns",
                ));
            }
            let Some(start) = next.rfind('{') else {
                done.push(PathPattern::new(&next)?);
                continue;
            };
            let Some(end) = next[start..].find('}').map(|n| n + start) else {
                return Err(BadName::new("a path pattern", text, "a { has no }"));
            };
            for choice in next[start + 1..end].split(',') {
                open.push(format!("{}{}{}", &next[..start], choice, &next[end + 1..]));
            }
        }
        done.sort();
        done.dedup();
        Ok(done)
    }

    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the pattern matches a literal path, in which `*` and `?` are plain
    /// characters.
    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<PatternSegment> = path.split('/').map(PatternSegment::literal).collect();
        segments_overlap(&segments(&self.0, Spelling::Raw), &path)
    }

    /// Returns whether some single path is matched by both patterns.
    pub fn overlaps(&self, other: &PathPattern) -> bool {
        paths_overlap(&self.0, &other.0, Spelling::Raw)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<PathPattern> for String {
    fn from(path_pattern: PathPattern) -> String {
        path_pattern.0.to_string()
    }
}

impl TryFrom<String> for PathPattern {
    type Error = BadName;
    fn try_from(text: String) -> Result<PathPattern, BadName> {
        PathPattern::new(&text)
    }
}

/// Checks the segments of a path, and returns the problem if there is one.
fn check_path(path: &str, max_segments: usize) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("it names nothing");
    }
    let mut depth = 0;
    for segment in path.split('/') {
        depth += 1;
        match segment {
            "" => return Err("it has an empty segment (// or a / at the end)"),
            "." | ".." => return Err("it has a . or .. segment"),
            "**" => {}
            other if other.contains("**") => return Err("** must be a whole segment"),
            other if other.contains('\\') => {
                return Err("it has a backslash; segments are separated by /");
            }
            other if other.chars().any(char::is_control) => {
                return Err("it has a control character");
            }
            _ => {}
        }
    }
    if depth > max_segments {
        Err("it has more than 64 segments")
    } else {
        Ok(())
    }
}

fn paths_overlap(a: &str, b: &str, spelling: Spelling) -> bool {
    segments_overlap(&segments(a, spelling), &segments(b, spelling))
}

fn segments(pattern: &str, spelling: Spelling) -> Vec<PatternSegment<'_>> {
    pattern
        .split('/')
        .map(|segment| PatternSegment::pattern(segment, spelling))
        .collect()
}

/// The spelling of a pattern, which decides if `%` starts an escape.
#[derive(Clone, Copy)]
enum Spelling {
    /// The spelling of the file system, in which `%` is an ordinary character.
    Raw,
    /// The canonical path of a URI.
    Escaped,
}

/// One segment of a path pattern.
#[derive(Clone, Copy)]
enum PatternSegment<'a> {
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

    fn literal(text: &'a str) -> PatternSegment<'a> {
        PatternSegment::Plain(text, Spelling::Raw)
    }

    fn overlaps(self, other: PatternSegment) -> bool {
        match (self, other) {
            (PatternSegment::AnyDepth, _) | (_, PatternSegment::AnyDepth) => true,
            // Both are raw or both are canonical, so equal names have equal texts.
            (PatternSegment::Plain(a, _), PatternSegment::Plain(b, _)) => a == b,
            _ => globs_overlap(&self.tokens(), &other.tokens()),
        }
    }

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
fn segments_overlap(a: &[PatternSegment], b: &[PatternSegment]) -> bool {
    has_common_text(
        a.len(),
        b.len(),
        |i| matches!(a[i], PatternSegment::AnyDepth),
        |j| matches!(b[j], PatternSegment::AnyDepth),
        |i, j| a[i].overlaps(b[j]),
    )
}

#[derive(Clone, Copy, PartialEq)]
enum GlobToken {
    One(Symbol),
    Any,
    Star,
}

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

/// An index of patterns by owner number, for a fast search of overlapping patterns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PatternIndex {
    /// Numbers and patterns by literal prefix, in order.
    by_prefix: OrdMap<Arc<str>, Vec<(u64, Uri)>>,
}

impl PatternIndex {
    /// Adds all patterns of one number.
    pub fn insert(&mut self, number: u64, uris: &[Uri]) {
        for uri in uris {
            let prefix = uri.literal_prefix();
            match self.by_prefix.get_mut(prefix) {
                Some(here) => {
                    let at = here.partition_point(|here| (here.0, &here.1) < (number, uri));
                    here.insert(at, (number, uri.clone()));
                }
                // A URI without wildcards is its own prefix, so its text can be shared.
                None if prefix.len() == uri.0.len() => {
                    _ = self
                        .by_prefix
                        .insert(uri.0.clone(), vec![(number, uri.clone())])
                }
                None => {
                    _ = self
                        .by_prefix
                        .insert(prefix.into(), vec![(number, uri.clone())])
                }
            }
        }
    }

    /// Removes all patterns of one number.
    pub fn remove(&mut self, number: u64, uris: &[Uri]) {
        for uri in uris {
            let prefix = uri.literal_prefix();
            let Some(here) = self.by_prefix.get_mut(prefix) else {
                continue;
            };
            if let Some(at) = here
                .iter()
                .position(|here| here.0 == number && here.1 == *uri)
            {
                here.remove(at);
            }
            if here.is_empty() {
                self.by_prefix.remove(prefix);
            }
        }
    }

    /// Returns the numbers of owners with this very pattern or with `**` of a directory at or above
    /// it. Everything that `uri` matches, their patterns match, too.
    pub(crate) fn covering<'a>(&'a self, uri: &'a Uri) -> impl Iterator<Item = u64> + 'a {
        let prefix = uri.literal_prefix();
        let folders = prefix
            .match_indices('/')
            .map(move |(at, _)| &prefix[..at])
            .chain([prefix]);
        folders
            .filter(|folder| !folder.ends_with('/'))
            .flat_map(move |folder| {
                let here = self.by_prefix.get(folder).into_iter().flatten();
                let all =
                    move |uri: &Uri| uri.0.len() == folder.len() + 3 && uri.0.ends_with("/**");
                here.filter(move |here| here.1 == *uri || all(&here.1))
                    .map(|here| here.0)
            })
    }

    /// Returns the numbers and patterns that overlap `uri`, each pair once.
    pub fn overlapping<'a>(&'a self, uri: &'a Uri) -> impl Iterator<Item = (u64, &'a Uri)> + 'a {
        let prefix = uri.literal_prefix();
        // Patterns with a shorter prefix may reach this URI. `://` has two slashes that give the
        // same trimmed prefix, which must count once.
        let ancestors = prefix
            .match_indices('/')
            .filter(move |(at, _)| !prefix[..*at].ends_with('/'))
            .map(move |(at, _)| &prefix[..at])
            .chain([prefix])
            .filter(|_| !self.by_prefix.is_empty());
        let here = ancestors.filter_map(|ancestor| self.by_prefix.get(ancestor));
        // Longer prefixes start with this prefix and a slash. Only a pattern with a wildcard
        // reaches below its prefix.
        let reaches = prefix.len() < uri.0.len() && !self.by_prefix.is_empty();
        let below = reaches.then(|| {
            let (from, to) = (format!("{prefix}/"), format!("{prefix}0"));
            self.by_prefix
                .range::<_, str>((Bound::Included(from.as_str()), Bound::Excluded(to.as_str())))
                .map(|by_prefix| by_prefix.1)
        });
        here.chain(below.into_iter().flatten())
            .flatten()
            .filter(move |here| here.1.overlaps(uri))
            .map(|here| (here.0, &here.1))
    }
}

#[cfg(test)]
mod tests {
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
            PathPattern::new(&"x".repeat(1025)).is_err()
                && PathPattern::new(&"d/".repeat(64)).is_err()
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

    /// Returns paths that might match. All paths of up to 4 segments of up to 4 characters over {a,
    /// b} would be too many. An overlap of patterns this short always has a witness of at most 5
    /// segments with at most 5 characters each, built from these pieces.
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
        /// A path that both patterns match is a witness. The product must never miss a witness,
        /// because L1 depends on it.
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
}
