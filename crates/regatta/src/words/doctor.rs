//! `doctor`: what is wrong, and the exact fix. Checks are data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regatta_agents::discover::{self, Found, Machine, SignIn};
use regatta_agents::presets;
use regatta_agents::sign_in;
use regatta_agents::strays::RunningShim;
use regatta_api::Call;
use regatta_api::input;
use regatta_api::page::{CheckLine, DoctorView, Level};
use regatta_api::view::{AgentView, BridgeView, InboxView};
use regatta_core::agent::{Level as Confined, Runtime};
use regatta_engine::ports::git::{Git, RepoFacts};

use crate::client::{Client, Got};
use crate::out::{Failed, Out, Said, fit, width, wrapped};
use crate::{daemon, settings, wire};

use super::App;

/// Looks at the daemon's machine for whoever asks over a door: what needs no working directory.
pub(crate) fn of_daemon(dir: PathBuf) -> regatta_server::Doctor {
    Arc::new(move |patient| {
        let mut checks = vec![git_program(), disk(&dir)];
        let of_project = |(name, path): &(_, PathBuf)| repository(&format!("repo {name}"), path, &dir);
        checks.extend(patient.projects.iter().map(of_project));
        checks.extend(patient.agents.iter().flat_map(of_agent));
        checks.extend(patient.bridges.iter().map(of_bridge));
        checks.push(sandbox());
        DoctorView { checks, providers: super::agents::providers() }
    })
}

fn check(id: &str, level: Level, text: impl Into<String>, fix: impl Into<String>) -> CheckLine {
    CheckLine { id: id.to_owned(), level, text: text.into(), fix: fix.into() }
}

pub(super) fn doctor(app: &App, end_strays: bool) -> Said {
    let mut checks = vec![git_program()];
    let mut has_agents = false;
    let data_dir = app.data_dir();
    checks.push(match &data_dir {
        Ok(dir) => data(dir),
        Err(error) => from_failed("data", error),
    });
    checks.push(match settings::all(&app.here()?) {
        Ok(_) => check("config", Level::Ok, "settings can be read", ""),
        Err(error) => from_failed("config", &error),
    });
    if let Ok(dir) = &data_dir {
        checks.push(disk(dir));
        checks.push(repository("repo", &app.here()?, dir));
        if let Ok(facts) = wire::git(dir).inspect(&app.here()?) {
            checks.extend(beside_the_files(&facts));
        }
        let found = match app.global.server {
            Some(_) => app.client().map(Some),
            None => Client::find(dir, app.timeout()),
        };
        checks.extend(match found {
            Ok(Some(client)) => {
                let (found, agents) = store_and_agents(&client);
                has_agents = agents;
                found
            }
            Ok(None) => without_daemon(dir),
            Err(error) => vec![from_failed("daemon", &error)],
        });
        checks.extend(strays(dir, end_strays));
    }
    checks.push(sandbox());
    checks.extend(providers(has_agents));
    let count = |level| checks.iter().filter(|it| it.level == level).count();
    let (bad, warnings) = (count(Level::Bad), count(Level::Warn));
    let summary = match (bad, warnings) {
        (0, 0) => "all is well\n".to_owned(),
        (0, 1) => "1 warning\n".to_owned(),
        (0, _) => format!("{warnings} warnings\n"),
        (_, 0) => format!("{bad} to fix\n"),
        _ => format!("{bad} to fix, {warnings} more to look at\n"),
    };
    app.out.answer("doctor", &checks, &[], |out| draw(out, &checks, crate::out::window_width()) + &summary)?;
    if bad == 0 { Ok(()) } else { Err(Failed::Code(1)) }
}

