//! Implements the API verbs for teams (a lead and other agents that are started and stopped
//! together): create, edit, launch, stop and restore.
//!
//! Launching and stopping a team take time. A call that waits for the end of a launch or stop is
//! woken by changes of the board (the daemon's state in memory), so the call need not poll.

use std::collections::BTreeSet;

use regatta_api::team::{self as wire, TeamView};
use regatta_core::ids::TeamName;
use regatta_core::launch::{self, LaunchPhase, TeamSummary};
use regatta_core::refusal::Refusal;
use regatta_core::team::{Team, TeamBackup, TeamCommand};

use super::*;

/// Number of earlier launches of a team that are shown in addition to its last launch.
const MAX_PAST_LAUNCHES: usize = 5;

impl VerbHandler<'_> {
    async fn run_team_command(
        &self,
        command: TeamCommand,
    ) -> Result<(u64, CommandOutcome), Problem> {
        self.run(Command::Team(Box::new(command))).await
    }

    pub(super) async fn team_create(
        &self,
        input: regatta_core::team::CreateTeam,
    ) -> Reply<TeamView> {
        let name = input.name.clone();
        self.run_team_command(TeamCommand::Create(input)).await?;
        self.show_team(&name).await
    }

    pub(super) async fn team_edit(&self, input: wire::TeamEdit) -> Reply<TeamView> {
        self.run_team_command(TeamCommand::Edit {
            team: input.team.clone(),
            edit: input.edit,
        })
        .await?;
        self.show_team(&input.team).await
    }

    /// Runs a command on a team, and returns the team as it is after the command.
    pub(super) async fn run_and_show_team(
        &self,
        name: &TeamName,
        command: TeamCommand,
    ) -> Reply<TeamView> {
        self.run_team_command(command).await?;
        self.show_team(name).await
    }

    pub(super) async fn team_list(
        &self,
        input: wire::TeamFilter,
        page: &PageRequest,
    ) -> PageReply<Vec<TeamSummary>> {
        let board = self.board();
        let shown = board
            .teams
            .values()
            .filter(|team| input.deleted || team.deleted_unix_ms.is_none());
        let mut teams: Vec<&Arc<Team>> = shown.collect();
        natural_sort::sort(&mut teams, |team| team.name.as_str());
        let summaries = page.select(
            teams,
            |team| team.name.to_string(),
            |team| launch::summary(&board, team),
        )?;
        reply(board.revision, summaries)
    }

    pub(super) async fn team_show(&self, input: wire::TeamNameInput) -> Reply<TeamView> {
        self.show_team(&input.team).await
    }

    async fn show_team(&self, name: &TeamName) -> Reply<TeamView> {
        let board = self.board();
        let team = require_team(&board, name)?;
        let (team_name, latest) = (name.clone(), team.launch);
        let launches = self
            .read_history(move |history| history.launches(&team_name, MAX_PAST_LAUNCHES + 1))
            .await?;
        let history = launches
            .into_iter()
            .filter(|team_launch| Some(team_launch.id) != latest)
            .take(MAX_PAST_LAUNCHES)
            .collect();
        reply(
            board.revision,
            TeamView {
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
                .map(|last_record_unix_ms| now.saturating_sub(last_record_unix_ms))
        })
    }

    pub(super) async fn team_explain(&self, input: wire::TeamNameInput) -> Reply<Vec<String>> {
        let board = self.board();
        reply(
            board.revision,
            launch::explain(&board, &*require_team(&board, &input.team)?),
        )
    }

    pub(super) async fn team_backup(&self, input: wire::TeamNameInput) -> Reply<TeamBackup> {
        let board = self.board();
        let team = require_team(&board, &input.team)?;
        let launch = launch::latest_launch(&board, &team)
            .map(|team_launch| launch::TeamLaunch::clone(team_launch));
        reply(
            board.revision,
            TeamBackup {
                team: Team::clone(&team),
                launch,
                extra: Default::default(),
            },
        )
    }

    pub(super) async fn team_restore(&self, input: wire::RestoreTeam) -> Reply<TeamView> {
        let name = input.backup.team.name.clone();
        self.run_team_command(TeamCommand::Restore {
            backup: input.backup,
        })
        .await?;
        self.show_team(&name).await
    }

    pub(super) async fn team_launch(&self, input: wire::StartTeam) -> Reply<TeamView> {
        self.run_team_command(TeamCommand::Launch {
            team: input.team.clone(),
            left_out: input.left_out,
        })
        .await?;
        self.wait_for_launch(&input.team, input.wait_ms).await
    }

    pub(super) async fn team_relaunch(&self, input: wire::RelaunchTeam) -> Reply<TeamView> {
        self.run_team_command(TeamCommand::Relaunch {
            team: input.team.clone(),
        })
        .await?;
        self.wait_for_launch(&input.team, input.wait_ms).await
    }

    pub(super) async fn team_retry(&self, input: wire::RetryTeam) -> Reply<TeamView> {
        self.run_team_command(TeamCommand::Retry {
            team: input.team.clone(),
            member: input.member,
        })
        .await?;
        self.wait_for_launch(&input.team, input.wait_ms).await
    }

    /// Waits until each part of the team's last launch has succeeded or failed, and then returns
    /// the team.
    async fn wait_for_launch(&self, name: &TeamName, wait_ms: u64) -> Reply<TeamView> {
        let is_settled = |board: &Board, team: &Team| {
            !team.relaunch_after_stop
                && launch::latest_launch(board, team)
                    .is_none_or(|team_launch| team_launch.phase() != LaunchPhase::Active)
        };
        self.wait_for_team(name, wait_ms, is_settled).await?;
        self.show_team(name).await
    }

    /// Stops a team and waits until its members have ended. If a member is still running when the
    /// time is over, returns an error that names the member (P10).
    pub(super) async fn team_stop(&self, input: wire::StopTeam) -> Reply<TeamView> {
        let reason = if input.reason.trim().is_empty() {
            format!("stopped by {}", self.actor)
        } else {
            input.reason
        };
        self.run_team_command(TeamCommand::Stop {
            team: input.team.clone(),
            reason,
        })
        .await?;
        let is_down = |board: &Board, team: &Team| !launch::is_up(board, team);
        if !self
            .wait_for_team(&input.team, input.wait_ms, is_down)
            .await?
            && input.wait_ms > 0
        {
            let board = self.board();
            let team = require_team(&board, &input.team)?;
            let names: BTreeSet<&str> = launch::live_attempts(&board, &team)
                .map(|attempt| attempt.agent.as_str())
                .collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(Problem::new(
                500,
                "still_running",
                format!(
                    "team {} has not stopped; its members that are still running: {}",
                    input.team,
                    names.join(", ")
                ),
                format!(
                    "Regatta keeps stopping the team; see its state: regatta team show {}",
                    input.team
                ),
            ));
        }
        self.show_team(&input.team).await
    }

    /// Waits until `holds` returns true for the team's state, and then returns true. Returns false
    /// if the time is over first.
    async fn wait_for_team(
        &self,
        name: &TeamName,
        wait_ms: u64,
        holds: impl Fn(&Board, &Team) -> bool,
    ) -> Result<bool, Problem> {
        let deadline = deadline(wait_ms);
        let mut board_changes = self.shared.event_fanout.watch_board();
        loop {
            board_changes.mark_unchanged();
            let board = self.board();
            if holds(&board, &*require_team(&board, name)?) {
                return Ok(true);
            }
            tokio::select! {
                changed = board_changes.changed() => if changed.is_err() { return Ok(false) },
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
