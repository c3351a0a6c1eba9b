import type { DeliveryState, STATES as QUEUE_STATES } from '../../../queue/states.ts';
import { h } from '../h.ts';
import type { Endpoint, EndpointDetail, Mail, MailState, MailStory } from '../records.ts';
import { may } from '../session.ts';
import { type Mark, State } from './elements.ts';
import { age, capital, isPulled, now, ordinal, plain, relative, span, toMs } from './text.ts';

// States in words.

interface StateOfMail extends Mark {
  /** Nothing more happens to it by itself, so that it can be replayed. */
  readonly ended: boolean;
  /** Not delivered yet, but may still be: it can be dropped. */
  readonly open: boolean;
  /** Not a state that people search for. */
  readonly rare?: true;
}

/** `ended` and `open` are the queue's. */
const STATES = {
  waiting: { icon: 'clock', word: 'Waiting', tone: 'wait', ended: false, open: true },
  delivered: { icon: 'check', word: 'Delivered', tone: 'good', ended: true, open: false },
  dead: { icon: 'cross', word: 'Failed', tone: 'bad', ended: true, open: true },
  held: { icon: 'pause', word: 'Held', tone: 'wait', ended: true, open: true },
  dropped: { icon: 'refused', word: 'Dropped', tone: 'off', ended: true, open: false },
  unknown: { icon: 'question', word: 'Unknown', tone: 'off', ended: false, open: false, rare: true },
} as const satisfies Readonly<Record<MailState, StateOfMail>> & {
  readonly [S in DeliveryState]: Pick<(typeof QUEUE_STATES)[S], 'ended' | 'open'>;
};

type With<P> = { [K in MailState]: (typeof STATES)[K] extends P ? K : never }[MailState];
export type OpenState = With<{ readonly open: true }>;
export type EndedState = With<{ readonly ended: true }>;

const isState = (name: string | undefined): name is MailState => name !== undefined && Object.hasOwn(STATES, name);
const stateOf = (name: string | undefined): StateOfMail | undefined => (isState(name) ? STATES[name] : undefined);

export function stateWord(state: MailState): string {
  return STATES[state].word;
}

/** The states in the order in which filters show them. */
export const SEARCHED_STATES = Object.keys(STATES)
  .filter(isState)
  .filter((name) => stateOf(name)?.rare !== true);

/** Whether the mail is not delivered yet, but may still be. */
export function isOpen(state: string | undefined): state is OpenState {
  return stateOf(state)?.open === true;
}

/** Whether nothing more happens to it by itself, so that it can be replayed. */
export function hasEnded(state: string | undefined): state is EndedState {
  return stateOf(state)?.ended === true;
}

export function MailStateMark({ state }: { readonly state: MailState }) {
  return h(State, STATES[state]);
}

/** The last answer of the endpoint, shortly. */
export function answerOf({ last_status, last_error }: Pick<Mail, 'last_status' | 'last_error'>): string {
  if (last_status !== null) return `HTTP ${last_status}`;
  return last_error === null ? '' : plain(last_error);
}

/** What became of a message, in a sentence. */
export function sentenceOf(mail: MailStory): string {
  const took = mail.ended_at === null ? undefined : toMs(mail.ended_at) - toMs(mail.at);
  // These times are in whole seconds.
  const after = took === undefined ? '' : took < 1_000 ? ', immediately' : `, ${span(took)} after arrival`;
  const tries = mail.attempts === 1 ? '1 attempt' : `${mail.attempts} attempts`;
  const answer = answerOf(mail);
  switch (mail.state) {
    case 'delivered':
      return `Delivered on the ${ordinal(Math.max(1, mail.attempts))} attempt${after}`;
    case 'dead':
      return `Failed after ${tries}${after}${answer && `; last response: ${answer}`}`;
    case 'dropped':
      return answer.startsWith('discarded') ? capital(answer) : `Dropped after ${tries}`;
    case 'unknown':
      return 'No longer on the queue; the result is unknown';
    case 'held':
    case 'waiting':
      return plain(mail.waits?.text ?? stateWord(mail.state));
  }
}

export function EndpointStateMark({ endpoint }: { readonly endpoint: Endpoint }) {
  if (endpoint.paused) return h(State, { icon: 'pause', word: 'Paused', tone: 'off' });
  if (endpoint.breaker === 'gone') return h(State, { icon: 'cross', word: 'Gone', tone: 'bad' });
  if (endpoint.breaker === 'down') return h(State, { icon: 'cross', word: 'Down', tone: 'bad' });
  if (isFailing(endpoint)) return h(State, { icon: 'alert', word: 'Failing', tone: 'wait' });
  if (isPulled(endpoint.url)) return h(State, { icon: 'check', word: 'Pulled', tone: 'good' });
  return h(State, { icon: 'check', word: 'Up', tone: 'good' });
}

/** Whether something waits because the last POST failed, though the endpoint is not down yet. */
export function isFailing({ breaker, waiting, last_status: status, last_error: error }: Endpoint): boolean {
  return breaker === 'up' && waiting > 0 && (error !== null || (status !== null && status >= 300));
}

/** Whether what waits for an endpoint can be tried before it is due. */
export function canTry({ waiting, paused }: Endpoint): boolean {
  return may('endpoints/retry') && waiting > 0 && !paused;
}

/** How an endpoint is, in a sentence. */
export function endpointSentence(endpoint: Endpoint): string {
  const since = endpoint.since === null ? '' : ` for ${age(toMs(endpoint.since), now.value)}`;
  const probe =
    endpoint.next_probe_at === null
      ? ''
      : toMs(endpoint.next_probe_at) <= now.value
        ? '; next probe due'
        : `; next probe ${relative(toMs(endpoint.next_probe_at), now.value)}`;
  if (endpoint.paused) {
    const by = endpoint.paused_by === 'operator' ? ' by the operator of this service' : '';
    const until = endpoint.paused_until;
    return `Paused${by}${until === null ? '' : `; resumes ${relative(toMs(until), now.value)}`}`;
  }
  if (endpoint.breaker === 'gone') return `Responding 410 Gone${since}; retried once a day`;
  if (endpoint.breaker === 'down') return `Down${since}${probe}`;
  if (isFailing(endpoint)) return `The last POST failed: ${answerOf(endpoint)}`;
  if (isPulled(endpoint.url)) return 'A consumer pulls its mail with /inbound/pull';
  return endpoint.last_at === null ? 'No POST since Postern started' : 'The last POST succeeded';
}

/** What a delivery in preparation waits for. */
export const WAITS_FOR: Readonly<Record<EndpointDetail['preparing'][number]['waits_for'], string>> = {
  preparing: 'Preparing',
  verdicts: 'Checking SPF, DKIM and DMARC',
  parsing: 'Parsing',
  connection: 'Waiting for a free connection to the endpoint',
};
