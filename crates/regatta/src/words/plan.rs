//! Plan files: `plan check`.

use std::path::Path;

use crate::args::PlanWord;
use crate::out::{Failed, Said};
use crate::plan;

use super::App;

pub(super) fn plan(app: &App, word: &PlanWord) -> Said {
    match word {
        PlanWord::Check { file } => check(app, file),
    }
}

/// Says all that is wrong with a plan. It needs no daemon and no repository, and what is found is the answer.
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
            (0, 0) => format!("{}: {}, nothing to mend\n", found.file, super::preview::counted(found.tasks)),
            (0, 1) => format!("{}: {}, 1 will not start as it is\n", found.file, super::preview::counted(found.tasks)),
            (0, n) => {
                format!("{}: {}, {n} will not start as they are\n", found.file, super::preview::counted(found.tasks))
            }
            (1, _) => format!("{}: 1 mistake; nothing was created\n", found.file),
            (n, _) => format!("{}: {n} mistakes; nothing was created\n", found.file),
        }
    })?;
    if found.problems.is_empty() { Ok(()) } else { Err(Failed::Code(2)) }
}
