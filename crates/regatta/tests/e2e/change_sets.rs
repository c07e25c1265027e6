//! Random sets of interacting changes, landed through the real queue while the daemon is killed.
//!
//! Each set has a handful of tasks and a list of rules. A rule names tasks whose combination fails
//! the check, and files that make the combination pass again. A set can therefore contain tasks
//! that pass alone and fail together, a task that repairs an earlier one, a task that fails until
//! another one has landed, and a fix-up that repairs its own task. Some tasks change the same line,
//! some only the same file, some depend on another task, and some commit in several steps of which
//! one may fail. Each set draws its landing style and its way to settle conflicts. All tasks
//! without blockers are queued before the queue is released.
//!
//! Afterwards a plain shell script validates every first-parent commit of the trunk again (Q1,
//! Q14), the board is compared with the trunk (Q12), and each task that did not land must have a
//! reason: a rule that it breaks on top of some commit of the trunk, a conflict, or a blocker that
//! did not land (Q9).
//!
//! The default run has two sets per mode. `REGATTA_CHANGE_SETS=100` runs a hundred per mode, and
//! `REGATTA_CHANGE_SETS_SEED=…` repeats a run. `--nocapture` shows the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::chaos::kill_daemon;
use crate::kills::SeededRng;
use crate::world::{TEST_TIMEOUT, World, run_command, wait_until};

/// How long a set may take to settle before the test fails.
const SETTLE_TIMEOUT: Duration = TEST_TIMEOUT;

/// The project's check. A line of `rules` is `when: needed files ! files that excuse`. A rule with
/// `late` is skipped in an agent's workspace, so that the agent's own validation passes.
///
/// `sh test.sh repair t3` creates `fix-t3` if `fix-t3` excuses a broken rule, and validates
/// nothing.
const CHECK_SCRIPT: &str = r#"#!/bin/sh
dir=$(cat current)
if [ "$1" != repair ]; then
  if grep -qs unfinished "$dir"/t*; then echo "broken rule: an unfinished step"; exit 1; fi
  if grep -qs '^[<>]' "$dir"/shared "$dir"/line; then echo "broken rule: conflict marks"; exit 1; fi
