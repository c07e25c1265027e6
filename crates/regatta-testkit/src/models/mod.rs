//! A server that imitates the APIs of language models with scripted answers, so that tests can run
//! real coding agents without network and API key.
//!
//! The server implements Anthropic Messages, OpenAI Responses, Chat Completions and Gemini, with
//! and without streaming. A [`ModelScript`] (a "story") says how the model answers. A script is a
//! list of turns: each turn prints a text, calls a tool or fails. A conversation uses the script
//! whose marker (a word) is in the user's text. A script names a tool by its purpose
//! ([`ModelAction`]), and the server calls the tool by the name under which the program offers it.
//! Side requests of a program (for a title, a suggestion or a summary) are answered without using
//! up a turn. Every request is recorded for the test, without its API key.
//!
//! The server has no TLS, no HTTP/2 and no compression, and listens only on the loopback address.

mod http; // the part of HTTP/1.1 that these programs use
mod request; // a request in a form that is independent of its protocol
mod script; // stories and turns
mod server; // the listener, the progress of stories, recorded requests
mod tools; // finds the offered tool for an action

mod anthropic; // Messages
mod chat; // Chat Completions
mod gemini; // generateContent
mod responses; // OpenAI Responses

pub use request::{AnswerEnd, ModelApi, RequestRecord};
pub use script::{
    AnswerPace, ModelAction, ModelFailure, ModelScript, ModelTurn, ModelUsage, TurnRepeat,
};
pub use server::ModelServer;
