import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { listen } from '../live.ts';
import { type Loaded, useLoad } from '../load.ts';
import type { Mail, Refusal } from '../records.ts';
import { messageLink } from '../router.ts';
import { account } from '../session.ts';
import { Time, useAction } from './elements.ts';
import { answerOf, MailStateMark } from './states.ts';
import { count, plain } from './text.ts';

// Lists of mail and of refusals: read in pages, kept up to date by the live feed.

interface Pages<T> {
  readonly rows: readonly T[];
  readonly next: number | string | null;
}

export interface List<T> extends Loaded<Pages<T>> {
  readonly rows: readonly T[] | undefined;
  /** Reads the next page, if there is one. */
  readonly more: (() => Promise<void>) | undefined;
}

const PAGE = 50;
/** Rows on one screen; what is further back is found by searching. */
const MAX_ROWS = 1_000;
/** A search is repeated at most this often while mail comes in. */
const REPEAT_MS = 2_000;
const SOON_MS = 200;

/** Mail that matches the query, newest first. */
export function useMail(query: string, limit = PAGE): List<Mail> {
  return useList<Mail>({
    key: `mail ${account.value?.id} ${limit} ${query}`,
    whole: query.trim() === '',
    async read(before, stop) {
      const { mails, next } = await call('inbound/search', { query, limit, before }, stop);
      return { rows: mails, next };
    },
    follow: (took, reset) => listen({ mail: took, reset }),
  });
}

/** A refusal with a name for its row: the history gives it none. */
export interface RefusalRow extends Refusal {
  readonly id: string;
}

/** Refusals that match the query, newest first. */
export function useRefusals(query: string, limit = PAGE): List<RefusalRow> {
  return useList<RefusalRow>({
    key: `refusals ${account.value?.id} ${limit} ${query}`,
    whole: false,
    async read(before, stop) {
      const { refusals, next } = await call('inbound/refusals', { query, limit, before }, stop);
      return { rows: named(refusals), next };
    },
    // An event may be a new refusal, or one that happened again.
    follow: (_, reset) => listen({ refused: reset, reset }),
  });
}

/** Equal refusals are distinguished by a number. */
function named(refusals: readonly Refusal[]): RefusalRow[] {
  const alike = new Map<string, number>();
  return refusals.map((one) => {
    const { at, client, stage, reply, sender, recipient } = one;
    const name = [at, client, stage, reply, sender, recipient].join(' ');
    const n = (alike.get(name) ?? 0) + 1;
    alike.set(name, n);
    return { ...one, id: `${name} ${n}` };
  });
}

interface Source<T> {
  readonly key: string;
  /** Whether the list has everything, so that a new row belongs to it. */
  readonly whole: boolean;
  read(before: number | string | undefined, stop?: AbortSignal): Promise<Pages<T>>;
  /** Tells about new and changed rows. */
  follow(took: (row: T) => void, reset: () => void): () => void;
}

interface Row {
  readonly id: string;
  readonly at: string;
}

function useList<T extends Row>({ key, whole, read, follow }: Source<T>): List<T> {
  const loaded: Loaded<Pages<T>> = useLoad<Pages<T>>(key, async (stop) =>
    onto(newest.current.data, await read(undefined, stop)),
  );
  const newest = useRef(loaded);
  newest.current = loaded;
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const readAt = useRef(0);

  useEffect(() => {
    const later = () => {
      timer.current ??= setTimeout(
        () => {
          timer.current = undefined;
          // A server that is slow is not asked again before it has answered.
          if (newest.current.loading) return later();
          readAt.current = Date.now();
          newest.current.again();
        },
        Math.max(SOON_MS, readAt.current + REPEAT_MS - Date.now()),
      );
    };
    const stop = follow((row) => {
      const known = newest.current.data?.rows.some(({ id }) => id === row.id) ?? false;
      // Whether a search finds a new row, or still finds a changed one, only the server knows.
      if (!whole) later();
      if (!known && !whole) return;
      newest.current.change(({ rows, next }) => ({
        next,
        rows: rows.some(({ id }) => id === row.id)
          ? rows.map((one) => (one.id === row.id ? row : one))
          : [row, ...rows].slice(0, MAX_ROWS),
      }));
    }, later);
    return () => {
      stop();
      clearTimeout(timer.current);
      timer.current = undefined;
    };
  }, [key]);

  const { data, change } = loaded;
  const before = data?.next ?? undefined;
  const more = async () => {
    const page = await read(before);
    change((old) => ({ rows: [...old.rows, ...without(page.rows, old.rows)], next: page.next }));
  };
  const hasMore = data !== undefined && before !== undefined && data.rows.length < MAX_ROWS;
  return { ...loaded, rows: data?.rows, more: hasMore ? more : undefined };
}

