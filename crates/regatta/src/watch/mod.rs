//! `regatta watch`: shows live in a terminal what all agents do, and lets a person answer the inbox
//! by key.
//!
//! [`model`] holds the data and the person's position, [`keys`] handles a key press, and [`draw`]
//! draws the screen. These three modules do no input or output. This module owns the terminal,
//! reads the daemon's stream through [`live_client`], and carries out the requests of keys. Without
//! a terminal, `watch` prints one line per event instead.

mod diff; // a task's diff and the comments on it
mod draw; // drawing
mod keys; // the keyboard
mod list_pages; // pages that are lists of lines
mod live_client; // the daemon's stream
mod model; // the data on the screen
#[cfg(test)]
mod tests;
mod transcript; // a program's log

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use regatta_api::live_view::DoctorView;
use regatta_api::live_view::PageAction;
use regatta_api::verb::TypedCall;
use regatta_api::view::{BridgeView, EventView, JournalRecordView};
use regatta_api::{Call, call, input};
use regatta_core::ids::{AttemptId, TaskId};
use serde_json::Value;

use crate::client::{CallReply, Client, EventStreamItem};
use crate::commands::{CommandContext, CommandExamples};
use crate::interrupt::on_termination_signal;
use crate::output::{self, CommandError, CommandResult, command_error, internal_error};

use diff::{DiffPane, DiffViewOptions};
use model::{ScreenModel, ScreenPage, ScreenRequest};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("watch", &["regatta watch"])];

/// The minimum time between two drawings of the screen.
const MIN_FRAME_INTERVAL: Duration = Duration::from_millis(50);
/// The maximum time between two drawings of the screen. Without new data the screen is drawn again
/// too, because the ages on it grow.
const MAX_FRAME_INTERVAL: Duration = Duration::from_millis(500);
/// The interval at which new records are read while the log of an agent's program is visible.
const LOG_READ_INTERVAL: Duration = Duration::from_millis(700);
/// The maximum number of log records that are read with one call.
const LOG_READ_RECORDS: usize = 200;

/// A message to the screen's thread.
enum ScreenEvent {
    Key(KeyEvent),
    /// The window was resized.
    Resized,
    Message {
        event: String,
        data: String,
    },
    Heartbeat,
    Disconnected(String),
    Log(AttemptId, Result<Vec<JournalRecordView>, String>),
    Diff(TaskId, DiffViewOptions, Result<String, String>),
    /// The events that were read, with the revision (number) of the last event.
    Events(Result<(u64, Vec<EventView>), String>),
    Setup(Box<Result<list_pages::SetupInfo, String>>),
    /// The result of actions that the person requested.
    Done(Vec<PageAction>, Result<String, String>),
    /// A signal asks the program to end, with this exit code.
    Signal(u8),
}

/// Slow work that another thread does for the screen's thread.
enum BackgroundJob {
    Perform(Vec<PageAction>),
    Log(AttemptId, u64),
    Diff(TaskId, DiffViewOptions),
    Events(u64),
    Setup,
}

pub(crate) fn watch(app: &CommandContext) -> CommandResult {
    let client = app.client()?;
    if app.output.is_json
        || !output::is_stdout_watched()
        || !std::io::IsTerminal::is_terminal(&std::io::stdin())
    {
        return print_event_lines(app, &client);
    }
    let (event_tx, event_rx) = channel();
    let wanted_topics = live_client::WantedTopics::default();
    let mut model = ScreenModel::new(app.output.is_unicode, app.output.has_colour);
    model.own_project = app.project(&client)?;
    wanted_topics.set(model.topics());
    let jobs = spawn_job_thread(app, &event_tx)?;
    let signals = event_tx.clone();
    on_termination_signal(move |number| {
        let _nobody = signals.send(ScreenEvent::Signal(128 + number));
    })?;
    {
        // The stream needs its own connection, because its thread reads from it all the time.
        let (client, wanted_topics, event_tx) =
            (app.client()?, wanted_topics.clone(), event_tx.clone());
        std::thread::spawn(move || live_client::forward_stream(&client, &wanted_topics, &event_tx));
    }
    // From here on, the terminal's normal state is restored before the program ends, even after a
    // panic.
    let broken = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not set up the terminal: {error}"),
            "use another terminal, or print events instead: regatta events --follow",
        )
    };
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let keys = event_tx.clone();
    std::thread::spawn(move || read_keys(&keys));
    let screen = Screen {
        events: event_rx,
        wanted_topics,
        jobs,
    };
    let result = screen.run(&mut model, &mut terminal);
    let restored = ratatui::try_restore().map_err(broken);
    let code = result.map_err(broken)?;
    restored?;
    // Print the command that sends each draft of comments, so that the comments are not lost.
    for (task, drafts) in &model.drafts {
        app.output.print_note(&format!(
            "the comments on {task} were not sent; send them: {}",
            drafts.command(*task)
        ));
    }
    if code == 0 {
        Ok(())
    } else {
        Err(CommandError::Exit(code))
    }
}

