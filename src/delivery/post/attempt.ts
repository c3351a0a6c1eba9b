import type { Clock } from '../../base/clock.ts';
import type { AttemptResult, PostBody, Poster } from '../types.ts';
import { createConnections } from './connections.ts';
import { type Deadline, startDeadline } from './deadline.ts';
import { createFileBody } from './file-body.ts';
import type { Guard, Verdict } from './guard.ts';
import { connectorTo, createHandler, type Ending, openWire, type Request, type Wire } from './wire.ts';

export interface PosterSettings {
  /** For one request: name, connection, TLS, request and answer together. */
  readonly timeoutMs: number;
  /** `Postern/<version>`. */
  readonly userAgent: string;
  /** Idle connections that are kept for one origin. */
  readonly connections: number;
}

/** What posts to endpoints: guarded, under one deadline, over connections that are used again while DNS still names their address. */
export function createPoster(settings: PosterSettings, deps: { readonly guard: Guard; readonly clock: Clock }): Poster {
  const { guard, clock } = deps;
  const connections = createConnections<Wire>(settings.connections, (origin, addresses) => {
    const connect = connectorTo(addresses, settings.timeoutMs);
    return () => openWire(origin, connect, (wire) => connections.closed(wire));
  });
  let stopped = false;

  async function attempt(
    method: 'POST' | 'HEAD',
    url: string,
    headers: Readonly<Record<string, string>>,
    body: PostBody | null,
  ): Promise<AttemptResult> {
    const started = clock.monotonic();
    const deadline = startDeadline(clock, settings.timeoutMs);
    try {
      const ending = await guarded(method, url, headers, body, deadline);
      return { ...ending, durationMs: Math.round(clock.monotonic() - started) };
    } finally {
      deadline.cancel();
    }
  }

  async function guarded(
    method: 'POST' | 'HEAD',
    url: string,
    headers: Readonly<Record<string, string>>,
    body: PostBody | null,
    deadline: Deadline,
  ): Promise<Ending> {
    const parsed = URL.parse(url);
    if (!parsed) return { kind: 'unanswered', error: 'host not found', connected: false };
    const verdict = await checked(guard, parsed, deadline);
    if (!verdict.ok) return { kind: 'unanswered', error: verdict.error, connected: false };
    if (stopped) return { kind: 'unanswered', error: 'connection failed', connected: false };
    const request: Request = {
      method,
      path: parsed.pathname + parsed.search,
      headers: { ...headers, ...standing(parsed, settings.userAgent) },
      body,
      secure: parsed.protocol === 'https:',
    };
    return send(request, parsed.origin, verdict.addresses, deadline);
  }

  async function send(
    request: Request,
    origin: string,
    addresses: readonly string[],
    deadline: Deadline,
  ): Promise<Ending> {
    const { connection, used } = connections.take(origin, addresses);
    const ending = await exchange(connection, request, deadline);
    // A server may close an idle connection in the very moment we use it again. That says nothing about the endpoint and
    // must not cost an attempt, so it is tried once more on a new connection; the receiver knows a repeat by webhook-id.
    const stale =
      used && ending.kind === 'unanswered' && ending.error === 'connection reset' && !deadline.passed() && !stopped;
    return stale ? exchange(connections.fresh(origin, addresses), request, deadline) : ending;
  }

  /** One request on one connection; gives the connection back or drops it. */
  function exchange(wire: Wire, request: Request, deadline: Deadline): Promise<Ending> {
    return new Promise((resolve) => {
      const file = request.body?.kind === 'file' ? createFileBody(request.body, wire.sent) : undefined;
      const finish = (ending: Ending, reusable: boolean): void => {
        file?.close();
        if (reusable) connections.giveBack(wire);
        else connections.drop(wire);
        resolve(ending);
      };
      const handler = createHandler(request.secure, finish);
      deadline.onPass(handler.expire);
      if (deadline.passed()) return;
      wire.dispatch(request, file, handler);
    });
  }

  return Object.freeze({
    post: (url: string, headers: Readonly<Record<string, string>>, body: PostBody) =>
      attempt('POST', url, headers, body),
    head: (url: string) => attempt('HEAD', url, {}, null),
    async stop() {
      stopped = true;
      connections.destroy();
    },
  });
}

/** The guard's verdict, or `timeout` when the name servers take longer than the attempt may. */
function checked(guard: Guard, url: URL, deadline: Deadline): Promise<Verdict> {
  return new Promise((resolve) => {
    deadline.onPass(() => resolve({ ok: false, error: 'timeout' }));
    guard.check(url).then(resolve, () => resolve({ ok: false, error: 'DNS failure' }));
  });
}

/** Headers that every request carries. A user and password in the URL go where HTTP wants them, as consumers of Mandrill expect. */
function standing(url: URL, userAgent: string): Record<string, string> {
  const headers = { 'user-agent': userAgent, accept: '*/*' };
  if (url.username === '' && url.password === '') return headers;
  const pair = `${decoded(url.username)}:${decoded(url.password)}`;
  return { ...headers, authorization: `Basic ${Buffer.from(pair, 'utf8').toString('base64')}` };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
