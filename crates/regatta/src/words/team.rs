//! The command `team`. The daemon computes all states and summaries; this module only prints them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regatta_api::Call;
use regatta_api::team::{self as wire, LiveView, TeamView};
use regatta_core::extra::Extra;
use regatta_core::ids::{BadName, MemberName, TeamName};
use regatta_core::launch::{self, Entry, Launch, Outcome, Phase, State, Summary};
use regatta_core::team::{Backup, Create, Edit, Environment, Member};
use serde::Deserialize;

use super::App;
use crate::args::{TeamCreate, TeamWord};
use crate::client::Got;
use crate::out::{Failed, Said, failed, fit, line, span, table, usage, window_width};
use crate::plan::fault::Source;
use crate::plan::fields::Reader;
use crate::plan::tree::{self, Node};

/// The exit code of a wait that timed out.
const TIMED_OUT: u8 = 124;

/// Runs `regatta team`.
pub(super) fn team(app: &App, word: TeamWord) -> Said {
    match word {
        TeamWord::Create(ask) => create(app, ask),
        TeamWord::Edit { file, name } => edit(app, file.as_deref(), name),
        TeamWord::List { deleted } => list(app, deleted),
        TeamWord::Show { name } => show(app, name),
        TeamWord::Explain { name } => {
            let got: Got<Vec<String>> = app.call(&Call::TeamExplain(wire::Named { team: name }))?;
            app.out.answer("team.explain", &got.data, &[], |_| got.data.iter().map(|it| line(it) + "\n").collect())
        }
        TeamWord::Launch { name, without, wait } => {
            let ask = wire::Start { team: name, left_out: without, wait_ms: wait.wait };
            launched(app, "team.launch", &Call::TeamLaunch(ask), wait.wait)
        }
        TeamWord::Relaunch { name, wait } => {
            let ask = wire::Again { team: name, wait_ms: wait.wait };
            launched(app, "team.relaunch", &Call::TeamRelaunch(ask), wait.wait)
        }
        TeamWord::Retry { name, member, wait } => {
            let ask = wire::Retry { team: name, member, wait_ms: wait.wait };
            launched(app, "team.retry", &Call::TeamRetry(ask), wait.wait)
        }
        TeamWord::Stop { name, because, wait } => {
            let ask = wire::Halt { team: name, reason: because, wait_ms: wait };
            let got: Got<TeamView> = app.call(&Call::TeamStop(ask))?;
            app.out.answer("team.stop", &got.data, &[], |_| format!("{}: {}\n", got.data.summary.team, told(&got.data)))
        }
        TeamWord::Delete { name } => {
            let got: Got<TeamView> = app.call(&Call::TeamDelete(wire::Named { team: name.clone() }))?;
            let next = [format!("regatta team undelete {name}")];
            app.out.answer("team.delete", &got.data, &next, |_| format!("deleted {name}\n"))
        }
        TeamWord::Undelete { name } => {
            let got: Got<TeamView> = app.call(&Call::TeamUndelete(wire::Named { team: name.clone() }))?;
            app.out.answer("team.undelete", &got.data, &[], |_| format!("restored {name}\n"))
        }
        TeamWord::Backup { name, file } => backup(app, name, &file),
        TeamWord::Restore { file } => restore(app, &file),
    }
}

/// The contents of a `team.toml`.
#[derive(Deserialize)]
struct File {
    name: Option<TeamName>,
    lead: Member,
    #[serde(default, alias = "members")]
    member: Vec<Member>,
    #[serde(default, alias = "environment")]
    environments: BTreeMap<String, Environment>,
    #[serde(flatten)]
    extra: Extra,
}

/// Reads and checks a `team.toml`.
fn read(path: Option<&Path>) -> Result<File, Failed> {
    let path = path.unwrap_or(Path::new("team.toml"));
    let text = std::fs::read_to_string(path).map_err(|error| {
        failed(
            "no_team_file",
            format!("could not read {}: {error}", path.display()),
            "write the file, or use options instead: regatta team create NAME --lead amy=codex --member tom=opencode",
        )
    })?;
    let file = toml::from_str(&text).map_err(|it| {
        failed("bad_team_file", format!("{}: {}", path.display(), it.message()), "see docs/teams.md for an example")
    })?;
    check_keys(&path.display().to_string(), &text)?;
    Ok(file)
}

