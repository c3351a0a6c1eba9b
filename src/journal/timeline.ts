import { type AttemptRecord, nextAttemptAt, type QueuedDelivery } from '../queue/delivery.ts';
import type { PreparingDelivery } from '../queue/insight.ts';
import { END_NAMES, END_TEXTS } from '../queue/states.ts';
import { PREPARATIONS } from '../queue/wait-reason.ts';
import type { MailRecord, MailStory, RefusalRecord, SessionRecord, StoryEntry } from './types.ts';

// The history of one delivery, in chronological order, as sentences for people.

export const TIMELINE_KINDS = [
  'session',
  'refused',
  'accepted',
  'preparing',
  'verdicts',
  'attempt',
  ...END_NAMES,
  'discarded',
  'replayed',
  'next_attempt',
] as const;

export interface TimelineEntry {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly kind: (typeof TIMELINE_KINDS)[number];
  readonly text: string;
  /** Details, such as the start of an answer or advice about a refusal; null if there are none. */
  readonly detail: string | null;
}

const entry = (at: number, kind: TimelineEntry['kind'], text: string, detail: string | null = null): TimelineEntry => ({
  at,
  kind,
  text,
  detail,
});

/** The delivery in the queue. */
interface InQueue {
  readonly delivery: QueuedDelivery;
  readonly attempts: readonly AttemptRecord[];
  /** Undefined if it is not being prepared. */
  readonly preparing: PreparingDelivery | undefined;
}

/** An attempt, as the journal or the queue remembers it. */
type Attempt = Pick<AttemptRecord, 'at' | 'durationMs' | 'status' | 'error' | 'answer'>;

/** The timeline of a delivery. `queued` is undefined if the queue has deleted it, or was not asked. */
export function toTimeline(
  { mail, session, refusals, otherRefusals }: MailStory,
  queued: InQueue | undefined,
  adviceOf: (reason: string) => string,
): readonly TimelineEntry[] {
  const attempts = attemptsOf(mail, queued);
  const entries = [
    ...(session ? [connected(session)] : []),
    ...(otherRefusals > 0 ? [refusedOthers(otherRefusals, session?.at ?? mail.at)] : []),
    ...refusals.map((one) => refused(one, adviceOf)),
    accepted(mail),
    ...verdicts(mail, attempts),
    ...attempts.map((one) => attempt(mail, one)),
    ...mail.story.flatMap(change),
  ];
  // Sorting is stable: entries of the same millisecond stay in the order above.
  return [...entries.sort((a, b) => a.at - b.at), ...next(queued)];
}

/** The queue has more of each answer; the journal remembers attempts that the queue may have deleted. */
function attemptsOf({ story }: MailRecord, queued: InQueue | undefined): readonly Attempt[] {
  const kept = new Map<number, Attempt>();
  for (const one of story) if (one.what === 'attempt') kept.set(one.at, { ...one, durationMs: one.ms });
  for (const one of queued?.attempts ?? []) kept.set(one.at, one);
  return [...kept.values()].toSorted((a, b) => a.at - b.at);
}

const connected = ({ at, client, helo, tls, durationMs, reason, ...counts }: SessionRecord) =>
  entry(
    at,
    'session',
    `Connected: ${client}${helo === null ? '' : ` (${helo})`}, ${tls ?? 'no TLS'}`,
    [
      count(counts.messages, 'message'),
      count(counts.recipients, 'recipient'),
      count(counts.refusals, 'refusal'),
      `ended after ${toDuration(durationMs)} (${reason})`,
    ].join(', '),
  );

function refused({ at, stage, recipient, reply, reason, times }: RefusalRecord, adviceOf: (reason: string) => string) {
  const what = `${stage}${recipient === null ? '' : ` ${recipient}`} refused: ${reply}`;
  return entry(at, 'refused', what + (times > 1 ? ` (${times} times)` : ''), adviceOf(reason));
}

/** Other refusals of the session, which are not about this mail. */
const refusedOthers = (times: number, at: number) =>
  entry(at, 'refused', `${times} other ${times === 1 ? 'refusal' : 'refusals'} in this session`);

function accepted({ at, sender, recipient, size, kind, route, pattern }: MailRecord) {
  const from = sender === null ? '' : ` from ${sender === '' ? '<>' : sender}`;
  const detail = kind === 'inbound' ? `route ${pattern} (${route})` : null;
  return entry(at, 'accepted', `Accepted${from} for ${recipient}, ${count(size, 'byte')}`, detail);
}

/** The first attempt follows the verdicts directly. */
const verdicts = ({ at, spf, dkim, dmarc }: MailRecord, [first]: readonly Attempt[]) =>
  spf === null ? [] : [entry(first?.at ?? at, 'verdicts', `SPF ${spf}, DKIM ${dkim}, DMARC ${dmarc}`)];

function attempt({ kind, url }: MailRecord, { at, durationMs, status, error, answer }: Attempt) {
  const host = hostOf(url);
  // A route URL without a host means that the consumer pulled the mail.
  const posted = kind === 'inbound' ? (host === url ? 'Pulled' : `POST to ${host}`) : `Attempt to ${host}`;
  const result = status === null ? `no answer, ${error ?? 'reason unknown'}` : String(status);
  return entry(at, 'attempt', `${posted}: ${result}, after ${toDuration(durationMs)}`, answer === '' ? null : answer);
}

const CHANGES: ReadonlyMap<string, string> = new Map([
  ...END_TEXTS,
  ['discarded', 'Discarded by its route; can be replayed while it is kept'],
  ['replayed', 'Replayed'],
]);

const change = ({ at, what }: StoryEntry) => (what === 'attempt' ? [] : [entry(at, what, CHANGES.get(what) ?? what)]);

/** The next step: the attempt that is being prepared, or the time of the next one. */
function next(queued: InQueue | undefined): TimelineEntry[] {
  if (queued?.delivery.state !== 'waiting') return [];
  const { delivery, preparing } = queued;
  if (preparing) {
    const { since, waitsFor, question } = preparing;
    const detail = question === null ? null : `waiting for the DNS: ${question}`;
    return [entry(since, 'preparing', `Being prepared: ${PREPARATIONS[waitsFor]}`, detail)];
  }
  const at = nextAttemptAt(delivery);
  if (at === null) return [];
  const text = delivery.attempts === 0 ? 'First attempt' : 'Next attempt';
  return [entry(at, 'next_attempt', text, delivery.parked ? 'retried at long intervals' : null)];
}

/** A webhook URL may contain secrets. */
export const hostOf = (url: string): string => URL.parse(url)?.host || url;

const count = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? '' : 's'}`;

const toDuration = (ms: number): string => (ms < 10_000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 1000)} s`);
