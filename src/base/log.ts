import { writeSync } from 'node:fs';
import { frozen } from './frozen.ts';

/**
 * All log events: the first field of each line, `event`, is one of these.
 * The list is closed, so that operators can base alerts on it (docs/operations.md).
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
  // the hosts that share a store
  'host.joined',
  'host.refused',
  'host.lost',
  'host.adopted',
  // inbound mail
  'smtp.listening',
  'smtp.session',
  'smtp.refused',
  'smtp.tls_reloaded',
  'smtp.certificate',
  'smtp.fault',
  'submission.note',
  'accept.slowed',
  'accept.resumed',
  'message.accepted',
  'message.refused',
  'message.unsigned',
  'message.loop',
  'message.parse_failed',
  // scanners
  'scan.failed',
  'scan.unknown',
  'scanner.down',
  'scanner.up',
  // mail submitted by accounts
  'message.submitted',
  'message.unrecorded',
  'message.fault',
  // copies of mail in the store
  'copy.waits',
  'copy.fault',
  'copy.missing',
  'copy.resumed',
  'copy.refused',
  // the queue
  'spool.recovered',
  'spool.restored',
  'spool.fault',
  'spool.full',
  'spool.room',
  'spool.purged',
  // the history
  'journal.fault',
  'journal.resumed',
  // webhook deliveries
  'delivery.delivered',
  'delivery.deferred',
  'delivery.failed',
  'delivery.too_large',
  'delivery.replayed',
  'delivery.fault',
  'endpoint.down',
  'endpoint.up',
  'endpoint.paused',
  'endpoint.resumed',
  'endpoint.unverified',
  'worker.ended',
  // ownership of inbound domains
  'domain.taken',
  'domain.reserved',
  // events moved from the store to the queue
  'event.unsent',
  'event.fault',
  // returned mail, opens and clicks
  'return.handled',
  'visit.lost',
  // DKIM keys
  'dkim.rotated',
  // mail to the operator
  'postmaster.kept',
  // reports requested by senders
  'report.lost',
  // notices: mail of our own
  'notice.sent',
  'notice.deferred',
  'notice.failed',
  // exports
  'attachment.fetched',
  'attachment.no_room',
  'export.progress',
  'export.complete',
  'export.failed',
  'export.expired',
  'export.fetched',
  'export.unnotified',
  // the API
  'api.listening',
  'api.call',
  'api.peer_silent',
  'api.refused_key',
  'api.refused_connection',
  'api.fault',
  // certificates from an ACME authority
  'certificate.issued',
  'certificate.renewed',
  'certificate.failed',
  // the console
  'console.entered',
  'console.refused',
  'console.locked',
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

/** The log: each call writes one line, for one event. */
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
 * Creates a log of JSON lines on standard output (or `write`, for tests): `event`, `level`, `time`, then the fields.
 * Levels below `level` are discarded; `silent` writes nothing at all. Lines are buffered for some milliseconds;
 * warnings, errors and `daemon.*` events are written immediately.
 */
export function createLog(level: string, write: WriteLine = createLogOutput()): Log {
  const timeOf = createStamp();
  return createLevels(level, (name, event, fields) => {
    let line = `{"event":"${event}","level":"${name}","time":"${timeOf()}"`;
    for (const [field, value] of shownFields(fields)) line += `,"${field}":${toJson(value)}`;
    write(`${line}}\n`);
  });
}

/** Creates a function for each level; those below `level` do nothing. */
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
  if (PLAIN.test(cut)) return cut; // the common case, and a much cheaper test
  return cut.replace(UNPRINTABLE, escaped);
}

/** As JSON escapes a character, one beyond the basic plane as two. */
const escaped = (c: string): string =>
  c
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');

/** The fields of a line as written: without API keys, strings made printable, errors split into message and stack. */
export function* shownFields(fields: Fields): Generator<readonly [field: string, value: unknown]> {
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
  return { message: printable(error.message), stack: stack.map((line) => printable(line.trim())) };
}

