use regatta_core::agent::{RegisterAgent, Role, Runtime};
use regatta_core::attempt::{WorkFindings, WorkVerdict};
use regatta_core::claim::Acquire;
use regatta_core::collision_forecast::FoundCollision;
use regatta_core::command::{Actor, BoardInput, Command, CommandOutcome, Report, Request, decide};
use regatta_core::ids::{BranchName, CommitId};
use regatta_core::mission;
use regatta_core::project::{AddProject, ProjectSettings};
use regatta_core::schedule::{PollGrant, PollRequest};
use regatta_core::task::{AddTask, AssignMode, Expects, IssueType, Validation};

use super::*;

fn cell(path: &str, holder: Option<(&str, u64)>, wanted: &[u64], clash: &[u64]) -> FileCell {
    let held = holder.map(|(agent, task)| PathHolder {
        owner: "A1".into(),
        task: Some(TaskId(task)),
        agent: AgentName::new(agent).ok(),
        since_unix_ms: 0,
        deadline_unix_ms: None,
        until: format!("while T{task} is worked on"),
        memo: String::new(),
    });
    let tasks = |of: &[u64]| of.iter().copied().map(TaskId).collect();
    FileCell {
        path: path.into(),
        held: held.into_iter().collect(),
        wanted: tasks(wanted),
        clashing_tasks: tasks(clash),
        changes_today: 1,
    }
}

#[test]
fn a_patterns_folder_ends_before_its_first_wildcard() {
    let cases = [
        ("a.rs", ""),
        ("src/a.rs", "src"),
        ("src/**", "src"),
        ("src/api/*.rs", "src/api"),
        ("**", ""),
        ("src/a*/b.rs", "src"),
    ];
    for (path, folder) in cases {
        assert_eq!(folder_of(path), folder, "{path}");
    }
}

/// A holder of several paths in a folder holds the folder until the last of them ends.
#[test]
fn a_folder_is_held_until_its_last_path_is_free() {
    let held = |path: &str, until_wall| {
        let mut file_cell = cell(path, Some(("ada", 1)), &[], &[]);
        file_cell.held[0].deadline_unix_ms = Some(until_wall);
        file_cell
    };
    let folder = folder_cells(vec![
        held("src/a.rs", 5),
        held("src/b.rs", 9),
        held("src/c.rs", 7),
    ])
    .remove(0);
    assert_eq!(
        (
            folder.held.len(),
            folder.held[0].path_count,
            folder.held[0].deadline_unix_ms
        ),
        (1, 3, Some(9))
    );
}

#[test]
fn folders_form_a_tree_with_collisions_first() {
    let drawn = |spots: Vec<FileCell>| -> Vec<String> {
        let line = |folder_cell: FolderCell| {
            let held: Vec<String> = folder_cell
                .held
                .iter()
                .map(|holder_share| format!("{}×{}", holder_share.holder, holder_share.path_count))
                .collect();
            let own: Vec<String> = folder_cell
                .own_cells
                .iter()
                .map(|file_cell| file_cell.path.clone())
                .collect();
            let meet = if folder_cell.clash_count > 0 {
                format!(" !{}", folder_cell.clash_count)
            } else {
                String::new()
            };
            let path = if folder_cell.path.is_empty() {
                "."
            } else {
                &folder_cell.path
            };
            format!(
                "{}{path} {} [{}] hot {}{meet}: {}",
                "> ".repeat(folder_cell.depth),
                folder_cell.path_count,
                held.join(" "),
                folder_cell.changes_today,
                own.join(" ")
            )
        };
        folder_cells(spots).into_iter().map(line).collect()
    };
    assert_eq!(drawn(vec![]), Vec::<String>::new());
    assert_eq!(
        drawn(vec![
            cell("README.md", None, &[9], &[]),
            cell("src/api/deep/x.rs", Some(("ada", 1)), &[], &[]),
            cell("src/api/deep/y.rs", Some(("ada", 1)), &[2], &[1, 2]),
            cell("src/model/**", Some(("bob", 3)), &[], &[]),
            cell("docs/a.md", None, &[4], &[]),
        ]),
        [
            ". 5 [ada×2 bob×1] hot 4 !1: README.md",
            "> src 3 [ada×2 bob×1] hot 2 !1: ",
            "> > src/api/deep 2 [ada×2] hot 2 !1: src/api/deep/y.rs src/api/deep/x.rs",
            "> > src/model 1 [bob×1] hot 0: src/model/**",
            "> docs 1 [] hot 1: docs/a.md",
        ]
    );
    assert_eq!(
        drawn(vec![cell("a/b/c/x.rs", None, &[1], &[])]),
        ["a/b/c 1 [] hot 1: a/b/c/x.rs"],
        "a folder with a single child is left out"
    );
}

