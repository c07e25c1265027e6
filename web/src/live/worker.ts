// The SharedWorker that runs the live connection.

import { LiveConnection, type TabRequest, browserEnvironment } from './connection';

const connection = new LiveConnection(browserEnvironment);

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  port.onmessage = (event: MessageEvent<TabRequest>) => connection.handleRequest(port, event.data);
};
