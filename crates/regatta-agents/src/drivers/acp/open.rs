//! The handshake, the session, and its settings.

use regatta_core::session::{Class, Said};
use serde_json::{Value, json};

use super::{Acp, RPC, Sent, Session};
use crate::driver::Say;
use crate::drivers::rpc::{Fault, NO_METHOD};
use crate::drivers::verdict::{Trouble, of_status, shorten};
use crate::drivers::{TOKEN_PLACE, TOKEN_VARIABLE};

/// The version spoken.
const VERSION: i64 = 1;

/// What the program said it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    load: bool,
    resume: bool,
    close: bool,
    http: bool,
    system_prompt: bool,
}

impl Abilities {
    fn read(result: &Value) -> Abilities {
        let able = &result["agentCapabilities"];
        // An object, empty or not, means yes.
        let session = |name: &str| able["sessionCapabilities"][name].is_object();
        Abilities {
            load: able["loadSession"] == true,
            resume: session("resume"),
            close: session("close"),
            http: able["mcpCapabilities"]["http"] == true,
            system_prompt: session("systemPrompt"),
        }
    }
}

/// What can be set in a session. The order matters: which efforts there are depends on the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Model,
    Effort,
    Mode,
}

impl Setting {
    const ALL: [Setting; 3] = [Setting::Model, Setting::Effort, Setting::Mode];

    fn name(self) -> &'static str {
        match self {
            Setting::Model => "model",
            Setting::Effort => "effort",
            Setting::Mode => "mode",
        }
    }

    fn of_category(category: &str, id: &str) -> Option<Setting> {
        match (category, id) {
            ("model", _) | ("", "model") => Some(Setting::Model),
            ("thought_level", _) | ("", "effort" | "thought_level" | "reasoning_effort") => Some(Setting::Effort),
            ("mode", _) | ("", "mode") => Some(Setting::Mode),
            _ => None,
        }
    }
}

/// One thing that can be set, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    setting: Setting,
    way: Way,
    pub(super) current: String,
    /// Value and name.
    values: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// `session/set_config_option` under this id.
    Option(String),
    /// `session/set_mode`, from before there were options.
    Mode,
    /// `session/set_model`, which was never part of version 1 and is widely spoken.
    Model,
}

/// Whether a method opens a session: those carry the token.
pub(in crate::drivers) fn opens_session(method: &str) -> bool {
    matches!(method, "session/new" | "session/load" | "session/resume")
}

/// Whether only a person can help: then a new session would fail as well.
pub(super) fn wants_person(fault: &Fault) -> bool {
    of_status(fault.code) == Some(Class::Auth)
}

/// Which setting a request of ours was about.
pub(super) fn setting_of(method: &str, params: &Value, choices: &[Choice]) -> Option<Setting> {
    match method {
        "session/set_mode" => Some(Setting::Mode),
        "session/set_model" => Some(Setting::Model),
        "session/set_config_option" => {
            let id = params["configId"].as_str()?;
            choices.iter().find(|it| matches!(&it.way, Way::Option(it) if it == id)).map(|it| it.setting)
        }
        _ => None,
    }
}

/// What can be set, from the answer that opened the session or set something.
fn choices(result: &Value) -> Vec<Choice> {
    let mut found = options(&result["configOptions"]);
    let legacy = [
        (Setting::Mode, Way::Mode, &result["modes"], "currentModeId", "availableModes", "id"),
        (Setting::Model, Way::Model, &result["models"], "currentModelId", "availableModels", "modelId"),
    ];
    for (setting, way, from, current, list, id) in legacy {
        if from.is_object() && !found.iter().any(|it| it.setting == setting) {
            let values = from[list].as_array().into_iter().flatten();
            let values = values.map(|it| (text(&it[id]), text(&it["name"]))).collect();
            found.push(Choice { setting, way, current: text(&from[current]), values });
        }
    }
    found
}

