//! Draws the preview of a run: its tasks in their order, and a table of the files, each with the
//! task that owns the file (may change it first).

use regatta_api::view::TaskView;
use regatta_core::graph::PlanStep;
use regatta_core::ids::AgentName;
use regatta_core::manifest::{self, OwnedPattern, OwnershipReason, OwnershipTask, PlanOwnership};
use regatta_core::pattern::PathPattern;
use regatta_core::plural;

use crate::output::{first_line, format_table};
use crate::plan::Plan;

/// The maximum number of rows in the table of files. If there are more conflicts, the table still
/// shows all conflicts.
const MAX_FILES: usize = 40;

/// The tasks of a run that has not started, for the preview.
pub(crate) struct RunPreview {
    title: String,
    tasks: Vec<PreviewTask>,
}

struct PreviewTask {
    name: String,
    subject: String,
    files: Vec<PathPattern>,
    blocked_by: Vec<usize>,
}

/// The settings that decide in which order the preview shows the tasks.
#[derive(Default)]
pub(crate) struct PreviewRules {
    pub(crate) runs_in_waves: bool,
    /// True if each wave (layer of tasks) lands as one commit.
    pub(crate) has_wave_commits: bool,
    /// True if tasks that may change the same files run at the same time, so that the landing queue
    /// merges their work.
    pub(crate) is_isolated: bool,
    pub(crate) run: regatta_core::project::RunSettings,
    /// Patterns of the packages on which only one task works at a time.
    pub(crate) serial: Vec<PathPattern>,
}

impl RunPreview {
    /// Returns the preview of a plan's tasks.
    pub(crate) fn from_plan(plan: &Plan) -> RunPreview {
        let to_preview_task =
            |(planned_task, name): (&regatta_api::input::PlannedTask, &String)| PreviewTask {
                name: name.clone(),
                subject: planned_task.task.subject.clone(),
                files: planned_task.task.files.clone(),
                blocked_by: planned_task.after.clone(),
            };
        RunPreview {
            title: plan.title.clone(),
            tasks: plan
                .tasks
                .iter()
                .zip(&plan.names)
                .map(to_preview_task)
                .collect(),
        }
    }

    /// Returns the preview of tasks that already exist in the project.
    pub(crate) fn from_board(tasks: &[&TaskView]) -> RunPreview {
        let index_of = |id| tasks.iter().position(|task| task.task.id == id);
        let to_preview_task = |task: &&TaskView| PreviewTask {
            name: task.task.id.to_string(),
            subject: task.task.subject.clone(),
            files: task.task.files.clone(),
            blocked_by: task
                .task
                .blocked_by
                .iter()
                .filter_map(|id| index_of(*id))
                .collect(),
        };
        RunPreview {
            title: "tasks on the board".into(),
            tasks: tasks.iter().map(to_preview_task).collect(),
        }
    }

    /// Returns the same preview with another title.
    pub(crate) fn with_title(self, title: &str) -> RunPreview {
        RunPreview {
            title: title.to_owned(),
            ..self
        }
    }

    fn ownership(&self, rules: &PreviewRules) -> PlanOwnership {
        let parts: Vec<OwnershipTask> = self
            .tasks
            .iter()
            .map(|preview_task| OwnershipTask {
                files: preview_task.files.clone(),
                after: preview_task.blocked_by.clone(),
            })
            .collect();
        let ownership_rules = manifest::OwnershipRules {
            run: &rules.run,
            serial: &rules.serial,
            isolate: rules.is_isolated,
        };
        // The only possible error is a cycle of blockers (tasks that wait for each other). Neither
        // an accepted plan nor the existing tasks can contain such a cycle.
        manifest::ownership(&parts, ownership_rules).unwrap_or_default()
    }

    /// Draws the tasks in the order in which they will run, and below them the table of files and
    /// owners.
    pub(crate) fn draw(&self, rules: &PreviewRules, agents: &[AgentName]) -> String {
        let ownership = self.ownership(rules);
        let step_of = |index: usize| ownership.steps.get(index).copied().unwrap_or_default();
        let waves = ownership.waves.len();
        let names: Vec<String> = agents.iter().map(ToString::to_string).collect();
        let agents_text = if names.is_empty() {
            String::new()
        } else {
            format!(" · agents {}", names.join(" "))
        };
        let pace_text = match (rules.runs_in_waves, waves) {
            (false, _) => "each starts when it is ready".to_owned(),
            (true, 1) => "1 wave".into(),
            (true, _) => format!("{waves} waves with a barrier"),
        };
        let pace_text = if rules.has_wave_commits {
            format!("{pace_text}, each one commit")
        } else {
            pace_text
        };
        let mut text = format!(
            "plan \"{}\"  {} · {pace_text}{agents_text}\n",
            first_line(&self.title),
            plural::count(self.tasks.len(), "task")
        );
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        order.sort_by_key(|index| (step_of(*index).wave, step_of(*index).sub, *index));
        let rows: Vec<Vec<String>> = order
            .iter()
            .map(|index| {
                let preview_task = &self.tasks[*index];
                let needs: Vec<&str> = preview_task
                    .blocked_by
                    .iter()
                    .map(|blocker| self.tasks[*blocker].name.as_str())
                    .collect();
                let needs = if needs.is_empty() {
                    String::new()
                } else {
                    format!("needs {}", needs.join(" "))
                };
                let PlanStep { wave, sub } = step_of(*index);
                let first_cells = if rules.runs_in_waves {
                    vec![
                        format!("  wave {}", wave_name(wave as usize, sub)),
                        preview_task.name.clone(),
                    ]
                } else {
                    vec![format!("  {}", preview_task.name)]
                };
                [first_cells, vec![first_line(&preview_task.subject), needs]].concat()
            })
            .collect();
        text += &format_table(&rows);
        text + &self.draw_owners(rules, &ownership)
    }

