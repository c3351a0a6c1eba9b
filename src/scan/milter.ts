import { frozen } from '../base/frozen.ts';
import { type ScannerConnection, withConnection } from './exchange.ts';
import {
  bytesOf,
  MAX_RESPONSE_BYTES,
  type ScanInput,
  type Scanner,
  type ScannerAddress,
  ScannerFault,
  type ScannerFinding,
  type ThreatKind,
  toHeaderText,
  toVirusName,
} from './scanner.ts';

interface MilterSettings {
  readonly name: string;
  readonly address: ScannerAddress;
  /** The purpose of the filter: the protocol does not say why a message is refused. */
  readonly finds: ThreatKind;
  readonly hostname: string;
}

/**
 * A filter that speaks Sendmail's milter protocol, version 6 (libmilter's mfdef.h). It gets the client, the envelope
 * and the message. Changes that it requests are not made: only its verdict counts.
 */
export function createMilter({ name, address, finds, hostname }: MilterSettings): Scanner {
  return frozen({
    name,
    finds,
    scan: (input, signal) =>
      withConnection(address, signal, async (connection) => {
        const filter = await negotiate(connection);
        const word = await sendMessage(filter, input, hostname);
        await connection.write(packet('Q'));
        return toFinding(word, finds);
      }),
    async stop() {},
  });
}

const VERSION = 6;
/** Every action that a filter may ask for, up to SMFIF_SETSYMLIST. */
const ACTIONS = 0x1ff;
/** Every step that a filter may leave out or not answer, SMFIP_SKIP and SMFIP_HDR_LEADSPC among them. */
const STEPS = 0x1fffff;

/** SMFIP_NO…: steps that the filter does not want. SMFIP_NR_…: steps that it does not answer. */
const UNWANTED = { C: 0x1, H: 0x2, M: 0x4, R: 0x8, B: 0x10, L: 0x20, N: 0x40, T: 0x200, E: 0 } as const;
const UNANSWERED = {
  L: 0x80,
  C: 0x1000,
  H: 0x2000,
  M: 0x4000,
  R: 0x8000,
  T: 0x10000,
  N: 0x40000,
  B: 0x80000,
  E: 0,
} as const;
const LEADING_SPACE = 0x100000;

type Step = keyof typeof UNWANTED;

/** A filter that has agreed on the protocol. */
interface Filter {
  readonly connection: ScannerConnection;
  /** The flags of the steps that it chose. */
  readonly steps: number;
}

/** The filter's reply for the message, and the header fields that it writes. */
interface MilterVerdict {
  verdict: 'accept' | 'reject' | 'tempfail' | 'discard';
  text: string;
  quarantined: boolean;
  /** It accepted the mail by its client or envelope, without having read it. */
  unread: boolean;
  readonly written: { readonly name: string; readonly value: string }[];
}

function packet(command: string, data: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(data.length + 1);
  head.write(command, 4, 'latin1');
  return Buffer.concat([head, data]);
}

/** Strings in the form of the protocol, each terminated by a NUL. */
const strings = (...texts: readonly string[]): Buffer =>
  Buffer.from(texts.map((text) => `${text.replaceAll('\0', '')}\0`).join(''), 'latin1');

function numbers(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [i, value] of values.entries()) bytes.writeUInt32BE(value, 4 * i);
  return bytes;
}

async function readPacket(connection: ScannerConnection): Promise<{ readonly command: string; readonly data: Buffer }> {
  const length = (await connection.read(4)).readUInt32BE();
  if (length < 1 || length > MAX_RESPONSE_BYTES) throw new ScannerFault(`it sent a packet of ${length} bytes`);
  const bytes = await connection.read(length);
  return { command: bytes.toString('latin1', 0, 1), data: bytes.subarray(1) };
}

async function negotiate(connection: ScannerConnection): Promise<Filter> {
  await connection.write(packet('O', numbers(VERSION, ACTIONS, STEPS)));
  const { command, data } = await readPacket(connection);
  if (command !== 'O' || data.length < 12) throw new ScannerFault('it does not speak the milter protocol');
  const [version, steps] = [data.readUInt32BE(0), data.readUInt32BE(8)];
  if (version < 2 || version > VERSION) throw new ScannerFault(`it speaks version ${version} of the milter protocol`);
  // DATA came with version 4.
  return { connection, steps: version < 4 ? steps | UNWANTED.T : steps };
}

