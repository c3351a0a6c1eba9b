import type { Bytes } from '../../src/base/bytes.ts';
import type { Clock } from '../../src/base/clock.ts';
import { systemClock } from '../../src/base/clock.ts';
import { deliveryId } from '../../src/base/ids.ts';
import type { DnsAnswer } from '../../src/dns/types.ts';
import type { Delivery } from '../../src/queue/delivery.ts';
import type { AttemptResult } from '../../src/queue/settle.ts';
import { createGuard, type Guard } from '../../src/webhooks/post/guard.ts';
import { createPoster } from '../../src/webhooks/post/post.ts';
import type { Poster } from '../../src/webhooks/types.ts';

/** What names resolve to; those that are not there do not exist. A function is asked every time. */
export type Names = Readonly<Record<string, readonly string[] | (() => readonly string[]) | 'failure'>>;

export function namesResolver(names: Names) {
  const asked: string[] = [];
  return {
    asked,
    async addresses(host: string): Promise<DnsAnswer<string>> {
      asked.push(host);
      const found = names[host];
      if (found === undefined) return { kind: 'nxdomain' };
      if (found === 'failure') return { kind: 'failure', reason: 'servfail' };
      const records = typeof found === 'function' ? found() : found;
      return records.length > 0 ? { kind: 'records', records, ttl: 60 } : { kind: 'none' };
    },
  };
}

interface PosterOptions {
  readonly timeoutMs?: number;
  readonly names?: Names;
  /** Loopback unless given. */
  readonly allowPrivate?: readonly string[];
  readonly clock?: Clock;
}

/** The real guard; names come from a table. */
export function openGuard({
  names = {},
  allowPrivate = ['127.0.0.0/8'],
}: Pick<PosterOptions, 'names' | 'allowPrivate'> = {}): Guard {
  return createGuard({ allowPrivate, loopbackOnly: false }, { resolver: namesResolver(names) });
}

/** The real poster behind the real guard. */
export function openPoster({ timeoutMs = 5000, clock = systemClock, ...options }: PosterOptions = {}): Poster {
  return createPoster({ timeoutMs, userAgent: 'Postern/test', connections: 8 }, { guard: openGuard(options), clock });
}

export const bytes = (text: string): Bytes => ({ kind: 'memory', bytes: new TextEncoder().encode(text) });

export const answered = (status: number, retryAfter: string | null = null): AttemptResult => ({
  kind: 'answered',
  status,
  retryAfter,
  answer: '',
  durationMs: 3,
});

export const refused: AttemptResult = {
  kind: 'unanswered',
  error: 'connection refused',
  connected: false,
  durationMs: 1,
};
export const timedOut: AttemptResult = { kind: 'unanswered', error: 'timeout', connected: true, durationMs: 30_000 };

let count = 0;

/** A delivery of a message of its own. */
export function aDelivery(url = 'https://hooks.example/a', more: Partial<Omit<Delivery, 'id'>> = {}): Delivery {
  const n = String(++count).padStart(6, '0');
  const rest = {
    kind: 'inbound' as const,
    messageId: `01kctest000000000000${n}`,
    account: 'acc',
    url,
    routeId: '1.1',
    pattern: '*',
    recipient: `r${n}@in.example`,
    ...more,
  };
  return { ...rest, id: deliveryId(rest.messageId, rest.routeId, rest.recipient) };
}
