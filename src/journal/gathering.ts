import type { SQLInputValue } from 'node:sqlite';
import { frozen } from '../base/frozen.ts';
import { networkOf } from '../base/networks.ts';
import type { Envelope, Verdicts } from '../mail/envelope.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import type { AttemptRecord, Delivery, DeliveryState } from '../queue/delivery.ts';
import type { Batch, Patch } from './changes.ts';
import type { Action, MailState, MailSummary, Note, Refusal, Session } from './types.ts';

/** Where changes of deliveries are noted. */
export interface DeliveryNotes {
  accepted(mail: NewMail): void;
  settled(id: string, state: DeliveryState, at: number, attempt: AttemptRecord | null): void;
  /** A person replayed or dropped it. */
  changed(id: string, what: 'replayed' | 'dropped', at: number): void;
  /** Its state in the queue is another than the journal knew. */
  found(id: string, state: MailState, endedAt: number | null): void;
}

/** What was noted and is not written yet. */
export interface Gathering {
  readonly deliveries: DeliveryNotes;
  note(entry: Note): void;
  /** Entries that wait. */
  size(): number;
  /** Drops the oldest entries beyond so many; answers how many. */
  keep(most: number): number;
  /** Takes everything. */
  take(): { readonly batch: Batch; readonly entries: number };
}

/** What is noted of one delivery: its new row, or changes of one that is written. */
interface Draft {
  /** Undefined if the row is written. */
  row: NewMail | undefined;
  session: string | null;
  sender: string | null;
  summary: MailSummary | null;
  verdicts: Verdicts | null;
  state: MailState | null;
  attempts: number;
  lastStatus: number | null;
  lastError: string | null;
  endedAt: number | null;
  story: string[];
}

/** A delivery that the journal has no row of. */
export interface NewMail {
  readonly delivery: Delivery;
  readonly receivedAt: number;
  readonly size: number;
  /** Undefined if only the delivery is known. */
  readonly envelope: Envelope | undefined;
}

/** Of an answer the start is kept; the queue has more of it for as long as it has the delivery. */
const MAX_ANSWER = 200;
const MAX_TEXT = 200;
/** Refusals of a network within a minute that get rows of their own; the others are counted. */
const OWN_ROWS = 60;
/** Networks told apart within a minute. */
const MAX_NETWORKS = 10_000;
const MINUTE_MS = 60_000;

/** Gathers what happens, so that a delivery that ends within a moment is written once. `added` is called for each note. */
export function createGathering(settings: { readonly subjects: boolean }, added: () => void): Gathering {
  const drafts = new Map<string, Draft>();
  const byMessage = new Map<string, Draft[]>();
  const refused = createRefusals();
  let arrivals: (readonly [messageId: string, session: string])[] = [];
  let sessions: Session[] = [];
  let actions: Omit<Action, 'n'>[] = [];
  const size = () => drafts.size + refused.size() + arrivals.length + sessions.length + actions.length;

  function draftOf(id: string): Draft {
    const known = drafts.get(id);
    if (known) return known;
    const draft: Draft = { ...NOTHING, story: [] };
    drafts.set(id, draft);
    return draft;
  }

  const deliveries: DeliveryNotes = {
    accepted(mail) {
      const { id, messageId } = mail.delivery;
      const draft = draftOf(id);
      draft.row = mail;
      if (settings.subjects) draft.summary = toSummary(mail.envelope?.outgoing);
      draft.state = 'waiting';
      const siblings = byMessage.get(messageId);
      if (siblings) siblings.push(draft);
      else byMessage.set(messageId, [draft]);
      added();
    },
    settled(id, state, at, attempt) {
      const draft = draftOf(id);
      if (attempt) {
        draft.attempts++;
        draft.lastStatus = attempt.status;
        draft.lastError = attempt.error;
        draft.story.push(toStoryText(attempt));
      }
      draft.state = state;
      draft.endedAt = state === 'waiting' ? null : at;
      if (state !== 'waiting') draft.story.push(JSON.stringify([ENDINGS[state], at]));
      added();
    },
    changed(id, what, at) {
      const draft = draftOf(id);
      draft.state = what === 'replayed' ? 'waiting' : 'dropped';
      draft.endedAt = what === 'replayed' ? null : at;
      draft.story.push(JSON.stringify([what, at]));
      added();
    },
    found(id, state, endedAt) {
      Object.assign(draftOf(id), { state, endedAt });
      added();
    },
  };

  return frozen({
    deliveries: frozen(deliveries),
    note(entry) {
      if (entry.what === 'refused') refused.add(entry);
      else if (entry.what === 'session') sessions.push(entry);
      else if (entry.what === 'action') actions.push(entry.action);
      else if (entry.what === 'parsed') {
        const { sender, summary, verdicts } = entry;
        Object.assign(draftOf(entry.id), { sender, summary: settings.subjects ? summary : null, verdicts });
      } else {
        const fresh = byMessage.get(entry.messageId);
        if (!fresh) arrivals.push([entry.messageId, entry.session]);
        else for (const draft of fresh) draft.session = entry.session;
      }
      added();
    },
    size,
    keep(most) {
      let dropped = 0;
      for (const id of drafts.keys()) {
        if (size() <= most) break;
        drafts.delete(id);
        dropped++;
      }
      while (size() > most && (refused.drop() || sessions.shift() || actions.shift() || arrivals.shift())) dropped++;
      return dropped;
    },
    take() {
      const entries = size();
      const mail: SQLInputValue[] = [];
      const patches: Patch[] = [];
      for (const [id, draft] of drafts) {
        if (draft.row) mail.push(...toRow(draft.row, draft));
        else patches.push(toPatch(id, draft));
      }
      const batch = { mail, patches, arrivals, refusals: refused.take(), sessions, actions };
      drafts.clear();
      byMessage.clear();
      [arrivals, sessions, actions] = [[], [], []];
      return { batch, entries };
    },
  });
}

