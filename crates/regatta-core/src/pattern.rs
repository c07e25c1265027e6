//! URIs and patterns name the things that can be claimed, such as `file://shop/src/**`. This module
//! also tests whether two patterns overlap, that is, whether both match some common name.
//!
//! A pattern has segments, separated by `/`. In a segment, `*` matches any characters and `?`
//! matches one; a segment `**` matches zero or more whole segments. The test for an overlap is
//! exact; comparing only the beginnings of patterns would miss some overlaps and report false
//! overlaps. `[` and `]` are plain characters, because real files are called `app/[id]/page.tsx`.
//!
//! A [`PathPattern`] is written as in the file system. In a [`Uri`] special characters are escaped
//! with `%`; only `pattern/escape.rs` converts between the two.

mod escape; // percent escapes in URIs
mod index; // an index of patterns by owner
mod overlap; // the test for an overlap of two patterns

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, BadName, ProjectName, TaskId, described};

pub use index::PatternIndex;
use overlap::{PatternSegment, Spelling, paths_overlap, segments, segments_overlap};

/// Maximum length of a path pattern in bytes, not counting a final `/**`. Longer patterns would
/// make the test for overlaps slow.
const MAX_PATTERN_BYTES: usize = 1024;
/// Maximum number of segments (parts between `/`) of a path pattern.
const MAX_SEGMENTS: usize = 64;
/// Maximum length in bytes of the path in a URI after its escapes are decoded: the longest project
/// name, `/`, and the longest path pattern.
const MAX_URI_PATH_BYTES: usize = 64 + 1 + MAX_PATTERN_BYTES + "/**".len();
/// Maximum length in bytes of a whole URI: each byte of its path can be written as an escape of
/// three characters, such as `%2A`.
const MAX_URI_BYTES: usize = 16 + 3 * MAX_URI_PATH_BYTES;
/// Maximum number of segments in a URI: the project's name and the segments of a path pattern.
const MAX_URI_SEGMENTS: usize = 1 + MAX_SEGMENTS;

/// The name of something that can be claimed, or a pattern of such names: `file://shop/src/**`.
/// Each name has only one valid spelling, so URIs are compared as texts.
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

/// Schemes (the part before `://`) whose URIs must name exactly one thing, so that nobody can claim
/// many things at once by a wildcard.
const EXACT_SCHEMES: [&str; 4] = ["agent", "respond", "message", "release"];
/// Schemes (the part before `://`) whose URIs may contain wildcards.
const PATTERN_SCHEMES: [&str; 4] = ["file", "workspace", "port", "task"];

