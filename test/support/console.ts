import { randomBytes, scryptSync } from 'node:crypto';
import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import type { PasswordCost } from '../../src/console/passwords.ts';
import { addPerson, createSignInLink, type PersonRow, type Role } from '../../src/store/rows/people.ts';
import type { Store } from '../../src/store/store.ts';
import { ACCOUNT, startApi } from './api.ts';

export const PASSWORD = 'correct horse battery';

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The text, parsed. */
  readonly body: any;
}

type Headers = Readonly<Record<string, string | undefined>>;

/** Sends one request with exactly these headers; `fetch` would not let a test set Host or Sec-Fetch-Site. */
export function send(port: number, method: string, path: string, headers: Headers = {}, body = ''): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const given = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined));
    if (body !== '') given['Content-Length'] = String(Buffer.byteLength(body));
    const sent = request({ host: '127.0.0.1', port, method, path, headers: given, agent: false }, (res) => {
      const chunks: Buffer[] = [];
      res.on('data', (chunk: Buffer) => chunks.push(chunk));
      res.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        resolve({
          status: res.statusCode ?? 0,
          headers: res.headers,
          text,
          get body() {
            return JSON.parse(text);
          },
        });
      });
      res.on('error', reject);
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

export type Browser = ReturnType<typeof createBrowser>;

/** A browser at the console's page: it keeps the cookie, and says where its requests come from. */
export function createBrowser(port: number, { origin = `http://127.0.0.1:${port}` } = {}) {
  let cookie: string | undefined;
  const host = new URL(origin).host;

  async function ask(method: string, path: string, headers: Headers = {}, body = ''): Promise<Reply> {
    const reply = await send(port, method, path, { Host: host, Cookie: cookie, ...headers }, body);
    const [set] = reply.headers['set-cookie'] ?? [];
    if (set !== undefined) cookie = /Max-Age=0/.test(set) ? undefined : set.split(';')[0];
    return reply;
  }

  const page = { 'Sec-Fetch-Site': 'same-origin', Origin: origin };
  const write = { ...page, 'Content-Type': 'application/json', 'Postern-Console': '1' };
  return {
    cookie: () => cookie,
    setCookie: (value: string | undefined) => {
      cookie = value;
    },
    /** A request as it is, with the cookie. */
    ask,
    /** What the page reads. */
    read: (path: string, headers: Headers = {}) => ask('GET', path, { 'Sec-Fetch-Site': 'same-origin', ...headers }),
    /** What the page changes. */
    write: (path: string, params: object = {}, headers: Headers = {}, method = 'POST') =>
      ask(method, path, { ...write, ...headers }, JSON.stringify(params)),
    /** The button of the page that a link leads to, with what its form asks for. */
    press: (path: string, headers: Headers = {}, form: Readonly<Record<string, string>> = {}) =>
      ask(
        'POST',
        path,
        { ...page, 'Content-Type': 'application/x-www-form-urlencoded', ...headers },
        new URLSearchParams(form).toString(),
      ),
    enter: (name: string, password = PASSWORD, headers: Headers = {}, code?: string) =>
      ask('POST', '/console/session', { ...write, ...headers }, JSON.stringify({ name, password, code })),
  };
}

/** Of a hash that takes a millisecond. */
const QUICK: PasswordCost = { N: 1024, r: 8, p: 1 };

/** A hash of `PASSWORD` that takes a millisecond to check; what it costs is part of it. */
function quickHash(): string {
  const { N, r, p } = QUICK;
  const salt = randomBytes(16);
  const key = scryptSync(PASSWORD, salt, 32, QUICK);
  return ['scrypt', N, r, p, salt.toString('base64url'), key.toString('base64url')].join(' ');
}

/** Adds a person who enters with `PASSWORD`. */
export async function addTestPerson(
  store: Store,
  name: string,
  role: Role,
  account: string | null = role === 'operator' ? null : ACCOUNT,
  password: string = quickHash(),
): Promise<PersonRow> {
  const added = await addPerson(store, { name, role, account }, { clock: systemClock, ids: createIds(systemClock) });
  if (added === 'taken') throw new Error(`${name} is there already`);
  const row = await store.people.change({ id: added.id }, { password });
  if (!row) throw new Error('the person is gone');
  return row;
}

/** The API with a console. Its clock stands still until it is moved. */
export async function startConsole(
  settings: { url?: string; mailOrigin?: string; operatorReadsMail?: boolean; passwordCost?: PasswordCost } = {},
  options: Parameters<typeof startApi>[0] = {},
) {
  const world = await startApi({
    console: {
      url: '',
      mailOrigin: '',
      sessionMs: 12 * 3_600_000,
      idleMs: 3_600_000,
      operatorReadsMail: false,
      keeps: { history: 30, refusals: 7, givenUp: 30 },
      hostname: 'mx.postern.test',
      version: '0.0.0',
      passwordCost: QUICK,
      ...settings,
    },
    ...options,
  });
  const ids = createIds(systemClock);
  return {
    ...world,
    browser: (at?: { origin: string }) => createBrowser(world.port, at),
    link: async (person: string | null = null) =>
      `/console/enter/${await createSignInLink(world.store, person, { clock: world.clock, ids })}`,
  };
}

/** One server-sent event. */
interface LiveEvent {
  readonly event: string;
  readonly id: string | undefined;
  readonly data: any;
}

/** Opens `/console/live` as the page does. */
export async function openLive(port: number, cookie: string | undefined, query: string, lastEventId?: string) {
  const events: LiveEvent[] = [];
  let ended = false;
  let raw = '';
  const headers = {
    Host: `127.0.0.1:${port}`,
    'Sec-Fetch-Site': 'same-origin',
    ...(cookie === undefined ? {} : { Cookie: cookie }),
    ...(lastEventId === undefined ? {} : { 'Last-Event-ID': lastEventId }),
  };
  const sent = request({ host: '127.0.0.1', port, path: `/console/live?${query}`, headers, agent: false });
  const res = await new Promise<IncomingMessage>((resolve, reject) => {
    sent.on('response', resolve).on('error', reject).end();
  });
  res.setEncoding('utf8');
  res.on('data', (text: string) => {
    raw += text;
    for (let at = raw.indexOf('\n\n'); at >= 0; at = raw.indexOf('\n\n')) {
      const fields = new Map(
        raw
          .slice(0, at)
          .split('\n')
          .map((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)] as const),
      );
      raw = raw.slice(at + 2);
      const [event, data] = [fields.get('event'), fields.get('data')];
      if (event !== undefined && data !== undefined)
        events.push({ event, id: fields.get('id'), data: JSON.parse(data) });
    }
  });
  res.on('close', () => {
    ended = true;
  });
  res.on('error', () => undefined);
  return {
    status: res.statusCode,
    headers: res.headers,
    events,
    of: (event: string) => events.filter((one) => one.event === event),
    ended: () => ended,
    close: () => sent.destroy(),
  };
}
