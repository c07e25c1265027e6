//! The script of the model: stories with turns.

use std::time::Duration;

use serde_json::Value;

/// The script of one conversation, selected by its marker.
#[derive(Clone, Debug)]
pub struct Story {
    /// A word in the user's text, or the model's name. The last marker in the text counts, so a
    /// follow-up can start another story. A story with an empty marker takes every conversation
    /// without a marker.
    pub marker: String,
    /// The turns, one for each request of the work, in order.
    pub turns: Vec<Turn>,
    /// The turn that follows when all turns are used.
    pub end: Turn,
}

impl Story {
    /// Returns a story that ends with a plain sentence.
    pub fn new(marker: impl Into<String>, turns: impl Into<Vec<Turn>>) -> Story {
        Story { marker: marker.into(), turns: turns.into(), end: Turn::say("The work is done.") }
    }

    /// Repeats this turn when all turns are used.
    pub fn then_always(mut self, turn: Turn) -> Story {
        self.end = turn;
        self
    }
}

/// One answer of the model.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The text before the tool calls.
    pub text: String,
    /// The reasoning before the text, where the protocol supports it.
    pub thought: String,
    /// The tool calls.
    pub acts: Vec<Act>,
    /// The usage that the answer reports.
    pub usage: Usage,
    /// How the answer is sent.
    pub pace: Pace,
    /// The failure to send instead of an answer.
    pub failure: Option<Failure>,
    /// How many requests the turn answers.
    pub hold: Hold,
}

impl Turn {
    /// Returns a turn with only a text.
    pub fn say(text: impl Into<String>) -> Turn {
        Turn {
            text: text.into(),
            thought: String::new(),
            acts: vec![],
            usage: Usage::default(),
            pace: Pace::Whole,
            failure: None,
            hold: Hold::Once,
        }
    }

    /// Returns a turn that calls a tool.
    pub fn act(act: Act) -> Turn {
        Turn { acts: vec![act], ..Turn::say("") }
    }

    /// Returns a turn that writes a file.
    pub fn write(path: impl Into<String>, content: impl Into<String>) -> Turn {
        Turn::act(Act::Write { path: path.into(), content: content.into() })
    }

    /// Returns a turn that runs a command line.
    pub fn shell(command: impl Into<String>) -> Turn {
        Turn::act(Act::Shell { command: command.into() })
    }

    /// Returns a turn that fails once.
    pub fn fail(failure: Failure) -> Turn {
        Turn { failure: Some(failure), ..Turn::say("") }
    }

    /// Sets the text of the turn.
    pub fn saying(mut self, text: impl Into<String>) -> Turn {
        self.text = text.into();
        self
    }

    /// Sets the reasoning of the turn.
    pub fn thinking(mut self, thought: impl Into<String>) -> Turn {
        self.thought = thought.into();
        self
    }

    /// Adds a tool call to the turn.
    pub fn and(mut self, act: Act) -> Turn {
        self.acts.push(act);
        self
    }

    /// Sets the usage of the turn.
    pub fn using(mut self, usage: Usage) -> Turn {
        self.usage = usage;
        self
    }

    /// Sets how the answer is sent.
    pub fn paced(mut self, pace: Pace) -> Turn {
        self.pace = pace;
        self
    }

    /// Sets how many requests the turn answers.
    pub fn held(mut self, hold: Hold) -> Turn {
        self.hold = hold;
        self
    }
}

/// The purpose of a tool call. The server finds the tool that the program offers for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Creates or overwrites a file. The path is relative to the program's working directory.
    Write { path: String, content: String },
    /// Runs a command line.
    Shell { command: String },
    /// Reads a file.
    Read { path: String },
    /// Searches for a tool, where a program offers a search instead of all tools. Needs a turn of
    /// its own (Codex).
    Find { tool: String },
    /// Calls the offered tool with this name, or with a name that ends in `_` and this name, such
    /// as a tool of an MCP server.
    Call { tool: String, input: Value },
}

/// The usage of an answer, in tokens. The three kinds of input do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
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

impl Usage {
    /// Returns all input, cached or not, which OpenAI and Gemini report as input.
    pub fn whole_input(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }
}

impl Default for Usage {
    /// Returns distinct numbers, so that a test notices swapped fields.
    fn default() -> Usage {
        Usage { input: 300, cache_read: 2000, cache_write: 100, output: 50, reasoning: 0 }
    }
}

/// How an answer is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// All at once.
    Whole,
    /// In pieces with a pause before each, at most a minute in total.
    Slow { rest: Duration },
    /// The first half, then the connection closes.
    Cut,
    /// The first half, then nothing until [`release`](super::ModelServer::release) opens this gate,
    /// then the rest. The program may close the connection in the meantime.
    Hang { gate: String },
}

/// How a request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 401: the key is wrong.
    Auth,
    /// 429: too many requests; ends after this time.
    RateLimited { reset: Duration },
    /// 429: the allowance of the plan is used up; ends after this time.
    UsedUp { reset: Duration },
    /// 400: the conversation is too long.
    ContextFull,
    /// 500: an error of the provider.
    Broken,
    /// 529: the provider is overloaded.
    Overloaded,
}

impl Failure {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Failure::Auth => 401,
            Failure::RateLimited { .. } | Failure::UsedUp { .. } => 429,
            Failure::ContextFull => 400,
            Failure::Broken => 500,
            Failure::Overloaded => 529,
        }
    }

    /// Returns the message, which a driver may have to parse.
    pub fn message(&self) -> &'static str {
        match self {
            Failure::Auth => "invalid x-api-key",
            Failure::RateLimited { .. } => "This request would exceed your rate limit.",
            Failure::UsedUp { .. } => "The usage limit has been reached",
            Failure::ContextFull => "prompt is too long: 210000 tokens > 200000 maximum",
            Failure::Broken => "Internal server error",
            Failure::Overloaded => "Overloaded",
        }
    }

    /// Returns the time until the failure ends, for the two kinds that report it.
    pub fn reset(&self) -> Option<Duration> {
        match self {
            Failure::RateLimited { reset } | Failure::UsedUp { reset } => Some(*reset),
            _ => None,
        }
    }
}

/// How many requests a turn answers. Each program retries failures in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Once,
    Times(u32),
    /// All requests until this long after the first one.
    For(Duration),
}
