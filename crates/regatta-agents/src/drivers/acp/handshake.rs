//! Starts a conversation over the Agent Client Protocol: exchanges versions and capabilities, opens
//! the session, and sets the model, the effort and the mode.

use regatta_core::agent_protocol::{AgentEvent, FailureClass};
use serde_json::{Value, json};

use super::{AcpDriver, AcpSession, DIALECT, SentRequest};
use crate::driver::InputAction;
use crate::drivers::error_class::{ProgramFailure, class_from_status, shorten};
use crate::drivers::rpc::{METHOD_NOT_FOUND, RpcError};
use crate::drivers::{TOKEN_PLACEHOLDER, TOKEN_VARIABLE};

/// The version of the Agent Client Protocol that this driver supports.
const PROTOCOL_VERSION: i64 = 1;

/// The optional parts of the protocol that the program supports, from its answer to `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    can_load: bool,
    can_resume: bool,
    can_close: bool,
    has_http_tools: bool,
    has_system_prompt: bool,
}

impl Capabilities {
    fn from_result(result: &Value) -> Capabilities {
        let announced = &result["agentCapabilities"];
        // A program announces such a capability by an object, which may be empty, so only its
        // presence counts.
        let session = |name: &str| announced["sessionCapabilities"][name].is_object();
        Capabilities {
            can_load: announced["loadSession"] == true,
            can_resume: session("resume"),
            can_close: session("close"),
            has_http_tools: announced["mcpCapabilities"]["http"] == true,
            has_system_prompt: session("systemPrompt"),
        }
    }
}

/// A setting of a session. The settings are applied in the order of these variants, because the
/// available efforts depend on the model.
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

    fn from_category(category: &str, id: &str) -> Option<Setting> {
        match (category, id) {
            ("model", _) | ("", "model") => Some(Setting::Model),
            ("thought_level", _) | ("", "effort" | "thought_level" | "reasoning_effort") => {
                Some(Setting::Effort)
            }
            ("mode", _) | ("", "mode") => Some(Setting::Mode),
            _ => None,
        }
    }
}

/// A setting that the program lets the client change, with its current value and its possible
/// values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OfferedSetting {
    setting: Setting,
    method: SetMethod,
    pub(super) current: String,
    values: Vec<SettingValue>,
}

/// A possible value of a setting: its id in the protocol and the name that people see.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SettingValue {
    id: String,
    name: String,
}

impl OfferedSetting {
    /// Returns the id of the value that matches `requested`. An exact match of an id takes
    /// precedence; otherwise ids and display names are compared without regard to case.
    fn find_value(&self, requested: &str) -> Option<&String> {
        let exact = self.values.iter().find(|value| value.id == requested);
        let similar = || {
            self.values.iter().find(|value| {
                value.id.eq_ignore_ascii_case(requested)
                    || value.name.eq_ignore_ascii_case(requested)
            })
        };
        exact.or_else(similar).map(|value| &value.id)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SetMethod {
    /// The method `session/set_config_option` with this option id.
    ConfigOption(String),
    /// The method `session/set_mode`, which older programs use for modes.
    Mode,
    /// The method `session/set_model`, which was never part of version 1 of the protocol but which
    /// many programs support.
    Model,
}

/// Returns whether a request with this method opens a session. Only such requests contain the
/// attempt's access token.
pub(in crate::drivers) fn opens_session(method: &str) -> bool {
    matches!(method, "session/new" | "session/load" | "session/resume")
}

/// Returns whether the error is about authentication, which only a person can fix. Opening a new
/// session would fail for the same reason.
pub(super) fn needs_person(fault: &RpcError) -> bool {
    class_from_status(fault.code) == Some(FailureClass::Auth)
}

/// Returns the setting that a request to the program changes, or `None` if the request changes no
/// known setting.
pub(super) fn requested_setting(
    method: &str,
    params: &Value,
    choices: &[OfferedSetting],
) -> Option<Setting> {
    match method {
        "session/set_mode" => Some(Setting::Mode),
        "session/set_model" => Some(Setting::Model),
        "session/set_config_option" => {
            let id = params["configId"].as_str()?;
            choices
                .iter()
                .find(|offered| matches!(&offered.method, SetMethod::ConfigOption(known) if known == id))
                .map(|offered| offered.setting)
        }
        _ => None,
    }
}

/// Returns the settings that the program offers, from its answer to a request that opened the
/// session or changed a setting.
fn offered_settings(result: &Value) -> Vec<OfferedSetting> {
    let mut found = config_options(&result["configOptions"]);
    let legacy = [
        LegacySetting {
            setting: Setting::Mode,
            method: SetMethod::Mode,
            content: &result["modes"],
            current_key: "currentModeId",
            list_key: "availableModes",
            id_key: "id",
        },
        LegacySetting {
            setting: Setting::Model,
            method: SetMethod::Model,
            content: &result["models"],
            current_key: "currentModelId",
            list_key: "availableModels",
            id_key: "modelId",
        },
    ];
    for legacy in legacy {
        let is_known = found.iter().any(|known| known.setting == legacy.setting);
        if legacy.content.is_object() && !is_known {
            found.push(legacy.read());
        }
    }
    found
}

/// A setting in the older form, which programs used before `configOptions` existed.
struct LegacySetting<'a> {
    setting: Setting,
    method: SetMethod,
    content: &'a Value,
    current_key: &'static str,
    list_key: &'static str,
    id_key: &'static str,
}

impl LegacySetting<'_> {
    fn read(self) -> OfferedSetting {
        let values = self.content[self.list_key].as_array().into_iter().flatten();
        let values = values
            .map(|value| SettingValue {
                id: string_or_empty(&value[self.id_key]),
                name: string_or_empty(&value["name"]),
            })
            .collect();
        OfferedSetting {
            setting: self.setting,
            method: self.method,
            current: string_or_empty(&self.content[self.current_key]),
            values,
        }
    }
}

