import { setTimeout } from 'node:timers/promises';
import { z } from 'zod';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import { printable } from '../base/log.ts';
import { PULL_URL } from '../inbound/pulled.ts';
import { type Command, EXIT, type Invocation, type Io, ownServer, readSecret, UsageError } from './command.ts';
import { CallRefused, Unreachable } from './import/client.ts';
import { callOnce, type Forwarded, forward, subjectOfPost } from './listen/forward.ts';

/** Messages in one answer, and the seconds of their lease: enough to post all of them one after the other. */
const AT_ONCE = 5;
const LEASE_S = 300;
/** Seconds that a call waits for mail. */
const WAIT_S = 25;
/** The pause after a failure, doubled each time up to the second. Milliseconds. */
const PAUSE_MS = 1000;
const MAX_PAUSE_MS = 30_000;
/** The number of tries to report a response of the receiver to the server. */
const TRIES = 8;
/** Temporary errors. */
const PASSING: ReadonlySet<string> = new Set(['RequestLimitExceeded', 'ServiceUnavailable', 'GeneralError']);

const mail = z.looseObject({
  id: z.string(),
  email: z.string(),
  content_type: z.string(),
  headers: z.record(z.string(), z.string()),
  body: z.string(),
});
const pulled = z.array(mail.extend({ lease: z.string() }));
const tapped = z.object({ cursor: z.union([z.int(), z.string()]), gap: z.boolean(), messages: z.array(mail) });

type Mail = z.output<typeof mail>;

export const listen: Command = {
  options: {
    'forward-to': { value: 'URL', help: 'where to post it, for example http://localhost:3000/mail' },
    server: { value: 'URL', help: 'the API of Postern (default: http.listen in the settings)' },
    'key-file': { value: 'FILE', help: 'a file with an API key of the account (default: $POSTERN_KEY)' },
    queue: { value: 'NAME', help: 'mail of routes with the URL pull:NAME (default: pull:)' },
    route: { value: 'ID', help: 'mail of this route' },
    tap: { help: 'with --route: copy the mail of a live route, without consuming it' },
  },
  notes:
    'A 2xx answer acknowledges the mail; after any other answer it is delivered again, as after a failed POST. ' +
    'Ctrl-C finishes the current message and returns the rest.\n' +
    'Signatures are computed over the URL of the route (pull:), not over --forward-to. A user and password in ' +
    '--forward-to are sent as Basic authentication.\n\n' +
    "  postern route add in.example.com 'dev-*' pull:\n" +
    '  postern listen --server https://postern.example.com --key-file key --forward-to http://localhost:3000/mail',
  async run(call, io) {
    const target = targetOf(call);
    const server = createServer(call, io);
    const stop = new AbortController();
    io.onSignal((signal) => {
      if (signal === 'stop') stop.abort();
    });
    const session = { ...target, call: server, print: printer(call), io, stop: stop.signal };
    try {
      await (target.tap ? watch(session, target.tap) : consume(session));
    } catch (error) {
      if (!(error instanceof CallRefused)) throw error;
      const hint = error.error === 'Invalid_Key' ? ' (see: postern key create)' : '';
      io.err(`postern listen: ${error.message}${hint}\n`);
      return EXIT.failed;
    }
    return EXIT.ok;
  },
};

/** Calls an operation. Throws `CallRefused` for an error of the API, `Unreachable` without a proper answer. */
type Server = (path: string, params: Readonly<Record<string, unknown>>, signal?: AbortSignal) => Promise<unknown>;

interface Session {
  readonly to: URL;
  /** The parameters that name the URL or route to pull. */
  readonly source: Readonly<Record<string, string>>;
  readonly call: Server;
  readonly print: (mail: Mail, result: Forwarded, what: 'pulled' | 'tapped') => Promise<void>;
  readonly io: Io;
  readonly stop: AbortSignal;
}

function targetOf(call: Invocation) {
  const to = call.text('forward-to');
  if (to === undefined) throw new UsageError('missing option: --forward-to URL');
  const url = URL.parse(to);
  if (!url || !/^https?:$/.test(url.protocol)) throw new UsageError(`--forward-to must be an http or https URL: ${to}`);
  const [queue, route] = [call.text('queue'), call.text('route')];
  if (queue !== undefined && route !== undefined) throw new UsageError('use either --queue or --route');
  if (call.flag('tap') && route === undefined) throw new UsageError('--tap needs --route ID');
  return {
    to: url,
    source: route === undefined ? { url: `${PULL_URL}${queue ?? ''}` } : { id: route },
    tap: call.flag('tap') ? route : undefined,
  };
}

function createServer(call: Invocation, io: Io): Server {
  const file = call.text('key-file');
  const key = file === undefined ? io.env.POSTERN_KEY : readSecret(file);
  if (!key) throw new UsageError('missing API key: --key-file FILE, or POSTERN_KEY (see: postern key create)');
  const given = call.text('server') ?? ownServer(call);
  if (!/^https?:$/.test(URL.parse(given)?.protocol ?? ''))
    throw new UsageError(`--server must be an http or https URL: ${given}`);
  const base = given.replace(/\/+$/, '').replace(/\/api\/1\.\d$/, '');
  return (path, params, signal) => callOnce(`${base}/api/1.0${path}.json`, { key, ...params }, signal);
}