fi
while read -r when rest; do
  if [ "$when" = late: ]; then
    case $PWD in */workspaces/*) continue;; esac
  fi
  broken=yes
  side=needed
  for file in $rest; do
    if [ "$file" = ! ]; then side=excuse; continue; fi
    if [ $side = needed ] && [ ! -e "$dir/$file" ]; then broken=no; fi
    if [ $side = excuse ] && [ -e "$dir/$file" ]; then broken=no; fi
  done
  if [ $broken = yes ] && [ "$1" = repair ]; then
    case " $rest " in *" fix-$2 "*) echo fixed > "$dir/fix-$2";; esac
  elif [ $broken = yes ]; then
    echo "broken rule: $rest"; exit 1
  fi
done < "$dir/rules"
exit 0
"#;

/// Sets one line of `shared` and removes conflict marks from the file.
const EDIT_SCRIPT: &str = r#"#!/bin/sh
file=$(cat current)/shared
{ grep -v '^[<=>]' "$file" | grep -v "^$1:"; echo "$1: $2"; } | sort -u > "$file.new"
mv "$file.new" "$file"
"#;

/// A combination of tasks that fails the check.
struct FailingCombination {
    /// Whether the rule is skipped in workspaces.
    is_late: bool,
    needed: Vec<usize>,
    excuses: Vec<usize>,
    /// A task whose fix-up can repair the combination.
    repairer: Option<usize>,
}

impl FailingCombination {
    fn excuse_files(&self) -> Vec<String> {
        let fix = self.repairer.map(|nth| format!("fix-t{nth}"));
        self.excuses
            .iter()
            .map(|nth| format!("t{nth}"))
            .chain(fix)
            .collect()
    }

    /// Returns whether the rule is broken where these files and the file of `task` exist.
    fn is_broken_by(&self, task: usize, files: &BTreeSet<String>) -> bool {
        let exists = |nth: &usize| *nth == task || files.contains(&format!("t{nth}"));
        self.needed.contains(&task)
            && self.needed.iter().all(exists)
            && !self.excuse_files().iter().any(|file| files.contains(file))
    }
}

/// Whether an agent commits its work itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnCommits {
    None,
    Green,
    /// One commit between the first and the last fails the check.
    RedBetween,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharedFileEdit {
    None,
    /// Adds `line` with its own content.
    SameFile,
    /// Changes the third line of `shared`.
    SameLine,
    /// Changes the last line of `shared`, which conflicts only with another edit of that line.
    OtherLine,
}

struct TaskShape {
    own_commits: OwnCommits,
    edit: SharedFileEdit,
    blocked_by: Option<usize>,
}

const LANDING_STYLES: [&str; 3] = ["squash", "rebase", "merge"];
const CONFLICT_POLICIES: [&str; 3] = ["fail", "fixup", "ownership"];

/// The tasks of one set, by number from 0, and how they interact.
struct ChangeSet {
    style: &'static str,
    on_conflict: &'static str,
    tasks: Vec<TaskShape>,
    rules: Vec<FailingCombination>,
}

impl ChangeSet {
    fn random(dice: &mut SeededRng) -> ChangeSet {
        let (style, on_conflict) = (
            LANDING_STYLES[dice.below(3) as usize],
            CONFLICT_POLICIES[dice.below(3) as usize],
        );
        let count = 3 + dice.below(4) as usize;
        let mut rules = Vec::new();
        for _ in 0..1 + dice.below(3) {
            let mut order = shuffled(count, dice);
            let is_late = dice.below(3) == 0;
            // Another task must excuse a task that fails alone. Otherwise the task could never
            // land.
            let needed_count = if is_late {
                1
            } else {
                2 + dice.below(2) as usize
            };
            let needed = order.split_off(order.len() - needed_count.min(order.len()));
            let excuse_count = if is_late { 1 } else { dice.below(2) as usize };
            order.truncate(excuse_count);
            let repairer = (!is_late && dice.below(2) == 0).then(|| needed[dice.below(2) as usize]);
            rules.push(FailingCombination {
                is_late,
                needed,
                excuses: order,
                repairer,
            });
        }
        let own_commits = |dice: &mut SeededRng| match dice.below(4) {
            0 => OwnCommits::Green,
            1 => OwnCommits::RedBetween,
            _ => OwnCommits::None,
        };
        let shape = |dice: &mut SeededRng| TaskShape {
            own_commits: own_commits(dice),
            edit: SharedFileEdit::None,
            blocked_by: None,
        };
        let mut tasks: Vec<TaskShape> = (0..count).map(|_| shape(dice)).collect();
        let edit = [
            SharedFileEdit::SameFile,
            SharedFileEdit::SameLine,
            SharedFileEdit::None,
        ][dice.below(3) as usize];
        let editors = shuffled(count, dice);
        let colliding = 2 + dice.below(2) as usize;
        for nth in &editors[..colliding] {
            tasks[*nth].edit = edit;
        }
        if let Some(other) = editors
            .get(colliding)
            .filter(|_| edit == SharedFileEdit::SameLine)
        {
            tasks[*other].edit = SharedFileEdit::OtherLine;
        }
        if dice.below(3) == 0 {
            let blocked = 1 + dice.below(count as u64 - 1) as usize;
            tasks[blocked].blocked_by = Some(dice.below(blocked as u64) as usize);
        }
        ChangeSet {
            style,
            on_conflict,
            tasks,
            rules,
        }
    }

    fn rules_file(&self) -> String {
        let line = |rule: &FailingCombination| {
            let when = if rule.is_late { "late:" } else { "always:" };
            let needed: String = rule.needed.iter().map(|nth| format!(" t{nth}")).collect();
            let excuses: String = rule
                .excuse_files()
                .iter()
                .map(|file| format!(" {file}"))
                .collect();
            format!("{when}{needed} !{excuses}\n")
        };
        self.rules.iter().map(line).collect()
    }

    fn plan_text(&self, dir: &str) -> String {
        let mut plan = String::new();
        for (nth, task) in self.tasks.iter().enumerate() {
            let mut files =
                format!("\"{dir}/t{nth}\", \"{dir}/t{nth}.more\", \"{dir}/fix-t{nth}\"");
            let write = |file: &str, text: &str| {
                format!("{{ write = {{ path = \"{dir}/{file}\", text = \"{text}\\n\" }} }}")
            };
            let command = |command: &str| format!("{{ run = \"{command}\" }}");
            let commit = command(
                "git add -A; git diff --cached --quiet || git -c user.name=crew -c \
                 user.email=crew@example.invalid \
                 commit -q -m 'A step'",
            );
            let own_file = format!("t{nth}");
            let mut script = vec![write(&own_file, &nth.to_string())];
            match task.own_commits {
                OwnCommits::None => {}
                OwnCommits::Green => {
                    script.extend([
                        commit.clone(),
                        write(&format!("{own_file}.more"), "more"),
                        commit.clone(),
                    ]);
                }
                OwnCommits::RedBetween => {
                    script.extend([
                        commit.clone(),
                        write(&own_file, "unfinished"),
                        commit.clone(),
                    ]);
                    script.extend([
                        write(&own_file, &nth.to_string()),
                        write(&format!("{own_file}.more"), "more"),
                        commit.clone(),
                    ]);
                }
            }
            match task.edit {
                SharedFileEdit::None => {}
                SharedFileEdit::SameFile => {
                    files += &format!(", \"{dir}/line\"");
                    script.push(write("line", &format!("line of {nth}")));
                }
                SharedFileEdit::SameLine | SharedFileEdit::OtherLine => {
                    let line = if task.edit == SharedFileEdit::SameLine {
                        3
                    } else {
                        9
                    };
                    files += &format!(", \"{dir}/shared\"");
                    script.push(command(&format!("sh edit.sh {line} 'line of {nth}'")));
                }
            }
            if self.rules.iter().any(|rule| rule.repairer == Some(nth)) {
                script.push(command(&format!("sh test.sh repair t{nth}")));
            }
            let blocker = task
                .blocked_by
                .map(|blocker| format!("blocked_by = [\"{dir}-{blocker}\"]\n"));
            let _infallible = writeln!(
                plan,
                "[[task]]\nid = \"{dir}-{nth}\"\nsubject = \"{dir} t{nth}\"\nfiles = \
                [{files}]\nscript = [{}]\n{}",
                script.join(", "),
                blocker.unwrap_or_default()
            );
        }
        plan
    }

    fn is_colliding(&self, nth: usize) -> bool {
        matches!(
            self.tasks[nth].edit,
            SharedFileEdit::SameFile | SharedFileEdit::SameLine
        )
    }

    /// Returns why a task may have been left out. `trees` has the files of the set at each commit
    /// of the trunk.
    fn reason_left_out(
        &self,
        nth: usize,
        landed: &BTreeSet<usize>,
        trees: &[BTreeSet<String>],
    ) -> Option<NotLandedReason> {
        if self.tasks[nth]
            .blocked_by
            .is_some_and(|blocker| !landed.contains(&blocker))
        {
            return Some(NotLandedReason::Blocked);
        }
        let meets_another = |other: &usize| *other != nth && self.is_colliding(*other);
        if self.on_conflict == "fail" && self.is_colliding(nth) && landed.iter().any(meets_another)
        {
            return Some(NotLandedReason::Conflict);
        }
        // The task's fix-up would have repaired the rule, unless conflicts used up the fix-ups or
        // restricted them to other files.
        let is_repaired = |rule: &FailingCombination| {
            self.on_conflict != "fail" && rule.repairer == Some(nth) && !self.is_colliding(nth)
        };
        let breaks =
            |rule: &&FailingCombination| trees.iter().any(|files| rule.is_broken_by(nth, files));
        self.rules
            .iter()
            .filter(|rule| !is_repaired(rule))
            .find(breaks)
            .map(|_| NotLandedReason::Rule)
    }

    fn description(&self) -> String {
        let mut text = format!(
            "style {}, on_conflict {}\n{}",
            self.style,
            self.on_conflict,
            self.rules_file()
        );
        for (
            nth,
            TaskShape {
                own_commits,
                edit,
                blocked_by,
            },
        ) in self.tasks.iter().enumerate()
        {
            let _infallible = writeln!(
                text,
                "t{nth}: {own_commits:?}, edit {edit:?}, blocked by {blocked_by:?}"
            );
        }
        text
    }
}

/// Why a task did not land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotLandedReason {
    Rule,
    Conflict,
    Blocked,
}

fn shuffled(count: usize, dice: &mut SeededRng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for nth in (1..count).rev() {
        order.swap(nth, dice.below(nth as u64 + 1) as usize);
    }
    order
}

/// One way to run the queue.
struct QueueRunMode {
    name: &'static str,
    settings: &'static str,
    /// Whether every commit must pass the check. Otherwise only commits that claim a validation
    /// must.
    validates_every_commit: bool,
}

const EVERY_COMMIT_MODE: QueueRunMode = QueueRunMode {
    name: "every",
    settings: "mode = \"speculative\"\nverify = \"every\"\nslots = 3\n",
    validates_every_commit: true,
};
const TIP_MODE: QueueRunMode = QueueRunMode {
    name: "tip",
    settings: "mode = \"speculative\"\nverify = \"tip\"\nslots = 2\n",
    validates_every_commit: false,
};
const SERIAL_MODE: QueueRunMode = QueueRunMode {
    name: "serial",
    settings: "mode = \"serial\"\n",
    validates_every_commit: true,
};

/// Counts over all sets of a mode, or over the sets with one landing style and one way to settle
/// conflicts.
#[derive(Clone, Copy, Default)]
struct ChangeSetTally {
    sets: usize,
    tasks: usize,
    landed: usize,
    left_out_by_rule: usize,
    left_out_by_conflict: usize,
    left_out_by_blocker: usize,
    fixups: usize,
    kills: usize,
    commits: usize,
    unvalidated_commits: usize,
    /// Failing commits that claim no validation. All other commits must pass.
    red_unvalidated_commits: usize,
}

impl ChangeSetTally {
    fn add(&mut self, other: ChangeSetTally) {
        self.sets += other.sets;
        self.tasks += other.tasks;
        self.landed += other.landed;
        self.left_out_by_rule += other.left_out_by_rule;
        self.left_out_by_conflict += other.left_out_by_conflict;
        self.left_out_by_blocker += other.left_out_by_blocker;
        self.fixups += other.fixups;
        self.kills += other.kills;
        self.commits += other.commits;
        self.unvalidated_commits += other.unvalidated_commits;
        self.red_unvalidated_commits += other.red_unvalidated_commits;
    }

    fn row(&self, name: &str) -> String {
        format!(
            "{name}: {} sets, {} tasks, {} landed, left out {} by a rule, {} by a conflict, {} by \
             a blocker, {} fix-ups, \
             {} kills, {} commits, {} of them claim no validation, {} of these red",
            self.sets,
            self.tasks,
            self.landed,
            self.left_out_by_rule,
            self.left_out_by_conflict,
            self.left_out_by_blocker,
            self.fixups,
            self.kills,
            self.commits,
            self.unvalidated_commits,
            self.red_unvalidated_commits,
        )
    }
}

struct Harness {
    world: World,
    mode: QueueRunMode,
    /// The settings of the repository without those of `[landing]`.
    settings: String,
    /// One entry per landing style and way to settle conflicts.
    tallies: BTreeMap<(&'static str, &'static str), ChangeSetTally>,
}

impl Harness {
    fn new(mode: QueueRunMode) -> Harness {
        let world = World::with_repo();
        world.write_file("test.sh", CHECK_SCRIPT);
        world.write_file("edit.sh", EDIT_SCRIPT);
        world.write_file("current", "s0\n");
        world.write_file("s0/rules", "");
        world.run_ok(&["init", "--yes"]);
        let settings = world.read_file("regatta.toml");
        let settings: String = settings
            .lines()
            .take_while(|line| !line.starts_with("[landing]"))
            .map(|line| format!("{line}\n"))
            .collect();
        world.commit_all("Set up");
        world.run_ok(&["config", "set", "retry", "10ms"]);
        world.run_ok(&[
            "agent",
            "add",
            "crew",
            "--runtime",
            "scripted",
            "--max-tasks",
            "6",
        ]);
        Harness {
            world,
            mode,
            settings,
            tallies: BTreeMap::new(),
        }
    }

    /// Lands one set, then compares the board with the trunk.
    fn land_set(&mut self, nth: u64, set: &ChangeSet, dice: &mut SeededRng) {
        let (world, dir) = (&self.world, format!("s{nth}"));
        let landing = format!(
            "{}style = \"{}\"\non_conflict = \"{}\"\n",
            self.mode.settings, set.style, set.on_conflict
        );
        world.write_file(
            "regatta.toml",
            &format!("{}[landing]\n{landing}", self.settings),
        );
        world.run_ok(&["init", "--yes"]);
        world.write_file("current", &format!("{dir}\n"));
        world.write_file(&format!("{dir}/rules"), &set.rules_file());
        let shared: String = (1..=9).map(|line| format!("{line}: base\n")).collect();
        world.write_file(&format!("{dir}/shared"), &shared);
        world.commit_all(&format!("Rules of {dir}"));
        let start = world.git(&["rev-parse", "main"]);
        world.run_ok(&["queue", "hold", "--because", "until all are queued"]);
        let plan = world.write_plan(&set.plan_text(&dir));
        world.run_ok(&["run", &plan, "--agents", "crew", "--yes", "--isolate"]);
        let context = || {
            format!(
                "mode {}, {dir}, {}\n{}",
                self.mode.name,
                set.description(),
                world.run(&["status"]).stdout
            )
        };
        let free = set
            .tasks
            .iter()
            .filter(|task| task.blocked_by.is_none())
            .count();
        let is_queued = wait_until(SETTLE_TIMEOUT, || {
            world.run_json(&["status"])["landing"].as_u64() == Some(free as u64)
        });
        assert!(is_queued, "not all tasks were queued: {}", context());
        world.run_ok(&["queue", "release"]);
        let kills = dice.below(3);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(dice.below(400)));
            kill_daemon(world);
            world.run_json(&["up"]);
        }
        let at_rest = || is_at_rest(set, &self.tasks_of_set(&dir));
        assert!(
            wait_until(SETTLE_TIMEOUT, at_rest),
            "the queue is still busy: {}",
            context()
        );
        let tally = ChangeSetTally {
            kills: kills as usize,
            ..self.compare_with_trunk(&start, &dir, set)
        };
        self.tallies
            .entry((set.style, set.on_conflict))
            .or_default()
            .add(tally);
        self.cancel_follow_ups();
    }

    /// Returns the tasks of a set in the order of its plan.
    fn tasks_of_set(&self, dir: &str) -> Vec<Value> {
        let all = self.world.run_json(&["task", "list", "--all"]);
        let prefix = format!("{dir} t");
        let number = |task: &Value| {
            task["subject"]
                .as_str()?
                .strip_prefix(&prefix)?
                .parse::<usize>()
                .ok()
        };
        let mut tasks: Vec<(usize, Value)> = all
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|task| Some((number(task)?, task.clone())))
            .collect();
        tasks.sort_by_key(|task| task.0);
        tasks.into_iter().map(|task| task.1).collect()
    }

    /// Compares the commits since `start` with the board and validates them again.
    fn compare_with_trunk(&self, start: &str, dir: &str, set: &ChangeSet) -> ChangeSetTally {
        let world = &self.world;
        let format = "--format=%H%x09%(trailers:key=Regatta-Task,valueonly,separator=%x20)\
                      %x09%(trailers:key=Regatta-Validation,valueonly,separator=%x20)%x09%s";
        let listed = world.git(&[
            "log",
            "--first-parent",
            "--reverse",
            format,
            &format!("{start}..main"),
        ]);
        let context = || {
            format!(
                "mode {}, {dir}, {}\n{listed}",
                self.mode.name,
                set.description()
            )
        };
        let mut tally = ChangeSetTally {
            sets: 1,
            tasks: set.tasks.len(),
            ..ChangeSetTally::default()
        };
        let mut trees = vec![self.files_at(start, dir)];
        // The last commit of each task, in the order of the trunk.
        let mut on_trunk: Vec<(String, String)> = Vec::new();
        for line in listed.lines().filter(|line| !line.is_empty()) {
            let parts: Vec<&str> = line.split('\t').collect();
            let [commit, task, validation, subject] = parts[..] else {
                panic!("{line:?}")
            };
            let is_red = self.fails_check(commit);
            let must_be_green = self.mode.validates_every_commit || !validation.trim().is_empty();
            assert!(
                !(must_be_green && is_red),
                "Q1, Q14: {commit} {subject} is red: {}",
                context()
            );
            tally.commits += 1;
            tally.unvalidated_commits += usize::from(validation.trim().is_empty());
            tally.red_unvalidated_commits += usize::from(is_red);
            trees.push(self.files_at(commit, dir));
            // The steps of one task are adjacent.
            on_trunk.pop_if(|last| set.style == "rebase" && last.0 == task.trim());
            let is_new = on_trunk.iter().all(|known| known.0 != task.trim());
            assert!(is_new, "Q7: {task} landed twice: {}", context());
            on_trunk.push((task.trim().to_owned(), commit.to_owned()));
        }
        let on_trunk: BTreeMap<String, String> = on_trunk.into_iter().collect();
        let board = self.tasks_of_set(dir);
        assert_eq!(board.len(), set.tasks.len(), "{}", context());
        let mut landed = BTreeSet::new();
        for (nth, task) in board.iter().enumerate() {
            let id = task["id"].as_str().unwrap();
            let shown = world.run_json(&["show", id]);
            let commit = shown["landed"].as_str().map(str::to_owned);
            assert_eq!(
                commit.as_ref(),
                on_trunk.get(id),
                "Q12: {id}: {shown}\n{}",
                context()
            );
            assert_eq!(
                task["status"] == "completed",
                commit.is_some(),
                "Q12: {task}\n{}",
                context()
            );
            tally.fixups += shown["fixups"].as_u64().unwrap_or(0) as usize;
            if commit.is_some() {
                landed.insert(nth);
            }
        }
        assert_eq!(
            landed.len(),
            on_trunk.len(),
            "Q12: the trunk has commits of other tasks: {}",
            context()
        );
        tally.landed = landed.len();
        for nth in (0..set.tasks.len()).filter(|nth| !landed.contains(nth)) {
            match set.reason_left_out(nth, &landed, &trees) {
                Some(NotLandedReason::Rule) => tally.left_out_by_rule += 1,
                Some(NotLandedReason::Conflict) => tally.left_out_by_conflict += 1,
                Some(NotLandedReason::Blocked) => tally.left_out_by_blocker += 1,
                None => {
                    let id = board[nth]["id"].as_str().unwrap();
                    let (why, shown) = (
                        world.run(&["why", id]).stdout,
                        world.run(&["show", id]).stdout,
                    );
                    panic!(
                        "Q9: nothing kept t{nth} from landing: {why}\n{shown}\n{}",
                        context()
                    );
                }
            }
        }
        tally
    }

    /// Returns the names of a set's files at a commit.
    fn files_at(&self, commit: &str, dir: &str) -> BTreeSet<String> {
        let tree = format!("{commit}:{dir}");
        self.world
            .git(&["ls-tree", "--name-only", &tree])
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Cancels the follow-up tasks about the side of a conflict that ownership dropped.
    fn cancel_follow_ups(&self) {
        for task in self.world.run_json(&["task", "list"]).as_array().unwrap() {
            if task["subject"]
                .as_str()
                .unwrap()
                .starts_with("Check the changes that")
            {
                self.world
                    .run_ok(&["task", "cancel", task["id"].as_str().unwrap()]);
            }
        }
    }

    /// Returns whether a commit fails the check in a clean export of its tree.
    fn fails_check(&self, commit: &str) -> bool {
        let tree = tempfile::tempdir_in(&self.world.root).unwrap();
        let mut test = Command::new("sh");
        self.world.clean_environment(&mut test);
        let script = "git -C \"$1\" archive \"$2\" | tar xf - && sh ./test.sh";
        test.args(["-c", script, "sh"])
            .arg(&self.world.repo)
            .arg(commit)
            .current_dir(tree.path());
        let output = run_command(test, None);
        assert!(
            output.exit_code == 0 || output.stdout.contains("broken rule"),
            "{output:?}"
        );
        output.exit_code != 0
    }
}

/// Returns whether each task of a set has landed, needs a person, or is blocked by a task that does
/// not land.
fn is_at_rest(set: &ChangeSet, board: &[Value]) -> bool {
    let is = |nth: usize, statuses: &[&str]| {
        statuses
            .iter()
            .any(|status| board[nth]["status"] == *status)
    };
    let is_over = |nth: usize| is(nth, &["completed", "needs_human", "failed"]);
    let is_stuck = |nth: usize| {
        let Some(blocker) = set.tasks[nth].blocked_by else {
            return false;
        };
        is(nth, &["pending", "unassigned"]) && is(blocker, &["needs_human", "failed"])
    };
    board.len() == set.tasks.len() && (0..board.len()).all(|nth| is_over(nth) || is_stuck(nth))
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[allow(clippy::print_stdout, reason = "the printed seed repeats a failed run")]
fn land_sets(mode: QueueRunMode) {
    let sets = number_from_environment("REGATTA_CHANGE_SETS").unwrap_or(2);
    let seed = number_from_environment("REGATTA_CHANGE_SETS_SEED").unwrap_or(20_261_118);
    println!("REGATTA_CHANGE_SETS_SEED={seed}");
    let mut dice = SeededRng(seed);
    let mut harness = Harness::new(mode);
    for nth in 1..=sets {
        let set = ChangeSet::random(&mut dice);
        harness.land_set(nth, &set, &mut dice);
    }
    let Harness {
        world,
        mode,
        tallies,
        ..
    } = &harness;
    let (mut table, mut total) = (String::new(), ChangeSetTally::default());
    for ((style, on_conflict), tally) in tallies {
        let _infallible = writeln!(table, "{}", tally.row(&format!("  {style}, {on_conflict}")));
        total.add(*tally);
    }
    let events = world.events();
    let count = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    let (red, squashed) = (count("landing.red"), count("landing.squashed"));
    let total = total.row(&format!("{}, seed {seed}", mode.name));
    let _shown = writeln!(
        std::io::stdout(),
        "{total}; {red} failed trials, {squashed} made one commit\n{table}"
    );
}

/// Q1, Q12: with `verify = "every"` no commit of the trunk fails the check, and board and trunk
/// agree.
#[test]
fn q1_q12_no_commit_fails_when_every_commit_is_verified() {
    land_sets(EVERY_COMMIT_MODE);
}

/// Q14, Q12: with `verify = "tip"` no commit that claims a validation fails the check, and board
/// and trunk agree.
#[test]
fn q14_q12_no_commit_that_claims_a_validation_fails_when_tips_are_verified() {
    land_sets(TIP_MODE);
}

/// Q1, Q12: in a serial queue no commit of the trunk fails the check, and board and trunk agree.
#[test]
fn q1_q12_no_commit_fails_in_a_serial_queue() {
    land_sets(SERIAL_MODE);
}
