import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Answer } from '../../dns/types.ts';

/** What was found out before and would come out the same again. A mail host hears most from those it has just heard from. */
export interface Memory<V> {
  find(key: string): V | undefined;
  /** Keeps a value for so many milliseconds; nothing when that is not above 0. */
  keep(key: string, value: V, ms: number): void;
}

/** Longer keys are not worth their room, and somebody may have made them long on purpose. */
const LONGEST_KEY = 1024;

/** Senders, authors and policies kept in mind, of each; some hundred bytes apiece. */
const MOST = 5000;

/** A memory of so many values; the oldest goes first. */
export function createMemory<V>(clock: Clock): Memory<V> {
  const kept = new Map<string, { readonly value: V; readonly until: number }>();
  return frozen({
    find(key) {
      const entry = kept.get(key);
      if (entry === undefined || entry.until > clock.monotonic()) return entry?.value;
      kept.delete(key);
      return undefined;
    },
    keep(key, value, ms) {
      if (ms <= 0 || key.length > LONGEST_KEY) return;
      kept.delete(key);
      kept.set(key, { value, until: clock.monotonic() + ms });
      for (const oldest of kept.keys()) {
        // a Map keeps the order of insertion
        if (kept.size <= MOST) break;
        kept.delete(oldest);
      }
    },
  });
}

/** How long something may be believed that was made of DNS answers. */
export interface Life {
  /** Hears of every answer that went into it. */
  note(answer: Answer<unknown>): void;
  /** Milliseconds, 0 when it may not be kept. */
  ms(): number;
}

const LONGEST_MS = 300_000;
/** An absence comes without its TTL (RFC 2308); who publishes a record now should not have to wait for long. */
const ABSENCE_MS = 10_000;
/** SPF macros: what such a record says may depend on every letter of the envelope (RFC 7208 section 7). */
const MACRO = /%[{_%-]/;

/** As long as the shortest of the answers holds, at most five minutes; not at all after a failure or where a macro was seen. */
function createLife(): Life {
  let ms = LONGEST_MS;
  return frozen({
    note(answer) {
      ms = Math.min(ms, lifeOf(answer));
    },
    ms: () => ms,
  });
}

function lifeOf(answer: Answer<unknown>): number {
  if (answer.kind === 'failure') return 0;
  if (answer.kind !== 'records') return ABSENCE_MS;
  return answer.records.some((record) => typeof record === 'string' && MACRO.test(record)) ? 0 : answer.ttl * 1000;
}

/** What came out before for the same key, else what comes out now, kept for as long as the answers that it was made of hold. */
export async function recalled<V>(
  memory: Memory<V>,
  key: string,
  make: (note: Life['note']) => Promise<V>,
): Promise<V> {
  const known = memory.find(key);
  if (known !== undefined) return known;
  const life = createLife();
  const value = await make(life.note);
  memory.keep(key, value, life.ms());
  return value;
}
