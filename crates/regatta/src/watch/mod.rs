//! `regatta watch`: the live state of the fleet in a terminal, with the inbox answered by key.
//!
//! [`model`] holds the data and the position of the person, [`keys`] handles a key press, and
//! [`draw`] draws the screen. All three are pure. This module does the rest: it owns the terminal,
//! reads the daemon's stream through [`line`], and executes the requests of the keys. Without a
//! terminal, `watch` prints one line per event instead.

mod change; // a task's diff and the comments on it
mod draw; // drawing
mod keys; // the keyboard
mod line; // the daemon's stream
mod model; // the data on the screen
mod pane; // a program's log
#[cfg(test)]
mod tests;
mod texts; // pages that are lists of lines

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEvent};
use regatta_api::page::Action;
use regatta_api::page::DoctorView;
use regatta_api::view::{BridgeView, DiffView, EventView, LineView};
use regatta_api::{Call, input};
use regatta_core::ids::{AttemptId, TaskId};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::client::{Client, Got, Seen};
use crate::out::{self, Failed, Said, failed};
use crate::words::App;

use change::{Diff, How};
use model::{Model, Page, Wish};

/// The shortest time between two drawings of the screen. [`TICK`] is the longest time, because ages
/// on the screen grow.
const FRAME: Duration = Duration::from_millis(50);
const TICK: Duration = Duration::from_millis(500);
/// How often new records of a visible log are read.
const READ_ON: Duration = Duration::from_millis(700);
/// How many records of a log are read at once.
const PIECE: usize = 200;

/// A message to the thread of the screen.
enum News {
    Key(KeyEvent),
    /// The window was resized.
    Resized,
    Heard {
        event: String,
        data: String,
    },
    Alive,
    Lost(String),
    Log(AttemptId, Result<Vec<LineView>, String>),
    Diff(TaskId, How, Result<String, String>),
    /// The events that were read, with the revision of the last one.
    Events(Result<(u64, Vec<EventView>), String>),
    Setup(Box<Result<texts::Found, String>>),
    /// The result of actions.
    Done(Vec<Action>, Result<String, String>),
    /// A signal asks the program to end, with this exit code.
    End(u8),
}

/// Work that another thread does for the screen.
enum Errand {
    Do(Vec<Action>),
    Log(AttemptId, u64),
    Diff(TaskId, How),
    Events(u64),
    Setup,
}

pub(crate) fn watch(app: &App) -> Said {
    let client = app.client()?;
    if app.out.json || !out::watched() || !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        return lines(app, &client);
    }
    let (news, heard) = channel();
    let wanted = line::Wanted::default();
    let mut model = Model::new(app.out.unicode, app.out.colour);
    model.own_project = app.project(&client)?;
    wanted.set(model.topics());
    let errands = run_errands(app, &news)?;
    listen_for_signals(&news)?;
    {
        // The stream needs a connection of its own, because its thread never leaves it.
        let (client, wanted, news) = (app.client()?, wanted.clone(), news.clone());
        std::thread::spawn(move || line::listen(&client, &wanted, &news));
    }
    // The terminal is restored at every end, even after a panic.
    let broken = |it: std::io::Error| failed("io", format!("could not set up the terminal: {it}"), "try another terminal");
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let keys = news.clone();
    std::thread::spawn(move || read_keys(&keys));
    let screen = Screen { heard, wanted, errands };
    let ended = screen.run(&mut model, &mut terminal);
    let restored = ratatui::try_restore().map_err(broken);
    let code = ended.map_err(broken)?;
    restored?;
    // Print unsent comments, so that they are not lost.
    for (task, drafts) in &model.drafts {
        app.out.note(&format!("the comments on {task} were not sent; send them: {}", drafts.cli(*task)));
    }
    if code == 0 { Ok(()) } else { Err(Failed::Code(code)) }
}

/// Prints a line for each event from now on, when there is no terminal.
fn lines(app: &App, client: &Client) -> Said {
    let out = &app.out;
    let now: Got<Value> = client.call(&Call::AgentList(input::Nothing {}))?;
    client.events(now.revision, true, |seen| {
        if let Seen::Event(event) = seen {
            if out.json {
                let text =
                    serde_json::to_string(&event).map_err(|it| failed("bug", it.to_string(), "please report this"))?;
                out.print(&format!("{text}\n"))?;
            } else if let Some(text) = crate::follow::milestone(&event) {
                out.print(&format!("{text}\n"))?;
            }
        }
        Ok(true)
    })
}

fn read_keys(to: &Sender<News>) {
    while let Ok(event) = event::read() {
        let news = match event {
            Event::Key(key) => News::Key(key),
            Event::Resize(..) => News::Resized,
            _ => continue,
        };
        if to.send(news).is_err() {
            return;
        }
    }
    // The terminal is gone, so nobody can press a key to quit.
    let _nobody = to.send(News::End(1));
}

