import { expect } from 'chai';
import { createUrlCheck } from '../../../src/webhooks/post/post.ts';
import { mandrillSignature } from '../../../src/webhooks/signing.ts';
import type { Poster } from '../../../src/webhooks/types.ts';
import { openGuard, openPoster } from '../../support/delivery.ts';
import { freePort } from '../../support/free-port.ts';
import { createTestLog } from '../../support/log.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';

describe('the check that a webhook URL exists', () => {
  let receiver: Receiver;
  let poster: Poster | undefined;
  let fault: (url: string) => Promise<string | undefined>;
  const exists = async (url: string) => (await fault(url)) === undefined;
  let log: ReturnType<typeof createTestLog>;
  /** Checks with a deadline that only a server that hangs reaches, or with a short one for a server that does. */
  async function open(timeoutMs: number) {
    await poster?.stop();
    poster = openPoster({ timeoutMs });
    fault = createUrlCheck({ poster, guard: openGuard(), log });
  }
  beforeEach(async () => {
    receiver = await startReceiver();
    log = createTestLog();
    await open(60_000);
  });
  afterEach(async () => {
    await poster?.stop();
    await receiver.stop();
  });
  const methods = () => receiver.requests.map(({ method }) => method);

  it('passes with 200 to an unsigned HEAD, and sends nothing more', async () => {
    expect(await exists(receiver.url)).to.equal(true);
    expect(methods()).to.deep.equal(['HEAD']);
    expect(receiver.requests[0]?.headers).not.to.have.property('x-mandrill-signature');
  });

  it('sends one POST without events, signed with the public test key', async () => {
    receiver.answerHead({ status: 405 });
    receiver.answer({ status: 204 });
    expect(await exists(receiver.url)).to.equal(true);
    expect(methods()).to.deep.equal(['HEAD', 'POST']);
    const [, post] = receiver.requests;
    expect(new URLSearchParams(post?.body.toString()).get('mandrill_events')).to.equal('[]');
    expect(post?.headers).to.include({
      'content-type': 'application/x-www-form-urlencoded',
      'x-mandrill-signature': mandrillSignature('test-webhook', receiver.url, { mandrill_events: '[]' }),
    });
  });

  it('logs why it failed', async () => {
    receiver.answerHead({ status: 404 });
    receiver.answer({ status: 500 });
    await exists(receiver.url);
    await exists('http://user:secret@10.0.0.1/hook');
    const told = log.of('endpoint.unverified').map(({ fields }) => fields);
    expect(told[0]).to.include({ host: new URL(receiver.url).host, status: 500 });
    expect(told[1]).to.include({ host: '10.0.0.1', error: 'forbidden address' });
    receiver.answerHead({ status: 200 });
    await exists(receiver.url);
    expect(log.lines).to.have.length(2);
  });

  it('accepts only 200 for HEAD, but any 2xx for POST', async () => {
    receiver.answerHead({ status: 204 });
    receiver.answer({ status: 500 });
    expect(await exists(receiver.url)).to.equal(false);
    receiver.answer({ status: 202 });
    expect(await exists(receiver.url)).to.equal(true);
  });

  it('signs as consumers expect', async () => {
    const signature = mandrillSignature('test-webhook', 'https://example.com/hook', { mandrill_events: '[]' });
    expect(signature).to.equal('q1iFfhUSFU7Unr1lnKqKA1TGkbM=');
  });

  it('fails when both fail, hang or redirect', async () => {
    await open(300);
    for (const how of [
      { status: 404 },
      'hang',
      'reset',
      'malformed',
      { redirect: receiver.url, status: 301 },
    ] as const) {
      receiver.answerHead(how);
      receiver.answer(how);
      expect(await exists(receiver.url), JSON.stringify(how)).to.equal(false);
    }
  });

  it('fails, after one request, for a forbidden or unreachable host', async () => {
    for (const url of [
      'http://10.0.0.1/',
      'https://nowhere.example/',
      'http://127.0.0.1:25/',
      'ftp://x/',
      'nonsense',
    ]) {
      expect(await exists(url), url).to.equal(false);
    }
    expect(receiver.connections()).to.equal(0);
  });

  it('returns the cause to the caller: nothing listens, or the answer', async () => {
    const port = await freePort();
    expect(await fault(`http://127.0.0.1:${port}/hook`)).to.equal(`connection refused at 127.0.0.1:${port}`);
    receiver.answerHead({ status: 404 });
    receiver.answer({ status: 404 });
    expect(await fault(receiver.url)).to.equal('a POST without events was answered 404');
    await open(300);
    receiver.answerHead('hang');
    receiver.answer('hang');
    expect(await fault(receiver.url)).to.equal(`timeout at ${new URL(receiver.url).host}`);
  });

  it('reports a forbidden port before the name is looked up', async () => {
    const port = (n: number) => `webhooks may use port 80, 443 and those above 1023, not port ${n}`;
    expect(await fault('http://127.0.0.1:25/hook')).to.equal(port(25));
    expect(await fault('https://nowhere.test:465/')).to.equal(port(465));
    expect(await fault('https://[2001:db8::1]:1023/')).to.equal(port(1023));
    expect(await fault('ftp://hooks.test/')).to.equal('the URL must begin with http:// or https://');
    expect(log.of('endpoint.unverified')[0]?.fields.error).to.equal(`forbidden address: ${port(25)}`);
  });

  it('reports the same for an unknown name and one in a forbidden network, so that internal names are not revealed', async () => {
    const names = {
      'db.internal.test': ['10.0.0.7'],
      'mixed.test': ['192.0.2.1', '10.0.0.7'],
      'broken.test': 'failure',
    } as const;
    const inside = openPoster({ names });
    const ask = createUrlCheck({ poster: inside, guard: openGuard({ names }), log });
    const causes = await Promise.all(
      ['nowhere.test', 'db.internal.test', 'mixed.test'].map((name) => ask(`https://${name}/`)),
    );
    expect(new Set(causes)).to.deep.equal(new Set(['the host has no address that webhooks may reach']));
    expect(await ask('http://10.0.0.7/')).to.equal(causes[0]);
    expect(await ask('https://broken.test/')).to.equal('the name servers did not answer');
    await inside.stop();
  });
});
