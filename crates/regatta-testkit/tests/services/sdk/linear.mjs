// An agent made of Linear's own client, which verifies its webhooks and sends the client's GraphQL documents.
import { LinearClient } from "@linear/sdk";
import { LinearWebhookClient } from "@linear/sdk/webhooks";
import { fail, listen, task, tell } from "./common.mjs";

const client = new LinearClient({ accessToken: task.access_token, apiUrl: `${task.base}/graphql` });
const handler = new LinearWebhookClient(task.webhook_secret).createHandler();
handler.on("AgentSessionEvent", async (event) => {
  try {
    const agentSessionId = event.agentSession.id;
    tell("event", { action: event.action, body: event.agentActivity?.content.body, signal: event.agentActivity?.signal });
    if (event.action !== "created") {
      await client.createAgentActivity({ agentSessionId, content: { type: "response", body: "Stopped." } });
      return tell("stopped");
    }
    await client.createAgentActivity({ agentSessionId, content: { type: "thought", body: "Looking." }, ephemeral: true });
    await client.createAgentActivity({ agentSessionId, content: { type: "action", action: "Read", parameter: "a.rs" } });
    const plan = [{ content: "Look", status: "completed" }];
    await client.updateAgentSession(agentSessionId, { plan, externalUrls: [{ label: "Run", url: "http://x" }] });
    const id = "7d3c5f0a-58f0-4d0e-9a63-3f8f3d1c2b1a";
    const said = { agentSessionId, id, content: { type: "elicitation", body: "Which port?" } };
    const first = await client.createAgentActivity(said);
    const again = await client.createAgentActivity(said);
    const session = await client.agentSession(agentSessionId);
    const activities = await session.activities();
    const issue = event.agentSession.issue.identifier;
    tell("asked", {
      success: first.success && again.success, status: session.status, issue,
      activities: activities.nodes.map((it) => it.content.__typename),
    });
  } catch (error) {
    fail(error);
  }
});
const url = await listen(handler);
const me = await client.viewer;
const own = await client.agentSessions();
tell("ready", { url, id: me.id, sessions: own.nodes.length });
try {
  await client.viewer;
} catch (error) {
  tell("limited", { type: error.type, reset: error.requestsResetAt });
}
