import { connect } from 'node:net';
import type { HostPort } from '../mail.ts';

const PIECE = 1024 * 1024;

/** What a server answered to a client that sends very much. */
export interface Flooded {
  readonly replies: readonly string[];
  /** Bytes that it took from us before it closed the connection, or until the end. */
  readonly sent: number;
  readonly seconds: number;
}

/**
 * Says the opening lines, then `total` bytes of the filling, as fast as they are taken, then the closing text; ends
 * when the connection does, or at the first answer behind those of the opening.
 */
export async function flood(
  at: HostPort,
  parts: {
    readonly opening: readonly string[];
    readonly filling: string;
    readonly total: number;
    readonly closing: string;
  },
): Promise<Flooded> {
  const socket = connect({ ...at, allowHalfOpen: true });
  const replies: string[] = [];
  let [text, over] = ['', false];
  let wake = () => {};
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
    for (let end = text.indexOf('\r\n'); end >= 0; end = text.indexOf('\r\n')) {
      if (text[3] !== '-') replies.push(text.slice(0, end));
      text = text.slice(end + 2);
    }
    wake();
  });
  socket.on('drain', () => wake());
  for (const event of ['error', 'end', 'close'])
    socket.on(event, () => {
      over = true;
      wake();
    });
  const heard = async (count: number) => {
    while (replies.length < count && !over)
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
  };
  await heard(1);
  for (const line of parts.opening) {
    const before = replies.length;
    socket.write(`${line}\r\n`);
    await heard(before + 1);
  }
  const known = replies.length;
  const piece = Buffer.from(parts.filling.repeat(Math.ceil(PIECE / parts.filling.length)));
  const began = performance.now();
  let sent = 0;
  while (sent < parts.total && !over && replies.length === known) {
    sent += piece.length;
    if (!socket.write(piece))
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
  }
  if (!over) socket.write(parts.closing);
  await heard(known + 1);
  socket.destroy();
  return { replies: replies.slice(known), sent, seconds: (performance.now() - began) / 1000 };
}
