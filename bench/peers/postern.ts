import { basename, join } from 'node:path';
import { freePort } from '../../test/support/free-port.ts';
import { startZone, type ZoneRecords } from '../../test/support/zone.ts';
import type { Certificate } from '../certificates.ts';
import type { Sender } from '../messages.ts';
import { cpuSeconds, memoryMb, startListener } from '../processes.ts';
import type { Peer, Started } from './peer.ts';

/** This tree. */
const ROOT = join(import.meta.dirname, '../..');
const KEY = 'a-key-for-the-bench-22';

/**
 * What is not as it ships. One client with all sessions and one account with all mail would meet limits that many never
 * meet together, and the disk of a test machine may be full; all else is what an installation does.
 */
const WIDER = {
  POSTERN_SMTP__MAX_SESSIONS_PER_ADDRESS: '1000',
  POSTERN_SMTP__MAX_MESSAGES_PER_SESSION: '1000000',
  POSTERN_SMTP__MAX_BACKLOG_PER_ACCOUNT: '2000000',
  POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
  POSTERN_SPOOL__MIN_FREE_BYTES: '0',
};

/** A daemon of ours with its default settings. */
export interface Postern extends Started {
  readonly pid: number;
  /** Opens the start page of its console so many times; returns a function that closes them. */
  openConsoles(count: number): Promise<() => void>;
  /** Calls an operation; throws unless it answers 200. */
  call(path: string, params: object): Promise<any>;
}

/** As `npm start` and the installed command have them. */
const FLAGS = ['--max-semi-space-size=8'];

/** Starts the daemon of a tree on `dir`, whatever is in there. `dns` is the name server it asks. */
export async function startPostern(
  dir: string,
  dns: string,
  {
    root = ROOT,
    certificate,
    more = {},
  }: { root?: string; certificate?: Certificate | undefined; more?: Readonly<Record<string, string>> } = {},
): Promise<Postern> {
  const [port, http] = [await freePort(), await freePort()];
  const env = {
    POSTERN_DATA_DIR: dir,
    POSTERN_SMTP__LISTEN: `127.0.0.1:${port}`,
    POSTERN_HTTP__LISTEN: `127.0.0.1:${http}`,
    POSTERN_BOOTSTRAP__API_KEY: KEY,
    POSTERN_DNS__SERVERS: dns,
    NODE_COMPILE_CACHE: join(root, 'node_modules/.cache/postern'), // as the unit and `npm start` have it
    ...WIDER,
    ...more,
    ...(certificate && { POSTERN_SMTP__TLS__CERT: certificate.cert, POSTERN_SMTP__TLS__KEY: certificate.key }),
  };
  const command = [...FLAGS, join(root, 'src/main.ts')];
  const { pid, stop } = await startListener(process.execPath, [...command, 'serve'], port, env);
  const base = `http://127.0.0.1:${http}`;
  return {
    pid,
    port,
    cpu: () => cpuSeconds(pid),
    memory: () => memoryMb(pid),
    held: async () => sumOf('postern_spool_waiting', await (await fetch(`${base}/metrics`)).text()),
    openConsoles: async (count) => {
      const { openConsoles } = await import('./consoles.ts'); // it loads the whole API
      return openConsoles(count, { http, command, env });
    },
    call: createCall(`${base}/api/1.0`),
    stop,
  };
}

/** All values of a metric together. */
function sumOf(name: string, text: string): number {
  const values = [...text.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, 'gm'))];
  return values.reduce((sum, [, value]) => sum + Number(value), 0);
}

function createCall(api: string): Postern['call'] {
  return async (path, params) => {
    const answer = await fetch(`${api}${path}.json`, { method: 'POST', body: JSON.stringify({ key: KEY, ...params }) });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  };
}

export interface PosternOptions {
  readonly name?: string;
  /** Of another tree, which gives it its name. */
  readonly root?: string;
  /** Further parameters of its routes. */
  readonly route?: object;
  /** Pages of its console that are open meanwhile. */
  readonly consoles?: number;
  /** A database that hosts share, with or without copies of mail; `url` names a new one for each start. */
  readonly shared?: { url(): string; readonly copies: 'none' | 'store' };
}

/** Postern, with a name server that knows the sender. */
export function createPostern(
  sender: Sender,
  { root = ROOT, name, route = {}, consoles = 0, shared }: PosternOptions = {},
): Peer {
  return {
    name: name ?? (root === ROOT ? 'postern' : `postern of ${basename(root)}`),
    does: {
      before250: 'written to the queue and synced',
      durable: 'yes',
      verdicts: 'SPF, DKIM, DMARC, ARC',
      parsed: 'yes',
      posted: 'yes, signed, retried for days',
    },
    missing: async () => undefined,
    async start({ urls, dir, certificate, dns }) {
      const zone = await startZone({ ...sender.zone, ...domainsOf(dns?.domains ?? 0) });
      if (dns) zone.behave({ lateMs: dns.ms });
      const more = shared && { POSTERN_STORE__URL: shared.url(), POSTERN_QUEUE__COPIES: shared.copies };
      const daemon = await startPostern(dir, zone.server, { root, certificate, ...(more && { more }) });
      await daemon.call('/inbound/add-domain', { domain: 'in.example' });
      for (const [n, url] of urls.entries()) {
        const pattern = urls.length === 1 ? '*' : `bench-${n}`;
        await daemon.call('/inbound/add-route', { domain: 'in.example', pattern, url, ...route });
      }
      const closeConsoles = await daemon.openConsoles(consoles);
      return {
        ...daemon,
        async stop() {
          closeConsoles();
          await daemon.stop();
          await zone.stop();
        },
      };
    },
  };
}

/** Domains below the sender's, each with a policy of its own. */
const domainsOf = (count: number): ZoneRecords =>
  Object.fromEntries(
    Array.from({ length: count }, (_, n) => [`n${n}.sender.example`, { TXT: ['v=spf1 ip4:127.0.0.0/8 -all'] }]),
  );
