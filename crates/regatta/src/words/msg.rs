//! The command `msg`, with `send`, `history`, `wait`, `watch`, `read`, `inbox` and `attachment`.

use std::path::PathBuf;

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{AttachmentView, MessageView, UnreadView};
use regatta_core::ids::MessageId;

use crate::args::{Filter, MsgWord};
use crate::client::{Client, Got};
use crate::out::{Failed, Said, failed, plain, table};

use super::App;

/// Time that one call of `msg watch` waits for a message before the next call.
const WATCH_MS: u64 = 60_000;

/// Runs `regatta msg`.
pub(super) fn msg(app: &App, word: MsgWord) -> Said {
    match word {
        MsgWord::Send { channel, text, labels, agent, reply_to, attach } => {
            let attach = attach.into_iter().map(|it| whole(app, it)).collect::<Result<_, Failed>>()?;
            let got: Got<MessageView> =
                app.call(&Call::MsgSend(input::MsgSend { channel, text, labels, agent, reply_to, attach }))?;
            app.out.answer("msg.send", &got.data, &[], |_| draw(std::slice::from_ref(&got.data)))
        }
        MsgWord::History { filter, search, since, until, after, before, limit } => {
            let ask = input::MsgHistory { search, since, until, after, before, limit, ..history(filter) };
            let got: Got<Vec<MessageView>> = app.call(&Call::MsgHistory(ask))?;
            app.out.answer("msg.history", &got.data, &[], |_| draw(&got.data))
        }
        MsgWord::Wait { filter, after } => {
            let timeout_ms = app.global.timeout.unwrap_or(30_000);
            let got: Got<MessageView> = patient(app)?.call(&wait(&filter, after, timeout_ms))?;
            app.out.answer("msg.wait", &got.data, &[], |_| draw(std::slice::from_ref(&got.data)))
        }
        MsgWord::Watch { filter, after } => watch(app, filter, after),
        MsgWord::Read { channel, agent, keep_unread } => {
            let got: Got<Vec<MessageView>> =
                app.call(&Call::MsgRead(input::MsgRead { agent, channel, keep_unread }))?;
            app.out.answer("msg.read", &got.data, &[], |_| draw(&got.data))
        }
        MsgWord::Inbox { agent } => {
            let next = format!("regatta msg read CHANNEL --as {agent}");
            let got: Got<Vec<UnreadView>> = app.call(&Call::MsgInbox(input::MsgInbox { agent }))?;
            app.out.answer("msg.inbox", &got.data, &[next], |_| {
                let row = |it: &UnreadView| {
                    let mentions = if it.mentions > 0 { format!("{} mention you", it.mentions) } else { String::new() };
                    vec![it.channel.to_string(), format!("{} unread", it.unread), mentions]
                };
                table(&got.data.iter().map(row).collect::<Vec<_>>())
            })
        }
        MsgWord::Attachment { message, nth, out } => attachment(app, message, nth, out),
    }
}

/// Connects without a timeout of its own, because the daemon times the call out.
fn patient(app: &App) -> Result<Client, Failed> {
    Client::connect(&app.data_dir()?, app.global.server.clone(), None)
}

/// Returns the absolute path of an attachment. The daemon finds a path inside an attempt's sandbox
/// in its workspace.
fn whole(app: &App, path: PathBuf) -> Result<String, Failed> {
    let path = app.here()?.join(path);
    let found = path.canonicalize().map_err(|it| {
        failed("bad_attachment", format!("cannot attach {}: {it}", path.display()), "name an existing file")
    })?;
    Ok(found.to_string_lossy().into_owned())
}

fn history(it: Filter) -> input::MsgHistory {
    input::MsgHistory {
        channel: it.channel,
        label: it.label,
        from: it.from,
        mention: it.mention,
        reply_to: it.reply_to,
        thread: it.thread,
        ..input::MsgHistory::default()
    }
}

fn wait(it: &Filter, after: Option<MessageId>, timeout_ms: u64) -> Call {
    Call::MsgWait(input::MsgWait {
        channel: it.channel.clone(),
        label: it.label.clone(),
        from: it.from.clone(),
        mention: it.mention.clone(),
        reply_to: it.reply_to,
        thread: it.thread,
        after,
        timeout_ms,
    })
}

/// Prints messages as they arrive. Each call asks for messages after the last printed one, so none
/// is printed twice.
fn watch(app: &App, filter: Filter, after: Option<MessageId>) -> Said {
    let client = patient(app)?;
    let mut after = match after {
        Some(after) => after,
        // Start after the newest message, so that a message that arrives before the first call
        // waits is not missed.
        None => {
            let newest = input::MsgHistory { limit: 1, ..input::MsgHistory::default() };
            let got: Got<Vec<MessageView>> = client.call(&Call::MsgHistory(newest))?;
            got.data.last().map_or(MessageId(0), |it| it.id)
        }
    };
    loop {
        let found: Got<MessageView> = match client.call(&wait(&filter, Some(after), WATCH_MS)) {
            Ok(found) => found,
            Err(Failed::Problem(problem)) if problem.code == "timed_out" => continue,
            Err(other) => return Err(other),
        };
        after = found.data.id;
        let text = if app.out.json {
            let text = serde_json::to_string(&found.data);
            text.map_err(|it| failed("bug", it.to_string(), "please report this"))? + "\n"
        } else {
            draw(std::slice::from_ref(&found.data))
        };
        app.out.print(&text)?;
    }
}

/// Runs `regatta msg attachment`.
fn attachment(app: &App, message: MessageId, nth: usize, out: Option<PathBuf>) -> Said {
    let got: Got<AttachmentView> = app.call(&Call::MsgAttachment(input::MsgAttachment { message, nth }))?;
    let it = &got.data;
    let Some(to) = out else {
        return app.out.answer("msg.attachment", it, &[], |_| match &it.text {
            Some(text) => text.clone(),
            None => format!("{} is not text; save it with -o FILE\n", plain(&it.name)),
        });
    };
    let bytes = match (&it.text, &it.hex) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(hex)) => {
            from_hex(hex).ok_or_else(|| failed("bug", "the received file is damaged", "please report this"))?
        }
        (None, None) => vec![],
    };
    let to = app.here()?.join(to);
    std::fs::write(&to, bytes)
        .map_err(|error| failed("io", format!("could not write {}: {error}", to.display()), "choose another file"))?;
    let wrote = serde_json::json!({ "file": to, "bytes": it.bytes, "sha256": it.sha256 });
    app.out.answer("msg.attachment", &wrote, &[], |_| format!("wrote {} bytes to {}\n", it.bytes, to.display()))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |it: u8| char::from(it).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|it| u8::try_from(digit(it[0])? * 16 + digit(*it.get(1)?)?).ok()).collect()
}

/// Formats messages with their labels and attachments.
fn draw(messages: &[MessageView]) -> String {
    messages
        .iter()
        .map(|it| {
            let labels: String = it.labels.iter().map(|it| format!(" [{it}]")).collect();
            let sender = it.sender.to_string();
            let sender = sender.trim_start_matches("person:").trim_end_matches(':');
            let answers = it.reply_to.map(|it| format!(" to {it}")).unwrap_or_default();
            let file = |(nth, file): (usize, &regatta_core::bus::Attachment)| {
                format!("    {nth} {} ({} bytes)\n", plain(&file.name), file.bytes)
            };
            let files: String = it.attachments.iter().enumerate().map(file).collect();
            format!("{} {} {}{answers}{labels}: {}\n{files}", it.id, it.channel, sender, plain(&it.text))
        })
        .collect()
}
