//! What the model does: stories of turns.

use std::time::Duration;

use serde_json::Value;

/// What a model does in one conversation, found by its marker.
#[derive(Clone, Debug)]
pub struct Story {
    /// A word in what the user said, or the model's name. The last one said counts, so a follow-up may start
    /// another story. An empty marker takes every conversation that no other takes.
    pub marker: String,
    /// One for each request of the work, in order.
    pub turns: Vec<Turn>,
    /// What comes when the turns are used up.
    pub end: Turn,
}

impl Story {
    /// A story that ends with a plain sentence.
    pub fn new(marker: impl Into<String>, turns: impl Into<Vec<Turn>>) -> Story {
        Story { marker: marker.into(), turns: turns.into(), end: Turn::say("The work is done.") }
    }

    /// Does this for ever when the turns are used up.
    pub fn then_always(mut self, turn: Turn) -> Story {
        self.end = turn;
        self
    }
}

/// One answer of the model.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Said before the tools are called.
    pub text: String,
    /// Thought before anything is said, where the protocol can carry it.
    pub thought: String,
    /// The tools it calls.
    pub acts: Vec<Act>,
    /// What it costs.
    pub usage: Usage,
    /// How it comes over the wire.
    pub pace: Pace,
    /// It fails instead.
    pub failure: Option<Failure>,
    /// For how many requests it stands.
    pub hold: Hold,
}

impl Turn {
    /// Says something and ends the turn.
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

    /// Calls a tool.
    pub fn act(act: Act) -> Turn {
        Turn { acts: vec![act], ..Turn::say("") }
    }

    /// Writes a file.
    pub fn write(path: impl Into<String>, content: impl Into<String>) -> Turn {
        Turn::act(Act::Write { path: path.into(), content: content.into() })
    }

    /// Runs a command line.
    pub fn shell(command: impl Into<String>) -> Turn {
        Turn::act(Act::Shell { command: command.into() })
    }

    /// Fails, once.
    pub fn fail(failure: Failure) -> Turn {
        Turn { failure: Some(failure), ..Turn::say("") }
    }

    /// Says this first.
    pub fn saying(mut self, text: impl Into<String>) -> Turn {
        self.text = text.into();
        self
    }

    /// Thinks this first.
    pub fn thinking(mut self, thought: impl Into<String>) -> Turn {
        self.thought = thought.into();
        self
    }

    /// Calls one more tool in the same turn.
    pub fn and(mut self, act: Act) -> Turn {
        self.acts.push(act);
        self
    }

    /// Costs this much.
    pub fn using(mut self, usage: Usage) -> Turn {
        self.usage = usage;
        self
    }

    /// Comes like this.
    pub fn paced(mut self, pace: Pace) -> Turn {
        self.pace = pace;
        self
    }

    /// Stands for this many requests.
    pub fn held(mut self, hold: Hold) -> Turn {
        self.hold = hold;
        self
    }
}

/// What a tool call is for. The server finds the tool that the asking program offers for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Makes or overwrites a file; the path is from the program's working directory.
    Write { path: String, content: String },
    /// Runs a command line.
    Shell { command: String },
    /// Reads a file.
    Read { path: String },
    /// Looks for a tool, where a program offers a search instead of all that there are; a turn of its own (Codex).
    Find { tool: String },
    /// Calls the offered tool whose name is this or ends in `_` and this, such as one of an MCP server.
    Call { tool: String, input: Value },
}

/// What an answer costs, in tokens. The three kinds of input do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Input that no cache held.
    pub input: u64,
    /// Input read from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// The part of the output that was reasoning.
    pub reasoning: u64,
}

impl Usage {
    /// All of the input, cached or not: what OpenAI and Gemini call input.
    pub fn whole_input(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }
}

impl Default for Usage {
    /// Numbers that differ from each other, so that a field read for another shows.
    fn default() -> Usage {
        Usage { input: 300, cache_read: 2000, cache_write: 100, output: 50, reasoning: 0 }
    }
}

/// How an answer comes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    Whole,
    /// Piece by piece, with a rest before each; never longer than a minute in all.
    Slow { rest: Duration },
    /// Half of it, then the connection closes.
    Cut,
    /// Half of it, then nothing until [`release`](super::ModelServer::release) lets this gate go; the rest then
    /// follows. Whoever asked may hang up meanwhile.
    Hang { gate: String },
}

/// How a request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 401: the key is wrong.
    Auth,
    /// 429: too many requests; over after this time.
    RateLimited { reset: Duration },
    /// 429: the plan's allowance is used up; over after this time.
    UsedUp { reset: Duration },
    /// 400: the conversation does not fit any more.
    ContextFull,
    /// 500: the provider's fault.
    Broken,
    /// 529: the provider has too much to do.
    Overloaded,
}

impl Failure {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Failure::Auth => 401,
            Failure::RateLimited { .. } | Failure::UsedUp { .. } => 429,
            Failure::ContextFull => 400,
            Failure::Broken => 500,
            Failure::Overloaded => 529,
        }
    }

    /// What it says, which a driver may have to read.
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

    /// When it is over, for the two that say so.
    pub fn reset(&self) -> Option<Duration> {
        match self {
            Failure::RateLimited { reset } | Failure::UsedUp { reset } => Some(*reset),
            _ => None,
        }
    }
}

/// For how many requests a turn stands. Programs ask again after a failure, each in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Once,
    Times(u32),
    /// Until this long after the first request that met it.
    For(Duration),
}
