//! Q13: no guarded change lands without a person's review, with the real program and real git.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::lost_work::{Work, with_zoe};
use crate::world::{LONG, until};

/// The changes that an agent makes in its workspace.
type Step<'a> = &'a dyn Fn(&Path);

fn put(place: &Path, path: &str, text: &str) {
    let path = place.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The manifest covers everything, as one of a careless or hostile planner would.
#[test]
fn q13_guarded_work_waits_for_a_review_that_shows_reason_and_diff() {
    let world = with_zoe();
    let cases: [(&str, Step<'_>, &str); 3] = [
        (
            ".claude/settings.json (agent settings",
            &|place| put(place, ".claude/settings.json", "{\"hooks\":{}}\n"),
            "+{\"hooks\":{}}",
        ),
        (
            "tool.sh (a new executable file)",
            &|place| {
                put(place, "tool.sh", "#!/bin/sh\n");
                std::fs::set_permissions(place.join("tool.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
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
        let work = Work::begin(&world, "Be helpful", "**");
        change(&work.place);
        work.finish(&world);
        work.until(&world, "review");
        let why = world.ok(&["why", &work.task]);
        assert!(why.contains(reason), "{why}");
        let diff = world.ok(&["diff", &work.task]);
        assert!(diff.contains(shown), "{diff}");
        let inbox = world.json(&["inbox"]).to_string();
        assert!(inbox.contains(reason), "{inbox}");
        assert_eq!(world.git(&["rev-parse", "main"]), before, "the change landed before its review");
        world.ok(&["land", &work.task]);
        work.until(&world, "landed");
    }
    assert_eq!(world.git(&["ls-files", "-s", "link", "tool.sh"]).matches("120000").count(), 1);
}

#[test]
fn q13_a_link_out_of_the_tree_and_a_hidden_git_directory_are_refused() {
    let world = with_zoe();
    put(&world.repo, "src/main.txt", "main\n");
    world.commit("sources");
    let before = world.git(&["rev-parse", "main"]);
    let cases: [(Step<'_>, &str); 2] = [
        (
            &|place| {
                std::fs::remove_dir_all(place.join("src")).unwrap();
                symlink("/etc", place.join("src")).unwrap();
            },
            "points outside of the repository",
        ),
        (
            &|place| {
                put(place, "b/HEAD", "ref: refs/heads/main\n");
                put(place, "b/config", "[core]\n\tfsmonitor = touch canary\n");
                put(place, "b/objects/x", "x");
                put(place, "b/refs/x", "x");
            },
            "is a git directory",
        ),
    ];
    for (change, reason) in cases {
        let work = Work::begin(&world, "Be helpful", "**");
        change(&work.place);
        work.finish(&world);
        let told = || world.json(&["show", &work.task]).to_string();
        assert!(until(LONG, || told().contains(reason)), "{}", told());
        world.refused(&["land", &work.task], 1);
        world.ok(&["task", "cancel", &work.task]);
    }
    assert_eq!(world.git(&["rev-parse", "main"]), before);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}
