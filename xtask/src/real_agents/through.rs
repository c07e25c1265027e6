//! The scenarios through the real binary: a repository, a daemon, an agent, a task, and what reaches the trunk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use regatta_testkit::models::{Act, Ended, Failure, Hold, Story, Turn};
use serde_json::{Value, json};

use super::account::{MARK, called, kill, marked, sweep, until};
use super::bench::{Bench, CONTENT, FILE, KEY, Run};
use super::cell::{Cell, Scenario};
use super::programs::{Asks, Drive, Row};
use super::straight::{hangs, writes};

/// From the plan to the trunk, with the slowest program on a busy machine.
const LANDS: Duration = Duration::from_secs(180);
/// For a program to start and ask the model.
const STARTS: Duration = Duration::from_secs(90);
/// For what should take a second or two.
const SOON: Duration = Duration::from_secs(45);

/// The variable of the daemon's from which the agents' keys come.
const KEY_VARIABLE: &str = "REAL_AGENTS_KEY";
/// The one task of the plan.
const TASK: &str = "T1";
const AGENT: &str = "real";

/// What the table of these scenarios is about.
pub(crate) const ABOUT: &str = "A repository, a real daemon, an agent added with its preset, a task, and what reaches \
    the trunk; each run also looks for processes left over (P3) and for the key in the data directory (S4). \"Call a \
    Regatta tool\": the model calls `progress` of the MCP server that the program was handed with the attempt's own \
    token, and what it said is on the board; Codex lists no tools of servers, so there the model searches for it first, \
    as its own would. \"Daemon restart\" is a kill -9 of the daemon in mid-turn.";

/// The binary to drive: the one that was named, or the newest that was built here.
pub(crate) fn binary(target: &Path, named: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(named) = named {
        return std::fs::canonicalize(named).with_context(|| format!("there is no {named}"));
    }
    let built = ["release", "debug"].map(|it| target.join(it).join("regatta"));
    built.into_iter().find(|it| it.exists()).context("there is no regatta here; build it: cargo build -p regatta")
}

/// Runs one scenario. Whatever happens, nothing of it runs on.
pub(crate) fn run(bench: &Bench<'_>, row: &Row, scenario: Scenario) -> Cell {
    if scenario == Scenario::Permission
        && let Some(why) = row.never_asks()
    {
        return Cell::NotPossible(why.into());
    }
    let asks = if scenario == Scenario::Permission { Asks::Always } else { Asks::Never };
    let world = match World::new(bench, row, scenario, asks) {
        Ok(world) => world,
        Err(error) => return Cell::failed(format!("{error:#}")),
    };
    let done = world.set_up(row).and_then(|()| match scenario {
        Scenario::Write => write(&world),
        Scenario::Tool => tool(&world, row),
        Scenario::Permission => permission(&world),
        Scenario::Cancel => cancel(&world),
        Scenario::Restart => restart(&world),
        Scenario::Limited | Scenario::Overloaded => refused_for_a_while(&world, scenario),
        Scenario::UsedUp => used_up(&world),
        Scenario::Kill => kill_agent(&world),
    });
    let ended = world.end();
    let faults = bench.models.faults();
    match (done, ended) {
        (Err(error), _) => Cell::failed(format!("{error:#}")),
        (Ok(cell), _) if !cell.is_good() => cell,
        (Ok(_), Err(error)) => Cell::failed(format!("{error:#}")),
        (Ok(_), Ok(())) if !faults.is_empty() => Cell::failed(format!("the model server says: {}", faults.join("; "))),
        (Ok(cell), Ok(())) => cell,
    }
}

/// A managed repository with one agent.
struct World<'a> {
    bench: &'a Bench<'a>,
    run: Run,
    data: PathBuf,
    binary: PathBuf,
}

