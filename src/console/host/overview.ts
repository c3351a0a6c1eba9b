import { z } from 'zod';
import { backlogSummary, readBacklogSummary } from '../../api/hosts/backlog-summary.ts';
import { whySilent } from '../../api/hosts/host-rpc.ts';
import { toTime } from '../../api/operations/fields.ts';
import { HOUR_MS } from '../../base/clock.ts';
import { endpointKey, KINDS } from '../../queue/delivery.ts';
import type { LaneView } from '../../queue/insight.ts';
import { type HostRow, isSilent } from '../../store/rows/hosts.ts';
import { account, breaker, fromHost, type LocalCall } from './operation.ts';
import { perHostOperation } from './per-host.ts';

// The state of one or all hosts in a sentence, and what needs attention.

/** In the order in which they are listed. */
const what = z.enum(['host', 'listener', 'queue', 'routes', 'store', 'certificate', 'endpoint', 'task', 'log']);
const level = z.enum(['warning', 'fault']);

const need = z.object({
  host: fromHost,
  what,
  level,
  text: z.string(),
  account: account.nullable(),
  url: z.string().nullable(),
  since: z.string().nullable(),
});

const foundNeed = z.object({
  host: fromHost,
  what,
  level,
  text: z.string(),
  /** Milliseconds since 1970. */
  since: z.number().nullable().optional(),
});
type Need = z.output<typeof foundNeed>;

const downEndpoint = z.object({
  account: z.string(),
  url: z.string(),
  breaker,
  since: z.number().nullable(),
  waiting: z.int(),
  /** How the last attempt ended. */
  last: z.string().nullable(),
});
type DownEndpoint = z.output<typeof downEndpoint>;

/** The findings of one host. */
const state = backlogSummary.extend({
  host: z.string(),
  takesMail: z.boolean(),
  down: z.array(downEndpoint),
  needs: z.array(foundNeed),
});
type HostState = z.output<typeof state>;

const MAX_NEEDS = 50;
/** Endpoints that a host reports to another. */
const MAX_DOWN = 1000;

async function stateOf(call: LocalCall): Promise<HostState> {
  const { ok, checks } = await call.health.ready();
  return {
    ...(await readBacklogSummary(call.metrics, call.now())),
    host: call.settings.hostname,
    takesMail: ok,
    down: call.dispatcher.lanes().filter(isDown).map(toDown),
    needs: [
      ...needsOfChecks(checks),
      ...(await needOfExpiry(call)),
      ...(await needOfName(call)),
      ...needsOfTasks(call),
      ...needsOfLog(call),
    ],
  };
}

const returns = z.object({
  hostname: z.string(),
  version: z.string(),
  started_at: z.string(),
  state: z.enum(['ok', 'warning', 'fault']),
  text: z.string(),
  takes_mail: z.boolean(),
  waiting: z.int(),
  oldest_at: z.string().nullable(),
  endpoints_down: z.int(),
  dead: z.int(),
  needs: z.array(need),
});

async function summarise(
  states: readonly HostState[],
  found: readonly Need[],
  call: LocalCall,
): Promise<z.input<typeof returns>> {
  const { names, settings, startedAt } = call;
  const down = addDown(states.flatMap((one) => one.down));
  const all = [...found.map((one) => ({ ...one, account: null, url: null })), ...down.map(needOfEndpoint)];
  const needs = all
    .toSorted((a, b) => what.options.indexOf(a.what) - what.options.indexOf(b.what))
    .sort((a, b) => Number(b.level === 'fault') - Number(a.level === 'fault'))
    .slice(0, MAX_NEEDS);
  const nameOf = await names(needs.flatMap((one) => one.account ?? []));
  const waiting = states.reduce((sum, one) => sum + one.waiting, 0);
  const oldest = states.flatMap((one) => one.oldest_at ?? []);
  const oldestAt = oldest.length === 0 ? null : Math.min(...oldest);
  return {
    hostname: settings.hostname,
    version: settings.version,
    started_at: toTime(startedAt),
    state: needs[0]?.level ?? 'ok',
    text:
      `${healthOf(states, needs.length === 0)}. ` +
      `${sentenceOf(down, waiting, oldestAt === null ? 0 : (call.now() - oldestAt) / 1000)}`,
    takes_mail: states.some((one) => one.takesMail),
    waiting,
    oldest_at: toTime(oldestAt),
    endpoints_down: down.length,
    dead: states.reduce((sum, one) => sum + one.dead, 0),
    needs: needs.map(({ account, since, ...rest }) => ({
      ...rest,
      account: account === null ? null : nameOf(account),
      since: toTime(since),
    })),
  };
}