fn listen_for_signals(to: &Sender<News>) -> Result<(), Failed> {
    let broken = |it: std::io::Error| failed("io", format!("could not install the signal handlers: {it}"), "try again");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
    let (mut ends, mut hung, mut breaks) = {
        let _inside = runtime.enter();
        let of = |kind| signal(kind).map_err(broken);
        (of(SignalKind::terminate())?, of(SignalKind::hangup())?, of(SignalKind::interrupt())?)
    };
    let to = to.clone();
    std::thread::spawn(move || {
        let code = runtime.block_on(async {
            tokio::select! {
                _ = ends.recv() => 143,
                _ = hung.recv() => 129,
                _ = breaks.recv() => 130,
            }
        });
        let _nobody = to.send(News::End(code));
    });
    Ok(())
}

/// Starts a thread that does slow work in order, so that the screen never waits.
fn run_errands(app: &App, to: &Sender<News>) -> Result<Sender<Errand>, Failed> {
    let (client, to, (errands, todo)) = (app.client()?, to.clone(), channel());
    std::thread::spawn(move || {
        for errand in todo {
            let news = match errand {
                Errand::Do(actions) => {
                    let went = carry_out(&client, &actions);
                    News::Done(actions, went)
                }
                Errand::Log(attempt, from) => {
                    let call = Call::Transcript(input::Transcript { attempt, from, limit: PIECE });
                    News::Log(attempt, ask::<Vec<LineView>>(&client, &call))
                }
                Errand::Diff(task, how) => {
                    let call = Call::Diff(input::Diff { id: task.to_string(), since_review: how.since_review });
                    News::Diff(task, how, ask::<DiffView>(&client, &call).map(|it| it.patch))
                }
                Errand::Events(after) => News::Events(read_events(&client, after)),
                Errand::Setup => News::Setup(Box::new(look_around(&client))),
            };
            if to.send(news).is_err() {
                return;
            }
        }
    });
    Ok(errands)
}

/// Performs a call without starting a daemon, because a person may have stopped it on purpose.
fn ask<T: serde::de::DeserializeOwned>(client: &Client, call: &Call) -> Result<T, String> {
    match client.call_while_up(call) {
        Ok(Some(got)) => Ok(got.data),
        Ok(None) => Err("the daemon is not running; start it: regatta up".into()),
        Err(failed) => Err(failed.words()),
    }
}

/// Returns the events after a revision, with the revision of the last one.
fn read_events(client: &Client, after: u64) -> Result<(u64, Vec<EventView>), String> {
    let mut events = Vec::new();
    let read = client.events(after, false, |seen| {
        if let Seen::Event(event) = seen {
            events.push(*event);
        }
        Ok(true)
    });
    read.map_err(|it| it.words())?;
    Ok((events.last().map_or(after, |it| it.revision), events))
}

/// Reads how the daemon's machine is set up.
fn look_around(client: &Client) -> Result<texts::Found, String> {
    let doctor: DoctorView = ask(client, &Call::Doctor(input::Nothing {}))?;
    let bridges: Vec<BridgeView> = ask(client, &Call::BridgeList(input::Nothing {}))?;
    let policy: Vec<regatta_core::policy::Rule> = ask(client, &Call::PolicyList(input::Nothing {}))?;
    let lists = vec![("Bridges", crate::words::bridges_text(&bridges)), ("Policy", crate::words::policy_text(&policy))];
    Ok(texts::Found { doctor, lists })
}

/// Performs the same action for several items. Items that were answered in the meantime stay as
/// they are and are reported.
fn carry_out(client: &Client, actions: &[Action]) -> Result<String, String> {
    let mut done = 0;
    let mut problem = None;
    for action in actions {
        let call = serde_json::to_vec(&action.input)
            .map_err(|it| it.to_string())
            .and_then(|input| Call::parse(&action.verb, &input).map_err(|it| it.message));
        match call.and_then(|call| ask::<Value>(client, &call)) {
            Ok(_) => done += 1,
            Err(why) => problem = Some(why),
        }
    }
    let first = actions.first().map(|it| it.cli.as_str()).unwrap_or_default();
    match (problem, actions.len()) {
        (None, 1) => Ok(format!("done · same from a shell: {first}")),
        (None, many) => Ok(format!("answered {many} requests at once · same from a shell: {first}")),
        (Some(why), 1) => Err(why),
        (Some(why), many) => Err(format!("answered {done} of {many} requests; {why}")),
    }
}

struct Screen {
    heard: Receiver<News>,
    wanted: line::Wanted,
    errands: Sender<Errand>,
}

