// Helpers for every script: the task from the test, a line for each report, and a server for webhooks.
import http from "node:http";

export const task = JSON.parse(process.argv[2]);

export const tell = (what, more = {}) => process.stdout.write(JSON.stringify({ what, ...more }) + "\n");

export const fail = (error) => {
  tell("failed", { error: String(error?.stack ?? error), data: error?.data ?? error?.response?.data ?? null });
  process.exit(1);
};

process.on("unhandledRejection", fail);
process.on("uncaughtException", fail);

// The test ends the script by closing its input.
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));

export const listen = (handler) =>
  new Promise((resolve) => {
    const server = http.createServer(handler);
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`));
  });