/// The top-level keys of a `team.toml`.
pub(crate) const FILE_FIELDS: [&str; 4] = ["name", "lead", "member", "environments"];

/// Refuses a file with unknown keys. Stored teams keep unknown fields, because a newer version may
/// have written them, but an unknown key in a file that a person writes is a mistake.
fn check_keys(name: &str, text: &str) -> Said {
    let source = Source::new(name, text);
    let root = tree::toml(&source).map_err(|fault| source.refuse(&[fault]))?;
    let mut reader = Reader::new(&source);
    let Some(mut file) = reader.table("team", root, "name = \"…\"") else {
        return Err(source.refuse(&reader.faults));
    };
    file.take(&["name"]);
    let lead = file.take(&["lead"]).map(|entry| entry.node);
    let members = file.take(&["member", "members"]).map(|entry| entry.node.value);
    let members = match members {
        Some(tree::Value::List(members)) => members,
        _ => vec![],
    };
    for member in lead.into_iter().chain(members) {
        check_table(&mut reader, member, "member", Member::FIELDS);
    }
    if let Some(tree::Value::Table(named)) = file.take(&["environments", "environment"]).map(|entry| entry.node.value) {
        named.into_iter().for_each(|entry| check_table(&mut reader, entry.node, "environment", Environment::FIELDS));
    }
    reader.unknown(file, "team file", &FILE_FIELDS);
    if reader.faults.is_empty() { Ok(()) } else { Err(source.refuse(&reader.faults)) }
}

fn check_table(reader: &mut Reader<'_>, node: Node, of: &str, known: &[&str]) {
    let Some(mut fields) = reader.table(of, node, "{ … }") else { return };
    for name in known {
        fields.take(&[name]);
    }
    reader.unknown(fields, of, known);
}

/// Parses a member from the command line, such as `amy=codex:scripted`.
fn typed(text: &str) -> Result<Member, Failed> {
    let hint = "write a name and a provider: amy=codex, or amy=codex:scripted for the scripted agent";
    let (name, provider) = text.split_once('=').ok_or_else(|| usage(format!("{text:?} is not a team member"), hint))?;
    let name = MemberName::new(name).map_err(|it| usage(it.to_string(), hint))?;
    let (provider, backend) = provider.split_once(':').map_or((provider, None), |it| (it.0, Some(it.1.to_owned())));
    Ok(Member { provider: Some(provider.to_owned()), backend, ..Member::named(name) })
}

fn create(app: &App, ask: TeamCreate) -> Said {
    let is_file = |text: &str| text.contains('/') || text.ends_with(".toml");
    let (name, path) = match &ask.name {
        Some(text) if is_file(text) && ask.file.is_none() && ask.lead.is_none() => (None, Some(PathBuf::from(text))),
        Some(text) => {
            let name: TeamName = text.parse().map_err(|error: BadName| {
                usage(error.to_string(), "use regatta team create NAME; to name a file, use --file FILE")
            })?;
            (Some(name), ask.file)
        }
        None => (None, ask.file),
    };
    let file = match ask.lead {
        Some(lead) => File {
            name: None,
            lead: typed(&lead)?,
            member: ask.member.iter().map(|it| typed(it)).collect::<Result<_, _>>()?,
            environments: BTreeMap::new(),
            extra: Extra::new(),
        },
        None => read(path.as_deref())?,
    };
    let name = name.or(file.name).ok_or_else(|| usage("the team has no name", "add it: regatta team create NAME"))?;
    let client = app.client()?;
    let project = app.project(&client)?.ok_or_else(|| {
        usage(
            "it is not clear which project is meant",
            "run the command inside a managed repository, or add --project NAME",
        )
    })?;
    let (members, environments) = (file.member, file.environments);
    let ask = Create { name: name.clone(), project, lead: file.lead, members, environments, extra: file.extra };
    let got: Got<TeamView> = client.call(&Call::TeamCreate(ask))?;
    let next = [format!("regatta team explain {name}"), format!("regatta team launch {name}")];
    app.out.answer("team.create", &got.data, &next, |_| {
        format!("created {name}: {} and {} more\n", got.data.desired.lead.name, got.data.desired.members.len())
    })
}

