import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { inWords } from '../../base/tables.ts';
import { MAIL_FIELDS, parseMailQuery, parseStatus, STATUS_FORMS } from '../../journal/query-language.ts';
import type { MailFilter } from '../../journal/types.ts';
import { BULK_ACTIONS, type BulkAction, type DeliveryState, OPEN_STATES } from '../../queue/states.ts';
import type { MailSelection } from '../account/account-bulk.ts';
import { MAX_AT_ONCE } from '../account/jobs.ts';
import { askAll } from '../hosts/join-hosts.ts';
import { type AskedHost, type Call, type Hosts, operation } from '../operation.ts';
import { deliveryIdField, from, MAX_LISTED, routeId, to } from './deliveries.ts';
import { ALL_HOSTS, earlier, int, later, strOrNull } from './fields.ts';
import { MAX_QUERY, readQuery } from './history.ts';

// Calls that change many deliveries: replay, drop and retry select them by the same parameters.

/** Maximum URLs to exclude. */
const MAX_EXCEPT = 100;

const selecting = <const A extends BulkAction>(action: A) => ({
  id: optional(deliveryIdField).describe('one delivery'),
  ids: optional(z.array(deliveryIdField).max(MAX_LISTED)).describe(`up to ${MAX_LISTED} deliveries`),
  from,
  to,
  route: routeId,
  state: optional(z.enum(BULK_ACTIONS[action].states)).describe('only in this state'),
  query: optional(text(MAX_QUERY)).describe(
    `only mail that /inbound/search finds with this query: words, quotes, ${MAIL_FIELDS}`,
  ),
  url: optional(text(2048)).describe('only deliveries to this URL'),
  except_urls: optional(z.array(text(2048)).max(MAX_EXCEPT)).describe(
    `with a query or a status: exclude deliveries to these URLs, at most ${MAX_EXCEPT}`,
  ),
  status: optional(text(10)).describe(
    'only deliveries whose last response had this status: a status such as 500, a class such as 5xx, or none',
  ),
  dry_run: optional(z.boolean()).describe('only count the deliveries'),
  at_most: optional(z.int().min(0)).describe(
    `nothing is ${BULK_ACTIONS[action].ended} if more deliveries match${
      BULK_ACTIONS[action].isLimited ? '; required unless ids are given or `dry_run` is true' : ''
    }`,
  ),
});

type Given = z.output<z.ZodObject<ReturnType<typeof selecting<BulkAction>>>>;

/** Whether deliveries are named, so that the caller knows how many there are. */
const areNamed = ({ id, ids }: Given): boolean => id !== undefined || ids !== undefined;

/** Counts the selected deliveries, and changes them unless it is a dry run or more match than `at_most`. */
async function changeInbound(action: BulkAction, given: Given, call: Call<never>): Promise<Changed> {
  const { states, ended } = BULK_ACTIONS[action];
  const which = toSelection(given, states, call);
  mustBeLimited(action, given, call);
  if (which.selection.ids?.length === 0) return { matched: 0, forgotten: 0, changed: 0, job: null };
  return call.bulk.change(action, which, {
    dryRun: given.dry_run,
    atMost: given.at_most,
    tooMany: (text) => call.invalid('at_most', `${text}; nothing was ${ended}`),
    begin: () => call.actions.begin(),
  });
}

function mustBeLimited(action: BulkAction, given: Given, call: Call<never>): void {
  const { ended, isLimited } = BULK_ACTIONS[action];
  if (isLimited && given.at_most === undefined && !given.dry_run && !areNamed(given))
    throw call.invalid('at_most', `Please enter how many may be ${ended}: the number that a call with dry_run counts`);
}

/** The result of one host: the changes that it has made, or would make. */
const changedPart = z.object({
  matched: z.int(),
  forgotten: z.int(),
  changed: z.int(),
  job: z.string().nullable(),
});
type Changed = z.output<typeof changedPart>;

/** Separates the ids of the jobs of several hosts. */
export const JOB_ID_SEPARATOR = ',';

const total = (parts: readonly Changed[]): Changed => ({
  matched: parts.reduce((sum, { matched }) => sum + matched, 0),
  forgotten: parts.reduce((sum, { forgotten }) => sum + forgotten, 0),
  changed: parts.reduce((sum, { changed }) => sum + changed, 0),
  job: parts.flatMap(({ job }) => job ?? []).join(JOB_ID_SEPARATOR) || null,
});

