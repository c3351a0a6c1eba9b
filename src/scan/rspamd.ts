import { Readable } from 'node:stream';
import { Pool } from 'undici';
import { z } from 'zod';
import { sizeOf } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import { parseJson } from '../base/schema.ts';
import {
  bytesOf,
  MAX_RESPONSE_BYTES,
  type ScanInput,
  type Scanner,
  ScannerFault,
  type ScannerFinding,
  toHeaderText,
  toRules,
  toVirusName,
} from './scanner.ts';

interface RspamdSettings {
  /** `http://127.0.0.1:11333`. */
  readonly url: string;
  readonly hostname: string;
  /** The score from which a message is spam; null: rspamd decides. */
  readonly spamAt: number | null;
  readonly connections: number;
}

/** rspamd, by its HTTP protocol. It looks up the name of the client itself. */
export function createRspamd({ url, hostname, spamAt, connections }: RspamdSettings): Scanner {
  const { origin, pathname } = new URL(url);
  // The deadline of the scan covers both timeouts.
  const pool = new Pool(origin, {
    connections,
    pipelining: 1,
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: 16_384,
  });
  return frozen({
    name: 'rspamd',
    finds: 'spam',
    async scan(input, signal) {
      const { statusCode, body } = await pool.request({
        method: 'POST',
        path: `${pathname.replace(/\/$/, '')}/checkv2`,
        headers: { ...headersOf(input, hostname), 'content-length': String(sizeOf(input.body)) },
        body: toRequestBody(input.body),
        signal,
      });
      const answer = await readAll(body);
      if (statusCode !== 200) throw new ScannerFault(`it answered ${statusCode}`);
      return toFinding(answer, spamAt);
    },
    stop: () => pool.destroy(),
  });
}

function toRequestBody(body: ScanInput['body']): Buffer | Readable {
  return body.kind === 'memory' ? Buffer.from(body.bytes) : Readable.from(bytesOf(body), { objectMode: false });
}

/** Leaves out what is unknown. */
function headersOf({ id, envelope, recipients }: ScanInput, hostname: string): Record<string, string | string[]> {
  const { address, helo, tls } = envelope.client;
  return {
    'queue-id': id,
    'mta-name': toHeaderText(hostname),
    from: toHeaderText(envelope.mailFrom),
    rcpt: recipients.map(toHeaderText),
    ...(address !== null && { ip: address }),
    ...(helo !== null && { helo: toHeaderText(helo) }),
    ...(tls !== null && { 'tls-version': tls }),
  };
}

async function readAll(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > MAX_RESPONSE_BYTES) throw new ScannerFault(`it answered more than ${MAX_RESPONSE_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

const answerSchema = z.object({
  action: z.string(),
  score: z.number(),
  is_skipped: z.boolean().optional(),
  symbols: z.record(
    z.string(),
    z.object({
      name: z.string(),
      score: z.number(),
      description: z.string().optional(),
      options: z.array(z.string()).optional(),
    }),
  ),
});

const SPAM = new Set(['reject', 'add header', 'rewrite subject']);

function toFinding(text: string, spamAt: number | null): ScannerFinding {
  const read = parseJson(answerSchema, text);
  if (!read) throw new ScannerFault(`its answer cannot be read: "${text.slice(0, 100)}"`);
  const { action, score, symbols, is_skipped: skipped } = read;
  // It also sets is_skipped when it recognizes a message early, as GTUBE.
  if (skipped && action === 'no action') return { skipped: 'its settings exempt the message' };
  const found = Object.values(symbols);
  // The antivirus module names its symbols CLAM_VIRUS, SOPHOS_VIRUS and so on; a failed scan is …_FAIL.
  const virus = found.find((symbol) => symbol.name.endsWith('_VIRUS') && symbol.score > 0);
  return {
    spam: (spamAt === null ? SPAM.has(action) : score >= spamAt) ? 'spam' : 'ham',
    ...(virus && { virus: 'infected' as const, name: toVirusName(virus.options?.[0] ?? virus.name) }),
    score,
    rules: toRules(
      found
        .toSorted((a, b) => Math.abs(b.score) - Math.abs(a.score))
        .map((symbol) => ({ name: symbol.name, score: symbol.score, description: symbol.description ?? '' })),
    ),
    rejects: action === 'reject' || virus !== undefined,
    defers: action === 'soft reject',
  };
}
