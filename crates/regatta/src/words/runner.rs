//! The command `runner`: runs attempts for a daemon on another machine, and manages such runners.

use std::time::Duration;

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::RunnerView;
use regatta_core::ids::{AttemptId, RunnerName};
use regatta_core::runner::State;

use super::App;
use crate::args::{RunnerArgs, RunnerWord};
use crate::client::Got;
use crate::out::{Failed, Said, ago, failed, table, usage};
use crate::runner::{self, Settings};

/// Runs `regatta runner`.
pub(super) fn runner(app: &App, it: RunnerArgs) -> Said {
    match it.word {
        Some(RunnerWord::List) => list(app),
        Some(RunnerWord::Drain { name }) => {
            let _left: Got<Vec<AttemptId>> = app.call(&Call::RunnerDrain(input::RunnerName { name: name.clone() }))?;
            let next = ["regatta runner list".to_owned()];
            app.out.answer("runner.drain", &name, &next, |_| {
                format!("{name} takes no new tasks; its running attempts continue\n")
            })
        }
        Some(RunnerWord::Rm { name }) => {
            let _done: Got<String> = app.call(&Call::RunnerRm(input::RunnerName { name: name.clone() }))?;
            app.out.answer("runner.rm", &name, &[], |_| format!("removed {name}\n"))
        }
        None => work(app, it),
    }
}

fn list(app: &App) -> Said {
    let got: Got<Vec<RunnerView>> = app.call(&Call::RunnerList(input::Nothing {}))?;
    app.out.answer("runner.list", &got.data, &[], |_| {
        if got.data.is_empty() {
            return "no other runners; to add one, run on another machine: regatta runner --server URL --token-file FILE\n"
                .into();
        }
        let row = |it: &RunnerView| {
            let state = match it.state {
                State::Up => "up",
                State::Draining => "draining",
                State::Offline => "offline",
                State::Lost => "lost",
            };
            let whom = match it.agents.as_slice() {
                [] => "all agents".to_owned(),
                some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            };
            vec![
                it.name.to_string(),
                state.to_owned(),
                format!("{}/{}", it.running, it.max_tasks),
                whom,
                it.labels.join(","),
                format!("last seen {} ago", ago(it.seen_wall)),
            ]
        };
        table(&got.data.iter().map(row).collect::<Vec<_>>())
    })
}

/// Runs attempts for a daemon until the process is stopped.
fn work(app: &App, it: RunnerArgs) -> Said {
    let server = app.global.server.clone().ok_or_else(|| {
        usage(
            "a runner needs the address of a daemon",
            "add it: regatta runner --server http://HOST:PORT --token-file FILE",
        )
    })?;
    let file = it.token_file.ok_or_else(|| usage("a runner needs a token", "add --token-file FILE"))?;
    let token = std::fs::read_to_string(&file).map_err(|error| {
        let hint = "create a token on the daemon's machine: regatta token add NAME --scope runner > FILE";
        failed("no_token", format!("could not read the token in {}: {error}", file.display()), hint)
    })?;
    let name = match it.name {
        Some(name) => name,
        None => this_machine()?,
    };
    let settings = Settings {
        server,
        token: token.trim().to_owned(),
        ca: std::env::var_os("REGATTA_TLS_CA").map(Into::into),
        name,
        max_tasks: it.max_tasks,
        agents: it.agents,
        labels: it.labels,
        shutdown: Duration::from_millis(it.shutdown_timeout),
    };
    runner::run(&app.out, &app.data_dir()?, settings)
}

/// Returns this machine's host name, if it can be the name of a runner.
fn this_machine() -> Result<RunnerName, Failed> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_lowercase();
    RunnerName::new(name.split('.').next().unwrap_or_default()).map_err(|it| {
        usage(format!("this machine's name cannot be the name of a runner: {it}"), "choose a name: --name build-box")
    })
}
