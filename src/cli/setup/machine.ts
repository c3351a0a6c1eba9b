import { execFile } from 'node:child_process';
import { statSync } from 'node:fs';
import { createServer } from 'node:net';
import { hostname } from 'node:os';
import { createInterface } from 'node:readline';
import { frozen } from '../../base/frozen.ts';

/** The operations of `postern setup` on a machine, besides writing files. */
export interface Machine {
  /** The root of the file system: `/`. */
  readonly root: string;
  /** Its own name, which may lack a domain. */
  readonly name: string;
  readonly isRoot: boolean;
  /** Asks on the terminal; undefined if the input ended. */
  ask(question: string): Promise<string | undefined>;
  /** Runs a program and returns what it printed. Never throws. */
  run(program: string, ...args: readonly string[]): Promise<Ran>;
  /** Whether a program listens on a TCP port. */
  isTaken(port: number): Promise<boolean>;
  /** Calls `use` as the user who owns a folder: files that root makes in it could not be used by the daemon. */
  asOwner<T>(dir: string, use: () => Promise<T>): Promise<T>;
}

interface Ran {
  /** 127 if there is no such program. */
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A start of the daemon may take its TimeoutStartSec, and a stop before it as long again. */
const RUN_MS = 200_000;
const NOT_FOUND = 127;

/** This machine. */
export function createMachine(): Machine {
  return frozen({
    root: '/',
    name: hostname(),
    isRoot: process.getuid?.() === 0,
    ask: createAsking(),
    run: (program, ...args) =>
      new Promise((resolve) => {
        execFile(program, args, { timeout: RUN_MS }, (error, out, err) => {
          const code = typeof error?.code === 'number' ? error.code : error?.code === 'ENOENT' ? NOT_FOUND : 1;
          resolve({ code: error ? code : 0, out, err });
        });
      }),
    isTaken: (port) =>
      new Promise((resolve) => {
        const server = createServer();
        server.once('error', () => resolve(true));
        server.listen(port, () => server.close(() => resolve(false)));
      }),
    async asOwner(dir, use) {
      const { uid, gid } = statSync(dir);
      const { geteuid, getegid, seteuid, setegid } = process;
      if (!geteuid || !getegid || !seteuid || !setegid || uid === geteuid()) return use();
      const before = { uid: geteuid(), gid: getegid() };
      setegid(gid);
      seteuid(uid);
      try {
        return await use();
      } finally {
        seteuid(before.uid);
        setegid(before.gid);
      }
    },
  });
}

/** Asks on the terminal, which provides line editing. Buffers lines that arrive early, as when pasted. */
function createAsking(): Machine['ask'] {
  let lines: AsyncIterator<string> | undefined;
  return async (question) => {
    lines ??= createInterface({ input: process.stdin, terminal: false })[Symbol.asyncIterator]();
    process.stdout.write(question);
    process.stdin.resume();
    const { value, done } = await lines.next();
    process.stdin.pause(); // or the process would not end
    return done ? undefined : value;
  };
}
