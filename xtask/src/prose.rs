//! Measures the language of the source, and draws samples for a reader.
//!
//! `cargo xtask prose` prints counts of what `docs/style.md` avoids. `cargo xtask prose
//! --samples 30 --seed 7` prints comments, log lines, errors and help texts drawn at random, each
//! with nothing but the signature that it documents or stands in. `--under crates/regatta-core` draws
//! from the files of one directory. A reader who understands a sample at first reading can say what
//! the item does.
//!
//! Not here: rules that a build must keep. They are in `tests/tidy.rs`.

mod sample;
mod scan;

use std::collections::BTreeMap;

use crate::args::Args;
use crate::report::{Report, workspace_root};
use crate::rng::Rng;
use sample::{Sample, SampleKind};
use scan::{SourceFile, SourceLine};

/// File names that did not explain their content in the first version, so that none of them comes
/// back.
const OLD_NAMES: &str = include_str!("prose/old-names.txt");

/// The widest line that rustfmt's defaults allow.
const MAX_COLUMNS: usize = 100;

/// Words with which a comment starts that uses a clause as a noun.
const CLAUSE_HEADS: [&str; 8] = [
    "What", "Who", "Whose", "Whom", "Whoever", "Whatever", "Whether", "How",
];

/// Parts of constant names that have a plain replacement, such as `MAX_` for `MOST_`.
const OLD_CONSTANTS: [&str; 3] = ["MOST_", "LONGEST_", "LARGEST_"];

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let files = scan::source_files(&workspace_root())?;
    let samples: usize = args.number("samples", 0)?;
    if samples > 0 {
        let under = args.text("under").unwrap_or_default();
        let drawn_from: Vec<SourceFile> = files
            .into_iter()
            .filter(|file| file.path.starts_with(under))
            .collect();
        return print_samples(&drawn_from, samples, args.number("seed", 1)?);
    }
    let counts = ProseCounts::of_files(&files);
    let mut report = Report::new("prose", args);
    for (name, value) in counts.rows() {
        report.add_line(format!("  {value:>10}  {name}"));
    }
    for (crate_name, closures) in &counts.closures_by_crate {
        report.add_line(format!(
            "  {closures:>10}  closures named `it` in {crate_name}"
        ));
    }
    report.set_value("closures_named_it", counts.closures);
    report.set_value("comment_clause_heads_percent", counts.clause_head_percent());
    report.set_value("old_constants", counts.constants);
    report.set_value("old_file_names", counts.old_files);
    report.check_target(counts.closures == 0, "no closure names its parameter `it`");
    report.check_target(
        counts.clause_head_percent() < 1.0,
        "under 1 % of comments start with a what/who clause",
    );
    report.check_target(
        counts.constants == 0,
        "no constant is called MOST_, LONGEST_ or LARGEST_",
    );
    report.check_target(
        counts.old_files == 0,
        "no file has a name from old-names.txt",
    );
    report.finish()
}

#[derive(Default)]
struct ProseCounts {
    closures: usize,
    closures_by_crate: BTreeMap<String, usize>,
    comments: usize,
    clause_heads: usize,
    constants: usize,
    old_files: usize,
    code_lines: usize,
    code_chars: usize,
    wide_lines: usize,
}

impl ProseCounts {
    fn of_files(files: &[SourceFile]) -> ProseCounts {
        let mut counts = ProseCounts::default();
        for file in files {
            let mut after_comment = false;
            for line in &file.lines {
                let is_comment = matches!(line, SourceLine::Comment(_));
                match line {
                    SourceLine::Blank => {}
                    SourceLine::Comment(text) => counts.add_comment(text, after_comment),
                    SourceLine::Code(text) => counts.add_code(text, &file.crate_name),
                }
                after_comment = is_comment;
            }
        }
        counts.old_files = OLD_NAMES
            .lines()
            .filter(|name| workspace_root().join(name).exists())
            .count();
        counts
    }

