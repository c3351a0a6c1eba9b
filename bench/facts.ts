import { authorOf } from '../src/mail/addresses/author.ts';
import { factsOfMessage } from '../src/mail/facts/facts.ts';
import { parseMessage } from '../src/mail/message.ts';
import { scanStructure } from '../src/mail/mime/structure.ts';
import { createFormEncoder } from '../src/webhooks/render/form.ts';
import { eventPieces, type InboundEvent } from '../src/webhooks/render/payload.ts';
import { readOptions, usually } from './options.ts';

/**
 * Processor time that a message costs the thread that renders it, parsed and written as a signed form, without facts
 * and with them. Rounds are interleaved: each kind of message, without and with, in turn.
 */
const values = readOptions('node bench/facts.ts', 'Microseconds a message with and without facts.', {
  messages: usually(30, 'messages of each kind a round'),
  rounds: usually(7, 'interleaved rounds, of which the median counts'),
});
const count = Number(values.messages);

const offer = (n: number) =>
  `<tr><td class="mobile-hide" width="50%" style="padding:10px 20px;font-family:Arial,sans-serif;font-size:14px;line-height:20px;color:#333333;background-color:#f4f4f4"><a href="https://click.shop.example/c/${n}/abcdef0123456789" style="color:#0b57d0;text-decoration:none"><img src="https://img.shop.example/${n}.png" alt="Offer ${n}" width="280" style="display:block;border:0"></a></td><td valign="top" style="padding:10px 20px;font-size:14px;color:#333"><h2 style="margin:0;font-size:18px">Offer ${n}</h2><p style="margin:0 0 10px">All of it fresh &amp; made for you, this week only. ${'Nothing else is like it. '.repeat(4)}</p><a class="button" href="https://click.shop.example/c/${n}/0123456789abcdef">shop.example.com</a></td></tr>\n`;
const rule = (n: number) => `.s${n} { padding: ${n}px; color: #33${n % 10}${n % 10}33 }\n`;
const sheet = (rules: number) =>
  `<style>body{margin:0;padding:0}table,td{border-collapse:collapse}img{border:0}p{margin:13px 0}${Array.from({ length: rules }, (_, n) => rule(n)).join('')}@media only screen and (max-width:600px){.mobile-hide{display:none!important}.button{width:100%!important}}</style><!--[if mso]><xml><o:OfficeDocumentSettings><o:PixelsPerInch>96</o:PixelsPerInch></o:OfficeDocumentSettings></xml><![endif]-->`;
const newsletter = (offers: number, rules: number) =>
  `<!doctype html><html><head><meta charset="utf-8"><title>News</title>${sheet(rules)}</head><body style="background-color:#eeeeee"><div style="display:none;max-height:0;overflow:hidden;mso-hide:all">This week: fresh offers ${'&zwnj;&nbsp;'.repeat(60)}</div><table width="600" align="center" bgcolor="#ffffff">${Array.from({ length: offers }, (_, n) => offer(n)).join('')}</table><p style="font-size:11px;color:#999"><a href="https://shop.example.com/bye">No more</a></p></body></html>`;
const answer = `<div dir="ltr">Yes, that works.<br><br>Ann</div><br><div class="gmail_quote"><div dir="ltr" class="gmail_attr">On Mon, Jan 5, 2026 at 3:04 PM Bob &lt;<a href="mailto:bob@example.com">bob@example.com</a>&gt; wrote:<br></div><blockquote class="gmail_quote" style="margin:0px 0px 0px 0.8ex;border-left:1px solid rgb(204,204,204);padding-left:1ex">${'<div>Does it work? We asked before.</div>'.repeat(20)}</blockquote></div>`;
const report = `<html><body><table border="1">${Array.from({ length: 2000 }, (_, n) => `<tr><td>${n}</td><td>Widget ${n}</td><td>${n * 7}</td></tr>`).join('')}</table></body></html>`;

