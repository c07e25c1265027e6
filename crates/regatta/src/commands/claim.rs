//! The command `claim`, which acquires, renews, releases, lists and checks claims. A claim is a
//! lock on URIs, such as files, that expires unless its holder renews it.

use clap::Subcommand;
use regatta_api::view::{ClaimCheckView, ClaimsView, GrantedClaim};
use regatta_api::{call, input};
use regatta_core::claim::ClaimMode;
use regatta_core::ids::{AgentName, ClaimId};
use regatta_core::pattern::Uri;
use regatta_core::refusal::seconds;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, first_line, format_age, format_table};
use crate::settings::duration_ms;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "claim acquire",
        &["regatta claim acquire 'file://shop/src/**' --as ann --ttl 5m --wait 30s"],
    ),
    ("claim renew", &["regatta claim renew C7 --token 412"]),
    ("claim release", &["regatta claim release C7 --token 412"]),
    ("claim list", &["regatta claim list"]),
    ("claim check", &["regatta claim check file://shop/src/a.rs"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum ClaimCommand {
    /// Acquire a claim, which locks one or more URIs for other agents; locks either all of the URIs
    /// or none
    Acquire {
        /// URIs to claim, such as 'file://shop/src/**'; file:// and workspace:// accept *, ? and **
        #[arg(required = true)]
        uris: Vec<Uri>,
        /// Agent to act as
        #[arg(
            long = "as",
            value_name = "NAME",
            env = "REGATTA_AGENT",
            hide_env = true
        )]
        agent: AgentName,
        /// Time after which the claim ends unless it is renewed, such as 5m
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "60s")]
        ttl: u64,
        /// Acquire a shared claim: other shared claims on the same URIs are allowed, exclusive
        /// claims are not
        #[arg(long)]
        shared: bool,
        /// Maximum time to wait if another claim locks one of the URIs, such as 30s
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "0")]
        wait: u64,
        /// Purpose of the claim, shown to other people and agents
        #[arg(short = 'm', long, default_value = "")]
        memo: String,
    },
    /// Renew a claim, so that its lifetime starts again
    Renew {
        /// Claim to renew, such as C7
        claim: ClaimId,
        /// Token of the claim, as regatta claim acquire printed it
        #[arg(long)]
        token: u64,
    },
    /// Release a claim
    Release {
        /// Claim to release, such as C7
        claim: ClaimId,
        /// Token of the claim, as regatta claim acquire printed it
        #[arg(long)]
        token: u64,
    },
    /// List claims with their holders, and the requests that wait for a claim
    List,
    /// Check whether URIs are free, so that they can be claimed now
    Check {
        /// URIs to check
        #[arg(required = true)]
        uris: Vec<Uri>,
    },
}

impl ClaimCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, ClaimCommand::List | ClaimCommand::Check { .. })
    }
}

/// Runs `regatta claim`.
pub(crate) fn claim(app: &CommandContext, command: ClaimCommand) -> CommandResult {
    match command {
        ClaimCommand::Acquire {
            uris,
            agent,
            ttl,
            shared,
            wait,
            memo,
        } => {
            let mode = if shared {
                ClaimMode::Shared
            } else {
                ClaimMode::Exclusive
            };
            let reply: CallReply<GrantedClaim> =
                app.call(call::ClaimAcquire(input::ClaimAcquire {
                    uris,
                    agent,
                    mode,
                    ttl_ms: ttl,
                    wait_ms: wait,
                    memo,
                }))?;
            let granted_claim = &reply.data;
            let next = [
                format!(
                    "regatta claim renew {} --token {}",
                    granted_claim.claim, granted_claim.token
                ),
                format!(
                    "regatta claim release {} --token {}",
                    granted_claim.claim, granted_claim.token
                ),
            ];
            app.output
                .print_answer("claim.acquire", granted_claim, &next, |_| {
                    format!(
                        "{} token {} for {}\n",
                        granted_claim.claim,
                        granted_claim.token,
                        seconds(granted_claim.ttl_ms)
                    )
                })
        }
        ClaimCommand::Renew { claim, token } => {
            let reply: CallReply<GrantedClaim> =
                app.call(call::ClaimRenew(input::HeldClaimInput { claim, token }))?;
            app.output
                .print_answer("claim.renew", &reply.data, &[], |_| {
                    format!("renewed {claim} for {}\n", seconds(reply.data.ttl_ms))
                })
        }
        ClaimCommand::Release { claim, token } => {
            let _done = app.call(call::ClaimRelease(input::HeldClaimInput { claim, token }))?;
            app.output.print_answer(
                "claim.release",
                &serde_json::json!({ "claim": claim }),
                &[],
                |_| format!("released {claim}\n"),
            )
        }
        ClaimCommand::List => {
            let reply: CallReply<ClaimsView> = app.call(call::ClaimList(input::EmptyInput {}))?;
            app.output
                .print_answer("claim.list", &reply.data, &[], |_| draw_claims(&reply.data))
        }
        ClaimCommand::Check { uris } => {
            let reply: CallReply<ClaimCheckView> =
                app.call(call::ClaimCheck(input::UrisInput { uris }))?;
            app.output
                .print_answer("claim.check", &reply.data, &[], |_| {
                    match reply.data.holders.first() {
                        None => "free\n".into(),
                        Some(_) => reply
                            .data
                            .holders
                            .iter()
                            .map(|claim_holder| {
                                let memo = if claim_holder.memo.is_empty() {
                                    String::new()
                                } else {
                                    format!(" ({})", first_line(&claim_holder.memo))
                                };
                                format!(
                                    "{} is held by {}{memo}\n",
                                    claim_holder.uri, claim_holder.owner
                                )
                            })
                            .collect(),
                    }
                })?;
            if reply.data.free {
                Ok(())
            } else {
                Err(CommandError::Exit(5))
            }
        }
    }
}

/// Draws a table of the claims that agents and people hold, the claims of running attempts, and the
/// requests that wait for a claim.
fn draw_claims(claims: &ClaimsView) -> String {
    if claims.held.is_empty() && claims.by_work.is_empty() && claims.waiting.is_empty() {
        return "no claims\n".into();
    }
    let uris = |uris: &[regatta_core::pattern::Uri]| {
        uris.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let held = claims.held.iter().map(|claim| {
        let mode = if claim.mode == ClaimMode::Shared {
            "shared"
        } else {
            "exclusive"
        };
        let ends = claim.ends_in_ms.map_or_else(
            || first_line(&claim.until),
            |ends_in_m| format!("{} left", seconds(ends_in_m)),
        );
        vec![
            claim.claim.to_string(),
            claim.owner.to_string(),
            mode.into(),
            format_age(claim.granted_wall),
            ends,
            uris(&claim.uris),
            first_line(&claim.memo),
        ]
    });
    let waiting = claims.waiting.iter().map(|claim_wait| {
        vec![
            claim_wait.wait.to_string(),
            claim_wait.owner.to_string(),
            "waits".into(),
            String::new(),
            format!("{} left", seconds(claim_wait.ends_in_ms)),
            uris(&claim_wait.uris),
            String::new(),
        ]
    });
    let by_work = claims.by_work.iter().map(|work_claim| {
        let until = "while it runs".to_owned();
        vec![
            "-".into(),
            work_claim.owner.to_string(),
            "exclusive".into(),
            String::new(),
            until,
            uris(&work_claim.uris),
            String::new(),
        ]
    });
    format_table(&held.chain(by_work).chain(waiting).collect::<Vec<_>>())
}
