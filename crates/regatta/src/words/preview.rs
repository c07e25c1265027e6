//! What a run is going to do, before it does it: the tasks in their order, and who owns which file.

use regatta_api::view::TaskView;
use regatta_core::ids::AgentName;
use regatta_core::pattern::PathPattern;

use crate::args::Mode;
use crate::out::{line, table};
use crate::plan::Plan;

/// The most rows of the ownership table; conflicts are always among them.
const MOST_FILES: usize = 40;

/// A run, drawn.
pub(super) struct Preview {
    title: String,
    tasks: Vec<Item>,
}

struct Item {
    name: String,
    subject: String,
    files: Vec<PathPattern>,
    after: Vec<usize>,
}

/// One file, who owns it, and who else wants it.
#[derive(Debug, PartialEq, Eq)]
struct Owned {
    file: String,
    owner: usize,
    others: Vec<usize>,
}

impl Preview {
    pub(super) fn of_plan(plan: &Plan) -> Preview {
        let item = |(it, name): (&regatta_api::input::PlannedTask, &String)| Item {
            name: name.clone(),
            subject: it.task.subject.clone(),
            files: it.task.files.clone(),
            after: it.after.clone(),
        };
        Preview { title: plan.title.clone(), tasks: plan.tasks.iter().zip(&plan.names).map(item).collect() }
    }

    pub(super) fn of_board(tasks: &[&TaskView]) -> Preview {
        let place = |id| tasks.iter().position(|it| it.task.id == id);
        let item = |it: &&TaskView| Item {
            name: it.task.id.to_string(),
            subject: it.task.subject.clone(),
            files: it.task.files.clone(),
            after: it.task.blocked_by.iter().filter_map(|it| place(*it)).collect(),
        };
        Preview { title: "tasks on the board".into(), tasks: tasks.iter().map(item).collect() }
    }

    fn collide(&self, a: usize, b: usize) -> bool {
        self.tasks[a].files.iter().any(|x| self.tasks[b].files.iter().any(|y| x.overlaps(y)))
    }

    fn layers(&self) -> Vec<u32> {
        let after: Vec<Vec<usize>> = self.tasks.iter().map(|it| it.after.clone()).collect();
        regatta_core::graph::layers(self.tasks.len(), &after, |a, b| self.collide(a, b))
            .unwrap_or_else(|_| vec![0; self.tasks.len()])
    }

