import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { RESERVED_WORDS } from '../../mail/addresses/reserved-names.ts';
import { sinceHours } from '../../mail/stats.ts';
import { pagesByField } from '../../store/pages.ts';
import { type UrlCounts, urlId, urlKey } from '../../store/rows/counters.ts';
import { type TrackingDomainRow, trackingDomainId } from '../../store/rows/domains.ts';
import { type Call, listOperation, operation } from '../operation.ts';
import { mapPages } from '../streamed-lists.ts';
import { bool, domainName, int, record, str, strOrNull, time, timeOrNull, toDnsTest, toTime } from './fields.ts';
import { SERIES_DAYS } from './stats.ts';

/** As documented: the 100 most clicked URLs. */
const MAX_CLICKED = 100;
/** URLs that a search covers, the most clicked first; its notes say so. */
const SEARCHED = 10_000;

const counted = {
  sent: int('messages with the URL as a tracked link'),
  clicks: int('number of clicks'),
  unique_clicks: int('number of messages in which it was clicked'),
};
const urlRecord = record('URL record', { url: str('the URL'), ...counted });
const hourRecord = record('URL hourly entry', {
  time: time('the hour'),
  ...counted,
});

const toCounts = ({ sent, clicks, uniqueClicks }: UrlCounts) => ({ sent, clicks, unique_clicks: uniqueClicks });
const NOTES =
  'Counts only links in mail with click tracking, without their query if the message requested that ' +
  '(url_strip_qs). URLs of more than 2,000 characters are not counted. A URL that was neither sent nor clicked ' +
  'for 91 days is deleted.';

const list = operation({
  path: '/urls/list',
  access: 'numbers',
  summary: `Lists the ${MAX_CLICKED} most clicked URLs.`,
  notes: NOTES,
  params: {},
  returns: z.array(urlRecord),
  async handle(_, { store }) {
    const rows = await store.urls.many({}, { sort: '-clicks', limit: MAX_CLICKED });
    return rows.map((row) => ({ url: row.url, ...toCounts(row) }));
  },
});

const search = operation({
  path: '/urls/search',
  access: 'settings',
  summary: `Lists the ${MAX_CLICKED} most clicked URLs that contain a text.`,
  notes: 'Case is ignored. The 10,000 most clicked URLs of the account are searched. ' + NOTES,
  params: { q: text(1000).describe('text that the URL must contain') },
  returns: z.array(urlRecord),
  example: { q: 'example.com/OFF' },
  async handle({ q }, { store }) {
    const wanted = q.toLowerCase();
    const rows = await store.urls.many({}, { sort: '-clicks', limit: SEARCHED });
    const found = rows.filter(({ url }) => url.toLowerCase().includes(wanted)).slice(0, MAX_CLICKED);
    return found.map((row) => ({ url: row.url, ...toCounts(row) }));
  },
});

const timeSeries = operation({
  path: '/urls/time-series',
  access: 'numbers',
  summary: 'Shows the statistics of a URL by hour, for the last 30 days.',
  notes: 'Only hours with activity, oldest first.',
  params: { url: text(10_000).describe('a URL as /urls/list shows it') },
  returns: z.array(hourRecord),
  errors: ['Unknown_Url'],
  example: { url: 'https://www.example.com/offers' },
  async handle({ url }, { store, refuse, now }) {
    const key = urlKey(url);
    if (!(await store.urls.one({ id: urlId(store.account, key) }))) throw refuse('Unknown_Url');
    const rows = await store.urlHours.many(
      { key, start: { range: { gt: sinceHours(now(), SERIES_DAYS) } } },
      { sort: 'start' },
    );
    return rows.map((row) => ({ time: toTime(row.start), ...toCounts(row) }));
  },
});

const trackingDomainRecord = record('tracking domain record', {
  domain: str('the domain'),
  created_at: time('when it was added'),
  last_tested_at: timeOrNull('when its DNS last answered a check; null before the first'),
  cname: z
    .object({
      valid: bool('whether the domain points here'),
      valid_after: timeOrNull('for a record that became valid: when its TTL has passed'),
      error: strOrNull('the problem, or null'),
    })
    .describe('the CNAME record of the domain, or address records that are those of this service'),
  valid_tracking: bool(
    'whether tracked links may use the domain. If it is false with a valid record, a `valid_after` has not ' +
      'passed, or neither the domain nor one above it is a verified sender domain of the account',
  ),
});

