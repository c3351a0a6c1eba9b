import type { SQLInputValue } from 'node:sqlite';
import { frozen } from '../base/frozen.ts';
import type { Envelope, Verdicts } from '../mail/addresses/envelope.ts';
import { sentId } from '../mail/addresses/return-address.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import { type MailSummary, summaryOfOutgoing } from '../mail/summary.ts';
import type { AttemptRecord, Delivery, QueuedDelivery } from '../queue/delivery.ts';
import { type DeliveryState, STATES } from '../queue/states.ts';
import { type Batch, COLUMNS, MAX_STORY, rowValues } from './changes.ts';
import { createMinute, createRefusals, dropFirst } from './counted-refusals.ts';
import type { ActionRecord, MailState, Note, SessionRecord, SessionTransaction } from './types.ts';

/** The notes about one delivery: its new row, or changes of a written one. */
interface Draft {
  /** Undefined if the row is written. */
  row: NewMail | undefined;
  /** The number of batches for which it was postponed. */
  left: number;
  sender: string | null;
  summary: MailSummary | null;
  /** The source of the summary, unless the message is parsed for its delivery first. */
  fields: string | null;
  verdicts: Verdicts | null;
  state: MailState | null;
  /** Whether the state applies even if the delivery has ended. */
  firm: boolean;
  url: string | null;
  attempts: number;
  lastStatus: number | null;
  lastError: string | null;
  endedAt: number | null;
  /** JSON texts with commas between them. */
  story: string;
}

/** A delivery without a row in the journal. */
interface NewMail {
  readonly delivery: Delivery;
  readonly receivedAt: number;
  readonly size: number;
  /** Undefined if only the delivery is known. */
  readonly envelope: Envelope | undefined;
  /** Undefined if its header was not read. */
  readonly fields?: string | undefined;
}

/** Characters of an answer that are kept; the queue has more of it while it has the delivery. */
const MAX_TEXT = 200;
/** Batches, in a second, for which a row waits for its delivery to end, so that it is written only once. */
const LEAVES = 3;