    /// Draws the table of files and owners. The first task that lists a file owns the file. Another
    /// task of the same wave (layer of tasks) that lists the file too is shown as a conflict.
    fn draw_owners(&self, rules: &PreviewRules, ownership: &PlanOwnership) -> String {
        let mut owned: Vec<(usize, &OwnedPattern)> = ownership
            .waves
            .iter()
            .enumerate()
            .flat_map(|(at, wave_ownership)| {
                wave_ownership
                    .owned
                    .iter()
                    .map(move |owned_pattern| (at, owned_pattern))
            })
            .collect();
        if owned.is_empty() {
            return String::new();
        }
        let max_rows = MAX_FILES.max(ownership.conflict_count());
        let left_out = owned.len().saturating_sub(max_rows);
        if left_out > 0 {
            owned.sort_by_key(|entry| !entry.1.is_conflict());
            owned.truncate(max_rows);
        }
        let name_of = |at: &usize| self.tasks[*at].name.clone();
        let head: &[&str] = if rules.runs_in_waves {
            &["  file", "owner", "wave", "conflict"]
        } else {
            &["  file", "owner", "conflict"]
        };
        let mut rows: Vec<Vec<String>> = vec![head.iter().map(ToString::to_string).collect()];
        for (wave, owned_pattern) in owned {
            // Tasks of one wave (layer of tasks) that list the same files are split into sub-waves.
            // The task in the first sub-wave owns the file, even if another task comes first in the
            // plan.
            let mut contenders: Vec<(u32, usize)> = owned_pattern
                .sub_waves
                .iter()
                .copied()
                .zip(owned_pattern.owners.iter().copied())
                .collect();
            contenders.sort_unstable();
            let Some(((sub, owner), others)) = contenders.split_first() else {
                continue;
            };
            let other_names: Vec<String> = others.iter().map(|(_, task)| name_of(task)).collect();
            let conflict_text = match (
                other_names.is_empty(),
                rules.is_isolated,
                rules.runs_in_waves,
            ) {
                (true, _, _) => "-".to_owned(),
                (false, true, _) => {
                    format!(
                        "{} at the same time; the queue merges",
                        other_names.join(" ")
                    )
                }
                (false, false, false) => {
                    format!("{} after {}", other_names.join(" "), name_of(owner))
                }
                (false, false, true) => {
                    let conflicts = others.iter().map(|(sub, at)| {
                        format!("{} in wave {}", name_of(at), wave_name(wave, *sub))
                    });
                    conflicts.collect::<Vec<_>>().join(", ")
                }
            };
            let reason_text = match owned_pattern.reason {
                OwnershipReason::Manifest => "",
                OwnershipReason::Derived => "  (derived from its files)",
                OwnershipReason::Serial => "  (one task of a package at a time)",
            };
            let mut row = vec![format!("  {}", owned_pattern.pattern), name_of(owner)];
            if rules.runs_in_waves {
                row.push(wave_name(wave, *sub));
            }
            row.push(format!("{conflict_text}{reason_text}"));
            rows.push(row);
        }
        let mut text = format_table(&rows);
        if left_out > 0 {
            text += &format!(
                "  and {} without a conflict\n",
                plural::count(left_out, "more file")
            );
        }
        let order_text = match (rules.is_isolated, rules.runs_in_waves) {
            (true, _) => "merged by the landing queue",
            (false, true) => "resolved by sub-waves",
            (false, false) => "resolved one task after the other",
        };
        text += &match ownership.conflict_count() {
            0 => "no conflicts\n".to_owned(),
            count => format!("{}, {order_text}\n", plural::count(count, "conflict")),
        };
        text
    }
}

