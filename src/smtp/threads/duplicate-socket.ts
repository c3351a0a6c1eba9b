import { fork } from 'node:child_process';
import { Server } from 'node:net';

/** How long the helper may take. It is a start of Node. */
const HELPER_MS = 10_000;

/**
 * A listening socket of this process, once more, under a descriptor that belongs to this thread alone. Two threads must
 * not listen on one descriptor: each would close it for all, and close whatever has its number by then once more. Node
 * cannot duplicate a descriptor, but hands sockets from process to process; so a child gets the socket and hands it
 * back.
 */
export async function duplicateSocket(fd: number): Promise<Server> {
  const helper = fork(new URL('./hand-back-socket.ts', import.meta.url), {
    stdio: ['ignore', 'ignore', 'ignore', 'ipc', fd],
    execArgv: [],
    env: {},
    timeout: HELPER_MS,
  });
  return new Promise((resolve, reject) => {
    helper.once('message', (_, socket) => {
      if (socket instanceof Server) resolve(socket);
      else reject(new Error('the helper sent no socket'));
    });
    helper.once('error', reject);
    helper.once('exit', (code, signal) => reject(new Error(`descriptor ${fd} was not handed back: ${signal ?? code}`)));
  });
}
