//! The command `plan check`.

use std::path::Path;

use crate::args::PlanWord;
use crate::out::{Failed, Said};
use crate::plan;

use super::App;

/// Runs `regatta plan`.
pub(super) fn plan(app: &App, word: &PlanWord) -> Said {
    match word {
        PlanWord::Check { file } => check(app, file),
    }
}

/// Checks a plan and prints all problems. This needs no daemon and no repository.
fn check(app: &App, file: &Path) -> Said {
    let (source, found) = plan::check(file)?;
    let next = match found.problems.is_empty() {
        true => vec![format!("regatta run {}", found.file)],
        false => vec![],
    };
    app.out.answer("plan.check", &found, &next, |out| {
        let mut text = String::new();
        for it in &found.problems {
            text += &format!("{} {}\n", out.paint("error:", "31;1"), source.told(it));
        }
        for it in &found.warnings {
            text += &format!("{} {}\n", out.paint("warning:", "33"), source.told(it));
        }
        text + &match (found.problems.len(), found.warnings.len()) {
            (0, 0) => format!("{}: {}, no problems\n", found.file, super::preview::counted(found.tasks)),
            (0, 1) => {
                format!("{}: {}, 1 of them will not start yet\n", found.file, super::preview::counted(found.tasks))
            }
            (0, n) => {
                format!("{}: {}, {n} of them will not start yet\n", found.file, super::preview::counted(found.tasks))
            }
            (1, _) => format!("{}: 1 error; nothing was created\n", found.file),
            (n, _) => format!("{}: {n} errors; nothing was created\n", found.file),
        }
    })?;
    if found.problems.is_empty() { Ok(()) } else { Err(Failed::Code(2)) }
}