/// Returns the model, effort and mode settings in a list of `configOptions`. Other options are
/// ignored.
pub(super) fn config_options(list: &Value) -> Vec<OfferedSetting> {
    let mut found: Vec<OfferedSetting> = Vec::new();
    for option in list.as_array().into_iter().flatten() {
        let (id, category) = (
            string_or_empty(&option["id"]),
            option["category"].as_str().unwrap_or_default(),
        );
        let is_select = option["type"].as_str().is_none_or(|kind| kind == "select");
        let setting = Setting::from_category(category, &id)
            .filter(|setting| !found.iter().any(|other| other.setting == *setting));
        if let Some(setting) = setting.filter(|_| is_select) {
            let mut values = Vec::new();
            for value in option["options"].as_array().into_iter().flatten() {
                // An entry of `options` is either one value or a group of values with its own
                // `options`.
                let inner = value["options"]
                    .as_array()
                    .map_or(std::slice::from_ref(value), Vec::as_slice);
                values.extend(inner.iter().map(|value| SettingValue {
                    id: string_or_empty(&value["value"]),
                    name: string_or_empty(&value["name"]),
                }));
            }
            found.push(OfferedSetting {
                setting,
                method: SetMethod::ConfigOption(id),
                current: string_or_empty(&option["currentValue"]),
                values,
            });
        }
    }
    found
}

fn string_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The next step for a setting that the agent's profile (its settings) requests: a request to send,
/// or the reason why the setting cannot be applied.
enum SettingStep {
    Request(&'static str, Value),
    /// The program does not offer the setting, so its value stays unchanged.
    NotOffered,
    /// The program offers the setting but not the requested value. Holds a sentence that names the
    /// offered values.
    UnknownValue(String),
}

impl AcpDriver {
    /// Returns the next request on the way to an open session: first `initialize`, then a new,
    /// resumed or loaded session. Returns `None` while an earlier request is unanswered.
    pub(super) fn opening_request(&self) -> Option<InputAction> {
        if !self.unanswered.is_empty() {
            return None;
        }
        let Some(capabilities) = self.capabilities else {
            let params = json!({
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": {
                    "fs": { "readTextFile": false, "writeTextFile": false },
                    "terminal": false,
                    "elicitation": { "form": {} },
                },
                "clientInfo": { "name": "regatta", "title": "Regatta", "version": env!("CARGO_PKG_VERSION") },
            });
            return Some(self.request("initialize", params));
        };
        let mut params =
            json!({ "cwd": self.setup.start_dir(), "mcpServers": self.tool_servers(capabilities) });
        if let Some(instructions) = self
            .setup
            .profile
            .system_prompt
            .as_ref()
            .filter(|_| capabilities.has_system_prompt)
        {
            params["systemPrompt"] =
                json!({ "mode": "append", "content": [{ "type": "text", "text": instructions }] });
        }
        let resume = self
            .setup
            .resume
            .as_ref()
            .filter(|_| !self.needs_new_session);
        let (method, session) = match resume {
            Some(session) if capabilities.can_resume => ("session/resume", Some(session)),
            Some(session) if capabilities.can_load => ("session/load", Some(session)),
            _ => ("session/new", None),
        };
        if let Some(session) = session {
            params["sessionId"] = json!(session);
        } else if let Some(instructions) = self
            .setup
            .profile
            .system_prompt
            .as_ref()
            .filter(|_| self.is_claude())
        {
            params["_meta"] = json!({ "systemPrompt": { "append": instructions } });
        }
        Some(self.request(method, params))
    }

