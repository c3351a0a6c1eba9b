import { sizeOf } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { ScanRule } from '../mail/scan.ts';
import { exchange } from './exchange.ts';
import {
  bytesOf,
  type ScanInput,
  type Scanner,
  type ScannerAddress,
  ScannerFault,
  type ScannerFinding,
  toHeaderText,
  toRules,
} from './scanner.ts';

interface SpamdSettings {
  readonly address: ScannerAddress;
  /** The score from which a message is spam; null: SpamAssassin decides. */
  readonly spamAt: number | null;
}

/** SpamAssassin's daemon, by its command REPORT (spamd/PROTOCOL of SpamAssassin). */
export function createSpamd({ address, spamAt }: SpamdSettings): Scanner {
  return frozen({
    name: 'spamd',
    finds: 'spam',
    scan: async (input, signal) => toFinding((await exchange(address, signal, request(input))).toString(), spamAt),
    async stop() {},
  });
}

/** It learns the client and HELO from our Received line, and MAIL FROM from Return-Path. */
async function* request({ envelope, trace, body }: ScanInput): AsyncGenerator<Buffer> {
  const lead = Buffer.from(`Return-Path: <${toHeaderText(envelope.mailFrom)}>\r\n`, 'latin1');
  const received = Buffer.from(trace);
  const length = lead.length + received.length + sizeOf(body);
  yield Buffer.concat([Buffer.from(`REPORT SPAMC/1.5\r\nContent-length: ${length}\r\n\r\n`), lead, received]);
  yield* bytesOf(body);
}

function toFinding(answer: string, spamAt: number | null): ScannerFinding {
  const [head = '', report = ''] = split(answer);
  const status = /^SPAMD\/[\d.]+ (\d+) (\S*)/.exec(head);
  const spam = /^Spam: (True|Yes|False|No) ; (-?[\d.]+) \/ -?[\d.]+/im.exec(head);
  if (!status) throw new ScannerFault(`its answer cannot be read: "${answer.slice(0, 100)}"`);
  if (status[1] !== '0' || !spam) throw new ScannerFault(`it answered ${status[1]} ${status[2]}`);
  const length = Number(/^Content-length: (\d+)/im.exec(head)?.[1]);
  if (Buffer.byteLength(report) < length) throw new ScannerFault('it closed the connection in the middle');
  const score = Number(spam[2]);
  if (!Number.isFinite(score)) throw new ScannerFault(`its answer cannot be read: "${answer.slice(0, 100)}"`);
  const isSpam = spamAt === null ? /^(true|yes)$/i.test(spam[1] ?? '') : score >= spamAt;
  return { spam: isSpam ? 'spam' : 'ham', score, rules: toRules(rulesOf(report)) };
}

function split(answer: string): readonly [head: string, body: string] {
  const end = answer.indexOf('\r\n\r\n');
  return end < 0 ? [answer, ''] : [answer.slice(0, end), answer.slice(end + 4)];
}

/**
 * The table at the end of a report: points, name and description, which may continue on further lines.
 *
 *     pts rule name              description
 *     ---- ---------------------- --------------------------------------------------
 *     1000 GTUBE                  BODY: Generic Test for Unsolicited Bulk Email
 *
 * The report shows the beginning of the message above it, where a sender may write a table of his own: the last one is
 * SpamAssassin's.
 */
function* rulesOf(report: string): Iterable<ScanRule> {
  const lines = report.split(/\r?\n/);
  const start = lines.findLastIndex((line) => /^ {0,2}-{3,} -{3,} -{3,}/.test(line));
  if (start < 0) return;
  let rule: ScanRule | undefined;
  for (const line of lines.slice(start + 1)) {
    const found = RULE.exec(line);
    if (found) {
      if (rule) yield rule;
      rule = { score: Number(found[1]), name: found[2] ?? '', description: (found[3] ?? '').trim() };
    } else if (rule && /^\s+\S/.test(line)) {
      rule = { ...rule, description: `${rule.description} ${line.trim()}` };
    } else if (line.trim() === '') break;
  }
  if (rule) yield rule;
}

/** Points have four columns; what is indented further continues a description, which may quote the message. */
const RULE = /^ {0,4}(-?\d+(?:\.\d+)?) (\w+)\s*(.*)$/;