/** Gathers notes, so that a delivery that ends quickly is written once. `added` is called for each note. */
export function createNoteBuffer(settings: { readonly subjects: boolean }, added: () => void) {
  const drafts = new Map<string, Draft>();
  /** The session and transaction of each message. */
  const arrivals = new Map<string, SessionTransaction>();
  const refusals = createRefusals();
  const idle = createMinute();
  let sessions: SessionRecord[] = [];
  let actions: Omit<ActionRecord, 'n'>[] = [];
  let minutes: { readonly at: number; readonly figures: string }[] = [];
  /** For each list, its size and a function that drops its oldest entry. */
  const lists: readonly (readonly [size: () => number, dropOldest: () => unknown])[] = [
    [() => drafts.size, dropDraft],
    [() => arrivals.size, () => dropFirst(arrivals)],
    [refusals.size, refusals.drop],
    [() => sessions.length, () => sessions.shift()],
    [() => actions.length, () => actions.shift()],
    [() => minutes.length, () => minutes.shift()],
  ];
  /** An arrival usually belongs to a delivery that waits here too. */
  const size = () =>
    Math.max(arrivals.size, drafts.size) + refusals.size() + sessions.length + actions.length + minutes.length;

  function draftOf(id: string): Draft {
    const known = drafts.get(id);
    if (known) return known;
    const draft = { ...NOTHING };
    drafts.set(id, draft);
    return draft;
  }

  function dropDraft(): void {
    const [oldest] = drafts;
    if (!oldest) return;
    const [id, { row }] = oldest;
    drafts.delete(id);
    if (row) arrivals.delete(row.delivery.messageId);
  }

  /** Adds facts about its content that need no parsing. */
  function describe(id: string, draft: Draft, outgoing: Outgoing | undefined, fields: string | undefined): void {
    if (!settings.subjects) return;
    draft.summary ??= outgoing ? summaryOfOutgoing(outgoing, sentId(id)) : null;
    draft.fields ??= fields ?? null;
  }

  /** Takes notes about deliveries. */
  const deliveries = frozen({
    /** Whether From, Subject and Message-ID are kept. */
    keepsSummaries: settings.subjects,
    accepted(mail: NewMail): void {
      const draft = draftOf(mail.delivery.id);
      draft.row = mail;
      describe(mail.delivery.id, draft, mail.envelope?.outgoing, mail.fields);
      const { fate } = mail.delivery;
      draft.state ??= fate?.state ?? 'waiting';
      if (fate) {
        draft.endedAt = mail.receivedAt;
        draft.lastError = fate.note;
        tell(
          draft,
          JSON.stringify([fate.state === 'dropped' ? 'discarded' : STATES[fate.state].story.name, mail.receivedAt]),
        );
      }
      added();
    },
    /** `fields` is the result of `summaryFields` (mail/summary.ts) for its message. */
    described(id: string, fields: string): void {
      describe(id, draftOf(id), undefined, fields);
      added();
    },
    settled(id: string, state: DeliveryState, at: number, attempt: AttemptRecord | null): void {
      const draft = draftOf(id);
      if (attempt) {
        draft.attempts++;
        draft.lastStatus = attempt.status;
        draft.lastError = attempt.error?.slice(0, MAX_TEXT) ?? null;
        tell(draft, toStoryText(attempt));
      }
      // As in the queue: an attempt in progress does not change a delivery that was dropped meanwhile.
      if (draft.state === null || draft.state === 'waiting') {
        draft.state = state;
        draft.endedAt = state === 'waiting' ? null : at;
        if (state !== 'waiting') tell(draft, JSON.stringify([STATES[state].story.name, at]));
      }
      added();
    },
    /** It was replayed or dropped; `note` says why. */
    changed(id: string, what: 'replayed' | 'dropped', at: number, note?: string): void {
      const draft = draftOf(id);
      draft.lastError = note ?? draft.lastError;
      draft.state = what === 'replayed' ? 'waiting' : 'dropped';
      draft.firm = true;
      draft.endedAt = what === 'replayed' ? null : at;
      tell(draft, JSON.stringify([what, at]));
      added();
    },
    /** Adds a delivery that is in the queue but not in the journal. */
    missed(
      one: QueuedDelivery,
      message: Pick<NewMail, 'envelope' | 'size'> | undefined,
      fields: string | undefined,
    ): void {
      const { envelope, size } = message ?? { envelope: undefined, size: 0 };
      const draft = draftOf(one.id);
      if (draft.row) return;
      draft.row = { delivery: one, receivedAt: one.createdAt, size, envelope };
      describe(one.id, draft, envelope?.outgoing, fields);
      if (draft.state === null) {
        draft.state = one.state;
        draft.endedAt = one.state === 'waiting' ? null : one.endedAt;
        draft.lastStatus = one.lastStatus;
        draft.lastError = one.lastError?.slice(0, MAX_TEXT) ?? null;
      }
      draft.attempts = Math.max(draft.attempts, one.attempts);
      added();
    },
    /** Corrects a row that differs from the queue. */
    corrected(id: string, state: MailState, endedAt: number | null, url: string | null): void {
      Object.assign(draftOf(id), { state, endedAt, url, firm: true });
      added();
    },
  });

  return frozen({
    deliveries,
    note(entry: Note) {
      if (entry.what === 'refused') refusals.add(entry);
      else if (entry.what === 'session') {
        // Skip idle sessions, and sessions with only refusals beyond a limit.
        idle.turn(entry.at);
        if (entry.messages === 0 && (entry.refusals === 0 || !idle.hasRow(entry.client))) return;
        sessions.push({ ...entry, durationMs: Math.round(entry.durationMs) });
      } else if (entry.what === 'action') actions.push(entry.action);
      else if (entry.what === 'minute') minutes.push(entry);
      else if (entry.what === 'parsed') {
        const draft = draftOf(entry.id);
        draft.sender = entry.sender;
        if (settings.subjects) draft.summary = entry.summary ?? draft.summary;
        draft.verdicts = entry.verdicts;
      } else arrivals.set(entry.messageId, entry);
      added();
    },
    /** The number of waiting entries. */
    size,
    /** Drops the oldest entries beyond `most`. Returns how many were dropped. */
    keep(most: number) {
      let dropped = 0;
      // From the largest list, so that a flood of one kind does not displace the others.
      for (; size() > most; dropped++) {
        const [, dropOldest] = lists.reduce((largest, one) => (one[0]() > largest[0]() ? one : largest));
        dropOldest();
      }
      return dropped;
    },
    /** Takes the entries that are ready, or all, with their number. */
    take(now: number, all: boolean): { readonly batch: Batch; readonly entries: number } {
      const mail: SQLInputValue[] = [];
      const summaries: string[] = [];
      const patches: SQLInputValue[] = [];
      const written = new Set<string>();
      const left = new Set<string>();
      let entries = 0;
      for (const [id, draft] of drafts) {
        const { row } = draft;
        if (row && draft.state === 'waiting' && !all && draft.left++ < LEAVES) {
          left.add(row.delivery.messageId);
          continue;
        }
        drafts.delete(id);
        entries++;
        if (row) {
          written.add(row.delivery.messageId);
          mail.push(...toRow(row, draft, arrivals.get(row.delivery.messageId)));
        } else patches.push(...toPatch(id, draft));
        if (draft.summary === null && draft.fields !== null) summaries.push(id, draft.fields);
      }
      const late: (string | number)[] = [];
      for (const [messageId, { session, transaction }] of arrivals) {
        if (left.has(messageId)) continue;
        arrivals.delete(messageId);
        if (written.has(messageId)) continue;
        late.push(messageId, session, transaction);
        entries++;
      }
      const refused = refusals.take(now);
      entries += refused.length + sessions.length + actions.length + minutes.length;
      const batch = {
        mail,
        patches,
        summaries,
        arrivals: late,
        refusals: refused.flatMap((one) => rowValues(COLUMNS.refusals, one)),
        sessions: sessions.flatMap((one) => rowValues(COLUMNS.sessions, one)),
        actions: actions.flatMap((one) => rowValues(COLUMNS.actions, one)),
        minutes: minutes.flatMap((one) => rowValues(COLUMNS.minutes, one)),
      };
      [sessions, actions, minutes] = [[], [], []];
      return { batch, entries };
    },
  });
}

