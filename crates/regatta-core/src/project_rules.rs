//! Applies a project's standing rules (rules about all its work, such as "no `panic!`") before a
//! task starts and before its work is merged into the trunk.
//!
//! The rules are in the project's settings (`[[rule]]` in `regatta.toml`). Before the start only
//! the task's type and its list of files are known; before the merge its changes are known, too.
//!
//! Not here: rules about what agents' programs may do, which are in [`crate::policy`].

use crate::board::Board;
use crate::pattern::PathPattern;
use crate::project::{RuleAction, StandingRule};
use crate::task::{IssueType, Task};

/// A changed file with the facts that rules look at: its path and the lines that were added.
#[derive(Clone, Copy, Debug)]
pub struct ChangedFile<'a> {
    pub path: &'a str,
    pub added: &'a [String],
}

/// A rule of the project that matches a task or its changes, and where it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleMatch<'a> {
    pub rule: &'a StandingRule,
    /// The matching file, followed by the matching line if the rule looks for text; `None` if the
    /// rule matched a task before its start.
    pub location: Option<String>,
}

impl RuleMatch<'_> {
    /// Describes the match for people: the rule's name, message and location.
    pub fn sentence(&self) -> String {
        let name = if self.rule.name.is_empty() {
            "a rule"
        } else {
            &self.rule.name
        };
        let message = if self.rule.message.is_empty() {
            "no reason is given"
        } else {
            self.rule.message.trim()
        };
        match &self.location {
            Some(location) => format!("{name}: {message} ({location})"),
            None => format!("{name}: {message}"),
        }
    }
}

/// Returns whether a rule is switched on and applies to this type of task.
fn applies_to_type(rule: &StandingRule, issue_type: IssueType) -> bool {
    rule.action != RuleAction::Ignore && (rule.types.is_empty() || rule.types.contains(&issue_type))
}

/// Returns the rules that match a task before it starts, by its type and its list of files. A rule
/// that looks for text is included if its files match, so that the agent is told about it, but such
/// a rule can block only the finished work.
pub fn rules_at_start<'a>(
    rules: &'a [StandingRule],
    issue_type: IssueType,
    files: &[PathPattern],
) -> Vec<RuleMatch<'a>> {
    let touches = |rule: &StandingRule| {
        rule.files.is_empty()
            || files
                .iter()
                .any(|file| rule.files.iter().any(|pattern| pattern.overlaps(file)))
    };
    rules
        .iter()
        .filter(|rule| applies_to_type(rule, issue_type) && touches(rule))
        .map(|rule| RuleMatch {
            rule,
            location: None,
        })
        .collect()
}

/// Returns the rules that match finished work, by its changed files and, for rules that look for
/// text, by its added lines.
pub fn rules_at_landing<'a>(
    rules: &'a [StandingRule],
    issue_type: IssueType,
    changed: &[ChangedFile<'_>],
) -> Vec<RuleMatch<'a>> {
    let find_match = |rule: &'a StandingRule| {
        let is_covered = |path: &str| {
            rule.files.is_empty() || rule.files.iter().any(|pattern| pattern.matches(path))
        };
        let mut files = changed.iter().filter(|file| is_covered(file.path));
        match &rule.pattern {
            Some(text) => files.find_map(|file| {
                let line = file
                    .added
                    .iter()
                    .find(|added| added.contains(text.as_str()))?;
                let line: String = line.trim().chars().take(120).collect();
                Some(RuleMatch {
                    rule,
                    location: Some(format!("{}: {line}", file.path)),
                })
            }),
            // A rule that names neither files nor text was already applied before the task's start,
            // so it is not applied again.
            None if rule.files.is_empty() => None,
            None => files.next().map(|file| RuleMatch {
                rule,
                location: Some(file.path.to_owned()),
            }),
        }
    };
    rules
        .iter()
        .filter(|rule| applies_to_type(rule, issue_type))
        .filter_map(find_match)
        .collect()
}

