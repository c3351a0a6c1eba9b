import { eventsOf, postsOf } from '../events.ts';
import { type Host, type Hosts, inSeconds, type More, send } from '../hosts.ts';
import { message, sendMail } from '../mail.ts';
import type { How, Received } from '../receiver.ts';
import { returnOf } from '../sent-mail.ts';
import { until } from '../until.ts';

/** Settings of hosts that get mail of every kind. */
export const MAIL_SETTINGS = {
  POSTERN_OUTBOUND__RETURN_DOMAIN: 'bounces.postern.test',
  POSTERN_OUTBOUND__QUOTA: 'false',
} as const;

/** Longer than `queue.hold_ms`. */
const SLOW_MS = 600;
const LATER_S = 20;
/** Mails that are sent before all others, so that some can bounce from the beginning. */
const FIRST = 20;
/** What must come of mail that is sent. */
const SENT = ['at mx', 'send'];
const LONG_MS = 900_000;
const OK: How = { status: 200 };
const DOWN: How = { status: 503 };
const UP = { MX: [{ exchange: 'mx.to.test', priority: 10 }] };

/** A host that takes mail. */
type Taking = Pick<Host, 'api' | 'smtp'>;
/** Hands over a message, and answers what must come of it if it was acknowledged. */
type Give = (to: Taking, subject: string) => Promise<readonly string[] | undefined>;

/** What must come of acknowledged mail, and what came: under which id, and how often. */
function createBooks() {
  const owed = new Map<string, string>();
  const came = new Map<string, Map<string, number>>();
  return {
    owe(kind: string, effects: readonly string[]) {
      for (const effect of effects) owed.set(effect, kind);
    },
    came(effect: string, id: string) {
      const ids = came.get(effect) ?? new Map<string, number>();
      came.set(effect, ids.set(id, (ids.get(id) ?? 0) + 1));
    },
    hasCome: (effect: string) => came.has(effect),
    arrivals: () => came.size,
    lost: () => [...owed.keys()].filter((effect) => !came.has(effect)),
    /** What came under more than one id. */
    renamed: () => [...came].filter(([, ids]) => ids.size > 1).map(([effect, ids]) => [effect, ...ids.keys()]),
    /** Of each kind: how much was owed, is lost, and came again. */
    figures() {
      const again = (effect: string) => [...(came.get(effect)?.values() ?? [])].reduce((sum, n) => sum + n, 0) - 1;
      return [...Map.groupBy(owed, ([, kind]) => kind)].map(([kind, entries]) => {
        const arrived = entries.map(([effect]) => effect).filter((effect) => came.has(effect));
        const repeated = arrived.reduce((sum, effect) => sum + again(effect), 0);
        return { kind, owed: entries.length, lost: entries.length - arrived.length, again: repeated };
      });
    },
  };
}

export type Books = ReturnType<typeof createBooks>;

