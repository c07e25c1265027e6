//! The arguments of `team`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regatta_core::ids::{MemberName, TeamName};

use crate::settings::duration_ms;

#[derive(Debug, Subcommand)]
pub(crate) enum TeamSubcommand {
    /// Create a team from team.toml or from --lead and --member
    Create(TeamCreateArgs),
    /// Replace a team's settings with those of team.toml
    Edit {
        /// File to read (default: team.toml)
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Team to change, if the file does not name it
        name: Option<TeamName>,
    },
    /// List teams
    List {
        /// Include deleted teams
        #[arg(long)]
        deleted: bool,
    },
    /// Show a team: desired, resolved and live side by side
    Show {
        /// Name of the team
        name: TeamName,
    },
    /// Explain which lane launches each member, and why
    Explain {
        /// Name of the team
        name: TeamName,
    },
    /// Launch a team: the primary lane first, then the secondary lanes
    Launch {
        /// Name of the team
        name: TeamName,
        /// Do not launch this member this time; may be repeated
        #[arg(long, value_name = "MEMBER")]
        without: Vec<MemberName>,
        #[command(flatten)]
        wait: LaunchWaitArgs,
    },
    /// Stop a team if it runs, and launch it with its current settings
    Relaunch {
        /// Name of the team
        name: TeamName,
        #[command(flatten)]
        wait: LaunchWaitArgs,
    },
    /// Stop a team: the secondary lanes first, then the primary lane
    Stop {
        /// Name of the team
        name: TeamName,
        /// Reason to show to others
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
        /// Wait up to this long until all its programs have ended
        #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "60s")]
        wait: u64,
    },
    /// Launch one member's lane again
    Retry {
        /// Name of the team
        name: TeamName,
        /// Name of the member
        member: MemberName,
        #[command(flatten)]
        wait: LaunchWaitArgs,
    },
    /// Delete a stopped team; undelete brings it back
    Delete {
        /// Name of the team
        name: TeamName,
    },
    /// Restore a deleted team
    Undelete {
        /// Name of the team
        name: TeamName,
    },
    /// Write a team and its last launch to a new file
    Backup {
        /// Name of the team
        name: TeamName,
        /// File to create
        file: PathBuf,
    },
    /// Restore a team from a backup file
    Restore {
        /// File that team backup wrote
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LaunchWaitArgs {
    /// Wait up to this long until every lane is up or has failed
    #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "2m")]
    pub(crate) wait: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TeamCreateArgs {
    /// Name of the team if the file has none, or the file itself
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<String>,
    /// File that describes the team (default: team.toml)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lead", "member"])]
    pub(crate) file: Option<PathBuf>,
    /// Lead of the team, such as amy=codex; amy=codex:scripted uses the scripted agent instead
    #[arg(long, value_name = "NAME=PROVIDER[:BACKEND]")]
    pub(crate) lead: Option<String>,
    /// Member of the team, such as tom=opencode; may be repeated
    #[arg(long, value_name = "NAME=PROVIDER[:BACKEND]", requires = "lead")]
    pub(crate) member: Vec<String>,
}
