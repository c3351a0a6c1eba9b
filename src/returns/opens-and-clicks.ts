import { type Clock, createPauses } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import type { MessageEvent, Recorder } from '../events/record.ts';
import { readToken } from '../mail/addresses/return-address.ts';
import { withoutQuery } from '../mail/links.ts';
import { StoreAway } from '../store/driver/port.ts';
import { type AccountOf, returnEventId } from './feedback.ts';

/** The client that opened or clicked. */
export interface TrackedClient {
  readonly address: string;
  /** '' if there was none. */
  readonly userAgent: string;
}

interface OpenClickTrackingDeps {
  readonly queue: Pick<TrackedEventQueue, 'add'>;
  /** Rejects with `StoreAway` if the secret cannot be read. */
  readonly secret: () => Promise<string>;
  readonly clock: Clock;
}

/** Opens and clicks. They are recorded after the response. */
export type OpenClickTracking = ReturnType<typeof createOpenClickTracking>;

const LONGEST_AGENT = 500;

type Named = NonNullable<ReturnType<typeof readToken>>;

export function createOpenClickTracking({ queue, secret, clock }: OpenClickTrackingDeps) {
  const named = async (kind: 'open' | 'click' | 'bare-click', token: string, about?: string) =>
    readToken(await secret(), kind, token, about);

  /** The message of a link that we signed, and its URL as reported. */
  async function link(
    token: string,
    url: string,
  ): Promise<{ readonly found: Named; readonly shown: string } | undefined> {
    const whole = await named('click', token, url);
    if (whole) return { found: whole, shown: url };
    const bare = await named('bare-click', token, url);
    return bare && { found: bare, shown: withoutQuery(url) };
  }

  /** Identical visits within a second have the same id, so they count once. */
  function add(
    kind: 'open' | 'click',
    { account: number, message }: Named,
    { address, userAgent }: TrackedClient,
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
    /** Records an open; ignores invalid tokens. Never throws. */
    async opened(token: string, visitor: TrackedClient) {
      const found = await named('open', token).catch(() => undefined);
      if (found) add('open', found, visitor, null);
    },
    /** Records a click if we signed this URL; returns whether we did. Throws `StoreAway` without the secret. */
    async clicked(token: string, url: string, visitor: TrackedClient): Promise<boolean> {
      const ours = await link(token, url);
      if (ours) add('click', ours.found, visitor, ours.shown);
      return ours !== undefined;
    },
    /** Whether we signed this URL, without recording a click (HEAD). */
    isOurLink: async (token: string, url: string): Promise<boolean> => (await link(token, url)) !== undefined,
  });
}

interface TrackedEventQueueDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly accountOf: AccountOf;
  readonly recorder: Pick<Recorder, 'record'>;
}

/** An open or click to be recorded; its account is known by number. */
interface TrackedEvent extends Omit<MessageEvent, 'account'> {
  readonly number: number;
}

/** Visits waiting in memory, in total and per message: enough for a short store outage, not for a long one. */
const MAX_WAITING = 10_000;
const MAX_OF_ONE = 100;
const AT_A_TIME = 8;
const AGAIN_MS = 5000;

/** Records visits in the background. Those that do not fit, or wait at shutdown, are lost; the log counts them. */
export type TrackedEventQueue = ReturnType<typeof createTrackedEventQueue>;

export function createTrackedEventQueue({ accountOf, recorder, clock, log }: TrackedEventQueueDeps) {
  const waiting = new Map<string, TrackedEvent>();
  const perMessage = new Map<string, number>();
  const pauses = createPauses(clock);
  let working: Promise<void> | undefined;
  let stopping = false;
  let lost = 0;

  function leave({ id, message }: TrackedEvent): void {
    waiting.delete(id);
    const rest = (perMessage.get(message) ?? 1) - 1;
    if (rest === 0) perMessage.delete(message);
    else perMessage.set(message, rest);
  }

  async function work(): Promise<void> {
    while (waiting.size > 0) {
      const away = (await Promise.all([...waiting.values()].slice(0, AT_A_TIME).map(recordOne))).includes('away');
      if (away && stopping) break;
      if (away) await pauses.wait(AGAIN_MS);
    }
    lost += waiting.size;
    waiting.clear();
    perMessage.clear();
    if (lost > 0) log.warn('visit.lost', { visits: lost });
    lost = 0;
    working = undefined;
  }

  async function recordOne(visit: TrackedEvent): Promise<'done' | 'away'> {
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

  return frozen({
    add(visit: TrackedEvent) {
      if (waiting.has(visit.id)) return;
      const ofOne = perMessage.get(visit.message) ?? 0;
      if (stopping || waiting.size >= MAX_WAITING || ofOne >= MAX_OF_ONE) {
        lost++;
        return;
      }
      perMessage.set(visit.message, ofOne + 1);
      waiting.set(visit.id, visit);
      working ??= work();
    },
    /** Records what waits, unless the store is unavailable. */
    async stop() {
      stopping = true;
      pauses.end();
      await working;
    },
  });
}
