//! Reports: what performed effects, timers and Regatta's own loops tell the board.
//!
//! No interface lets a report in, because a report states a fact that only Regatta can know: a
//! program has ended, the trunk has moved, a timer has expired. The serialised form is used by
//! tests only; reports are not stored.

use serde::{Deserialize, Serialize};

use crate::agent_protocol::AgentEvent;
use crate::ids::{AttemptId, CommitId, FiringId, LandingId, LaunchId, ProjectName};
use crate::{
    attempt, bridge_health, collision_forecast, conversation, hook, isolation_breach, landing,
    launch, schedule, start_gates,
};

/// A fact that Regatta itself found out and that can change the board. The board can refuse a
/// report, for example if the attempt that the report is about has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
#[allow(
    clippy::large_enum_variant,
    reason = "few reports exist at once, and none is stored"
)]
pub enum Report {
    /// The dispatcher found an agent whose program Regatta starts and that may work now.
    PollSupervised {
        poll: schedule::PollRequest,
        /// Facts that the engine has just collected, such as whether the trunk is up to date. The
        /// conditions for a start are checked against these facts.
        #[serde(default)]
        facts: Box<start_gates::StartFacts>,
    },
    /// The daemon has started, as the process `pid`.
    #[serde(rename = "resume")]
    DaemonStarted { pid: u32 },
    /// Timers have expired.
    Tick,
    /// An attempt's program has ended.
    #[serde(rename = "report_exited")]
    Exited {
        attempt: AttemptId,
        token: u64,
        #[serde(rename = "how")]
        exit: attempt::ProgramExit,
    },
    /// An attempt's program has started, in this sandbox.
    #[serde(rename = "report_launched")]
    Launched {
        attempt: AttemptId,
        token: u64,
        sandbox: Option<String>,
        warnings: Vec<String>,
    },
    /// The engine found a sign that an attempt worked outside its workspace.
    #[serde(rename = "report_doubted")]
    IsolationBreach {
        attempt: AttemptId,
        token: u64,
        sign: isolation_breach::IsolationBreach,
    },
    /// Other programs already listen on these ports that were reserved for an attempt.
    #[serde(rename = "report_ports_taken")]
    PortsTaken {
        attempt: AttemptId,
        token: u64,
        taken: Vec<u16>,
    },
    /// An attempt's program reported an event. The report names the event's position in the
    /// program's journal (the file with everything that the program prints).
    #[serde(rename = "report_said")]
    AgentEvent {
        attempt: AttemptId,
        token: u64,
        n: u64,
        #[serde(rename = "said")]
        event: AgentEvent,
    },
    /// An attempt's program has printed nothing for `since_ms` milliseconds. Without `since_ms`,
    /// the program is active again.
    #[serde(rename = "report_silent")]
    Silent {
        attempt: AttemptId,
        token: u64,
        since_ms: Option<u64>,
    },
    /// The credential of a bridge (a connection to an outside service) works, or has a problem.
    #[serde(rename = "report_bridge")]
    Bridge(bridge_health::BridgeHealth),
    /// The state of all bridges (connections to outside services) when a daemon starts.
    #[serde(rename = "report_bridges")]
    AllBridges {
        all: Vec<bridge_health::BridgeHealth>,
    },
    /// A post of a conversation was shown in the outside service, or the conversation's work was
    /// pushed.
    #[serde(rename = "converse")]
    Conversation(Box<conversation::ConversationReport>),
    /// The result of checking the programs of a team's members before the team is launched.
    #[serde(rename = "report_resolved")]
    TeamResolved {
        launch: LaunchId,
        found: Vec<launch::MemberResolution>,
    },
    /// The result of checking the work of an attempt.
    #[serde(rename = "report_judged")]
    WorkVerdict {
        attempt: AttemptId,
        token: u64,
        verdict: attempt::WorkVerdict,
        #[serde(default)]
        findings: attempt::WorkFindings,
    },
    /// The result of merging a landing's work with the trunk and checking the merged files.
    #[serde(rename = "report_tried")]
    Trial {
        landing: LandingId,
        #[serde(rename = "found")]
        outcome: landing::TrialOutcome,
    },
    /// The trunk was moved to a landing's commit, or could not be moved.
    #[serde(rename = "report_moved")]
    TrunkMove {
        landing: LandingId,
        fence: u64,
        #[serde(rename = "found")]
        outcome: landing::MoveOutcome,
    },
    /// The result of pushing the trunk to its remote. `failure` is the reason if the push failed.
    #[serde(rename = "report_pushed")]
    Pushed {
        project: ProjectName,
        remote: String,
        commit: CommitId,
        #[serde(rename = "trouble")]
        failure: Option<String>,
    },
    /// The user's checkout, whose local changes blocked a landing, has changed, so the landing can
    /// be tried again.
    #[serde(rename = "report_checkout")]
    CheckoutChanged { landing: LandingId },
    /// The trunk cannot be pushed, because the remote has commits that the local trunk lacks.
    #[serde(rename = "report_diverged")]
    Diverged {
        project: ProjectName,
        commit: CommitId,
        found: landing::remote_sync::DivergedRemote,
    },
    /// The engine compared the trunk with the landings on the board and found these differences.
    #[serde(rename = "report_trunk")]
    TrunkCompared {
        project: ProjectName,
        seen: landing::trunk_check::TrunkSeen,
    },
    /// The conflicts that the engine found when it merged a project's workspaces with each other as
    /// a test.
    #[serde(rename = "report_collisions")]
    Collisions {
        project: ProjectName,
        found: Vec<collision_forecast::FoundCollision>,
    },
    /// The command of a hook (a rule of the user) has ended.
    #[serde(rename = "report_hook")]
    HookEnded {
        firing: FiringId,
        ended: hook::FiringEnd,
        output: String,
        #[serde(rename = "shut_in")]
        sandbox_description: Option<String>,
    },
    /// An effect (an action outside the board, such as a git command) was performed and has no
    /// other report.
    #[serde(rename = "report_performed")]
    Performed,
}