/** Makes a change on all hosts: they count first, and each changes at most as many as it has counted. */
async function changeOnAll(
  action: BulkAction,
  hosts: Hosts<Changed>,
  given: Given,
  call: Call<never>,
): Promise<Changed> {
  if (hosts.others.length === 0 || given.dry_run) return total(await askAll(hosts));
  mustBeLimited(action, given, call);
  const counts = new Map<string, Changed>();
  const count = async (host: AskedHost<Changed>) => {
    const counted = await host.ask({ dry_run: true });
    if (counted) counts.set(host.id, counted);
  };
  await count(hosts.here);
  await Promise.all(hosts.others.map(count));
  const counted = total([...counts.values()]);
  const { at_most: most } = given;
  if (most !== undefined && counted.matched > most)
    throw call.invalid(
      'at_most',
      `${counted.matched} deliveries match now (limit ${most}); nothing was ${BULK_ACTIONS[action].ended}`,
    );
  const some = (host: { readonly id: string }) => (counts.get(host.id)?.matched ?? 0) > 0;
  const none = { ...hosts.here, ask: async () => undefined };
  const parts = await askAll({ here: some(hosts.here) ? hosts.here : none, others: hosts.others.filter(some) }, (id) =>
    most === undefined ? {} : { at_most: counts.get(id)?.matched ?? 0 },
  );
  return { ...total(parts), matched: counted.matched, forgotten: counted.forgotten };
}

/** How an action is carried out, on one host or on all of them; a change of a thousand deliveries takes a while. */
const changing = <R>(action: BulkAction, toRecord: (changed: Changed) => R) => ({
  handle: async (given: Given, call: Call<never>) => toRecord(await changeInbound(action, given, call)),
  across: {
    patienceMs: 40_000,
    part: changedPart,
    own: (given: Given, call: Call<never>) => changeInbound(action, given, call),
    join: async (hosts: Hosts<Changed>, given: Given, call: Call<never>) =>
      toRecord(await changeOnAll(action, hosts, given, call)),
  },
});

const replay = operation({
  path: '/inbound/replay',
  access: 'mail',
  extension: true,
  summary: 'Replays ended deliveries by id, time, URL, status or search.',
  notes:
    'Select deliveries with `id`, `ids`, `query`, `url`, `status`, or `from` and `to` (one of the two is ' +
    'enough); all given conditions must match. By id, a delivery may have any ended state or be held; otherwise ' +
    'only dead ones are replayed, unless `state` or the query names another state. A replay keeps the ' +
    'webhook-id of the first delivery, so receivers can detect duplicates. ' +
    `More than ${MAX_AT_ONCE} deliveries are replayed by a job, which continues after the call: /jobs/info shows ` +
    'its progress. An account has one job at a time. Deleted mail cannot be replayed. ' +
    ALL_HOSTS,
  params: selecting('replay'),
  returns: z.object({
    matched: int('number of deliveries that can be replayed'),
    forgotten: int(
      'with `query` or `status`: number of further matches in the history whose message was deleted; otherwise 0',
    ),
    replayed: int('number of deliveries queued again by this call; 0 if a job replays them'),
    job: strOrNull('id of the job that replays them, or null'),
  }),
  example: { from: '2026-01-05 11:00:00', to: '2026-01-05 12:00:00', route: '1.1' },
  ...changing('replay', ({ matched, forgotten, changed, job }: Changed) => ({
    matched,
    forgotten,
    replayed: changed,
    job,
  })),
});

const drop = operation({
  path: '/inbound/drop',
  access: 'settings',
  extension: true,
  summary: `Drops ${inWords(OPEN_STATES)} deliveries without posting them.`,
  notes:
    'Select deliveries with `id`, `ids`, `query`, `url`, `status`, or `from` and `to`, as in /inbound/replay; ' +
    'all given conditions must match. By id, a delivery may be waiting, held or dead; otherwise only dead ones ' +
    'are dropped, unless `state` or the query names another state. ' +
    'Without ids, `at_most` is required: nothing is dropped if more deliveries match. Call with `dry_run` first ' +
    'to count them. ' +
    `A job drops more than ${MAX_AT_ONCE} deliveries, as in /inbound/replay. ` +
    'Senders are not notified. Dropped mail can be replayed for delivery.keep_delivered_hours. ' +
    ALL_HOSTS,
  params: selecting('drop'),
  returns: z.object({
    matched: int('number of deliveries that can be dropped'),
    dropped: int('number of deliveries dropped by this call; 0 if a job drops them'),
    job: strOrNull('id of the job that drops them, or null'),
  }),
  example: { url: 'https://app.example.com/hooks/mail', state: 'dead', at_most: 1 },
  ...changing('drop', ({ matched, changed, job }: Changed) => ({ matched, dropped: changed, job })),
});

