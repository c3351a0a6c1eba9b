import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';
import { type EventName, type Fields, shownFields } from './log.ts';

type AlarmLevel = 'warn' | 'error';

/** A line of the log, as it is shown to people. */
interface KeptLine {
  /** Grows with each line; a cursor. */
  readonly n: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly level: AlarmLevel;
  readonly event: EventName;
  readonly fields: Fields;
}

/** How often something was logged. */
interface EventCount {
  readonly event: EventName;
  readonly level: AlarmLevel;
  readonly count: number;
  readonly lastAt: number;
}

/** The last warnings and errors of the log. */
export type RecentLog = ReturnType<typeof createRecentLog>;

const MAX_LINES = 500;
/** Of one event, so that an endpoint that is down does not push out all others. */
const MAX_OF_EVENT = 100;
/** Characters of one field. */
const LONGEST_FIELD = 2000;

export function createRecentLog(clock: Pick<Clock, 'now'>) {
  const lines: KeptLine[] = [];
  const kept = new Map<EventName, number>();
  const counts = new Map<string, EventCount>();
  let n = 0;

  function drop(at: number): void {
    for (const { event } of lines.splice(at, 1)) kept.set(event, (kept.get(event) ?? 0) - 1);
  }

  return frozen({
    keep(level: AlarmLevel, event: EventName, fields = {}) {
      const at = clock.now();
      const key = `${level} ${event}`;
      counts.set(key, { event, level, count: (counts.get(key)?.count ?? 0) + 1, lastAt: at });
      // The fields are formatted for people only when they are read, so that a line costs little.
      lines.push({ n: ++n, at, level, event, fields });
      kept.set(event, (kept.get(event) ?? 0) + 1);
      if ((kept.get(event) ?? 0) > MAX_OF_EVENT) drop(lines.findIndex((line) => line.event === event));
      else if (lines.length > MAX_LINES) drop(0);
    },
    /** Newest first. */
    lines: (): readonly KeptLine[] => lines.toReversed().map((line) => ({ ...line, fields: toShown(line.fields) })),
    /** Since the start, the latest first. */
    counts: (): readonly EventCount[] => [...counts.values()].sort((a, b) => b.lastAt - a.lastAt),
  });
}

/** The fields as the log writes them, limited in length. */
function toShown(fields: Fields): Fields {
  return Object.fromEntries([...shownFields(fields)].map(([name, value]) => [name, toShort(value)]));
}

function toShort(value: unknown): unknown {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
    return value;
  try {
    const text = JSON.stringify(value) ?? 'null';
    return text.length > LONGEST_FIELD ? `${text.slice(0, LONGEST_FIELD)}…` : JSON.parse(text);
  } catch {
    return '[not serializable]';
  }
}
