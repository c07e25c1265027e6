// An app made of GitHub's own clients, which verify its webhooks and fetch its token.
import { App, Octokit, createNodeMiddleware } from "octokit";
import { fail, listen, task, tell } from "./common.mjs";

// The verifier's long error about a forged webhook is expected.
console.error = () => {};

const waits = { onRateLimit: () => false, onSecondaryRateLimit: () => false };
const app = new App({
  appId: task.app_id,
  privateKey: task.private_key,
  webhooks: { secret: task.webhook_secret },
  oauth: { clientId: "x", clientSecret: "x" },
  Octokit: Octokit.defaults({ baseUrl: task.base, throttle: waits, retry: { enabled: false } }),
  log: { debug() {}, info() {}, warn() {}, error() {} },
});
app.webhooks.onError((error) => {
  // A webhook that the verifier refuses is reported. Any other error ends the script.
  if (error.event?.payload === undefined || String(error).includes("signature")) tell("forged");
  else fail(error);
});
app.webhooks.on("issue_comment.created", async ({ octokit, payload, id }) => {
  if (payload.sender.type === "Bot") return tell("own", { via: payload.comment.performed_via_github_app?.slug });
  tell("comment", { id, body: payload.comment.body });
  if (payload.comment.body.includes("once more")) return;
  const place = { owner: payload.repository.owner.login, repo: payload.repository.name };
  const number = payload.issue.number;
  await octokit.rest.reactions.createForIssueComment({ ...place, comment_id: payload.comment.id, content: "eyes" });
  const made = await octokit.rest.issues.createComment({ ...place, issue_number: number, body: "Working" });
  await octokit.rest.issues.updateComment({ ...place, comment_id: made.data.id, body: "Done" });
  const role = await octokit.rest.repos.getCollaboratorPermissionLevel({ ...place, username: payload.sender.login });
  const pull = await octokit.rest.pulls.create({ ...place, title: "Mend it", head: "regatta/1", base: "main" });
  const diff = await octokit.rest.pulls.get({ ...place, pull_number: pull.data.number, mediaType: { format: "diff" } });
  const check = await octokit.rest.checks.create({
    ...place, name: "landing", head_sha: pull.data.head.sha, status: "in_progress",
  });
  await octokit.rest.checks.update({
    ...place, check_run_id: check.data.id, status: "completed", conclusion: "success",
    output: { title: "Landed", summary: "All is well." },
  });
  const all = await octokit.paginate(octokit.rest.issues.listComments, { ...place, issue_number: number, per_page: 10 });
  tell("answered", { role: role.data.permission, comments: all.length, diff: typeof diff.data });
});
app.webhooks.on("pull_request_review_comment.created", async ({ octokit, payload }) => {
  if (payload.sender.type === "Bot") return;
  await octokit.rest.pulls.createReplyForReviewComment({
    owner: payload.repository.owner.login, repo: payload.repository.name, pull_number: payload.pull_request.number,
    comment_id: payload.comment.id, body: "Because.",
  });
  tell("replied");
});
app.webhooks.on("check_run.rerequested", ({ payload }) => tell("again", { id: payload.check_run.id }));

const url = await listen(createNodeMiddleware(app, { pathPrefix: "/github" }));
const { data: self } = await app.octokit.request("GET /app");
const installations = [];
for await (const { installation } of app.eachInstallation.iterator()) installations.push(installation.id);
const { data: here } = await app.octokit.request("GET /repos/{owner}/{repo}/installation", { owner: "acme", repo: "shop" });
tell("ready", { url: `${url}/github/webhooks`, slug: self.slug, installations, here: here.id });

process.stdin.on("data", async (line) => {
  if (!String(line).includes("redeliver")) return;
  const { data } = await app.octokit.request("GET /app/hook/deliveries", { per_page: 100 });
  const failed = data.find((it) => it.status_code !== 200 && !it.redelivery);
  const again = await app.octokit.request("POST /app/hook/deliveries/{delivery_id}/attempts", { delivery_id: failed.id });
  tell("redelivered", { guid: failed.guid, status: again.status });
});
