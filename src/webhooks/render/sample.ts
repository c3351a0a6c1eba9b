import type { Clock } from '../../base/clock.ts';
import type { Match } from '../../inbound/types.ts';
import { toMailDate, traceLine } from '../../mail/envelope.ts';
import type { Renderer } from '../types.ts';

export interface SampleRequest {
  readonly address: string;
  readonly match: Match;
}

/** Makes what a route's endpoint would be posted for a small sample message: the value of `mandrill_events`, read back. */
export function createSample(deps: {
  renderer: Renderer;
  clock: Clock;
  hostname: string;
}): (request: SampleRequest) => Promise<unknown> {
  const { renderer, clock, hostname } = deps;
  return async ({ address: recipient, match: { url } }) => {
    const receivedAt = clock.now();
    const envelope = {
      mailFrom: 'sender@example.com',
      client: { address: '192.0.2.1', helo: 'mail.example.com', tls: null },
    };
    const trace = traceLine({ envelope, protocol: 'ESMTP', hostname, messageId: 'sample', receivedAt, recipient });
    const rendered = await renderer.render({
      message: { id: 'sample', receivedAt, envelope, trace, verdicts: SAMPLE_VERDICTS },
      body: { kind: 'inline', bytes: Buffer.from(sampleMessage(recipient, receivedAt)) },
      delivery: { id: 'sample', recipient, url },
      keys: ['sample'],
      at: receivedAt,
    });
    if (rendered.body.kind === 'file') throw new Error('a sample is small');
    const events: unknown = JSON.parse(
      new URLSearchParams(Buffer.from(rendered.body.bytes).toString()).get('mandrill_events') ?? '[]',
    );
    return events;
  };
}

const SAMPLE_VERDICTS = {
  spf: { result: 'pass', detail: 'sender SPF authorized' },
  dkim: { signed: true, valid: true },
  dmarc: { result: 'pass', policy: 'none', aligned: true },
  arc: { result: 'none' },
} as const;

function sampleMessage(recipient: string, at: number): string {
  return [
    'From: Sample Sender <sender@example.com>',
    `To: <${recipient}>`,
    'Subject: A sample message',
    `Date: ${toMailDate(at)}`,
    'Message-ID: <sample@example.com>',
    'MIME-Version: 1.0',
    'Content-Type: multipart/mixed; boundary="sample"',
    '',
    '--sample',
    'Content-Type: text/plain; charset=utf-8',
    '',
    'This is what a message looks like to your webhook.',
    '',
    '--sample',
    'Content-Type: text/csv; name="numbers.csv"',
    'Content-Disposition: attachment; filename="numbers.csv"',
    '',
    'a,b',
    '1,2',
    '',
    '--sample--',
    '',
  ].join('\r\n');
}
