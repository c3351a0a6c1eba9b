import { heldBy } from '../base/bytes.ts';
import { createPauses } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import type { EndpointName, QueuedDelivery, Spool } from '../queue/delivery.ts';
import { settleUnattempted } from '../queue/settle.ts';
import type { Destinations } from './destinations.ts';
import type { Preparation } from './preparation.ts';
import type { Post } from './types.ts';

/** A delivery with its POST. */
export interface PreparedDelivery {
  readonly delivery: QueuedDelivery;
  readonly post: Post;
}

/** Discards the bodies of the POSTs, and calls `then`; a second call does nothing. */
export function createDiscard(
  preparation: Pick<Preparation, 'discard'>,
  mails: readonly PreparedDelivery[],
  then = () => {},
): () => void {
  let isDone = false;
  return () => {
    if (isDone) return;
    isDone = true;
    for (const { delivery, post } of mails) void preparation.discard(delivery, post);
    then();
  };
}

interface PullPreparationDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'keepVerdicts' | 'settle'>;
  readonly preparation: Preparation;
  readonly destinations: Pick<Destinations, 'target'>;
  /** True once the daemon stops: a thread that ended is no fault then. */
  readonly stopping: () => boolean;
}

/** Deliveries of an endpoint that may be prepared besides those that are wanted. */
const SPARE = 32;
/** How long ready deliveries wait for the others, and how long a call waits if none is ready. Milliseconds. */
const PATIENCE = 1000;
const LONGEST = 20_000;
/** Milliseconds until a preparation that failed because of this host is tried again. */
const AGAIN = 10_000;
/** The approximate size of a POST relative to its message: it holds the message and its parts. */
const LARGER = 2;

/** A delivery whose POST is being made, or ready. `wanted`: a call waits for it; else it is discarded when ready. */
interface PreparingPull {
  readonly delivery: QueuedDelivery;
  wanted: boolean;
  made: PreparedDelivery | { readonly at: number } | undefined;
  readonly done: Promise<void>;
}

/** Prepares the POSTs of deliveries that consumers pull. */
export function createPullPreparation({ spool, preparation, destinations, stopping, clock, log }: PullPreparationDeps) {
  const pieces = new Map<string, PreparingPull>();

  async function make(delivery: QueuedDelivery): Promise<NonNullable<PreparingPull['made']>> {
    const { id, attempts, budgetFrom, parked } = delivery;
    const due = { delivery, attempts, budgetFrom };
    const found = await preparation.find(due);
    if ('none' in found) {
      if (found.none === 'later') return { at: found.at };
      await spool.settle(settleUnattempted(id, 'dropped', parked, clock.now()));
      return { at: Number.POSITIVE_INFINITY };
    }
    const post = await preparation.render([[due, found]], destinations.target(delivery));
    if (!post || post === 'store away') return { at: clock.now() + AGAIN };
    const [findings] = post.found;
    const fresh = findings && preparation.newVerdicts(delivery, found.message, findings);
    // Now, because another consumer may prepare it next, long before this one reports its outcome.
    if (fresh) await spool.keepVerdicts(id, fresh);
    return { delivery, post };
  }

  function begin(delivery: QueuedDelivery): PreparingPull {
    const { id } = delivery;
    const { promise: done, resolve } = Promise.withResolvers<void>();
    const piece: PreparingPull = { delivery, wanted: true, made: undefined, done };
    pieces.set(id, piece);
    make(delivery)
      .catch((error: unknown) => {
        if (!stopping()) log.error('delivery.fault', { delivery: id, message: delivery.messageId, error });
        return { at: clock.now() + AGAIN };
      })
      .then((made) => {
        if (!piece.wanted) {
          pieces.delete(id);
          if ('post' in made) void preparation.discard(delivery, made.post);
        }
        piece.made = made;
        resolve();
      });
    return piece;
  }

  /** Waits until all are ready, or until some are and PATIENCE has passed. */
  async function settle(all: readonly PreparingPull[]): Promise<void> {
    const { wait, end } = createPauses(clock);
    const done = all.map((piece) => piece.done);
    await Promise.race([Promise.all(done), Promise.all([wait(PATIENCE), Promise.race(done)]), wait(LONGEST)]);
    end();
  }

  /** Those without another waiting call: a slow one of an earlier call does not take the slot of others. */
  function choose(deliveries: readonly QueuedDelivery[], most: number, bytes: number): PreparingPull[] {
    const chosen: PreparingPull[] = [];
    let [begun, sum] = [0, 0];
    for (const delivery of deliveries) {
      const known = pieces.get(delivery.id);
      // Reserved by another call, or signed for an old URL and about to be discarded.
      if (known?.wanted || (known && known.delivery.url !== delivery.url)) continue;
      if (known) {
        known.wanted = true;
        chosen.push(known);
        continue;
      }
      sum += (delivery.size ?? 0) * LARGER;
      if (begun >= most || (begun > 0 && sum > bytes)) break;
      begun++;
      chosen.push(begin(delivery));
    }
    return chosen;
  }

  return frozen({
    /** How many more deliveries to pass than are wanted, because some may not be ready. */
    spare: SPARE,
    /** The deliveries of an endpoint that an earlier call has reserved. */
    taken: ({ account, url }: EndpointName): readonly string[] =>
      [...pieces.values()].flatMap(({ wanted, delivery }) =>
        wanted && delivery.url === url && delivery.account === account ? [delivery.id] : [],
      ),
    /**
     * Returns the deliveries that are ready, in order: at most `most`, and at most `bytes` except for the first. Those
     * with slow verdicts do not delay the others. `later`: when the next one will be ready (milliseconds since 1970).
     * They are reserved for the caller until `release`.
     */
    async ready(
      deliveries: readonly QueuedDelivery[],
      { most, bytes }: { readonly most: number; readonly bytes: number },
    ): Promise<{ readonly ready: readonly PreparedDelivery[]; readonly later: number }> {
      const chosen = choose(deliveries, most, bytes);
      if (chosen.length === 0) return { ready: [], later: Number.POSITIVE_INFINITY };
      await settle(chosen);
      const ready: PreparedDelivery[] = [];
      let [sum, later] = [0, Number.POSITIVE_INFINITY];
      for (const piece of chosen) {
        const { delivery, made } = piece;
        if (!made) {
          piece.wanted = false;
          later = Math.min(later, clock.now() + PATIENCE);
          continue;
        }
        if ('at' in made) {
          pieces.delete(delivery.id);
          later = Math.min(later, made.at);
          continue;
        }
        const more = sum + heldBy(made.post.body);
        if (ready.length === 0 || (ready.length < most && more <= bytes)) {
          ready.push(made);
          sum = more;
        } else {
          pieces.delete(delivery.id);
          void preparation.discard(delivery, made.post);
        }
      }
      return { ready, later };
    },
    /** Ends the reservation, because they are leased now or were not used. */
    release(ready: readonly PreparedDelivery[]) {
      for (const { delivery } of ready) pieces.delete(delivery.id);
    },
  });
}
