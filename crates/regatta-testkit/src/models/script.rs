//! The script of the model: stories with turns.

use std::time::Duration;

use serde_json::Value;

/// The script of one conversation, selected by its marker.
#[derive(Clone, Debug)]
pub struct ModelScript {
    /// A word in the user's text, or the model's name. The last marker in the text counts, so a
    /// follow-up can start another story. A story with an empty marker takes every conversation
    /// without a marker.
    pub marker: String,
    /// The turns, one for each request of the work, in order.
    pub turns: Vec<ModelTurn>,
    /// The turn that follows when all turns are used.
    pub after_turns: ModelTurn,
}

impl ModelScript {
    /// Returns a story that ends with a plain sentence.
    pub fn new(marker: impl Into<String>, turns: impl Into<Vec<ModelTurn>>) -> ModelScript {
        ModelScript {
            marker: marker.into(),
            turns: turns.into(),
            after_turns: ModelTurn::from_text("The work is done."),
        }
    }

    /// Repeats this turn when all turns are used.
    pub fn repeat_after(mut self, turn: ModelTurn) -> ModelScript {
        self.after_turns = turn;
        self
    }
}

/// One answer of the model.
#[derive(Clone, Debug)]
pub struct ModelTurn {
    /// The text before the tool calls.
    pub text: String,
    /// The reasoning before the text, where the protocol supports it.
    pub reasoning: String,
    /// The tool calls.
    pub actions: Vec<ModelAction>,
    /// The usage that the answer reports.
    pub usage: ModelUsage,
    /// How the answer is sent.
    pub pace: AnswerPace,
    /// The failure to send instead of an answer.
    pub failure: Option<ModelFailure>,
    /// How many requests the turn answers.
    pub repeat: TurnRepeat,
}

impl ModelTurn {
    /// Returns a turn with only a text.
    pub fn from_text(text: impl Into<String>) -> ModelTurn {
        ModelTurn {
            text: text.into(),
            reasoning: String::new(),
            actions: vec![],
            usage: ModelUsage::default(),
            pace: AnswerPace::AtOnce,
            failure: None,
            repeat: TurnRepeat::Once,
        }
    }

    /// Returns a turn that calls a tool.
    pub fn from_action(act: ModelAction) -> ModelTurn {
        ModelTurn {
            actions: vec![act],
            ..ModelTurn::from_text("")
        }
    }

    /// Returns a turn that writes a file.
    pub fn from_file_write(path: impl Into<String>, content: impl Into<String>) -> ModelTurn {
        ModelTurn::from_action(ModelAction::WriteFile {
            path: path.into(),
            content: content.into(),
        })
    }

    /// Returns a turn that runs a command line.
    pub fn from_command(command: impl Into<String>) -> ModelTurn {
        ModelTurn::from_action(ModelAction::RunCommand {
            command: command.into(),
        })
    }

    /// Returns a turn that fails once.
    pub fn from_failure(failure: ModelFailure) -> ModelTurn {
        ModelTurn {
            failure: Some(failure),
            ..ModelTurn::from_text("")
        }
    }

    /// Sets the text of the turn.
    pub fn with_text(mut self, text: impl Into<String>) -> ModelTurn {
        self.text = text.into();
        self
    }

    /// Sets the reasoning of the turn.
    pub fn with_reasoning(mut self, thought: impl Into<String>) -> ModelTurn {
        self.reasoning = thought.into();
        self
    }

    /// Adds a tool call to the turn.
    pub fn with_action(mut self, act: ModelAction) -> ModelTurn {
        self.actions.push(act);
        self
    }

    /// Sets the usage of the turn.
    pub fn with_usage(mut self, usage: ModelUsage) -> ModelTurn {
        self.usage = usage;
        self
    }

    /// Sets how the answer is sent.
    pub fn with_pace(mut self, pace: AnswerPace) -> ModelTurn {
        self.pace = pace;
        self
    }

    /// Sets how many requests the turn answers.
    pub fn with_repeat(mut self, hold: TurnRepeat) -> ModelTurn {
        self.repeat = hold;
        self
    }
}

/// The purpose of a tool call. The server finds the tool that the program offers for it.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelAction {
    /// Creates or overwrites a file. The path is relative to the program's working directory.
    WriteFile { path: String, content: String },
    /// Runs a command line.
    RunCommand { command: String },
    /// Reads a file.
    ReadFile { path: String },
    /// Searches for a tool, where a program offers a search instead of all tools. Needs a turn of
    /// its own (Codex).
    FindTool { tool: String },
    /// Calls the offered tool with this name, or with a name that ends in `_` and this name, such
    /// as a tool of an MCP server.
    CallTool { tool: String, input: Value },
}

/// The usage of an answer, in tokens. The three kinds of input do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelUsage {
    /// Input that was not cached.
    pub input: u64,
    /// Input read from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Output, including reasoning.
    pub output: u64,
    /// The part of the output that is reasoning.
    pub reasoning: u64,
}

impl ModelUsage {
    /// Returns all input, cached or not, which OpenAI and Gemini report as input.
    pub fn total_input(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }
}

impl Default for ModelUsage {
    /// Returns distinct numbers, so that a test notices swapped fields.
    fn default() -> ModelUsage {
        ModelUsage {
            input: 300,
            cache_read: 2000,
            cache_write: 100,
            output: 50,
            reasoning: 0,
        }
    }
}

/// How an answer is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPace {
    /// All at once.
    AtOnce,
    /// In pieces with a pause before each, at most a minute in total.
    Slow { delay: Duration },
    /// The first half, then the connection closes.
    CutOff,
    /// The first half, then nothing until [`release`](super::ModelServer::release) opens this gate,
    /// then the rest. The program may close the connection in the meantime.
    Hang { gate: String },
}

/// How a request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelFailure {
    /// 401: the key is wrong.
    Auth,
    /// 429: too many requests; ends after this time.
    RateLimited { resets_after: Duration },
    /// 429: the allowance of the plan is used up; ends after this time.
    QuotaExhausted { resets_after: Duration },
    /// 400: the conversation is too long.
    ContextFull,
    /// 500: an error of the provider.
    ServerError,
    /// 529: the provider is overloaded.
    Overloaded,
}

impl ModelFailure {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            ModelFailure::Auth => 401,
            ModelFailure::RateLimited { .. } | ModelFailure::QuotaExhausted { .. } => 429,
            ModelFailure::ContextFull => 400,
            ModelFailure::ServerError => 500,
            ModelFailure::Overloaded => 529,
        }
    }

    /// Returns the message, which a driver may have to parse.
    pub fn message(&self) -> &'static str {
        match self {
            ModelFailure::Auth => "invalid x-api-key",
            ModelFailure::RateLimited { .. } => "This request would exceed your rate limit.",
            ModelFailure::QuotaExhausted { .. } => "The usage limit has been reached",
            ModelFailure::ContextFull => "prompt is too long: 210000 tokens > 200000 maximum",
            ModelFailure::ServerError => "Internal server error",
            ModelFailure::Overloaded => "Overloaded",
        }
    }

    /// Returns the time until the failure ends, for the two kinds that report it.
    pub fn resets_after(&self) -> Option<Duration> {
        match self {
            ModelFailure::RateLimited {
                resets_after: reset,
            }
            | ModelFailure::QuotaExhausted {
                resets_after: reset,
            } => Some(*reset),
            _ => None,
        }
    }
}

/// How many requests a turn answers. Each program retries failures in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnRepeat {
    Once,
    Times(u32),
    /// All requests until this long after the first one.
    For(Duration),
}
