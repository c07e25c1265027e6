//! Implements the API verbs for finished work and for the landing queue (finished work that waits
//! to be merged): land, show, hold, send back, drop, take over, and undo.
//!
//! The order of the queue and the trial merges are decided in `regatta_core::landing`.

use std::path::Path;

use regatta_api::view::DiffView;
use regatta_core::attempt::Attempt;
use regatta_core::landing::{self, LentTrunkClaim};
use regatta_core::refusal::Refusal;
use regatta_core::scope_escape;
use regatta_core::task::Task;
use regatta_engine::ports::git::CommitRange;

use super::*;

/// Number of ended landings (merges of tasks' work) that the API verb `queue` returns.
const MAX_PAST_LANDINGS: usize = 100;

/// Returns the error for a caller who wants to see the changes since a review, although the task's
/// work was never sent back.
pub(crate) fn never_reviewed(id: TaskId) -> Problem {
    let what = format!("{id} was never sent back, so there is no earlier version to compare with");
    Problem::new(
        409,
        "never_reviewed",
        what,
        format!("see the whole change: regatta diff {id}"),
    )
}

impl VerbHandler<'_> {
    pub(super) async fn land(&self, input: input::LandInput) -> Reply<TaskView> {
        let id = if input.claim.is_some() {
            self.task_of_workspace(&input.id).await?
        } else {
            parse_id(&input.id)?
        };
        if self.board().is_completed(id) {
            if let Some(taken_back) = landing::undone_refusal(&self.board(), id) {
                return Err(Problem::from(&taken_back));
            }
            // The task has already landed, so the request is a repetition and succeeds.
            return reply(self.board().revision, self.task_view(id).await?);
        }
        // If a person has taken the task over, the person's attempt is still running. Finish that
        // attempt, and its work is then merged.
        let board = self.board();
        let by_hand = board
            .tasks
            .get(&id)
            .and_then(|task| board.attempts.get(&task.attempt?));
        if let Some(attempt) = by_hand.filter(|attempt| attempt.by_hand && input.claim.is_none()) {
            let (attempt, token) = (attempt.id, attempt.token);
            return self
                .run_on_task(
                    id,
                    Command::Finish {
                        task: id,
                        attempt,
                        token,
                        output: None,
                        not_needed: false,
                        learnings: vec![],
                    },
                )
                .await;
        }
        let command = match (input.claim, input.token) {
            (Some(claim), Some(token)) => Command::LandWithLentClaim {
                task: id,
                lent_claim: LentTrunkClaim { claim, token },
            },
            (None, None) => Command::Land {
                task: id,
                first: input.first,
            },
            _ => {
                let hint = "give both: regatta land --now WORKSPACE --claim CLAIM --token N";
                return Err(Problem::new(
                    400,
                    "invalid",
                    "--claim and --token were not given together",
                    hint,
                ));
            }
        };
        self.run_on_task(id, command).await
    }

    /// Returns the task to which a workspace belongs. `named` is the id of the task or of the
    /// attempt, or the path of the workspace.
    async fn task_of_workspace(&self, named: &str) -> Result<TaskId, Problem> {
        if let Ok(task) = named.parse() {
            return Ok(task);
        }
        let path = Path::new(named);
        let last = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or(named);
        let attempt: AttemptId = parse_id(last)?;
        let found = self
            .read_history(move |history| history.attempt(attempt))
            .await?;
        let live = self
            .board()
            .attempts
            .get(&attempt)
            .map(|attempt| Attempt::clone(attempt));
        let found = live.or(found).filter(|live| {
            let board = self.board();
            let Some(project) = board.projects.get(&live.project) else {
                return false;
            };
            path.components().count() == 1 || self.engine().workspace_path(project, attempt) == path
        });
        found.map(|attempt| attempt.task).ok_or_else(|| {
            Problem::new(
                404,
                "no_such_workspace",
                format!("{named} is neither a task nor the workspace of an attempt"),
                "see the tasks and attempts: regatta status",
            )
        })
    }

    pub(super) async fn queue(
        &self,
        input: input::ProjectFilter,
        page: &PageRequest,
    ) -> PageReply<Vec<QueueView>> {
        self.require_project(input.project.as_ref())?;
        let board = self.board();
        let projects = fleet::selected_projects(&board, input.project.as_ref());
        let key = |project: &Arc<project::Project>| project.name.to_string();
        let projects = page.select(projects, key, |project| project)?;
        let mut views = Vec::new();
        for project in projects.list() {
            let name = project.name.clone();
            let ended = self
                .read_history(move |history| {
                    let landings = history.landings(&name, MAX_PAST_LANDINGS)?;
                    landings
                        .into_iter()
                        .filter(|landing| landing.end.is_some())
                        .map(|landing| Ok((history.task(landing.task)?, landing)))
                        .collect::<Result<Vec<_>, _>>()
                })
                .await?;
            let median_ms = landing::median_time_ms(
                ended.iter().map(|(task, landing)| (landing, task.as_ref())),
            );
            let ended = ended
                .iter()
                .map(|(task, landing)| LandingView::from_ended(landing, task.as_ref()))
                .collect();
            views.push(QueueView::new(
                &board,
                project,
                self.engine().now(),
                ended,
                median_ms,
            ));
        }
        reply(board.revision, projects.map(|_| views))
    }

    pub(super) async fn queue_hold(&self, input: input::QueueHold) -> Reply<Done> {
        let project = self.resolve_project(input.project)?;
        let reason = if input.reason.trim().is_empty() {
            "no reason was given".to_owned()
        } else {
            input.reason
        };
        self.run_and_confirm(Command::HoldQueue { project, reason })
            .await
    }

    pub(super) async fn queue_accept(&self, input: input::ProjectFilter) -> Reply<Done> {
        let project = self.resolve_project(input.project)?;
        // The trunk may have moved since its last comparison with the commits that Regatta landed.
        // Compare again first, so that its present commit is accepted.
        let (engine, name) = (self.engine().clone(), project.clone());
        let tip = run_blocking(move || engine.compare_trunk(&name)).await?;
        self.run_and_confirm(Command::AcceptTrunk { project, tip })
            .await
    }

    pub(super) async fn queue_release(&self, input: input::ProjectFilter) -> Reply<Done> {
        let project = self.resolve_project(input.project)?;
        self.run_and_confirm(Command::ReleaseQueue { project })
            .await
    }

    pub(super) async fn diff(&self, input: input::DiffInput) -> Reply<DiffView> {
        let board = self.board();
        if let Ok(attempt) = input.id.parse::<AttemptId>()
            && input.id.parse::<TaskId>().is_err()
        {
            let stored = self
                .read_history(move |history| history.attempt(attempt))
                .await?;
            let live = board
                .attempts
                .get(&attempt)
                .map(|found| Attempt::clone(found));
            let found = live
                .or(stored)
                .ok_or_else(|| resolve_id::no_such_attempt(attempt))?;
            let view = self.task_view(found.task).await?;
            return match self.kept_work_diff(&view.task, &found, true).await? {
                Some(diff) => reply(board.revision, diff),
                None => Err(nothing_kept(attempt)),
            };
        }
        let id: TaskId = parse_id(&input.id)?;
        let task = self.task_view(id).await?.task;
        let Some(work) = task.submission.clone() else {
            // Work that failed its checks was not added to the queue. But the work is saved, so its
            // diff can be shown.
            let attempts = self
                .read_history(move |history| history.attempts_of(id))
                .await?;
            for attempt in attempts.iter().rev().filter(|_| !input.since_review) {
                if let Some(diff) = self.kept_work_diff(&task, attempt, false).await? {
                    return reply(board.revision, diff);
                }
            }
            return Err(Problem::from(&Refusal::NothingToLand {
                task: id,
                status: task.status,
            }));
        };
        let project = board.projects.get(&task.project).cloned();
        let project = project.ok_or_else(|| {
            Problem::from(&Refusal::NoSuchProject {
                project: task.project.clone(),
            })
        })?;
        let (git, repo) = (self.engine().git(), ProjectRepo::from_project(&project));
        let base = match (input.since_review, &task.reviewed) {
            (true, Some(reviewed)) => reviewed.clone(),
            (true, None) => return Err(never_reviewed(id)),
            (false, _) => work.base,
        };
        let (from, commit) = (base.clone(), work.commit.clone());
        let patch = run_blocking(move || {
            let range = CommitRange {
                base: &from,
                commit: &commit,
            };
            git.diff(&repo, range)
        })
        .await?
        .map_err(problem_from_git)?;
        let left_out = scope_escape::files_left_out(&task, work.attempt);
        let (commit, files) = (work.commit, work.changed);
        let view = DiffView {
            task: id,
            base,
            commit,
            files,
            attempt: None,
            left_out,
            patch,
        };
        reply(board.revision, view)
    }

    /// Returns the diff of the work of an attempt that Regatta has saved. With `all`, the diff
    /// contains all changed files, and otherwise only the files that the task may change.
    async fn kept_work_diff(
        &self,
        task: &Task,
        attempt: &Attempt,
        all: bool,
    ) -> Result<Option<DiffView>, Problem> {
        let project = self.board().projects.get(&task.project).cloned();
        let project = project.ok_or_else(|| {
            Problem::from(&Refusal::NoSuchProject {
                project: task.project.clone(),
            })
        })?;
        let (git, repo) = (self.engine().git(), ProjectRepo::from_project(&project));
        // Look up the saved work by workspace, because attempts that share a workspace also share
        // the git ref under which their work is saved.
        let workspace = attempt.workspace();
        let found = run_blocking(move || {
            let Some(kept) = git.kept_work(&repo, workspace)? else {
                return Ok(None);
            };
            let commit = if all { kept.whole } else { kept.commit };
            let range = CommitRange {
                base: &kept.base,
                commit: &commit,
            };
            let patch = git.diff(&repo, range)?;
            Ok(Some((kept.base, commit, patch)))
        });
        let Some((base, commit, patch)) = found.await?.map_err(problem_from_git)? else {
            return Ok(None);
        };
        let files = regatta_api::patch::files_in_patch(&patch)
            .into_iter()
            .map(|file| file.path)
            .collect();
        let (attempt, left_out) = (attempt.id, scope_escape::files_left_out(task, attempt.id));
        Ok(Some(DiffView {
            task: task.id,
            base,
            commit,
            files,
            attempt: Some(attempt),
            left_out,
            patch,
        }))
    }

    pub(super) async fn revise(&self, input: input::IdWithText) -> Reply<TaskView> {
        let task: TaskId = parse_id(&input.id)?;
        self.run_on_task(
            task,
            Command::Revise {
                task,
                text: input.text,
            },
        )
        .await
    }

    /// Removes finished work from the landing queue for good. The work is kept under a ref in
    /// Regatta's own repository, so that it is not lost. If the task has failed, only removes the
    /// task from the inbox.
    pub(super) async fn drop_work(&self, input: input::IdWithText) -> Reply<TaskView> {
        let task: TaskId = parse_id(&input.id)?;
        let found = self.task_view(task).await?.task;
        if found.status.has_failed() {
            return self.run_on_task(task, Command::Dismiss { task }).await;
        }
        if found.submission.is_none() {
            let status = found.status;
            let mut problem = Problem::from(&Refusal::NothingToLand { task, status });
            if !status.is_terminal() {
                problem.hint = format!("to give up the task itself: regatta task cancel {task}");
            }
            return Err(problem);
        }
        let reason = if input.text.trim().is_empty() {
            "dropped".to_owned()
        } else {
            format!("dropped: {}", input.text)
        };
        self.run_on_task(task, Command::CancelTask { task, reason })
            .await
    }

    /// Lets a person continue a task: starts an attempt in the person's name, and creates a
    /// workspace for this attempt.
    pub(super) async fn takeover(&self, input: input::IdInput) -> Reply<TaskView> {
        let id: TaskId = parse_id(&input.id)?;
        let task = self.task_view(id).await?.task;
        let agent = task.agent.or(task.assignee).ok_or_else(|| {
            let hint = format!("see what it waits for: regatta why {id}");
            Problem::new(
                409,
                "nothing_to_take_over",
                format!("no agent has worked on {id} yet, so there is no work to take over"),
                hint,
            )
        })?;
        let poll = PollRequest {
            task: Some(id),
            by_hand: true,
            ..PollRequest::new(agent)
        };
        match self.run(Command::Poll(poll)).await? {
            (revision, CommandOutcome::Polled(Some(grant))) => {
                self.workspace_of(grant.attempt).await;
                reply(revision, self.task_view(id).await?)
            }
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    /// Starts a landing (merge) that reverts the landed work of a task. `id` is the task's id, or
    /// the commit of its work.
    pub(super) async fn undo(&self, input: input::IdInput) -> Reply<TaskView> {
        let id = self.resolve_undo_target(&input.id).await?;
        let done = self.read_history(move |history| history.task(id)).await?;
        let done = Box::new(done.ok_or_else(|| Problem::from(&Refusal::NoSuchTask { task: id }))?);
        match self.run(Command::Undo { done }).await? {
            (revision, CommandOutcome::Queued(place)) => {
                reply(revision, self.task_view(place.task).await?)
            }
            other => Err(unexpected_outcome(&other.1)),
        }
    }
}

fn nothing_kept(attempt: AttemptId) -> Problem {
    let hint = format!("see its output: regatta logs {attempt}");
    Problem::new(
        409,
        "nothing_kept",
        format!("there is no work of {attempt} to show, because the attempt changed no file"),
        hint,
    )
}
