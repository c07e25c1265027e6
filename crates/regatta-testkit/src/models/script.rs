//! The scripted answers of the model: a script for each conversation, with a list of turns.

use std::time::Duration;

use serde_json::Value;

/// A script (also called a story): the model's answers in the conversations that contain a marker.
#[derive(Clone, Debug)]
pub struct ModelScript {
    /// The word that selects this script: a word in the user's text, or the name of the model. If a
    /// text contains several markers, the last one counts, so a later message of the user can
    /// select another script. A script with an empty marker answers all conversations without a
    /// marker.
    pub marker: String,
    /// The model's answers, in order, one for each request that is not a side request.
    pub turns: Vec<ModelTurn>,
    /// The answer to every request that comes after all of `turns` are used.
    pub after_turns: ModelTurn,
}

impl ModelScript {
    /// Returns a script that answers with a plain sentence when all its turns are used.
    pub fn new(marker: impl Into<String>, turns: impl Into<Vec<ModelTurn>>) -> ModelScript {
        ModelScript {
            marker: marker.into(),
            turns: turns.into(),
            after_turns: ModelTurn::from_text("The work is done."),
        }
    }

    /// Sets the answer to every request that comes after all turns (scripted answers) are used.
    pub fn repeat_after(mut self, turn: ModelTurn) -> ModelScript {
        self.after_turns = turn;
        self
    }
}

/// One scripted answer of the model.
#[derive(Clone, Debug)]
pub struct ModelTurn {
    /// The text that the model prints before it calls tools.
    pub text: String,
    /// The model's reasoning before the text, in APIs that have reasoning.
    pub reasoning: String,
    /// The tools that the model calls.
    pub actions: Vec<ModelAction>,
    /// The numbers of tokens that the answer reports.
    pub usage: ModelUsage,
    /// The speed at which the answer is sent. Also says whether the answer is cut off or held back.
    pub pace: AnswerPace,
    /// The error that the server sends instead of an answer. `None` for a normal answer.
    pub failure: Option<ModelFailure>,
    /// The number of requests that are answered with this turn before the next turn follows.
    pub repeat: TurnRepeat,
}

impl ModelTurn {
    /// Returns a turn (one scripted answer of the model) that prints a text and calls no tool.
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

    /// Returns a turn (one scripted answer of the model) that calls a tool.
    pub fn from_action(act: ModelAction) -> ModelTurn {
        ModelTurn {
            actions: vec![act],
            ..ModelTurn::from_text("")
        }
    }

    /// Returns a turn (one scripted answer of the model) that writes a file.
    pub fn from_file_write(path: impl Into<String>, content: impl Into<String>) -> ModelTurn {
        ModelTurn::from_action(ModelAction::WriteFile {
            path: path.into(),
            content: content.into(),
        })
    }

    /// Returns a turn (one scripted answer of the model) that runs a command line.
    pub fn from_command(command: impl Into<String>) -> ModelTurn {
        ModelTurn::from_action(ModelAction::RunCommand {
            command: command.into(),
        })
    }

    /// Returns a turn (one scripted answer of the model) that answers one request with an error.
    pub fn from_failure(failure: ModelFailure) -> ModelTurn {
        ModelTurn {
            failure: Some(failure),
            ..ModelTurn::from_text("")
        }
    }

    /// Sets the text of the turn (one scripted answer of the model).
    pub fn with_text(mut self, text: impl Into<String>) -> ModelTurn {
        self.text = text.into();
        self
    }

    /// Sets the model's reasoning in this turn (scripted answer of the model).
    pub fn with_reasoning(mut self, thought: impl Into<String>) -> ModelTurn {
        self.reasoning = thought.into();
        self
    }

    /// Adds a tool call to the turn (one scripted answer of the model).
    pub fn with_action(mut self, act: ModelAction) -> ModelTurn {
        self.actions.push(act);
        self
    }

    /// Sets the numbers of tokens that the turn (one scripted answer of the model) reports.
    pub fn with_usage(mut self, usage: ModelUsage) -> ModelTurn {
        self.usage = usage;
        self
    }

