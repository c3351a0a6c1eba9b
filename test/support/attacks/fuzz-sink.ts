import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { FormatName } from '../../../src/inbound/formats.ts';
import { formValue, type InboundEvent } from '../mime.ts';
import { formatAt, readPost } from '../read-post.ts';
import { createFailures } from './failures.ts';
import type { SinkReport } from './fuzz.ts';
import { answer, orders } from './helper.ts';
import { mutant } from './mutants.ts';
import { bytesIn, withoutTrace } from './raw.ts';

const { seed } = orders();
const failures = createFailures('mutant', seed);
const seen = new Set<number>();
let [others, raw] = [0, 0];

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

function take(body: Buffer): void {
  const events: InboundEvent[] = JSON.parse(formValue(body));
  for (const { msg } of events) {
    const number = Number(/^m(\d+)@/.exec(msg.email)?.[1] ?? NaN);
    if (msg.parse_error !== undefined) raw++;
    if (Number.isNaN(number)) {
      others++;
      continue;
    }
    const { bytes } = mutant(seed, number);
    if (sha256(withoutTrace(bytesIn(msg), bytes.length)) !== sha256(bytes))
      failures.add(number, 'other bytes in the post', bytes);
    seen.add(number);
  }
}

/** A post in another format than Mandrill's: read as its receivers do; `raw` holds the bytes. */
async function takeOther(format: FormatName, type: string, body: Buffer): Promise<void> {
  const read = await readPost(format, type, body).catch((error: unknown) => String(error));
  if (typeof read === 'string') return failures.add(0, `${format} cannot be read: ${read}`, body);
  const number = Number(/^m(\d+)-/.exec(read.recipient)?.[1] ?? NaN);
  if (Number.isNaN(number)) return failures.add(0, `${format} is for ${read.recipient}`, body);
  const { bytes } = mutant(seed, number);
  if (format === 'raw' && !body.subarray(body.length - bytes.length).equals(bytes))
    failures.add(number, 'other bytes in the post', bytes);
  seen.add(number);
}

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request
    .on('data', (chunk: Buffer) => chunks.push(chunk))
    .on('end', () => {
      const body = Buffer.concat(chunks);
      if (request.method !== 'POST' || body.length <= 30) return void response.end();
      const format = formatAt(request.url ?? '');
      if (format === 'mandrill') {
        take(body);
        response.end();
      } else void takeOther(format, String(request.headers['content-type']), body).then(() => response.end());
    });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1');
answer((): SinkReport => {
  const { port } = server.address() as AddressInfo; // bound to an address by the time that anybody asks
  return { url: `http://127.0.0.1:${port}/hook`, delivered: seen.size, others, raw, failures: failures.list };
});