const retry = operation({
  path: '/inbound/retry',
  access: 'mail',
  extension: true,
  summary: 'Retries waiting deliveries now, by id, time, URL, status or search.',
  notes:
    'Select deliveries with `id`, `ids`, `query`, `url`, `status`, or `from` and `to`, as in /inbound/replay; all ' +
    'given conditions must match. The deliveries become due; their attempts and the end of their retries do not ' +
    'change. Endpoints that are down are probed with one delivery; after a 2xx response, the others follow. ' +
    `Pauses still apply. Pulled mail is left out. A job retries more than ${MAX_AT_ONCE} deliveries, as in ` +
    `/inbound/replay. ${ALL_HOSTS}`,
  params: selecting('retry'),
  returns: z.object({
    matched: int('number of waiting deliveries that match'),
    retried: int('number of deliveries made due by this call; 0 if a job retries them'),
    job: strOrNull('id of the job that retries them, or null'),
  }),
  example: { url: 'https://app.example.com/hooks/mail', at_most: 1 },
  ...changing('retry', ({ matched, changed, job }: Changed) => ({ matched, retried: changed, job })),
});

export const bulkOperations = [replay, drop, retry];

/**
 * The selection of a call among these states: named deliveries in any of them, else dead ones unless `state` is given.
 */
function toSelection(given: Given, states: readonly DeliveryState[], call: Call<never>): MailSelection {
  const { id, ids, from, to, route, state, url, query, status } = given;
  const named = id === undefined ? ids : [...(ids ?? []), id];
  // Without this check, a call that omits a parameter would change everything.
  if ([named, from, to, query, url, status].every((one) => one === undefined))
    throw call.invalid('id', 'Please enter an id, ids, a query, a url, a status, or a time in from or to');
  const searched = query !== undefined || status !== undefined;
  if (named && searched) throw call.invalid('id', 'Please enter either ids, or a query or a status');
  if (given.except_urls && !searched) throw call.invalid('except_urls', 'Please enter a query or a status with it');
  const filter = searched ? toFilter(given, call) : undefined;
  const asked = filter?.states && states.filter((one) => filter.states?.includes(one));
  if (asked?.length === 0) throw call.invalid('query', `state: takes ${states.join(', ')} here`);
  return {
    states: asked ?? (state ? [state] : named || !states.includes('dead') ? states : ['dead']),
    selection: {
      ids: named,
      routeIds: route === undefined ? undefined : [route],
      url,
      from: from?.getTime(),
      to: to?.getTime(),
    },
    filter,
    words: toWords(given),
  };
}

/** The filter for the history: the query, and the other parameters with it. */
function toFilter(
  { query = '', status, url, except_urls: exceptUrls, route, from, to, state }: Given,
  call: Call<never>,
): MailFilter {
  const filter = readQuery(query, parseMailQuery, call);
  const wanted = status === undefined ? undefined : parseStatus(status);
  if (status !== undefined && !wanted) throw call.invalid('status', `It ${STATUS_FORMS}`);
  const twice =
    (wanted && (filter.status || filter.unanswered) && 'status') ||
    (url !== undefined && filter.url !== undefined && 'url') ||
    (route !== undefined && filter.route !== undefined && 'route') ||
    (state !== undefined && filter.states && 'state');
  if (twice) throw call.invalid(twice, `Please give ${twice} as a parameter or in the query, not both`);
  return {
    ...filter,
    ...wanted,
    url: url ?? filter.url,
    exceptUrls,
    route: route ?? filter.route,
    states: state ? [state] : filter.states,
    since: later(filter.since, from?.getTime()),
    before: earlier(filter.before, to?.getTime()),
  };
}

/** The parameters as text, for the list of actions. */
function toWords({ id, ids, dry_run: _, at_most: __, ...rest }: Given): string {
  const named = [...(ids ?? []), ...(id === undefined ? [] : [id])];
  return [
    ...Object.entries(rest).flatMap(([name, value]) =>
      value === undefined ? [] : [`${name} ${value instanceof Date ? value.toISOString() : value}`],
    ),
    ...(named.length > 0 ? [named.length === 1 ? `id ${named[0]}` : `${named.length} ids`] : []),
  ].join(', ');
}
