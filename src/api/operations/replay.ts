import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { faultText, MAIL_FIELDS, parseMailQuery, parseStatus, STATUS_FORMS } from '../../journal/query-language.ts';
import type { MailFilter } from '../../journal/types.ts';
import { ENDED_STATES } from '../../queue/delivery.ts';
import { MOST_AT_ONCE, type Wish } from '../account-replays.ts';
import { type Call, operation } from '../operation.ts';
import { deliveryId, from, MAX_LISTED, routeId, to } from './deliveries.ts';
import { earlier, later } from './fields.ts';
import { MAX_QUERY } from './history.ts';

/** URLs that may be left out. */
const MAX_EXCEPT = 100;

const params = {
  id: optional(deliveryId).meta({ description: 'one delivery' }),
  ids: optional(z.array(deliveryId).max(MAX_LISTED)).meta({ description: `up to ${MAX_LISTED} deliveries` }),
  from,
  to,
  route: routeId,
  state: optional(z.enum(ENDED_STATES)).meta({ description: 'only deliveries in this state' }),
  query: optional(text(MAX_QUERY)).meta({
    description: `only mail that /inbound/search finds with this query: words, quotes, ${MAIL_FIELDS}`,
  }),
  url: optional(text(2048)).meta({ description: 'only deliveries to this URL' }),
  except_urls: optional(z.array(text(2048)).max(MAX_EXCEPT)).meta({
    description: `with a query or a status: no deliveries to these URLs, at most ${MAX_EXCEPT}`,
  }),
  status: optional(text(10)).meta({
    description: 'only deliveries whose last answer was this: a status such as 500, a class such as 5xx, or none',
  }),
  dry_run: optional(z.boolean()).meta({ description: 'only count the deliveries' }),
};

type Given = z.output<z.ZodObject<typeof params>>;

const replayInbound = operation({
  path: '/inbound/replay',
  extension: true,
  summary: 'Replays deliveries that have ended: by id, by time, by URL or status, or all that a search finds.',
  notes:
    'Give `id`, `ids`, `query`, `url`, `status`, or `from` and `to` (one of the two is enough); all that are given must hold. By id, any delivery that has ended or is held is replayed; else only dead ones unless `state` or the query says otherwise. A replay keeps the webhook-id of the first delivery, so that receivers can detect duplicates. ' +
    `More than ${MOST_AT_ONCE} deliveries are replayed by a job, which goes on after the answer: /jobs/info shows how far it is. An account has one job at a time. ` +
    'Mail that the queue has deleted cannot be replayed. With several hosts, each replays the mail that it accepted itself.',
  params,
  returns: z.object({
    matched: z.int().meta({ description: 'how many deliveries can be replayed' }),
    forgotten: z.int().meta({
      description:
        'with `query` or `status`: how many more match in the history, but the queue has deleted their message; else 0',
    }),
    replayed: z.int().meta({ description: 'how many were queued again by this call; 0 if there is a job' }),
    job: z.string().nullable().meta({ description: 'id of the job that replays them; null if there is none' }),
  }),
  errors: [],
  example: {
    params: { from: '2026-01-05 11:00:00', to: '2026-01-05 12:00:00', route: '1.1' },
    answer: { matched: 1, forgotten: 0, replayed: 1, job: null },
  },
  async handle(given, call) {
    const wish = toWish(given, call);
    if (wish.selection.ids?.length === 0) return { matched: 0, forgotten: 0, replayed: 0, job: null };
    const counts = await call.replays.count(wish);
    if (given.dry_run || counts.matched === 0) return { ...counts, replayed: 0, job: null };
    const note = await call.actions.begin();
    if (counts.matched <= MOST_AT_ONCE) return { ...counts, replayed: await call.replays.now(wish, note), job: null };
    return { ...counts, replayed: 0, job: call.replays.later(wish, counts.matched, note).id };
  },
});

function toWish(given: Given, call: Call<never>): Wish {
  const { id, ids, from, to, route, state, url, query, status } = given;
  const named = id === undefined ? ids : [...(ids ?? []), id];
  // Without this check, a call that omits a parameter would replay everything.
  if ([named, from, to, query, url, status].every((one) => one === undefined))
    throw call.invalid('id', 'Please enter an id, ids, a query, a url, a status, or a time in from or to');
  const searched = query !== undefined || status !== undefined;
  if (named && searched) throw call.invalid('id', 'Please enter either ids, or a query or a status');
  if (given.except_urls && !searched) throw call.invalid('except_urls', 'Please enter a query or a status with it');
  const filter = searched ? toFilter(given, call) : undefined;
  const asked = filter?.states && ENDED_STATES.filter((one) => filter.states?.includes(one));
  if (asked?.length === 0) throw call.invalid('query', `state: takes ${ENDED_STATES.join(', ')} here`);
  return {
    states: asked ?? (state ? [state] : named ? ENDED_STATES : ['dead']),
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

/** What the history is asked for: the query, and the other parameters with it. */
function toFilter(
  { query = '', status, url, except_urls: exceptUrls, route, from, to, state }: Given,
  call: Call<never>,
): MailFilter {
  const parsed = parseMailQuery(query, call.now().getTime());
  if ('fault' in parsed) throw call.invalid('query', faultText(parsed.fault));
  const { filter } = parsed;
  const wanted = status === undefined ? undefined : parseStatus(status);
  if (status !== undefined && !wanted) throw call.invalid('status', `It ${STATUS_FORMS}`);
  const twice =
    (wanted && (filter.status || filter.unanswered) && 'status') ||
    (url !== undefined && filter.url !== undefined && 'url') ||
    (route !== undefined && filter.route !== undefined && 'route') ||
    (state !== undefined && filter.states && 'state');
  if (twice) throw call.invalid(twice, `The query has ${twice}: as well; please enter it once`);
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

/** The parameters as the list of actions shows them. */
function toWords({ id, ids, dry_run: _, ...rest }: Given): string {
  const named = [...(ids ?? []), ...(id === undefined ? [] : [id])];
  return [
    ...Object.entries(rest).flatMap(([name, value]) =>
      value === undefined ? [] : [`${name} ${value instanceof Date ? value.toISOString() : value}`],
    ),
    ...(named.length > 0 ? [named.length === 1 ? `id ${named[0]}` : `${named.length} ids`] : []),
  ].join(', ');
}

export const replay = [replayInbound];
