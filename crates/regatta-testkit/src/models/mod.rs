//! A scripted model server on loopback, so that real coding agents run without network and key.
//!
//! The server implements Anthropic Messages, OpenAI Responses, Chat Completions and Gemini, with
//! and without streaming. A [`ModelScript`] scripts the model: it is a list of turns, selected by a
//! marker in the user's text. A turn prints a text, calls a tool or fails. A tool is named by its
//! purpose ([`ModelAction`]) and is called by the name under which the program offers it. Side
//! requests (a title, a suggestion, a summary) are answered without using up a turn. Every request
//! is recorded for assertions, always without its key.
//!
//! The server has no TLS, no HTTP/2 and no compression, and listens only on loopback.

mod http; // the part of HTTP/1.1 that these programs use
mod request; // a request in a form that is independent of its protocol
mod script; // stories and turns
mod server; // the listener, the progress of stories, recorded requests
mod tools; // finds the offered tool for an act

mod anthropic; // Messages
mod chat; // Chat Completions
mod gemini; // generateContent
mod responses; // OpenAI Responses

pub use request::{AnswerEnd, ModelApi, RequestRecord};
pub use script::{
    AnswerPace, ModelAction, ModelFailure, ModelScript, ModelTurn, ModelUsage, TurnRepeat,
};
pub use server::ModelServer;
