//! Verbs of teams. Calls that wait are woken by changes of the board, not by a clock.

use std::collections::BTreeSet;

use regatta_api::team::{self as wire, TeamView};
use regatta_core::ids::TeamName;
use regatta_core::launch::{self, Phase};
use regatta_core::refusal::Refusal;
use regatta_core::team::{Ask, Backup, Team};

use super::*;

/// Number of launches before the last one that are shown.
const SHOWN: usize = 5;

impl Caller<'_> {
    async fn team_ask(&self, ask: Ask) -> Result<(u64, Outcome), Problem> {
        self.ask(Command::Team(Box::new(ask))).await
    }

    pub(super) async fn team_create(&self, ask: regatta_core::team::Create) -> Json {
        let name = ask.name.clone();
        self.team_ask(Ask::Create(ask)).await?;
        self.team_show(&name).await
    }

    pub(super) async fn team_edit(&self, ask: wire::Change) -> Json {
        self.team_ask(Ask::Edit { team: ask.team.clone(), edit: ask.edit }).await?;
        self.team_show(&ask.team).await
    }

    /// Runs a command on a team, and answers with the team after it.
    pub(super) async fn team_done(&self, name: &TeamName, ask: Ask) -> Json {
        self.team_ask(ask).await?;
        self.team_show(name).await
    }

    pub(super) fn team_list(&self, ask: &wire::List) -> Json {
        let board = self.board();
        let shown = board.teams.values().filter(|it| ask.deleted || it.deleted_wall.is_none());
        let mut all: Vec<_> = shown.map(|it| launch::summary(&board, it)).collect();
        order::sort(&mut all, |it| it.team.as_str());
        answer(board.revision, &all)
    }

    pub(super) async fn team_show(&self, name: &TeamName) -> Json {
        let board = self.board();
        let team = known(&board, name)?;
        let (of, last) = (name.clone(), team.launch);
        let past = self.read(move |history| history.launches(&of, SHOWN + 1)).await?;
        let history = past.into_iter().filter(|it| Some(it.id) != last).take(SHOWN).collect();
        answer(board.revision, &TeamView { history, ..self.team_view(&board, &team) })
    }

    fn team_view(&self, board: &Board, team: &Team) -> TeamView {
        let (engine, now) = (self.engine(), self.engine().now().wall);
        TeamView::of(board, team, |id| engine.agents().last_word(id).map(|it| now.saturating_sub(it)))
    }

    pub(super) fn team_explain(&self, name: &TeamName) -> Json {
        let board = self.board();
        answer(board.revision, &launch::explain(&board, &*known(&board, name)?))
    }

    pub(super) fn team_backup(&self, name: &TeamName) -> Json {
        let board = self.board();
        let team = known(&board, name)?;
        let launch = launch::of(&board, &team).map(|it| launch::Launch::clone(it));
        answer(board.revision, &Backup { team: Team::clone(&team), launch, extra: Default::default() })
    }

    pub(super) async fn team_restore(&self, ask: wire::Restore) -> Json {
        let name = ask.backup.team.name.clone();
        self.team_ask(Ask::Restore { backup: ask.backup }).await?;
        self.team_show(&name).await
    }

    pub(super) async fn team_launch(&self, ask: wire::Start) -> Json {
        self.team_ask(Ask::Launch { team: ask.team.clone(), left_out: ask.left_out }).await?;
        self.team_settles(&ask.team, ask.wait_ms).await
    }

    pub(super) async fn team_relaunch(&self, ask: wire::Again) -> Json {
        self.team_ask(Ask::Relaunch { team: ask.team.clone() }).await?;
        self.team_settles(&ask.team, ask.wait_ms).await
    }

    pub(super) async fn team_retry(&self, ask: wire::Retry) -> Json {
        self.team_ask(Ask::Retry { team: ask.team.clone(), member: ask.member }).await?;
        self.team_settles(&ask.team, ask.wait_ms).await
    }

    /// Waits for the outcome of every lane of the last launch, and answers with the team.
    async fn team_settles(&self, name: &TeamName, wait_ms: u64) -> Json {
        let settled = |board: &Board, team: &Team| {
            !team.again && launch::of(board, team).is_none_or(|it| it.phase() != Phase::Active)
        };
        self.team_until(name, wait_ms, settled).await?;
        self.team_show(name).await
    }

    /// Stops a team and waits. If a member is still running in the end, the call fails and names it
    /// (P10).
    pub(super) async fn team_stop(&self, ask: wire::Halt) -> Json {
        let reason = if ask.reason.trim().is_empty() { format!("stopped by {}", self.by) } else { ask.reason };
        self.team_ask(Ask::Stop { team: ask.team.clone(), reason }).await?;
        let down = |board: &Board, team: &Team| !launch::is_up(board, team);
        if !self.team_until(&ask.team, ask.wait_ms, down).await? && ask.wait_ms > 0 {
            let board = self.board();
            let team = known(&board, &ask.team)?;
            let names: BTreeSet<&str> = launch::living(&board, &team).map(|attempt| attempt.agent.as_str()).collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(Problem::new(
                500,
                "still_running",
                format!("team {} has not stopped: {} still running", ask.team, names.join(", ")),
                format!("the team is still being stopped; see its state: regatta team show {}", ask.team),
            ));
        }
        self.team_show(&ask.team).await
    }

    /// Waits until a team satisfies `holds`. Returns `false` if the time is over first.
    async fn team_until(
        &self,
        name: &TeamName,
        wait_ms: u64,
        holds: impl Fn(&Board, &Team) -> bool,
    ) -> Result<bool, Problem> {
        let deadline = deadline(wait_ms);
        let mut bell = self.shared.hub.bell();
        loop {
            bell.mark_unchanged();
            let board = self.board();
            if holds(&board, &*known(&board, name)?) {
                return Ok(true);
            }
            tokio::select! {
                changed = bell.changed() => if changed.is_err() { return Ok(false) },
                () = tokio::time::sleep_until(deadline) => return Ok(false),
            }
        }
    }
}

fn known(board: &Board, name: &TeamName) -> Result<Arc<Team>, Problem> {
    board.teams.get(name).cloned().ok_or_else(|| Problem::from(&Refusal::NoSuchTeam { team: name.clone() }))
}
