import { toTimestamp } from '../../base/clock.ts';
import type { ExportRow } from '../../store/exports.ts';
import type { SentMessageRow } from '../../store/messages.ts';
import type { RejectRow } from '../../store/rejects.ts';
import type { Store } from '../../store/store.ts';
import type { WhitelistRow } from '../../store/whitelists.ts';
import { type ActivityStore, activityPages } from './activity.ts';
import type { Line } from './csv.ts';
import { pagesById } from './paging.ts';

/** What an archive of some type holds: the name of its file, its first line, and the others, page by page. Pages may be empty. */
export interface Contents {
  readonly file: string;
  readonly header: Line;
  readonly pages: AsyncIterable<readonly Line[]>;
}

export type ContentsStore = ActivityStore & Pick<Store, 'rejects' | 'whitelists'>;

// The columns of the documented interface. It names expires_at twice, and a reader that counts columns relies on that.
const REJECT_COLUMNS = ['email', 'reason', 'detail', 'created_at', 'expires_at', 'last_event_at', 'expires_at'];
const WHITELIST_COLUMNS = ['email', 'detail', 'created_at'];
const ACTIVITY_COLUMNS = [
  'Date',
  'Email Address',
  'Sender',
  'Subject',
  'Status',
  'Tags',
  'Opens',
  'Clicks',
  'Bounce Detail',
];

/** What a job asks for, as it is at `now`. `metadataFields` become columns of an activity export. */
export function contentsOf(
  job: ExportRow,
  store: ContentsStore,
  now: Date,
  metadataFields: readonly string[],
): Contents {
  switch (job.type) {
    case 'reject': {
      const rows = pagesById(job.account, (id, order) => store.rejects.many({ id }, order));
      return {
        file: 'rejects.csv',
        header: REJECT_COLUMNS,
        pages: lines(rows, toRejectLine, (row) => isOnList(row, now)),
      };
    }
    case 'whitelist': {
      const rows = pagesById(job.account, (id, order) => store.whitelists.many({ id }, order));
      return {
        file: 'whitelist.csv',
        header: WHITELIST_COLUMNS,
        pages: lines(rows, toWhitelistLine, (row) => !row.removed),
      };
    }
    case 'activity': {
      const rows = activityPages(store, job.account, job.filter, now);
      return {
        file: 'activity.csv',
        header: [...ACTIVITY_COLUMNS, ...metadataFields],
        pages: lines(
          rows,
          (row) => toActivityLine(row, metadataFields),
          () => true,
        ),
      };
    }
  }
}

async function* lines<R>(
  pages: AsyncIterable<readonly R[]>,
  toLine: (row: R) => Line,
  fits: (row: R) => boolean,
): AsyncGenerator<readonly Line[]> {
  for await (const page of pages) yield page.filter(fits).map(toLine);
}

/** As /rejects/list shows without include_expired. */
function isOnList(row: RejectRow, now: Date): boolean {
  return !row.removed && !row.expired && (row.expiresAt === null || row.expiresAt > now);
}

function toRejectLine(row: RejectRow): Line {
  const expires = row.expiresAt === null ? '' : toTimestamp(row.expiresAt);
  return [
    { address: row.email },
    row.reason,
    row.detail ?? '',
    toTimestamp(row.createdAt),
    expires,
    toTimestamp(row.lastEventAt),
    expires,
  ];
}

function toWhitelistLine(row: WhitelistRow): Line {
  return [{ address: row.email }, row.detail ?? '', toTimestamp(row.createdAt)];
}

function toActivityLine(row: SentMessageRow, metadataFields: readonly string[]): Line {
  // Metadata has the names that callers chose; one like `constructor` must not find what every object has.
  const metadata = metadataFields.map((name) =>
    Object.hasOwn(row.metadata, name) ? String(row.metadata[name] ?? '') : '',
  );
  const bounce = row.diag ?? row.bounceDescription ?? '';
  const [recipient, sender] = [{ address: row.email }, { address: row.sender }];
  return [
    toTimestamp(row.createdAt),
    recipient,
    sender,
    row.subject,
    row.state,
    row.tags.join(','),
    row.opens,
    row.clicks,
    bounce,
    ...metadata,
  ];
}