function healthOf(states: readonly HostState[], isWell: boolean): string {
  const closed = states.filter((one) => !one.takesMail).map((one) => one.host);
  if (closed.length === states.length) return 'Not accepting mail';
  if (closed.length > 0) return `Not accepting mail on ${closed.join(', ')}`;
  return isWell ? 'All systems normal' : 'Accepting mail';
}

const overview = perHostOperation({
  path: '/host/overview',
  access: 'host',
  summary: 'Returns the state of the hosts in a sentence, and what needs attention.',
  params: {},
  returns,
  async handle(_, call) {
    const own = await stateOf(call);
    return summarise([own], own.needs, call);
  },
  across: {
    part: state,
    async own(_, call) {
      const own = await stateOf(call);
      const down = own.down.toSorted((a, b) => b.waiting - a.waiting).slice(0, MAX_DOWN);
      return { ...own, down };
    },
    async join({ here, others }, _, call) {
      const asked = others.map(async ({ row, ask }) => ({ row, state: await ask() }));
      const own = await here.ask();
      const all = await Promise.all(asked);
      const states = [own, ...all.map((one) => one.state)].filter((one) => one !== undefined);
      const away = all.flatMap(({ row, state }) => (state ? [] : needOfHost(row)));
      const needs = states.flatMap(({ host, needs }) => needs.map((one) => ({ ...one, host })));
      return summarise(states, [...away, ...needs], call);
    },
  },
});

/** A host that was stopped needs no attention. */
function needOfHost(row: HostRow): Need[] {
  if (row.incarnation === null && !isSilent(row)) return [];
  const text = isSilent(row) ? 'stopped responding' : whySilent(row);
  return [{ host: row.name, what: 'host', level: 'warning', text: `${row.name} ${text}.` }];
}

/** The endpoints of several hosts, each once, in its worst state. */
function addDown(all: readonly DownEndpoint[]): DownEndpoint[] {
  const endpoints = new Map<string, DownEndpoint>();
  for (const one of all) {
    const known = endpoints.get(endpointKey(one));
    const worst = known && known.breaker === 'gone' ? known : one;
    const since = [known?.since, one.since].filter((time) => typeof time === 'number');
    endpoints.set(endpointKey(one), {
      ...worst,
      since: since.length === 0 ? null : Math.min(...since),
      waiting: one.waiting + (known?.waiting ?? 0),
    });
  }
  return [...endpoints.values()];
}

/** Webhooks that are down. The mail server of a recipient is no reason for an alarm. */
const isDown = ({ kind, breaker }: LaneView) => KINDS[kind].endpoint === 'webhook' && breaker !== 'up';

function toDown({ account, url, breaker, since, waiting, last }: LaneView): DownEndpoint {
  const said = last?.result.kind === 'answered' ? `HTTP ${last.result.status}` : (last?.result.error ?? null);
  return { account, url, breaker, since, waiting, last: said };
}

function sentenceOf(down: readonly DownEndpoint[], waiting: number, oldestS: number): string {
  const [first] = down.toSorted((a, b) => (a.since ?? 0) - (b.since ?? 0));
  if (first) {
    const theirs = down.reduce((sum, one) => sum + one.waiting, 0);
    const since = first.since === null ? '' : ` since ${toTime(first.since).slice(0, 16)} UTC`;
    return down.length === 1
      ? `1 endpoint down${since}, ${waitingText(theirs)}.`
      : `${down.length} endpoints down, the first${since}, ${waitingText(theirs)}.`;
  }
  if (waiting === 0) return 'The queue is empty.';
  return `${waitingText(waiting)}, oldest ${toSpan(oldestS)}.`;
}