/// Draws checks as a table. Where a row does not fit into the window, its text is wrapped and its fix stands below it,
/// because a fix that is cut cannot be typed.
fn draw(out: &Out, checks: &[CheckLine], window: Option<usize>) -> String {
    let head = |it: &CheckLine| {
        let (glyph, style) = match it.level {
            Level::Ok => (if out.unicode { "✓" } else { "+" }, "32"),
            Level::Warn => ("!", "33"),
            Level::Bad => (if out.unicode { "✕" } else { "x" }, "31"),
        };
        format!("{} {}", out.paint(glyph, style), it.id)
    };
    let row = |it: &CheckLine| vec![head(it), it.text.clone(), it.fix.clone()];
    let rows: Vec<Vec<String>> = checks.iter().map(row).collect();
    let whole = fit(&rows, None);
    let Some(window) = window.filter(|window| whole.lines().any(|line| width(line) > *window)) else { return whole };
    let first = rows.iter().map(|row| width(&row[0])).max().unwrap_or(0);
    let (room, indent) = (window.saturating_sub(first + 2).max(20), " ".repeat(first + 2));
    let mut text = String::new();
    for (row, it) in rows.iter().zip(checks) {
        let mut lines = wrapped(&it.text, room, MAX_LINES);
        if !it.fix.is_empty() {
            lines.extend(wrapped(&format!("fix: {}", it.fix), room, usize::MAX));
        }
        for (at, line) in lines.iter().enumerate() {
            match at {
                0 => text += &format!("{}{}{line}\n", row[0], " ".repeat(first + 2 - width(&row[0]))),
                _ => text += &format!("{indent}{line}\n"),
            }
        }
    }
    text
}

/// How many lines of a text are shown in a narrow window.
const MAX_LINES: usize = 6;

fn from_failed(id: &str, error: &Failed) -> CheckLine {
    match error {
        Failed::Problem(it) => check(id, Level::Bad, crate::project_files::in_one_line(&it.message), it.hint.clone()),
        Failed::Code(code) => check(id, Level::Bad, format!("failed with {code}"), ""),
    }
}

fn git_program() -> CheckLine {
    match regatta_git::version() {
        Ok((version, true)) => check("git", Level::Ok, version, ""),
        Ok((version, false)) => check("git", Level::Bad, format!("{version} is too old"), "install git 2.39 or later"),
        Err(error) => check("git", Level::Bad, error.what, error.hint),
    }
}

fn disk(dir: &Path) -> CheckLine {
    match rustix::fs::statvfs(existing(dir)) {
        Ok(it) => {
            let free = it.f_bavail.saturating_mul(it.f_frsize) / (1 << 20);
            let level = if free < 500 {
                Level::Bad
            } else if free < 2_048 {
                Level::Warn
            } else {
                Level::Ok
            };
            let fix =
                if level == Level::Ok { "" } else { "free some space: each workspace is a copy of the repository" };
            check("disk", level, format!("{free} MB free"), fix)
        }
        Err(error) => check("disk", Level::Warn, format!("free space cannot be read: {error}"), ""),
    }
}

fn repository(id: &str, path: &Path, data_dir: &Path) -> CheckLine {
    match wire::git(data_dir).inspect(path) {
        Err(error) => check(id, Level::Warn, error.what, error.hint),
        Ok(facts) if facts.unborn => check(id, Level::Bad, "no commit yet", "git commit --allow-empty -m start"),
        Ok(facts) => match (&facts.in_progress, facts.dirty.is_empty()) {
            (Some(what), _) => check(
                id,
                Level::Warn,
                format!("in the middle of {what}"),
                "finish or abort it: landing waits until then",
            ),
            (None, false) => check(
                id,
                Level::Warn,
                format!("changes in {}", facts.dirty.join(", ")),
                "commit or stash them: work on these files lands after that",
            ),
            (None, true) => check(
                id,
                Level::Ok,
                format!("clean, on {}", facts.branch.map_or("no branch".into(), |it| it.to_string())),
                "",
            ),
        },
    }
}