fn shop() -> ProjectName {
    ProjectName::new("shop").unwrap()
}

fn task_to_add(subject: &str, files: &[&str]) -> AddTask {
    AddTask {
        project: shop(),
        subject: subject.into(),
        description: String::new(),
        issue_type: IssueType::Task,
        files: files
            .iter()
            .map(|pattern| PathPattern::new(pattern).unwrap())
            .collect(),
        validation: Validation::default(),
        blocked_by: vec![],
        priority: 2,
        expects: Expects::Changes,
        effort: None,
        model: None,
        provider: None,
        script: None,
        ratchet: None,
        alias: None,
        backlog: false,
    }
}

/// A board with the project `shop`, and a clock.
struct Fleet {
    board: Board,
    now: Now,
}

impl Fleet {
    fn with_agents(names: &[&str]) -> Fleet {
        let mut fleet = Fleet {
            board: Board::default(),
            now: Now {
                fleet_ms: 0,
                unix_ms: 1_700_000_000_000,
            },
        };
        fleet.add_project(&shop());
        for name in names {
            fleet.ask(Command::RegisterAgent(RegisterAgent {
                name: AgentName::new(name).unwrap(),
                runtime: Runtime::Outside,
                role: Role::Worker,
                provider: None,
                profile: Default::default(),
                description: String::new(),
                max_tasks: 1,
            }));
        }
        fleet
    }

    fn decide(&mut self, input: BoardInput) -> CommandOutcome {
        let text = format!("{input:?}");
        let commit = decide(&self.board, input, self.now)
            .unwrap_or_else(|refusal| panic!("{}: {text}", refusal.message()));
        self.board = commit.board;
        commit.outcome
    }

    fn ask(&mut self, command: Command) -> CommandOutcome {
        let request = Request {
            by: Actor::Person("ann".into()),
            key: None,
            command,
        };
        self.decide(request.into())
    }

    fn report(&mut self, report: Report) -> CommandOutcome {
        self.decide(report.into())
    }

    fn advance(&mut self, ms: u64) {
        self.now.fleet_ms += ms;
        self.now.unix_ms += ms;
    }

    fn add_project(&mut self, name: &ProjectName) {
        self.ask(Command::AddProject(AddProject {
            name: name.clone(),
            location: format!("/repositories/{name}"),
            trunk: BranchName::new("main").unwrap(),
            validation: vec!["cargo test".into()],
            validation_timeout_ms: 600_000,
            settings: ProjectSettings::default(),
        }));
    }

