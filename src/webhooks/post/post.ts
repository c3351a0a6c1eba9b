import { freeBytes, sizeOf } from '../../base/bytes.ts';
import type { Clock } from '../../base/clock.ts';
import { percentDecoded } from '../../base/form-pairs.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { withPort } from '../../base/networks.ts';
import type { FormatName } from '../../inbound/formats.ts';
import { type AttemptResult, errorOf, isSuccess } from '../../queue/settle.ts';
import { mandrillSignature } from '../signing.ts';
import type { Poster } from '../types.ts';
import { createFileBody } from './file-body.ts';
import type { AddressVerdict, Guard } from './guard.ts';
import { type AttemptNotes, createNotes, type Request, toDetailText } from './notes.ts';
import {
  connectorTo,
  createConnections,
  createHandler,
  type Failure,
  openWire,
  type Wire,
  type WireEnding,
} from './wire.ts';

interface PosterSettings {
  /** For one request: DNS lookup, connection, TLS, request and response together. */
  readonly timeoutMs: number;
  /** `Postern/<version>`. */
  readonly userAgent: string;
  /** Maximum number of idle connections per origin. */
  readonly connections: number;
}

type Asked = Pick<Request, 'method' | 'headers' | 'body'> & { readonly url: string };

/**
 * Creates the poster, which checks each endpoint with the guard, sets one deadline per request, and reuses a connection
 * while DNS still returns the same addresses.
 */
export function createPoster(settings: PosterSettings, deps: { readonly guard: Guard; readonly clock: Clock }): Poster {
  const { guard, clock } = deps;
  const connections = createConnections(settings.connections, (origin, addresses) => {
    const connect = connectorTo(addresses, settings.timeoutMs);
    return () => openWire(origin, connect, clock.monotonic, (wire) => connections.closed(wire));
  });
  let stopped = false;

  async function attempt(asked: Asked): Promise<AttemptResult> {
    const started = clock.monotonic();
    const deadline = startDeadline(clock, settings.timeoutMs);
    const notes = createNotes(clock.monotonic);
    try {
      const ending = await guarded(asked, deadline, notes);
      return { ...ending, durationMs: Math.round(clock.monotonic() - started), detail: toDetailText(notes) };
    } finally {
      deadline.cancel();
    }
  }

  async function guarded(asked: Asked, deadline: Deadline, notes: AttemptNotes): Promise<WireEnding> {
    const { method, url, headers, body } = asked;
    const parsed = URL.parse(url);
    if (!parsed) return { kind: 'unanswered', error: 'host not found', connected: false };
    const began = notes.now();
    const verdict = await checked(guard, parsed, deadline);
    notes.lookedUp = notes.now() - began;
    // The forbidden addresses of a name are never revealed (`why`).
    if (!verdict.ok) {
      const { ok: _, ...failure } = verdict;
      return { kind: 'unanswered', connected: false, ...failure };
    }
    notes.tried = verdict.addresses.map((address) => withPort(address, verdict.port));
    if (stopped) return { kind: 'unanswered', error: 'connection failed', connected: false };
    const request: Request = {
      method,
      host: parsed.host,
      path: parsed.pathname + parsed.search,
      headers: { ...headers, ...commonHeaders(parsed, settings.userAgent) },
      body,
      secure: parsed.protocol === 'https:',
    };
    notes.request = request;
    notes.size = body ? sizeOf(body) : 0;
    return send(request, parsed.origin, verdict.addresses, deadline, notes);
  }

  async function send(
    request: Request,
    origin: string,
    addresses: readonly string[],
    deadline: Deadline,
    notes: AttemptNotes,
  ): Promise<WireEnding> {
    const { connection, used } = connections.take(origin, addresses);
    notes.reused = used;
    const ending = await exchange(connection, request, deadline, notes);
    // A server may close an idle connection just as it is reused. This is no failure of the endpoint and must not count
    // as an attempt, so retry once on a new connection; the receiver recognizes a duplicate by its webhook-id.
    const stale =
      used && ending.kind === 'unanswered' && ending.error === 'connection reset' && !deadline.passed() && !stopped;
    if (!stale) return ended(connection, request, ending);
    const fresh = connections.fresh(origin, addresses);
    notes.reused = false;
    return ended(fresh, request, await exchange(fresh, request, deadline, notes));
  }

  /**
   * Frees the body, unless it is still being written: the response may arrive early, or the connection may have closed
   * in the middle of a write.
   */
  function ended(wire: Wire, { body }: Request, ending: WireEnding): WireEnding {
    if (body && wire.sent()) freeBytes(body);
    return ending;
  }

  /** Sends one request on one connection, then returns the connection to the pool or drops it. */
  function exchange(wire: Wire, request: Request, deadline: Deadline, notes: AttemptNotes): Promise<WireEnding> {
    notes.sentAt = undefined;
    notes.firstByte = undefined;
    return new Promise((resolve) => {
      const file = request.body?.kind === 'file' ? createFileBody(request.body, wire.sent) : undefined;
      const finish = (ending: WireEnding, reusable: boolean): void => {
        file?.close();
        notes.opened = wire.opened();
        if (reusable) connections.giveBack(wire);
        else connections.drop(wire);
        resolve(ending);
      };
      const handler = createHandler(request.secure, notes, wire.status, finish);
      deadline.onPass(handler.expire);
      if (deadline.passed()) return;
      wire.dispatch(request, file, handler);
    });
  }

  return frozen({
    post: (url, headers, body) => attempt({ method: 'POST', url, headers, body }),
    head: (url) => attempt({ method: 'HEAD', url, headers: {}, body: null }),
    async stop() {
      stopped = true;
      connections.destroy();
    },
  });
}

