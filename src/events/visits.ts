import type { Clock } from '../base/clock.ts';
import { withoutQuery } from '../mail/links.ts';
import { readToken } from '../mail/send-tokens.ts';
import { returnEventId } from './return-ids.ts';
import type { VisitQueue } from './visit-queue.ts';

/** Who opened or clicked. */
export interface Visitor {
  readonly address: string;
  /** '' when nothing was said. */
  readonly userAgent: string;
}

export interface VisitsDeps {
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

  return Object.freeze({
    async opened(token: string, visitor: Visitor) {
      const found = await named('open', token).catch(() => undefined);
      if (found) add('open', found, visitor, null);
    },
    async clicked(token: string, url: string, visitor: Visitor) {
      const ours = await link(token, url);
      if (ours) add('click', ours.found, visitor, ours.shown);
      return ours !== undefined;
    },
    leadsTo: async (token: string, url: string) => (await link(token, url)) !== undefined,
  });
}
