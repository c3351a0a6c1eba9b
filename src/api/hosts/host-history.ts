import { z } from 'zod';
import { frozen } from '../../base/frozen.ts';
import type { History } from '../../journal/history.ts';
import { faultText, type Parsed, parseMailQuery, parseRefusalQuery } from '../../journal/query-language.ts';
import { toTimeline } from '../../journal/timeline.ts';
import type { MailRecord, RefusalRecord } from '../../journal/types.ts';
import type { RefusalTexts } from '../account/account.ts';
import { invalid } from '../errors.ts';
import {
  mailRecord,
  refusalRecord,
  timelineEntry,
  toMailRecord,
  toRefusalRecord,
  toTimelineRecords,
} from '../operations/history.ts';
import type { HostRpc } from './host-rpc.ts';
import { cursoredPage } from './join-hosts.ts';

// The history of a host over all accounts, for the command line, which asks its own host and the others.

/** Rows that a host sends another at once. */
export const HISTORY_PAGE = 1000;

/** A page of the results of a query. */
export interface HistoryChoice {
  readonly query: string;
  /** Ages in the query are counted from here. Milliseconds since 1970. */
  readonly now: number;
  readonly limit: number;
  readonly before: number | null;
  /** Whether refusals are counted too. */
  readonly counts: boolean;
}

const choice = {
  query: z.string(),
  now: z.number(),
  limit: z.int().min(1).max(HISTORY_PAGE),
  before: z.int().nullable(),
  counts: z.boolean(),
};

interface MailChoice extends HistoryChoice {
  /** Without mail that another host has taken over. */
  readonly isOwn: boolean;
}

const listedMail = cursoredPage(mailRecord.omit({ kept: true }).extend({ kind: z.string(), account: z.string() }));
/** `refused`: how many refusals match the query. */
const mailPage = listedMail.extend({ refused: z.int() });
type MailPage = z.output<typeof mailPage>;
export type ListedMail = MailPage['rows'][number];

export const FIND_MAIL: HostRpc<MailChoice, MailPage> = {
  path: '/history/mail',
  params: z.strictObject({ ...choice, isOwn: z.boolean() }),
  returns: mailPage,
  ms: 20_000,
};

const mailStory = z.object({
  rows: listedMail.shape.rows,
  /** Why it waits and its timeline, if the result is a single mail. */
  story: z.object({ waits: z.string().nullable(), timeline: z.array(timelineEntry) }).nullable(),
});
export type ShownMail = z.output<typeof mailStory>;

/** The mail with this id, or the mail of the message with it; an empty list if the history has neither. */
export const SHOW_MAIL: HostRpc<{ readonly id: string }, readonly ShownMail[]> = {
  path: '/history/one',
  params: z.strictObject({ id: z.string() }),
  returns: z.array(mailStory),
  ms: 20_000,
};

const refusalPage = cursoredPage(refusalRecord.extend({ account: z.string().nullable() })).extend({
  /** All reasons that match, the most frequent first. */
  reasons: z.array(z.object({ reason: z.string(), count: z.int() })),
});
type RefusalPage = z.output<typeof refusalPage>;
export type ListedRefusal = RefusalPage['rows'][number];

export const FIND_REFUSALS: HostRpc<HistoryChoice, RefusalPage> = {
  path: '/history/refusals',
  params: z.strictObject(choice),
  returns: refusalPage,
  ms: 20_000,
};

/** Recipients of one message that are listed. */
const MAX_RECIPIENTS = 50;

interface HostHistoryDeps {
  readonly history: Pick<History, 'mail' | 'one' | 'refusals' | 'refusalsByReason'>;
  readonly refusals: Pick<RefusalTexts, 'adviceOf'>;
  /** Why a delivery is not delivered yet, as the queue knows it. */
  readonly waitsFor: (mail: MailRecord) => Promise<string | null>;
}

/** The answers of this host. */
export function createHostHistory({ history, refusals, waitsFor }: HostHistoryDeps) {
  const { adviceOf } = refusals;

  /** Mail that never arrived may have been refused. */
  async function countRefused(query: string, now: number): Promise<number> {
    const parsed = parseRefusalQuery(query, now);
    if (query.trim() === '' || 'fault' in parsed) return 0;
    return (await history.refusalsByReason(parsed.filter)).reduce((sum, { count }) => sum + count, 0);
  }

  return frozen({
    async mail({ query, now, limit, before, counts, isOwn }: MailChoice): Promise<MailPage> {
      const filter = { ...read(parseMailQuery(query, now)), isOwn };
      const { rows, next } = await history.mail(filter, limit, before ?? undefined);
      return { rows: rows.map(toListedMail), next, refused: counts ? await countRefused(query, now) : 0 };
    },

    async one({ id }: { readonly id: string }): Promise<readonly ShownMail[]> {
      const rows: MailRecord[] = [];
      let cursor: number | null | undefined;
      while (cursor !== null && rows.length < MAX_RECIPIENTS) {
        const page = await history.mail({ ids: [id] }, MAX_RECIPIENTS - rows.length, cursor);
        rows.push(...page.rows);
        cursor = page.next;
      }
      const story = rows.length === 1 && rows[0] ? await history.one(rows[0].id) : undefined;
      if (rows.length === 0) return [];
      if (!story) return [{ rows: rows.map(toListedMail), story: null }];
      const timeline = toTimelineRecords(toTimeline(story, undefined, adviceOf), story.mail.at);
      return [{ rows: [toListedMail(story.mail)], story: { waits: await waitsFor(story.mail), timeline } }];
    },

    async refusals({ query, now, limit, before, counts }: HistoryChoice): Promise<RefusalPage> {
      const filter = read(parseRefusalQuery(query, now));
      const { rows, next } = await history.refusals(filter, limit, before ?? undefined);
      const reasons = counts ? await history.refusalsByReason(filter) : [];
      return { rows: rows.map((row) => toListedRefusal(row, adviceOf)), next, reasons: [...reasons] };
    },
  });
}

function read<F>(parsed: Parsed<F>): F {
  if ('fault' in parsed) throw invalid({ query: faultText(parsed.fault) });
  return parsed.filter;
}

function toListedMail(mail: MailRecord): ListedMail {
  // The queue knows whether the message is kept: see `postern queue show`.
  const { kept: _, ...record } = toMailRecord(mail, false);
  return { n: mail.n, at: mail.at, record: { ...record, kind: mail.kind, account: mail.account } };
}

const toListedRefusal = (row: RefusalRecord, adviceOf: (reason: string) => string): ListedRefusal => ({
  n: row.n,
  at: row.at,
  record: { ...toRefusalRecord(row, adviceOf), account: row.account },
});
