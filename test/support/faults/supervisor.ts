import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { until } from '../until.ts';

// Holds the listening socket as systemd does, without accepting: Node would, so this is Python. It starts one daemon
// after the other.
const SUPERVISOR = `
import fcntl, json, os, signal, socket, subprocess, sys
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen(4096)
kept = fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 20)
print(json.dumps({'held': s.getsockname()[1]}), flush=True)
p = None
for line in sys.stdin:
    word = line.strip()
    if word == 'start':
        script = 'INVOCATION_ID=a3f0e1d2c4b5968778695a4b3c2d1e0f LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=smtp exec "$0" "$@"'
        p = subprocess.Popen(['sh', '-c', script] + sys.argv[1:], stdin=subprocess.DEVNULL, pass_fds=(3,), preexec_fn=lambda: os.dup2(kept, 3))
    elif word == 'reload':
        p.send_signal(signal.SIGHUP)
    elif word == 'stop':
        p.send_signal(signal.SIGTERM)
        print(json.dumps({'status': p.wait()}), flush=True)
if p and p.poll() is None:
    p.kill()
    p.wait()
`;

/** A service manager that holds the SMTP socket while daemons come and go. */
interface Supervisor {
  readonly port: number;
  /** Starts a daemon and answers the base of its API when it is ready. */
  start(): Promise<string>;
  reload(): void;
  /** SIGTERM; answers the exit code. */
  stop(): Promise<number>;
  close(): Promise<void>;
}

export function canSupervise(): boolean {
  try {
    execFileSync('python3', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

interface Line {
  readonly held?: number;
  readonly status?: number;
  readonly event?: string;
  readonly http?: string;
}

export async function startSupervisor(env: Readonly<Record<string, string>>): Promise<Supervisor> {
  const child = spawn('python3', ['-c', SUPERVISOR, process.execPath, 'src/main.ts', 'serve'], {
    stdio: ['pipe', 'pipe', 'ignore'],
    env: { ...process.env, ...env },
  });
  const exited = once(child, 'exit');
  const lines: Line[] = [];
  createInterface({ input: child.stdout }).on('line', (text) => {
    const line: Line = JSON.parse(text);
    // What is logged of each message is not wanted.
    if (
      line.held !== undefined ||
      (line.status !== undefined && line.event === undefined) ||
      line.event === 'daemon.ready'
    )
      lines.push(line);
  });
  const next = async (say: string): Promise<Line> => {
    const seen = lines.length;
    child.stdin.write(`${say}\n`);
    return until(`an answer to ${say}`, () => lines[seen] ?? false, 60_000);
  };
  const { held: port = 0 } = await until('the socket', () => lines[0] ?? false);
  return {
    port,
    start: async () => `http://${(await next('start')).http}`,
    reload() {
      child.stdin.write('reload\n');
    },
    stop: async () => (await next('stop')).status ?? -1,
    async close() {
      child.stdin.end();
      await exited;
    },
  };
}