    /// Returns whether the program is Claude's ACP adapter, which takes instructions in the field
    /// `_meta.systemPrompt`.
    fn is_claude(&self) -> bool {
        matches!(
            self.setup.program_name(),
            "claude" | "claude-agent-acp" | "claude-code-acp"
        )
    }

    /// Returns the protocol's description of Regatta's tool server. A program that supports MCP
    /// over HTTP connects to the tool server over HTTP. Any other program starts `regatta mcp` as a
    /// process, which every program must support.
    fn tool_servers(&self, capabilities: Capabilities) -> Value {
        let Some(url) = &self.setup.mcp_url else {
            return json!([]);
        };
        match (&self.setup.regatta, capabilities.has_http_tools) {
            (_, true) => json!([{
                "type": "http", "name": "regatta", "url": url,
                "headers": [{ "name": "Authorization", "value": format!("Bearer {TOKEN_PLACEHOLDER}") }],
            }]),
            (Some(regatta), false) => json!([{
                "name": "regatta", "command": regatta, "args": ["mcp"],
                "env": [
                    { "name": TOKEN_VARIABLE, "value": TOKEN_PLACEHOLDER },
                    { "name": "REGATTA_SERVER", "value": url.trim_end_matches("/mcp") },
                ],
            }]),
            (None, false) => json!([]),
        }
    }

    fn request(&self, method: &str, params: Value) -> InputAction {
        InputAction::Line(DIALECT.request(self.next_id, method, params))
    }

    pub(super) fn on_initialized(&mut self, result: &Value) -> Vec<AgentEvent> {
        let version = result["protocolVersion"].as_i64();
        if version != Some(PROTOCOL_VERSION) {
            let offered_version = version.map_or_else(
                || "no version".to_owned(),
                |version| format!("version {version}"),
            );
            let reason = format!(
                "The program uses {offered_version} of the Agent Client Protocol, but Regatta supports \
                version {PROTOCOL_VERSION}."
            );
            return self.fail(ProgramFailure::new(FailureClass::BadConfig, reason));
        }
        let capabilities = Capabilities::from_result(result);
        self.capabilities = Some(capabilities);
        let mut events = Vec::new();
        if self.setup.mcp_url.is_some()
            && self.setup.regatta.is_none()
            && !capabilities.has_http_tools
        {
            let text = "The program supports no MCP server over HTTP, so it works without \
                Regatta's tools.";
            events.push(AgentEvent::Notice {
                text: text.to_owned(),
            });
        }
        if self.setup.resume.is_some() && !capabilities.can_resume && !capabilities.can_load {
            let text = "The program cannot resume a session, so a new one is opened.";
            events.push(AgentEvent::Notice {
                text: text.to_owned(),
            });
        }
        events
    }

    pub(super) fn on_session_opened(
        &mut self,
        sent: SentRequest,
        result: &Value,
    ) -> Vec<AgentEvent> {
        let session = match sent {
            SentRequest::NewSession => result["sessionId"].as_str().map(str::to_owned),
            _ => self.setup.resume.clone(),
        };
        let Some(session) = session else {
            return self.fail(ProgramFailure::new(
                FailureClass::Crashed,
                "The program opened a session without an id.",
            ));
        };
        self.is_resumed = sent != SentRequest::NewSession;
        if !self.is_resumed {
            // Start counting from zero, because the usage that was counted before belongs to the
            // session that could not be resumed.
            self.usage_total = super::UsageTotal::default();
        }
        self.usage_total.session = Some(session.clone());
        self.offered_settings = offered_settings(result);
        self.session = AcpSession::Open(session.clone());
        let mut events = vec![AgentEvent::Started {
            session: Some(session),
            model: self.current_model(),
        }];
        events.extend(self.skip_unavailable_settings());
        events
    }

