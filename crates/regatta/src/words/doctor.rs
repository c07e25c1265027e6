//! The command `doctor`: checks the machine, the daemon and the agents, and prints a fix for each
//! problem.
//!
//! A check has a level, a text and a fix. The daemon runs a part of the checks for the web page.

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

/// Returns the checks that the daemon runs on its own machine for API clients. They need no working
/// directory.
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

/// Runs `regatta doctor`. It fails if a check is bad.
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
        (0, 0) => "no problems\n".to_owned(),
        (0, 1) => "1 warning\n".to_owned(),
        (0, _) => format!("{warnings} warnings\n"),
        (_, 0) => format!("{bad} to fix\n"),
        _ => format!("{bad} to fix, {warnings} more to check\n"),
    };
    app.out.answer("doctor", &checks, &[], |out| draw(out, &checks, crate::out::window_width()) + &summary)?;
    if bad == 0 { Ok(()) } else { Err(Failed::Code(1)) }
}

/// Draws checks as a table. In a narrow window the text is wrapped and the fix is printed below it,
/// because people copy the fix and it must be complete.
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

/// The maximum number of lines per text in a narrow window.
const MAX_LINES: usize = 6;

fn from_failed(id: &str, error: &Failed) -> CheckLine {
    match error {
        Failed::Problem(it) => check(id, Level::Bad, crate::project_files::in_one_line(&it.message), it.hint.clone()),
        Failed::Code(code) => check(id, Level::Bad, format!("failed with exit code {code}"), ""),
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
            let fix = if level == Level::Ok {
                ""
            } else {
                "free some space, because each workspace is a copy of the repository"
            };
            check("disk", level, format!("{free} MB free"), fix)
        }
        Err(error) => check("disk", Level::Warn, format!("could not read the free space: {error}"), ""),
    }
}