/** Text that needs no escaping in JSON; nearly all values match, and the test is cheaper than escaping. */
const VERBATIM = /^[ !#-[\]-~]*$/;

/** Serializes a value; never throws: values that JSON cannot represent (a circle, a BigInt) are replaced by a note. */
function toJson(value: unknown): string {
  if (typeof value === 'string' && VERBATIM.test(value)) return `"${value}"`;
  try {
    return (JSON.stringify(value) ?? 'null').replace(UNPRINTABLE, escaped);
  } catch {
    return '"[not serializable]"';
  }
}

/** Creates a function that formats the current time, once per millisecond. */
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

/** SGR parameters (ECMA-48). */
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

/** Creates a log for terminals: local time, level, event in words, and the fields as name=value. */
export function createTerminalLog(
  level: string,
  colour: boolean,
  write: WriteLine = createLogOutput(undefined, () => true),
): Log {
  const paint = (style: keyof typeof COLOURS, text: string) =>
    colour ? `\x1b[${COLOURS[style]}m${text}\x1b[0m` : text;

  return createLevels(level, (name, event, fields) => {
    const words = event.replaceAll(/[._]/g, ' ').padEnd(EVENT_WIDTH);
    const parts = [paint('dim', timeOfDay(new Date())), paint(name, name.padEnd(5)), paint('bold', words)];
    let faults = '';
    for (const [field, value] of shownFields(fields)) {
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

/** Lines that are written immediately: they matter now, or may be the last one. */
const URGENT = /^\{"event":"daemon\.|"level":"(?:warn|error)"/;
/** Buffer size, enough for one busy turn of the event loop; a full buffer is written immediately. */
const OUTPUT_BYTES = 8 * 1024;
/** The longest time that a line is buffered, in milliseconds. */
const OUTPUT_MS = 10;
/** Number and interval (milliseconds) of retries while the reader is behind (EAGAIN). */
const TRIES = 100;
const TRY_MS = 10;

/** Writes bytes and returns how many were written, or throws the system error. */
type Write = (bytes: Uint8Array) => number;

/**
 * Creates a buffered writer to standard output: a system call per line cost 5% of the main thread under load, one per
 * turn of the event loop about 3%. Mail takes precedence over its log: lines that cannot be written (closed pipe, full
 * disk) are discarded, and later ones are tried again.
 */
export function createLogOutput(
  write: Write = (bytes) => writeSync(1, bytes),
  isUrgent: (line: string) => boolean = (line) => URGENT.test(line),
): WriteLine {
  let text = '';
  let waiting = false;
  let truncated = false;
  const put = createRetryingWrite(write);

  const flush = () => {
    waiting = false;
    const bytes = Buffer.from(truncated ? `\n${text}` : text);
    text = '';
    const written = put(bytes);
    // A truncated line must not run into the next.
    if (written > 0) truncated = written < bytes.byteLength && bytes[written - 1] !== 0x0a;
  };
  return (line) => {
    text += line;
    if (isUrgent(line) || text.length >= OUTPUT_BYTES) return flush();
    if (!waiting) setTimeout(flush, OUTPUT_MS);
    waiting = true;
  };
}

/**
 * Creates a function that writes as many bytes as it can and returns their number. It waits up to a second for a reader
 * that is behind, and then not again until that has caught up.
 */
function createRetryingWrite(write: Write): (bytes: Uint8Array) => number {
  let retrying = true;
  return (bytes) => {
    let at = 0;
    let tries = retrying ? TRIES : 1;
    while (at < bytes.byteLength && tries > 0) {
      try {
        at += write(bytes.subarray(at));
      } catch (error) {
        tries = isBehind(error) ? tries - 1 : 0;
        if (tries > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, TRY_MS);
      }
    }
    retrying = at === bytes.byteLength;
    return at;
  };
}

function isBehind(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EAGAIN';
}
