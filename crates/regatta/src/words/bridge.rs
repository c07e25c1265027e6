//! The command `bridge`: the bridges of agents to chat and issue services, and their conversations.

use regatta_api::view::{BridgeView, ConversationLineView};
use regatta_api::{Call, input};
use regatta_core::conversation::{Conversation, What};

use crate::args::BridgeWord;
use crate::client::Got;
use crate::out::{Said, ago, failed, fit, line, table, window_width};

use super::App;

/// Runs `regatta bridge`.
pub(super) fn bridge(app: &App, word: BridgeWord) -> Said {
    let pause = |agent, service: Option<crate::args::ServiceName>, paused| {
        let ask = input::BridgePause { agent, service: service.map(Into::into), paused };
        let got: Got<Vec<BridgeView>> = app.call(&Call::BridgePause(ask))?;
        app.out.answer("bridge.list", &got.data, &[], |_| draw(&got.data))
    };
    match word {
        BridgeWord::List => {
            let all = list(app)?;
            let none =
                ["see docs/bridges.md and .env.example for the variables that enable a bridge, and regatta inbox"
                    .to_owned()];
            app.out.answer("bridge.list", &all, if all.is_empty() { &none } else { &[] }, |_| draw(&all))
        }
        BridgeWord::Test { agent } => test(app, agent.as_ref()),
        BridgeWord::Pause { agent, service } => pause(agent, service, true),
        BridgeWord::Resume { agent, service } => pause(agent, service, false),
        BridgeWord::Conversations { all } => {
            let ask = input::Conversations { all, project: None };
            let got: Got<Vec<ConversationLineView>> = app.call(&Call::ConversationList(ask))?;
            app.out.answer("conversation.list", &got.data, &[], |_| conversations(&got.data, window_width()))
        }
        BridgeWord::Show { id } => show(app, Call::ConversationShow(input::Conversation { conversation: id })),
        BridgeWord::Accept { id } => show(app, Call::ConversationAccept(input::Conversation { conversation: id })),
        BridgeWord::Refuse { id } => show(app, Call::ConversationRefuse(input::Conversation { conversation: id })),
        BridgeWord::Stop { id } => show(app, Call::ConversationStop(input::Conversation { conversation: id })),
        BridgeWord::Close { id } => show(app, Call::ConversationClose(input::Conversation { conversation: id })),
    }
}

fn list(app: &App) -> Result<Vec<BridgeView>, crate::out::Failed> {
    let got: Got<Vec<BridgeView>> = app.call(&Call::BridgeList(input::Nothing {}))?;
    Ok(got.data)
}

/// Describes the state of a bridge.
pub(crate) fn state(it: &BridgeView) -> String {
    match it {
        it if it.off.is_some() => format!("off: {}", it.off.as_deref().unwrap_or_default()),
        it if it.health.paused => "paused".into(),
        it => {
            let heard = match (&it.health.connected, &it.health.trouble) {
                (Some(since), None) => format!("connected since {}", ago(*since)),
                (Some(_), Some(trouble)) => format!("connected; last problem: {trouble}"),
                (None, Some(trouble)) => format!("not connected: {trouble}"),
                (None, None) => "connecting".into(),
            };
            it.warning.as_ref().map_or(heard.clone(), |it| format!("{heard}; {it}"))
        }
    }
}

/// Draws bridges as a table.
pub(crate) fn draw(all: &[BridgeView]) -> String {
    if all.is_empty() {
        return "no bridges\n".into();
    }
    let rows = all.iter().map(|it| {
        let known = it.health.known_as.clone().unwrap_or_default();
        let counts = format!("{} in, {} out", it.health.taken, it.health.sent);
        let dead = if it.dead > 0 { format!(", {} dead", it.dead) } else { String::new() };
        vec![it.agent.to_string(), it.service.to_string(), line(&known), line(&state(it)), format!("{counts}{dead}")]
    });
    table(&rows.collect::<Vec<_>>())
}

/// Waits up to ten seconds until every bridge is connected or has failed, and prints the states.
fn test(app: &App, agent: Option<&regatta_core::ids::AgentName>) -> Said {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let all = loop {
        let mut all = list(app)?;
        all.retain(|it| agent.is_none_or(|only| it.agent == *only));
        let connecting =
            |it: &BridgeView| it.off.is_none() && it.health.connected.is_none() && it.health.trouble.is_none();
        if !all.iter().any(connecting) || std::time::Instant::now() > until {
            break all;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let bad: Vec<String> = all
        .iter()
        .filter(|it| it.off.is_some() || it.health.connected.is_none() || it.warning.is_some())
        .map(|it| format!("{} ({})", it.name, state(it)))
        .collect();
    app.out.answer("bridge.list", &all, &[], |_| draw(&all))?;
    match bad.as_slice() {
        [] if all.is_empty() => {
            Err(failed("no_bridge", "there is no bridge to test", "set one up as docs/bridges.md describes"))
        }
        [] => Ok(()),
        bad => Err(failed(
            "bridge_down",
            format!("some bridges do not work: {}", bad.join("; ")),
            "fix the cause, then run regatta up --restart",
        )),
    }
}

/// Draws conversations as a table.
pub(crate) fn conversations(all: &[ConversationLineView], window: Option<usize>) -> String {
    if all.is_empty() {
        return "no conversations\n".into();
    }
    let rows = all.iter().map(|it| {
        vec![
            it.id.to_string(),
            it.service.to_string(),
            it.agent.to_string(),
            it.word.clone(),
            it.task.map_or(String::new(), |it| it.to_string()),
            ago(it.updated_wall),
            line(&it.last),
        ]
    });
    fit(&rows.collect::<Vec<_>>(), window)
}

/// Sends a call about a conversation and prints the conversation.
fn show(app: &App, call: Call) -> Said {
    let got: Got<Conversation> = app.call(&call)?;
    let it = &got.data;
    let mut next = Vec::new();
    if !it.held.is_empty() {
        next.push(format!("regatta bridge accept {}", it.id));
        next.push(format!("regatta bridge refuse {}", it.id));
    }
    next.extend(it.task.map(|it| format!("regatta show {it}")));
    app.out.answer("conversation.show", it, &next, |_| {
        let mut text = format!("{} {} with {} in {}\n", it.id, it.service, it.agent, line(&it.title));
        text += &format!("  {}\n", line(&it.key));
        for held in &it.held {
            text += &format!(
                "  held: {} ({}:{}): {}\n",
                line(&held.by.name),
                it.service,
                line(&held.by.id),
                line(&held.text)
            );
        }
        for turn in &it.turns {
            text += &format!("  {:?} {}: {}\n", turn.state, line(&turn.by.name), line(&turn.text));
            if let Some(answer) = &turn.answer {
                text += &format!("    {}\n", line(answer));
            }
            if let Some(reason) = &turn.reason {
                text += &format!("    {}\n", line(reason));
            }
        }
        for post in it.posts.iter().filter(|it| it.is_due() || it.dead.is_some()) {
            let what = match &post.what {
                What::Seen { .. } => "the first reaction".to_owned(),
                What::Turn { turn } => format!("turn {turn}"),
                What::Queued { turn, .. } => format!("the note that turn {turn} waits"),
                What::Ask { approval } => approval.to_string(),
                What::Note { text, .. } => line(text),
                What::Pull => "a pull request".into(),
            };
            let how = post
                .dead
                .as_ref()
                .map_or("not posted yet".to_owned(), |it| format!("could not be posted: {}", line(it)));
            text += &format!("  post {}: {what}, {how}\n", post.n);
        }
        text
    })
}