fn edit(app: &App, file: Option<&Path>, name: Option<TeamName>) -> Said {
    let file = read(file)?;
    let team = name
        .or(file.name)
        .ok_or_else(|| usage("the file does not name a team", "add the name: regatta team edit NAME"))?;
    let edit = Edit {
        lead: Some(file.lead),
        members: Some(file.member),
        environments: Some(file.environments),
        extra: file.extra,
    };
    let got: Got<TeamView> = app.call(&Call::TeamEdit(wire::Change { team: team.clone(), edit }))?;
    let next = [format!("regatta team relaunch {team}")];
    app.out.answer("team.edit", &got.data, &next, |_| format!("changed the settings of {team}\n"))
}

fn list(app: &App, deleted: bool) -> Said {
    let got: Got<Vec<Summary>> = app.call(&Call::TeamList(wire::List { deleted }))?;
    app.out.answer("team.list", &got.data, &[], |_| {
        if got.data.is_empty() {
            return "no teams; create one: regatta team create NAME --lead amy=codex --member tom=opencode\n".into();
        }
        let mut rows = vec![["TEAM", "PROJECT", "ALIVE", "PHASE", "OUTCOME", ""].map(String::from).to_vec()];
        rows.extend(got.data.iter().map(|it| {
            let gone = if it.deleted { "deleted; " } else { "" };
            vec![
                it.team.to_string(),
                it.project.to_string(),
                format!("{}/{}", it.alive, it.expected),
                it.phase.map_or("-", Phase::word).to_owned(),
                it.outcome.map_or("-", Outcome::word).to_owned(),
                format!("{gone}{}", line(&it.said)),
            ]
        }));
        table(&rows)
    })
}

fn show(app: &App, name: TeamName) -> Said {
    let got: Got<TeamView> = app.call(&Call::TeamShow(wire::Named { team: name }))?;
    app.out.answer("team.show", &got.data, &[], |_| draw(&got.data, window_width()))
}

/// Draws a team: the desired, resolved and live state of each member, each in its own column.
pub(crate) fn draw(view: &TeamView, window: Option<usize>) -> String {
    let summary = &view.summary;
    let gone = if summary.deleted { "deleted; " } else { "" };
    let mut text = format!("{} of {}: {gone}{}\n", summary.team, summary.project, told(view));
    let mut rows = vec![["", "DESIRED", "RESOLVED", "LANE", "STATE", "LIVE", "LAST OUTPUT"].map(String::from).to_vec()];
    for it in &summary.members {
        let wanted = view.desired.member(&it.name);
        let entry = view.resolved.as_ref().and_then(|launch| launch.entry(&it.name));
        let live = view.live.iter().find(|live| live.name == it.name);
        rows.push(vec![
            if it.lead { format!("{} (lead)", it.name) } else { it.name.to_string() },
            wanted.map_or("removed".into(), |member| asked(view, member)),
            entry.map_or("-".into(), resolved),
            entry.and_then(|it| it.lane.as_ref()).map_or("-".into(), |it| it.id.clone()),
            line(&it.said),
            live.map_or("-".into(), lives),
            live.and_then(|it| it.silent_ms).map_or("-".into(), |it| format!("{} ago", span(it))),
        ]);
    }
    text += &fit(&rows, window);
    for entry in view.resolved.iter().flat_map(|it| &it.members) {
        text += &details(entry);
    }
    let past = |it: &Launch| format!("  {} {} {}\n", it.id, it.phase().word(), it.outcome().word());
    if !view.history.is_empty() {
        text += &format!("earlier launches:\n{}", view.history.iter().map(past).collect::<String>());
    }
    text
}

fn told(view: &TeamView) -> String {
    line(&view.summary.said)
}

fn asked(view: &TeamView, member: &Member) -> String {
    let more = [&member.backend, &member.model, &member.effort];
    words(view.desired.provider(member), more, (member.fast_mode, &member.cwd))
}

fn resolved(entry: &Entry) -> String {
    let it = &entry.got;
    words(&it.provider, [&it.backend, &it.model, &it.effort], (it.fast_mode, &it.cwd))
}

