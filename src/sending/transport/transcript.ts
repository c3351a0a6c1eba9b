import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { withPort } from '../../base/networks.ts';
import { type HopDetail, mailDetailText } from '../../queue/detail.ts';
import type { Hop } from './hops.ts';

// The dialog on each connection of an attempt, for the details kept by the queue.

/** The connections of one attempt, in order. */
export type Transcript = ReturnType<typeof createTranscript>;

/** The record of one connection. */
export type HopNotes = ReturnType<typeof createHopNotes>['notes'];

/** Maximum lines of a dialog; beyond it the middle is dropped. A session without faults has some thirty. */
const MAX_LINES = 120;
/** The first lines of a reply are noted, and its last one. */
const MAX_OF_REPLY = 15;
/** Longer lines are cut: RFC 5321 section 4.5.3.1.5 allows 512 octets, but the first ones are enough. */
const LINE_CHARACTERS = 250;

export function createTranscript(clock: Pick<Clock, 'monotonic'>) {
  const hops: (() => HopDetail)[] = [];
  return frozen({
    /** Begins the record of a connection, which is new or `reused`. */
    begin(hop: Hop, reused: boolean) {
      const { notes, detail } = createHopNotes(hop, reused, clock);
      hops.push(detail);
      return notes;
    },
    /** The text of the detail; undefined if no server was tried. */
    text: (): string | undefined => (hops.length === 0 ? undefined : mailDetailText(hops.map((detail) => detail()))),
  });
}

function createHopNotes(hop: Hop, reused: boolean, clock: Pick<Clock, 'monotonic'>) {
  const { host, address, port } = hop;
  const began = clock.monotonic();
  const dialog: string[] = [];
  let source: string | undefined;
  let tls: string | undefined;
  let error: string | undefined;
  let last = began;

  function add(mark: '>' | '<', line: string): void {
    last = clock.monotonic();
    if (dialog.length >= MAX_LINES) dialog.splice(MAX_LINES / 2, 1);
    // A copy, because the start of a text keeps all of it in memory.
    dialog.push(Buffer.from(`${mark} ${line.slice(0, LINE_CHARACTERS)}`).toString());
  }

  const notes = frozen({
    /** Records our address, and the TLS version; undefined without TLS. */
    opened(from: string | null, version: string | undefined) {
      [source, tls] = [from ?? undefined, version];
    },
    /** Records a command, or a description of one that is not shown. */
    sent: (command: string) => add('>', command),
    /** Records a reply of one or more lines. */
    received(reply: string) {
      const lines = withoutPassword(hop, reply).split(/\r?\n/);
      const left = lines.length - MAX_OF_REPLY - 1;
      for (const line of left > 0 ? lines.slice(0, MAX_OF_REPLY) : lines) add('<', line);
      if (left > 0) {
        add('<', `(${left} ${left === 1 ? 'line' : 'lines'} left out)`);
        add('<', lines.at(-1) ?? '');
      }
    },
    /** Records an end other than by a reply to the message. */
    failed(reason: string) {
      last = clock.monotonic();
      error = withoutPassword(hop, reason);
    },
  });
  const detail = (): HopDetail => ({
    host,
    address: withPort(address, port),
    source,
    tls,
    ...(reused && { reused }),
    ms: Math.round(last - began),
    ...(error !== undefined && { error }),
    dialog,
  });
  return { notes, detail };
}

/** Shorter secrets are not masked: they would occur everywhere. */
const SHORTEST_SECRET = 4;

/** Masks the password in a text of the relay, which may echo it plain or in the forms in which it was sent. */
export function withoutPassword({ auth }: Pick<Hop, 'auth'>, text: string): string {
  if (!auth) return text;
  const { user, pass } = auth;
  return [pass, toBase64(pass), toBase64(`\0${user}\0${pass}`)]
    .filter((secret) => secret.length >= SHORTEST_SECRET)
    .reduce((rest, secret) => rest.replaceAll(secret, '…'), text);
}

const toBase64 = (text: string): string => Buffer.from(text).toString('base64');
