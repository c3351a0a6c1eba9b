import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { startDaemon } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { scrape } from '../support/metrics.ts';
import { eventsAt, posted, send, startWorld, stopWorld, type World } from '../support/scan-world.ts';
import {
  EICAR,
  type FakeScanner,
  GTUBE,
  startClamd,
  startMilter,
  startRspamd,
  startSpamd,
} from '../support/scanners.ts';
import { until } from '../support/until.ts';

const HAM = { spam: 'ham', virus: 'clean', name: null, by: ['rspamd', 'clamd'], reason: null };
/** What `/inbound/replay` replays. */
const EVERYTHING = { from: '2000-01-01 00:00:00', state: 'delivered' };
const STRANGER = { from: 'ada@example.org', to: 'box@in.test' };

describe('a message scanned after the 250', function () {
  this.timeout(60_000);
  let rspamd: FakeScanner;
  let clamd: FakeScanner;
  let world: World;
  beforeEach(async () => {
    rspamd = await startRspamd();
    clamd = await startClamd();
    world = await startWorld({
      POSTERN_SCAN__RSPAMD: `http://${rspamd.address}`,
      POSTERN_SCAN__CLAMD: clamd.address,
      POSTERN_SCAN__TIMEOUT_MS: '1500',
    });
  });
  afterEach(() => stopWorld(world, rspamd, clamd));

  it('shows spam and virus results in its payload', async () => {
    for (const [subject, text] of Object.entries({ ham: 'Hello', spam: GTUBE, virus: EICAR }))
      expect(await send(world, subject, text)).to.match(/^250/);
    const events = await posted(world, 3);
    expect(events.get('ham').scan).to.deep.equal(HAM);
    expect(events.get('spam').scan).to.deep.equal({ ...HAM, spam: 'spam' });
    expect(events.get('virus').scan).to.deep.equal({ ...HAM, virus: 'infected', name: 'Eicar-Test-Signature' });
    expect(events.get('spam').spam_report).to.deep.equal({
      score: 1000,
      matched_rules: [
        { name: 'GTUBE', score: 1000, description: '' },
        { name: 'MIME_GOOD', score: -0.5, description: 'Known content-type' },
      ],
    });
    expect(Object.keys(events.get('ham')).slice(-4)).to.deep.equal(['scan', 'automated', 'thread', 'answers']);
  });

  it('is scanned once for all of its recipients and replays', async () => {
    const reply = await sendMail(world.running.smtp, { ...STRANGER, to: ['a@in.test', 'b@in.test'] }, message('one'));
    expect(reply).to.match(/^250/);
    const all = (state: string) => async () => {
      const deliveries = await world.running.api('/inbound/deliveries');
      return deliveries.length === 2 && deliveries.every((one: any) => one.state === state);
    };
    await until('both to be delivered', all('delivered'), 30_000);
    await world.running.api('/inbound/replay', EVERYTHING);
    await until('the replays', () => eventsAt(world.hook).length >= 4);
    expect(eventsAt(world.hook).map(({ msg }) => msg.scan)).to.deep.equal(eventsAt(world.hook).map(() => HAM));
    expect([rspamd.asked.length, clamd.asked.length]).to.deep.equal([1, 1]);
  });

  it('keeps its scan across a restart, even if the scanners would now decide otherwise', async () => {
    await send(world, 'virus', EICAR);
    await posted(world, 1);
    const { dir } = world.running;
    await world.running.stop();
    await Promise.all([rspamd.leave(), clamd.leave()]);
    const running = await startDaemon(
      { POSTERN_SCAN__RSPAMD: `http://${rspamd.address}`, POSTERN_SCAN__CLAMD: clamd.address },
      { dir },
    );
    world = { running, hook: world.hook };
    await running.api('/inbound/replay', EVERYTHING);
    await until('the replay', () => eventsAt(world.hook).length === 2);
    expect(eventsAt(world.hook)[1].msg.scan).to.deep.equal(eventsAt(world.hook)[0].msg.scan);
    const [shown] = await running.api('/inbound/deliveries');
    expect(shown.scan).to.include({ spam: 'ham', virus: 'infected', name: 'Eicar-Test-Signature' });
  });

  it('waits without an attempt while a scanner is unavailable, and is never called clean', async () => {
    await clamd.leave();
    for (let n = 1; n <= 20; n++)
      expect(await send(world, `mail-${n}`, n % 5 === 0 ? EICAR : 'Hello')).to.match(/^250/);
    await until('the scanner to be missed', () => world.running.log.of('scanner.down').length === 1);
    expect((await scrape(world.running.base)).of('postern_scanner_away{scanner="clamd"}')).to.equal(1);
    const waiting = await world.running.api('/inbound/deliveries');
    expect(waiting.map(({ state, attempts }: any) => [state, attempts.length])).to.deep.equal(
      waiting.map(() => ['waiting', 0]),
    );
    expect(eventsAt(world.hook)).to.deep.equal([]);
    const found = await until('the history of one', async () => {
      const { mails } = await world.running.api('/inbound/search', { query: 'state:waiting', limit: 1 });
      return mails[0];
    });
    expect((await world.running.api('/inbound/info', { id: found.id })).waits).to.deep.equal({
      kind: 'scanner',
      text: 'Waiting for a scanner: clamd does not answer',
    });
    await clamd.resume();
    const events = await posted(world, 20);
    for (let n = 1; n <= 20; n++)
      expect(events.get(`mail-${n}`).scan.virus).to.equal(n % 5 === 0 ? 'infected' : 'clean');
    expect(world.running.log.of('scanner.up')).to.have.length(1);
    const metrics = await scrape(world.running.base);
    expect(metrics.of('postern_scanner_away{scanner="clamd"}')).to.equal(0);
    expect(metrics.of('postern_scans_total{scanner="clamd",result="clean"}')).to.equal(16);
    expect(metrics.of('postern_scans_total{scanner="clamd",result="infected"}')).to.equal(4);
  });

  it('is scanned by rspamd with the details of its sender', async () => {
    await send(world, 'told');
    await posted(world, 1);
    const told = rspamd.asked[0]?.told.toLowerCase().split('\r\n') ?? [];
    expect(told[0]).to.equal('post /checkv2 http/1.1');
    expect(told).to.include.members(['from: ada@example.org', 'rcpt: box@in.test', 'ip: 127.0.0.1']);
    expect(told.some((line) => /^helo: \S+/.test(line))).to.equal(true);
    expect(told.some((line) => /^queue-id: [\w-]{20,}/.test(line))).to.equal(true);
  });
});

