import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Context } from 'koa';
import { z } from 'zod';
import { createBoundedCache } from '../../base/cache.ts';
import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import { StoreAway } from '../../store/driver/port.ts';
import type { HostRow, TokenSecret } from '../../store/rows/hosts.ts';
import type { Store } from '../../store/store.ts';
import { ERRORS, type ErrorName, Refusal, refusal } from '../errors.ts';

// Calls between the hosts of a store. Each is signed with the secret that all of them read from it, is valid for one
// process of one host, and is accepted once.

export const PEER_PATH = '/peer/1.0';
/** The path of a call that only checks whether a host answers. */
export const PING = '/ping';
const SIGNATURE = 'postern-signature';
const ID = 'postern-peer';
/** Calls hold names and no content: at most a thousand ids, and a hundred URLs. */
const MAX_CALL_BYTES = 1024 * 1024;
const MAX_ERROR_BYTES = 65_536;
/** How long a host is not called after it did not answer. Milliseconds. */
const QUIET_MS = 5000;

interface WireDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly store: Pick<Store, 'hosts'>;
  readonly tokenSecret: TokenSecret;
  /** This host, and this process of it. */
  readonly member: { id(): string; readonly incarnation: string };
  /** The number of the next call of this process: each is accepted once. */
  readonly nextCall: () => number | Promise<number>;
}

/** Numbers the calls of a process. */
export function createCallNumbers(): () => number {
  let calls = 0;
  return () => ++calls;
}

interface Waiting<T> {
  /** How long to wait for the answer to begin. */
  readonly ms: number;
  /** Ends the wait. */
  readonly gone?: AbortSignal | undefined;
  /** The result if the host may have carried out the call, but its answer is lost. */
  readonly lost?: T | undefined;
}

/** Errors without a connection. */
const UNCONNECTED = /^(?:ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT)$/;

const sealed = z.strictObject({
  /** The calling process, and the number of its call. */
  from: z.string().max(255),
  n: z.int().min(1),
  call: z.unknown(),
});

export type PeerWire = ReturnType<typeof createPeerWire>;