    /// Sets how fast the answer is sent, and whether it is cut off or held back.
    pub fn with_pace(mut self, pace: AnswerPace) -> ModelTurn {
        self.pace = pace;
        self
    }

    /// Sets the number of requests that are answered with this turn (scripted answer of the model).
    pub fn with_repeat(mut self, hold: TurnRepeat) -> ModelTurn {
        self.repeat = hold;
        self
    }
}

/// The purpose of a scripted tool call, such as writing a file. The server finds the tool of the
/// agent's program for that purpose.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelAction {
    /// The tool call creates or overwrites a file. The path is relative to the working directory of
    /// the agent's program.
    WriteFile { path: String, content: String },
    /// The tool call runs a command line.
    RunCommand { command: String },
    /// The tool call reads a file.
    ReadFile { path: String },
    /// The tool call searches for a tool, for programs such as Codex that offer a search instead of
    /// all their tools. Use this action in a turn of its own, because the agent's program can call
    /// the tools that it finds only in a later turn.
    FindTool { tool: String },
    /// The tool call uses the tool with this name, or a tool whose name ends in `_` and this name.
    /// Programs give such longer names to the tools of MCP servers.
    CallTool { tool: String, input: Value },
}

/// The numbers of tokens that a scripted answer of the model reports. The three kinds of input do
/// not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelUsage {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Input tokens that were read from a cache.
    pub cache_read: u64,
    /// Input tokens that were written to a cache.
    pub cache_write: u64,
    /// Output tokens, including the tokens that were used for reasoning.
    pub output: u64,
    /// Output tokens that were used for reasoning. They are included in `output`.
    pub reasoning: u64,
}

impl ModelUsage {
    /// Returns the sum of all input tokens, cached or not, which OpenAI and Gemini report as input.
    pub fn total_input(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }
}

impl Default for ModelUsage {
    /// Returns a value with a different number in each field, so that a test notices if two fields
    /// are swapped.
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

/// The way in which the server sends an answer to the agent's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPace {
    /// The server sends the whole answer at once.
    AtOnce,
    /// The server sends the answer in small pieces with this pause before each piece, for at most a
    /// minute in total.
    Slow { delay: Duration },
    /// The server sends the first half of the answer and then closes the connection.
    CutOff,
    /// The server sends the first half of the answer, waits until the test opens this gate with
    /// [`release`](super::ModelServer::release), and then sends the rest. The agent's program may
    /// close the connection in the meantime.
    Hang { gate: String },
}

/// The error with which a request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelFailure {
    /// HTTP status 401: the API key is wrong.
    Auth,
    /// HTTP status 429: the agent's program sends too many requests. The program may try again
    /// after this time.
    RateLimited { resets_after: Duration },
    /// HTTP status 429: the account's quota is used up. The agent's program may try again after
    /// this time.
    QuotaExhausted { resets_after: Duration },
    /// HTTP status 400: the conversation is too long for the model's context.
    ContextFull,
    /// HTTP status 500: an internal error of the provider.
    ServerError,
    /// HTTP status 529: the provider is overloaded.
    Overloaded,
}

impl ModelFailure {
    /// Returns the HTTP status of the error.
    pub fn status(&self) -> u16 {
        match self {
            ModelFailure::Auth => 401,
            ModelFailure::RateLimited { .. } | ModelFailure::QuotaExhausted { .. } => 429,
            ModelFailure::ContextFull => 400,
            ModelFailure::ServerError => 500,
            ModelFailure::Overloaded => 529,
        }
    }

    /// Returns the message of the error, as the real provider writes it, because Regatta's drivers
    /// recognise some errors by their message.
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

    /// Returns the time after which the error is over, for the two kinds of errors that report this
    /// time.
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

/// The number of requests that a turn (one scripted answer of the model) answers. A turn that fails
/// can answer several requests, because programs repeat failed requests, each program in its own
/// way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnRepeat {
    Once,
    Times(u32),
    /// The turn answers all requests from the first one until this time has passed.
    For(Duration),
}