/// Describes a member's settings in one line.
fn words(provider: &str, more: [&Option<String>; 3], (fast, cwd): (Option<bool>, &Option<String>)) -> String {
    let mut all: Vec<&str> = vec![provider];
    all.extend(more.into_iter().flatten().map(String::as_str));
    all.extend(fast.map(|it| if it { "fast" } else { "not-fast" }));
    let begins = cwd.as_ref().map(|it| format!(" in {it}")).unwrap_or_default();
    all.join(" ") + &begins
}

fn lives(it: &LiveView) -> String {
    let word = it.live.word();
    let tasks: Vec<String> = it.tasks.iter().map(ToString::to_string).collect();
    if tasks.is_empty() { word.to_owned() } else { format!("{word} on {}", tasks.join(", ")) }
}

/// Returns the notes and the latest problems of a member, one line each.
fn details(entry: &Entry) -> String {
    let notes = entry.notes.iter().map(|it| format!("  {}: {}\n", entry.name, line(it)));
    // The table cuts long texts, and the fix stands at their end.
    let cause = entry.cause.as_ref().map(|it| format!("  {}: {}\n", entry.name, line(&it.text)));
    let seen = entry.evidence.last().map(|it| format!("  {}: {}\n", entry.name, line(&it.text)));
    notes.chain(cause).chain(seen).collect()
}

/// Sends a launch and prints its outcome. The command fails if a member failed to start, and times
/// out if a member is still starting after `waited_ms`.
fn launched(app: &App, kind: &'static str, call: &Call, waited_ms: u64) -> Said {
    let got: Got<TeamView> = app.call(call)?;
    let name = got.data.summary.team.clone();
    let down = |it: &&Entry| matches!(it.state, State::FailedToStart | State::Degraded);
    let down: Vec<&Entry> = got.data.resolved.iter().flat_map(|it| &it.members).filter(down).collect();
    let mut next = vec![format!("regatta team show {name}")];
    next.extend(down.first().map(|it| format!("regatta team retry {name} {}", it.name)));
    app.out.answer(kind, &got.data, &next, |_| {
        let each = down.iter().map(|it| format!("  {}: {}\n", it.name, line(&launch::describe(it))));
        format!("{name}: {}\n{}", told(&got.data), each.collect::<String>())
    })?;
    let is_pending = got.data.resolved.iter().flat_map(|launch| &launch.members).any(|entry| entry.state.is_pending());
    match (down.is_empty(), is_pending && waited_ms > 0) {
        (false, _) => Err(Failed::Code(1)),
        (true, true) => Err(Failed::Code(TIMED_OUT)),
        (true, false) => Ok(()),
    }
}

fn backup(app: &App, name: TeamName, file: &Path) -> Said {
    let got: Got<Backup> = app.call(&Call::TeamBackup(wire::Named { team: name.clone() }))?;
    let text = serde_json::to_vec_pretty(&got.data)
        .map_err(|it| failed("bug", format!("could not encode the backup: {it}"), "please report this"))?;
    let write = || {
        let mut new = std::fs::File::create_new(file)?;
        std::io::Write::write_all(&mut new, &text)?;
        new.sync_all()
    };
    write().map_err(|error| {
        failed("not_written", format!("could not write {}: {error}", file.display()), "name a file that does not exist")
    })?;
    let next = [format!("regatta team restore {}", file.display())];
    app.out
        .answer("team.backup", &file.display().to_string(), &next, |_| format!("saved {name} in {}\n", file.display()))
}

fn restore(app: &App, file: &Path) -> Said {
    let hint = "name a file that regatta team backup wrote";
    let text = std::fs::read(file)
        .map_err(|error| failed("no_backup", format!("could not read {}: {error}", file.display()), hint))?;
    let backup: Backup = serde_json::from_slice(&text).map_err(|error| {
        failed("bad_backup", format!("{} is not the backup of a team: {error}", file.display()), hint)
    })?;
    let name = backup.team.name.clone();
    let got: Got<TeamView> = app.call(&Call::TeamRestore(wire::Restore { backup }))?;
    let next = [format!("regatta team show {name}")];
    app.out.answer("team.restore", &got.data, &next, |_| format!("restored {name}: {}\n", told(&got.data)))
}