impl<'a> World<'a> {
    /// Directories, and nothing that runs.
    fn new(bench: &'a Bench<'a>, row: &Row, scenario: Scenario, asks: Asks) -> anyhow::Result<World<'a>> {
        let run = bench.place(row, scenario.word(), asks)?;
        let binary = bench.regatta.clone().context("no binary was chosen")?;
        bench.account.must_reach(&binary)?;
        Ok(World { bench, data: run.dir.join("data"), run, binary })
    }

    fn set_up(&self, row: &Row) -> anyhow::Result<()> {
        self.ask(&["init", "--yes", "--validate", "test -e README"])?;
        self.bench.git(&self.run.work, &["add", "-A"])?;
        self.bench.git(&self.run.work, &["commit", "-q", "-m", "Use regatta"])?;
        self.add_agent(row)
    }

    /// Registers the program, with its variables, its key and no confinement but the program's own.
    fn add_agent(&self, row: &Row) -> anyhow::Result<()> {
        let outfit = &self.run.outfit;
        let runtime = match row.drive {
            Drive::Acp => "acp",
            Drive::Claude => "claude",
            Drive::CodexExec => "codex",
            Drive::CodexServer => "codex-server",
        };
        let command = outfit.argv.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(" ");
        let mut args: Vec<String> =
            ["agent", "add", AGENT, "--runtime", runtime, "--command"].map(str::to_owned).into();
        args.push(command);
        args.extend(["--confine".into(), "off".into()]);
        args.extend(["--key".into(), format!("{}=env:{KEY_VARIABLE}", outfit.key)]);
        // Programs that are scripts are all called `node`; the preset says which it is.
        args.extend(["--preset".into(), row.preset.into()]);
        if let Some(mode) = outfit.mode {
            args.extend(["--mode".into(), mode.into()]);
        }
        for (name, value) in outfit.env.iter().chain([&(MARK.to_owned(), self.run.mark.clone())]) {
            args.extend(["--env".into(), format!("{name}={value}")]);
        }
        self.ask(&args.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(())
    }

    /// The binary in the repository, as the account, with nothing of the caller's environment.
    fn words(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .current_dir(&self.run.work)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.run.home)
            .env("TMPDIR", self.run.home.join("tmp"))
            .env("LANG", "C.UTF-8")
            .env("USER", "ann")
            .env("REGATTA_DATA_DIR", &self.data)
            .env("REGATTA_LISTEN", "127.0.0.1:0")
            .env(KEY_VARIABLE, KEY)
            .stdin(Stdio::null());
        self.bench.account.apply(&mut command);
        command
    }

    /// Says something and gives the data of the answer.
    fn ask(&self, args: &[&str]) -> anyhow::Result<Value> {
        let ran = self.words(&[args, &["--json"]].concat()).output()?;
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        ensure!(ran.status.success(), "regatta {}: {} {}", args[0], out.trim(), err.trim());
        let answer: Value = serde_json::from_str(&out).with_context(|| format!("regatta {} said {out:?}", args[0]))?;
        Ok(answer["data"].clone())
    }

    /// Starts the plan in the background.
    fn start(&self) -> anyhow::Result<Going> {
        let plan = self.run.dir.join("plan.toml");
        let text = format!(
            "[[task]]\nid = \"one\"\nsubject = \"Write {FILE}\"\ndescription = \"The word is {} and nothing else.\"\n\
             files = [\"{FILE}\"]\nvalidation = {{ files_exist = [\"{FILE}\"] }}\n",
            self.run.marker
        );
        std::fs::write(&plan, text)?;
        let plan = plan.to_string_lossy().into_owned();
        let mut command = self.words(&["run", &plan, "--agents", AGENT, "--yes", "--wait", "--json"]);
        let out = self.run.dir.join("run.out");
        command.stdout(std::fs::File::create(&out)?).stderr(std::fs::File::create(self.run.dir.join("run.err"))?);
        Ok(Going { child: command.spawn()?, out })
    }

    /// Whether the file is on the trunk as the story wrote it.
    fn landed(&self) -> bool {
        let shown = self.bench.git(&self.run.work, &["show", &format!("main:{FILE}")]);
        shown.is_ok_and(|it| it == CONTENT.trim_end())
    }

    /// Waits until the model's answer hangs.
    fn until_hanging(&self) -> anyhow::Result<()> {
        let hanging = || self.bench.models.seen_of(&self.run.marker).iter().any(|it| it.ended.is_none());
        ensure!(until(STARTS, hanging), "the model was not asked: {}", self.why());
        Ok(())
    }

    /// Why the task waits, for a report.
    fn why(&self) -> String {
        match self.ask(&["why", TASK]) {
            Ok(why) => why.to_string(),
            Err(error) => format!("{error:#}"),
        }
    }

    /// The daemon's process.
    fn daemon(&self) -> anyhow::Result<u32> {
        let card: Value = serde_json::from_slice(&std::fs::read(self.data.join("daemon.json"))?)?;
        let pid = card["pid"].as_u64().and_then(|it| u32::try_from(it).ok());
        pid.context("the daemon's card has no process number")
    }

    /// The agent's own process: the marked one whose parent is not.
    fn agent(&self) -> anyhow::Result<u32> {
        let all = marked(&self.run.mark);
        let top = all.iter().find(|it| parent(**it).is_some_and(|it| !all.contains(&it)));
        top.copied().context("no process of the agent is there")
    }

    /// Stops everything; fails if something outlived that (P3), or the key was written down (S4).
    fn end(&self) -> anyhow::Result<()> {
        let down = self.ask(&["down", "--timeout", "40s"]);
        let gone = until(Duration::from_secs(10), || marked(&self.run.mark).is_empty());
        let left: Vec<String> = marked(&self.run.mark).into_iter().map(called).collect();
        sweep(&self.run.mark);
        if let Ok(daemon) = self.daemon()
            && Path::new(&format!("/proc/{daemon}/environ")).exists()
            && down.is_err()
        {
            kill(daemon);
        }
        down.context("`regatta down` failed")?;
        ensure!(gone, "P3: `regatta down` left {} running", left.join(", "));
        if let Some(file) = holds(&self.data, KEY.as_bytes())? {
            bail!("S4: the key is in {}", file.strip_prefix(&self.run.dir).unwrap_or(&file).display());
        }
        Ok(())
    }
}

