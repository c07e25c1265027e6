//! Verbs of teams. Calls that wait are woken by changes of the board, not by a clock.

use std::collections::BTreeSet;

use regatta_api::team::{self as wire, TeamView};
use regatta_core::ids::TeamName;
use regatta_core::launch::{self, LaunchPhase};
use regatta_core::refusal::Refusal;
use regatta_core::team::{Team, TeamBackup, TeamCommand};

use super::*;

/// Number of launches before the last one that are shown.
const MAX_PAST_LAUNCHES: usize = 5;

impl VerbHandler<'_> {
    async fn run_team_command(&self, ask: TeamCommand) -> Result<(u64, CommandOutcome), Problem> {
        self.run(Command::Team(Box::new(ask))).await
    }

    pub(super) async fn team_create(&self, ask: regatta_core::team::CreateTeam) -> VerbResult {
        let name = ask.name.clone();
        self.run_team_command(TeamCommand::Create(ask)).await?;
        self.team_show(&name).await
    }

    pub(super) async fn team_edit(&self, ask: wire::TeamEdit) -> VerbResult {
        self.run_team_command(TeamCommand::Edit {
            team: ask.team.clone(),
            edit: ask.edit,
        })
        .await?;
        self.team_show(&ask.team).await
    }

    /// Runs a command on a team, and answers with the team after it.
    pub(super) async fn run_and_show_team(&self, name: &TeamName, ask: TeamCommand) -> VerbResult {
        self.run_team_command(ask).await?;
        self.team_show(name).await
    }

    pub(super) fn team_list(&self, ask: &wire::TeamFilter) -> VerbResult {
        let board = self.board();
        let shown = board
            .teams
            .values()
            .filter(|team| ask.deleted || team.deleted_unix_ms.is_none());
        let mut all: Vec<_> = shown.map(|team| launch::summary(&board, team)).collect();
        natural_sort::sort(&mut all, |team_summary| team_summary.team.as_str());
        encode_answer(board.revision, &all)
    }

    pub(super) async fn team_show(&self, name: &TeamName) -> VerbResult {
        let board = self.board();
        let team = require_team(&board, name)?;
        let (of, last) = (name.clone(), team.launch);
        let past = self
            .read_history(move |history| history.launches(&of, MAX_PAST_LAUNCHES + 1))
            .await?;
        let history = past
            .into_iter()
            .filter(|team_launch| Some(team_launch.id) != last)
            .take(MAX_PAST_LAUNCHES)
            .collect();
        encode_answer(
            board.revision,
            &TeamView {
                history,
                ..self.team_view(&board, &team)
            },
        )
    }

    fn team_view(&self, board: &Board, team: &Team) -> TeamView {
        let (engine, now) = (self.engine(), self.engine().now().unix_ms);
        TeamView::new(board, team, |id| {
            engine
                .agents()
                .last_record_unix_ms(id)
                .map(|last_record_unix_m| now.saturating_sub(last_record_unix_m))
        })
    }

    pub(super) fn team_explain(&self, name: &TeamName) -> VerbResult {
        let board = self.board();
        encode_answer(
            board.revision,
            &launch::explain(&board, &*require_team(&board, name)?),
        )
    }

    pub(super) fn team_backup(&self, name: &TeamName) -> VerbResult {
        let board = self.board();
        let team = require_team(&board, name)?;
        let launch = launch::latest_launch(&board, &team)
            .map(|team_launch| launch::TeamLaunch::clone(team_launch));
        encode_answer(
            board.revision,
            &TeamBackup {
                team: Team::clone(&team),
                launch,
                extra: Default::default(),
            },
        )
    }

    pub(super) async fn team_restore(&self, ask: wire::RestoreTeam) -> VerbResult {
        let name = ask.backup.team.name.clone();
        self.run_team_command(TeamCommand::Restore { backup: ask.backup })
            .await?;
        self.team_show(&name).await
    }

    pub(super) async fn team_launch(&self, ask: wire::StartTeam) -> VerbResult {
        self.run_team_command(TeamCommand::Launch {
            team: ask.team.clone(),
            left_out: ask.left_out,
        })
        .await?;
        self.wait_for_launch(&ask.team, ask.wait_ms).await
    }

    pub(super) async fn team_relaunch(&self, ask: wire::RelaunchTeam) -> VerbResult {
        self.run_team_command(TeamCommand::Relaunch {
            team: ask.team.clone(),
        })
        .await?;
        self.wait_for_launch(&ask.team, ask.wait_ms).await
    }

    pub(super) async fn team_retry(&self, ask: wire::RetryTeam) -> VerbResult {
        self.run_team_command(TeamCommand::Retry {
            team: ask.team.clone(),
            member: ask.member,
        })
        .await?;
        self.wait_for_launch(&ask.team, ask.wait_ms).await
    }

    /// Waits for the outcome of every lane of the last launch, and answers with the team.
    async fn wait_for_launch(&self, name: &TeamName, wait_ms: u64) -> VerbResult {
        let settled = |board: &Board, team: &Team| {
            !team.relaunch_after_stop
                && launch::latest_launch(board, team)
                    .is_none_or(|team_launch| team_launch.phase() != LaunchPhase::Active)
        };
        self.wait_for_team(name, wait_ms, settled).await?;
        self.team_show(name).await
    }

    /// Stops a team and waits. If a member is still running in the end, the call fails and names it
    /// (P10).
    pub(super) async fn team_stop(&self, ask: wire::StopTeam) -> VerbResult {
        let reason = if ask.reason.trim().is_empty() {
            format!("stopped by {}", self.actor)
        } else {
            ask.reason
        };
        self.run_team_command(TeamCommand::Stop {
            team: ask.team.clone(),
            reason,
        })
        .await?;
        let down = |board: &Board, team: &Team| !launch::is_up(board, team);
        if !self.wait_for_team(&ask.team, ask.wait_ms, down).await? && ask.wait_ms > 0 {
            let board = self.board();
            let team = require_team(&board, &ask.team)?;
            let names: BTreeSet<&str> = launch::live_attempts(&board, &team)
                .map(|attempt| attempt.agent.as_str())
                .collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(Problem::new(
                500,
                "still_running",
                format!(
                    "team {} has not stopped: {} still running",
                    ask.team,
                    names.join(", ")
                ),
                format!(
                    "the team is still being stopped; see its state: regatta team show {}",
                    ask.team
                ),
            ));
        }
        self.team_show(&ask.team).await
    }

    /// Waits until a team satisfies `holds`. Returns `false` if the time is over first.
    async fn wait_for_team(
        &self,
        name: &TeamName,
        wait_ms: u64,
        holds: impl Fn(&Board, &Team) -> bool,
    ) -> Result<bool, Problem> {
        let deadline = deadline(wait_ms);
        let mut bell = self.shared.event_fanout.watch_board();
        loop {
            bell.mark_unchanged();
            let board = self.board();
            if holds(&board, &*require_team(&board, name)?) {
                return Ok(true);
            }
            tokio::select! {
                changed = bell.changed() => if changed.is_err() { return Ok(false) },
                () = tokio::time::sleep_until(deadline) => return Ok(false),
            }
        }
    }
}

fn require_team(board: &Board, name: &TeamName) -> Result<Arc<Team>, Problem> {
    board
        .teams
        .get(name)
        .cloned()
        .ok_or_else(|| Problem::from(&Refusal::NoSuchTeam { team: name.clone() }))
}
