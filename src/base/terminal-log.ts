import { createOutput, type EventName, type Fields, type Log, printable, toLine } from './log.ts';

const LEVELS = ['debug', 'info', 'warn', 'error', 'silent'];
type Level = 'debug' | 'info' | 'warn' | 'error';

/** SGR parameters (ECMA-48): what stands out is what a person looks for. */
const COLOURS: Readonly<Record<Level | 'dim' | 'bold', string>> = {
  debug: '2',
  info: '32',
  warn: '33',
  error: '31',
  dim: '2',
  bold: '1',
};

/** Longest event name, so that fields stand in a column. */
const EVENT_WIDTH = 22;

/** Text that needs no quotes beside other fields. */
const PLAIN = /^[^\s"=]+$/;

/**
 * The log for a person at a terminal: local time, level, event in words, and the fields as name=value. What is left out
 * of the JSON lines is left out here too, and texts from outside are made printable in the same way.
 */
export function createTerminalLog(
  level: string,
  colour: boolean,
  write: (line: string) => void = createOutput(undefined, () => true),
): Log {
  const paint = (style: keyof typeof COLOURS, text: string) =>
    colour ? `\x1b[${COLOURS[style]}m${text}\x1b[0m` : text;

  function line(name: Level, event: EventName, fields: Fields): string {
    const { event: _, ...rest } = toLine(event, fields);
    const words = event.replaceAll(/[._]/g, ' ').padEnd(EVENT_WIDTH);
    const shown = Object.entries(rest).flatMap(([field, value]) =>
      isFault(value) ? [] : [`${paint('dim', `${field}=`)}${inWords(value)}`],
    );
    const faults = Object.values(rest)
      .filter(isFault)
      .flatMap(({ message, stack = [] }) => [message, ...stack].map((text) => `\n    ${paint(name, text)}`));
    const parts = [paint('dim', timeOfDay(new Date())), paint(name, name.padEnd(5)), paint('bold', words), ...shown];
    return `${parts.join(' ').trimEnd()}${faults.join('')}\n`;
  }

  const at =
    (name: Level) =>
    (event: EventName, fields: Fields = {}) => {
      if (LEVELS.indexOf(name) >= LEVELS.indexOf(level)) write(line(name, event, fields));
    };
  return Object.freeze({ debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') });
}

function isFault(value: unknown): value is { readonly message: string; readonly stack?: readonly string[] } {
  return typeof value === 'object' && value !== null && 'message' in value && 'stack' in value;
}

function inWords(value: unknown): string {
  if (typeof value === 'string') return PLAIN.test(value) ? value : JSON.stringify(value);
  if (value === null || (Array.isArray(value) && value.length === 0)) return '-';
  return printable(
    Array.isArray(value) && value.every((item) => typeof item === 'string') ? value.join(',') : JSON.stringify(value),
  );
}

function timeOfDay(now: Date): string {
  return [now.getHours(), now.getMinutes(), now.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
}
