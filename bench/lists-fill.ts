import { NO_COUNTS } from '../src/mail/stats.ts';
import { type CounterSubject, counterId, SPANS_OF, startOf } from '../src/store/rows/counters.ts';
import { rejectId } from '../src/store/rows/lists.ts';
import { templateLabelId } from '../src/store/rows/templates.ts';
import type { Store } from '../src/store/store.ts';

export interface Sizes {
  readonly rejects: number;
  readonly others: number;
}

/** So many rows are on their way to the store at a time; they share its syncs. */
const AT_ONCE = 2000;
const LABELS = 20;
const NOW = new Date('2026-01-05T11:00:00Z');
const DAY_MS = 86_400_000;

/** The number in a name: as many digits for all, so that they sort as they count. */
export const number = (i: number) => String(i).padStart(7, '0');

/** Writes the rows through the port of the store, as the operations would have. */
export async function fillLists(store: Store, account: string, { rejects, others }: Sizes): Promise<void> {
  await each(rejects, (i) => store.rejects.insert(reject(account, i)));
  await each(others, async (i) => {
    const row = template(account, i);
    await Promise.all([
      store.templates.insert(row),
      ...row.labels.map((label) =>
        store.templateLabels.insert({
          id: templateLabelId(row.id, label),
          account,
          label,
          template: row.id,
          name: row.name,
        }),
      ),
    ]);
  });
  for (const [kind, name] of [
    ['tag', 'tag-#'],
    ['sender', 'sender-#@example.com'],
    ['template', 'template-#'],
  ] as const) {
    await each(others, (i) =>
      Promise.all(counters(account, kind, name.replace('#', number(i))).map((row) => store.counters.insert(row))),
    );
  }
}

async function each(count: number, work: (i: number) => Promise<unknown>): Promise<void> {
  for (let from = 0; from < count; from += AT_ONCE) {
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, i) => work(from + i)));
  }
}

/** One in ten has expired; one in a hundred has a sender that mail was sent from. */
function reject(account: string, i: number) {
  const email = `user-${number(i)}@example.com`;
  const expired = i % 10 === 9;
  return {
    id: rejectId(account, email, ''),
    account,
    email,
    subaccount: '',
    reason: 'soft-bounce',
    detail: 'smtp;550 5.1.1 no such user',
    createdAt: new Date(NOW.getTime() - i * 1000),
    lastEventAt: NOW,
    expiresAt: new Date(NOW.getTime() + (expired ? -DAY_MS : 7 * DAY_MS)),
    expired,
    sender: i % 100 === 0 ? `sender-${number(i / 100)}@example.com` : null,
    termMs: 7 * DAY_MS,
    removed: false,
    version: 1,
    unsent: null,
    unsentSince: null,
  } as const;
}

function template(account: string, i: number) {
  const content = {
    code: '<p mc:edit="main">Hello *|NAME|*</p>',
    subject: 'Hello',
    fromEmail: 'ann@example.com',
    fromName: 'Ann',
    text: 'Hello',
  };
  return {
    id: `Template${number(i)}`,
    account,
    name: `Template ${number(i)}`,
    slug: `template-${number(i)}`,
    labels: [`label-${i % LABELS}`],
    draft: content,
    published: content,
    publishedAt: NOW,
    createdAt: NOW,
    updatedAt: NOW,
    version: 1,
  };
}

function counters(account: string, kind: CounterSubject, key: string) {
  return SPANS_OF[kind].map((span) => {
    const start = startOf(span, NOW);
    return {
      ...NO_COUNTS,
      id: counterId(account, kind, span, start, key),
      account,
      kind,
      span,
      key,
      start,
      firstAt: NOW,
      sent: 10,
      opens: 3,
      uniqueOpens: 2,
    };
  });
}
