import { fork } from 'node:child_process';
import { Server } from 'node:net';
import { moduleUrl } from '../../base/module-url.ts';

/** Timeout of the helper, which has to start Node. */
const HELPER_MS = 10_000;

/**
 * Duplicates a listening socket of this process, under a descriptor that belongs to this thread alone. Two threads must
 * not listen on one descriptor: each would close it for all, and then close whatever has reused its number. Node cannot
 * duplicate a descriptor, but passes sockets between processes, so a child gets the socket and passes it back.
 */
export async function duplicateSocket(fd: number): Promise<Server> {
  const helper = fork(moduleUrl('./hand-back-socket.ts', import.meta.url), {
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