    /// Returns the id of the model that the session uses, or `None` if the program does not report
    /// it.
    fn current_model(&self) -> Option<String> {
        let model = self
            .offered_settings
            .iter()
            .find(|offered| offered.setting == Setting::Model)
            .map(|offered| offered.current.clone());
        model.filter(|model| !model.is_empty())
    }

    /// Returns an event with the current model if it differs from `before`.
    fn report_model_change(&self, before: Option<&String>) -> Vec<AgentEvent> {
        let now = self.current_model();
        let AcpSession::Open(session) = &self.session else {
            return vec![];
        };
        if now.is_none() || now.as_ref() == before {
            return vec![];
        }
        vec![AgentEvent::Started {
            session: Some(session.clone()),
            model: now,
        }]
    }

    pub(super) fn on_setting_response(
        &mut self,
        setting: Setting,
        outcome: Result<Value, RpcError>,
    ) -> Vec<AgentEvent> {
        match outcome {
            Ok(result) => {
                let before = self.current_model();
                if result["configOptions"].is_array() {
                    self.offered_settings = offered_settings(&result);
                } else if setting == Setting::Model {
                    // The program's answer to the older method `session/set_model` does not contain
                    // the new value, so assume that the requested model is set.
                    self.record_requested_model();
                }
                let mut events = self.report_model_change(before.as_ref());
                events.extend(self.skip_unavailable_settings());
                events
            }
            Err(fault) if fault.code == METHOD_NOT_FOUND || setting == Setting::Effort => {
                let text = format!("The program does not allow setting its {}.", setting.name());
                [AgentEvent::Notice { text }]
                    .into_iter()
                    .chain(self.skip_unavailable_settings())
                    .collect()
            }
            Err(fault) => {
                let why = format!(
                    "The program's {} could not be set: {}",
                    setting.name(),
                    fault.full_text()
                );
                self.fail(ProgramFailure::new(FailureClass::BadConfig, why))
            }
        }
    }

