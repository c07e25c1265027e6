//! Pull requests for pushed work, and the check runs of its landing.

use std::path::Path;

use regatta_core::command::Report;
use regatta_core::conversation::{ChangeDestination, ConversationReport, PushedWork, TurnWork};
use regatta_core::ids::ConversationId;
use regatta_core::project;
use regatta_core::task::TaskStatus;
use regatta_testkit::services::github::GitHub;
use regatta_testkit::services::{ServiceFault, github};

use super::{GithubView, REPO, RunningRegatta, SECRET, SHOP, TEST_TIMEOUT, World};

/// Returns the work of the latest turn after its branch was pushed to GitHub. The fake repository
/// has no remote, so the test reports the push itself.
async fn pushed_work(world: &World, regatta: &RunningRegatta) -> TurnWork {
    let (id, work) = regatta
        .wait_for(|board| {
            let conversation = board.conversations.values().next()?;
            conversation.pushed.as_ref()?;
            Some((conversation.id, conversation.turns.last()?.work.clone()?))
        })
        .await;
    world
        .github
        .set_branch(SHOP, &work.branch, work.commit.as_str());
    report_push(regatta, id, &work).await;
    work
}

/// Waits until the only check run has this conclusion.
async fn wait_for_check(world: &World, conclusion: &str) -> github::CheckRun {
    let check = |view: &GithubView<'_>| {
        let check = view.checks(SHOP).first()?;
        (check.conclusion.as_deref() == Some(conclusion)).then(|| check.clone())
    };
    world.github.wait_for_some(check, TEST_TIMEOUT).await
}

async fn report_push(regatta: &RunningRegatta, conversation: ConversationId, work: &TurnWork) {
    let pushed = PushedWork {
        commit: work.commit.clone(),
        failure: None,
    };
    let report = ConversationReport::Pushed {
        conversation,
        pushed,
    };
    let report = Report::Conversation(Box::new(report));
    regatta.reports.send(report).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pushed_work_gets_one_pull_request_and_one_check_run() {
    let mut world = World::new().await;
    world.config.deliver = ChangeDestination::Pull;
    let regatta = world.start().await;
    // GitHub creates the pull request and its answer is lost. The pull request is not created
    // again.
    world
        .github
        .fail_next("pulls/create", 1, ServiceFault::DropAfterCall);
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot change it");
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("Done")
        })
        .await;
    let work = pushed_work(&world, &regatta).await;
    let pull = regatta
        .wait_for(|board| board.conversations.values().next()?.pull.clone())
        .await;
    regatta.wait_until_all_shown().await;
    let pulls = world.github.pulls(SHOP);
    assert_eq!((pulls.len(), pulls[0].number), (1, pull.number));
    assert_eq!(pull.thread, Some(format!("github:{SHOP}:{}", pull.number)));
    let created = pulls[0].pull.as_ref().unwrap();
    assert_eq!(
        (created.head.as_str(), created.base.as_str()),
        (work.branch.as_str(), "main")
    );
    assert!(
        pulls[0].body.body.contains(&format!("#{number}"))
            && pulls[0].body.body.contains("<!-- regatta:")
    );
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains(&format!("PR #{}", pull.number))
        })
        .await;
    // The landing shows on the commit.
    world.github.comment("ann", SHOP, number, "land");
    let check = wait_for_check(&world, "success").await;
    assert_eq!(
        (check.head_sha.as_str(), check.name.as_str()),
        (work.commit.as_str(), "Regatta")
    );
    assert_eq!(
        check.fields["external_id"],
        format!("github:{SHOP}:{number}:claude")
    );
    assert_eq!(world.github.checks(SHOP).len(), 1, "one check, changed");
    regatta.wait_until_all_shown().await;
    drop(regatta);
    let regatta = world.start().await;
    regatta
        .wait_for_health("claude", |health| health.connected)
        .await;
    assert_eq!(
        world.github.checks(SHOP).len(),
        1,
        "a restart creates no second check"
    );
    world.github.assert_well_behaved();
}

/// S4: neither the title nor the text of a pull request contains a secret.
#[tokio::test(flavor = "multi_thread")]
async fn s4_secrets_are_redacted_in_a_pull_request() {
    let mut world = World::new().await;
    world.config.deliver = ChangeDestination::Pull;
    let regatta = world.start().await;
    let number = world.github.open_issue(
        "ann",
        SHOP,
        &format!("Log in with {SECRET}"),
        "@claude-bot change it, then leak it",
    );
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("The password is [redacted].")
        })
        .await;
    pushed_work(&world, &regatta).await;
    regatta
        .wait_for(|board| board.conversations.values().next()?.pull.clone())
        .await;
    regatta.wait_until_all_shown().await;
    let pull = world.github.pulls(SHOP).remove(0);
    assert_eq!(pull.title, "Log in with [redacted]");
    assert!(
        pull.body
            .body
            .starts_with("Done. The password is [redacted]."),
        "{}",
        pull.body.body
    );
}

/// Lets a landing fail, which shows as a failed check run, and retries it through `press` as a
/// permitted person.
async fn retry_a_failed_check(press: impl Fn(&GitHub, &str, u64)) {
    let mut world = World::new().await;
    world.config.deliver = ChangeDestination::Pull;
    world.settings.landing.on_conflict = project::ConflictPolicy::Fail;
    let regatta = world.start().await;
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot change it");
    let work = pushed_work(&world, &regatta).await;
    regatta.wait_until_all_shown().await;
    world
        .git
        .commit_as_person(Path::new(REPO), "README", "somebody else's\n");
    world.github.comment("ann", SHOP, number, "land");
    let check = wait_for_check(&world, "failure").await;
    assert_eq!(
        (check.head_sha.as_str(), check.status.as_str()),
        (work.commit.as_str(), "completed")
    );
    assert!(
        check.fields["output"]["summary"]
            .as_str()
            .unwrap()
            .contains("README"),
        "{}",
        check.fields
    );
    assert_eq!(check.fields["actions"][0]["identifier"], "again");
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("did not land")
        })
        .await;
    regatta.wait_until_all_shown().await;
    // After the cause is fixed, a person without permission presses the button, and then a
    // permitted person.
    world
        .git
        .commit_as_person(Path::new(REPO), "README", "shop\n");
    let task = regatta.conversations()[0].task.unwrap();
    press(&world.github, "eve", check.id);
    let is_delivered = |view: &GithubView<'_>| {
        let delivery = view
            .deliveries("claude-bot")
            .iter()
            .rfind(|delivery| delivery.event == "check_run")?;
        (delivery.status_code == Some(200)).then_some(())
    };
    world.github.wait_for_some(is_delivered, TEST_TIMEOUT).await;
    assert_eq!(
        regatta.engine.board().tasks[&task].status,
        TaskStatus::NeedsHuman
    );
    press(&world.github, "ann", check.id);
    wait_for_check(&world, "success").await;
    regatta.wait_until_all_shown().await;
    assert_eq!(world.github.checks(SHOP).len(), 1, "one check, changed");
    assert!(!regatta.engine.board().tasks.contains_key(&task));
    world.github.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn button_of_a_failed_check_retries_the_landing() {
    retry_a_failed_check(|github, person, check| {
        github.request_action(person, SHOP, check, "again")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_of_a_failed_check_on_github_retries_the_landing() {
    retry_a_failed_check(|github, person, check| github.rerequest(person, SHOP, check)).await;
}
