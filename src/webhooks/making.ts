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
export interface Ready {
  readonly delivery: QueuedDelivery;
  readonly post: Post;
}

/** Discards the bodies of the POSTs, and calls `then`; a second call does nothing. */
export function createDiscard(
  preparation: Pick<Preparation, 'discard'>,
  mails: readonly Ready[],
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

/** Deliveries of an endpoint that may be in the making besides those that are wanted. */
const SPARE = 32;
/** How long ready ones wait for the others, and how long a call waits if none is ready. Milliseconds. */
const PATIENCE = 1000;
const LONGEST = 20_000;
/** Milliseconds until what failed for a reason of this host is tried again. */
const AGAIN = 10_000;
/** How much larger a POST is than its message, about: it is in a form, with its parts. */
const LARGER = 2;

/** A delivery in the making, or made. `wanted`: somebody waits for its POST; else it is discarded when it is there. */
interface Piece {
  readonly delivery: QueuedDelivery;
  wanted: boolean;
  made: Ready | { readonly at: number } | undefined;
  readonly done: Promise<void>;
}

/** Makes the POSTs of deliveries that a consumer asks for. */
export function createMaking({ spool, preparation, destinations, stopping, clock, log }: PullPreparationDeps) {
  const pieces = new Map<string, Piece>();

  async function make(delivery: QueuedDelivery): Promise<NonNullable<Piece['made']>> {
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
    const fresh = findings && preparation.fresh(delivery, found.message, findings);
    // Now, because the next to prepare it may be another consumer, long before this one says anything.
    if (fresh) await spool.keepVerdicts(id, fresh);
    return { delivery, post };
  }

  function begin(delivery: QueuedDelivery): Piece {
    const { id } = delivery;
    const { promise: done, resolve } = Promise.withResolvers<void>();
    const piece: Piece = { delivery, wanted: true, made: undefined, done };
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

  /** Waits until all are made, or some and the others take long. */
  async function settle(all: readonly Piece[]): Promise<void> {
    const { wait, end } = createPauses(clock);
    const done = all.map((piece) => piece.done);
    await Promise.race([Promise.all(done), Promise.all([wait(PATIENCE), Promise.race(done)]), wait(LONGEST)]);
    end();
  }

  /** Those without another waiting call: a slow one of an earlier call does not take the slot of others. */
  function choose(deliveries: readonly QueuedDelivery[], most: number, bytes: number): Piece[] {
    const chosen: Piece[] = [];
    let [begun, sum] = [0, 0];
    for (const delivery of deliveries) {
      const known = pieces.get(delivery.id);
      // Promised to another, or signed for another URL and soon gone.
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
    /** How many more deliveries to pass than are wanted: some may not be ready. */
    spare: SPARE,
    /** The deliveries of an endpoint that are promised to somebody who asked before. */
    taken: ({ account, url }: EndpointName): readonly string[] =>
      [...pieces.values()].flatMap(({ wanted, delivery }) =>
        wanted && delivery.url === url && delivery.account === account ? [delivery.id] : [],
      ),
    /**
     * Returns those that are ready, in order: at most `most`, and no more than `bytes` but for the first. Whose
     * verdicts take long does not hold up the others. `later`: when one will be ready that is not (milliseconds since
     * 1970). They are promised to the caller until `release`.
     */
    async ready(
      deliveries: readonly QueuedDelivery[],
      { most, bytes }: { readonly most: number; readonly bytes: number },
    ): Promise<{ readonly ready: readonly Ready[]; readonly later: number }> {
      const chosen = choose(deliveries, most, bytes);
      if (chosen.length === 0) return { ready: [], later: Number.POSITIVE_INFINITY };
      await settle(chosen);
      const ready: Ready[] = [];
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
    /** Those that were ready are leased now, or given up. */
    release(ready: readonly Ready[]) {
      for (const { delivery } of ready) pieces.delete(delivery.id);
    },
  });
}