impl Uri {
    /// Parses a URI, and converts it to the one spelling that is used for this URI.
    pub fn new(text: &str) -> Result<Uri, BadName> {
        let bad = |why| Err(BadName::new("a claim URI", text, why));
        if text.len() > MAX_URI_BYTES {
            return bad("it is longer than 3292 bytes");
        }
        let Some((scheme, path)) = text.split_once("://") else {
            return bad("use the form scheme://name, for example file://shop/src/**");
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

    /// Returns the URI for the files of a project that match a path pattern.
    pub fn for_file(project: &ProjectName, pattern: &PathPattern) -> Uri {
        Uri(format!("file://{project}/{}", escape::escape(&pattern.0)).into())
    }

    /// Returns the path pattern if the URI is for files of `project`, or `None` otherwise.
    pub fn file_pattern(&self, project: &ProjectName) -> Option<PathPattern> {
        let path = self
            .0
            .strip_prefix("file://")?
            .strip_prefix(project.as_str())?
            .strip_prefix('/')?;
        PathPattern::new(&escape::unescape(path)?).ok()
    }

    /// Returns the URI of a project's trunk. Only the holder of the claim on it may move the trunk.
    pub fn for_trunk(project: &ProjectName) -> Uri {
        Uri(format!("workspace://{project}/default").into())
    }

    /// Returns the URI of a network port of the machine.
    pub fn for_port(port: u16) -> Uri {
        Uri(format!("port://{port}").into())
    }

    /// Returns the URI of a task. The attempt that works on the task holds the claim on it.
    pub fn for_task(project: &ProjectName, task: TaskId) -> Uri {
        Uri(format!("task://{project}/{task}").into())
    }

    /// Returns the URI of a task's workspace.
    pub fn for_workspace(project: &ProjectName, task: TaskId) -> Uri {
        Uri(format!("workspace://{project}/{task}").into())
    }

    /// Returns the URI of an agent's name. Only the holder of the claim on it acts under that name.
    pub fn for_agent(agent: &AgentName) -> Uri {
        Uri(format!("agent://{agent}").into())
    }

    /// Returns the URI that is claimed while a project's release command runs, so that only one
    /// release runs at a time.
    pub fn for_release(project: &ProjectName) -> Uri {
        Uri(format!("release://{project}").into())
    }

    /// Returns the agent's name if the URI is an `agent://` URI.
    pub fn agent(&self) -> Option<&str> {
        self.0.strip_prefix("agent://")
    }

    /// Returns whether the URI is for workspaces, which include the trunk.
    pub fn is_workspace(&self) -> bool {
        self.0.starts_with("workspace://")
    }

    /// Returns whether the URI is that of exactly this task or its workspace.
    pub fn names_task(&self, project: &ProjectName, task: TaskId) -> bool {
        let Some((named, name)) = self.parts().1.split_once('/') else {
            return false;
        };
        matches!(self.parts().0, "task" | "workspace")
            && named == project.as_str()
            && name.parse() == Ok(task)
    }

    /// Returns whether the URI contains wildcards.
    pub fn is_pattern(&self) -> bool {
        self.0.contains(['*', '?'])
    }

    /// Returns whether the URI is for tasks, workspaces or an agent's name. A running attempt holds
    /// claims on such URIs in addition to its claims on files.
    pub fn is_identity(&self) -> bool {
        matches!(self.parts().0, "agent" | "task" | "workspace")
    }

    /// Returns the URI's part for the project, which may contain wildcards; `None` if URIs of this
    /// scheme have no project.
    pub fn project(&self) -> Option<&str> {
        match self.parts() {
            ("file" | "workspace" | "task" | "release", path) => path.split('/').next(),
            _ => None,
        }
    }

    /// Returns whether the URI is for network ports.
    pub fn is_port(&self) -> bool {
        self.0.starts_with("port://")
    }

    /// Returns the URI as text in its one spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the parts before and after `://`.
    fn parts(&self) -> (&str, &str) {
        self.0.split_once("://").unwrap_or(("", &self.0))
    }

    /// Returns whether some URI matches both `self` and `other`. Each of the two can be a single
    /// URI or a pattern.
    pub fn overlaps(&self, other: &Uri) -> bool {
        if self.0 == other.0 {
            return true;
        }
        let ((scheme, path), (other_scheme, other_path)) = (self.parts(), other.parts());
        scheme == other_scheme && paths_overlap(path, other_path, Spelling::Escaped)
    }

    /// Returns an empty URI, which sorts before every real URI and can therefore begin a range.
    pub(crate) fn smallest() -> Uri {
        Uri(Arc::from(""))
    }

    /// Returns the part of the URI that consists of whole segments before the first wildcard.
    pub(crate) fn literal_segments(&self) -> &str {
        self.literal_prefix()
    }

    /// Returns the URI up to the first segment with a wildcard, without a trailing `/`. For a URI
    /// without wildcards, this is the whole text.
    ///
    /// Two patterns can overlap only if this part of one pattern is the beginning of this part of
    /// the other pattern.
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

/// A pattern that matches paths inside a repository, such as `src/**` or `web/login.*`.
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
    /// Parses a pattern. A trailing `/` means everything below that directory.
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
        // The limit applies to the converted pattern and not to `text`, because the converted
        // pattern is stored and must be accepted when it is read again (D9).
        if pattern.strip_suffix("/**").unwrap_or(&pattern).len() > MAX_PATTERN_BYTES {
            return bad("it is longer than 1024 bytes");
        }
        match check_path(&pattern, MAX_SEGMENTS) {
            Ok(()) => Ok(PathPattern(pattern.into())),
            Err(why) => bad(why),
        }
    }

    /// Parses a pattern that may contain alternatives such as `{a,b}`, and returns one pattern for
    /// each combination, at most 64.
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

    /// Returns whether the pattern matches `path`. In `path`, `*` and `?` are plain characters.
    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<PatternSegment> = path.split('/').map(PatternSegment::literal).collect();
        segments_overlap(&segments(&self.0, Spelling::Raw), &path)
    }

    /// Returns whether some path matches both patterns.
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

/// Checks that a path's segments (parts between `/`) are valid, or returns the problem.
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

#[cfg(test)]
mod tests;