/// Says what becomes of the content that a plain clone of the repository does not have.
pub(super) fn beside_the_files(facts: &RepoFacts) -> Vec<CheckLine> {
    let mut found = Vec::new();
    let named = |is_checked_out: bool| {
        let submodules = facts.submodules.iter().filter(|submodule| submodule.is_checked_out == is_checked_out);
        submodules.map(|submodule| submodule.path.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (along, empty) = (named(true), named(false));
    if !along.is_empty() {
        let text = format!("brought into workspaces and validation, from your copies: {along}");
        found.push(check("submodules", Level::Ok, text, ""));
    }
    if !empty.is_empty() {
        let text = format!("not checked out here, so they are empty in workspaces and validation: {empty}");
        found.push(check("submodules", Level::Warn, text, "git submodule update --init --recursive"));
    }
    if facts.has_lfs {
        let text = "LFS content is not brought along: workspaces have the pointer files";
        found.push(check("lfs", Level::Warn, text, "name what you need in [workspace] copy"));
    }
    found
}

/// Whether the data directory can be used. It is not made for the sake of the answer.
fn data(dir: &Path) -> CheckLine {
    let path = existing(dir);
    let shown = dir.display();
    let writable = rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    match writable {
        _ if !path.is_dir() => {
            let what = format!("{} is not a directory", path.display());
            check("data", Level::Bad, what, "move it away, or set REGATTA_DATA_DIR to another directory")
        }
        Ok(()) if path == dir => check("data", Level::Ok, shown.to_string(), ""),
        Ok(()) => check("data", Level::Ok, format!("{shown}, which the first start makes"), ""),
        Err(error) => {
            let what = format!("{} cannot be written to: {error}", path.display());
            check("data", Level::Bad, what, "give yourself the right to, or set REGATTA_DATA_DIR to another directory")
        }
    }
}

/// The directory itself, or the nearest one above that is there.
fn existing(dir: &Path) -> &Path {
    dir.ancestors().find(|it| it.exists()).unwrap_or(dir)
}

/// Checks that need no daemon. None is started.
fn without_daemon(dir: &Path) -> Vec<CheckLine> {
    let mut checks = vec![check("daemon", Level::Ok, "not running", "regatta up")];
    let store = dir.join(wire::STORE);
    checks.push(match regatta_store::examine(&store) {
        Ok(()) if store.exists() => check("store", Level::Ok, "whole; its rows were not looked at", ""),
        Ok(()) => check("store", Level::Ok, "none yet", ""),
        Err(error) => check("store", Level::Bad, error.what, error.hint),
    });
    checks
}

/// Checks the daemon's store, agents and bridges. Also returns whether there is an agent that follows no script.
fn store_and_agents(client: &Client) -> (Vec<CheckLine>, bool) {
    let url = daemon::read_card(client.place())
        .map_or("up".into(), |it| format!("{} (pid {}, {})", it.url, it.pid, it.version));
    let mut checks = vec![check("daemon", Level::Ok, url, "")];
    checks.push(match client.call::<String>(&Call::Check(input::Nothing {})) {
        Ok(_) => check("store", Level::Ok, "whole", ""),
        Err(error) => from_failed("store", &error),
    });
    let agents: Result<Got<Vec<AgentView>>, Failed> = client.call(&Call::AgentList(input::Nothing {}));
    let has_agents =
        agents.as_ref().is_ok_and(|got| got.data.iter().any(|view| !matches!(view.agent.runtime, Runtime::Scripted)));
    match agents {
        Err(error) => checks.push(from_failed("agents", &error)),
        Ok(got) if got.data.is_empty() => {
            checks.push(check("agents", Level::Warn, "none yet", "see what is installed: regatta provider"))
        }
        Ok(got) => {
            checks.extend(got.data.iter().flat_map(of_agent));
            checks.extend(of_parked(&got.data));
        }
    }
    match client.call::<Vec<BridgeView>>(&Call::BridgeList(input::Nothing {})) {
        Err(error) => checks.push(from_failed("bridges", &error)),
        Ok(got) => checks.extend(got.data.iter().map(of_bridge)),
    }
    // Settings that cannot be understood belong to no pair of agent and service, so only the inbox has them.
    match client.call::<Vec<InboxView>>(&Call::InboxList(input::Scope { project: None })) {
        Err(error) => checks.push(from_failed("bridges", &error)),
        Ok(got) => {
            let faults = got.data.iter().filter(|item| item.id.starts_with("bridge:setting:"));
            checks.extend(faults.map(|item| check("bridges", Level::Bad, item.subject.clone(), item.why.clone())));
        }
    }
    (checks, has_agents)
}

/// Ends and removes what nobody looks after. Agents whose daemon is down go on by design, and a person decides about them.
fn strays(own: &Path, end_strays: bool) -> Vec<CheckLine> {
    let mut checks = match wire::sweep_strays(own) {
        Ok(done) => done.into_iter().map(|what| check("strays", Level::Ok, what, "")).collect(),
        Err(error) => vec![check("strays", Level::Warn, format!("could not look for strays: {error}"), "")],
    };
    let mut unwatched: BTreeMap<PathBuf, Vec<RunningShim>> = BTreeMap::new();
    for shim in wire::running_shims().unwrap_or_default() {
        let Some(data_dir) = shim.data_dir().map(Path::to_path_buf) else { continue };
        if !shim.is_abandoned() && !daemon::Place::new(&data_dir).is_watched() {
            unwatched.entry(data_dir).or_default().push(shim);
        }
    }
    for (data_dir, shims) in unwatched {
        let dir = data_dir.display();
        let pids: Vec<String> = shims.iter().map(|shim| shim.pid().to_string()).collect();
        let what = format!("{} of {dir} run without a daemon (pid {})", shims.len(), pids.join(", "));
        if !end_strays {
            let fix = format!("watch them: REGATTA_DATA_DIR={dir} regatta up; end them: regatta doctor --end-strays");
            checks.push(check("strays", Level::Warn, what, fix));
            continue;
        }
        let failures: Vec<String> = shims.iter().filter_map(|shim| shim.end().err()).map(|it| it.to_string()).collect();
        checks.push(match failures.is_empty() {
            true => check("strays", Level::Ok, format!("ended: {what}"), ""),
            false => check("strays", Level::Bad, failures.join(" "), "try again: regatta doctor --end-strays"),
        });
    }
    checks
}

/// How an agent is at an outside service.
fn of_bridge(it: &BridgeView) -> CheckLine {
    let whole = it.off.is_none() && it.warning.is_none() && it.health.connected.is_some();
    let level = if whole { Level::Ok } else { Level::Warn };
    let fix = if whole { "" } else { "see docs/bridges.md and .env.example, then regatta down and up" };
    check(&format!("bridge {}", it.name), level, super::bridge::state(it), fix)
}

/// What is to be said of an agent.
fn of_agent(it: &AgentView) -> Vec<CheckLine> {
    let mut checks = Vec::new();
    if let Some(argv) = it.agent.runtime.argv().filter(|_| it.parked.is_none()) {
        checks.push(program_of(it, argv.first().map(String::as_str).unwrap_or_default()));
    }
    if it.agent.profile.confine == Some(Confined::Off) {
        let text = format!("{} has no sandbox: it can do whatever you can", it.agent.name);
        checks.push(check("sandbox", Level::Warn, text, "regatta agent add … --confine workspace"));
    }
    checks
}

/// The agents that take no work for now, one line for each cause.
fn of_parked(agents: &[AgentView]) -> Vec<CheckLine> {
    let mut causes: Vec<(String, Vec<&str>, &str)> = Vec::new();
    for agent in agents {
        let Some(why) = &agent.parked else { continue };
        let name = agent.agent.name.as_str();
        let cause = why.replace(name, "…");
        match causes.iter_mut().find(|(known, ..)| *known == cause) {
            Some((_, names, _)) => names.push(name),
            None => causes.push((cause, vec![name], why)),
        }
    }
    let line = |(_, names, why): (String, Vec<&str>, &str)| {
        // What follows is how to go on, which is the fix.
        let what = why.split_once("; fix that").map_or(why, |(what, _)| what);
        let text = if names.len() == 1 { what.to_owned() } else { format!("{} agents: {what}", names.len()) };
        check("agent", Level::Warn, text, format!("fix that, then: regatta resume {}", names.join(" ")))
    };
    causes.into_iter().map(line).collect()
}

/// Whether an agent's program is there and somebody is signed in to it.
fn program_of(it: &AgentView, program: &str) -> CheckLine {
    let preset = it.agent.profile.preset.as_deref().and_then(presets::find).map(|it| it.0);
    let machine = Machine::here();
    let seen = preset.map(|it| discover::find(it, &machine));
    let available = |profile, preset| sign_in::available(profile, preset, &machine);
    match (&seen, found(program)) {
        (_, false) => {
            let fix = preset.map_or_else(
                || format!("install it, or: regatta agent rm {}", it.agent.name),
                |it| it.install.to_owned(),
            );
            check("agent", Level::Bad, format!("{}: {program} is not installed", it.agent.name), fix)
        }
        // The user may be signed in and the agent still get nothing of it.
        (Some(seen), true)
            if it.agent.profile.keys.is_empty() && available(&it.agent.profile, seen.preset) == SignIn::None =>
        {
            let text = format!("{}: {program} gets no sign-in", it.agent.name);
            let again =
                || format!("add the agent again: regatta agent add {} --preset {}", it.agent.name, seen.preset.name);
            check("agent", Level::Warn, text, seen.fix.clone().unwrap_or_else(again))
        }
        (Some(seen), true) => {
            let version = seen.version.clone().unwrap_or_default();
            check("agent", Level::Ok, format!("{}: {program} {version}", it.agent.name).trim_end().to_owned(), "")
        }
        (None, true) => check("agent", Level::Ok, format!("{}: {program}", it.agent.name), ""),
    }
}

/// What is here of each provider that a team can be made of: installed, signed in, which version. What is not installed
/// is nobody's fault, so it is one line for all; without any agent that works otherwise it is a warning.
fn providers(has_agents: bool) -> Vec<CheckLine> {
    let machine = Machine::here();
    let mut of: BTreeMap<&str, Vec<&'static presets::Preset>> = BTreeMap::new();
    for preset in presets::PRESETS {
        of.entry(preset.provider).or_default().push(preset);
    }
    let there = |it: &&presets::Preset| {
        let path = &machine.path;
        it.programs.iter().any(|it| discover::on_path(it, path).is_some())
    };
    let (mut installed, mut missing) = (vec![], vec![]);
    for (provider, presets) in of {
        match presets.iter().copied().find(|preset| there(preset)) {
            None => missing.push(provider),
            Some(preset) => installed.push(preset),
        }
    }
    let found = discover::find_all(&installed, &machine);
    let mut checks: Vec<CheckLine> = found.iter().map(|found| provided(found.preset.provider, found)).collect();
    let how = "regatta provider says how to install each";
    match (checks.is_empty(), missing.is_empty()) {
        (_, true) => {}
        (false, _) => checks.push(check("providers", Level::Ok, format!("not installed: {}", missing.join(", ")), how)),
        (true, _) if has_agents => checks.push(check("providers", Level::Ok, "no known program is installed", how)),
        (true, _) => {
            let text = "no program of an agent is installed";
            let fix = format!("{how}; without one: regatta demo");
            checks.push(check("providers", Level::Warn, text, fix));
        }
    }
    checks
}

fn provided(provider: &str, found: &Found) -> CheckLine {
    let version = found.version.as_deref().unwrap_or("of unknown version");
    let name = found.preset.name;
    let signed = match &found.sign_in {
        SignIn::Key(key) => format!("signed in by {key}"),
        SignIn::File(_) => "signed in".to_owned(),
        SignIn::NotNeeded => "no sign-in is needed".to_owned(),
        SignIn::None => "no sign of a sign-in".to_owned(),
    };
    let level = if found.fix.is_some() { Level::Warn } else { Level::Ok };
    let text = format!("{provider}: {name} {version}, {signed}");
    check("provider", level, text, found.fix.clone().unwrap_or_default())
}

/// How agents are shut in on this machine.
fn sandbox() -> CheckLine {
    let found = wire::sandboxes();
    match found.iter().find(|it| it.1.is_none()) {
        Some((name, _)) => check("sandbox", Level::Ok, name.clone(), ""),
        None => {
            let why: Vec<String> =
                found.iter().map(|(name, why)| format!("{name}: {}", why.clone().unwrap_or_default())).collect();
            let text = format!("agents run without a sandbox, because nothing here can make one ({})", why.join("; "));
            check("sandbox", Level::Warn, text, "apt-get install bubblewrap, or a kernel with Landlock (6.2)")
        }
    }
}

fn found(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|it| it.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a narrow window a fix is there to the last word, below the text that it is for.
    #[test]
    fn a_fix_is_never_cut() {
        let fix = "sign in with `claude /login`, or give the agent a key in ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN";
        let checks = [
            check("git", Level::Ok, "2.47.3", ""),
            check("provider", Level::Warn, "anthropic: claude-native 2.1.325, no sign of a sign-in", fix),
        ];
        let out = Out { json: false, quiet: 0, colour: true, hints: false, unicode: true, pager: None };
        let text = draw(&out, &checks, Some(60));
        assert!(text.lines().all(|line| width(line) <= 60), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(fix), "{text}");
        let text = draw(&Out { colour: false, ..out }, &checks, Some(300));
        assert_eq!(text.lines().next(), Some("✓ git       2.47.3"), "one line for each where there is room: {text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