    /// Counts a line of a comment. Only the first line of a comment can start with a clause.
    fn add_comment(&mut self, text: &str, continues: bool) {
        if continues {
            return;
        }
        self.comments += 1;
        let first = text
            .split(|c: char| !c.is_alphabetic())
            .next()
            .unwrap_or_default();
        self.clause_heads += usize::from(CLAUSE_HEADS.contains(&first));
    }

    fn add_code(&mut self, text: &str, crate_name: &str) {
        let closures = scan::closures_named_it(text);
        self.closures += closures;
        if closures > 0 {
            *self
                .closures_by_crate
                .entry(crate_name.to_owned())
                .or_default() += closures;
        }
        let name = text.split_once("const ").map_or("", |(_, name)| name);
        self.constants += usize::from(OLD_CONSTANTS.iter().any(|old| name.starts_with(old)));
        self.code_lines += 1;
        self.code_chars += text.trim().chars().count();
        self.wide_lines += usize::from(text.chars().count() > MAX_COLUMNS);
    }

    fn clause_head_percent(&self) -> f64 {
        percent(self.clause_heads, self.comments)
    }

    fn rows(&self) -> Vec<(String, String)> {
        let row = |name: &str, value: String| (name.to_owned(), value);
        vec![
            row(
                "closures whose parameter is named `it`",
                self.closures.to_string(),
            ),
            row(
                "comments that start with a what/who clause",
                format!("{:.1} %", self.clause_head_percent()),
            ),
            row("comments", self.comments.to_string()),
            row(
                "constants named MOST_, LONGEST_, LARGEST_",
                self.constants.to_string(),
            ),
            row(
                "files with a name from old-names.txt",
                self.old_files.to_string(),
            ),
            row("lines of code", self.code_lines.to_string()),
            row(
                "characters per line of code",
                format!("{:.1}", ratio(self.code_chars, self.code_lines)),
            ),
            row(
                "lines of code over 100 columns",
                format!("{:.1} %", percent(self.wide_lines, self.code_lines)),
            ),
        ]
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * ratio(part, whole)
}

/// Prints samples of each kind. The same seed and source give the same samples.
fn print_samples(files: &[SourceFile], comments: usize, seed: u64) -> anyhow::Result<bool> {
    let found = sample::collect(files);
    let mut dice = Rng::new(seed);
    for kind in SampleKind::ALL {
        let wanted = if kind == SampleKind::Comment {
            comments
        } else {
            comments.div_ceil(3)
        };
        let mut candidates: Vec<&Sample> =
            found.iter().filter(|sample| sample.kind == kind).collect();
        println!(
            "\n## {} ({} of {}, seed {seed})\n",
            kind.title(),
            wanted.min(candidates.len()),
            candidates.len()
        );
        for nth in 1..=wanted.min(candidates.len()) {
            let sample = candidates.swap_remove(dice.below(candidates.len()));
            println!("{nth}. {}", sample.text.trim());
            if let Some(item) = &sample.item {
                println!("   `{item}`");
            }
            if let Some(scope) = &sample.scope {
                println!("   in `{scope}`");
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_the_guide_avoids_are_counted() {
        // The sample is put together, so that the count of this file stays zero.
        let text = "\
//! ~ gets in.
//! What follows is the same comment.

/// Returns the open doors.
const @_DOORS: usize = 3;
fn open() {
    doors.iter().filter(|%| %.open).map(|&%| %).fold(0, |sum, %| sum + %);
    let bits = a|%|b;
}
"
        .replace('@', "MOST")
        .replace('%', "it")
        .replace('~', "Who");
        let counts = ProseCounts::of_files(&[SourceFile::parse("crates/x/src/a.rs", &text)]);
        assert_eq!((counts.closures, counts.constants), (3, 1));
        assert_eq!((counts.comments, counts.clause_heads), (2, 1));
        assert_eq!(
            counts.closures_by_crate,
            BTreeMap::from([("x".to_owned(), 3)])
        );
        assert_eq!(counts.code_lines, 5);
    }
}
