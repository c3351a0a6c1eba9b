import { connect } from 'node:net';

const EVERY_MS = 10;

/** What became of connections. */
export interface Calls {
  /** Greeted with 220. */
  greeted: number;
  /** Told 421: come again. */
  putOff: number;
  /** The connection was refused. */
  refused: number;
  /** It was taken and ended without a word. */
  dropped: number;
}

/** Connects again and again, one connection beside the other, and counts; `stop` resolves when all of them are over. */
export function startCalling(port: number): { readonly calls: Calls; stop(): Promise<void> } {
  const calls: Calls = { greeted: 0, putOff: 0, refused: 0, dropped: 0 };
  const open = new Set<Promise<void>>();
  const timer = setInterval(() => {
    const one = call(port).then((outcome) => {
      calls[outcome]++;
      open.delete(one);
    });
    open.add(one);
  }, EVERY_MS);
  return {
    calls,
    async stop() {
      clearInterval(timer);
      await Promise.all(open);
    },
  };
}

function call(port: number): Promise<keyof Calls> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let taken = false;
    socket.setTimeout(30_000, () => socket.destroy());
    socket.on('connect', () => {
      taken = true;
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(taken ? 'dropped' : 'refused'));
    socket.once('data', (chunk) => {
      resolve(chunk.toString('latin1').startsWith('220') ? 'greeted' : 'putOff');
      socket.end('QUIT\r\n');
    });
  });
}