/** Prints a line for each message: time, recipient, subject, response and duration. */
function printer(call: Invocation): Session['print'] {
  return async (one, { status, error, ms }, what) => {
    const record = {
      time: toTimestamp(new Date(systemClock.now())),
      id: one.id,
      email: one.email,
      subject: await subjectOfPost(one.content_type, one.body),
      status,
      error,
      ms,
      tapped: what === 'tapped',
    };
    call.print([record], () => {
      const { time, email, subject } = record;
      const words = [time, email, subject === null ? undefined : `"${subject}"`, status ?? error, `${ms} ms`];
      const line = words.filter((word) => word !== undefined).join('  ');
      return `${printable(line)}${what === 'tapped' ? '  (copy; delivered normally)' : ''}\n`;
    });
  };
}

/** Calls until there is an answer, repeating temporary failures. Undefined when it is stopped. */
async function untilAnswered<T>({ io, stop }: Session, work: () => Promise<T>): Promise<T | undefined> {
  for (let pause = PAUSE_MS; !stop.aborted; pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
    try {
      return await work();
    } catch (error) {
      if (stop.aborted) return undefined;
      if (!passes(error)) throw error;
      io.err(`postern listen: ${errorText(error)}; retrying in ${Math.round(pause / 1000)} s\n`);
      await setTimeout(pause, undefined, { signal: stop }).catch(() => {});
    }
  }
  return undefined;
}

const passes = (error: unknown): boolean =>
  error instanceof Unreachable || (error instanceof CallRefused && PASSING.has(error.error));

/** Pulls mail and posts it, one message after the other. */
async function consume(session: Session): Promise<void> {
  const { source, call, io, stop, to } = session;
  const wish = { ...source, limit: AT_ONCE, lease: LEASE_S, wait: WAIT_S };
  let greeted = false;
  for (;;) {
    const { wait, ...now } = wish;
    // The first call does not wait, so that a wrong key or route is known at once.
    const answer = await untilAnswered(session, () => call('/inbound/pull', greeted ? wish : now, stop));
    if (answer === undefined) return;
    if (!greeted) io.err(`Forwarding mail for ${Object.values(source)[0]} to ${shown(to)}. Press Ctrl-C to stop.\n`);
    greeted = true;
    const mails = pulled.parse(answer);
    for (const [i, one] of mails.entries()) {
      if (stop.aborted) {
        const leases = mails.slice(i).map(({ lease }) => lease);
        return report(session, '/inbound/nack', { leases, delay: 0, reason: 'the listener was stopped' });
      }
      await deliver(session, one);
    }
  }
}

/** Posts a message and reports the answer of the receiver, even if the command is stopped meanwhile. */
async function deliver(session: Session, one: z.output<typeof pulled>[number]): Promise<void> {
  const result = await forward(session.to, one.headers, Buffer.from(one.body, 'base64'));
  await session.print(one, result, 'pulled');
  const { lease } = one;
  const { status, error, answer } = result;
  if (status !== null && status >= 200 && status < 300) return report(session, '/inbound/ack', { lease });
  const reason = status === null ? (error ?? '') : answer;
  return report(session, '/inbound/nack', {
    lease,
    reason: reason.slice(0, 512),
    ...(status !== null && status >= 100 && { status }),
  });
}

/** Reports to the server. A message without a report is delivered again when its lease ends. */
async function report(
  { call, io, stop }: Session,
  path: string,
  params: Readonly<Record<string, unknown>>,
): Promise<void> {
  for (let tries = 1, pause = PAUSE_MS; ; tries++, pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
    try {
      await call(path, params);
      return;
    } catch (error) {
      if (!(error instanceof CallRefused || error instanceof Unreachable)) throw error;
      if (tries >= (stop.aborted ? 2 : TRIES) || !passes(error))
        return io.err(`postern listen: ${errorText(error)}; the message may be delivered again\n`);
      await setTimeout(pause);
    }
  }
}

/** Posts copies of the mail of a live route, and reports nothing. */
async function watch(session: Session, id: string): Promise<void> {
  const { call, io, stop, to, print } = session;
  let cursor: number | string | undefined;
  for (;;) {
    const params = cursor === undefined ? { id } : { id, cursor, wait: WAIT_S };
    const answer = await untilAnswered(session, () => call('/inbound/tap', params, stop));
    if (answer === undefined) return;
    const seen = tapped.parse(answer);
    if (cursor === undefined) io.err(`Copying new mail of route ${id} to ${shown(to)}. Press Ctrl-C to stop.\n`);
    if (seen.gap) io.err('postern listen: some messages were skipped: too many arrived, or the server restarted\n');
    cursor = seen.cursor;
    for (const one of seen.messages) {
      if (stop.aborted) return;
      await print(one, await forward(to, one.headers, Buffer.from(one.body, 'base64')), 'tapped');
    }
  }
}

const shown = ({ origin, pathname }: URL): string => `${origin}${pathname}`;