/** The guard's verdict, or `timeout` if the DNS lookup exceeds the deadline of the attempt. */
function checked(guard: Guard, url: URL, deadline: Deadline): Promise<AddressVerdict> {
  return new Promise((resolve) => {
    deadline.onPass(() => resolve({ ok: false, error: 'timeout' }));
    guard.check(url).then(resolve, () => resolve({ ok: false, error: 'DNS failure' }));
  });
}

/** The headers of every request. A user and password in the URL are sent as Basic authentication, as Mandrill does. */
function commonHeaders(url: URL, userAgent: string): Record<string, string> {
  const headers = { 'user-agent': userAgent, accept: '*/*' };
  if (url.username === '' && url.password === '') return headers;
  const pair = `${percentDecoded(url.username)}:${percentDecoded(url.password)}`;
  return { ...headers, authorization: `Basic ${Buffer.from(pair, 'utf8').toString('base64')}` };
}

/** One absolute deadline for all steps of an attempt. */
type Deadline = ReturnType<typeof startDeadline>;

function startDeadline(clock: Pick<Clock, 'after'>, ms: number) {
  let passed = false;
  let act = (): void => {};
  const cancel = clock.after(ms, () => {
    passed = true;
    act();
  });
  return {
    passed: () => passed,
    /** Sets the callback, replacing the previous one. Called immediately if the deadline has already passed. */
    onPass(next: () => void) {
      act = next;
      if (passed) act();
    },
    cancel,
  };
}

// Mandrill's POST for checking that a URL exists, signed with a well-known key; its consumers recognise both.
const TEST_KEY = 'test-webhook';
const NO_EVENTS = '[]';
const BODY = 'mandrill_events=%5B%5D';

interface UrlCheckDeps {
  readonly poster: Pick<Poster, 'head' | 'post'>;
  readonly guard: Guard;
  readonly log: Pick<Log, 'info'>;
}

/**
 * Checks that a webhook can be at a URL: HEAD is answered 200, or else a POST without events is answered 2xx. Returns
 * undefined if so, else the reason in words for the user. If HEAD cannot connect, no POST follows.
 */
export function createUrlCheck({
  poster,
  guard,
  log,
}: UrlCheckDeps): (url: string, format?: FormatName) => Promise<string | undefined> {
  return async (url, format = 'mandrill') => {
    const result = await (format === 'mandrill' ? lastWord(poster, url) : poster.head(url));
    if (result === undefined || isSuccess(result)) return undefined;
    // Only Mandrill's consumers know a post without events: for others, any answer shows that they exist.
    if (format !== 'mandrill' && result.kind === 'answered') return undefined;
    log.info('endpoint.unverified', {
      host: URL.parse(url)?.host,
      ...(result.kind === 'answered' ? { status: result.status } : { error: errorOf(result) }),
      ms: result.durationMs,
    });
    return result.kind === 'answered'
      ? `a POST without events was answered ${result.status}`
      : why(result, await guard.check(url));
  };
}

/**
 * The text for a failure. It names the addresses only if the guard allows them: the user sees responses from there
 * anyway. Otherwise, a host that does not exist and a host in a forbidden network get the same text; different texts
 * would reveal which internal names exist.
 */
function why({ error, cause }: Failure, target: AddressVerdict): string {
  if (!target.ok) {
    if (target.error === 'DNS failure') return 'the name servers did not answer';
    return target.cause ?? 'the host has no address that webhooks may reach';
  }
  const addresses = target.addresses.map((address) => withPort(address, target.port));
  return `${error} at ${addresses.join(', ')}${cause === undefined ? '' : `: ${cause}`}`;
}

/** Undefined if HEAD was answered 200. Otherwise the result of the HEAD if it could not connect, else of the POST. */
async function lastWord(poster: Pick<Poster, 'head' | 'post'>, url: string): Promise<AttemptResult | undefined> {
  const head = await poster.head(url);
  if (head.kind === 'answered' && head.status === 200) return undefined;
  if (head.kind === 'unanswered' && !head.connected) return head;
  return poster.post(
    url,
    {
      'content-type': 'application/x-www-form-urlencoded',
      'x-mandrill-signature': mandrillSignature(TEST_KEY, url, { mandrill_events: NO_EVENTS }),
    },
    { kind: 'memory', bytes: new TextEncoder().encode(BODY) },
  );
}