    /// Handles the requested settings that the program cannot apply. A model or mode that the
    /// program does not have fails the session before the session costs anything. An unknown
    /// effort, and a setting that the program does not offer, are skipped.
    fn skip_unavailable_settings(&mut self) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        loop {
            let Some((setting, step)) = self.next_setting_step() else {
                return events;
            };
            match step {
                SettingStep::Request(..) => return events,
                SettingStep::NotOffered => {
                    self.tried_settings.push(setting);
                    let text = format!(
                        "The program offers no way to set its {}, so it stays unchanged.",
                        setting.name()
                    );
                    events.push(AgentEvent::Notice { text });
                }
                // An unknown effort is not a failure, because the effort usually follows from the
                // kind of the task and every model has levels of its own.
                SettingStep::UnknownValue(why) if setting == Setting::Effort => {
                    self.tried_settings.push(setting);
                    events.push(AgentEvent::Notice {
                        text: format!("{why} The setting stays unchanged."),
                    });
                }
                SettingStep::UnknownValue(why) => {
                    events.extend(self.fail(ProgramFailure::new(FailureClass::BadConfig, why)));
                    return events;
                }
            }
        }
    }

    /// Returns the request for the next requested setting, or `None` when all settings are applied.
    /// Returns `Some(None)` while the program has not answered the previous such request, so that
    /// the driver sends nothing else meanwhile.
    pub(super) fn next_setting_request(&self, session: &str) -> Option<Option<InputAction>> {
        if Setting::ALL
            .iter()
            .any(|setting| self.is_waiting_for(SentRequest::ChangeSetting(*setting)))
        {
            return Some(None);
        }
        match self.next_setting_step() {
            Some((_, SettingStep::Request(method, mut params))) => {
                params["sessionId"] = json!(session);
                Some(Some(self.request(method, params)))
            }
            _ => None,
        }
    }

    fn next_setting_step(&self) -> Option<(Setting, SettingStep)> {
        let profile = &self.setup.profile;
        Setting::ALL
            .into_iter()
            .filter(|setting| !self.tried_settings.contains(setting))
            .find_map(|setting| {
                let requested = match setting {
                    Setting::Model => profile.model.as_ref(),
                    Setting::Effort => profile.effort.as_ref(),
                    Setting::Mode => profile.mode.as_ref(),
                }?;
                let Some(choice) = self
                    .offered_settings
                    .iter()
                    .find(|offered| offered.setting == setting)
                else {
                    return Some((setting, SettingStep::NotOffered));
                };
                let Some(value) = choice.find_value(requested) else {
                    let offered: Vec<&str> = choice
                        .values
                        .iter()
                        .map(|value| value.id.as_str())
                        .collect();
                    let offered = shorten(&offered.join(", "), 500);
                    let why = format!(
                        "The program has no {} {requested:?}; it offers {offered}.",
                        setting.name()
                    );
                    return Some((setting, SettingStep::UnknownValue(why)));
                };
                if *value == choice.current {
                    return None;
                }
                let (method, params) = match &choice.method {
                    SetMethod::ConfigOption(id) => (
                        "session/set_config_option",
                        json!({ "configId": id, "value": value }),
                    ),
                    SetMethod::Mode => ("session/set_mode", json!({ "modeId": value })),
                    SetMethod::Model => ("session/set_model", json!({ "modelId": value })),
                };
                Some((setting, SettingStep::Request(method, params)))
            })
    }

    /// Returns the `session/prompt` request with this prompt. The first prompt also contains the
    /// agent's instructions if the program accepts them in no other way.
    pub(super) fn format_prompt(&self, session: &str, prompt: &str) -> String {
        let mut blocks = Vec::new();
        let accepts_instructions = self
            .capabilities
            .is_some_and(|capabilities| capabilities.has_system_prompt)
            || self.is_claude();
        if let Some(instructions) = self.setup.profile.system_prompt.as_ref() {
            // If the program accepts no separate instructions, put the instructions before the
            // first prompt of a new session.
            if self.sent_prompts == 0 && !self.is_resumed && !accepts_instructions {
                blocks.push(json!({ "type": "text", "text": instructions }));
            }
        }
        blocks.push(json!({ "type": "text", "text": prompt }));
        DIALECT.request(
            self.next_id,
            "session/prompt",
            json!({ "sessionId": session, "prompt": blocks }),
        )
    }

    /// Returns the last input for the program: `session/close` if the program supports it and it
    /// was not sent yet, then the end of the input. The driver does not wait for the answer to
    /// `session/close`, because nothing depends on that answer.
    pub(super) fn closing_input(&self, session: Option<&String>) -> InputAction {
        let can_close = self
            .capabilities
            .is_some_and(|capabilities| capabilities.can_close);
        match session {
            Some(session) if can_close && !self.has_sent_close => {
                self.request("session/close", json!({ "sessionId": session }))
            }
            _ => InputAction::Close,
        }
    }

    /// Stores the model that the agent's profile requests as the session's current model.
    fn record_requested_model(&mut self) {
        let Some(requested) = self.setup.profile.model.clone() else {
            return;
        };
        for offered in &mut self.offered_settings {
            if offered.setting == Setting::Model
                && let Some(value) = offered.find_value(&requested).cloned()
            {
                offered.current = value;
            }
        }
    }

    /// Stores settings that the program changed without a request, and reports the model if it
    /// changed.
    pub(super) fn on_config_update(&mut self, update: &Value) -> Vec<AgentEvent> {
        let before = self.current_model();
        for choice in config_options(&update["configOptions"]) {
            match self
                .offered_settings
                .iter_mut()
                .find(|offered| offered.setting == choice.setting)
            {
                Some(known) => *known = choice,
                None => self.offered_settings.push(choice),
            }
        }
        if let Some(mode) = update["currentModeId"].as_str() {
            let modes = self
                .offered_settings
                .iter_mut()
                .filter(|offered| offered.setting == Setting::Mode);
            modes.for_each(|offered| mode.clone_into(&mut offered.current));
        }
        self.report_model_change(before.as_ref())
    }
}