/// The width of the screens that [`draw_frames`] draws, in which no line is cut.
const DRAWN_COLUMNS: u16 = 200;
/// The lines of such a screen in addition to the rows of its list.
const LINES_AROUND_LIST: usize = 6;

/// Runs `regatta draw-frames`, with which tests compare the screens of `watch` with other views.
/// Reads frames of the live stream from standard input, a JSON array in each line, and prints the
/// lines of the pages Tasks and Agents that show these frames as a JSON array.
pub(crate) fn draw_frames(app: &CommandContext) -> CommandResult {
    let broken = |error: String| {
        command_error(
            "io",
            format!("could not draw the frames: {error}"),
            "give one JSON array of frames in each line of the input",
        )
    };
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| broken(error.to_string()))?;
        let frames: Vec<Value> =
            serde_json::from_str(&line).map_err(|error| broken(error.to_string()))?;
        let mut model = ScreenModel::new(true, false);
        for frame in frames {
            on_live_message(&mut model, "frame", &frame.to_string());
        }
        model.now_unix_ms = model.data_unix_ms.unwrap_or_default();
        let rows = model.task_rows.len().max(model.lanes.len());
        let height = u16::try_from(rows + LINES_AROUND_LIST).unwrap_or(u16::MAX);
        let mut drawn = Vec::new();
        for page in [ScreenPage::Tasks, ScreenPage::Agents] {
            model.page = page;
            drawn.extend(screen_lines(&model, DRAWN_COLUMNS, height));
        }
        let text = Value::from(drawn).to_string();
        app.output.print(&(text + "\n"))?;
    }
    Ok(())
}