/** Sends the filter each step until it has decided. */
async function sendMessage(filter: Filter, input: ScanInput, hostname: string): Promise<MilterVerdict> {
  const word: MilterVerdict = { verdict: 'accept', text: '', quarantined: false, unread: false, written: [] };
  const { envelope, recipients, id } = input;
  const { helo, tls } = envelope.client;
  const say = (step: Step, data: Uint8Array, macros: Readonly<Record<string, string>> = {}) =>
    sendStep(filter, word, step, data, macros);
  const isOver = async (...said: Parameters<SendStep>) => (await say(...said)) === 'over';
  const mailFrom = toHeaderText(envelope.mailFrom);

  const host = { j: toHeaderText(hostname), '{daemon_name}': toHeaderText(hostname), v: 'Postern' };
  if (await isOver('C', client(envelope.client.address), host)) return word;
  const greeting = strings(toHeaderText(helo ?? 'unknown'));
  if (await isOver('H', greeting, tls === null ? {} : { '{tls_version}': tls })) return word;
  if (await isOver('M', strings(`<${mailFrom}>`), { i: id, '{mail_addr}': mailFrom })) return word;
  for (const recipient of recipients.map(toHeaderText))
    if (await isOver('R', strings(`<${recipient}>`), { '{rcpt_addr}': recipient })) return word;
  if (await isOver('T', NOTHING, { i: id })) return word;
  const chunks = bytesOf(input.body);
  try {
    await sendHeaderAndBody(filter, input.id, chunks, say);
  } finally {
    await chunks.return(undefined);
  }
  return word;
}

const NOTHING = Buffer.alloc(0);

type SendStep = (step: Step, data: Uint8Array, macros?: Readonly<Record<string, string>>) => Promise<Next>;

async function sendHeaderAndBody(
  { steps }: Filter,
  i: string,
  chunks: AsyncIterator<Buffer>,
  say: SendStep,
): Promise<void> {
  const { fields, rest } = await readHeader(chunks);
  for (const { name, value } of fields) {
    const given = steps & LEADING_SPACE ? value : value.replace(/^[ \t]/, '');
    if ((await say('L', strings(name, given))) === 'over') return;
  }
  if ((await say('N', NOTHING, { i })) === 'over') return;
  const next = await sendBody(rest, chunks, say);
  if (next !== 'over') await say('E', NOTHING, { i });
}

async function sendBody(rest: Buffer, chunks: AsyncIterator<Buffer>, say: SendStep): Promise<Next> {
  for (let piece: Buffer | undefined = rest; piece; piece = (await chunks.next()).value ?? undefined) {
    for (let at = 0; at < piece.length; at += CHUNK) {
      const next = await say('B', piece.subarray(at, at + CHUNK));
      if (next !== 'go on') return next;
    }
  }
  return 'go on';
}

/** MILTER_CHUNK_SIZE. */
const CHUNK = 65_535;
/** A header section is not read beyond this size; the rest is sent as body. */
const MAX_HEADER = 256 * 1024;
const END_OF_HEADER = '\r\n\r\n';

interface Field {
  readonly name: string;
  /** As it was sent, folded lines ended by LF. */
  readonly value: string;
}

/** Reads the header section, up to the first line that is not a field. */
async function readHeader(chunks: AsyncIterator<Buffer>): Promise<{ readonly fields: Field[]; readonly rest: Buffer }> {
  let bytes: Buffer = Buffer.alloc(0);
  while (bytes.length < MAX_HEADER && !bytes.includes(END_OF_HEADER)) {
    const { done, value } = await chunks.next();
    if (done) break;
    bytes = Buffer.concat([bytes, value]);
  }
  const fields: { name: string; value: string }[] = [];
  let at = 0;
  for (;;) {
    const end = bytes.indexOf('\r\n', at);
    const line = bytes.toString('latin1', at, end < 0 ? bytes.length : end);
    const last = fields.at(-1);
    const field = /^([!-9;-~]+)[ \t]*:(.*)$/s.exec(line);
    if (last && /^[ \t]/.test(line)) last.value += `\n${line}`;
    else if (field) fields.push({ name: field[1] ?? '', value: field[2] ?? '' });
    else return { fields, rest: bytes.subarray(line === '' && end >= 0 ? end + 2 : at) };
    if (end < 0) return { fields, rest: NOTHING };
    at = end + 2;
  }
}

/** SMFIA_INET or SMFIA_INET6, or SMFIA_UNKNOWN for mail without a client. */
function client(address: string | null): Buffer {
  if (address === null) return Buffer.concat([strings('localhost'), Buffer.from('U')]);
  const family = address.includes(':') ? '6' : '4';
  const given = family === '6' ? `IPv6:${address}` : address;
  return Buffer.concat([strings(`[${address}]`), Buffer.from(family), Buffer.from([0, 0]), strings(given)]);
}

/** After a step: `go on` with the next one, `skip` the rest of the body, or it is `over`. */
type Next = 'go on' | 'skip' | 'over';

