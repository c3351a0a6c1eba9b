import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createTransport } from 'nodemailer';
import type { ZoneRecords } from '../test/support/zone.ts';

/** The zone that the measured daemon asks: SPF for the sender's domain, and the DKIM key. */
export interface Sender {
  readonly domain: string;
  readonly selector: string;
  readonly privateKey: string;
  readonly zone: ZoneRecords;
}

export function createSender(): Sender {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'der' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  const domain = 'sender.example';
  const zone = {
    [domain]: { TXT: ['v=spf1 ip4:127.0.0.0/8 -all'] },
    [`bench._domainkey.${domain}`]: { TXT: [`v=DKIM1; k=rsa; p=${publicKey.toString('base64')}`] },
    [`_dmarc.${domain}`]: { TXT: ['v=DMARC1; p=none'] },
  };
  return { domain, selector: 'bench', privateKey, zone };
}

/** The hops of a message that reaches an MX, as their servers put them on top. */
const HOPS = [
  'Received: from out-7.smtp.sender.example (out-7.smtp.sender.example [203.0.113.7])',
  '\tby relay-2.sender.example (Postfix) with ESMTPS id 4XkQ2v1RzGz9sWp',
  '\tfor <bench@in.example>; Mon,  5 Jan 2026 12:00:02 +0000 (UTC)',
  'Authentication-Results: relay-2.sender.example; auth=pass smtp.auth=app-3 smtp.mailfrom=ada@sender.example',
  'Received: from app-3.sender.example ([10.0.4.31])',
  '\tby out-7.smtp.sender.example with ESMTPA id 7FQnVtK2mUe4ZQ',
  '\t(using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384); Mon, 05 Jan 2026 12:00:01 +0000',
  '',
].join('\r\n');

/** What a list and a mailer add. */
const HEADERS = [
  [
    'List-Unsubscribe',
    '<https://sender.example/u/8f14e45fceea167a5a36dedd4bea2543>, <mailto:unsubscribe+8f14e45f@sender.example>',
  ],
  ['List-Unsubscribe-Post', 'List-Unsubscribe=One-Click'],
  ['List-Id', 'Notes on the engine <notes.sender.example>'],
  ['Feedback-ID', '8f14e45f:notes:sender'],
  ['Precedence', 'bulk'],
  ['Reply-To', '"Ada Lovelace" <reply+8f14e45fceea167a5a36dedd4bea2543@sender.example>'],
  ['References', '<b1c2d3e4-0001@sender.example> <b1c2d3e4-0002@sender.example> <b1c2d3e4-0003@sender.example>'],
  ['In-Reply-To', '<b1c2d3e4-0003@sender.example>'],
  ['X-Mailer', 'Notes 4.2'],
  ['X-Campaign', 'memoir-2026-01'],
  ['X-Entity-Ref-ID', '8f14e45fceea167a5a36dedd4bea2543'],
] as const;

const WORDS = 'The engine weaves algebraic patterns just as the loom weaves flowers and leaves. ';

/** A message of about `bytes` bytes as it reaches an MX: text and HTML, and an attachment when it is large. */
export async function compose(bytes: number, signedBy: Sender | undefined): Promise<Buffer> {
  const bare = (await write(1, 0, signedBy)).length;
  const attached = Math.max(0, bytes - 45_000);
  const words = Math.max(2, Math.floor((bytes - attached - bare) / WORDS.length));
  return write(words, attached > 15_000 ? Math.floor(attached * 0.73) : 0, signedBy);
}

async function write(words: number, attached: number, signedBy: Sender | undefined): Promise<Buffer> {
  const transport = createTransport({ streamTransport: true, buffer: true, newline: 'windows' });
  const { message } = await transport.sendMail({
    from: 'Ada Lovelace <ada@sender.example>',
    to: 'Bench <bench@in.example>',
    subject: 'Notes upon the memoir',
    headers: HEADERS.map(([key, value]) => ({ key, value })),
    text: WORDS.repeat(Math.ceil(words * 0.45)),
    html: `<html><body><p>${WORDS.repeat(Math.ceil(words * 0.5))}</p></body></html>`,
    attachments: attached > 0 ? [{ filename: 'engine.bin', content: randomBytes(attached) }] : [],
    ...(signedBy
      ? { dkim: { domainName: signedBy.domain, keySelector: signedBy.selector, privateKey: signedBy.privateKey } }
      : {}),
  });
  if (!Buffer.isBuffer(message)) throw new Error('a buffer was asked for');
  return Buffer.concat([Buffer.from(HOPS), message]);
}
