import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { AttemptRecord, Delivery } from '../queue/delivery.ts';
import { type AttemptResult, errorOf } from '../queue/settle.ts';
import { basicAuth, type Destinations, PLAIN_TARGET } from './destinations.ts';
import type { ReplyMatching } from './reply-matching.ts';
import type { Mail, Poster, Renderer } from './types.ts';

/** Marks a trial for receivers: no new mail, a test of how they handle this event. */
const TRIAL_HEADER = { 'X-Postern-Trial': '1' };

/** A message, and the route that determines the form of its post; without a route it is Mandrill's. */
type TriedMail = Mail & { readonly delivery: Partial<Pick<Delivery, 'routeId' | 'account'>> };

/** Posts an event once, to test a receiver. It is not kept, counted or retried. */
export type Trials = ReturnType<typeof createTrials>;

interface TrialsDeps {
  readonly renderer: Pick<Renderer, 'render' | 'discard'>;
  readonly poster: Pick<Poster, 'post'>;
  readonly destinations: Pick<Destinations, 'target'>;
  readonly answers: Pick<ReplyMatching, 'shown'>;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'message'>;
}

export function createTrials({ renderer, poster, destinations, answers, clock, ids }: TrialsDeps) {
  return frozen({
    /**
     * Posts the event of a delivery, or of a sample, with a new id: otherwise a receiver that deduplicates by id would
     * ignore a trial of mail that it has, or later drop the mail that it had as a trial. Takes ownership of a body in
     * memory. Throws if the disk fails.
     */
    async post(mail: TriedMail, url: string, keys: readonly string[]) {
      const { message, body, delivery } = mail;
      const { id, recipient, routeId, account } = delivery;
      const target = routeId === undefined ? PLAIN_TARGET : destinations.target({ routeId, recipient });
      const tried = {
        message,
        body,
        answers: account === undefined ? mail.answers : await answers.shown(account, mail),
        delivery: { id: `${id}-trial-${ids.message()}`, recipient },
      };
      const post = await renderer.render({ mails: [tried], url, keys, at: clock.now(), style: target });
      try {
        const at = clock.now();
        // The password is for the URL of the route alone.
        const login = target.url === url ? basicAuth(target.password) : {};
        return toRecord(at, await poster.post(url, { ...post.headers, ...login, ...TRIAL_HEADER }, post.body));
      } finally {
        await renderer.discard(post.body);
      }
    },
  });
}

function toRecord(at: number, result: AttemptResult): AttemptRecord {
  const base = { at, durationMs: result.durationMs, detail: result.detail?.(false) };
  if (result.kind === 'unanswered') return { ...base, status: null, error: errorOf(result), answer: '' };
  return { ...base, status: result.status, error: null, answer: result.answer };
}
