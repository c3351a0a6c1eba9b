import type { Collection, Filter, Row } from '../store/collection.ts';
import type { Store } from '../store/store.ts';
import {
  bytesOf,
  isLimited,
  NOTHING,
  ownerOf,
  USAGE_PARTS,
  type Usage,
  type UsageMeter,
  type UsagePart,
} from '../store/usage.ts';
import type { Task } from './task.ts';

type Sum = Record<UsagePart, number>;

/** Rows that are read at a time, so that nobody waits long for the store. */
const STEP = 500;

/**
 * Counts what accounts have from their rows, once a night, and corrects the running count (store/usage.ts). What is written while it
 * counts may be counted twice or not at all, until the next night.
 */
export function countUsageTask({ store, meter }: { readonly store: Store; readonly meter: UsageMeter }): Task {
  return {
    name: 'count-usage',
    schedule: '41 3 * * *',
    async run(ending) {
      const before = new Map<string, Usage>();
      for await (const { id } of every(store.accounts)) before.set(id, await meter.stored(id));
      const sums = new Map<string, Sum>([...before.keys()].map((account) => [account, { ...NOTHING }]));
      for (const [name, rows] of ownedRows(store)) {
        for await (const row of every(rows)) {
          if (ending?.aborted) return undefined;
          count(sums, name, row);
        }
      }
      let corrected = 0;
      for (const [account, sum] of sums) {
        const difference = minus(sum, before.get(account) ?? NOTHING);
        if (USAGE_PARTS.every((part) => difference[part] === 0)) continue;
        await meter.correct(account, difference);
        corrected++;
      }
      return corrected > 0 ? { accounts: sums.size, corrected } : undefined;
    },
  };
}

function minus(sum: Usage, other: Usage): Usage {
  const difference: Sum = { ...NOTHING };
  for (const part of USAGE_PARTS) difference[part] = sum[part] - other[part];
  return difference;
}

/** What has an account, by the name of its collection. */
function ownedRows(store: Store): readonly (readonly [string, Pick<Collection<Row>, 'many'>])[] {
  return [
    ['keys', store.keys],
    ['inbound_domains', store.inboundDomains],
    ['inbound_routes', store.inboundRoutes],
    ['signing_keys', store.signingKeys],
    ['counters', store.counters],
    ['exports', store.exportJobs],
    ['ip_requests', store.ipRequests],
    ['message_events', store.messageEvents],
    ['messages', store.messages],
    ['message_tags', store.messageTags],
    ['notices', store.notices],
    ['placements', store.placements],
    ['pools', store.pools],
    ['rejects', store.rejects],
    ['scheduled', store.scheduled],
    ['sender_domains', store.senderDomains],
    ['verifications', store.verifications],
    ['subaccounts', store.subaccounts],
    ['tag_removals', store.tagRemovals],
    ['templates', store.templates],
    ['template_labels', store.templateLabels],
    ['webhooks', store.webhooks],
    ['webhook_tallies', store.webhookTallies],
    ['whitelists', store.whitelists],
    ['metadata_fields', store.metadataFields],
    ['tracking_domains', store.trackingDomains],
    ['urls', store.urls],
    ['url_hours', store.urlHours],
  ];
}

/** All rows of a collection, by their ids. */
async function* every(rows: Pick<Collection<Row>, 'many'>): AsyncGenerator<Row> {
  for (let last = '', more = true; more; ) {
    const filter: Filter<Row> = { id: { range: { gt: last } } };
    const page = await rows.many(filter, { sort: 'id', limit: STEP });
    yield* page;
    last = page.at(-1)?.id ?? last;
    more = page.length === STEP;
  }
}

function count(sums: Map<string, Sum>, name: string, row: Row): void {
  const account = ownerOf(row);
  const sum = account === undefined ? undefined : sums.get(account);
  if (!sum) return;
  sum.bytes += bytesOf(row);
  if (isLimited(name)) sum[name]++;
}