/// The settings among a list of `configOptions`.
pub(super) fn options(list: &Value) -> Vec<Choice> {
    let mut found: Vec<Choice> = Vec::new();
    for option in list.as_array().into_iter().flatten() {
        let (id, category) = (text(&option["id"]), option["category"].as_str().unwrap_or_default());
        let select = option["type"].as_str().is_none_or(|it| it == "select");
        let setting = Setting::of_category(category, &id).filter(|it| !found.iter().any(|other| other.setting == *it));
        if let Some(setting) = setting.filter(|_| select) {
            let mut values = Vec::new();
            for value in option["options"].as_array().into_iter().flatten() {
                // Values may be in groups.
                let inner = value["options"].as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                values.extend(inner.iter().map(|it| (text(&it["value"]), text(&it["name"]))));
            }
            found.push(Choice { setting, way: Way::Option(id), current: text(&option["currentValue"]), values });
        }
    }
    found
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What is to be done about a setting.
enum Step {
    Set(&'static str, Value),
    /// The program does not offer it: not our business then.
    NotOffered,
    /// It offers others.
    Unknown(String),
}

impl Acp {
    /// What opens the conversation, if it is our turn.
    pub(super) fn opening(&self) -> Option<Say> {
        if !self.sent.is_empty() {
            return None;
        }
        let Some(abilities) = self.abilities else {
            let params = json!({
                "protocolVersion": VERSION,
                "clientCapabilities": {
                    "fs": { "readTextFile": false, "writeTextFile": false },
                    "terminal": false,
                    "elicitation": { "form": {} },
                },
                "clientInfo": { "name": "regatta", "title": "Regatta", "version": env!("CARGO_PKG_VERSION") },
            });
            return Some(self.request("initialize", params));
        };
        let mut params = json!({ "cwd": self.setup.begins(), "mcpServers": self.servers(abilities) });
        if let Some(words) = self.setup.profile.system_prompt.as_ref().filter(|_| abilities.system_prompt) {
            params["systemPrompt"] = json!({ "mode": "append", "content": [{ "type": "text", "text": words }] });
        }
        let resume = self.setup.resume.as_ref().filter(|_| !self.afresh);
        let (method, session) = match resume {
            Some(session) if abilities.resume => ("session/resume", Some(session)),
            Some(session) if abilities.load => ("session/load", Some(session)),
            _ => ("session/new", None),
        };
        if let Some(session) = session {
            params["sessionId"] = json!(session);
        } else if let Some(words) = self.setup.profile.system_prompt.as_ref().filter(|_| self.is_claude()) {
            params["_meta"] = json!({ "systemPrompt": { "append": words } });
        }
        Some(self.request(method, params))
    }

    /// Claude's adapter takes instructions in a field of its own.
    fn is_claude(&self) -> bool {
        matches!(self.setup.program(), "claude" | "claude-agent-acp" | "claude-code-acp")
    }

    /// Regatta's tools: over HTTP where the program takes that, else by a process that it starts itself, which every
    /// program must take.
    fn servers(&self, abilities: Abilities) -> Value {
        let Some(url) = &self.setup.mcp_url else { return json!([]) };
        match (&self.setup.regatta, abilities.http) {
            (_, true) => json!([{
                "type": "http", "name": "regatta", "url": url,
                "headers": [{ "name": "Authorization", "value": format!("Bearer {TOKEN_PLACE}") }],
            }]),
            (Some(regatta), false) => json!([{
                "name": "regatta", "command": regatta, "args": ["mcp"],
                "env": [
                    { "name": TOKEN_VARIABLE, "value": TOKEN_PLACE },
                    { "name": "REGATTA_SERVER", "value": url.trim_end_matches("/mcp") },
                ],
            }]),
            (None, false) => json!([]),
        }
    }

    fn request(&self, method: &str, params: Value) -> Say {
        Say::Line(RPC.request(self.next_id, method, params))
    }

    pub(super) fn initialized(&mut self, result: &Value) -> Vec<Said> {
        let version = result["protocolVersion"].as_i64();
        if version != Some(VERSION) {
            let seen = version.map_or_else(|| "no version".to_owned(), |it| format!("version {it}"));
            let why = format!("It speaks {seen} of the Agent Client Protocol; Regatta speaks version {VERSION}.");
            return self.fail(Trouble::new(Class::BadConfig, why));
        }
        let abilities = Abilities::read(result);
        self.abilities = Some(abilities);
        let mut said = Vec::new();
        if self.setup.mcp_url.is_some() && self.setup.regatta.is_none() && !abilities.http {
            let text = "It takes no MCP server over HTTP, so it works without Regatta's tools.";
            said.push(Said::Notice { text: text.to_owned() });
        }
        if self.setup.resume.is_some() && !abilities.resume && !abilities.load {
            let text = "It cannot take up an old session, so a new one is opened.";
            said.push(Said::Notice { text: text.to_owned() });
        }
        said
    }

    pub(super) fn opened(&mut self, sent: Sent, result: &Value) -> Vec<Said> {
        let session = match sent {
            Sent::New => result["sessionId"].as_str().map(str::to_owned),
            _ => self.setup.resume.clone(),
        };
        let Some(session) = session else {
            return self.fail(Trouble::new(Class::Crashed, "It opened a session without saying its id."));
        };
        self.resumed = sent != Sent::New;
        if !self.resumed {
            // The books were those of the session that could not be taken up.
            self.books = super::Ledger::default();
        }
        self.books.session = Some(session.clone());
        self.choices = choices(result);
        self.session = Session::Open(session.clone());
        let mut said = vec![Said::Started { session: Some(session), model: self.model() }];
        said.extend(self.settle());
        said
    }

    /// The model that answers now, as far as the program says.
    fn model(&self) -> Option<String> {
        let found = self.choices.iter().find(|it| it.setting == Setting::Model).map(|it| it.current.clone());
        found.filter(|it| !it.is_empty())
    }

    /// Says which model answers from now on, if that is another than before.
    fn another_model(&self, before: Option<&String>) -> Vec<Said> {
        let now = self.model();
        let Session::Open(session) = &self.session else { return vec![] };
        if now.is_none() || now.as_ref() == before {
            return vec![];
        }
        vec![Said::Started { session: Some(session.clone()), model: now }]
    }

    pub(super) fn was_set(&mut self, setting: Setting, outcome: Result<Value, Fault>) -> Vec<Said> {
        match outcome {
            Ok(result) => {
                let before = self.model();
                if result["configOptions"].is_array() {
                    self.choices = choices(&result);
                } else if setting == Setting::Model {
                    // The older way answers with nothing: what was asked for is what is had.
                    self.took_model();
                }
                let mut said = self.another_model(before.as_ref());
                said.extend(self.settle());
                said
            }
            Err(fault) if fault.code == NO_METHOD || setting == Setting::Effort => {
                let text = format!("It does not let its {} be set.", setting.name());
                [Said::Notice { text }].into_iter().chain(self.settle()).collect()
            }
            Err(fault) => {
                let why = format!("Its {} could not be set: {}", setting.name(), fault.words());
                self.fail(Trouble::new(Class::BadConfig, why))
            }
        }
    }

    /// Looks at the next setting: a model or a mode that cannot be had ends the session before it costs anything, an
    /// effort, and what is not offered at all, is passed over.
    fn settle(&mut self) -> Vec<Said> {
        let mut said = Vec::new();
        loop {
            let Some((setting, step)) = self.step() else { return said };
            match step {
                Step::Set(..) => return said,
                Step::NotOffered => {
                    self.tried.push(setting);
                    let text = format!("It offers no way to set its {}; its own stays.", setting.name());
                    said.push(Said::Notice { text });
                }
                // Usually nobody asked for it but the kind of the task, and every model has levels of its own.
                Step::Unknown(why) if setting == Setting::Effort => {
                    self.tried.push(setting);
                    said.push(Said::Notice { text: format!("{why} Its own stays.") });
                }
                Step::Unknown(why) => {
                    said.extend(self.fail(Trouble::new(Class::BadConfig, why)));
                    return said;
                }
            }
        }
    }

    /// The next thing to set: `Some(None)` while the answer to the last one is awaited.
    pub(super) fn next_setting(&self, session: &str) -> Option<Option<Say>> {
        if Setting::ALL.iter().any(|it| self.awaits(Sent::Set(*it))) {
            return Some(None);
        }
        match self.step() {
            Some((_, Step::Set(method, mut params))) => {
                params["sessionId"] = json!(session);
                Some(Some(self.request(method, params)))
            }
            _ => None,
        }
    }

    fn step(&self) -> Option<(Setting, Step)> {
        let profile = &self.setup.profile;
        Setting::ALL.into_iter().filter(|it| !self.tried.contains(it)).find_map(|setting| {
            let wanted = match setting {
                Setting::Model => profile.model.as_ref(),
                Setting::Effort => profile.effort.as_ref(),
                Setting::Mode => profile.mode.as_ref(),
            }?;
            let Some(choice) = self.choices.iter().find(|it| it.setting == setting) else {
                return Some((setting, Step::NotOffered));
            };
            let same = |it: &str| it.eq_ignore_ascii_case(wanted);
            let exact = choice.values.iter().find(|it| it.0 == *wanted);
            let Some((value, _)) = exact.or_else(|| choice.values.iter().find(|it| same(&it.0) || same(&it.1))) else {
                let offered: Vec<&str> = choice.values.iter().map(|it| it.0.as_str()).collect();
                let offered = shorten(&offered.join(", "), 500);
                let why = format!("It has no {} {wanted:?}; it offers {offered}.", setting.name());
                return Some((setting, Step::Unknown(why)));
            };
            if *value == choice.current {
                return None;
            }
            let (method, params) = match &choice.way {
                Way::Option(id) => ("session/set_config_option", json!({ "configId": id, "value": value })),
                Way::Mode => ("session/set_mode", json!({ "modeId": value })),
                Way::Model => ("session/set_model", json!({ "modelId": value })),
            };
            Some((setting, Step::Set(method, params)))
        })
    }

    /// Words the next prompt.
    pub(super) fn prompt(&self, session: &str, prompt: &str) -> String {
        let mut blocks = Vec::new();
        let taken = self.abilities.is_some_and(|it| it.system_prompt) || self.is_claude();
        if let Some(words) = self.setup.profile.system_prompt.as_ref() {
            // A program that takes no instructions gets them in front of the first prompt of its session.
            if self.prompts == 0 && !self.resumed && !taken {
                blocks.push(json!({ "type": "text", "text": words }));
            }
        }
        blocks.push(json!({ "type": "text", "text": prompt }));
        RPC.request(self.next_id, "session/prompt", json!({ "sessionId": session, "prompt": blocks }))
    }

    /// The last thing to say: a word where the program knows it, then the end of its input. Its answer is not waited
    /// for, because nothing depends on it.
    pub(super) fn farewell(&self, session: Option<&String>) -> Say {
        match session.filter(|_| self.abilities.is_some_and(|it| it.close) && !self.said_farewell) {
            Some(session) => self.request("session/close", json!({ "sessionId": session })),
            None => Say::Close,
        }
    }

    /// Takes the model that was asked for as the one that is had.
    fn took_model(&mut self) {
        let Some(wanted) = self.setup.profile.model.clone() else { return };
        for it in self.choices.iter_mut().filter(|it| it.setting == Setting::Model) {
            let same = |one: &str| one.eq_ignore_ascii_case(&wanted);
            let exact = it.values.iter().find(|one| one.0 == wanted);
            if let Some((value, _)) = exact.or_else(|| it.values.iter().find(|one| same(&one.0) || same(&one.1))) {
                it.current.clone_from(value);
            }
        }
    }

    /// Takes note of settings that changed by themselves; another model is worth a word.
    pub(super) fn reconfigured(&mut self, update: &Value) -> Vec<Said> {
        let before = self.model();
        for choice in options(&update["configOptions"]) {
            match self.choices.iter_mut().find(|it| it.setting == choice.setting) {
                Some(known) => *known = choice,
                None => self.choices.push(choice),
            }
        }
        if let Some(mode) = update["currentModeId"].as_str() {
            let modes = self.choices.iter_mut().filter(|it| it.setting == Setting::Mode);
            modes.for_each(|it| mode.clone_into(&mut it.current));
        }
        self.another_model(before.as_ref())
    }
}
