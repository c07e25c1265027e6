//! The report: a table for each layer, with the versions, the date and the machine.

use std::fmt::Write as _;

use super::install::InstalledPrograms;
use super::programs::ProgramRow;
use super::scenario::{Scenario, ScenarioResult};

/// A table that is being built.
pub(crate) struct ReportTable {
    title: String,
    about: String,
    /// The titles of the columns.
    headings: Vec<&'static str>,
    rows: Vec<(Vec<String>, Vec<ScenarioResult>)>,
}

impl ReportTable {
    /// Returns an empty table of the scenarios.
    pub(crate) fn new(title: &str, about: &str) -> ReportTable {
        let heads = ["program", "runtime"]
            .into_iter()
            .chain(Scenario::ALL.map(Scenario::title));
        ReportTable::with_headings(title, about, heads.collect())
    }

    /// Returns an empty table with its own columns.
    pub(crate) fn with_headings(
        title: &str,
        about: &str,
        headings: Vec<&'static str>,
    ) -> ReportTable {
        ReportTable {
            title: title.to_owned(),
            about: about.to_owned(),
            headings,
            rows: vec![],
        }
    }

    pub(crate) fn add_program(
        &mut self,
        row: &ProgramRow,
        cells: [ScenarioResult; Scenario::ALL.len()],
    ) {
        let program = format!("{} {}", row.program.name, row.program.version);
        self.add_row(vec![program, row.driver.name().to_owned()], cells.into());
    }

    /// Adds a row: its titles, then its cells.
    pub(crate) fn add_row(&mut self, words: Vec<String>, cells: Vec<ScenarioResult>) {
        self.rows.push((words, cells));
    }

    /// Returns whether every cell passed or has an explanation.
    pub(crate) fn is_acceptable(&self) -> bool {
        self.rows
            .iter()
            .all(|row| row.1.iter().all(ScenarioResult::is_acceptable))
    }

    fn markdown(&self) -> String {
        let mut out = format!("### {}\n\n{}\n\n|", self.title, self.about);
        for head in &self.headings {
            let _infallible = write!(out, " {head} |");
        }
        out.push_str("\n|");
        out.push_str(&"---|".repeat(self.headings.len()));
        for (words, cells) in &self.rows {
            out.push_str("\n|");
            for word in words {
                let _infallible = write!(out, " {word} |");
            }
            for cell in cells {
                let _infallible = write!(out, " {} |", cell.text());
            }
        }
        let all = self.rows.iter().flat_map(|row| &row.1);
        let passed = all
            .clone()
            .filter(|scenario_result| matches!(scenario_result, ScenarioResult::Passed(_)))
            .count();
        let failed = all
            .clone()
            .filter(|scenario_result| matches!(scenario_result, ScenarioResult::Failed(_)))
            .count();
        let not_possible = all
            .filter(|scenario_result| matches!(scenario_result, ScenarioResult::Unsupported(_)))
            .count();
        let _infallible = write!(
            out,
            "\n\n{passed} passed, {failed} failed, {not_possible} not possible.\n"
        );
        out
    }
}

/// Returns a part of the page, with its title and the command that wrote it. It contains no host
/// name and no path.
pub(crate) fn report_text(
    (title, command): (&str, &str),
    tables: &[ReportTable],
    installed: &InstalledPrograms,
    account: &str,
) -> String {
    let mut out = format!("## {title}\n\nWritten by `cargo xtask {command}`.\n\n");
    let versions: Vec<String> = installed
        .programs
        .iter()
        .map(|npm_program| format!("{} {}", npm_program.package, npm_program.version))
        .collect();
    let _infallible = writeln!(
        out,
        "- Programs: {}; Node {}.",
        versions.join(", "),
        installed.node
    );
    for (name, why) in &installed.missing {
        let _infallible = writeln!(out, "- **{name}** {why}.");
    }
    let _infallible = writeln!(
        out,
        "- Run on {} as {account}; {}.\n",
        jiff::Timestamp::now().strftime("%F"),
        machine_text()
    );
    for table in tables {
        out.push_str(&table.markdown());
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn machine_text() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = memory
        .split_whitespace()
        .nth(1)
        .and_then(|memory| memory.parse::<u64>().ok())
        .unwrap_or(0);
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system
        .lines()
        .find_map(|system| system.strip_prefix("PRETTY_NAME="))
        .unwrap_or("an unknown system");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} cores, {} GB, {}, Linux {}, {}",
        kilobytes.div_ceil(1 << 20),
        system.trim_matches('"'),
        kernel.trim(),
        std::env::consts::ARCH
    )
}

#[cfg(test)]
mod tests {
    use super::super::programs::{ALL_PROGRAMS, ROWS};
    use super::*;

    #[test]
    fn the_report_has_a_row_for_each_program_and_names_what_is_missing() {
        let mut table = ReportTable::new("Some", "As it was.");
        for row in &ROWS {
            table.add_program(row, Scenario::ALL.map(|_| ScenarioResult::passed()));
        }
        assert!(table.is_acceptable());
        let missing = [("goose", "could not be installed: no".to_owned())].into();
        let installed = InstalledPrograms {
            dir: "/somewhere".into(),
            programs: ALL_PROGRAMS.into(),
            missing,
            node: "v22".into(),
        };
        let text = report_text(("Some", "some"), &[table], &installed, "somebody");
        assert!(
            text.starts_with("## Some\n\nWritten by `cargo xtask some`"),
            "{text}"
        );
        assert_eq!(text.matches("\n| ").count(), ROWS.len() + 1, "{text}");
        assert!(
            text.contains("**goose** could not be installed: no."),
            "{text}"
        );
        assert!(
            text.contains(&format!(
                "{} passed, 0 failed",
                ROWS.len() * Scenario::ALL.len()
            )),
            "{text}"
        );
        assert!(!text.contains("/somewhere"), "no path is in the report");
    }
}
