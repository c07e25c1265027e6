//! `agent test`: starts an agent's program as an attempt would be, lets it say a word, and stops it.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::AgentView;
use regatta_core::agent::Runtime;
use regatta_core::ids::{AgentName, AttemptId};
use regatta_core::session::{Answer, Class, Said as Spoken};
use regatta_engine::ports::agents::{Agents, Desk, Exit, Launch, Wishes};

use crate::client::Got;
use crate::out::{Failed, Said, failed, plain, span};

use super::App;

const PROMPT: &str =
    "This is a test of the connection. Reply with the one word READY. Use no tools and change nothing.";

/// How long the whole of it may take, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(90);

/// Listens to one turn; permits nothing.
struct Listener {
    began: Instant,
    patience: Duration,
    session: RefCell<Option<String>>,
    model: RefCell<Option<String>>,
    words: RefCell<String>,
    tokens: Cell<u64>,
    opened: Cell<Option<Duration>>,
    asked: RefCell<Vec<String>>,
    over: Cell<bool>,
}

impl Desk for Listener {
    fn heard(&self, _: u64, said: Spoken) {
        match said {
            Spoken::Started { session, model } => {
                self.opened.set(self.opened.get().or(Some(self.began.elapsed())));
                self.session.replace(session);
                self.model.replace(model);
            }
            Spoken::Message { text } if self.words.borrow().len() < 2_000 => self.words.borrow_mut().push_str(&text),
            Spoken::Usage { usage, .. } => self.tokens.set(usage.tokens()),
            Spoken::Asked(ask) => self.asked.borrow_mut().push(ask.id),
            Spoken::TurnEnded { .. } => self.over.set(true),
            _ => {}
        }
    }

    fn silent(&self, _: Option<Duration>) {}

    fn wishes(&self) -> Wishes {
        let late = self.began.elapsed() > self.patience;
        let no = Answer::Deny { words: Some("this is only a test".into()) };
        Wishes {
            prompts: vec![PROMPT.to_owned()],
            answers: self.asked.borrow().iter().map(|it| (it.clone(), no.clone())).collect(),
            cancels: u32::from(late),
            hold: false,
            end: self.over.get() || late,
        }
    }

    fn goes_on(&self) -> bool {
        self.began.elapsed() < self.patience + Duration::from_secs(5)
    }
}

pub(super) fn test(app: &App, name: &AgentName) -> Said {
    let got: Got<AgentView> = app.call(&Call::Show(input::Id { id: name.to_string() }))?;
    let agent = &got.data.agent;
    if agent.runtime == Runtime::Outside {
        return Err(failed("outside", format!("{name} is started by somebody else"), "test it where it runs"));
    }
    let place = tempfile::tempdir().map_err(|it| failed("io", format!("no place for the test: {it}"), "see TMPDIR"))?;
    let workspace = place.path().join("workspace");
    std::fs::create_dir(&workspace).map_err(|it| failed("io", format!("no place for the test: {it}"), "see TMPDIR"))?;
    let agents = crate::wire::agents(&place.path().join("data"))?;
    let attempt = AttemptId(1);
    let launch = Launch {
        attempt,
        agent: name.clone(),
        runtime: agent.runtime.clone(),
        profile: agent.profile.clone(),
        resume: None,
        mcp: None,
        used: Default::default(),
        workspace,
        objects: None,
        hidden: vec![],
        prompt: PROMPT.to_owned(),
        script: Some(r#"[{"say": "READY"}]"#.to_owned()),
        env: vec![],
    };
    let began = Instant::now();
    let started = agents.start(&launch).map_err(|it| failed("not_started", it.what, it.hint))?;
    let listener = Listener {
        began,
        patience: app.timeout().unwrap_or(PATIENCE),
        session: RefCell::default(),
        model: RefCell::default(),
        words: RefCell::default(),
        tokens: Cell::new(0),
        opened: Cell::new(None),
        asked: RefCell::default(),
        over: Cell::new(false),
    };
    let attended = agents.attend(attempt, &listener);
    // Whatever came of it, nothing of it stays.
    let stopped = agents.stop(attempt, Duration::from_secs(2));
    let verdict = attended.map_err(|it| failed("not_attended", it.what, it.hint))?;
    stopped.map_err(|it| failed("not_stopped", it.what, it.hint))?;
    let took = span(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    let class = match &verdict {
        None => Some(Class::Timeout),
        Some(it) if it.class == Some(Class::Cancelled) => Some(Class::Timeout),
        Some(it) => it.class,
    };
    let detail = match &verdict {
        Some(it) => match &it.exit {
            Exit::NotStarted(reason) => reason.clone(),
            _ => it.detail.clone(),
        },
        None => "it did not answer in time".into(),
    };
    let words = plain(listener.words.borrow().trim());
    let data = serde_json::json!({
        "agent": name,
        "class": class.map(Class::name),
        "detail": detail,
        "words": words,
        "session": *listener.session.borrow(),
        "model": *listener.model.borrow(),
        "tokens": listener.tokens.get(),
        "sandbox": started.sandbox,
        "warnings": started.warnings,
    });
    app.out.answer("agent.test", &data, &[], |_| {
        let mut text = String::new();
        for warning in &started.warnings {
            text += &format!("! {}\n", plain(warning));
        }
        let sandbox = started.sandbox.as_deref().map_or("not confined".to_owned(), plain);
        text += &format!("sandbox  {sandbox}\n");
        if let Some(opened) = listener.opened.get() {
            let model = listener.model.borrow().as_deref().map_or(String::new(), |it| format!(" · {}", plain(it)));
            text += &format!("session  opened after {}{model}\n", span(opened.as_millis() as u64));
        }
        if !words.is_empty() {
            text += &format!("said     {words}\n");
        }
        match class {
            None => text + &format!("{name} works · {} tokens · {took}\n", listener.tokens.get()),
            Some(class) => text + &format!("{name} does not work ({class}): {}\n", plain(detail.trim())),
        }
    })?;
    match class {
        None => Ok(()),
        Some(Class::Auth) => Err(Failed::Code(4)),
        Some(_) => Err(Failed::Code(1)),
    }
}