const waitingText = (count: number): string =>
  count === 0 ? 'no deliveries waiting' : count === 1 ? '1 delivery waiting' : `${count} deliveries waiting`;

function toSpan(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

const CHECKS: Readonly<Record<string, Pick<Need, 'what' | 'level'> & { readonly name: string }>> = {
  smtp: { what: 'listener', level: 'fault', name: 'The SMTP listener' },
  submission: { what: 'listener', level: 'fault', name: 'The submission listener' },
  spool: { what: 'queue', level: 'fault', name: 'The queue' },
  routes: { what: 'routes', level: 'fault', name: 'The routes' },
  store: { what: 'store', level: 'warning', name: 'The store' },
};

/** The problems found by the health check. */
function needsOfChecks(checks: Readonly<Record<string, string>>): Need[] {
  return Object.entries(checks).flatMap(([check, words]) => {
    const known = CHECKS[check];
    if (!known || words === 'ok') return [];
    const { what, level, name } = known;
    const text =
      what === 'store' ? 'The store is unavailable. Mail for known routes is still accepted.' : `${name}: ${words}.`;
    return [{ what, level, text }];
  });
}

const DAY_S = 86_400;
const SOON_DAYS = 14;

async function needOfName({ metrics }: LocalCall): Promise<Need[]> {
  const covers = (await metrics.level('postern_tls_certificate_covers_hostname')) ?? [];
  if (covers.every(([, value]) => value !== 0)) return [];
  const text = 'The TLS certificate does not cover the host name: senders that verify it do not deliver.';
  return [{ what: 'certificate', level: 'warning', text }];
}

async function needOfExpiry({ metrics, now }: LocalCall): Promise<Need[]> {
  const ends = (await metrics.level('postern_tls_certificate_not_after_timestamp_seconds')) ?? [];
  // The listeners share one certificate.
  const end = Math.min(...ends.map(([, at]) => at));
  const days = Math.floor((end - now() / 1000) / DAY_S);
  if (days >= SOON_DAYS) return [];
  const on = `${toTime(end * 1000)} UTC`;
  const [level, text] =
    days < 0
      ? (['fault', `The TLS certificate expired on ${on}.`] as const)
      : (['warning', `The TLS certificate expires in ${days} ${days === 1 ? 'day' : 'days'}, on ${on}.`] as const);
  return [{ what: 'certificate', level, text }];
}

function needOfEndpoint({ account, url, breaker, since, waiting, last }: DownEndpoint) {
  const said = last === null ? '' : ` (${last})`;
  const text = `${breaker === 'gone' ? 'Gone' : 'Down'}${said}, ${waitingText(waiting)}.`;
  return { what: 'endpoint' as const, level: 'warning' as const, text, account, url, since };
}

function needsOfTasks({ host }: LocalCall): Need[] {
  return host.tasks().flatMap(({ name, last }): Need[] => {
    if (last?.result !== 'failed') return [];
    return [{ what: 'task', level: 'warning', text: `The task ${name} failed: ${last.text}.`, since: last.at }];
  });
}

/** Errors in the log of the last hour. */
function needsOfLog({ host, now }: LocalCall): Need[] {
  const errors = host.log.counts().filter(({ level, lastAt }) => level === 'error' && lastAt > now() - HOUR_MS);
  return errors.map(({ event, count, lastAt }) => {
    const times = count === 1 ? 'once' : `${count} times`;
    const text = `The error ${event} was logged ${times} since startup, last at ${toTime(lastAt)} UTC.`;
    return { what: 'log', level: 'warning', text };
  });
}

export const overviewOperations = [overview];