export function createPeerWire({ store, tokenSecret, member, nextCall, clock, log, metrics }: WireDeps) {
  const meters = {
    answered: metrics.counter('postern_peer_calls_total', { result: 'answered' }),
    silent: metrics.counter('postern_peer_calls_total', { result: 'silent' }),
  };
  const quietUntil = createBoundedCache<number>({ most: 1000 });
  const replayGuard = createReplayGuard();
  let known: readonly HostRow[] = [];

  async function sign(incarnation: string, path: string, body: string): Promise<Buffer> {
    const secret = await tokenSecret.read();
    return createHmac('sha256', secret).update(`peer\n${incarnation}\n${path}\n${body}`).digest();
  }

  return frozen({
    /** The other hosts of the store; while it is away, those that were read last. */
    async others(): Promise<readonly HostRow[]> {
      try {
        known = await store.hosts.many({});
      } catch (error) {
        if (!(error instanceof StoreAway)) throw error;
      }
      return known.filter(({ id }) => id !== member.id());
    },

    /**
     * Calls a host. Undefined, or `lost`, if it is not running, has no URL, or does not answer; then it is not called
     * again for QUIET_MS. `read` gets its answer, and throws if it is invalid.
     */
    async call<T>(
      host: HostRow,
      path: string,
      call: object,
      { ms, gone, lost }: Waiting<T>,
      read: (response: Response) => Promise<T>,
    ): Promise<T | undefined> {
      const { incarnation, url } = host;
      if (incarnation === null || !url) return undefined;
      const name = `${incarnation} ${url}`;
      if (clock.monotonic() < (quietUntil.get(name) ?? 0)) return undefined;
      const late = new AbortController();
      // Not the injected clock: it waits for another machine.
      let isSent = false;
      const timer = setTimeout(() => late.abort(new Error(`no answer within ${ms} ms`)), ms);
      try {
        const body = JSON.stringify({ from: member.incarnation, n: await nextCall(), call });
        const signature = await sign(incarnation, path, body);
        isSent = true;
        const response = await fetch(`${url.replace(/\/+$/, '')}${PEER_PATH}${path}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', [SIGNATURE]: signature.toString('hex') },
          body,
          redirect: 'error',
          signal: gone ? AbortSignal.any([late.signal, gone]) : late.signal,
        });
        if (response.headers.get(ID) !== host.id && (await isUnknown(response))) return undefined;
        if (response.headers.get(ID) !== host.id)
          throw new Error(response.status < 500 ? `${url} is not this host` : `it answered ${response.status}`);
        const answer = await read(response);
        meters.answered.add();
        return answer;
      } catch (error) {
        if (gone?.aborted) return undefined;
        meters.silent.add();
        quietUntil.set(name, clock.monotonic() + QUIET_MS);
        log.warn('api.peer_silent', { host: host.name, url, error });
        return !isSent || isUnconnected(error) ? undefined : lost;
      } finally {
        clearTimeout(timer);
      }
    },

    /** Reads the call in a request of another host. Throws Invalid_Key if it is not for this process, or a replay. */
    async receive(ctx: Context): Promise<unknown> {
      const body = (await readAtMost(ctx.req, MAX_CALL_BYTES)).toString();
      const signature = Buffer.from(headerOf(ctx.req.headers), 'hex');
      const expected = await sign(member.incarnation, ctx.path.slice(PEER_PATH.length), body);
      if (signature.length !== expected.length || !timingSafeEqual(signature, expected)) throw refusal('Invalid_Key');
      const { from, n, call } = sealed.parse(JSON.parse(body));
      if (!replayGuard(from, n)) throw refusal('Invalid_Key');
      ctx.set(ID, member.id());
      ctx.set('Cache-Control', 'no-store');
      return call;
    },
  });
}

/** Whether a call cannot have reached a host. */
function isUnconnected(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && 'code' in cause && UNCONNECTED.test(String(cause.code));
}

/** Whether a host answered that its version does not have the operation. */
async function isUnknown(response: Response): Promise<boolean> {
  if (response.status !== ERRORS.Unknown_Operation.status || !response.body) return false;
  const text = (await readAtMost(response.body, MAX_ERROR_BYTES)).toString();
  return text.includes(`"name":"${'Unknown_Operation' satisfies ErrorName}"`);
}

const headerOf = ({ [SIGNATURE]: value }: IncomingHttpHeaders): string => (typeof value === 'string' ? value : '');

/** How far the calls of a process may be out of order. */
const WINDOW = 4096;
const MAX_CALLERS = 1000;

/** Returns a function that is true for the first arrival of a call, so that an intercepted copy is refused. */
function createReplayGuard(): (from: string, n: number) => boolean {
  const callers = createBoundedCache<{ highest: number; readonly seen: Set<number> }>({
    most: MAX_CALLERS,
    keepUsed: true,
  });
  return (from, n) => {
    const caller = callers.get(from) ?? { highest: 0, seen: new Set() };
    if (n <= caller.highest - WINDOW || caller.seen.has(n)) return false;
    caller.highest = Math.max(caller.highest, n);
    caller.seen.add(n);
    if (caller.seen.size > 2 * WINDOW)
      for (const old of caller.seen) if (old <= caller.highest - WINDOW) caller.seen.delete(old);
    callers.set(from, caller);
    return true;
  };
}

/** Reads a body of at most `most` bytes. */
export async function readAtMost(
  chunks: AsyncIterable<Uint8Array> | readonly Uint8Array[],
  most: number,
): Promise<Buffer> {
  const read: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    size += chunk.length;
    if (size > most) throw refusal('ValidationError', { body: `The body is larger than ${most} bytes` });
    read.push(chunk);
  }
  return Buffer.concat(read);
}

const envelope = z.object({ name: z.string(), code: z.number(), message: z.string() });

/** Errors of a host that cannot handle the call: its version differs, or its store is away. */
const CANNOT: ReadonlySet<string> = new Set(['Invalid_Key', 'Unknown_Operation', 'GeneralError', 'ServiceUnavailable']);

/** The refusal in the answer of another host. Throws if the host could not handle the call. */
export function toRefusal(bytes: Buffer): Refusal {
  const { name, code, message } = envelope.parse(JSON.parse(bytes.toString()));
  if (!isErrorName(name) || CANNOT.has(name)) throw new Error(`it refused with ${name}`);
  return new Refusal(name, message, code);
}

const isErrorName = (name: string): name is ErrorName => Object.hasOwn(ERRORS, name);