const NOTHING: Draft = {
  row: undefined,
  session: null,
  sender: null,
  summary: null,
  verdicts: null,
  state: null,
  attempts: 0,
  lastStatus: null,
  lastError: null,
  endedAt: null,
  story: [],
};

const ENDINGS = { delivered: 'delivered', dead: 'given_up', dropped: 'dropped' } as const;

const toStoryText = ({ at, durationMs, status, error, answer }: AttemptRecord): string =>
  JSON.stringify(['attempt', at, Math.round(durationMs), status, error, answer.slice(0, MAX_ANSWER)]);

/** The values of a new row, in the order of `MAIL_COLUMNS`. */
function toRow({ delivery, receivedAt, size, envelope }: NewMail, draft: Draft): SQLInputValue[] {
  return [
    delivery.id,
    receivedAt,
    draft.session,
    delivery.kind,
    delivery.account,
    envelope?.mailFrom ?? draft.sender,
    delivery.recipient,
    ...toTexts(draft.summary),
    delivery.routeId,
    delivery.pattern,
    delivery.url,
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
    `[${draft.story.join(',')}]`,
  ];
}

function toPatch(id: string, draft: Draft): Patch {
  return [
    id,
    draft.sender,
    ...toTexts(draft.summary),
    ...toResults(draft.verdicts),
    draft.state,
    draft.attempts,
    draft.lastStatus,
    draft.lastError,
    draft.endedAt,
    draft.story,
  ];
}

/** What an account said about a message that it sends. */
function toSummary(outgoing: Outgoing | undefined): MailSummary | null {
  if (!outgoing) return null;
  const { sender, fromName, subject } = outgoing;
  return { from: fromName === null ? sender : `${fromName} <${sender}>`, subject, messageId: null };
}

type Text = string | null;

function toTexts(summary: MailSummary | null): [from: Text, subject: Text, headerId: Text] {
  const short = (text: Text | undefined) => text?.slice(0, MAX_TEXT) ?? null;
  return [short(summary?.from), short(summary?.subject), short(summary?.messageId)];
}

function toResults(verdicts: Verdicts | null): [spf: Text, dkim: Text, dmarc: Text] {
  if (!verdicts) return [null, null, null];
  const { spf, dkim, dmarc } = verdicts;
  return [spf.result, dkim.valid ? 'pass' : dkim.signed ? 'fail' : 'none', dmarc.result];
}

/** Refusals that wait. A harvester must not fill the journal: what one network gets too much of is counted. */
function createRefusals() {
  let rows: Omit<Refusal, 'n'>[] = [];
  let minute = 0;
  const counts = new Map<string, number>();
  const overflowing = new Map<string, number>();
  return {
    add(refusal: Omit<Refusal, 'n' | 'times'>): void {
      const now = Math.floor(refusal.at / MINUTE_MS);
      if (now !== minute) {
        minute = now;
        counts.clear();
      }
      const network = networkOf(refusal.client);
      const key = counts.has(network) || counts.size < MAX_NETWORKS ? network : '';
      const count = (counts.get(key) ?? 0) + 1;
      counts.set(key, count);
      if (count <= OWN_ROWS) {
        rows.push({ ...refusal, times: 1 });
        return;
      }
      const same = `${key} ${refusal.reason} ${refusal.account}`;
      const at = overflowing.get(same);
      const row = at === undefined ? undefined : rows[at];
      if (at !== undefined && row) rows[at] = { ...row, times: row.times + 1 };
      else overflowing.set(same, rows.push({ ...refusal, times: 1 }) - 1);
    },
    size: () => rows.length,
    drop(): boolean {
      overflowing.clear();
      return rows.shift() !== undefined;
    },
    take(): readonly Omit<Refusal, 'n'>[] {
      const taken = rows;
      rows = [];
      overflowing.clear();
      return taken;
    },
  };
}
