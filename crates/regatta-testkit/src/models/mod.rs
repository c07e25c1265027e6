//! A scripted model server on loopback, so that real coding agents run with no network and no key.
//!
//! It speaks Anthropic Messages, OpenAI Responses, Chat Completions and Gemini, streaming and not. What the model
//! does is a [`Story`]: a list of turns, found by a marker in what the user said. A turn says something, calls a
//! tool or fails; tools are named by what they do ([`Act`]) and called by the name the asking program offered them
//! under. Requests aside from the work (a title, a suggestion, a summary) are answered without using up a turn.
//! Every request is kept for assertions, never with its key.
//!
//! Deliberately absent: TLS, HTTP/2, compression, and anything that listens beyond loopback.

mod asked; // a request, whichever protocol it came in
mod http; // as much of HTTP/1.1 as these programs speak
mod script; // what the model does
mod server; // the listener, the stories' progress, what was seen
mod tools; // from an act to the tool that was offered

mod anthropic; // Messages
mod chat; // Chat Completions
mod gemini; // generateContent
mod responses; // OpenAI Responses

pub use asked::{Api, Ended, Seen};
pub use script::{Act, Failure, Hold, Pace, Story, Turn, Usage};
pub use server::ModelServer;
