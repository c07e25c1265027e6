//! The command `team`, which manages teams: a lead and members that are launched and stopped
//! together. The daemon computes all states and summaries; this module only prints them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use regatta_api::team::{MemberLiveView, TeamView};
use regatta_api::verb::TypedCall;
use regatta_api::{call, team as wire};
use regatta_core::ids::{BadName, MemberName, TeamName};
use regatta_core::launch::{
    self, LaunchEntry, LaunchOutcome, LaunchPhase, MemberState, TeamLaunch, TeamSummary,
};
use regatta_core::team::{CreateTeam, EditTeam, TeamBackup, TeamEnvironment, TeamMember};
use regatta_core::unknown_fields::UnknownFields;
use serde::Deserialize;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, command_error, first_line, format_table, format_table_for,
    internal_error, short_duration, usage_error, window_width,
};
use crate::plan::diagnostic::SourceText;
use crate::plan::fields::FieldReader;
use crate::plan::spanned_value::{self, SpannedValue};
use crate::settings::duration_ms;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "team create",
        &[
            "regatta team create harbour --lead amy=claude --member tom=opencode",
            "regatta team create",
        ],
    ),
    ("team edit", &["regatta team edit --file team.toml"]),
    ("team list", &["regatta team list"]),
    ("team show", &["regatta team show harbour"]),
    ("team explain", &["regatta team explain harbour"]),
    ("team launch", &["regatta team launch harbour --wait 5m"]),
    ("team relaunch", &["regatta team relaunch harbour"]),
    (
        "team stop",
        &["regatta team stop harbour --because 'done for today'"],
    ),
    ("team retry", &["regatta team retry harbour tom"]),
    ("team delete", &["regatta team delete harbour"]),
    ("team undelete", &["regatta team undelete harbour"]),
    ("team backup", &["regatta team backup harbour harbour.json"]),
    ("team restore", &["regatta team restore harbour.json"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum TeamSubcommand {
    /// Create a team from team.toml or from --lead and --member
    Create(TeamCreateArgs),
    /// Replace a team's settings with those of team.toml
    Edit {
        /// File with the team's settings (default: team.toml)
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Name of the team to change, if the file contains no name
        name: Option<TeamName>,
    },
    /// List teams
    List {
        /// Include deleted teams
        #[arg(long)]
        deleted: bool,
    },
    /// Show a team's members: the requested settings, the settings that were chosen at the launch,
    /// and the present state
    Show {
        /// Name of the team, such as dev
        name: TeamName,
    },
    /// Explain to which lane (group that is launched at once) each member belongs, and why
    Explain {
        /// Name of the team, such as dev
        name: TeamName,
    },
    /// Launch a team: first the members of the primary lane (the main group) all at once, then each
    /// member that has a lane of its own
    Launch {
        /// Name of the team, such as dev
        name: TeamName,
        /// Member to leave out of this launch; may be repeated
        #[arg(long, value_name = "MEMBER")]
        without: Vec<MemberName>,
        #[command(flatten)]
        wait: LaunchWaitArgs,
    },
    /// Stop a team if it runs, and launch it again with its current settings
    Relaunch {
        /// Name of the team, such as dev
        name: TeamName,
        #[command(flatten)]
        wait: LaunchWaitArgs,
    },
    /// Stop a team: first each member that has a lane (group) of its own, then the members of the
    /// primary lane
    Stop {
        /// Name of the team, such as dev
        name: TeamName,
        /// Reason, shown to other people and agents
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
        /// Maximum time to wait until all programs of the team have ended, such as 60s
        #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "60s")]
        wait: u64,
    },
    /// Launch a single member again after it failed to start or ended
    Retry {
        /// Name of the team, such as dev
        name: TeamName,
        /// Name of the member, such as tom
        member: MemberName,
        #[command(flatten)]
        wait: LaunchWaitArgs,
    },
    /// Delete a stopped team; regatta team undelete brings it back
    Delete {
        /// Name of the team, such as dev
        name: TeamName,
    },
    /// Restore a deleted team
    Undelete {
        /// Name of the team, such as dev
        name: TeamName,
    },
    /// Write a team's settings and the outcome of its last launch to a new file
    Backup {
        /// Name of the team, such as dev
        name: TeamName,
        /// File to create, which must not exist yet
        file: PathBuf,
    },
    /// Restore a team from a backup file
    Restore {
        /// File that regatta team backup wrote
        file: PathBuf,
    },
}

impl TeamSubcommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(
            self,
            TeamSubcommand::List { .. }
                | TeamSubcommand::Show { .. }
                | TeamSubcommand::Explain { .. }
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct LaunchWaitArgs {
    /// Maximum time to wait until every member has started or failed, such as 2m
    #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "2m")]
    pub(crate) wait: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TeamCreateArgs {
    /// Name of the team, such as dev; or the file that describes it, such as team.toml
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<String>,
    /// File that describes the team (default: team.toml)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lead", "member"])]
    pub(crate) file: Option<PathBuf>,
    /// Lead of the team and its provider, such as amy=codex; with amy=codex:scripted, the built-in
    /// scripted agent runs instead of the provider's program
    #[arg(long, value_name = "NAME=PROVIDER[:BACKEND]")]
    pub(crate) lead: Option<String>,
    /// Member of the team and its provider, such as tom=opencode; may be repeated
    #[arg(long, value_name = "NAME=PROVIDER[:BACKEND]", requires = "lead")]
    pub(crate) member: Vec<String>,
}

/// The exit code if a member is still starting when `--wait` ends.
const TIMEOUT_EXIT_CODE: u8 = 124;

/// Runs `regatta team`.
pub(crate) fn team(app: &CommandContext, command: TeamSubcommand) -> CommandResult {
    match command {
        TeamSubcommand::Create(request) => create(app, request),
        TeamSubcommand::Edit { file, name } => edit(app, file.as_deref(), name),
        TeamSubcommand::List { deleted } => list(app, deleted),
        TeamSubcommand::Show { name } => show(app, name),
        TeamSubcommand::Explain { name } => {
            let reply: CallReply<Vec<String>> =
                app.call(call::TeamExplain(wire::TeamNameInput { team: name }))?;
            app.output
                .print_answer("team.explain", &reply.data, &[], |_| {
                    reply
                        .data
                        .iter()
                        .map(|data| first_line(data) + "\n")
                        .collect()
                })
        }
        TeamSubcommand::Launch {
            name,
            without,
            wait,
        } => {
            let request = wire::StartTeam {
                team: name,
                left_out: without,
                wait_ms: wait.wait,
            };
            launch_and_report(app, "team.launch", call::TeamLaunch(request), wait.wait)
        }
        TeamSubcommand::Relaunch { name, wait } => {
            let request = wire::RelaunchTeam {
                team: name,
                wait_ms: wait.wait,
            };
            launch_and_report(app, "team.relaunch", call::TeamRelaunch(request), wait.wait)
        }
        TeamSubcommand::Retry { name, member, wait } => {
            let request = wire::RetryTeam {
                team: name,
                member,
                wait_ms: wait.wait,
            };
            launch_and_report(app, "team.retry", call::TeamRetry(request), wait.wait)
        }
        TeamSubcommand::Stop {
            name,
            because,
            wait,
        } => {
            let request = wire::StopTeam {
                team: name,
                reason: because,
                wait_ms: wait,
            };
            let reply: CallReply<TeamView> = app.call(call::TeamStop(request))?;
            app.output.print_answer("team.stop", &reply.data, &[], |_| {
                format!(
                    "{}: {}\n",
                    reply.data.summary.team,
                    outcome_text(&reply.data)
                )
            })
        }
        TeamSubcommand::Delete { name } => {
            let reply: CallReply<TeamView> =
                app.call(call::TeamDelete(wire::TeamNameInput { team: name.clone() }))?;
            let next = [format!("regatta team undelete {name}")];
            app.output
                .print_answer("team.delete", &reply.data, &next, |_| {
                    format!("deleted {name}\n")
                })
        }
        TeamSubcommand::Undelete { name } => {
            let reply: CallReply<TeamView> = app.call(call::TeamUndelete(wire::TeamNameInput {
                team: name.clone(),
            }))?;
            app.output
                .print_answer("team.undelete", &reply.data, &[], |_| {
                    format!("restored {name}\n")
                })
        }
        TeamSubcommand::Backup { name, file } => backup(app, name, &file),
        TeamSubcommand::Restore { file } => restore(app, &file),
    }
}

/// The contents of a `team.toml`, the file in which a person describes a team.
#[derive(Deserialize)]
pub(crate) struct TeamFile {
    name: Option<TeamName>,
    lead: TeamMember,
    #[serde(default, alias = "members")]
    member: Vec<TeamMember>,
    #[serde(default, alias = "environment")]
    environments: BTreeMap<String, TeamEnvironment>,
    #[serde(flatten)]
    extra: UnknownFields,
}

/// Reads and checks a `team.toml`.
pub(crate) fn read_team_file(path: Option<&Path>) -> Result<TeamFile, CommandError> {
    let path = path.unwrap_or(Path::new("team.toml"));
    let text = std::fs::read_to_string(path).map_err(|error| {
        command_error(
            "no_team_file",
            format!("could not read the team file {}: {error}", path.display()),
            "write the file, or use options instead: regatta team create NAME --lead amy=codex \
            --member tom=opencode",
        )
    })?;
    let file = toml::from_str(&text).map_err(|error| {
        command_error(
            "bad_team_file",
            format!(
                "the team file {} is not valid: {}",
                path.display(),
                error.message()
            ),
            "correct the file; docs/teams.md has an example",
        )
    })?;
    check_keys(&path.display().to_string(), &text)?;
    Ok(file)
}

/// The top-level keys of a `team.toml`.
pub(crate) const FILE_FIELDS: [&str; 4] = ["name", "lead", "member", "environments"];

/// Fails if a team file has unknown keys, because unknown keys in a file that a person wrote are
/// mistakes. (Stored teams may have unknown keys, because a newer version of Regatta may have
/// written them.)
fn check_keys(name: &str, text: &str) -> CommandResult {
    let source = SourceText::new(name, text);
    let root = spanned_value::parse_toml(&source).map_err(|fault| source.error_for(&[fault]))?;
    let mut reader = FieldReader::new(&source);
    let Some(mut file) = reader.table("team", root, "name = \"…\"") else {
        return Err(source.error_for(&reader.diagnostics));
    };
    file.remove(&["name"]);
    let lead = file.remove(&["lead"]).map(|entry| entry.node);
    let members = file
        .remove(&["member", "members"])
        .map(|entry| entry.node.value);
    let members = match members {
        Some(spanned_value::PlanValue::List(members)) => members,
        _ => vec![],
    };
    for member in lead.into_iter().chain(members) {
        check_table(&mut reader, member, "member", TeamMember::FIELDS);
    }
    if let Some(spanned_value::PlanValue::Table(named)) = file
        .remove(&["environments", "environment"])
        .map(|entry| entry.node.value)
    {
        named.into_iter().for_each(|entry| {
            check_table(
                &mut reader,
                entry.node,
                "environment",
                TeamEnvironment::FIELDS,
            )
        });
    }
    reader.report_unknown(file, "team file", &FILE_FIELDS);
    if reader.diagnostics.is_empty() {
        Ok(())
    } else {
        Err(source.error_for(&reader.diagnostics))
    }
}

fn check_table(reader: &mut FieldReader<'_>, node: SpannedValue, kind: &str, known: &[&str]) {
    let Some(mut fields) = reader.table(kind, node, "{ … }") else {
        return;
    };
    for name in known {
        fields.remove(&[name]);
    }
    reader.report_unknown(fields, kind, known);
}

/// Parses the value of `--lead` or `--member`: name, provider and optionally the way to run the
/// member, such as `amy=codex:scripted`.
fn parse_member(text: &str) -> Result<TeamMember, CommandError> {
    let hint =
        "write a name and a provider: amy=codex, or amy=codex:scripted for the scripted agent";
    let (name, provider) = text
        .split_once('=')
        .ok_or_else(|| usage_error(format!("{text:?} does not describe a team member"), hint))?;
    let name = MemberName::new(name).map_err(|error| usage_error(error.to_string(), hint))?;
    let (provider, backend) = provider
        .split_once(':')
        .map_or((provider, None), |(provider, backend)| {
            (provider, Some(backend.to_owned()))
        });
    Ok(TeamMember {
        provider: Some(provider.to_owned()),
        backend,
        ..TeamMember::named(name)
    })
}

fn create(app: &CommandContext, args: TeamCreateArgs) -> CommandResult {
    let is_file = |text: &str| text.contains('/') || text.ends_with(".toml");
    let (name, path) = match &args.name {
        Some(text) if is_file(text) && args.file.is_none() && args.lead.is_none() => {
            (None, Some(PathBuf::from(text)))
        }
        Some(text) => {
            let name: TeamName = text.parse().map_err(|error: BadName| {
                usage_error(
                    error.to_string(),
                    "give the team a valid name: regatta team create NAME; to read a file: regatta \
                     team create --file FILE",
                )
            })?;
            (Some(name), args.file)
        }
        None => (None, args.file),
    };
    let file = match args.lead {
        Some(lead) => TeamFile {
            name: None,
            lead: parse_member(&lead)?,
            member: args
                .member
                .iter()
                .map(|member| parse_member(member))
                .collect::<Result<_, _>>()?,
            environments: BTreeMap::new(),
            extra: UnknownFields::new(),
        },
        None => read_team_file(path.as_deref())?,
    };
    let name = name.or(file.name).ok_or_else(|| {
        usage_error(
            "neither the command nor the team file contains a name of the team",
            "add the name: regatta team create NAME",
        )
    })?;
    let client = app.client()?;
    let project = app.project(&client)?.ok_or_else(|| {
        usage_error(
            "the current directory belongs to no project of Regatta, so the team has no project",
            "run the command inside a project's repository, or add --project NAME",
        )
    })?;
    let (members, environments) = (file.member, file.environments);
    let request = CreateTeam {
        name: name.clone(),
        project,
        lead: file.lead,
        members,
        environments,
        extra: file.extra,
    };
    let reply: CallReply<TeamView> = client.call(call::TeamCreate(request))?;
    let next = [
        format!("regatta team explain {name}"),
        format!("regatta team launch {name}"),
    ];
    app.output
        .print_answer("team.create", &reply.data, &next, |_| {
            format!(
                "created {name}: {} and {} more\n",
                reply.data.desired.lead.name,
                reply.data.desired.members.len()
            )
        })
}

fn edit(app: &CommandContext, file: Option<&Path>, name: Option<TeamName>) -> CommandResult {
    let file = read_team_file(file)?;
    let team = name.or(file.name).ok_or_else(|| {
        usage_error(
            "the team file contains no name of a team",
            "add the name: regatta team edit NAME",
        )
    })?;
    let edit = EditTeam {
        lead: Some(file.lead),
        members: Some(file.member),
        environments: Some(file.environments),
        extra: file.extra,
    };
    let reply: CallReply<TeamView> = app.call(call::TeamEdit(wire::TeamEdit {
        team: team.clone(),
        edit,
    }))?;
    let next = [format!("regatta team relaunch {team}")];
    app.output
        .print_answer("team.edit", &reply.data, &next, |_| {
            format!("changed the settings of {team}\n")
        })
}

fn list(app: &CommandContext, deleted: bool) -> CommandResult {
    let reply: CallReply<Vec<TeamSummary>> =
        app.call(call::TeamList(wire::TeamFilter { deleted }))?;
    app.output.print_answer("team.list", &reply.data, &[], |_| {
        if reply.data.is_empty() {
            return "no teams; create one: regatta team create NAME --lead amy=codex --member \
                tom=opencode\n"
                .into();
        }
        let mut rows = vec![
            ["TEAM", "PROJECT", "ALIVE", "PHASE", "OUTCOME", ""]
                .map(String::from)
                .to_vec(),
        ];
        rows.extend(reply.data.iter().map(|team_summary| {
            let deleted_mark = if team_summary.deleted {
                "deleted; "
            } else {
                ""
            };
            vec![
                team_summary.team.to_string(),
                team_summary.project.to_string(),
                format!("{}/{}", team_summary.alive, team_summary.expected),
                team_summary.phase.map_or("-", LaunchPhase::name).to_owned(),
                team_summary
                    .outcome
                    .map_or("-", LaunchOutcome::name)
                    .to_owned(),
                format!("{deleted_mark}{}", first_line(&team_summary.headline)),
            ]
        }));
        format_table(&rows)
    })
}

fn show(app: &CommandContext, name: TeamName) -> CommandResult {
    let reply: CallReply<TeamView> =
        app.call(call::TeamShow(wire::TeamNameInput { team: name }))?;
    app.output.print_answer("team.show", &reply.data, &[], |_| {
        draw_team(&reply.data, window_width())
    })
}

/// Draws a team as a table with a row for each member: its desired settings (requested), its
/// resolved settings (decided at the launch), and its live state.
pub(crate) fn draw_team(view: &TeamView, window: Option<usize>) -> String {
    let summary = &view.summary;
    let deleted = if summary.deleted { "deleted; " } else { "" };
    let mut text = format!(
        "{} of {}: {deleted}{}\n",
        summary.team,
        summary.project,
        outcome_text(view)
    );
    let mut rows = vec![
        [
            "",
            "DESIRED",
            "RESOLVED",
            "LANE",
            "STATE",
            "LIVE",
            "LAST OUTPUT",
        ]
        .map(String::from)
        .to_vec(),
    ];
    for member_summary in &summary.members {
        let desired = view.desired.member(&member_summary.name);
        let entry = view
            .resolved
            .as_ref()
            .and_then(|launch| launch.entry(&member_summary.name));
        let live = view
            .live
            .iter()
            .find(|live| live.name == member_summary.name);
        rows.push(vec![
            if member_summary.lead {
                format!("{} (lead)", member_summary.name)
            } else {
                member_summary.name.to_string()
            },
            desired.map_or("removed".into(), |member| desired_text(view, member)),
            entry.map_or("-".into(), resolved_text),
            entry
                .and_then(|launch| launch.lane.as_ref())
                .map_or("-".into(), |lane_ref| lane_ref.id.clone()),
            first_line(&member_summary.description),
            live.map_or("-".into(), live_text),
            live.and_then(|member_live| member_live.silent_ms)
                .map_or("-".into(), |live| format!("{} ago", short_duration(live))),
        ]);
    }
    text += &format_table_for(&rows, window);
    for entry in view
        .resolved
        .iter()
        .flat_map(|team_launch| &team_launch.members)
    {
        text += &problem_lines(entry);
    }
    let past = |team_launch: &TeamLaunch| {
        format!(
            "  {} {} {}\n",
            team_launch.id,
            team_launch.phase().name(),
            team_launch.outcome().name()
        )
    };
    if !view.history.is_empty() {
        text += &format!(
            "earlier launches:\n{}",
            view.history.iter().map(past).collect::<String>()
        );
    }
    text
}

fn outcome_text(view: &TeamView) -> String {
    first_line(&view.summary.headline)
}

fn desired_text(view: &TeamView, member: &TeamMember) -> String {
    let settings = [&member.backend, &member.model, &member.effort];
    member_settings_text(
        view.desired.provider(member),
        settings,
        member.fast_mode,
        &member.cwd,
    )
}

fn resolved_text(entry: &LaunchEntry) -> String {
    let member_identity = &entry.effective;
    member_settings_text(
        &member_identity.provider,
        [
            &member_identity.backend,
            &member_identity.model,
            &member_identity.effort,
        ],
        member_identity.fast_mode,
        &member_identity.cwd,
    )
}

/// Describes a member's provider and settings in one line.
fn member_settings_text(
    provider: &str,
    settings: [&Option<String>; 3],
    fast: Option<bool>,
    cwd: &Option<String>,
) -> String {
    let mut parts: Vec<&str> = vec![provider];
    parts.extend(settings.into_iter().flatten().map(String::as_str));
    parts.extend(fast.map(|fast| if fast { "fast" } else { "not-fast" }));
    let location = cwd
        .as_ref()
        .map(|cwd| format!(" in {cwd}"))
        .unwrap_or_default();
    parts.join(" ") + &location
}

fn live_text(member_live: &MemberLiveView) -> String {
    let word = member_live.live.label();
    let tasks: Vec<String> = member_live.tasks.iter().map(ToString::to_string).collect();
    if tasks.is_empty() {
        word.to_owned()
    } else {
        format!("{word} on {}", tasks.join(", "))
    }
}

/// Returns the notes about a member's launch and its latest problem, one line each.
fn problem_lines(entry: &LaunchEntry) -> String {
    let notes = entry
        .notes
        .iter()
        .map(|note| format!("  {}: {}\n", entry.name, first_line(note)));
    // Print the cause again below the table, because the table cuts long texts and the fix is at
    // their end.
    let cause = entry
        .cause
        .as_ref()
        .map(|member_cause| format!("  {}: {}\n", entry.name, first_line(&member_cause.text)));
    let evidence = entry.evidence.last().map(|member_evidence| {
        format!("  {}: {}\n", entry.name, first_line(&member_evidence.text))
    });
    notes.chain(cause).chain(evidence).collect()
}

/// Sends the call that launches a team and prints the outcome. Returns exit code 1 if a member
/// failed to start, and 124 if a member is still starting after `waited_ms`.
fn launch_and_report<C>(
    app: &CommandContext,
    kind: &'static str,
    call: C,
    waited_ms: u64,
) -> CommandResult
where
    C: TypedCall<Output = TeamView>,
{
    let reply = app.call(call)?;
    let name = reply.data.summary.team.clone();
    let down = |launch: &&LaunchEntry| {
        matches!(
            launch.state,
            MemberState::FailedToStart | MemberState::Degraded
        )
    };
    let down: Vec<&LaunchEntry> = reply
        .data
        .resolved
        .iter()
        .flat_map(|team_launch| &team_launch.members)
        .filter(down)
        .collect();
    let mut next = vec![format!("regatta team show {name}")];
    next.extend(
        down.first()
            .map(|launch| format!("regatta team retry {name} {}", launch.name)),
    );
    app.output.print_answer(kind, &reply.data, &next, |_| {
        let each = down.iter().map(|launch| {
            format!(
                "  {}: {}\n",
                launch.name,
                first_line(&launch::describe(launch))
            )
        });
        format!(
            "{name}: {}\n{}",
            outcome_text(&reply.data),
            each.collect::<String>()
        )
    })?;
    let is_pending = reply
        .data
        .resolved
        .iter()
        .flat_map(|launch| &launch.members)
        .any(|entry| entry.state.is_pending());
    match (down.is_empty(), is_pending && waited_ms > 0) {
        (false, _) => Err(CommandError::Exit(1)),
        (true, true) => Err(CommandError::Exit(TIMEOUT_EXIT_CODE)),
        (true, false) => Ok(()),
    }
}

fn backup(app: &CommandContext, name: TeamName, file: &Path) -> CommandResult {
    let reply: CallReply<TeamBackup> =
        app.call(call::TeamBackup(wire::TeamNameInput { team: name.clone() }))?;
    let text = serde_json::to_vec_pretty(&reply.data).map_err(|error| {
        internal_error(format!(
            "could not encode the backup of {name} as JSON: {error}"
        ))
    })?;
    let write = || {
        let mut new = std::fs::File::create_new(file)?;
        std::io::Write::write_all(&mut new, &text)?;
        new.sync_all()
    };
    write().map_err(|error| {
        command_error(
            "not_written",
            format!(
                "could not write the team's backup {}: {error}",
                file.display()
            ),
            "name a file that does not exist yet, in a directory that you can write",
        )
    })?;
    let next = [format!("regatta team restore {}", file.display())];
    app.output
        .print_answer("team.backup", &file.display().to_string(), &next, |_| {
            format!("saved {name} in {}\n", file.display())
        })
}

fn restore(app: &CommandContext, file: &Path) -> CommandResult {
    let hint = "name a file that regatta team backup wrote";
    let text = std::fs::read(file).map_err(|error| {
        command_error(
            "no_backup",
            format!(
                "could not read the team's backup {}: {error}",
                file.display()
            ),
            hint,
        )
    })?;
    let backup: TeamBackup = serde_json::from_slice(&text).map_err(|error| {
        command_error(
            "bad_backup",
            format!("{} is not the backup of a team: {error}", file.display()),
            hint,
        )
    })?;
    let name = backup.team.name.clone();
    let reply: CallReply<TeamView> = app.call(call::TeamRestore(wire::RestoreTeam { backup }))?;
    let next = [format!("regatta team show {name}")];
    app.output
        .print_answer("team.restore", &reply.data, &next, |_| {
            format!("restored {name}: {}\n", outcome_text(&reply.data))
        })
}