/// Draws a screen of the given size without a terminal and returns its lines.
fn screen_lines(model: &ScreenModel, width: u16, height: u16) -> Vec<String> {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw::draw_screen(model, frame));
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String {
        let (mut text, mut x) = (String::new(), 0);
        while x < width {
            let sign = buffer[(x, y)].symbol();
            text.push_str(sign);
            // A character of two columns also occupies the next cell.
            x += u16::try_from(output::display_width(sign).max(1)).unwrap_or(1);
        }
        text.trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

/// Prints a line for each event from now on. Used if there is no terminal.
fn print_event_lines(app: &CommandContext, client: &Client) -> CommandResult {
    let out = &app.output;
    let reply = client.call(call::AgentList(input::EmptyInput {}))?;
    client.stream_events(reply.revision, true, |item| {
        if let EventStreamItem::Event(event) = item {
            if out.is_json {
                let text = serde_json::to_string(&event).map_err(|error| {
                    internal_error(format!(
                        "could not encode event {} as JSON: {error}",
                        event.revision
                    ))
                })?;
                out.print(&format!("{text}\n"))?;
            } else if let Some(text) = crate::run_progress::milestone_line(&event) {
                out.print(&format!("{text}\n"))?;
            }
        }
        Ok(true)
    })
}

fn read_keys(to: &Sender<ScreenEvent>) {
    while let Ok(event) = event::read() {
        let screen_event = match event {
            Event::Key(key) => ScreenEvent::Key(key),
            Event::Resize(..) => ScreenEvent::Resized,
            _ => continue,
        };
        if to.send(screen_event).is_err() {
            return;
        }
    }
    // Reading failed because the terminal was closed, so end the program as after a signal.
    let _nobody = to.send(ScreenEvent::Signal(1));
}

/// Starts a thread that does slow work for the screen, one job after the other, so that the screen
/// never has to wait.
fn spawn_job_thread(
    app: &CommandContext,
    to: &Sender<ScreenEvent>,
) -> Result<Sender<BackgroundJob>, CommandError> {
    let (client, to, (jobs, queue)) = (app.client()?, to.clone(), channel());
    std::thread::spawn(move || {
        for job in queue {
            let screen_event = match job {
                BackgroundJob::Perform(actions) => {
                    let result = perform_actions(&client, &actions);
                    ScreenEvent::Done(actions, result)
                }
                BackgroundJob::Log(attempt, from) => {
                    let call = call::Transcript(input::TranscriptQuery {
                        attempt,
                        from,
                        limit: LOG_READ_RECORDS,
                    });
                    ScreenEvent::Log(attempt, call_running_daemon(&client, call))
                }
                BackgroundJob::Diff(task, options) => {
                    let call = call::Diff(input::DiffInput {
                        id: task.to_string(),
                        since_review: options.is_since_review,
                    });
                    ScreenEvent::Diff(
                        task,
                        options,
                        call_running_daemon(&client, call).map(|diff| diff.patch),
                    )
                }
                BackgroundJob::Events(after) => ScreenEvent::Events(read_events(&client, after)),
                BackgroundJob::Setup => ScreenEvent::Setup(Box::new(read_setup(&client))),
            };
            if to.send(screen_event).is_err() {
                return;
            }
        }
    });
    Ok(jobs)
}

/// Makes an API call, but does not start a daemon if no daemon runs, because a person may have
/// stopped the daemon on purpose.
fn call_running_daemon<C: TypedCall>(client: &Client, call: C) -> Result<C::Output, String>
where
    C::Output: serde::de::DeserializeOwned,
{
    running_daemon(client.call_while_up(call))
}

/// Returns the data of an answer, or a message if the daemon refused the call or does not run.
fn running_daemon<T>(answer: Result<Option<CallReply<T>>, CommandError>) -> Result<T, String> {
    match answer {
        Ok(Some(reply)) => Ok(reply.data),
        Ok(None) => Err("the daemon is not running; start it: regatta up".into()),
        Err(error) => Err(error.message()),
    }
}

/// Returns the events after a revision (number of an event), and the revision of the last event.
fn read_events(client: &Client, after: u64) -> Result<(u64, Vec<EventView>), String> {
    let mut events = Vec::new();
    let read = client.stream_events(after, false, |item| {
        if let EventStreamItem::Event(event) = item {
            events.push(*event);
        }
        Ok(true)
    });
    read.map_err(|error| error.message())?;
    Ok((events.last().map_or(after, |event| event.revision), events))
}

/// Reads the content of the page Setup from the daemon.
fn read_setup(client: &Client) -> Result<list_pages::SetupInfo, String> {
    let doctor: DoctorView = call_running_daemon(client, call::Doctor(input::EmptyInput {}))?;
    let bridges: Vec<BridgeView> =
        call_running_daemon(client, call::BridgeList(input::EmptyInput {}))?;
    let policy: Vec<regatta_core::policy::PolicyRule> =
        call_running_daemon(client, call::PolicyList(input::EmptyInput {}))?;
    let lists = vec![
        ("Bridges", crate::commands::bridge::draw_bridges(&bridges)),
        ("Policy", crate::commands::policy::draw_rules(&policy)),
    ];
    Ok(list_pages::SetupInfo { doctor, lists })
}

/// Performs the actions that the person requested: one action, or the same action for several
/// items. Returns the message to show. Items that somebody else has answered in the meantime stay
/// unchanged and are counted in the error.
fn perform_actions(client: &Client, actions: &[PageAction]) -> Result<String, String> {
    let mut done = 0;
    let mut problem = None;
    for action in actions {
        let call = serde_json::to_vec(&action.input)
            .map_err(|error| error.to_string())
            .and_then(|input| Call::parse(&action.verb, &input).map_err(|problem| problem.message));
        match call.and_then(|call| running_daemon(client.call_any_while_up(&call))) {
            Ok(_) => done += 1,
            Err(why) => problem = Some(why),
        }
    }
    let first = actions
        .first()
        .map(|page_action| page_action.cli.as_str())
        .unwrap_or_default();
    match (problem, actions.len()) {
        (None, 1) => Ok(format!("done · same from a shell: {first}")),
        (None, many) => Ok(format!(
            "answered {many} requests at once · same from a shell: {first}"
        )),
        (Some(why), 1) => Err(why),
        (Some(why), many) => Err(format!("answered {done} of {many} requests; {why}")),
    }
}

struct Screen {
    events: Receiver<ScreenEvent>,
    wanted_topics: live_client::WantedTopics,
    jobs: Sender<BackgroundJob>,
}

impl Screen {
    fn run(
        self,
        model: &mut ScreenModel,
        terminal: &mut ratatui::DefaultTerminal,
    ) -> std::io::Result<u8> {
        let (mut read_at, mut reading) = (Instant::now(), false);
        loop {
            model.now_unix_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
            terminal.draw(|frame| draw::draw_screen(model, frame))?;
            let drawn = Instant::now();
            // Before drawing again, handle all events that arrive within the time of one frame.
            // Drawing after each event would be slow.
            let mut patience = MAX_FRAME_INTERVAL;
            loop {
                let news = match self.events.recv_timeout(patience) {
                    Ok(news) => news,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Ok(1),
                };
                let keyed = matches!(news, ScreenEvent::Key(_) | ScreenEvent::Resized);
                reading &= !matches!(news, ScreenEvent::Log(..) | ScreenEvent::Events(..));
                if let Some(code) = self.on_event(model, news) {
                    return Ok(code);
                }
                if keyed || drawn.elapsed() >= MIN_FRAME_INTERVAL {
                    break;
                }
                patience = MIN_FRAME_INTERVAL.saturating_sub(drawn.elapsed());
            }
            if let (ScreenPage::Task(_), false) = (model.page, reading)
                && read_at.elapsed() > LOG_READ_INTERVAL
            {
                (read_at, reading) = (Instant::now(), self.request_log(model));
            }
            if let (ScreenPage::Events, false) = (model.page, reading)
                && read_at.elapsed() > LOG_READ_INTERVAL
                && model.paused_frames.is_none()
            {
                (read_at, reading) = (Instant::now(), self.request_events(model));
            }
        }
    }

    /// Requests the next records of the task's log. Returns false if there is no log.
    fn request_log(&self, model: &mut ScreenModel) -> bool {
        let last = model.task.as_ref().and_then(|task_page| task_page.log);
        if last.is_some() && last != model.log.attempt {
            let is_raw = model.log.is_raw;
            model.log = last
                .map(transcript::LogPane::for_attempt)
                .unwrap_or_default();
            model.log.is_raw = is_raw;
        }
        match model.log.attempt {
            Some(attempt) => self
                .jobs
                .send(BackgroundJob::Log(attempt, model.log.next_record))
                .is_ok(),
            None => false,
        }
    }

    /// Requests the next events.
    fn request_events(&self, model: &ScreenModel) -> bool {
        self.jobs
            .send(BackgroundJob::Events(model.events.read_after(model.seq)))
            .is_ok()
    }

    /// Handles a message to the screen's thread. Returns an exit code if the program should end.
    fn on_event(&self, model: &mut ScreenModel, news: ScreenEvent) -> Option<u8> {
        match news {
            ScreenEvent::Key(key) => {
                for wish in keys::on_key(model, key) {
                    match wish {
                        ScreenRequest::Quit => return Some(0),
                        ScreenRequest::SubscribeTopics => self.wanted_topics.set(model.topics()),
                        ScreenRequest::Perform(actions) => {
                            _ = self.jobs.send(BackgroundJob::Perform(actions))
                        }
                        ScreenRequest::ReadLog => _ = self.request_log(model),
                        ScreenRequest::ReadEvents => _ = self.request_events(model),
                        ScreenRequest::ReadSetup => _ = self.jobs.send(BackgroundJob::Setup),
                        ScreenRequest::ReadDiff => {
                            if let ScreenPage::Task(id) = model.page {
                                let _gone =
                                    self.jobs.send(BackgroundJob::Diff(id, model.diff_options));
                            }
                        }
                    }
                }
            }
            ScreenEvent::Resized => {}
            ScreenEvent::Heartbeat => model.connection = model::ConnectionState::Live,
            ScreenEvent::Message { event, data } => on_live_message(model, &event, &data),
            ScreenEvent::Disconnected(why) => model.on_disconnected(why),
            ScreenEvent::Log(attempt, piece) if model.log.attempt == Some(attempt) => match piece {
                Ok(piece) => {
                    model.log.problem = None;
                    model.log.append(&piece);
                }
                Err(why) => model.log.problem = Some(why),
            },
            ScreenEvent::Log(..) => {}
            ScreenEvent::Diff(task, how, patch) if model.page == ScreenPage::Task(task) => {
                match patch {
                    Ok(patch) => model.diff = DiffPane::from_patch(task, &patch, how),
                    Err(why) => model.diff.problem = Some(why),
                }
            }
            ScreenEvent::Diff(..) => {}
            ScreenEvent::Events(read) => model.events.append(read),
            ScreenEvent::Setup(found) => match *found {
                Ok(found) => {
                    model.setup = list_pages::SetupPage {
                        info: Some(found),
                        problem: None,
                    }
                }
                Err(why) => model.setup.problem = Some(why),
            },
            ScreenEvent::Done(actions, Ok(text)) => {
                model.toast = Some((true, text));
                model.remove_sent_drafts(&actions);
            }
            ScreenEvent::Done(_, Err(why)) => model.toast = Some((false, why)),
            ScreenEvent::Signal(code) => return Some(code),
        }
        None
    }
}

/// Applies a message of the daemon's live stream to the model. A message that cannot be parsed
/// comes from a daemon of another version.
fn on_live_message(model: &mut ScreenModel, event: &str, data: &str) {
    if event == "reset" {
        let topics = serde_json::from_str::<Value>(data).ok();
        let topics = topics
            .as_ref()
            .and_then(|topic| topic.get("topics")?.as_array().cloned())
            .unwrap_or_default();
        topics
            .iter()
            .filter_map(|topic| topic.as_str())
            .for_each(|topic| model.clear_topic(topic));
        return;
    }
    match serde_json::from_str(data) {
        Ok(frame) => model.on_frame(frame),
        Err(_) => {
            model.toast = Some((
                false,
                "the daemon has another version; restart it: regatta up --restart".into(),
            ))
        }
    }
}