/// Returns the name of a wave (a layer of tasks that can run at the same time), such as `2`. A part
/// of a wave (a sub-wave) has a name such as `2.3`. Both arguments count from 0.
fn wave_name(wave: usize, sub: u32) -> String {
    if sub == 0 {
        (wave + 1).to_string()
    } else {
        format!("{}.{}", wave + 1, sub + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(tasks: &[(&str, &[&str], &[usize])]) -> RunPreview {
        let item = |row: &(&str, &[&str], &[usize])| PreviewTask {
            name: row.0.into(),
            subject: format!("Do {}", row.0),
            files: row.1.iter().map(|s| PathPattern::new(s).unwrap()).collect(),
            blocked_by: row.2.to_vec(),
        };
        RunPreview {
            title: "p".into(),
            tasks: tasks.iter().map(item).collect(),
        }
    }

    fn wave_rules() -> PreviewRules {
        PreviewRules {
            runs_in_waves: true,
            ..PreviewRules::default()
        }
    }

    /// Tasks 1 and 3 both need settings.go, so task 1 owns it and task 3 moves to the second
    /// sub-wave.
    #[test]
    fn a_file_with_two_owners_is_a_conflict_and_moves_the_later_one() {
        let run_preview = preview(&[
            ("1", &["src/auth.go", "src/config/settings.go"], &[]),
            ("2", &["src/limit.go"], &[]),
            ("3", &["src/config/settings.go"], &[]),
        ]);
        let text = run_preview.draw(&wave_rules(), &[]);
        assert!(text.contains("wave 1.2  3  Do 3\n"), "{text}");
        assert!(
            text.contains("src/config/settings.go  1      1     3 in wave 1.2\n"),
            "{text}"
        );
        assert!(
            text.contains("src/limit.go            2      1     -\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\n1 conflict, resolved by sub-waves\n"),
            "{text}"
        );
        assert!(
            run_preview
                .draw(&PreviewRules::default(), &[])
                .contains("settings.go  1      3 after 1\n")
        );
        let isolated = run_preview.draw(
            &PreviewRules {
                is_isolated: true,
                ..wave_rules()
            },
            &[],
        );
        assert!(
            isolated.contains("1      1     3 at the same time; the queue merges\n"),
            "{isolated}"
        );
        assert!(!isolated.contains("wave 1.2"), "{isolated}");
    }

    /// Tasks that depend on each other do not conflict.
    #[test]
    fn tasks_that_depend_on_each_other_do_not_conflict() {
        let run_preview = preview(&[
            ("a", &["src/**"], &[]),
            ("b", &["src/x.rs"], &[0]),
            ("c", &["doc.md"], &[1]),
        ]);
        let text = run_preview.draw(&wave_rules(), &[]);
        assert!(text.contains("3 waves with a barrier"), "{text}");
        assert_eq!(
            text.lines().filter(|line| line.ends_with(" -")).count(),
            3,
            "{text}"
        );
        assert!(
            text.contains("src/x.rs  b      2     -\n") && text.ends_with("\nno conflicts\n"),
            "{text}"
        );
    }

    /// Tasks of one serial package run in turn, and each still owns its own files.
    #[test]
    fn tasks_of_a_serial_package_still_own_their_files() {
        let plan = preview(&[("x", &["pkg/x.go"], &[]), ("y", &["pkg/y.go"], &[])]);
        let rules = PreviewRules {
            serial: vec![PathPattern::new("pkg/*").unwrap()],
            ..wave_rules()
        };
        let text = plan.draw(&rules, &[]);
        assert!(
            text.contains(
                "pkg/*     x      1     y in wave 1.2  (one task of a package at a time)\n"
            ),
            "{text}"
        );
        assert!(text.contains("pkg/y.go  y      1.2   -\n"), "{text}");
        assert!(
            text.ends_with("\n1 conflict, resolved by sub-waves\n"),
            "{text}"
        );
    }

    /// Derived files such as a lock file have an owner too, and so do serial packages.
    #[test]
    fn derived_files_and_serial_packages_have_owners() {
        let run_preview = preview(&[
            ("a", &["x/Cargo.toml"], &[]),
            ("b", &["y/Cargo.toml"], &[]),
            ("c", &["pkg/c.go"], &[]),
        ]);
        let pattern = |s: &str| PathPattern::new(s).unwrap();
        let derived = regatta_core::project::DerivedFile {
            file: pattern("Cargo.lock"),
            from: vec![pattern("**/Cargo.toml")],
        };
        let run = regatta_core::project::RunSettings {
            derived: vec![derived],
            ..Default::default()
        };
        let text = run_preview.draw(
            &PreviewRules {
                run,
                serial: vec![pattern("pkg/*")],
                ..wave_rules()
            },
            &[],
        );
        assert!(
            text.contains("Cargo.lock    a      1     b in wave 1.2  (derived from its files)\n"),
            "{text}"
        );
        assert!(
            text.contains("pkg/*         c      1     -  (one task of a package at a time)\n"),
            "{text}"
        );
    }

    #[test]
    fn a_long_table_is_cut_but_keeps_every_conflict() {
        let files: Vec<String> = (0..60).map(|n| format!("f{n:02}")).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let text = preview(&[("a", &files, &[]), ("b", &["f59"], &[])])
            .draw(&PreviewRules::default(), &[]);
        assert!(text.contains("f59   a      b after a"), "{text}");
        assert!(
            text.contains("and 20 more files without a conflict"),
            "{text}"
        );
    }
}