    fn add(&mut self, task: AddTask) -> TaskId {
        let command = Command::AddTask {
            task,
            assign: None,
            how: AssignMode::Direct,
        };
        match self.ask(command) {
            CommandOutcome::Task(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn add_task(&mut self, subject: &str, files: &[&str]) -> TaskId {
        self.add(task_to_add(subject, files))
    }

    fn hold_claim(&mut self, uri: &str) {
        self.ask(Command::Acquire(Acquire {
            owner: ClaimOwner::Agent(AgentName::new("ada").unwrap()),
            uris: vec![Uri::new(uri).unwrap()],
            mode: ClaimMode::Exclusive,
            ttl_ms: 30_000,
            wait_ms: 0,
            memo: String::new(),
        }));
    }

    fn take_task(&mut self, agent: &str) -> PollGrant {
        let poll = PollRequest::new(AgentName::new(agent).unwrap());
        match self.ask(Command::Poll(poll)) {
            CommandOutcome::Polled(Some(grant)) => grant,
            other => panic!("{agent} got nothing: {other:?}"),
        }
    }

    /// Finishes an attempt, whose work passes its checks and enters the landing queue.
    fn submit(&mut self, grant: &PollGrant) {
        self.ask(Command::Finish {
            task: grant.task,
            attempt: grant.attempt,
            token: grant.token,
            output: None,
            not_needed: false,
            learnings: vec![],
        });
        let commit = |digit: &str| CommitId::new(&digit.repeat(40)).unwrap();
        self.report(Report::WorkVerdict {
            attempt: grant.attempt,
            token: grant.token,
            verdict: WorkVerdict::Passed {
                commit: commit("c"),
                base: commit("b"),
                changed: vec!["src/api/x".into()],
            },
            findings: WorkFindings::default(),
        });
    }
}

fn draw_map(fleet: &Fleet, landed: &[(&str, u32)]) -> Vec<String> {
    let landed: BTreeMap<String, u32> = landed
        .iter()
        .map(|landed| (landed.0.to_owned(), landed.1))
        .collect();
    let ids = |of: &[TaskId]| {
        of.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("+")
    };
    let line = |file_cell: FileCell| {
        let mut text = file_cell.path.clone();
        for one in &file_cell.held {
            text += &format!(
                " held by {} {}",
                one.agent.as_ref().map_or("-", |agent| agent.as_str()),
                one.until
            );
        }
        for (word, of) in [
            ("wanted by", &file_cell.wanted),
            ("meet", &file_cell.clashing_tasks),
        ] {
            text += &if of.is_empty() {
                String::new()
            } else {
                format!(" {word} {}", ids(of))
            };
        }
        text + &if file_cell.changes_today > 0 {
            format!(" hot {}", file_cell.changes_today)
        } else {
            String::new()
        }
    };
    file_cells(&fleet.board, &shop(), &landed, fleet.now, 100)
        .into_iter()
        .map(line)
        .collect()
}

#[test]
fn a_file_shows_its_holder_its_end_and_the_tasks_that_collide() {
    let mut fleet = Fleet::with_agents(&["ada", "bob"]);
    fleet.add_task("one", &["src/api/**"]);
    fleet.add_task("two", &["src/api/a.rs"]);
    fleet.add_task("three", &["docs/a.md"]);
    assert_eq!(
        draw_map(&fleet, &[]),
        [
            "docs/a.md wanted by T3",
            "src/api/** wanted by T1 meet T1+T2",
            "src/api/a.rs wanted by T2 meet T1+T2"
        ],
        "a pattern collides with a path that it matches"
    );
    let grant = fleet.take_task("ada");
    assert_eq!(
        draw_map(
            &fleet,
            &[("src/api/a.rs", 2), ("src/api/b.rs", 1), ("src/main.rs", 1)]
        ),
        [
            "docs/a.md wanted by T3",
            "src/api/** held by ada while T1 is worked on meet T1+T2 hot 3",
            "src/api/a.rs wanted by T2 meet T1+T2 hot 2",
            "src/api/b.rs hot 1",
            "src/main.rs hot 1",
        ]
    );
    fleet.submit(&grant);
    assert!(
        draw_map(&fleet, &[])[1].starts_with("src/api/** held by ada until T1 has landed"),
        "{:?}",
        draw_map(&fleet, &[])
    );
}

/// The map is about one project. Claims and tasks of another project are not on it, even if the
/// names are similar.
#[test]
fn files_of_another_project_are_not_on_the_map() {
    let mut fleet = Fleet::with_agents(&["ada"]);
    let name = ProjectName::new("shopping").unwrap();
    fleet.add_project(&name);
    fleet.hold_claim("file://shop/a.rs");
    fleet.hold_claim("file://shopping/b.rs");
    fleet.add(AddTask {
        project: name.clone(),
        ..task_to_add("there", &["c.rs"])
    });
    assert_eq!(draw_map(&fleet, &[]), ["a.rs held by ada "]);
    let there = file_cells(&fleet.board, &name, &BTreeMap::new(), fleet.now, 100);
    assert_eq!(
        there
            .iter()
            .map(|file_cell| file_cell.path.as_str())
            .collect::<Vec<_>>(),
        ["b.rs", "c.rs"]
    );
}

/// A lease's end is shown as a date, rounded to the second. The date does not move while time
/// passes.
#[test]
fn the_map_shows_the_date_at_which_a_lease_ends() {
    let mut fleet = Fleet::with_agents(&["ada"]);
    fleet.advance(1);
    let wall = fleet.now.unix_ms;
    fleet.hold_claim("file://shop/a.rs");
    for later in [0, 1, 998] {
        fleet.advance(later);
        let spots = file_cells(&fleet.board, &shop(), &BTreeMap::new(), fleet.now, 100);
        assert_eq!(
            spots[0].held[0].deadline_unix_ms,
            Some(wall - 1 + 31_000),
            "the end of the lease moved"
        );
    }
}

/// Tasks of a mission with `isolate` share their files, because the queue merges the changes. That
/// is not a collision.
#[test]
fn tasks_that_isolate_do_not_collide() {
    for (isolate, meet) in [
        (true, "a.rs wanted by T1+T2"),
        (false, "a.rs wanted by T1+T2 meet T1+T2"),
    ] {
        let mut fleet = Fleet::with_agents(&["ada"]);
        let ids = [
            fleet.add_task("one", &["a.rs"]),
            fleet.add_task("two", &["a.rs"]),
        ];
        let mission = mission::StartMission {
            project: shop(),
            title: "Both".into(),
            agents: vec![AgentName::new("ada").unwrap()],
            team: None,
            max_workers: 1,
            mode: mission::StartMode::Flow,
            isolate,
            wave_commits: false,
            serial: vec![],
            budget: Default::default(),
        };
        fleet.ask(Command::StartMission {
            mission,
            tasks: vec![],
            adopt: ids.to_vec(),
        });
        assert_eq!(draw_map(&fleet, &[]), [meet]);
    }
}

/// A collision that was found in work in progress is on the map, also in files that no task holds.
#[test]
fn a_found_collision_is_on_the_map() {
    let mut fleet = Fleet::with_agents(&["ada", "bob"]);
    fleet.add_task("one", &["a.rs"]);
    fleet.add_task("two", &["b.rs"]);
    let (one, two) = (fleet.take_task("ada"), fleet.take_task("bob"));
    let found = vec![FoundCollision {
        one: one.attempt,
        other: Some(two.attempt),
        paths: vec!["shared.rs".into()],
    }];
    fleet.report(Report::Collisions {
        project: shop(),
        found,
    });
    assert_eq!(draw_map(&fleet, &[])[2], "shared.rs meet T1+T2");
}

/// The size of the map is limited. Held files are always on it, and the rest up to the limit.
#[test]
fn a_map_shows_held_files_first_and_has_a_maximum_size() {
    let mut fleet = Fleet::with_agents(&["ada"]);
    fleet.hold_claim("file://shop/held.rs");
    let many: Vec<String> = (0..60).map(|n| format!("src/{n:02}.rs")).collect();
    fleet.add_task("many", &many.iter().map(String::as_str).collect::<Vec<_>>());
    fleet.add_task("same", &["src/00.rs"]);
    let paths = |most: usize| {
        let landed = BTreeMap::from([("hot.rs".to_owned(), 1), ("src/00.rs".to_owned(), 1)]);
        file_cells(&fleet.board, &shop(), &landed, fleet.now, most)
    };
    assert_eq!(
        paths(100).len(),
        52,
        "fifty files of one task, the held file and the hot file"
    );
    let few = paths(2);
    assert_eq!(
        few.iter()
            .map(|file_cell| file_cell.path.as_str())
            .collect::<Vec<_>>(),
        ["held.rs", "src/00.rs"]
    );
    assert_eq!(
        (few[1].wanted.len(), few[1].changes_today),
        (2, 1),
        "the entries that remain are complete"
    );
}

/// Two tasks of which one depends on the other do not collide, however long the chain of blockers
/// is.
#[test]
fn a_task_does_not_collide_with_its_blockers() {
    let mut fleet = Fleet::with_agents(&["ada"]);
    let one = fleet.add_task("one", &["a.rs"]);
    let two = fleet.add(AddTask {
        blocked_by: vec![one],
        ..task_to_add("two", &["b.rs"])
    });
    fleet.add(AddTask {
        blocked_by: vec![two],
        ..task_to_add("three", &["a.rs"])
    });
    assert_eq!(
        draw_map(&fleet, &[]),
        ["a.rs wanted by T1+T3", "b.rs wanted by T2"]
    );
    fleet.add_task("four", &["a.rs"]);
    assert_eq!(
        draw_map(&fleet, &[])[0],
        "a.rs wanted by T1+T3+T4 meet T1+T3+T4"
    );
}
