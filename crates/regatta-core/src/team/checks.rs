//! Checks a team's settings before they are stored: its project, fields, members, providers and
//! lanes (start groups of members).

use std::collections::BTreeSet;

use crate::agent::MAX_TASKS;
use crate::board::Board;
use crate::lane::{self, LaneSettings, RosterProblem};
use crate::refusal::Refusal;
use crate::{provider_name, spelling, unknown_fields};

use super::{Team, TeamEnvironment, TeamMember, lane_policy};

/// Names of the fields of a stored [`Team`]. An unknown field of a request must not have one of
/// these names, because then the stored team could not be read again (D9).
const FIELDS: &[&str] = &[
    "name",
    "project",
    "lead",
    "members",
    "environments",
    "launch",
    "again",
    "deleted_wall",
    "created_wall",
    "updated_wall",
];

/// Builds one refusal from all problems of a team's list of members.
pub(crate) fn roster_refusal(problems: &[RosterProblem]) -> Refusal {
    let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let hints: BTreeSet<String> = problems.iter().map(RosterProblem::hint).collect();
    Refusal::invalid(
        messages.join("; "),
        hints.into_iter().collect::<Vec<_>>().join("; "),
    )
}

/// Checks a team's project, unknown fields, members, and that its members can be started together.
pub(super) fn check(board: &Board, team: &Team) -> Result<(), Refusal> {
    if !board.projects.contains_key(&team.project) {
        return Err(Refusal::NoSuchProject {
            project: team.project.clone(),
        });
    }
    let unknown = std::iter::once((&team.extra, FIELDS))
        .chain(team.roster().map(|member| (&member.extra, &[][..])))
        .chain(
            team.environments
                .values()
                .map(|environment| (&environment.extra, &[][..])),
        );
    for (extra, known) in unknown {
        if let Some(problem) = unknown_fields::problem(extra, known) {
            return Err(Refusal::invalid(
                format!("team {}: {problem}", team.name),
                "leave that field out",
            ));
        }
    }
    for member in team.roster() {
        check_member(team, member)?;
    }
    let (lead, members) = team.planned_members();
    lane::plan(&lead, &members, &lane_policy(board, team))
        .map(|_| ())
        .map_err(|problems| roster_refusal(&problems))
}

/// Refuses unknown fields that are probably misspelt, and unknown providers.
///
/// With a misspelt field `provider`, for example, the member would silently get the lead's
/// provider. Fields that are similar to no known field are kept, because a newer version may have
/// written them. A team from a backup is not checked here for the same reason.
pub(super) fn check_spelling(board: &Board, team: &Team) -> Result<(), Refusal> {
    const TEAM_FIELDS: &[&str] = &["name", "project", "lead", "members", "environments"];
    let members = team.roster().map(|member| {
        (
            format!("member {}", member.name),
            &member.extra,
            TeamMember::FIELDS,
        )
    });
    let environments = team.environments.iter().map(|(name, environment)| {
        (
            format!("environment {name}"),
            &environment.extra,
            TeamEnvironment::FIELDS,
        )
    });
    let team_fields = std::iter::once((format!("team {}", team.name), &team.extra, TEAM_FIELDS));
    for (place, extra, known) in team_fields.chain(members).chain(environments) {
        for field in extra
            .keys()
            .filter(|field| !known.contains(&field.as_str()))
        {
            if let Some(suggestion) = spelling::nearest(field, known) {
                return Err(Refusal::invalid(
                    format!("{place} has no field {field}"),
                    format!("write {suggestion} instead"),
                ));
            }
        }
    }
    let policy = lane_policy(board, team);
    team.roster()
        .try_for_each(|member| check_provider(team, member, &policy))
}

/// Refuses a member's provider if neither this version nor the project's settings know it, because
/// the member could never be started.
fn check_provider(team: &Team, member: &TeamMember, policy: &LaneSettings) -> Result<(), Refusal> {
    let Some(written) = member
        .provider
        .as_deref()
        .filter(|name| !policy.is_known(name))
    else {
        return Ok(());
    };
    let known_names: Vec<&str> = provider_name::PROVIDERS
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let hint = match provider_name::nearest(written) {
        Some(suggestion) => format!("write {suggestion}; see all providers: regatta provider"),
        None => format!(
            "it is one of {}; for a provider of your own add a rule to regatta.toml: \
            [lanes.policy] {written} = \"secondary\"",
            known_names.join(", ")
        ),
    };
    Err(Refusal::invalid(
        format!(
            "team {}: the provider of {} is unknown: {written}",
            team.name, member.name
        ),
        hint,
    ))
}

/// Checks the form of one member's settings, such as the length of each field.
fn check_member(team: &Team, member: &TeamMember) -> Result<(), Refusal> {
    let name = &member.name;
    let bad = |what: String, hint: &str| Err(Refusal::invalid(what, hint));
    let is_word = |text: &str| {
        (1..=64).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/@[]".contains(&byte))
    };
    for (field, value, max_chars) in [
        ("provider", &member.provider, 32),
        ("backend", &member.backend, 64),
        ("effort", &member.effort, 32),
        ("environment", &member.environment, 64),
        ("model", &member.model, 64),
    ] {
        if let Some(value) = value
            && (!is_word(value) || value.len() > max_chars)
        {
            return bad(
                format!("the {field} of {name} is not a name of 1 to {max_chars} characters"),
                "use only letters, digits and - _ . : / @",
            );
        }
    }
    for (field, value) in [("role", &member.role), ("workflow", &member.workflow)] {
        if value.as_ref().is_some_and(|value| value.len() > 16 * 1024) {
            return bad(
                format!("the {field} of {name} is longer than 16 KiB"),
                "put the text into a file and name the file",
            );
        }
    }
    if let Some(cwd) = &member.cwd
        && (cwd.is_empty()
            || cwd.len() > 500
            || cwd.starts_with('/')
            || cwd.contains('\0')
            || cwd.split('/').any(|part| part == ".."))
    {
        return bad(
            format!("the cwd of {name} is not a directory of the project"),
            "set a directory relative to the project's root",
        );
    }
    if let Some(environment) = &member.environment
        && !team.environments.contains_key(environment)
    {
        return bad(
            format!("{name} uses the environment {environment}, which the team does not have"),
            "add it to the team: [environments.NAME]",
        );
    }
    if member
        .max_tasks
        .is_some_and(|max_tasks| !(1..=MAX_TASKS).contains(&max_tasks))
    {
        return bad(
            format!("max_tasks of {name} must be 1 to 20"),
            "set a number in that range",
        );
    }
    Ok(())
}