    /// Who owns each file that a manifest names: who comes first. Others who want it too, and would run at the same
    /// time but for that, are in conflict.
    fn ownership(&self, order: &[usize]) -> Vec<Owned> {
        let mut rows: Vec<Owned> = Vec::new();
        for at in order {
            for file in &self.tasks[*at].files {
                if rows.iter().any(|it| it.file == file.as_str()) {
                    continue;
                }
                let wants =
                    |it: &&usize| **it != *at && self.tasks[**it].files.iter().any(|other| other.overlaps(file));
                let apart = |it: &&usize| !self.reaches(**it, *at) && !self.reaches(*at, **it);
                let others = order.iter().filter(wants).filter(apart).copied().collect();
                rows.push(Owned { file: file.to_string(), owner: *at, others });
            }
        }
        rows
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut open = vec![from];
        let mut seen = vec![false; self.tasks.len()];
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            if !std::mem::replace(&mut seen[at], true) {
                open.extend(&self.tasks[at].after);
            }
        }
        false
    }

    /// The run as it will be worked off, and the ownership table.
    pub(super) fn draw(&self, mode: Mode, agents: &[AgentName]) -> String {
        let layers = self.layers();
        let waves = layers.iter().max().map_or(0, |it| it + 1);
        let names: Vec<String> = agents.iter().map(ToString::to_string).collect();
        let with = if names.is_empty() { String::new() } else { format!(" · agents {}", names.join(" ")) };
        let pace = match (mode, waves) {
            (Mode::Flow, _) => "each starts when it is ready".to_owned(),
            (Mode::Waves, 1) => "1 wave".into(),
            (Mode::Waves, _) => format!("{waves} waves with a barrier"),
        };
        let mut text = format!("plan \"{}\"  {} · {pace}{with}\n", line(&self.title), counted(self.tasks.len()));
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        order.sort_by_key(|it| (layers[*it], *it));
        let name = |at: usize| self.tasks[at].name.as_str();
        let rows: Vec<Vec<String>> = order
            .iter()
            .map(|at| {
                let it = &self.tasks[*at];
                let needs: Vec<&str> = it.after.iter().map(|on| name(*on)).collect();
                let needs = if needs.is_empty() { String::new() } else { format!("needs {}", needs.join(" ")) };
                let first = match mode {
                    Mode::Flow => vec![format!("  {}", it.name)],
                    Mode::Waves => vec![format!("  wave {}", layers[*at] + 1), it.name.clone()],
                };
                [first, vec![line(&it.subject), needs]].concat()
            })
            .collect();
        text += &table(&rows);
        let mut owned = self.ownership(&order);
        if owned.is_empty() {
            return text;
        }
        let conflicts = owned.iter().filter(|it| !it.others.is_empty()).count();
        let left_out = owned.len().saturating_sub(MOST_FILES.max(conflicts));
        if left_out > 0 {
            owned.sort_by_key(|it| it.others.is_empty());
            owned.truncate(MOST_FILES.max(conflicts));
        }
        let mut rows = vec![vec!["  file".to_owned(), "owner".into(), "conflict".into()]];
        rows.extend(owned.iter().map(|it| {
            let others: Vec<&str> = it.others.iter().map(|at| name(*at)).collect();
            let conflict = match (others.is_empty(), mode) {
                (true, _) => "-".to_owned(),
                (false, Mode::Flow) => format!("{} after {}", others.join(" "), name(it.owner)),
                (false, Mode::Waves) => {
                    let later: Vec<String> =
                        it.others.iter().map(|at| format!("{} in wave {}", name(*at), layers[*at] + 1)).collect();
                    later.join(", ")
                }
            };
            vec![format!("  {}", it.file), name(it.owner).to_owned(), conflict]
        }));
        text += &table(&rows);
        if left_out > 0 {
            text += &format!("  and {left_out} more files without a conflict\n");
        }
        text
    }
}

/// How many tasks, in words.
pub(super) fn counted(tasks: usize) -> String {
    if tasks == 1 { "1 task".into() } else { format!("{tasks} tasks") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(tasks: &[(&str, &[&str], &[usize])]) -> Preview {
        let item = |it: &(&str, &[&str], &[usize])| Item {
            name: it.0.into(),
            subject: format!("Do {}", it.0),
            files: it.1.iter().map(|it| PathPattern::new(it).unwrap()).collect(),
            after: it.2.to_vec(),
        };
        Preview { title: "p".into(), tasks: tasks.iter().map(item).collect() }
    }

    /// The seed's map: settings.go is task 1's, and task 3 goes to the second sub-wave.
    #[test]
    fn a_file_with_two_owners_is_a_conflict_and_moves_the_later_one() {
        let it = preview(&[
            ("1", &["src/auth.go", "src/config/settings.go"], &[]),
            ("2", &["src/limit.go"], &[]),
            ("3", &["src/config/settings.go"], &[]),
        ]);
        assert_eq!(it.layers(), [0, 0, 1]);
        let text = it.draw(Mode::Waves, &[]);
        assert!(text.contains("2 waves with a barrier"), "{text}");
        assert!(text.contains("src/config/settings.go  1      3 in wave 2\n"), "{text}");
        assert!(text.contains("src/limit.go            2      -\n"), "{text}");
        assert!(it.draw(Mode::Flow, &[]).contains("settings.go  1      3 after 1\n"));
    }

    /// Tasks that come one after the other anyway are not in each other's way.
    #[test]
    fn what_is_ordered_is_no_conflict() {
        let it = preview(&[("a", &["src/**"], &[]), ("b", &["src/x.rs"], &[0]), ("c", &["doc.md"], &[1])]);
        let rows = it.ownership(&[0, 1, 2]);
        assert!(rows.iter().all(|it| it.others.is_empty()), "{rows:?}");
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn many_files_are_cut_but_no_conflict_is() {
        let files: Vec<String> = (0..60).map(|it| format!("f{it:02}")).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let text = preview(&[("a", &files, &[]), ("b", &["f59"], &[])]).draw(Mode::Flow, &[]);
        assert!(text.contains("f59   a      b after a"), "{text}");
        assert!(text.contains("and 20 more files without a conflict"), "{text}");
    }
}