const NOTHING: Draft = {
  row: undefined,
  left: 0,
  sender: null,
  summary: null,
  fields: null,
  verdicts: null,
  state: null,
  firm: false,
  url: null,
  attempts: 0,
  lastStatus: null,
  lastError: null,
  endedAt: null,
  story: '',
};

function tell(draft: Draft, entry: string): void {
  if (draft.story.length < MAX_STORY) draft.story += draft.story === '' ? entry : `,${entry}`;
}

const toStoryText = ({ at, durationMs, status, error, answer }: AttemptRecord): string =>
  JSON.stringify([
    'attempt',
    at,
    Math.round(durationMs),
    status,
    error?.slice(0, MAX_TEXT) ?? null,
    answer.slice(0, MAX_TEXT),
  ]);

/** The values of a new row of mail, in the order of its columns. */
function toRow(
  { delivery, receivedAt, size, envelope }: NewMail,
  draft: Draft,
  arrival: SessionTransaction | undefined,
): SQLInputValue[] {
  return [
    delivery.id,
    receivedAt,
    arrival?.session ?? null,
    arrival?.transaction ?? null,
    delivery.kind,
    delivery.account,
    envelope?.mailFrom ?? draft.sender,
    delivery.recipient,
    ...toTexts(draft.summary),
    delivery.routeId,
    delivery.pattern,
    draft.url ?? delivery.url,
    size,
    envelope?.client.address ?? null,
    envelope?.client.helo ?? null,
    envelope?.client.tls ?? null,
    ...toResults(draft.verdicts),
    draft.state,
    draft.attempts,
    draft.lastStatus,
    draft.lastError,
    draft.endedAt,
    `[${draft.story}]`,
  ];
}

/** The values of a change of a row, in the order of `PATCH`. */
const toPatch = (id: string, draft: Draft): SQLInputValue[] => [
  id,
  draft.sender,
  ...toTexts(draft.summary),
  ...toResults(draft.verdicts),
  draft.state,
  draft.firm ? 1 : 0,
  draft.url,
  draft.attempts,
  draft.lastStatus,
  draft.lastError,
  draft.endedAt,
  draft.story,
];

type Text = string | null;

function toTexts(summary: MailSummary | null): [from: Text, subject: Text, headerId: Text, thread: Text] {
  const short = (text: Text | undefined) => text?.slice(0, MAX_TEXT) ?? null;
  return [short(summary?.from), short(summary?.subject), short(summary?.messageId), summary?.thread ?? null];
}

function toResults(verdicts: Verdicts | null): [spf: Text, dkim: Text, dmarc: Text] {
  if (!verdicts) return [null, null, null];
  const { spf, dkim, dmarc } = verdicts;
  return [spf.result, dkim.valid ? 'pass' : dkim.signed ? 'fail' : 'none', dmarc.result];
}