/// Checks a repository: it needs a commit, and uncommitted changes delay landings.
fn repository(id: &str, path: &Path, data_dir: &Path) -> CheckLine {
    match wire::git(data_dir).inspect(path) {
        Err(error) => check(id, Level::Warn, error.what, error.hint),
        Ok(facts) if facts.unborn => check(id, Level::Bad, "no commit yet", "git commit --allow-empty -m start"),
        Ok(facts) => match (&facts.in_progress, facts.dirty.is_empty()) {
            (Some(what), _) => check(
                id,
                Level::Warn,
                format!("in the middle of {what}"),
                "finish or abort it, because landings wait until then",
            ),
            (None, false) => check(
                id,
                Level::Warn,
                format!("changes in {}", facts.dirty.join(", ")),
                "commit or stash them, because work on these files lands only after that",
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

/// Checks submodules and LFS content, which a plain clone of the repository does not contain.
pub(super) fn beside_the_files(facts: &RepoFacts) -> Vec<CheckLine> {
    let mut found = Vec::new();
    let named = |is_checked_out: bool| {
        let submodules = facts.submodules.iter().filter(|submodule| submodule.is_checked_out == is_checked_out);
        submodules.map(|submodule| submodule.path.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (along, empty) = (named(true), named(false));
    if !along.is_empty() {
        let text = format!("copied into workspaces and validation from your checkout: {along}");
        found.push(check("submodules", Level::Ok, text, ""));
    }
    if !empty.is_empty() {
        let text = format!("not checked out here, so empty in workspaces and validation: {empty}");
        found.push(check("submodules", Level::Warn, text, "git submodule update --init --recursive"));
    }
    if facts.has_lfs {
        let text = "LFS content is not copied: workspaces contain only the pointer files";
        found.push(check("lfs", Level::Warn, text, "list the files you need in [workspace] copy in regatta.toml"));
    }
    found
}

/// Checks that the data directory can be used, without creating it.
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
        Ok(()) => check("data", Level::Ok, format!("{shown}, created at the first start"), ""),
        Err(error) => {
            let what = format!("cannot write to {}: {error}", path.display());
            check("data", Level::Bad, what, "change its permissions, or set REGATTA_DATA_DIR to another directory")
        }
    }
}

/// Returns the directory itself, or its nearest parent that exists.
fn existing(dir: &Path) -> &Path {
    dir.ancestors().find(|it| it.exists()).unwrap_or(dir)
}

/// Checks the store without a daemon, and does not start one.
fn without_daemon(dir: &Path) -> Vec<CheckLine> {
    let mut checks = vec![check("daemon", Level::Ok, "not running", "regatta up")];
    let store = dir.join(wire::STORE);
    checks.push(match regatta_store::examine(&store) {
        Ok(()) if store.exists() => check("store", Level::Ok, "intact; its rows were not checked", ""),
        Ok(()) => check("store", Level::Ok, "none yet", ""),
        Err(error) => check("store", Level::Bad, error.what, error.hint),
    });
    checks
}

/// Checks the daemon's store, agents and bridges. Also returns whether an agent exists that is not
/// a scripted agent.
fn store_and_agents(client: &Client) -> (Vec<CheckLine>, bool) {
    let url = daemon::read_card(client.place())
        .map_or("up".into(), |it| format!("{} (pid {}, {})", it.url, it.pid, it.version));
    let mut checks = vec![check("daemon", Level::Ok, url, "")];
    checks.push(match client.call::<String>(&Call::Check(input::Nothing {})) {
        Ok(_) => check("store", Level::Ok, "intact", ""),
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
    // An invalid setting belongs to no bridge, so only the inbox has it.
    match client.call::<Vec<InboxView>>(&Call::InboxList(input::Scope { project: None })) {
        Err(error) => checks.push(from_failed("bridges", &error)),
        Ok(got) => {
            let faults = got.data.iter().filter(|item| item.id.starts_with("bridge:setting:"));
            checks.extend(faults.map(|item| check("bridges", Level::Bad, item.subject.clone(), item.why.clone())));
        }
    }
    (checks, has_agents)
}

/// Ends abandoned processes and removes their files. Agents whose daemon is down keep running by
/// design, so a person decides about them.
fn strays(own: &Path, end_strays: bool) -> Vec<CheckLine> {
    let mut checks = match wire::sweep_strays(own) {
        Ok(done) => done.into_iter().map(|what| check("strays", Level::Ok, what, "")).collect(),
        Err(error) => vec![check("strays", Level::Warn, format!("could not search for stray processes: {error}"), "")],
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
        let what = format!("attempts of {dir} run without a daemon: {} (pid {})", shims.len(), pids.join(", "));
        if !end_strays {
            let fix = format!(
                "to start their daemon: REGATTA_DATA_DIR={dir} regatta up; to end them: regatta doctor --end-strays"
            );
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

/// Checks a bridge.
fn of_bridge(it: &BridgeView) -> CheckLine {
    let whole = it.off.is_none() && it.warning.is_none() && it.health.connected.is_some();
    let level = if whole { Level::Ok } else { Level::Warn };
    let fix = if whole { "" } else { "fix its settings (docs/bridges.md, .env.example), then: regatta up --restart" };
    check(&format!("bridge {}", it.name), level, super::bridge::state(it), fix)
}

/// Checks an agent's program and sandbox.
fn of_agent(it: &AgentView) -> Vec<CheckLine> {
    let mut checks = Vec::new();
    if let Some(argv) = it.agent.runtime.argv().filter(|_| it.parked.is_none()) {
        checks.push(program_of(it, argv.first().map(String::as_str).unwrap_or_default()));
    }
    if it.agent.profile.confine == Some(Confined::Off) {
        let text = format!("{} has no sandbox, so its program may do everything that you may do", it.agent.name);
        checks.push(check("sandbox", Level::Warn, text, "regatta agent add … --confine workspace"));
    }
    checks
}

/// Returns one check for each reason why agents are parked.
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
        // The text after that is the fix.
        let what = why.split_once("; fix that").map_or(why, |(what, _)| what);
        let text = if names.len() == 1 { what.to_owned() } else { format!("{} agents: {what}", names.len()) };
        check("agent", Level::Warn, text, format!("fix that, then: regatta resume {}", names.join(" ")))
    };
    causes.into_iter().map(line).collect()
}

/// Checks that an agent's program is installed and signed in.
fn program_of(it: &AgentView, program: &str) -> CheckLine {
    let preset = it.agent.profile.preset.as_deref().and_then(presets::find).map(|it| it.0);
    let machine = Machine::here();
    let seen = preset.map(|it| discover::find(it, &machine));
    let available = |profile, preset| sign_in::available(profile, preset, &machine);
    match (&seen, found(program)) {
        (_, false) => {
            let fix = preset.map_or_else(
                || format!("install it, or remove the agent: regatta agent rm {}", it.agent.name),
                |it| it.install.to_owned(),
            );
            check("agent", Level::Bad, format!("{}: {program} is not installed", it.agent.name), fix)
        }
        // The user may be signed in while the sandboxed agent has no access to that sign-in.
        (Some(seen), true)
            if it.agent.profile.keys.is_empty() && available(&it.agent.profile, seen.preset) == SignIn::None =>
        {
            let text = format!("{}: {program} is not signed in", it.agent.name);
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

/// Checks the agent programs of each provider: installed, version, signed in. Programs that are not
/// installed share one line. That line is a warning only if nothing is installed and no agent
/// exists that works without them.
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
    let how = "regatta provider lists how to install each";
    match (checks.is_empty(), missing.is_empty()) {
        (_, true) => {}
        (false, _) => checks.push(check("providers", Level::Ok, format!("not installed: {}", missing.join(", ")), how)),
        (true, _) if has_agents => {
            checks.push(check("providers", Level::Ok, "no known agent program is installed", how))
        }
        (true, _) => {
            let text = "no agent program is installed";
            let fix = format!("{how}; to try Regatta without one: regatta demo");
            checks.push(check("providers", Level::Warn, text, fix));
        }
    }
    checks
}

/// Checks an installed agent program of a provider.
fn provided(provider: &str, found: &Found) -> CheckLine {
    let version = found.version.as_deref().unwrap_or("unknown version");
    let name = found.preset.name;
    let signed = match &found.sign_in {
        SignIn::Key(key) => format!("signed in with {key}"),
        SignIn::File(_) => "signed in".to_owned(),
        SignIn::NotNeeded => "no sign-in needed".to_owned(),
        SignIn::None => "not signed in".to_owned(),
    };
    let level = if found.fix.is_some() { Level::Warn } else { Level::Ok };
    let text = format!("{provider}: {name} {version}, {signed}");
    check("provider", level, text, found.fix.clone().unwrap_or_default())
}

/// Checks which sandbox this machine supports.
fn sandbox() -> CheckLine {
    let found = wire::sandboxes();
    match found.iter().find(|it| it.1.is_none()) {
        Some((name, _)) => check("sandbox", Level::Ok, name.clone(), ""),
        None => {
            let why: Vec<String> =
                found.iter().map(|(name, why)| format!("{name}: {}", why.clone().unwrap_or_default())).collect();
            let text = format!("agents run without a sandbox, because this machine supports none ({})", why.join("; "));
            check(
                "sandbox",
                Level::Warn,
                text,
                "install bubblewrap (apt-get install bubblewrap), or use a kernel with Landlock (6.2)",
            )
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

    /// In a narrow window a fix is printed in full below its text.
    #[test]
    fn a_fix_is_printed_in_full_in_a_narrow_window() {
        let fix = "sign in with `claude /login`, or give the agent a key in ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN";
        let checks = [
            check("git", Level::Ok, "2.47.3", ""),
            check("provider", Level::Warn, "anthropic: claude-native 2.1.325, not signed in", fix),
        ];
        let out = Out { json: false, quiet: 0, colour: true, hints: false, unicode: true, pager: None };
        let text = draw(&out, &checks, Some(60));
        assert!(text.lines().all(|line| width(line) <= 60), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(fix), "{text}");
        let text = draw(&Out { colour: false, ..out }, &checks, Some(300));
        assert_eq!(text.lines().next(), Some("✓ git       2.47.3"), "one line per check in a wide window: {text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
