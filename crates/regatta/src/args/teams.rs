//! What may be typed about teams.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regatta_core::ids::{MemberName, TeamName};

use crate::settings::duration_ms;

#[derive(Debug, Subcommand)]
pub(crate) enum TeamWord {
    /// Make a team from team.toml, or from what is typed
    Create(TeamCreate),
    /// Put what team.toml says in place of what is wanted of a team
    Edit {
        /// The file; team.toml if not given
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// The team, if the file does not name it
        name: Option<TeamName>,
    },
    /// List the teams
    List {
        /// Also those that were deleted
        #[arg(long)]
        deleted: bool,
    },
    /// Show a team: wanted, resolved and live side by side
    Show {
        /// The team
        name: TeamName,
    },
    /// Say who launches whom in a team, and why
    Explain {
        /// The team
        name: TeamName,
    },
    /// Launch a team: the primary lane first, then side lanes
    Launch {
        /// The team
        name: TeamName,
        /// Leave this member out this time; may be given again
        #[arg(long, value_name = "MEMBER")]
        without: Vec<MemberName>,
        #[command(flatten)]
        wait: Wait,
    },
    /// Stop a team if it runs, and launch it again as it is wanted now
    Relaunch {
        /// The team
        name: TeamName,
        #[command(flatten)]
        wait: Wait,
    },
    /// Stop a team: side lanes first, then the primary lane
    Stop {
        /// The team
        name: TeamName,
        /// Why
        #[arg(long, value_name = "WORDS", default_value = "")]
        because: String,
        /// How long to wait until nothing of it lives
        #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "60s")]
        wait: u64,
    },
    /// Try one member's lane again
    Retry {
        /// The team
        name: TeamName,
        /// The member
        member: MemberName,
        #[command(flatten)]
        wait: Wait,
    },
    /// Put a stopped team away
    Delete {
        /// The team
        name: TeamName,
    },
    /// Bring a deleted team back
    Undelete {
        /// The team
        name: TeamName,
    },
    /// Write a team and its last launch to a new file
    Backup {
        /// The team
        name: TeamName,
        /// The new file
        file: PathBuf,
    },
    /// Put a team back as a file kept it
    Restore {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// How long to wait until every lane has come up or failed
    #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "2m")]
    pub(crate) wait: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TeamCreate {
    /// What it is called, if the file does not say; or the file itself
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<String>,
    /// The file that says who is in it; team.toml if nobody is named here
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lead", "member"])]
    pub(crate) file: Option<PathBuf>,
    /// Who leads, such as amy=codex; amy=codex:scripted has the built-in agent in its place
    #[arg(long, value_name = "NAME=PROVIDER[:BACKEND]")]
    pub(crate) lead: Option<String>,
    /// Another of the team, such as tom=opencode; may be given again
    #[arg(long, value_name = "NAME=PROVIDER[:BACKEND]", requires = "lead")]
    pub(crate) member: Vec<String>,
}