async function toDomainRecords(rows: readonly TrackingDomainRow[], { trackingDomains, now }: Call<never>) {
  const owned = await trackingDomains.owned(rows);
  return rows.map((row) => {
    const cname = toDnsTest(row.valid, row.validAfter, row.error);
    const used = cname.valid && (row.validAfter === null || row.validAfter <= now());
    return {
      domain: row.domain,
      created_at: toTime(row.createdAt),
      last_tested_at: toTime(row.lastTestedAt),
      cname,
      valid_tracking: used && owned.has(row.domain),
    };
  });
}

async function toDomainRecord(row: TrackingDomainRow, call: Call<never>) {
  const [record] = await toDomainRecords([row], call);
  if (!record) throw new Error('the row has no record');
  return record;
}

const trackingDomains = listOperation({
  path: '/urls/tracking-domains',
  access: 'settings',
  summary: 'Lists the tracking domains of the account, by name.',
  params: {},
  returns: z.array(trackingDomainRecord),
  pages: (_, call) =>
    mapPages(pagesByField(call.store.trackingDomains, 'domain', ''), (page) => toDomainRecords(page, call)),
});

const addTrackingDomain = operation({
  path: '/urls/add-tracking-domain',
  access: 'settings',
  summary: 'Adds a tracking domain to the account and tests its DNS.',
  notes:
    'Point a CNAME of the domain at the host of this service, and verify the domain, or one above it, as a sender ' +
    'domain (/senders/verify-domain). A message names it in `tracking_domain`. If this service gets its own ' +
    'certificates, links use the domain within minutes, once it has one. Adding one again tests it again.',
  params: { domain: domainName },
  returns: trackingDomainRecord,
  example: { domain: 'track.example.com' },
  async handle({ domain }, call) {
    if (call.names.isOurs(domain)) throw call.invalid('domain', RESERVED_WORDS.ours);
    return toDomainRecord(await call.trackingDomains.add(domain), call);
  },
});

async function findTrackingDomain(
  domain: string,
  { store, orRefuse }: Call<'Unknown_TrackingDomain'>,
): Promise<TrackingDomainRow> {
  const row = await store.trackingDomains.one({ id: trackingDomainId(store.account, domain) });
  return orRefuse(row, 'Unknown_TrackingDomain', domain);
}

const checkTrackingDomain = operation({
  path: '/urls/check-tracking-domain',
  access: 'settings',
  summary: 'Tests the DNS of a tracking domain.',
  notes:
    'If the DNS of the domain does not answer, the last result is kept. Domains are tested again every day, ' +
    'and every hour while they are not valid.',
  params: { domain: domainName },
  returns: trackingDomainRecord,
  errors: ['Unknown_TrackingDomain'],
  example: { domain: 'track.example.com' },
  handle: async ({ domain }, call) =>
    toDomainRecord(await call.trackingDomains.test(await findTrackingDomain(domain, call)), call),
});

const deleteTrackingDomain = operation({
  path: '/urls/delete-tracking-domain',
  access: 'settings',
  summary: 'Removes a tracking domain from the account.',
  notes:
    'Links in mail sent with it keep working as long as the DNS of the domain points here. A domain that is in ' +
    'use is removed only with `confirm`.',
  params: {
    domain: domainName,
    confirm: optional(z.boolean()).describe(
      'removes it even if tracked links may use it (not part of the Mandrill API)',
    ),
  },
  returns: trackingDomainRecord,
  errors: ['Unknown_TrackingDomain', 'Invalid_Verified_TrackingDomain'],
  example: { domain: 'track.example.com' },
  async handle({ domain, confirm = false }, call) {
    const row = await findTrackingDomain(domain, call);
    const record = await toDomainRecord(row, call);
    if (record.valid_tracking && !confirm) throw call.refuse('Invalid_Verified_TrackingDomain', domain);
    await call.store.trackingDomains.remove({ id: row.id });
    return record;
  },
});

export const urlOperations = [
  list,
  search,
  timeSeries,
  trackingDomains,
  addTrackingDomain,
  checkTrackingDomain,
  deleteTrackingDomain,
];
