import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { AttemptRecord, Delivery } from '../queue/delivery.ts';
import { type AttemptResult, errorOf } from '../queue/settle.ts';
import type { Answers } from './answers.ts';
import { basicAuth, type Destinations, PLAIN_TARGET } from './destinations.ts';
import type { Mail, Poster, Renderer } from './types.ts';

/** Tells receivers that nothing came: somebody tries what they do with this event. */
const TRIAL_HEADER = { 'X-Postern-Trial': '1' };

/** A message, and the route whose form its post has; without a route it has Mandrill's. */
type TriedMail = Mail & { readonly delivery: Partial<Pick<Delivery, 'routeId' | 'account'>> };

/** Posts an event once, to try a receiver. Nothing of it is kept, counted or retried. */
export type Trials = ReturnType<typeof createTrials>;

interface TrialsDeps {
  readonly renderer: Pick<Renderer, 'render' | 'discard'>;
  readonly poster: Pick<Poster, 'post'>;
  readonly destinations: Pick<Destinations, 'target'>;
  readonly answers: Pick<Answers, 'shown'>;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'message'>;
}

export function createTrials({ renderer, poster, destinations, answers, clock, ids }: TrialsDeps) {
  return frozen({
    /**
     * Posts the event of a delivery, or of a sample, with an id of its own: a receiver that remembers ids would else
     * answer 200 to a trial of mail that it has, or drop the mail whose trial it had. Takes ownership of a body in
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
