// An app made of Slack's own clients, which answers a mention, streams, asks with a button, and reconnects.
import { SocketModeClient } from "@slack/socket-mode";
import { WebClient } from "@slack/web-api";
import { fail, task, tell } from "./common.mjs";

const slackApiUrl = `${task.base}/api/`;
const web = new WebClient(task.bot_token, { slackApiUrl });
const socket = new SocketModeClient({
  appToken: task.app_token,
  clientOptions: { slackApiUrl },
  clientPingTimeout: 250,
  logLevel: "error",
});
const me = await web.auth.test();
tell("me", { user_id: me.user_id, bot_id: me.bot_id });

const answer = async (event) => {
  const { channel, ts } = event;
  await web.reactions.add({ channel, timestamp: ts, name: "eyes" });
  const metadata = { event_type: "regatta", event_payload: { mark: `answer to ${ts}` } };
  const posted = await web.chat.postMessage({ channel, thread_ts: ts, text: "Working…", metadata });
  const blocks = [
    { type: "section", text: { type: "mrkdwn", text: "May I?" } },
    {
      type: "actions",
      elements: [{ type: "button", action_id: "allow", value: "7", text: { type: "plain_text", text: "Allow" } }],
    },
  ];
  await web.chat.update({ channel, ts: posted.ts, text: "May I?", blocks });
  const thread = await web.conversations.replies({ channel, ts, include_all_metadata: true });
  const found = thread.messages.find((it) => it.metadata?.event_payload?.mark === `answer to ${ts}`);
  tell("asked", { ts: posted.ts, found: found?.ts });
};

const streamed = async (event) => {
  const { channel, ts } = event;
  const streamer = web.chatStream({
    channel, thread_ts: ts, recipient_team_id: task.team, recipient_user_id: event.user, buffer_size: 8,
  });
  await streamer.append({ markdown_text: "**One** and " });
  await streamer.append({ markdown_text: "two and three." });
  await streamer.stop({ markdown_text: " Done." });
  tell("streamed");
};

socket.on("app_mention", async ({ event, ack, retry_num }) => {
  try {
    await ack();
    tell("mention", { text: event.text, retry_num });
    if (event.text.includes("stream")) await streamed(event);
    else if (event.text.includes("many")) {
      // The script posts more messages than the channel accepts at once. The client waits as the answer demands.
      const all = [1, 2, 3, 4, 5].map((it) => web.chat.postMessage({ channel: event.channel, text: `number ${it}` }));
      await Promise.all(all);
      tell("many");
    } else await answer(event);
  } catch (error) {
    fail(error);
  }
});
socket.on("message", async ({ ack }) => ack());
socket.on("reaction_added", async ({ ack }) => ack());
socket.on("interactive", async ({ body, ack }) => {
  await ack();
  const action = body.actions[0];
  await web.chat.update({ channel: body.channel.id, ts: body.message.ts, text: `Allowed ${action.value}`, blocks: [] });
  tell("clicked", { action: action.action_id, user: body.user.id });
});
socket.on("slash_commands", async ({ body, ack }) => {
  await ack({ text: `${body.command} ${body.text}` });
  tell("command", { text: body.text });
});
socket.on("connected", () => tell("connected"));
await socket.start();
try {
  await web.chat.postMessage({ channel: "C0NOWHERE", text: "x" });
} catch (error) {
  tell("refused", { error: error.data?.error });
}
