//! Q13: no guarded change lands without a person's review, with the real program and real git.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::lost_work::{StartedTask, world_with_outside_agent};
use crate::world::{TEST_TIMEOUT, wait_until};

/// The changes that an agent makes in its workspace.
type WorkspaceChange<'a> = &'a dyn Fn(&Path);

fn write_file(place: &Path, path: &str, text: &str) {
    let path = place.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The manifest covers everything, as one of a careless or hostile planner would.
#[test]
fn q13_guarded_work_waits_for_a_review_that_shows_reason_and_diff() {
    let world = world_with_outside_agent();
    let cases: [(&str, WorkspaceChange<'_>, &str); 3] = [
        (
            ".claude/settings.json (agent settings",
            &|place| write_file(place, ".claude/settings.json", "{\"hooks\":{}}\n"),
            "+{\"hooks\":{}}",
        ),
        (
            "tool.sh (a new executable file)",
            &|place| {
                write_file(place, "tool.sh", "#!/bin/sh\n");
                std::fs::set_permissions(
                    place.join("tool.sh"),
                    std::fs::Permissions::from_mode(0o755),
                )
                .unwrap();
            },
            "new file mode 100755",
        ),
        (
            "link (a symbolic link to tool.sh)",
            &|place| symlink("tool.sh", place.join("link")).unwrap(),
            "new file mode 120000",
        ),
    ];
    for (reason, change, shown) in cases {
        let before = world.git(&["rev-parse", "main"]);
        let work = StartedTask::start(&world, "Be helpful", "**");
        change(&work.workspace);
        work.finish(&world);
        work.wait_for_state(&world, "review");
        let explanation = world.run_ok(&["why", &work.task]);
        assert!(explanation.contains(reason), "{explanation}");
        let diff = world.run_ok(&["diff", &work.task]);
        assert!(diff.contains(shown), "{diff}");
        let inbox = world.run_json(&["inbox"]).to_string();
        assert!(inbox.contains(reason), "{inbox}");
        assert_eq!(
            world.git(&["rev-parse", "main"]),
            before,
            "the change landed before its review"
        );
        world.run_ok(&["land", &work.task]);
        work.wait_for_state(&world, "landed");
    }
    assert_eq!(
        world
            .git(&["ls-files", "-s", "link", "tool.sh"])
            .matches("120000")
            .count(),
        1
    );
}

#[test]
fn q13_a_link_out_of_the_tree_and_a_hidden_git_directory_are_refused() {
    let world = world_with_outside_agent();
    write_file(&world.repo, "src/main.txt", "main\n");
    world.commit_all("sources");
    let before = world.git(&["rev-parse", "main"]);
    let cases: [(WorkspaceChange<'_>, &str); 2] = [
        (
            &|place| {
                std::fs::remove_dir_all(place.join("src")).unwrap();
                symlink("/etc", place.join("src")).unwrap();
            },
            "points outside of the repository",
        ),
        (
            &|place| {
                write_file(place, "b/HEAD", "ref: refs/heads/main\n");
                write_file(place, "b/config", "[core]\n\tfsmonitor = touch canary\n");
                write_file(place, "b/objects/x", "x");
                write_file(place, "b/refs/x", "x");
            },
            "is a git directory",
        ),
    ];
    for (change, reason) in cases {
        let work = StartedTask::start(&world, "Be helpful", "**");
        change(&work.workspace);
        work.finish(&world);
        let shown_task = || world.run_json(&["show", &work.task]).to_string();
        assert!(
            wait_until(TEST_TIMEOUT, || shown_task().contains(reason)),
            "{}",
            shown_task()
        );
        world.run_refused(&["land", &work.task], 1);
        world.run_ok(&["task", "cancel", &work.task]);
    }
    assert_eq!(world.git(&["rev-parse", "main"]), before);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}
