import { shownUrl } from '../api/operations/fields.ts';
import { HOUR_MS } from '../base/clock.ts';
import type { WaitingAges } from '../queue/ages.ts';
import { type EndpointSummary, endpointKey } from '../queue/delivery.ts';
import { BREAKER_WORDS } from '../queue/insight.ts';
import { readMemory } from '../queue/schedule/breaker.ts';
import { type DeliveryState, HOLDING_STATES } from '../queue/states.ts';
import { type Check, type Finding, ok, skipped, warning } from './finding.ts';

/** Maximum endpoints that are named; the counts include all. */
const MOST = 20;
/** After this long, mail that waits for an endpoint that is up is a warning: PosternQueueOld fires after four hours. */
const LONG_MS = HOUR_MS;

/** Waiting mail, its age and the reasons: endpoints that are down or paused, held mail. */
export const waiting: Check = {
  name: 'queue',
  async *run({ queue, noQueue, clock }) {
    if (!queue) return yield skipped('queue', noQueue);
    const now = clock.now();
    const [summaries, ages, counts] = await Promise.all([queue.endpoints(), queue.ages(now), queue.count({})]);
    const uncopied = await queue.copies.missing();
    if (uncopied > 0)
      yield warning(
        'copies',
        `${count(uncopied, 'message has', 'messages have')} no copy in the store yet (queue.copies)`,
        'They are lost if the disk of this host is lost. If the store is unavailable, bring it back; the copies ' +
          'are made within seconds. Otherwise see copy.fault in the log.',
      );
    const oldest = new Map(ages.map((one) => [endpointKey(one), one]));
    const endpoints = summaries
      .map((summary) => view(summary, oldest.get(endpointKey(summary)), now))
      .toSorted((a, b) => b.waiting - a.waiting);
    const named = endpoints.flatMap((one) => trouble(one, now) ?? []);
    yield* named.slice(0, MOST);
    if (named.length > MOST)
      yield warning(
        'endpoints',
        `${named.length - MOST} more are down or slow`,
        'postern queue endpoints lists them all.',
      );
    yield summary(endpoints, counts, now);
  },
};

interface Seen {
  readonly account: string;
  readonly url: string;
  readonly kind: EndpointSummary['kind'];
  readonly waiting: number;
  readonly state: 'up' | 'down' | 'gone' | 'paused';
  /** Since when it is down, or until when it is paused; milliseconds since 1970. */
  readonly at: number;
  /** When the oldest began to wait. */
  readonly oldest: number;
}

function view(summary: EndpointSummary, ages: WaitingAges | undefined, now: number): Seen {
  const { account, url, kind, waiting } = summary;
  const { phase = 'closed', since = now, hold } = readMemory(summary.memory) ?? {};
  const held = hold && hold.until > now ? hold : undefined;
  return {
    account,
    url,
    kind,
    waiting,
    state: held ? 'paused' : BREAKER_WORDS[phase],
    at: held ? held.until : since,
    oldest: ages?.oldest ?? now,
  };
}

/** A warning about an endpoint, if any. There is none for mail servers that are down, because their mail is retried. */
function trouble(one: Seen, now: number): Finding | undefined {
  const { account, kind, waiting, state, at, oldest } = one;
  if (kind === 'outbound' || kind === 'return') return undefined;
  const check = `endpoint ${shownUrl(one.url)}`;
  const age = waiting > 0 ? `, the oldest for ${duration(now - oldest)}` : '';
  const backlog = count(waiting, 'delivery waits', 'deliveries wait') + age;
  const advice =
    `Tell its owner (account ${account}). Waiting mail is posted automatically once the endpoint answers; ` +
    `"postern queue list --url ${shownUrl(one.url)}" shows the failures.`;
  if (state === 'down') return warning(check, `down for ${duration(now - at)}: ${backlog}`, advice);
  if (state === 'gone') return warning(check, `answered 410 (gone) ${duration(now - at)} ago: ${backlog}`, advice);
  if (state === 'paused' || waiting === 0 || now - oldest < LONG_MS) return undefined;
  return warning(check, `up, but ${backlog}`, advice);
}

function summary(endpoints: readonly Seen[], counts: Readonly<Record<DeliveryState, number>>, now: number): Finding {
  const busy = endpoints.filter(({ waiting }) => waiting > 0);
  const of = (state: Seen['state']) =>
    busy.filter((one) => one.state === state).reduce((sum, { waiting }) => sum + waiting, 0);
  const parts = [
    counts.waiting === 0
      ? 'no waiting deliveries'
      : `${count(counts.waiting, 'delivery waits', 'deliveries wait')}, the oldest for ` +
        `${duration(now - Math.min(now, ...busy.map(({ oldest }) => oldest)))}`,
    ...(of('down') + of('gone') > 0 ? [`${of('down') + of('gone')} for endpoints that are down`] : []),
    ...(of('paused') > 0 ? [`${of('paused')} for paused endpoints`] : []),
    ...HOLDING_STATES.flatMap((state) =>
      counts[state] > 0 ? [`${counts[state]} ${state} by routes (postern queue list --state ${state})`] : [],
    ),
  ];
  return ok('queue', parts.join('; '));
}

const count = (n: number, one: string, many: string) => `${n} ${n === 1 ? one : many}`;

function duration(ms: number): string {
  const minutes = Math.max(0, Math.round(ms / 60_000));
  if (minutes < 1) return `${Math.max(0, Math.round(ms / 1000))} s`;
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.round(hours / 24)} days`;
}