describe('SpamAssassin', function () {
  this.timeout(30_000);
  it('gets the sender in front of the message, and its rules become matched_rules', async () => {
    const spamd = await startSpamd();
    const world = await startWorld({ POSTERN_SCAN__SPAMD: spamd.address });
    try {
      await send(world, 'spam', GTUBE);
      const events = await posted(world, 1);
      expect(events.get('spam').spam_report).to.deep.equal({
        score: 1000,
        matched_rules: [
          { name: 'GTUBE', score: 1000, description: 'BODY: Generic Test for Unsolicited Bulk Email' },
          { name: 'NO_RELAYS', score: 0, description: 'Informational: message was not relayed via SMTP' },
        ],
      });
      expect(events.get('spam').scan).to.include({ spam: 'spam', virus: 'unknown' });
      expect(spamd.asked[0]?.message).to.match(
        /^Return-Path: <ada@example.org>\r\nReceived: from \S+ \(\[127\.0\.0\.1\]\)/,
      );
    } finally {
      await stopWorld(world, spamd);
    }
  });
});

describe('a milter', function () {
  this.timeout(30_000);
  it('gets the client, the envelope, each header field and the body', async () => {
    const milter = await startMilter();
    const world = await startWorld({ POSTERN_SCAN__MILTERS: `spam=${milter.address}` });
    try {
      await send(world, 'told', 'Hello filter');
      await send(world, 'spam', GTUBE);
      const events = await posted(world, 2);
      expect(events.get('told').scan).to.include({ spam: 'ham', virus: 'unknown' });
      expect(events.get('spam').scan).to.include({ spam: 'spam', virus: 'unknown' });
      const told = milter.asked.find(({ message }) => message.includes('Hello filter'));
      const lines = told?.told.split('\n') ?? [];
      expect(lines).to.include.members([
        'C [127.0.0.1]|4||127.0.0.1|',
        'M <ada@example.org>|',
        'R <box@in.test>|',
        'N ',
      ]);
      expect(lines).to.include('L Subject|told|');
      expect(lines.some((line) => /^H \S+\|$/.test(line))).to.equal(true);
    } finally {
      await stopWorld(world, milter);
    }
  });

  it('gives no scan for mail that it accepts at the connection', async () => {
    const milter = await startMilter({ trusting: true });
    const world = await startWorld({ POSTERN_SCAN__MILTERS: `virus=${milter.address}` });
    try {
      expect(await send(world, 'virus', EICAR)).to.match(/^250/);
      const { scan } = (await posted(world, 1)).get('virus');
      expect(scan).to.deep.include({ virus: 'unknown', by: [] });
      expect(scan.reason).to.equal('milter-1 did not look: it accepted the message without reading it');
    } finally {
      await stopWorld(world, milter);
    }
  });
});

