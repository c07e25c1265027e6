import { type Ask, Line, world } from './connection';

const line = new Line(world);

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  port.onmessage = (it: MessageEvent<Ask>) => line.ask(port, it.data);
};