/** Mail of every kind for hosts, with everything that takes it; what is down at first comes up with `recover`. */
export async function createHostMail(hosts: Hosts) {
  const books = createBooks();
  const { a, b, hook, server, zone } = hosts;
  let isDown = true;
  let takesEvents = true;
  let [number, read, returned] = [0, 0, 0];
  const records = { 'to.test': UP, 'mx.to.test': { A: ['127.0.0.1'] } };
  zone.set({ ...records, 'down.test': { fails: 'servfail' } });
  hook.answer(answer);
  await a.api('/webhooks/add', { url: urlOf('/events'), events: ['send', 'hard_bounce', 'soft_bounce'] });
  await a.api('/inbound/add-domain', { domain: 'in.test' });
  for (const pattern of ['quick', 'slow', 'down', 'held', 'pulled']) {
    const url = pattern === 'pulled' ? 'pull:' : urlOf(`/${pattern}`);
    const action = pattern === 'held' ? { action: 'hold' } : {};
    await a.api('/inbound/add-route', { domain: 'in.test', pattern, url, ...action });
  }

  function urlOf(path: string): string {
    return hook.url.replace(/\/hook$/, path);
  }

  async function answer(request: Received): Promise<How> {
    const path = request.url;
    if (postsOf([request]).length === 0) return OK;
    if (path === '/events' ? !takesEvents : path === '/down' && isDown) return DOWN;
    if (path === '/slow') await new Promise((resolve) => setTimeout(resolve, SLOW_MS));
    const id = String(request.headers['webhook-id']);
    for (const { event, msg, _id } of eventsOf(request))
      if (path === '/events') books.came(`${msg.subject} ${event}`, _id);
      else books.came(`${msg.subject} at ${path}`, id);
    return OK;
  }

  const receive =
    (name: string): Give =>
    async ({ smtp }, subject) => {
      const reply = await sendMail(smtp, { from: 'ada@example.org', to: `${name}@in.test` }, message(subject));
      return reply.startsWith('250') ? [`${subject} at /${name}`] : undefined;
    };
  /** Each to an address of its own: one that bounces often gets no mail. */
  const submit =
    (name: string, domain: string, effects: readonly string[], more?: () => More): Give =>
    async (host, subject) => {
      await send(host, subject, { message: { to: [{ email: `${name}${number}@${domain}` }] }, ...more?.() });
      return effects.map((effect) => `${subject} ${effect}`);
    };

  /** A bounce of mail that was sent, each once. */
  const bounce: Give = async ({ smtp }) => {
    const sent = server.mails[returned];
    if (!sent) return undefined;
    returned++;
    const reply = await sendMail(smtp, { from: '', to: sent.from }, returnOf('postfix-over-quota', sent));
    return reply.startsWith('250') ? [`${subjectOf(sent.raw)} soft_bounce`] : undefined;
  };

  const gives: Readonly<Record<string, Give>> = {
    'for a quick endpoint': receive('quick'),
    'for a slow endpoint': receive('slow'),
    'for an endpoint that is down': receive('down'),
    held: receive('held'),
    pulled: receive('pulled'),
    'sent to a server that is up': submit('jo', 'to.test', SENT),
    'sent to a server that is down': submit('jo', 'down.test', SENT),
    scheduled: submit('jo', 'to.test', SENT, () => ({ send_at: inSeconds(LATER_S) })),
    'sent and refused': submit('gone', 'to.test', ['hard_bounce']),
    'bounces of sent mail': bounce,
  };
  const kinds = Object.keys(gives);

  for (; number < FIRST; number++) await gives['sent to a server that is up']?.(a, `first ${number}`);
  await until('the first mail', () => server.mails.length === FIRST);

  /** Hands over the next message. False if it was not acknowledged. */
  async function give(host: Taking): Promise<boolean> {
    const subject = `mail ${number++}`;
    const kind = kinds[number % kinds.length] ?? '';
    const effects = await gives[kind]?.(host, subject);
    if (effects) books.owe(kind, effects);
    return effects !== undefined;
  }

  /** Fetches mail, and acknowledges every message, or every other one. */
  async function pull({ api }: Pick<Host, 'api'>, every: 1 | 2): Promise<number> {
    const pulled = await api('/inbound/pull', { limit: 100, wait: every === 1 ? 0 : 5 });
    for (const [at, { id, lease, body }] of pulled.entries()) {
      const form = new URLSearchParams(Buffer.from(body, 'base64').toString());
      for (const { msg } of JSON.parse(form.get('mandrill_events') ?? '[]'))
        books.came(`${msg.subject} at /pulled`, id);
      if (at % every === 0) await api('/inbound/ack', { lease });
    }
    return pulled.length;
  }

  /** Notes what arrived at the server of to.test. */
  function readServer(): void {
    for (const { raw } of server.mails.slice(read))
      books.came(`${subjectOf(raw)} at mx`, /^Message-ID: (.*?)\r?$/im.exec(raw)?.[1] ?? '');
    read = server.mails.length;
  }

  /** One message of each kind through a host that stays, once everything is up. */
  async function giveLast(): Promise<readonly string[]> {
    const effects: string[] = [];
    for (const [kind, hand] of Object.entries(gives))
      if (kind !== 'scheduled') effects.push(...((await hand(b, `the last ${kind}`)) ?? []));
    return effects;
  }

  /** Releases, retries and pulls what waits on the hosts that stay. */
  async function hasten(): Promise<void> {
    for (const host of [a, b]) {
      for (const argv of [
        ['replay', '--held', '--all'],
        ['queue', 'flush'],
      ] as const)
        await host.cli(...argv);
      while ((await pull(host, 1)) > 0);
    }
  }

  async function isEmpty(): Promise<boolean> {
    if ((await hosts.rows.copies.many({}, { limit: 1 })).length > 0) return false;
    for (const host of [a, b])
      for (const state of ['waiting', 'held']) if ((await host.queue('--state', state)).length > 0) return false;
    return true;
  }

  return {
    books,
    give,
    pull,
    takeEvents(takes: boolean) {
      takesEvents = takes;
    },
    /** Everything is up; resolves when nothing waits on the hosts that stay and, if `all`, nothing is owed. */
    async recover(all: boolean): Promise<void> {
      isDown = false;
      takesEvents = true;
      zone.set({ ...records, 'down.test': UP });
      const last = await giveLast();
      let before = -1;
      const isOver = async () => {
        readServer();
        // What has failed would wait for minutes.
        if (books.arrivals() === before) await hasten();
        before = books.arrivals();
        return last.every(books.hasCome) && (!all || books.lost().length === 0) && (await isEmpty());
      };
      await until('all that is left', isOver, LONG_MS).catch((error: unknown) => {
        throw new Error(`${books.lost().slice(0, 20).join(', ')}`, { cause: error });
      });
    },
  };
}

const subjectOf = (raw: string): string => /^Subject: (.*?)\r?$/m.exec(raw)?.[1] ?? '';
