import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { tempDir } from './temp.ts';
import { until } from './until.ts';

/** What systemd is to a service, as far as tests need it: it listens to notifications, and opens sockets beforehand. */
export interface Manager {
  /** NOTIFY_SOCKET for the service. */
  readonly socket: string;
  /** Every datagram so far. */
  readonly notified: readonly string[];
  stop(): Promise<void>;
}

// Node has no AF_UNIX datagram socket. A descriptor that comes along (systemd-notify's barrier) is closed by not being
// taken, which is the answer that systemd-notify waits for.
const RECEIVER = `
import json, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print(json.dumps("bound"), flush=True)
while True:
    print(json.dumps(s.recv(4096).decode()), flush=True)
`;

/** Which of the programs that this needs is missing. */
export function missingProgram(): string | undefined {
  return ['python3', 'systemd-notify'].find((program) => {
    try {
      execFileSync(program, ['--version'], { stdio: 'ignore' });
      return false;
    } catch {
      return true;
    }
  });
}

export async function startManager(): Promise<Manager> {
  const socket = join(await tempDir(), 'notify');
  const receiver = spawn('python3', ['-c', RECEIVER, socket], { stdio: ['ignore', 'pipe', 'inherit'] });
  const got: string[] = [];
  const notified: string[] = [];
  createInterface({ input: receiver.stdout }).on('line', (line) => {
    const datagram = String(JSON.parse(line)).trimEnd();
    if (datagram === 'bound') got.push(datagram);
    else if (!datagram.startsWith('BARRIER=')) notified.push(datagram);
  });
  await until('the manager to listen', () => got.length > 0);
  return Object.freeze({
    socket,
    notified,
    async stop() {
      const ended = once(receiver, 'exit');
      receiver.kill();
      await ended;
    },
  });
}

/** A bound and listening socket for a child; `release` closes our own copy of it. */
export async function openSocket(): Promise<{ readonly port: number; readonly fd: number; release(): void }> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return { port: address.port, fd: descriptorOf(server), release: () => void server.close() };
}

/** The descriptor of a bound server. Node has no public name for it; only a parent that plays systemd needs it. */
function descriptorOf(server: Server): number {
  const handle: unknown = Reflect.get(server, '_handle');
  const fd: unknown = typeof handle === 'object' && handle !== null ? Reflect.get(handle, 'fd') : undefined;
  if (typeof fd !== 'number') throw new Error('this Node keeps the descriptor elsewhere');
  return fd;
}

/**
 * Starts node on `args` with a socket named "smtp" as descriptor 3. LISTEN_PID is the process that exec leaves, as with
 * the installed command.
 */
export function spawnWithSocket(fd: number, args: readonly string[], env: NodeJS.ProcessEnv) {
  const script = 'LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=smtp exec "$0" "$@"';
  return spawn('sh', ['-c', script, process.execPath, ...args], { env, stdio: ['ignore', 'pipe', 'pipe', fd] });
}
