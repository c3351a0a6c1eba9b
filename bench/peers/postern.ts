import { basename, join } from 'node:path';
import { startZone } from '../../test/support/zone.ts';
import type { Sender } from '../messages.ts';
import { cpuSeconds, memoryMb, type Running, start } from '../processes.ts';
import type { Peer, Started } from './peer.ts';

/** This tree. */
const ROOT = join(import.meta.dirname, '../..');
const KEY = 'a-key-for-the-bench-22';

/**
 * Posts at one time to the one sink, as many as the pool of the one by hand has connections. The default of 8 spares a
 * webhook that is small.
 */
const POSTS = 50;

/**
 * A daemon of ours, with everything on that it ships with; only limits that one client of many sessions, or one
 * endpoint for all mail, would meet are wider.
 */
export interface Postern extends Started {
  readonly pid: number;
  /** Calls an operation; throws unless it answers 200. */
  call(path: string, params: object): Promise<any>;
}

/** Starts the daemon of a tree on `dir`, whatever is in there. `dns` is the name server it asks. */
export async function startPostern(dir: string, dns: string, root = ROOT): Promise<Postern> {
  const daemon = await start(
    [join(root, 'src/main.ts'), 'serve'],
    {
      POSTERN_DATA_DIR: dir,
      POSTERN_SMTP__LISTEN: '127.0.0.1:0',
      POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      POSTERN_BOOTSTRAP__API_KEY: KEY,
      POSTERN_DNS__SERVERS: dns,
      POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
      POSTERN_SPOOL__MIN_FREE_BYTES: '0',
      POSTERN_SMTP__MAX_BACKLOG_PER_ACCOUNT: '2000000',
      POSTERN_SMTP__MAX_SESSIONS_PER_ADDRESS: '1000',
      POSTERN_SMTP__MAX_MESSAGES_PER_SESSION: '1000000',
      POSTERN_LOG__LEVEL: 'info',
      NODE_COMPILE_CACHE: join(root, 'node_modules/.cache/postern'), // as the unit and `npm start` have it
      POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: String(POSTS),
    },
    (line) => line.event === 'daemon.ready',
  );
  return {
    ...daemon,
    port: portOf(daemon),
    cpu: () => cpuSeconds(daemon.pid),
    memory: () => memoryMb(daemon.pid),
    call: createCall(`http://${daemon.first.http}/api/1.0`),
  };
}

function portOf({ first }: Running): number {
  return Number(String(first.smtp[0]).split(':').at(-1));
}

function createCall(api: string): Postern['call'] {
  return async (path, params) => {
    const answer = await fetch(`${api}${path}.json`, { method: 'POST', body: JSON.stringify({ key: KEY, ...params }) });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  };
}

/** Postern, with a name server that knows the sender. `root`: of another tree, which gives it its name. */
export function createPostern(sender: Sender, root = ROOT): Peer {
  return {
    name: root === ROOT ? 'postern' : `postern of ${basename(root)}`,
    does: {
      before250: 'written to the queue and synced',
      durable: 'yes',
      verdicts: 'SPF, DKIM, DMARC, ARC',
      parsed: 'yes',
      posted: `yes, signed, tried again for days; up to ${POSTS} at a time`,
    },
    missing: async () => undefined,
    async start(sink, dir) {
      const zone = await startZone(sender.zone);
      const daemon = await startPostern(dir, zone.server, root);
      await daemon.call('/inbound/add-domain', { domain: 'in.example' });
      await daemon.call('/inbound/add-route', { domain: 'in.example', pattern: '*', url: sink });
      return {
        ...daemon,
        async stop() {
          await daemon.stop();
          await zone.stop();
        },
      };
    },
  };
}