const text = 'Dear Ann,\n\nhere is what you asked for.\n'.repeat(20);
const mail = (html?: string) =>
  Buffer.from(
    [
      'From: The Shop <shop@example.com>',
      'To: ann@example.net',
      'Subject: News of the week',
      'Date: Mon, 05 Jan 2026 12:00:00 +0000',
      'Message-ID: <1@example.com>',
      'MIME-Version: 1.0',
      ...(html === undefined
        ? ['Content-Type: text/plain; charset=utf-8', '', text]
        : [
            'Content-Type: multipart/alternative; boundary="b"',
            '',
            '--b',
            'Content-Type: text/plain; charset=utf-8',
            '',
            text,
            '--b',
            'Content-Type: text/html; charset=utf-8',
            '',
            html,
            '--b--',
            '',
          ]),
    ].join('\r\n'),
  );
const KINDS = {
  'plain text': mail(),
  'an answer': mail(answer),
  'a newsletter': mail(newsletter(30, 60)),
  'a long newsletter': mail(newsletter(90, 300)),
  'a table of 2,000 rows': mail(report),
};

const encoder = createFormEncoder();

async function render(bytes: Buffer, withFacts: boolean): Promise<number> {
  const scanned = scanStructure(bytes);
  if (scanned.breach !== undefined) throw new Error(scanned.breach);
  const parsed = parseMessage(bytes, scanned.root);
  const author = authorOf(parsed.fields, 'shop@example.com');
  const inbound: InboundEvent = {
    ...{
      id: 'm1-abc',
      recipient: 'ann@example.net',
      raw: bytes,
      root: scanned.root,
      author,
      hostname: 'mx.example.net',
    },
    message: {
      ...{ id: 'm1', receivedAt: 1_767_614_400_000, trace: '', verdicts: null },
      envelope: { mailFrom: 'shop@example.com', client: { address: '192.0.2.1', helo: 'x', tls: null } },
    },
    verdicts: {
      spf: { result: 'pass', detail: '' },
      dkim: { signed: true, valid: true },
      dmarc: { result: 'pass', policy: 'none', aligned: true },
      arc: { result: 'none' },
    },
    senderAuth: {
      ...{ authenticated: true, domain: 'example.com', by: 'dmarc' },
      dmarc: { result: 'pass', policy: 'none', domain: 'example.com', aligned: true },
      spf: { result: 'pass', domain: null },
      ...{ dkim: [], arc: { result: 'none', sealers: [], trusted: false } },
    },
    automated: { is: false, why: null },
    ...{ thread: null, answers: null },
    content: { parsed },
    ...(withFacts && { facts: factsOfMessage(parsed, author.mailbox?.name ?? null) }),
  };
  const signing = { keys: ['key'], url: 'https://app.example.com/', id: 'm1-abc', at: 1_767_614_400_000 };
  return encoder.toBytes(eventPieces(inbound), signing).bytes.length;
}

async function measure(bytes: Buffer, withFacts: boolean): Promise<number> {
  const began = process.threadCpuUsage();
  for (let i = 0; i < count; i++) await render(bytes, withFacts);
  const { user, system } = process.threadCpuUsage(began);
  return (user + system) / count;
}

const median = (all: readonly number[]): number => all.toSorted((a, b) => a - b)[all.length >> 1] ?? 0;
const found = Object.entries(KINDS).map(([name, bytes]) => ({ name, bytes, off: [] as number[], on: [] as number[] }));
for (let round = -1; round < Number(values.rounds); round++)
  for (const { bytes, off, on } of found)
    for (const withFacts of round % 2 === 0 ? [false, true] : [true, false]) {
      const us = await measure(bytes, withFacts);
      if (round >= 0) (withFacts ? on : off).push(us);
    }
for (const { name, bytes, off, on } of found)
  console.log(
    `${name.padEnd(24)} ${String(bytes.length).padStart(7)} bytes  without ${median(off).toFixed(0).padStart(6)} µs  with ${median(on).toFixed(0).padStart(6)} µs`,
  );
