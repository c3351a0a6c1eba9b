import { writeSync } from 'node:fs';
import { frozen } from './frozen.ts';

/**
 * Every line of the log has one of these names in its first field, `event`.
 * The list is closed, so that an operator can write alerts against it (docs/operations.md).
 */
export const EVENTS = [
  // the process
  'daemon.starting',
  'daemon.ready',
  'daemon.stopping',
  'daemon.stopped',
  'daemon.reloaded',
  'daemon.reload_refused',
  'daemon.note',
  'daemon.clock',
  'daemon.fault',
  // mail coming in
  'smtp.listening',
  'smtp.session',
  'smtp.refused',
  'smtp.tls_reloaded',
  'smtp.fault',
  'submission.note',
  'accept.slowed',
  'accept.resumed',
  'message.accepted',
  'message.refused',
  'message.parse_failed',
  // mail that accounts send
  'message.submitted',
  'message.unrecorded',
  'message.fault',
  // the queue
  'spool.recovered',
  'spool.fault',
  'spool.full',
  'spool.room',
  'spool.purged',
  // webhooks going out
  'delivery.delivered',
  'delivery.deferred',
  'delivery.failed',
  'delivery.replayed',
  'delivery.fault',
  'endpoint.down',
  'endpoint.up',
  'endpoint.paused',
  'endpoint.resumed',
  'endpoint.unverified',
  'worker.ended',
  // whose an inbound domain is
  'domain.taken',
  'domain.reserved',
  // events on their way from the store to the queue
  'event.unsent',
  'event.fault',
  // mail that came back, opens and clicks
  'return.handled',
  'visit.lost',
  // keys that sign mail
  'dkim.rotated',
  // mail to the operator
  'postmaster.kept',
  // reports that senders asked for
  'report.lost',
  // mail of our own
  'notice.sent',
  'notice.deferred',
  'notice.failed',
  // exports
  'export.progress',
  'export.complete',
  'export.failed',
  'export.expired',
  'export.fetched',
  'export.unnotified',
  // the API
  'api.listening',
  'api.call',
  'api.refused_key',
  'api.refused_connection',
  'api.fault',
  // dedicated addresses
  'ip.given',
  'ip.returned',
  'ip.reverse_dns',
  'ip.missing',
  // the store and the network
  'store.connected',
  'store.away',
  'store.back',
  'store.full',
  'store.room',
  'store.fault',
  'dns.fault',
  'task.run',
  'task.fault',
  'task.skipped',
] as const;

export type EventName = (typeof EVENTS)[number];
export type Fields = Readonly<Record<string, unknown>>;

/** The log: one call is one line, and one line is one thing that happened. */
export interface Log {
  info(event: EventName, fields?: Fields): void;
  warn(event: EventName, fields?: Fields): void;
  error(event: EventName, fields?: Fields): void;
  debug(event: EventName, fields?: Fields): void;
}

const LEVELS = ['debug', 'info', 'warn', 'error'] as const;
type Level = (typeof LEVELS)[number];
type WriteLine = (line: string) => void;

/**
 * A log of JSON lines on standard output (or on `write`, for tests): `event`, `level`, `time`, then the fields. Nothing
 * below `level` is written; `silent` writes nothing at all. Lines are written within some milliseconds; warnings,
 * errors and what the process says of itself, at once.
 */
export function createLog(level: string, write: WriteLine = createOutput()): Log {
  const timeOf = createStamp();
  return createLevels(level, (name, event, fields) => {
    let line = `{"event":"${event}","level":"${name}","time":"${timeOf()}"`;
    for (const [field, value] of shown(fields)) line += `,"${field}":${toJson(value)}`;
    write(`${line}}\n`);
  });
}

