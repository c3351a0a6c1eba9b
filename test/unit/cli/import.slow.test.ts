import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { expect } from 'chai';
import { postern, type Ran } from '../../support/command.ts';
import { startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { tempDir } from '../../support/temp.ts';

const MAIN = new URL('../../../src/main.ts', import.meta.url).pathname;

describe('postern import mandrill', () => {
  let source: TestDaemon;
  let target: TestDaemon;
  let receiver: Receiver;
  let dir: string;
  let theirs: Server | undefined;

  beforeEach(async () => {
    dir = await tempDir();
    [source, target, receiver] = await Promise.all([startDaemon(), startDaemon(), startReceiver()]);
    writeFileSync(join(dir, 'ours'), `${target.key}\n`);
  });
  afterEach(async () => {
    theirs?.close();
    theirs = undefined;
    await Promise.all([source.stop(), target.stop(), receiver.stop()]);
  });

  const importing = (...argv: string[]): Promise<Ran> =>
    postern(
      [
        'import',
        'mandrill',
        '--from',
        `${source.base}/api/1.0`,
        '--to',
        `${target.base}/api/1.0`,
        '--key-file',
        join(dir, 'ours'),
        ...argv,
      ],
      { MANDRILL_API_KEY: source.key },
    );

  async function fill(): Promise<void> {
    const { api } = source;
    await api('/subaccounts/add', { id: 'shop', name: 'The shop', notes: 'since May', custom_quota: 42 });
    await api('/subaccounts/add', { id: 'idle' });
    await api('/subaccounts/pause', { id: 'idle' });
    await api('/templates/add', {
      name: 'Both',
      code: '<p mc:edit="main">old</p>',
      subject: 'Old',
      labels: ['news'],
      publish: true,
    });
    await api('/templates/update', { name: 'Both', code: '<p mc:edit="main">new</p>', subject: 'New', publish: false });
    await api('/templates/add', { name: 'Draft', code: '<p>draft</p>', publish: false });
    await api('/whitelists/add', { email: 'friend@white.example', comment: 'a friend' });
    await api('/rejects/add', { email: 'no@reject.example', comment: 'asked by phone' });
    await api('/rejects/add', { email: 'no@shop.example', subaccount: 'shop' });
    await api('/senders/add-domain', { domain: 'sender.example' });
    await api('/webhooks/add', { url: `${receiver.url}/events`, description: 'all of it', events: ['open', 'click'] });
    await api('/inbound/add-domain', { domain: 'in.example' });
    await api('/inbound/add-route', {
      domain: 'in.example',
      pattern: 'support-*',
      url: `${receiver.url}/mail`,
      batch_events: 5,
    });
  }

  it('imports everything of an account unchanged', async () => {
    await fill();
    const { code, out } = await importing();
    expect(code, out).to.equal(0);
    expect(await target.api('/subaccounts/info', { id: 'shop' })).to.include({
      name: 'The shop',
      notes: 'since May',
      custom_quota: 42,
      status: 'active',
    });
    expect(await target.api('/subaccounts/info', { id: 'idle' })).to.include({ status: 'paused' });
    const {
      created_at: _1,
      updated_at: _2,
      published_at: at,
      draft_updated_at: _3,
      ...both
    } = await target.api('/templates/info', { name: 'Both' });
    expect(at).to.be.a('string');
    expect(both).to.include({
      code: '<p mc:edit="main">new</p>',
      subject: 'New',
      publish_code: '<p mc:edit="main">old</p>',
      publish_subject: 'Old',
    });
    expect(both.labels).to.deep.equal(['news']);
    expect(await target.api('/templates/info', { name: 'Draft' })).to.include({
      code: '<p>draft</p>',
      published_at: null,
    });
    expect((await target.api('/whitelists/list'))[0]).to.include({ email: 'friend@white.example', detail: 'a friend' });
    expect((await target.api('/rejects/list', {}))[0]).to.include({
      email: 'no@reject.example',
      detail: 'custom: asked by phone',
      reason: 'custom',
      expires_at: null,
    });
    expect((await target.api('/rejects/list', { subaccount: 'shop' }))[0]).to.include({
      email: 'no@shop.example',
      subaccount: 'shop',
    });
    expect((await target.api('/senders/domains')).map(({ domain }: { domain: string }) => domain)).to.include(
      'sender.example',
    );
    expect((await target.api('/webhooks/list'))[0])
      .to.include({ url: `${receiver.url}/events`, description: 'all of it' })
      .and.to.deep.include({ events: ['open', 'click'] });
    expect((await target.api('/inbound/routes', { domain: 'in.example' }))[0]).to.include({
      pattern: 'support-*',
      url: `${receiver.url}/mail`,
      batch_events: 5,
    });
  });

  it('reports imported items and the next steps, and changes nothing the second time', async () => {
    await fill();
    expect((await importing()).out)
      .to.match(/templates\s+2\s+0\s+2\s+0/)
      .and.to.contain('webhooks: for each: give its consumer the new key')
      .and.to.contain('inbound domains: for each: change its MX');
    const before = await target.api('/templates/info', { name: 'Both' });
    const again = await importing();
    expect(again.code).to.equal(0);
    expect(again.out)
      .to.match(/templates\s+2\s+2\s+0\s+0/)
      .and.to.match(/inbound routes\s+1\s+1\s+0\s+0/);
    expect(await target.api('/templates/info', { name: 'Both' })).to.deep.equal(before);
    expect(await target.api('/rejects/list')).to.have.length(2);
  });

  it('continues an interrupted import, and keeps later changes here', async () => {
    await fill();
    await source.api('/templates/add', { name: 'Mine', code: 'old', publish: true });
    await source.api('/templates/update', { name: 'Mine', code: 'new', publish: false });
    await target.api('/subaccounts/add', { id: 'idle' });
    await target.api('/templates/add', {
      name: 'Both',
      code: '<p mc:edit="main">old</p>',
      subject: 'Old',
      labels: ['news'],
      publish: true,
    });
    await target.api('/templates/add', { name: 'Mine', code: 'old, and mine', publish: true });
    expect((await importing()).code).to.equal(0);
    expect(await target.api('/subaccounts/info', { id: 'idle' })).to.include({ status: 'paused' });
    expect(await target.api('/templates/info', { name: 'Both' })).to.include({
      code: '<p mc:edit="main">new</p>',
      publish_code: '<p mc:edit="main">old</p>',
    });
    expect(await target.api('/templates/info', { name: 'Mine' })).to.include({ code: 'old, and mine' });
  });

  it('waits when the API asks to, as a process too', async () => {
    await fill();
    let calls = 0;
    theirs = createServer((request, response) => {
      if (calls++ === 2) return response.writeHead(429, { connection: 'close' }).end();
      const body = request
        .reduce((all: Buffer[], part: Buffer) => [...all, part], [])
        .then((parts) => Buffer.concat(parts));
      body
        .then((bytes) =>
          fetch(`${target.base}${request.url}`, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: new Uint8Array(bytes),
          }),
        )
        .then(
          async (answer) => response.writeHead(answer.status, { connection: 'close' }).end(await answer.text()),
          () => response.destroy(),
        );
    });
    await new Promise<void>((resolve) => theirs?.listen(0, '127.0.0.1', resolve));
    const address = theirs.address();
    const argv = [
      'import',
      'mandrill',
      '--from',
      `${source.base}/api/1.0`,
      '--to',
      `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}/api/1.0`,
      '--key-file',
      join(dir, 'ours'),
    ];
    const child = spawn(process.execPath, [MAIN, ...argv], {
      env: { ...process.env, MANDRILL_API_KEY: source.key },
      stdio: 'ignore',
    });
    const [code] = await once(child, 'exit');
    expect(code).to.equal(0);
    expect(await target.api('/subaccounts/list')).to.have.length(2);
  }).timeout(60_000);

  it('only prints its steps with --dry-run, and imports only what --only names', async () => {
    await fill();
    expect((await importing('--dry-run')).out).to.match(/would be imported/);
    expect(await target.api('/templates/list')).to.deep.equal([]);
    expect((await importing('--only', 'templates', '--json')).json()).to.deep.equal([
      { kind: 'templates', found: 2, there: 0, imported: 2, failed: [], notes: [] },
    ]);
    expect(await target.api('/subaccounts/list')).to.deep.equal([]);
  });

  it('continues after items that the target rejects, names them, and exits with 1', async () => {
    await fill();
    await receiver.stop();
    receiver = await startReceiver();
    const { code, out } = await importing();
    expect(code).to.equal(1);
    expect(out).to.match(/webhooks\s+http:\S+\/events\s+Validation error: .*We can't verify that the URL exists/);
    expect(await target.api('/templates/list')).to.have.length(2);
  });

  it('reads a list longer than a page', async function () {
    this.timeout(60_000);
    const addresses = Array.from({ length: 1100 }, (_, i) => `${i % 7 === 0 ? 'x' : 'user'}${i}@long.example`);
    for (let at = 0; at < addresses.length; at += 20)
      await Promise.all(addresses.slice(at, at + 20).map((email) => source.api('/rejects/add', { email })));
    const [rejects] = (await importing('--only', 'rejects', '--json')).json();
    expect(rejects).to.include({ found: 1100, imported: 1100 });
    for (const email of ['x0@long.example', 'user1098@long.example'])
      expect(await target.api('/rejects/list', { email })).to.have.length(1);
  });

  it('skips soft bounces, and reads records with missing fields', async () => {
    const answers: Readonly<Record<string, unknown>> = {
      '/users/ping.json': 'PONG!',
      '/subaccounts/list.json': [],
      '/rejects/list.json': [
        { email: 'soft@far.example', reason: 'soft-bounce' },
        { email: 'hard@far.example', reason: 'hard-bounce', detail: '550 unknown', expires_at: '2027-01-01 00:00:00' },
      ],
    };
    theirs = createServer((request, response) => {
      request.resume().on('end', () => response.end(JSON.stringify(answers[request.url ?? ''])));
    });
    await new Promise<void>((resolve) => theirs?.listen(0, '127.0.0.1', resolve));
    const address = theirs.address();
    const ran = await importing(
      '--from',
      `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
      '--only',
      'rejects',
    );
    expect(ran.out).to.contain('1 soft bounces were skipped');
    expect(
      (await target.api('/rejects/list')).map(({ email, detail }: Record<string, string>) => [email, detail]),
    ).to.deep.equal([['hard@far.example', 'hard-bounce: 550 unknown']]);
  });

  it('distinguishes a wrong key, a wrong address and a missing option, before it starts', async () => {
    writeFileSync(join(dir, 'wrong'), 'no-such-key-at-all-123');
    const wrongKey = await importing('--from-key-file', join(dir, 'wrong'));
    expect(wrongKey).to.include({ code: 69 });
    expect(wrongKey.err).to.contain('source account: Invalid API key');
    const wrongUrl = await importing('--from', `${receiver.url}/`);
    expect(wrongUrl.code).to.equal(69);
    expect(wrongUrl.err).to.contain('is this the URL of an API?');
    expect((await postern(['import', 'mandrill'], {})).code).to.equal(64);
    expect((await importing('--only', 'everything')).code).to.equal(64);
    expect(await importing('--from-key-file', join(dir, 'nothing'))).to.include({ code: 64 });
    expect((await postern(['import', 'mandrill', '--key-file', join(dir, 'ours')], {})).err).to.contain(
      'MANDRILL_API_KEY',
    );
  });
});