/** Sends one step, after its macros. */
async function sendStep(
  { connection, steps }: Filter,
  word: MilterVerdict,
  step: Step,
  data: Uint8Array,
  macros: Readonly<Record<string, string>>,
): Promise<Next> {
  if (steps & UNWANTED[step]) return 'go on';
  const names = Object.entries(macros).flat();
  if (names.length > 0) await connection.write(packet('D', Buffer.concat([Buffer.from(step), strings(...names)])));
  await connection.write(packet(step, data));
  if (steps & UNANSWERED[step]) return 'go on';
  for (;;) {
    const { command, data: given } = await readPacket(connection);
    const next = applyReply(word, step, command, given);
    if (next) return next;
  }
}

/** Processes one reply. Undefined: more follow. */
function applyReply(word: MilterVerdict, step: Step, command: string, data: Buffer): Next | undefined {
  const text = data.toString('latin1').replace(/\0$/, '');
  const verdict = VERDICTS[command];
  if (verdict) word.verdict = verdict;
  if (command === 'a') word.unread = step !== 'B' && step !== 'E';
  if (verdict || command === 'a') return 'over';
  switch (command) {
    case 'c':
      return 'go on';
    case 's':
      return 'skip';
    case 'y': // a reply code with its text
      word.verdict = text.startsWith('5') ? 'reject' : 'tempfail';
      word.text = text;
      return 'over';
    case 'q':
      word.quarantined = true;
      word.text = text;
      return undefined;
    case 'h':
      recordField(word, text);
      return undefined;
    case 'i':
    case 'm': // both begin with an index
      recordField(word, text.slice(4));
      return undefined;
    default:
      if (IGNORED.includes(command)) return undefined;
      throw new ScannerFault(`it answered ${JSON.stringify(command)} to ${step}`);
  }
}

const VERDICTS: Readonly<Record<string, MilterVerdict['verdict']>> = { r: 'reject', t: 'tempfail', d: 'discard' };
/** Progress, and changes of body, recipients and sender. */
const IGNORED = 'pb+-2e';

/**
 * Notes a field that is added, inserted or changed. An empty value removes a field of the sender, which means nothing.
 */
function recordField(word: MilterVerdict, text: string): void {
  const [name = '', value = ''] = text.split('\0');
  const written = value.replace(/\s+/g, ' ').trim();
  if (written !== '') word.written.push({ name: name.trim().toLowerCase(), value: written });
}

const INFECTED = /\b(?:virus|infected|malware|eicar)/i;

/**
 * The result follows from the filter's verdict, and from the fields that ClamAV's (X-Virus-Status) and most spam
 * filters (X-Spam, X-Spam-Flag, X-Spam-Status) write. The order of its changes depends on the fields of the sender, so
 * the worst of all values counts.
 */
function toFinding({ verdict, text, quarantined, unread, written }: MilterVerdict, finds: ThreatKind): ScannerFinding {
  if (unread) return { skipped: 'it accepted the message without reading it' };
  if (verdict === 'tempfail') return { defers: true };
  const valuesOf = (...names: readonly string[]) =>
    written.flatMap(({ name, value }) => (names.includes(name) ? [value] : []));
  const rejects = verdict === 'reject';
  const stopped = rejects || verdict === 'discard' || quarantined;
  const status = valuesOf('x-virus', 'x-virus-flag', 'x-virus-status').find((value) =>
    /^(?:infected|yes)\b/i.test(value),
  );
  const infected = status !== undefined || (stopped && (finds === 'virus' || INFECTED.test(text)));
  const name = /^infected[\s:(]*([^)]*)/i.exec(status ?? '')?.[1] || text;
  const flagged = valuesOf('x-spam', 'x-spam-flag', 'x-spam-status').some((value) => /^yes\b/i.test(value));
  // rspamd's "rewrite subject" writes nothing else.
  const marked = finds === 'spam' && valuesOf('subject').some((value) => /\bspam\b/i.test(value));
  const spam = flagged || marked || (stopped && !infected);
  const scores = valuesOf('x-spam-status').flatMap((value) => /\bscore=(-?\d+(?:\.\d+)?)/.exec(value)?.[1] ?? []);
  return {
    ...(finds === 'virus' && { virus: 'clean' as const }),
    ...(infected && { virus: 'infected' as const, ...(name !== '' && { name: toVirusName(name) }) }),
    ...(finds === 'spam' && { spam: spam ? ('spam' as const) : ('ham' as const) }),
    ...(scores.length > 0 && { score: Math.max(...scores.map(Number)) }),
    rejects: rejects || infected,
  };
}