/** The newest page, and behind it the older rows that were read before. */
function onto<T extends Row>(old: Pages<T> | undefined, page: Pages<T>): Pages<T> {
  const last = page.rows.at(-1);
  if (!old || !last || page.next === null) return page;
  const older = without(old.rows, page.rows).filter(({ at }) => at < last.at);
  return older.length === 0 ? page : { rows: [...page.rows, ...older], next: old.next };
}

function without<T extends Row>(rows: readonly T[], others: readonly T[]): readonly T[] {
  const known = new Set(others.map(({ id }) => id));
  return rows.filter(({ id }) => !known.has(id));
}

/** Ids of the marked rows. */
export const marked = signal<ReadonlySet<string>>(new Set());

export function mark(id: string, on: boolean): void {
  const next = new Set(marked.value);
  if (on) next.add(id);
  else next.delete(id);
  marked.value = next;
}

export function subjectOf({ subject }: Pick<Mail, 'subject'>): string {
  // Null: `journal.subjects` is off, or the queue had lost the message before its history began.
  return subject === null ? '(subject not kept)' : plain(subject) || '(no subject)';
}

export function senderOf(mail: Pick<Mail, 'from' | 'sender'>): string {
  return plain(mail.from || mail.sender || '<>');
}

/** The sender's address alone, so that there is room for the recipient. */
function addressOf(mail: Pick<Mail, 'from' | 'sender'>): string {
  const whole = senderOf(mail);
  return /<([^<>\s]+@[^<>\s]+)>$/.exec(whole)?.[1] ?? whole;
}

/** One message in a list. */
export function MailRow({
  mail,
  canMark,
  onFocus,
}: {
  readonly mail: Mail;
  readonly canMark: boolean;
  onFocus?(id: string): void;
}) {
  const link = messageLink(mail.id);
  return h('li.mail-row', { 'data-row': mail.id }, [
    canMark &&
      h('label.box', [
        h('span.hidden', `Select ${subjectOf(mail)}`),
        h('input', {
          type: 'checkbox',
          checked: marked.value.has(mail.id),
          onChange: (event) => mark(mail.id, event.currentTarget.checked),
        }),
      ]),
    h('a', { href: link, onFocus: () => onFocus?.(mail.id) }, [
      h(MailStateMark, { state: mail.state }),
      h(Parties, { from: addressOf(mail), to: mail.to }),
      h('span.subject', [h('bdi', subjectOf(mail))]),
      h('span.answer', [answerOf(mail), mail.attempts > 1 && h('span.faint', `, ${count(mail.attempts, 'attempt')}`)]),
      h('span.age', [h(Time, { at: mail.at })]),
    ]),
  ]);
}

/** Who a message is from and to; `to` is null if no recipient was named. */
export function Parties({ from, to }: { readonly from: string; readonly to: string | null }) {
  return h('span.who', [
    h('bdi', plain(from)),
    to !== null && [
      h('span.arrow', { 'aria-hidden': 'true' }, ' \u2192 '),
      h('span.hidden', ' to '),
      h('bdi.to', plain(to)),
    ],
  ]);
}

/** A button for the next page. */
export function More({ list: { rows, more } }: { readonly list: List<unknown> }) {
  const { busy, error, start } = useAction(() => more?.());
  if (!more) return null;
  return h('p.more', [
    h('button.button', { type: 'button', disabled: busy, onClick: start }, [
      error !== undefined ? 'Could not load; try again' : rows?.length === 0 ? 'Search older' : 'Older',
    ]),
  ]);
}
