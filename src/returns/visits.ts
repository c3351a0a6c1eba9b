import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { MessageEvent, Recorder } from '../events/record.ts';
import { withoutQuery } from '../mail/links.ts';
import { readToken } from '../mail/return-address.ts';
import { StoreAway } from '../store/driver/port.ts';
import { type AccountOf, returnEventId } from './returns.ts';

/** Who opened or clicked. */
export interface Visitor {
  readonly address: string;
  /** '' when nothing was said. */
  readonly userAgent: string;
}

interface VisitsDeps {
  readonly queue: Pick<VisitQueue, 'add'>;
  /** Rejects with `StoreAway` while it cannot be read. */
  readonly secret: () => Promise<string>;
  readonly clock: Clock;
}

/** Opens and clicks. They are recorded after whoever made them has the answer. */
export interface Visits {
  /** Nothing happens for a token that is not ours. Never throws. */
  opened(token: string, visitor: Visitor): Promise<void>;
  /** Whether we signed this URL; then the click is recorded. Throws `StoreAway` when that cannot be known. */
  clicked(token: string, url: string, visitor: Visitor): Promise<boolean>;
  /** Whether we signed this URL, for a visitor that only looks (HEAD). */
  leadsTo(token: string, url: string): Promise<boolean>;
}

const LONGEST_AGENT = 500;

type Named = NonNullable<ReturnType<typeof readToken>>;

export function createVisits({ queue, secret, clock }: VisitsDeps): Visits {
  const named = async (kind: 'open' | 'click' | 'bare-click', token: string, about?: string) =>
    readToken(await secret(), kind, token, about);

  /** The message of a link that we made, and what is told of its URL. */
  async function link(
    token: string,
    url: string,
  ): Promise<{ readonly found: Named; readonly shown: string } | undefined> {
    const whole = await named('click', token, url);
    if (whole) return { found: whole, shown: url };
    const bare = await named('bare-click', token, url);
    return bare && { found: bare, shown: withoutQuery(url) };
  }

  /** The same visit within a second has the same id, so it is one. */
  function add(
    kind: 'open' | 'click',
    { account: number, message }: Named,
    { address, userAgent }: Visitor,
    url: string | null,
  ): void {
    const at = new Date(clock.now());
    const agent = userAgent.slice(0, LONGEST_AGENT);
    const id = returnEventId(message, kind, Math.floor(at.getTime() / 1000), address, agent, url ?? '');
    queue.add({
      id,
      number,
      message,
      kind,
      at,
      detail: { ip: address, user_agent: agent, ...(url !== null && { url }) },
    });
  }

  return frozen({
    async opened(token, visitor) {
      const found = await named('open', token).catch(() => undefined);
      if (found) add('open', found, visitor, null);
    },
    async clicked(token, url, visitor) {
      const ours = await link(token, url);
      if (ours) add('click', ours.found, visitor, ours.shown);
      return ours !== undefined;
    },
    leadsTo: async (token, url) => (await link(token, url)) !== undefined,
  });
}

interface VisitQueueDeps {
  readonly accountOf: AccountOf;
  readonly recorder: Pick<Recorder, 'record'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** An open or a click before it is recorded: its account is known by number. */
interface Visit extends Omit<MessageEvent, 'account'> {
  readonly number: number;
}

/**
 * Visits that wait in memory, in all and of one message: for a store that is away for a while, not for one that is
 * gone.
 */
const MOST_WAITING = 10_000;
const MOST_OF_ONE = 100;
const AT_A_TIME = 8;
const AGAIN_MS = 5000;

/**
 * Records visits behind the back of whoever made them. What does not fit, or still waits when the process ends, is lost
 * and counted in the log.
 */
export interface VisitQueue {
  add(visit: Visit): void;
  /** Records what waits, if the store takes it at once. */
  stop(): Promise<void>;
}

export function createVisitQueue({ accountOf, recorder, clock, log }: VisitQueueDeps): VisitQueue {
  const waiting = new Map<string, Visit>();
  const perMessage = new Map<string, number>();
  let working: Promise<void> | undefined;
  let wake = () => {};
  let stopping = false;
  let lost = 0;

  function leave({ id, message }: Visit): void {
    waiting.delete(id);
    const rest = (perMessage.get(message) ?? 1) - 1;
    if (rest === 0) perMessage.delete(message);
    else perMessage.set(message, rest);
  }

  async function work(): Promise<void> {
    while (waiting.size > 0) {
      const away = (await Promise.all([...waiting.values()].slice(0, AT_A_TIME).map(recordOne))).includes('away');
      if (away && stopping) break;
      if (away) await pause();
    }
    lost += waiting.size;
    waiting.clear();
    perMessage.clear();
    if (lost > 0) log.warn('visit.lost', { visits: lost });
    lost = 0;
    working = undefined;
  }

  async function recordOne(visit: Visit): Promise<'done' | 'away'> {
    try {
      const { number, ...event } = visit;
      const account = await accountOf(number);
      if (account !== undefined) await recorder.record({ ...event, account });
    } catch (error) {
      if (error instanceof StoreAway) return 'away';
      log.error('event.fault', { kind: visit.kind, error });
    }
    leave(visit);
    return 'done';
  }

  function pause(): Promise<void> {
    return new Promise((resolve) => {
      const cancel = clock.after(AGAIN_MS, resolve);
      wake = () => {
        cancel();
        resolve();
      };
    });
  }

  return frozen({
    add(visit) {
      if (waiting.has(visit.id)) return;
      const ofOne = perMessage.get(visit.message) ?? 0;
      if (stopping || waiting.size >= MOST_WAITING || ofOne >= MOST_OF_ONE) {
        lost++;
        return;
      }
      perMessage.set(visit.message, ofOne + 1);
      waiting.set(visit.id, visit);
      working ??= work();
    },
    async stop() {
      stopping = true;
      wake();
      await working;
    },
  });
}