describe('an unscanned message', function () {
  this.timeout(30_000);
  it('is unknown, with the reason, if it is larger than scan.max_bytes', async () => {
    const clamd = await startClamd();
    const world = await startWorld({ POSTERN_SCAN__CLAMD: clamd.address, POSTERN_SCAN__MAX_BYTES: '2000' });
    try {
      await send(world, 'large', 'A line of text.\r\n'.repeat(200));
      const events = await posted(world, 1);
      expect(events.get('large').scan).to.include({
        virus: 'unknown',
        reason: 'the message is larger than scan.max_bytes',
      });
      expect(clamd.asked).to.deep.equal([]);
    } finally {
      await stopWorld(world, clamd);
    }
  });

  it('has no scan in its payload without a scanner', async () => {
    const world = await startWorld({});
    try {
      await send(world, 'plain');
      const msg = (await posted(world, 1)).get('plain');
      expect(msg).not.to.have.property('scan');
      expect(msg.spam_report).to.deep.equal({ score: 0, matched_rules: [] });
    } finally {
      await stopWorld(world);
    }
  });
});

for (const threads of ['0', '2'])
  describe(`a message scanned before the reply, with ${threads} session threads`, function () {
    this.timeout(60_000);
    let rspamd: FakeScanner;
    let clamd: FakeScanner;
    let world: World;
    before(async () => {
      rspamd = await startRspamd();
      clamd = await startClamd();
      world = await startWorld({
        POSTERN_SCAN__RSPAMD: `http://${rspamd.address}`,
        POSTERN_SCAN__CLAMD: clamd.address,
        POSTERN_SCAN__TIMEOUT_MS: '2000',
        POSTERN_SCAN__WHEN: 'before',
        POSTERN_SMTP__THREADS: threads,
      });
    });
    after(() => stopWorld(world, rspamd, clamd));

    it('gets 550 if it has a virus or a scanner rejects it, otherwise 250', async () => {
      expect(await send(world, 'virus', EICAR)).to.match(/^550 5\.7\.1 /);
      expect(await send(world, 'spam', GTUBE)).to.match(/^550 5\.7\.1 /);
      expect(await send(world, 'ham')).to.match(/^250/);
      const events = await posted(world, 1);
      expect([...events.keys()]).to.deep.equal(['ham']);
      expect(events.get('ham').scan).to.deep.equal(HAM);
      expect(clamd.asked).to.have.length(3);
    });

    it('leaves no file behind if it is large and refused', async () => {
      expect(await send(world, 'large', `${'A line of text.\r\n'.repeat(40_000)}${EICAR}`)).to.match(/^550 5\.7\.1 /);
      const files = ['blobs', 'tmp'].flatMap((name) =>
        readdirSync(join(world.running.dir, 'spool', name), { recursive: true, withFileTypes: true }),
      );
      expect(files.filter((file) => file.isFile()).map((file) => file.name)).to.deep.equal([]);
    });

    it('gets 451 while a scanner is unavailable or does not answer', async () => {
      clamd.behave('silent');
      expect(await send(world, 'slow'), 'although it never answers').to.match(/^451 4\.7\.1 /);
      clamd.behave(undefined);
      await clamd.leave();
      for (let n = 0; n < 5; n++) expect(await send(world, 'away', EICAR)).to.match(/^451 4\.7\.1 /);
      await clamd.resume();
      await until('mail to be accepted again', async () => (await send(world, 'again')).startsWith('250'), 20_000);
      const events = await posted(world, 2);
      expect([...events.keys()]).to.have.members(['ham', 'again']);
    });
  });
