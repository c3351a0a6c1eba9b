import { generateKeyPairSync } from 'node:crypto';
import { sentId, toToken } from '../src/mail/addresses/return-address.ts';
import type { Draft, Outgoing } from '../src/mail/outgoing.ts';
import { createCompose } from '../src/sending/compose/compose.ts';
import type { ComposeJob } from '../src/sending/types.ts';
import { readOptions, usually } from './options.ts';

/**
 * Messages a second that one thread composes of a 5 kB draft: merged, tracked and signed, and each of these without the
 * others.
 */
const values = readOptions('node bench/compose.ts', 'Messages a second that one thread composes.', {
  messages: usually(1000, 'messages a round'),
  rounds: usually(3, 'rounds, of which the best counts'),
});
const count = Number(values.messages);
const composeMail = createCompose();

const paragraph = (n: number) =>
  `<p>Dear *|FNAME|*, here is <a href="https://shop.example.com/offers/${n}?from=mail&amp;week=7">offer ${n}</a>, made for *|CITY:|* and for you. ${'All of it fresh. '.repeat(8)}</p>\n`;
const html = `<html><body>\n${Array.from({ length: 12 }, (_, n) => paragraph(n)).join('')}<p><a href="*|UNSUB:https://shop.example.com/bye|*">No more</a></p></body></html>\n`;
const text = `Dear *|FNAME|*,\n\n${'See https://shop.example.com/offers for what is new.\n'.repeat(20)}`;
const draft: Draft = {
  html,
  text,
  to: [{ email: 'ann@example.net', name: 'Ann', type: 'to' }],
  headers: [['Reply-To', 'shop@example.com']],
  attachments: [],
  images: [],
};
const full: Outgoing = {
  sender: 'shop@example.com',
  fromName: 'The Shop',
  subject: 'News for *|FNAME|*',
  tags: ['news'],
  template: null,
  subaccount: null,
  metadata: {},
  apiKey: null,
  trackOpens: true,
  trackClicks: 'all',
  globalVars: [{ name: 'CITY', content: 'Köln' }],
  rcptVars: { 'ann@example.net': [{ name: 'FNAME', content: 'Ann' }] },
  rcptMetadata: {},
  preserveRecipients: false,
  autoText: false,
  signingDomain: null,
  pool: null,
  form: 'draft',
};
const { privateKey } = generateKeyPairSync('rsa', {
  modulusLength: 2048,
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  publicKeyEncoding: { type: 'spki', format: 'pem' },
});
const dkim = { domain: 'example.com', selector: 'postern', privateKey };
const settings = {
  hostname: 'mx.example.org',
  returnDomain: 'return.example.org',
  publicUrl: 'https://mail.example.org',
  secret: toToken('bench', 'open', 1, '0'),
  trace: '',
};

function job(n: number, outgoing: Outgoing, body: Buffer, signed: boolean): ComposeJob {
  return {
    outgoing,
    body: { kind: 'memory', bytes: body },
    recipient: 'ann@example.net',
    id: sentId(String(n)),
    accountNumber: 7,
    at: Date.UTC(2026, 0, 5),
    settings,
    dkim: signed ? dkim : null,
  };
}

async function measure(name: string, outgoing: Outgoing, body: Buffer, signed: boolean): Promise<void> {
  let best = Infinity;
  let bytes = 0;
  for (let round = 0; round < Number(values.rounds); round++) {
    const before = process.cpuUsage();
    for (let n = 0; n < count; n++) bytes = (await composeMail(job(n, outgoing, body, signed))).bytes.length;
    const { user, system } = process.cpuUsage(before);
    best = Math.min(best, (user + system) / count);
  }
  console.log(
    `${name}: ${Math.round(1e6 / best)} a second of processor time, ${(best / 1000).toFixed(2)} ms each, ${bytes} octets`,
  );
}

const plain: Outgoing = { ...full, trackOpens: false, trackClicks: 'none', globalVars: null, rcptVars: {} };
const body = Buffer.from(JSON.stringify(draft));
const document = Buffer.from((await composeMail(job(0, plain, body, false))).bytes);
console.log(`a draft of ${body.length} octets, ${count} messages a round, best of ${values.rounds}`);
await measure('draft, merged, tracked, signed', full, body, true);
await measure('draft, merged, tracked', full, body, false);
await measure('draft', plain, body, false);
await measure('MIME document, merged, tracked, signed', { ...full, form: 'mime' }, document, true);
await measure('MIME document, merged, tracked', { ...full, form: 'mime' }, document, false);
await measure('MIME document, signed', { ...plain, form: 'mime' }, document, true);
