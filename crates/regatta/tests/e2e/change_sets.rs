//! Random sets of changes that interact, landed through the real queue while the daemon is killed.
//!
//! Each set is a handful of tasks and a list of rules. A rule names tasks whose combination is red, and tasks that make
//! the combination green again. So there are sets in which every task is green alone and some together are red, sets in
//! which a later task repairs an earlier one, and sets in which a task is red until another one has landed. All tasks are
//! queued before the queue is released.
//!
//! Afterwards a plain shell script validates every first-parent commit of the trunk again (Q1, Q14), and the board is
//! compared with the trunk (Q12).
//!
//! The default run has two sets per mode. `REGATTA_CHANGE_SETS=100` runs as many per mode, and
//! `REGATTA_CHANGE_SETS_SEED=…` repeats a run. The table is printed with `--nocapture`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::chaos::kill_daemon;
use crate::kills::Dice;
use crate::world::{LONG, World, run, until};

/// How long a set may take to come to rest before the test fails.
const SETTLE_TIMEOUT: Duration = LONG;

/// The project's check. A line of `rules` is `when: needed tasks ! tasks that excuse`. A rule that applies `late` is
/// skipped in an agent's workspace, so that the agent's own validation passes.
const CHECK: &str = r#"#!/bin/sh
dir=$(cat current)
while read -r when rest; do
  if [ "$when" = late: ]; then
    case $PWD in */workspaces/*) continue;; esac
  fi
  broken=yes
  side=needed
  for task in $rest; do
    if [ "$task" = ! ]; then side=excuse; continue; fi
    if [ $side = needed ] && [ ! -e "$dir/$task" ]; then broken=no; fi
    if [ $side = excuse ] && [ -e "$dir/$task" ]; then broken=no; fi
  done
  if [ $broken = yes ]; then echo "broken rule: $rest"; exit 1; fi
done < "$dir/rules"
exit 0
"#;

/// A combination of tasks that fails the check.
struct Rule {
    /// Whether the rule is skipped in workspaces.
    is_late: bool,
    needed: Vec<usize>,
    excuses: Vec<usize>,
}

/// The tasks of one set, by number from 0, and how they interact.
struct ChangeSet {
    tasks: usize,
    rules: Vec<Rule>,
    /// Tasks that all change the same line.
    colliding: BTreeSet<usize>,
}

impl ChangeSet {
    fn random(dice: &mut Dice) -> ChangeSet {
        let tasks = 3 + dice.below(4) as usize;
        let mut rules = Vec::new();
        for _ in 0..1 + dice.below(3) {
            let mut order = shuffled(tasks, dice);
            let is_late = dice.below(3) == 0;
            // A task that is red alone must be excused by another one, or it could never land.
            let needed_count = if is_late { 1 } else { 2 + dice.below(2) as usize };
            let needed = order.split_off(order.len() - needed_count.min(order.len()));
            let excuse_count = if is_late { 1 } else { dice.below(2) as usize };
            order.truncate(excuse_count);
            rules.push(Rule { is_late, needed, excuses: order });
        }
        let colliding =
            if dice.below(3) == 0 { shuffled(tasks, dice).into_iter().take(2).collect() } else { [].into() };
        ChangeSet { tasks, rules, colliding }
    }

    fn rules_file(&self) -> String {
        let names = |tasks: &[usize]| tasks.iter().map(|nth| format!(" t{nth}")).collect::<String>();
        let line = |rule: &Rule| {
            let when = if rule.is_late { "late:" } else { "always:" };
            format!("{when}{} !{}\n", names(&rule.needed), names(&rule.excuses))
        };
        self.rules.iter().map(line).collect()
    }

    fn plan(&self, dir: &str) -> String {
        let mut plan = String::new();
        for nth in 0..self.tasks {
            let mut files = format!("\"{dir}/t{nth}\"");
            let mut script = format!("{{ write = {{ path = \"{dir}/t{nth}\", text = \"{nth}\\n\" }} }}");
            if self.colliding.contains(&nth) {
                files += &format!(", \"{dir}/line\"");
                script += &format!(", {{ write = {{ path = \"{dir}/line\", text = \"line of {nth}\\n\" }} }}");
            }
            let _infallible = writeln!(
                plan,
                "[[task]]\nid = \"{dir}-{nth}\"\nsubject = \"{dir} t{nth}\"\nfiles = [{files}]\nscript = [{script}]"
            );
        }
        plan
    }

    /// Returns the tasks that no rule and no collision names. Nothing can keep them from landing.
    fn independent(&self) -> Vec<usize> {
        let named = |nth: &usize| self.rules.iter().any(|rule| rule.needed.contains(nth) || rule.excuses.contains(nth));
        (0..self.tasks).filter(|nth| !named(nth) && !self.colliding.contains(nth)).collect()
    }
}

fn shuffled(count: usize, dice: &mut Dice) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for nth in (1..count).rev() {
        order.swap(nth, dice.below(nth as u64 + 1) as usize);
    }
    order
}

/// One way to run the queue.
struct Mode {
    name: &'static str,
    settings: &'static str,
    /// Whether every commit must be green. Otherwise only commits that claim a validation must be.
    validates_every_commit: bool,
}

const EVERY: Mode = Mode {
    name: "every",
    settings: "mode = \"speculative\"\nverify = \"every\"\nslots = 3\non_conflict = \"fail\"\n",
    validates_every_commit: true,
};
const TIP: Mode = Mode {
    name: "tip",
    settings: "mode = \"speculative\"\nverify = \"tip\"\nslots = 2\non_conflict = \"fail\"\n",
    validates_every_commit: false,
};
const SERIAL: Mode =
    Mode { name: "serial", settings: "mode = \"serial\"\non_conflict = \"fail\"\n", validates_every_commit: true };

/// Counts over all sets of a mode.
#[derive(Default)]
struct Tally {
    sets: u64,
    tasks: usize,
    landed: usize,
    kills: u64,
    failed_trials: usize,
    unvalidated_commits: usize,
}

struct Harness {
    world: World,
    mode: Mode,
    tally: Tally,
}

impl Harness {
    fn new(mode: Mode) -> Harness {
        let world = World::with_repo();
        world.write("test.sh", CHECK);
        world.write("current", "s0\n");
        world.write("s0/rules", "");
        world.ok(&["init", "--yes"]);
        let settings = world.read("regatta.toml");
        let kept: String = settings
            .lines()
            .take_while(|line| !line.starts_with("[landing]"))
            .map(|line| format!("{line}\n"))
            .collect();
        world.write("regatta.toml", &format!("{kept}[landing]\n{}", mode.settings));
        world.ok(&["init", "--yes"]);
        world.commit("Set up");
        world.ok(&["agent", "add", "crew", "--runtime", "scripted", "--max-tasks", "6"]);
        Harness { world, mode, tally: Tally::default() }
    }

    /// Lands one set and compares board and trunk afterwards.
    fn land(&mut self, nth: u64, set: &ChangeSet, dice: &mut Dice) {
        let (world, dir) = (&self.world, format!("s{nth}"));
        world.write("current", &format!("{dir}\n"));
        world.write(&format!("{dir}/rules"), &set.rules_file());
        world.commit(&format!("Rules of {dir}"));
        let start = world.git(&["rev-parse", "main"]);
        world.ok(&["queue", "hold", "until", "all", "are", "queued"]);
        let plan = world.plan(&set.plan(&dir));
        world.ok(&["run", &plan, "--agents", "crew", "--yes", "--isolate"]);
        let told = || format!("mode {}, {dir}\n{}\n{}", self.mode.name, set.rules_file(), world.run(&["status"]).out);
        let count = |status: &Value, name: &str| status[name].as_u64().unwrap_or(0);
        let is_queued = until(SETTLE_TIMEOUT, || count(&world.json(&["status"]), "landing") == set.tasks as u64);
        assert!(is_queued, "not all tasks were queued: {}", told());
        world.ok(&["queue", "release"]);
        let kills = dice.below(3);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(dice.below(400)));
            kill_daemon(world);
            world.json(&["up"]);
        }
        let settled = || {
            let status = world.json(&["status"]);
            count(&status, "landing") + count(&status, "working") + count(&status, "waiting") == 0
        };
        assert!(until(SETTLE_TIMEOUT, settled), "the queue does not come to rest: {}", told());
        let (landed, unvalidated) = self.compare(&start, &dir, set);
        for nth in set.independent() {
            let subject = format!("{dir} t{nth}");
            assert!(landed.contains(&subject), "Q9: t{nth} stands in no rule and did not land: {}", told());
        }
        let failed_trials = world.events().iter().filter(|event| event["kind"] == "landing.red").count();
        self.tally.sets += 1;
        self.tally.tasks += set.tasks;
        self.tally.landed += landed.len();
        self.tally.kills += kills;
        self.tally.unvalidated_commits += unvalidated;
        self.tally.failed_trials = failed_trials;
    }

    /// Compares the commits since `start` with the board and validates them again. Returns the subjects that landed and
    /// the number of commits that claim no validation.
    fn compare(&self, start: &str, dir: &str, set: &ChangeSet) -> (BTreeSet<String>, usize) {
        let world = &self.world;
        let format = "--format=%H%x09%(trailers:key=Regatta-Task,valueonly,separator=%x20)\
                      %x09%(trailers:key=Regatta-Validation,valueonly,separator=%x20)%x09%s";
        let listed = world.git(&["log", "--first-parent", "--reverse", format, &format!("{start}..main")]);
        let mut on_trunk: BTreeMap<String, String> = BTreeMap::new();
        let mut unvalidated = 0;
        for line in listed.lines().filter(|line| !line.is_empty()) {
            let parts: Vec<&str> = line.split('\t').collect();
            let [commit, task, validation, subject] = parts[..] else { panic!("{line:?}") };
            let is_red = self.validate(commit);
            let must_be_green = self.mode.validates_every_commit || !validation.trim().is_empty();
            assert!(!(must_be_green && is_red), "Q1, Q14: {commit} {subject} is red\n{}\n{listed}", set.rules_file());
            unvalidated += usize::from(validation.trim().is_empty());
            let twice = on_trunk.insert(task.trim().to_owned(), commit.to_owned());
            assert_eq!(twice, None, "Q7: {task} landed twice\n{listed}");
        }
        let mut landed = BTreeSet::new();
        for task in world.json(&["task", "list", "--all"]).as_array().unwrap() {
            let (id, subject) = (task["id"].as_str().unwrap(), task["subject"].as_str().unwrap());
            if subject.split(' ').next() != Some(dir) {
                continue;
            }
            let shown = world.json(&["show", id]);
            let commit = shown["landed"].as_str().map(str::to_owned);
            assert_eq!(commit.as_ref(), on_trunk.get(id), "Q12: {id} {subject}\n{shown}\n{listed}");
            assert_eq!(task["status"] == "completed", commit.is_some(), "Q12: {task}\n{listed}");
            if commit.is_some() {
                landed.insert(subject.to_owned());
            }
        }
        (landed, unvalidated)
    }

    /// Returns whether a commit fails the check in a clean export of its tree.
    fn validate(&self, commit: &str) -> bool {
        let tree = tempfile::tempdir_in(&self.world.root).unwrap();
        let mut test = Command::new("sh");
        self.world.clean(&mut test);
        let script = "git -C \"$1\" archive \"$2\" | tar xf - && sh ./test.sh";
        test.args(["-c", script, "sh"]).arg(&self.world.repo).arg(commit).current_dir(tree.path());
        let ran = run(test, None);
        assert!(ran.code == 0 || ran.out.contains("broken rule"), "{ran:?}");
        ran.code != 0
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[allow(clippy::print_stdout, reason = "a run that fails is repeated with the seed it printed")]
fn land_sets(mode: Mode) {
    let sets = number("REGATTA_CHANGE_SETS").unwrap_or(2);
    let seed = number("REGATTA_CHANGE_SETS_SEED").unwrap_or(20_261_118);
    println!("REGATTA_CHANGE_SETS_SEED={seed}");
    let mut dice = Dice(seed);
    let mut harness = Harness::new(mode);
    for nth in 1..=sets {
        let set = ChangeSet::random(&mut dice);
        harness.land(nth, &set, &mut dice);
    }
    let Harness { mode, tally, .. } = &harness;
    let _shown = writeln!(
        std::io::stdout(),
        "{}, seed {seed}: {} sets, {} tasks, {} landed, {} kills, {} failed trials, {} unvalidated commits, 0 red",
        mode.name,
        tally.sets,
        tally.tasks,
        tally.landed,
        tally.kills,
        tally.failed_trials,
        tally.unvalidated_commits,
    );
}

/// Q1, Q12: with `verify = "every"` no commit of the trunk is red, and board and trunk agree.
#[test]
fn q1_q12_interacting_changes_with_every_commit_verified() {
    land_sets(EVERY);
}

/// Q14, Q12: with `verify = "tip"` no commit that claims a validation is red, and board and trunk agree.
#[test]
fn q14_q12_interacting_changes_with_tips_verified() {
    land_sets(TIP);
}

/// Q1, Q12: the same one after the other.
#[test]
fn q1_q12_interacting_changes_in_a_serial_queue() {
    land_sets(SERIAL);
}