/// Returns whether any rule looks for text, so that [`rules_at_landing`] needs the added lines.
pub fn has_text_rule(rules: &[StandingRule]) -> bool {
    rules
        .iter()
        .any(|rule| rule.action != RuleAction::Ignore && rule.pattern.is_some())
}

/// Returns the description of the first rule of the project that blocks the start of a task, or
/// `None`.
pub fn blocking_rule(board: &Board, task: &Task) -> Option<String> {
    let rules = &board.projects.get(&task.project)?.settings.rule;
    if rules.is_empty() {
        return None;
    }
    let matches = rules_at_start(rules, task.issue_type, &task.files);
    let first = matches.iter().find(|matched| {
        matched.rule.action == RuleAction::Block && matched.rule.pattern.is_none()
    })?;
    Some(format!(
        "a standing rule blocks its start ({}); change the task or the rule",
        first.sentence()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(
        types: &[IssueType],
        files: &[&str],
        pattern: Option<&str>,
        action: RuleAction,
    ) -> StandingRule {
        StandingRule {
            name: "no-print".into(),
            message: "use the log".into(),
            types: types.to_vec(),
            files: files
                .iter()
                .map(|file| PathPattern::new(file).unwrap())
                .collect(),
            pattern: pattern.map(str::to_owned),
            action,
        }
    }

    #[test]
    fn at_a_start_standing_rules_match_by_type_and_manifest() {
        use IssueType::{Docs, Feature};
        let check = |rule: StandingRule, issue_type, files: &[&str], expected: bool| {
            let files: Vec<_> = files
                .iter()
                .map(|file| PathPattern::new(file).unwrap())
                .collect();
            let rules = [rule];
            assert_eq!(
                !rules_at_start(&rules, issue_type, &files).is_empty(),
                expected,
                "{rules:?} {files:?}"
            );
        };
        let warn = RuleAction::Warn;
        check(rule(&[], &[], None, warn), Feature, &["src/a.rs"], true);
        check(
            rule(&[Docs], &[], None, warn),
            Feature,
            &["src/a.rs"],
            false,
        );
        check(
            rule(&[Feature], &["src/**"], None, warn),
            Feature,
            &["src/a.rs"],
            true,
        );
        check(
            rule(&[], &["src/db/*"], None, warn),
            Feature,
            &["src/**"],
            true,
        );
        check(
            rule(&[], &["docs/**"], None, warn),
            Feature,
            &["src/**"],
            false,
        );
        check(
            rule(&[], &["src/**"], Some("print"), warn),
            Feature,
            &["src/a.rs"],
            true,
        );
        check(
            rule(&[], &["src/**"], None, RuleAction::Ignore),
            Feature,
            &["src/a.rs"],
            false,
        );
        check(rule(&[], &["src/**"], None, warn), Feature, &[], false);
    }

    #[test]
    fn at_a_landing_standing_rules_match_by_the_diff() {
        let added = ["let x = 1;".to_owned(), "  print!(x);".to_owned()];
        let change = [ChangedFile {
            path: "src/a.rs",
            added: &added,
        }];
        let check = |rule: StandingRule, expected: Option<&str>| {
            let rules = [rule];
            let matches = rules_at_landing(&rules, IssueType::Bug, &change);
            assert_eq!(
                matches
                    .first()
                    .map(|matched| matched.location.clone().unwrap_or_default())
                    .as_deref(),
                expected
            );
        };
        let block = RuleAction::Block;
        check(
            rule(&[], &[], Some("print!"), block),
            Some("src/a.rs: print!(x);"),
        );
        check(
            rule(&[], &["src/**"], Some("print!"), block),
            Some("src/a.rs: print!(x);"),
        );
        check(rule(&[], &["web/**"], Some("print!"), block), None);
        check(rule(&[IssueType::Docs], &[], Some("print!"), block), None);
        check(rule(&[], &[], Some("panic!"), block), None);
        check(rule(&[], &["src/*"], None, block), Some("src/a.rs"));
        check(rule(&[], &[], None, block), None);
        check(rule(&[], &[], Some("print!"), RuleAction::Ignore), None);
    }
}
