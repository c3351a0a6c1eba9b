import { expect } from 'chai';
import { createFastClock } from '../support/fast-clock.ts';
import { scrape } from '../support/metrics.ts';
import { type Env, eventsAt, posted, send, startWorld, stopWorld, type World } from '../support/scan-world.ts';
import {
  EICAR,
  type FakeScanner,
  GTUBE,
  nobodyConnected,
  startClamd,
  startMilter,
  startRspamd,
  startSpamd,
  type Trouble,
} from '../support/scanners.ts';
import { size } from '../support/sizes.ts';
import { until } from '../support/until.ts';

const FAKES = {
  rspamd: { start: startRspamd, env: (address: string): Env => ({ POSTERN_SCAN__RSPAMD: `http://${address}` }) },
  spamd: { start: startSpamd, env: (address: string): Env => ({ POSTERN_SCAN__SPAMD: address }) },
  clamd: { start: startClamd, env: (address: string): Env => ({ POSTERN_SCAN__CLAMD: address }) },
  'milter-1': { start: startMilter, env: (address: string): Env => ({ POSTERN_SCAN__MILTERS: `virus=${address}` }) },
};

const TROUBLES: readonly Trouble[] = ['reset', 'silent', 'drip', 'huge', 'nonsense', 'cut', { late: 1500 }];

for (const [name, { start: startFake, env }] of Object.entries(FAKES)) {
  describe(`a message scanned by ${name}`, function () {
    this.timeout(60_000);
    let scanner: FakeScanner;
    let world: World;
    before(async () => {
      scanner = await startFake();
      world = await startWorld({ ...env(scanner.address), POSTERN_SCAN__TIMEOUT_MS: '500' });
    });
    after(() => stopWorld(world, scanner));

    for (const trouble of TROUBLES) {
      const named = typeof trouble === 'string' ? trouble : 'late';
      it(`waits while the answer is of the kind: ${named}; no connection stays open`, async () => {
        scanner.behave(trouble);
        const [asked, failed] = [scanner.asked.length, world.running.log.of('scan.failed').length];
        expect(await send(world, named)).to.match(/^250/);
        await until('a scan that failed', () => world.running.log.of('scan.failed').length > failed);
        expect(scanner.asked.length).to.be.greaterThan(asked);
        expect(eventsAt(world.hook).map(({ msg }) => msg.subject)).not.to.include(named);
        await nobodyConnected(scanner);
        scanner.behave(undefined);
        await until('the post', () => eventsAt(world.hook).some(({ msg }) => msg.subject === named), 30_000);
        const { scan } = eventsAt(world.hook).find(({ msg }) => msg.subject === named).msg;
        expect(scan)
          .to.include({ reason: null })
          .and.to.deep.include({ by: [name] });
        expect([scan.spam, scan.virus]).to.include(['rspamd', 'spamd'].includes(name) ? 'ham' : 'clean');
      });
    }

    it('is scanned whole, also if it is large', async () => {
      const text = Array.from({ length: 20_000 }, (_, i) => `line ${i} of a long message`).join('\r\n');
      await send(world, 'large', `${text}\r\n${name === 'rspamd' || name === 'spamd' ? GTUBE : EICAR}`);
      await until('the post', () => eventsAt(world.hook).some(({ msg }) => msg.subject === 'large'));
      const { scan } = eventsAt(world.hook).find(({ msg }) => msg.subject === 'large').msg;
      expect([scan.spam, scan.virus]).to.include.oneOf(['spam', 'infected']);
      expect(scanner.asked.at(-1)?.message).to.contain('line 19999 of');
    });
  });
}

describe('a scanner that stays unavailable', function () {
  this.timeout(60_000);
  it('delays mail for scan.wait_hours, after which it is posted as unknown', async () => {
    const [rspamd, clamd] = [await startRspamd(), await startClamd()];
    // An hour in 18 seconds: faster, and what a busy machine is late would be a good part of an hour.
    const clock = createFastClock(200);
    const world = await startWorld(
      {
        POSTERN_SCAN__RSPAMD: `http://${rspamd.address}`,
        POSTERN_SCAN__CLAMD: clamd.address,
        POSTERN_SCAN__WAIT_HOURS: '1',
        POSTERN_SCAN__TIMEOUT_MS: '300000',
        POSTERN_WEBHOOKS__TIMEOUT_MS: '3600000',
        POSTERN_STORE__TIMEOUT_MS: '3600000',
        POSTERN_PARSE__TIMEOUT_MS: '3600000',
        POSTERN_SMTP__COMMAND_TIMEOUT_S: '86400',
        POSTERN_SMTP__IDLE_TIMEOUT_S: '86400',
        POSTERN_SMTP__SESSION_TIMEOUT_S: '864000',
        POSTERN_SMTP__MIN_DATA_RATE: '0',
        POSTERN_SMTP__MAX_LOOP_LAG_MS: '3600000',
      },
      { clock },
    );
    try {
      await clamd.leave();
      const sentAt = clock.now();
      expect(await send(world, 'late', EICAR)).to.match(/^250/);
      const events = await posted(world, 1);
      const waited = (clock.now() - sentAt) / 3_600_000;
      expect(waited).to.be.within(0.9, 1.5);
      expect(events.get('late').scan).to.deep.equal({
        spam: 'ham',
        virus: 'unknown',
        name: null,
        by: ['rspamd'],
        reason: 'clamd did not answer',
      });
      const [{ attempts }] = await world.running.api('/inbound/deliveries');
      expect(attempts).to.have.length(1);
      expect(world.running.log.of('scan.unknown')).to.have.length(1);
    } finally {
      await stopWorld(world, rspamd, clamd);
    }
  });
});

describe('the 250 reply', function () {
  this.timeout(60_000);
  it('does not wait for a scanner, however slow it is and however many messages arrive', async () => {
    const many = size(200, 110); // more than may be scanned at once
    const clamd = await startClamd();
    const world = await startWorld({
      POSTERN_SCAN__CLAMD: clamd.address,
      POSTERN_SCAN__CONCURRENCY: '100',
      POSTERN_DELIVERY__SLOW_ABOVE: '40',
    });
    try {
      // A new endpoint gets little at a time, whatever the scanners do.
      for (let n = 0; n < 50; n++) await send(world, `first-${n}`);
      await posted(world, 50);
      const delays = async () => (await scrape(world.running.base)).of('postern_accept_delay_seconds_count');
      const before = await delays();
      clamd.behave({ late: 5000 });
      const began = Date.now();
      for (let n = 0; n < many; n++) expect(await send(world, `mail-${n}`)).to.match(/^250/);
      expect(Date.now() - began).to.be.lessThan(15_000);
      expect(await delays()).to.equal(before);
      expect(clamd.open()).to.be.within(33, 100);
      clamd.behave(undefined);
      await posted(world, 50 + many);
    } finally {
      await stopWorld(world, clamd);
    }
  });
});
