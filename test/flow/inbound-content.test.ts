import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

const MIB = 1024 * 1024;
const header = (...fields: string[]) =>
  ['From: Ada <ada@example.org>', 'To: a@in.test', ...fields, '', ''].join('\r\n');

describe('the content of inbound mail, through the whole daemon', function () {
  this.timeout(60_000);
  let hook: Receiver;
  let postern: TestDaemon;

  before(async () => {
    hook = await startReceiver();
    postern = await startDaemon();
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
  });
  after(async () => {
    await postern.stop();
    await hook.stop();
  });

  /** Sends a message, and answers the id of its delivery and what was posted for it. */
  async function posted(mail: string | Buffer): Promise<{ id: string; value: string }> {
    const before = hook.requests.length;
    expect(await sendMail(postern.smtp, { from: 'ada@example.org', to: 'a@in.test' }, mail)).to.match(/^250 /);
    const post = await until('the post', () => hook.requests[before]);
    const value = new URLSearchParams(post.body.toString()).get('mandrill_events') ?? '';
    return { id: JSON.parse(value)[0]._id, value };
  }

  async function payload(id: string): Promise<string> {
    const body = JSON.stringify({ key: postern.key, id });
    const response = await fetch(`${postern.base}/api/1.0/inbound/payload.json`, { method: 'POST', body });
    expect(response.status).to.equal(200);
    return response.text();
  }

  const large = (bytes: number) =>
    `${header('Subject: large', 'Content-Type: multipart/mixed; boundary=b')}--b\r\n\r\nSee the file.\r\n--b\r\n` +
    'Content-Type: application/octet-stream; name=f.bin\r\nContent-Transfer-Encoding: base64\r\n\r\n' +
    `${'QUJD'
      .repeat(19)
      .concat('\r\n')
      .repeat(Math.ceil(bytes / 78))}--b--\r\n`;

  for (const [name, mail] of Object.entries<string | Buffer>({
    'a small message': message('small'),
    'a message that is not UTF-8': Buffer.from(`${header('Subject: caf\xe9')}\xa3 5\r\n`, 'latin1'),
    'a message with half a surrogate pair, and every control character': Buffer.concat([
      Buffer.from(header('Subject: =?utf-16?b?2AA=?=', 'Content-Type: text/plain; charset=utf-16le')),
      Buffer.from(Array.from({ length: 31 }, (_, n) => (n + 1 === 10 || n + 1 === 13 ? 0x20 : n + 1))),
      Buffer.from('\r\n'),
    ]),
    'a message that cannot be parsed': `${header('X-Long: '.concat('x\r\n '.repeat(1200)))}x\r\n`,
    'a message in a file': large(MIB),
    'a message whose event is in a file': large(6 * MIB),
  })) {
    it(`shows the event of ${name} exactly as it was posted`, async () => {
      const { id, value } = await posted(mail);
      const shown = await payload(id);
      expect(`[${shown}]` === value, `${shown.slice(0, 300)}\n${value.slice(0, 300)}`).to.equal(true);
    });
  }

  it('leaves no file behind when an event in a file was read fully, partly or not at all', async () => {
    const { id } = await posted(large(6 * MIB));
    const gone = () => until('no file', () => readdirSync(join(postern.dir, 'spool', 'tmp')).length === 0);
    await payload(id);
    await gone();
    const stopped = new AbortController();
    const response = await fetch(`${postern.base}/api/1.0/inbound/payload.json`, {
      method: 'POST',
      body: JSON.stringify({ key: postern.key, id }),
      signal: stopped.signal,
    });
    stopped.abort();
    await response.text().catch(() => undefined);
    await gone();
    expect(postern.log.of('api.fault')).to.deep.equal([]);
  });

  it('truncates a text at 5 MiB, between two characters', async () => {
    const text = `${'é'.repeat(36)}\r\n`.repeat((6 * MIB) / 74);
    const { id } = await posted(`${header('Content-Type: text/plain; charset=utf-8')}${text}`);
    const shown = await postern.api('/inbound/content', { id });
    expect(shown).to.include({ truncated: true, parse_error: null });
    expect(Buffer.byteLength(shown.text)).to.be.within(5 * MIB - 1, 5 * MIB);
    expect(text.replaceAll('\r', '').startsWith(shown.text)).to.equal(true);
    expect(shown.raw_bytes).to.equal(Buffer.byteLength(`${header('Content-Type: text/plain; charset=utf-8')}${text}`));
  });
});
