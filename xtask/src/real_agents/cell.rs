//! One cell of the table, and the scenarios that are its columns.

/// What came of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// It passed; how, where there is more than one way.
    Passed(String),
    Failed(String),
    /// The program cannot do it, by its own nature.
    NotPossible(String),
    NotRun(String),
}

impl Cell {
    pub(crate) fn passed() -> Cell {
        Cell::Passed(String::new())
    }

    pub(crate) fn failed(why: impl Into<String>) -> Cell {
        Cell::Failed(why.into())
    }

    /// Whether the run may count as good.
    pub(crate) fn is_good(&self) -> bool {
        !matches!(self, Cell::Failed(_))
    }

    /// As it stands in the table.
    pub(crate) fn text(&self) -> String {
        let with = |word: &str, why: &str| {
            // A cell is one line, and `|` ends it.
            let why: String = why.replace(['\n', '\r'], " ").replace('|', "/");
            let why: String = why.chars().take(160).collect();
            if why.is_empty() { word.to_owned() } else { format!("{word}: {why}") }
        };
        match self {
            Cell::Passed(how) => with("passed", how),
            Cell::Failed(why) => with("failed", why),
            Cell::NotPossible(why) => with("not possible", why),
            Cell::NotRun(why) => with("not run", why),
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
    Limited,
    UsedUp,
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
        Scenario::Limited,
        Scenario::UsedUp,
        Scenario::Overloaded,
        Scenario::Kill,
    ];

    /// As `--scenarios` takes it, and as part of a story's marker.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Scenario::Write => "write",
            Scenario::Tool => "tool",
            Scenario::Permission => "permission",
            Scenario::Cancel => "cancel",
            Scenario::Restart => "restart",
            Scenario::Limited => "limited",
            Scenario::UsedUp => "used-up",
            Scenario::Overloaded => "overloaded",
            Scenario::Kill => "kill",
        }
    }

    /// The head of its column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Scenario::Write => "write a file",
            Scenario::Tool => "call a Regatta tool",
            Scenario::Permission => "permission asked and answered",
            Scenario::Cancel => "cancel mid-turn",
            Scenario::Restart => "daemon restart mid-turn",
            Scenario::Limited => "429, reset in 3 s",
            Scenario::UsedUp => "429, reset in 1 h",
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
        assert_eq!(Cell::passed().text(), "passed");
        assert_eq!(Cell::failed("a\nb | c").text(), "failed: a b / c");
        assert_eq!(Cell::NotPossible("it never asks".into()).text(), "not possible: it never asks");
        assert!(Cell::NotRun(String::new()).is_good() && !Cell::failed("x").is_good());
    }

    #[test]
    fn scenarios_have_words_of_their_own() {
        let mut words: Vec<&str> = Scenario::ALL.iter().map(|it| it.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Scenario::ALL.len());
    }
}
