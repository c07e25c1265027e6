//! The cells of the table, and the scenarios that are its columns.

/// The result of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScenarioResult {
    /// The scenario passed; the text says how, if there is more than one way.
    Passed(String),
    Failed(String),
    /// The program cannot do this by design.
    Unsupported(String),
    NotRun(String),
}

impl ScenarioResult {
    pub(crate) fn passed() -> ScenarioResult {
        ScenarioResult::Passed(String::new())
    }

    pub(crate) fn failed(reason: impl Into<String>) -> ScenarioResult {
        ScenarioResult::Failed(reason.into())
    }

    /// Returns whether the result is acceptable.
    pub(crate) fn is_acceptable(&self) -> bool {
        !matches!(self, ScenarioResult::Failed(_))
    }

    /// Returns the text of the cell.
    pub(crate) fn text(&self) -> String {
        let with = |word: &str, why: &str| {
            // A cell is one line, and `|` would end it.
            let why: String = why.replace(['\n', '\r'], " ").replace('|', "/");
            let why: String = why.chars().take(160).collect();
            if why.is_empty() {
                word.to_owned()
            } else {
                format!("{word}: {why}")
            }
        };
        match self {
            ScenarioResult::Passed(how) => with("passed", how),
            ScenarioResult::Failed(why) => with("failed", why),
            ScenarioResult::Unsupported(why) => with("not possible", why),
            ScenarioResult::NotRun(why) => with("not run", why),
        }
    }
}

/// The columns of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    Write,
    Tool,
    Permission,
    Cancel,
    Restart,
    RateLimited,
    QuotaExhausted,
    Overloaded,
    Kill,
}

impl Scenario {
    pub(crate) const ALL: [Scenario; 9] = [
        Scenario::Write,
        Scenario::Tool,
        Scenario::Permission,
        Scenario::Cancel,
        Scenario::Restart,
        Scenario::RateLimited,
        Scenario::QuotaExhausted,
        Scenario::Overloaded,
        Scenario::Kill,
    ];

    /// Returns the name for `--scenarios`, which is also part of a story's marker.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scenario::Write => "write",
            Scenario::Tool => "tool",
            Scenario::Permission => "permission",
            Scenario::Cancel => "cancel",
            Scenario::Restart => "restart",
            Scenario::RateLimited => "limited",
            Scenario::QuotaExhausted => "used-up",
            Scenario::Overloaded => "overloaded",
            Scenario::Kill => "kill",
        }
    }

    /// Returns the title of the column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Scenario::Write => "write a file",
            Scenario::Tool => "call a Regatta tool",
            Scenario::Permission => "permission asked and answered",
            Scenario::Cancel => "cancel mid-turn",
            Scenario::Restart => "daemon restart mid-turn",
            Scenario::RateLimited => "429, reset in 3 s",
            Scenario::QuotaExhausted => "429, reset in 1 h",
            Scenario::Overloaded => "529",
            Scenario::Kill => "kill -9 of the agent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_of_a_table() {
        assert_eq!(ScenarioResult::passed().text(), "passed");
        assert_eq!(ScenarioResult::failed("a\nb | c").text(), "failed: a b / c");
        assert_eq!(
            ScenarioResult::Unsupported("it never asks".into()).text(),
            "not possible: it never asks"
        );
        assert!(
            ScenarioResult::NotRun(String::new()).is_acceptable()
                && !ScenarioResult::failed("x").is_acceptable()
        );
    }

    #[test]
    fn scenario_names_are_unique() {
        let mut words: Vec<&str> = Scenario::ALL
            .iter()
            .map(|scenario| scenario.name())
            .collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Scenario::ALL.len());
    }
}
