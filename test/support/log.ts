import type { EventName, Fields, Log } from '../../src/base/log.ts';

interface LogLine {
  readonly level: string;
  readonly event: EventName;
  readonly fields: Fields;
}

/** A log that keeps its lines for the test. */
export function createTestLog(): Log & { readonly lines: LogLine[]; of(event: EventName): LogLine[] } {
  const lines: LogLine[] = [];
  const at =
    (level: string) =>
    (event: EventName, fields: Fields = {}) => {
      lines.push({ level, event, fields });
    };
  return {
    lines,
    of: (event) => lines.filter((line) => line.event === event),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    debug: at('debug'),
  };
}