/** A function for each level; those below `level` do nothing. */
function createLevels(level: string, line: (name: Level, event: EventName, fields: Fields) => void): Log {
  const at = (name: Level) => {
    if (!LEVELS.slice(0, LEVELS.indexOf(name) + 1).some((one) => one === level)) return () => {};
    return (event: EventName, fields: Fields = {}) => line(name, event, fields);
  };
  return frozen({ debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') });
}

const LONGEST = 256;
const PLAIN = /^[ -~]*$/;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** Makes text from outside safe for a terminal: no control or bidi characters, at most 256 characters. */
export function printable(text: string): string {
  const cut = text.length > LONGEST ? text.slice(0, LONGEST) + '…' : text;
  if (PLAIN.test(cut)) return cut; // nearly all of it is, and this test is much the cheaper one
  return cut.replace(UNPRINTABLE, (c) => `\\u${(c.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`);
}

/** The fields of a line as they are written: no API keys, texts made printable, errors taken apart. */
function* shown(fields: Fields): Generator<readonly [field: string, value: unknown]> {
  for (const field of Object.keys(fields)) {
    const value = fields[field];
    if (field === 'key' || value === undefined) continue; // an API key never reaches a log
    yield [field, typeof value === 'string' ? printable(value) : value instanceof Error ? faultOf(value) : value];
  }
}

interface Fault {
  readonly message: string;
  readonly stack: readonly string[];
}

function faultOf(error: Error): Fault {
  const stack = error.stack?.split('\n').slice(1, 9) ?? [];
  return { message: printable(error.message), stack: stack.map((line) => line.trim()) };
}

/** Text that JSON writes as it is; nearly every value is such a text, and to look costs less than to escape. */
const VERBATIM = /^[ !#-[\]-~]*$/;

/** A log never throws: what JSON cannot say (a circle, a BigInt) is named as such. */
function toJson(value: unknown): string {
  if (typeof value === 'string' && VERBATIM.test(value)) return `"${value}"`;
  try {
    return JSON.stringify(value) ?? 'null';
  } catch {
    return '"[not serializable]"';
  }
}

/** The time of a line; several lines of one millisecond share the making of it. */
function createStamp(): () => string {
  let last = 0;
  let text = '';
  return () => {
    const now = Date.now();
    if (now !== last) text = new Date(now).toISOString();
    last = now;
    return text;
  };
}

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
const UNQUOTED = /^[^\s"=]+$/;

/** The same lines for a person at a terminal: local time, level, event in words, and the fields as name=value. */
export function createTerminalLog(
  level: string,
  colour: boolean,
  write: WriteLine = createOutput(undefined, () => true),
): Log {
  const paint = (style: keyof typeof COLOURS, text: string) =>
    colour ? `\x1b[${COLOURS[style]}m${text}\x1b[0m` : text;

  return createLevels(level, (name, event, fields) => {
    const words = event.replaceAll(/[._]/g, ' ').padEnd(EVENT_WIDTH);
    const parts = [paint('dim', timeOfDay(new Date())), paint(name, name.padEnd(5)), paint('bold', words)];
    let faults = '';
    for (const [field, value] of shown(fields)) {
      if (isFault(value))
        faults += [value.message, ...value.stack].map((text) => `\n    ${paint(name, text)}`).join('');
      else parts.push(`${paint('dim', `${field}=`)}${inWords(value)}`);
    }
    write(`${parts.join(' ').trimEnd()}${faults}\n`);
  });
}

function isFault(value: unknown): value is Fault {
  return typeof value === 'object' && value !== null && 'message' in value && 'stack' in value;
}

function inWords(value: unknown): string {
  if (typeof value === 'string') return UNQUOTED.test(value) ? value : toJson(value);
  if (value === null || (Array.isArray(value) && value.length === 0)) return '-';
  return printable(
    Array.isArray(value) && value.every((item) => typeof item === 'string') ? value.join(',') : toJson(value),
  );
}

function timeOfDay(now: Date): string {
  return [now.getHours(), now.getMinutes(), now.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
}

/** What a person has to know of at once, and what may be the last line. */
const URGENT = /^\{"event":"daemon\.|"level":"(?:warn|error)"/;
/** Enough for the lines of one busy turn of the loop; more is written at once. */
const OUTPUT_BYTES = 8 * 1024;
/** How long a line waits for others at most. */
const OUTPUT_MS = 10;
/** How often, and after how many milliseconds, a reader that is behind is tried again. */
const TRIES = 100;
const TRY_MS = 10;

/** Writes bytes and answers how many, or throws what the system says. */
type Write = (bytes: Uint8Array) => number;

/**
 * Lines on standard output, written every few milliseconds: a system call for every line cost 5% of the main thread
 * under load, one for every turn of the loop about 3%. Mail goes before its log: lines that cannot be written, because
 * nobody reads them any more or because their disk is full, are given up, and the next ones are tried anew.
 */
export function createOutput(
  write: Write = (bytes) => writeSync(1, bytes),
  isUrgent: (line: string) => boolean = (line) => URGENT.test(line),
): WriteLine {
  let text = '';
  let waiting = false;
  let torn = false;
  const put = createPatience(write);

  const flush = () => {
    waiting = false;
    const bytes = Buffer.from(torn ? `\n${text}` : text);
    text = '';
    const written = put(bytes);
    // A line that was cut must not run into the next.
    if (written > 0) torn = written < bytes.byteLength && bytes[written - 1] !== 0x0a;
  };
  return (line) => {
    text += line;
    if (isUrgent(line) || text.length >= OUTPUT_BYTES) return flush();
    if (!waiting) setTimeout(flush, OUTPUT_MS);
    waiting = true;
  };
}

/**
 * Writes all bytes it can and answers how many. A reader that is behind is waited for a second, and then not again
 * until it reads.
 */
function createPatience(write: Write): (bytes: Uint8Array) => number {
  let patient = true;
  return (bytes) => {
    let at = 0;
    let tries = patient ? TRIES : 1;
    while (at < bytes.byteLength && tries > 0) {
      try {
        at += write(bytes.subarray(at));
      } catch (error) {
        tries = isBehind(error) ? tries - 1 : 0;
        if (tries > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, TRY_MS);
      }
    }
    patient = at === bytes.byteLength;
    return at;
  };
}

function isBehind(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EAGAIN';
}
