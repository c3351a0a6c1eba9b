import { frozen } from '../base/frozen.ts';
import { exchange } from './exchange.ts';
import {
  bytesOf,
  type ScanInput,
  type Scanner,
  type ScannerAddress,
  ScannerFault,
  type ScannerFinding,
  toVirusName,
} from './scanner.ts';

/** ClamAV's daemon, by its command INSTREAM (clamd(8)). */
export function createClamd(address: ScannerAddress): Scanner {
  return frozen({
    name: 'clamd',
    finds: 'virus',
    scan: async ({ body }, signal) => toFinding((await exchange(address, signal, request(body))).toString()),
    async stop() {},
  });
}

/** Chunks behind their length, and one of length zero at the end. */
async function* request(body: ScanInput['body']): AsyncGenerator<Buffer> {
  yield Buffer.from('zINSTREAM\0');
  for await (const chunk of bytesOf(body)) {
    if (chunk.length > 0) yield Buffer.concat([toLength(chunk.length), chunk]);
  }
  yield toLength(0);
}

function toLength(length: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(length);
  return bytes;
}

/** `stream: OK`, `stream: NAME FOUND`, or a text that ends in ERROR. */
function toFinding(answer: string): ScannerFinding {
  const line = answer.replace(/[\0\n]+$/, '');
  if (line === 'stream: OK') return { virus: 'clean' };
  const found = /^stream: (.+) FOUND$/.exec(line);
  if (found) return { virus: 'infected', name: toVirusName(found[1] ?? ''), rejects: true };
  if (line.startsWith('INSTREAM size limit exceeded'))
    return { skipped: 'the message is larger than its StreamMaxLength' };
  throw new ScannerFault(
    line === '' ? 'it closed the connection without an answer' : `it answered "${line.slice(0, 100)}"`,
  );
}