impl Screen {
    fn run(self, model: &mut Model, terminal: &mut ratatui::DefaultTerminal) -> std::io::Result<u8> {
        let (mut read_at, mut reading) = (Instant::now(), false);
        loop {
            model.now_wall = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
            terminal.draw(|frame| draw::draw(model, frame))?;
            let drawn = Instant::now();
            // Handle everything that arrives within the time of one frame before drawing.
            let mut patience = TICK;
            loop {
                let news = match self.heard.recv_timeout(patience) {
                    Ok(news) => news,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Ok(1),
                };
                let keyed = matches!(news, News::Key(_) | News::Resized);
                reading &= !matches!(news, News::Log(..) | News::Events(..));
                if let Some(code) = self.take(model, news) {
                    return Ok(code);
                }
                if keyed || drawn.elapsed() >= FRAME {
                    break;
                }
                patience = FRAME.saturating_sub(drawn.elapsed());
            }
            if let (Page::Task(_), false) = (model.page, reading)
                && read_at.elapsed() > READ_ON
            {
                (read_at, reading) = (Instant::now(), self.read_log(model));
            }
            if let (Page::Events, false) = (model.page, reading)
                && read_at.elapsed() > READ_ON
                && model.paused.is_none()
            {
                (read_at, reading) = (Instant::now(), self.read_events(model));
            }
        }
    }

    /// Requests the next records of the task's log. Returns false if there is no log.
    fn read_log(&self, model: &mut Model) -> bool {
        let last = model.task.as_ref().and_then(|it| it.log);
        if last.is_some() && last != model.log.attempt {
            let raw = model.log.raw;
            model.log = pane::Log { raw, ..last.map(pane::Log::of).unwrap_or_default() };
        }
        match model.log.attempt {
            Some(attempt) => self.errands.send(Errand::Log(attempt, model.log.next)).is_ok(),
            None => false,
        }
    }

    /// Requests the next events.
    fn read_events(&self, model: &Model) -> bool {
        self.errands.send(Errand::Events(model.events.from(model.seq))).is_ok()
    }

    /// Handles a message. Returns an exit code when the program is to end.
    fn take(&self, model: &mut Model, news: News) -> Option<u8> {
        match news {
            News::Key(key) => {
                for wish in keys::press(model, key) {
                    match wish {
                        Wish::Quit => return Some(0),
                        Wish::Topics => self.wanted.set(model.topics()),
                        Wish::Do(actions) => _ = self.errands.send(Errand::Do(actions)),
                        Wish::Log => _ = self.read_log(model),
                        Wish::Events => _ = self.read_events(model),
                        Wish::Setup => _ = self.errands.send(Errand::Setup),
                        Wish::Diff => {
                            if let Page::Task(id) = model.page {
                                let _gone = self.errands.send(Errand::Diff(id, model.how));
                            }
                        }
                    }
                }
            }
            News::Resized => {}
            News::Alive => model.link = model::Link::Live,
            News::Heard { event, data } => hear(model, &event, &data),
            News::Lost(why) => model.lost(why),
            News::Log(attempt, piece) if model.log.attempt == Some(attempt) => match piece {
                Ok(piece) => {
                    model.log.problem = None;
                    model.log.take(&piece);
                }
                Err(why) => model.log.problem = Some(why),
            },
            News::Log(..) => {}
            News::Diff(task, how, patch) if model.page == Page::Task(task) => match patch {
                Ok(patch) => model.diff = Diff::of(task, &patch, how),
                Err(why) => model.diff.problem = Some(why),
            },
            News::Diff(..) => {}
            News::Events(read) => model.events.take(read),
            News::Setup(found) => match *found {
                Ok(found) => model.setup = texts::Setup { found: Some(found), problem: None },
                Err(why) => model.setup.problem = Some(why),
            },
            News::Done(actions, Ok(text)) => {
                model.toast = Some((true, text));
                model.sent(&actions);
            }
            News::Done(_, Err(why)) => model.toast = Some((false, why)),
            News::End(code) => return Some(code),
        }
        None
    }
}

/// Applies a message of the stream to the model. A message that cannot be parsed comes from a
/// daemon of another version.
fn hear(model: &mut Model, event: &str, data: &str) {
    if event == "reset" {
        let topics = serde_json::from_str::<Value>(data).ok();
        let topics = topics.as_ref().and_then(|it| it.get("topics")?.as_array().cloned()).unwrap_or_default();
        topics.iter().filter_map(|it| it.as_str()).for_each(|it| model.reset(it));
        return;
    }
    match serde_json::from_str(data) {
        Ok(frame) => model.take(frame),
        Err(_) => model.toast = Some((false, "the daemon has another version; restart it: regatta up --restart".into())),
    }
}
