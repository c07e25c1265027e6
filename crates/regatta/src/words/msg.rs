//! Messages: `msg send`, `history`, `wait`, `read`.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::MessageView;

use crate::args::MsgWord;
use crate::client::Got;
use crate::out::{Said, plain};

use super::App;

pub(super) fn msg(app: &App, word: MsgWord) -> Said {
    match word {
        MsgWord::Send { channel, text, labels, agent, reply_to } => {
            let got: Got<MessageView> =
                app.call(&Call::MsgSend(input::MsgSend { channel, text, labels, agent, reply_to }))?;
            app.out.answer("msg.send", &got.data, &[], |_| draw(std::slice::from_ref(&got.data)))
        }
        MsgWord::History { channel, label, from, after, limit } => {
            let got: Got<Vec<MessageView>> =
                app.call(&Call::MsgHistory(input::MsgHistory { channel, label, from, after, limit }))?;
            app.out.answer("msg.history", &got.data, &[], |_| draw(&got.data))
        }
        MsgWord::Wait { channel, label, from, mention, after } => {
            let timeout_ms = app.global.timeout.unwrap_or(30_000);
            // The daemon keeps the time here; the connection must not give up before it.
            let client = crate::client::Client::connect(&app.data_dir()?, app.global.server.clone(), None)?;
            let got: Got<MessageView> =
                client.call(&Call::MsgWait(input::MsgWait { channel, label, from, mention, after, timeout_ms }))?;
            app.out.answer("msg.wait", &got.data, &[], |_| draw(std::slice::from_ref(&got.data)))
        }
        MsgWord::Read { channel, agent, keep_unread } => {
            let got: Got<Vec<MessageView>> =
                app.call(&Call::MsgRead(input::MsgRead { agent, channel, keep_unread }))?;
            app.out.answer("msg.read", &got.data, &[], |_| draw(&got.data))
        }
    }
}

fn draw(messages: &[MessageView]) -> String {
    messages
        .iter()
        .map(|it| {
            let labels: String = it.labels.iter().map(|it| format!(" [{it}]")).collect();
            let sender = it.sender.to_string();
            let sender = sender.trim_start_matches("person:").trim_end_matches(':');
            format!("{} {} {}{labels}: {}\n", it.id, it.channel, sender, plain(&it.text))
        })
        .collect()
}
