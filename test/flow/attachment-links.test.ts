import { createHash, randomBytes } from 'node:crypto';
import { readdir, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { request } from 'undici';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type Received, type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const MEGABYTE = 1024 * 1024;
const FILE = randomBytes(3 * MEGABYTE);
const NOTE = 'small enough';
const LARGE: SendMailOptions = {
  subject: 'Large',
  text: 'see the file',
  attachments: [
    { filename: 'plan für Ann/2.bin', content: FILE },
    { filename: 'note.txt', content: NOTE },
  ],
};

describe('attachment links', function () {
  this.timeout(60_000);
  let zone: Zone;
  let postern: TestDaemon;
  let hook: Receiver;
  before(async () => {
    zone = await startZone({ 'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] } });
    postern = await startDaemon({ POSTERN_DNS__SERVERS: zone.server, POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32' });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
  });
  after(async () => {
    await postern?.stop();
    await zone?.stop();
  });
  beforeEach(async () => {
    hook = await startReceiver();
  });
  afterEach(() => hook.stop());

  const posts = () => hook.requests.filter(({ method }) => method === 'POST');
  const folder = () => join(postern.dir, 'links');
  const added = (pattern: string, rest: object) =>
    postern.api('/inbound/add-route', { domain: 'in.test', pattern, url: hook.url, ...rest });
  async function send(to: string, message: SendMailOptions = LARGE): Promise<void> {
    const transport = createTransport({ ...postern.smtp, name: 'sender.test', ignoreTLS: true });
    await transport.sendMail({ from: 'zoe@sender.test', to, ...message });
    transport.close();
  }
  /** The message of the last post in Mandrill's form. */
  const eventIn = ({ body }: Received) =>
    JSON.parse(new URLSearchParams(body.toString()).get('mandrill_events') ?? '')[0].msg;
  /** Adds a route and sends it a mail; answers the post, without the test of the URL. */
  async function posted(pattern: string, rest: object, message?: SendMailOptions): Promise<Received> {
    await added(pattern, rest);
    const known = posts().length;
    await send(`${pattern}@in.test`, message);
    return until('the post', () => posts()[known]);
  }
  /** A link begins with public_url, which leads nowhere in a test. */
  async function fetchLink(url: string, headers: Record<string, string> = {}, method: 'GET' | 'HEAD' | 'POST' = 'GET') {
    const answer = await request(`${postern.base}${new URL(url).pathname}`, { method, headers });
    const bytes = Buffer.from(await answer.body.arrayBuffer());
    return { status: answer.statusCode, headers: answer.headers, bytes };
  }
  const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

  it('reduce the post of a large message to a few kB, and serve the file', async () => {
    const post = await posted('links', { attachments: 'link' });
    expect(post.body.length).to.be.below(10_000);
    const msg = eventIn(post);
    expect(msg).not.to.have.property('raw_msg');
    const [large, small]: any[] = Object.values(msg.attachments);
    expect(large).to.include({ content: '', base64: false, size: FILE.length, type: 'application/octet-stream' });
    expect(small).to.include({ name: 'note.txt', size: NOTE.length });
    const got = await fetchLink(large.url);
    expect(got.status).to.equal(200);
    expect(got.headers).to.include({
      'content-type': 'application/octet-stream',
      'content-disposition': 'attachment',
      'content-length': String(FILE.length),
      'x-content-type-options': 'nosniff',
      'accept-ranges': 'bytes',
    });
    expect(sha256(got.bytes)).to.equal(sha256(FILE));
    expect((await fetchLink(small.url)).bytes.toString()).to.equal(NOTE);
  });

  it('inline files up to link_over', async () => {
    const over = eventIn(await posted('over', { attachments: 'link', link_over: 100 }));
    const [large, small]: any[] = Object.values(over.attachments);
    expect(large.url).to.be.a('string');
    expect(small).to.deep.equal({ name: 'note.txt', type: 'text/plain', content: NOTE, base64: false });

    const none = eventIn(await posted('none', { attachments: 'none' }));
    for (const file of Object.values<any>(none.attachments)) {
      expect(file).to.include({ content: '' });
      expect(file).to.have.property('size');
      expect(file).not.to.have.property('url');
    }
  });

  it('have a field in each format with the parsed message', async () => {
    const of = async (format: string) => posted(`in-${format}`, { format, attachments: 'link' });
    const json = JSON.parse((await of('json')).body.toString());
    expect(json).not.to.have.property('raw');
    expect(json.attachments[0]).to.include({ size: FILE.length, content: null });
    const postmark = JSON.parse((await of('postmark')).body.toString());
    expect(postmark.Attachments[0]).to.include({ Content: '', ContentLength: FILE.length });
    const cloudmailin = JSON.parse((await of('cloudmailin')).body.toString());
    expect(cloudmailin.attachments[0]).to.include({ size: FILE.length }).and.not.to.have.property('content');
    const form = async (format: string) => {
      const { body, headers } = await of(format);
      return new Response(Uint8Array.from(body), {
        headers: { 'content-type': String(headers['content-type']) },
      }).formData();
    };
    const [mailgun, sendgrid] = [await form('mailgun'), await form('sendgrid')];
    expect(mailgun.get('attachment-count')).to.equal('0');
    expect(sendgrid.get('attachments')).to.equal('0');
    const urls = [
      json.attachments[0].url,
      postmark.Attachments[0].ContentURL,
      cloudmailin.attachments[0].url,
      JSON.parse(String(mailgun.get('attachments')))[0].url,
      JSON.parse(String(sendgrid.get('attachment-links')))[0].url,
    ];
    for (const url of urls) {
      const got = await fetchLink(url, {}, 'HEAD');
      expect([got.status, got.headers['content-length']]).to.deep.equal([200, String(FILE.length)]);
    }
  });

  it('are rejected for formats that post the message itself', async () => {
    for (const format of ['raw', 'mailgun-mime', 'sendgrid-raw']) {
      const { status, body } = await postern.ask('/inbound/add-route', {
        ...{ domain: 'in.test', pattern: format, url: hook.url, format, attachments: 'link' },
      });
      expect([status, body.name]).to.deep.equal([422, 'ValidationError']);
      expect(body.message).to.contain(`The format ${format} is the whole message`);
    }
    const { id } = await added('later', { attachments: 'link' });
    const changed = await postern.ask('/inbound/update-route', { id, format: 'raw' });
    expect(changed.body.name).to.equal('ValidationError');
    expect((await postern.api('/inbound/update-route', { id, format: 'raw', attachments: 'auto' })).format).to.equal(
      'raw',
    );
  });

  /** Has the waiting message of a route posted again; answers that post. */
  async function retried(): Promise<Received> {
    const known = posts().length;
    await until('the attempt to be settled', async () => {
      const [waiting] = await postern.api('/inbound/deliveries', { state: 'waiting' });
      return waiting?.attempts.length > 0;
    });
    await postern.api('/endpoints/retry', { url: hook.url });
    return until('the post after the retry', () => posts()[known]);
  }

  it('are used at the next attempt if the receiver answers 413', async () => {
    hook.answer(({ body }) => ({ status: body.length > MEGABYTE ? 413 : 200 }));
    const { id: route } = await added('auto', {});
    await send('auto@in.test');
    await until('the post', () => posts()[0]);
    const [large]: any[] = Object.values(eventIn(await retried()).attachments);
    expect(sha256((await fetchLink(large.url)).bytes)).to.equal(sha256(FILE));
    const record = await until('it is delivered', async () => {
      const [found] = await postern.api('/inbound/deliveries', { route });
      return found.state === 'delivered' && found;
    });
    expect(record.attempts.map(({ status }: any) => status)).to.deep.equal([413, 200]);
    expect(record.hint).to.contain('The receiver responds with 413');
    expect(postern.log.lines.some(({ event }) => event === 'delivery.too_large')).to.equal(true);
  });

  it('are used after the second 500 for a form receiver without a status for oversize posts', async () => {
    hook.answer(({ body }) => ({ status: body.length > MEGABYTE ? 500 : 200 }));
    await added('rack', {});
    await send('rack@in.test');
    await until('the post', () => posts()[0]);
    expect((await retried()).body.length, 'one 500 may be an accident').to.be.above(FILE.length);
    await until('the second attempt to be settled', async () => {
      const [waiting] = await postern.api('/inbound/deliveries', { state: 'waiting' });
      return waiting?.attempts.length === 2;
    });
    expect((await retried()).body.length).to.be.below(10_000);
  });

  it('are not used with inline, whatever the receiver answers', async () => {
    hook.answer({ status: 413 });
    await added('inline', { attachments: 'inline' });
    await send('inline@in.test');
    await until('the post', () => posts()[0]);
    hook.answer({ status: 200 });
    expect((await retried()).body.length).to.be.above(FILE.length);
  });

  it('support ranges and answer 304 for an unchanged file', async () => {
    const [{ url }]: any[] = Object.values(eventIn(await posted('ranges', { attachments: 'link' })).attachments);
    const range = async (text: string, more: Record<string, string> = {}) => {
      const got = await fetchLink(url, { range: text, ...more });
      return { ...got, range: got.headers['content-range'] };
    };
    const all = FILE.length;
    const some = await range('bytes=10-19');
    expect([some.status, some.range]).to.deep.equal([206, `bytes 10-19/${all}`]);
    expect(some.bytes.equals(FILE.subarray(10, 20))).to.equal(true);
    expect((await range('bytes=-5')).bytes.equals(FILE.subarray(-5))).to.equal(true);
    expect((await range(`bytes=${all - 3}-${all + 10}`)).bytes.equals(FILE.subarray(-3))).to.equal(true);
    const outside = await range(`bytes=${all}-`);
    expect([outside.status, outside.range, outside.bytes.length]).to.deep.equal([416, `bytes */${all}`, 0]);
    for (const odd of ['bytes=5-1', 'bytes=0-1,4-5', 'lines=1-2', 'bytes=-', 'bytes=a-b'])
      expect((await range(odd)).status, odd).to.equal(200);
    const etag = String((await fetchLink(url, {}, 'HEAD')).headers.etag);
    expect((await fetchLink(url, { 'if-none-match': etag })).status).to.equal(304);
    expect((await range('bytes=0-1', { 'if-range': '"another"' })).status).to.equal(200);
    expect((await range('bytes=0-1', { 'if-range': etag })).status).to.equal(206);
  });

  it('answer 404 for a changed or guessed link', async () => {
    const [{ url }]: any[] = Object.values(eventIn(await posted('guess', { attachments: 'link' })).attachments);
    const [, , token = ''] = new URL(url).pathname.split('/');
    const [until36 = '', hash = '', ...seal] = token.split('-');
    const given = seal.join('-');
    const later = (Number.parseInt(until36, 36) + 1).toString(36);
    const forged = [
      `${later}-${hash}-${given}`,
      `${until36}-${sha256(Buffer.from(NOTE))}-${given}`,
      `${until36}-${hash}-${given.slice(0, -1)}`,
      `${until36}-${hash}-${given}A`,
      `${until36}-${hash.toUpperCase()}-${given}`,
      `${until36}-${hash}-`,
      hash,
      '..%2f..%2fpostern.db',
      '%00',
    ];
    for (const one of forged) expect((await fetchLink(`http://x/inbound-files/${one}`)).status, one).to.equal(404);
    let taken = 0;
    for (let n = 0; n < 300; n++) {
      const guess = `${until36}-${hash}-${randomBytes(32).toString('base64url')}`;
      if ((await fetchLink(`http://x/inbound-files/${guess}`, {}, 'HEAD')).status !== 404) taken++;
    }
    expect(taken).to.equal(0);
    expect((await fetchLink(`http://x/inbound-files/${token}`, {}, 'POST')).status).to.be.within(404, 405);
    expect((await fetchLink(url, {}, 'HEAD')).status).to.equal(200);
  });

  it('share one file among all recipients and attempts, and recreate it if it is gone', async () => {
    await rm(folder(), { recursive: true, force: true });
    await posted('first', { attachments: 'link' });
    await posted('second', { attachments: 'link' });
    expect(await readdir(folder())).to.have.length(2);
    for (const name of await readdir(folder())) await utimes(join(folder(), name), 1, 1);
    await rm(join(folder(), sha256(Buffer.from(NOTE))));
    const [large, small]: any[] = Object.values(eventIn(await posted('third', { attachments: 'link' })).attachments);
    for (const { url } of [large, small]) expect((await fetchLink(url, {}, 'HEAD')).status).to.equal(200);
    await rm(folder(), { recursive: true, force: true });
    expect((await fetchLink(large.url)).status).to.equal(404);
  });
});
