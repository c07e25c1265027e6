//! The handshake, the opening of the session, and its settings.

use regatta_core::session::{Class, Said};
use serde_json::{Value, json};

use super::{Acp, RPC, Sent, Session};
use crate::driver::Say;
use crate::drivers::rpc::{Fault, NO_METHOD};
use crate::drivers::verdict::{Trouble, of_status, shorten};
use crate::drivers::{TOKEN_PLACE, TOKEN_VARIABLE};

/// The supported version of the protocol.
const VERSION: i64 = 1;

/// The capabilities that the program has announced.
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
        // An object means yes, even an empty one.
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

/// A setting of a session. The order matters, because the available efforts depend on the model.
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

/// A setting that the program offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    setting: Setting,
    way: Way,
    pub(super) current: String,
    /// Pairs of value and display name.
    values: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// `session/set_config_option` with this id.
    Option(String),
    /// `session/set_mode`, the older method for modes.
    Mode,
    /// `session/set_model`, which was never part of version 1 but is widely supported.
    Model,
}

/// Returns whether a method opens a session. Only such requests carry the token.
pub(in crate::drivers) fn opens_session(method: &str) -> bool {
    matches!(method, "session/new" | "session/load" | "session/resume")
}

/// Returns whether only a person can fix the fault, so that a new session would fail too.
pub(super) fn wants_person(fault: &Fault) -> bool {
    of_status(fault.code) == Some(Class::Auth)
}

/// Returns the setting that a request to the program was about.
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

/// Returns the offered settings, from the answer that opened the session or changed a setting.
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

/// Returns the settings in a list of `configOptions`.
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

/// The next step for a requested setting.
enum Step {
    Set(&'static str, Value),
    /// The program does not offer the setting, so it stays unchanged.
    NotOffered,
    /// The program offers only other values.
    Unknown(String),
}

impl Acp {
    /// Returns the next request that opens the session, unless an answer is still missing.
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

    /// Returns whether this is Claude's adapter, which takes instructions in a field of its own.
    fn is_claude(&self) -> bool {
        matches!(self.setup.program(), "claude" | "claude-agent-acp" | "claude-code-acp")
    }

    /// Returns Regatta's tool server: over HTTP if the program supports that, or else as a process
    /// that the program starts, which every program must support.
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
            let why = format!(
                "The program uses {seen} of the Agent Client Protocol, but Regatta supports version {VERSION}."
            );
            return self.fail(Trouble::new(Class::BadConfig, why));
        }
        let abilities = Abilities::read(result);
        self.abilities = Some(abilities);
        let mut said = Vec::new();
        if self.setup.mcp_url.is_some() && self.setup.regatta.is_none() && !abilities.http {
            let text = "The program supports no MCP server over HTTP, so it works without Regatta's tools.";
            said.push(Said::Notice { text: text.to_owned() });
        }
        if self.setup.resume.is_some() && !abilities.resume && !abilities.load {
            let text = "The program cannot resume a session, so a new one is opened.";
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
            return self.fail(Trouble::new(Class::Crashed, "The program opened a session without an id."));
        };
        self.resumed = sent != Sent::New;
        if !self.resumed {
            // The usage so far belongs to the session that could not be resumed.
            self.books = super::Ledger::default();
        }
        self.books.session = Some(session.clone());
        self.choices = choices(result);
        self.session = Session::Open(session.clone());
        let mut said = vec![Said::Started { session: Some(session), model: self.model() }];
        said.extend(self.settle());
        said
    }

    /// Returns the current model, as far as the program reports it.
    fn model(&self) -> Option<String> {
        let found = self.choices.iter().find(|it| it.setting == Setting::Model).map(|it| it.current.clone());
        found.filter(|it| !it.is_empty())
    }

    /// Reports the current model if it has changed.
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
                    // The older method answers without a value, so the requested model counts as
                    // set.
                    self.took_model();
                }
                let mut said = self.another_model(before.as_ref());
                said.extend(self.settle());
                said
            }
            Err(fault) if fault.code == NO_METHOD || setting == Setting::Effort => {
                let text = format!("The program does not allow setting its {}.", setting.name());
                [Said::Notice { text }].into_iter().chain(self.settle()).collect()
            }
            Err(fault) => {
                let why = format!("The program's {} could not be set: {}", setting.name(), fault.words());
                self.fail(Trouble::new(Class::BadConfig, why))
            }
        }
    }

    /// Handles the settings that need no request. A model or mode that the program does not have
    /// fails the session before it costs anything. An unknown effort, and a setting that the
    /// program does not offer, are skipped.
    fn settle(&mut self) -> Vec<Said> {
        let mut said = Vec::new();
        loop {
            let Some((setting, step)) = self.step() else { return said };
            match step {
                Step::Set(..) => return said,
                Step::NotOffered => {
                    self.tried.push(setting);
                    let text =
                        format!("The program offers no way to set its {}, so it stays unchanged.", setting.name());
                    said.push(Said::Notice { text });
                }
                // The effort usually follows from the kind of the task, and every model has levels
                // of its own.
                Step::Unknown(why) if setting == Setting::Effort => {
                    self.tried.push(setting);
                    said.push(Said::Notice { text: format!("{why} It stays unchanged.") });
                }
                Step::Unknown(why) => {
                    said.extend(self.fail(Trouble::new(Class::BadConfig, why)));
                    return said;
                }
            }
        }
    }

    /// Returns the request for the next setting. Returns `Some(None)` while the answer to the last
    /// request is missing.
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
                let why = format!("The program has no {} {wanted:?}; it offers {offered}.", setting.name());
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

    /// Formats the next prompt.
    pub(super) fn prompt(&self, session: &str, prompt: &str) -> String {
        let mut blocks = Vec::new();
        let taken = self.abilities.is_some_and(|it| it.system_prompt) || self.is_claude();
        if let Some(words) = self.setup.profile.system_prompt.as_ref() {
            // A program that accepts no instructions gets them before the first prompt of its
            // session.
            if self.prompts == 0 && !self.resumed && !taken {
                blocks.push(json!({ "type": "text", "text": words }));
            }
        }
        blocks.push(json!({ "type": "text", "text": prompt }));
        RPC.request(self.next_id, "session/prompt", json!({ "sessionId": session, "prompt": blocks }))
    }

    /// Returns the last input: `session/close` if the program supports it, then the end of the
    /// input. The answer is not waited for, because nothing depends on it.
    pub(super) fn farewell(&self, session: Option<&String>) -> Say {
        match session.filter(|_| self.abilities.is_some_and(|it| it.close) && !self.said_farewell) {
            Some(session) => self.request("session/close", json!({ "sessionId": session })),
            None => Say::Close,
        }
    }

    /// Records the requested model as the current one.
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

    /// Records settings that the program changed itself, and reports a changed model.
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