/// A plan that runs.
struct Going {
    child: Child,
    out: PathBuf,
}

impl Going {
    /// Waits for its end; gives its exit code and what it printed.
    fn end(mut self, patience: Duration) -> anyhow::Result<(i32, String)> {
        let mut status = None;
        until(patience, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        let said = std::fs::read_to_string(&self.out).unwrap_or_default();
        let status = status.with_context(|| format!("`regatta run` did not end within {patience:?}: {said}"))?;
        Ok((status.code().unwrap_or(-1), said))
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn quoted(word: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "/-_.=@:+,".contains(it);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// The first file below a directory that holds these bytes.
pub(crate) fn holds(dir: &Path, wanted: &[u8]) -> anyhow::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(dir)? {
        let (path, kind) = entry.and_then(|it| Ok((it.path(), it.file_type()?)))?;
        let found = if kind.is_dir() {
            holds(&path, wanted)?
        } else if kind.is_file() {
            std::fs::read(&path)?.windows(wanted.len()).any(|it| it == wanted).then_some(path)
        } else {
            None
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Waits for the plan to end well and the file to be on the trunk.
fn lands(world: &World<'_>, going: Going) -> anyhow::Result<Cell> {
    let (code, said) = going.end(LANDS)?;
    Ok(match code {
        0 if world.landed() => Cell::passed(),
        0 => Cell::failed("the plan ended well, but the file is not on the trunk"),
        code => Cell::failed(format!("`regatta run` ended with {code}: {said} {}", world.why())),
    })
}

fn write(world: &World<'_>) -> anyhow::Result<Cell> {
    world.bench.models.tell(writes(&world.run.marker));
    lands(world, world.start()?)
}

/// The program was given Regatta's tools and the attempt's own token: what the model says with one of them is on the
/// board.
fn tool(world: &World<'_>, row: &Row) -> anyhow::Result<Cell> {
    let words = "Said with a tool of Regatta's.";
    let call = Act::Call { tool: "progress".into(), input: json!({ "text": words }) };
    let mut turns = vec![Turn::act(call), Turn::write(FILE, CONTENT), Turn::say("It is written.")];
    // Codex lists no tools of servers: its model searches for what it knows of.
    if row.program.name.starts_with("codex") {
        turns.insert(0, Turn::act(Act::Find { tool: "progress".into() }));
    }
    world.bench.models.tell(Story::new(&world.run.marker, turns));
    let cell = lands(world, world.start()?)?;
    let events = world.words(&["events", "--json"]).output()?;
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    if !cell.is_good() || events.lines().any(|it| it.contains("task.progressed") && it.contains(words)) {
        return Ok(cell);
    }
    let answers: Vec<String> =
        world.bench.models.seen_of(&world.run.marker).into_iter().flat_map(|it| it.results).collect();
    Ok(Cell::failed(format!("it is not on the board; the tool said {answers:?}")))
}

/// What the program asks is in the inbox; a yes lets it go on.
fn permission(world: &World<'_>) -> anyhow::Result<Cell> {
    world.bench.models.tell(writes(&world.run.marker));
    world.ask(&["policy", "add", "ask", "--for", "all"])?;
    let going = world.start()?;
    let mut answered = 0;
    let open = || -> anyhow::Result<Option<String>> {
        let inbox = world.ask(&["inbox"])?;
        let items = inbox.as_array().or_else(|| inbox["items"].as_array()).cloned().unwrap_or_default();
        // A task that needs a person is there too, under its own number.
        Ok(items.iter().filter_map(|it| it["id"].as_str()).find(|it| it.starts_with('Q')).map(str::to_owned))
    };
    let mut trouble = None;
    until(LANDS, || {
        match open() {
            Ok(Some(id)) => match world.ask(&["allow", &id]) {
                Ok(_) => answered += 1,
                Err(error) => trouble = Some(error),
            },
            Ok(None) => {}
            Err(error) => trouble = Some(error),
        }
        trouble.is_some() || world.landed()
    });
    if let Some(error) = trouble {
        return Err(error);
    }
    if answered == 0 {
        return Ok(Cell::failed(format!("it did not ask: {}", world.why())));
    }
    lands(world, going)
}

/// Stopped in mid-turn, the program lets the model go, nothing of it runs on, and nothing lands.
fn cancel(world: &World<'_>) -> anyhow::Result<Cell> {
    world.bench.models.tell(hangs(&world.run.marker));
    let going = world.start()?;
    world.until_hanging()?;
    world.ask(&["stop", TASK])?;
    let quiet = || world.bench.models.seen_of(&world.run.marker).iter().all(|it| it.ended == Some(Ended::HungUp));
    if !until(SOON, quiet) {
        return Ok(Cell::failed("the model was not let go"));
    }
    if !until(SOON, || marked(&world.run.mark).is_empty()) {
        let left: Vec<String> = marked(&world.run.mark).into_iter().map(called).collect();
        return Ok(Cell::failed(format!("P3: {} runs on after the stop", left.join(", "))));
    }
    let (code, said) = going.end(SOON)?;
    Ok(match code {
        _ if world.landed() => Cell::failed("it landed all the same"),
        0 => Cell::failed(format!("the stopped plan ended as if done: {said}")),
        _ => Cell::passed(),
    })
}

/// The daemon dies in mid-turn and another takes over: the program notices nothing and the turn is asked for once.
fn restart(world: &World<'_>) -> anyhow::Result<Cell> {
    world.bench.models.tell(hangs(&world.run.marker));
    let going = world.start()?;
    world.until_hanging()?;
    let agent = world.agent()?;
    kill(world.daemon()?);
    drop(going);
    world.ask(&["up"])?;
    if world.agent().ok() != Some(agent) {
        return Ok(Cell::failed("P1: the agent did not outlive the daemon"));
    }
    world.bench.models.release(&world.run.marker);
    if !until(LANDS, || world.landed()) {
        return Ok(Cell::failed(format!("the work did not land: {}", world.why())));
    }
    let asked = world.bench.models.seen_of(&world.run.marker).len();
    Ok(if asked == 2 { Cell::passed() } else { Cell::failed(format!("the model was asked {asked} times, not twice")) })
}

/// The provider refuses for a while; in the end the work lands, whoever waits.
fn refused_for_a_while(world: &World<'_>, scenario: Scenario) -> anyhow::Result<Cell> {
    let (failure, time) = match scenario {
        Scenario::Limited => {
            let reset = Duration::from_secs(3);
            (Failure::RateLimited { reset }, reset)
        }
        _ => (Failure::Overloaded, Duration::from_secs(20)),
    };
    let turns = [Turn::fail(failure).held(Hold::For(time)), Turn::write(FILE, CONTENT), Turn::say("It is written.")];
    world.bench.models.tell(Story::new(&world.run.marker, turns));
    lands(world, world.start()?)
}

/// The allowance is used up for an hour: the task waits for the reset, and says so.
fn used_up(world: &World<'_>) -> anyhow::Result<Cell> {
    let failure = Failure::UsedUp { reset: Duration::from_secs(3600) };
    world.bench.models.tell(Story::new(&world.run.marker, []).then_always(Turn::fail(failure)));
    // Some programs wait for the hour in silence: then it is for the silence breaker to end them.
    world.ask(&["config", "set", "silence", "60s"])?;
    let going = world.start()?;
    let mut why = String::new();
    let ended = until(LANDS, || {
        why = world.why();
        why.contains("rate_limit") || why.contains("nothing was heard of it")
    });
    drop(going);
    Ok(match ended {
        true if why.contains("rate_limit") => Cell::passed(),
        true => Cell::Passed("it says nothing of the limit; the silence breaker ended it".into()),
        false => Cell::failed(format!("the task does not wait for the reset: {why}")),
    })
}

/// The program is killed in mid-turn: another attempt does the work, and nothing of the first runs on.
fn kill_agent(world: &World<'_>) -> anyhow::Result<Cell> {
    let mut story = hangs(&world.run.marker);
    // Asked again, the model does not hang: the next attempt writes the file.
    story.turns.truncate(1);
    story.turns.extend(writes(&world.run.marker).turns);
    world.bench.models.tell(story);
    let going = world.start()?;
    world.until_hanging()?;
    let first = marked(&world.run.mark);
    kill(world.agent()?);
    let cell = lands(world, going)?;
    let alive: Vec<String> = marked(&world.run.mark).into_iter().filter(|it| first.contains(it)).map(called).collect();
    Ok(if alive.is_empty() { cell } else { Cell::failed(format!("of the killed program {} lives", alive.join(", "))) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_a_shell_reads_them() {
        assert_eq!(quoted("/a/b-c.js"), "/a/b-c.js");
        assert_eq!(quoted("it's {x}"), r"'it'\''s {x}'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn bytes_are_found_in_any_file_below() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/log"), [&[0u8, 255][..], b"xx-secret-yy"].concat()).unwrap();
        assert_eq!(holds(dir.path(), b"secret").unwrap(), Some(dir.path().join("a/b/log")));
        assert_eq!(holds(dir.path(), b"other").unwrap(), None);
    }
}
