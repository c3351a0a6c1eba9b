import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createNotices, isPlainMailbox, toPlainAddress } from '../../../src/sending/notices.ts';

import type { MailOutcome } from '../../../src/sending/types.ts';
import type { Database } from '../../../src/store/driver/port.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createSureTime, createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';
import { createTestMailer } from '../../support/senders.ts';
import { until } from '../../support/until.ts';

const HOUR_MS = 3_600_000;
const NOTICE = {
  account: 'one',
  to: 'postmaster@example.com',
  subject: 'Your export is ready',
  text: 'https://postern.test/secret\n',
};
const later = async (): Promise<MailOutcome> => ({ kind: 'deferred', reason: '451 later' });

describe('recipient addresses of notices', () => {
  it('are letters, digits, dots and a few signs at a domain name', () => {
    for (const text of ['a', 'post.master', 'first_last+tag', 'A-1=~&', 'x'.repeat(64)])
      expect(isPlainMailbox(text), text).to.equal(true);
    expect(toPlainAddress('Post.Master@Bücher.Example')).to.equal('Post.Master@xn--bcher-kva.example');
  });

  it('are nothing that a server on the way could misread', () => {
    const mailboxes = [
      '',
      '.',
      '.a',
      'a.',
      'a..b',
      'a b',
      ' a',
      'a ',
      '"a"',
      "o'brien",
      'a"b',
      'a\\b',
      'a,b',
      'a;b',
      'a:b',
      '<a>',
      'a>',
      '(c)a',
      'a@b',
      '[a]',
      'a%b',
      'b!a',
      '|sh',
      '/etc/passwd',
      '`id`',
      '$x',
      '*',
      '?',
      '#',
      '{a}',
      '^',
      'a\r',
      'a\n',
      'a\r\nBcc: x',
      'a\0',
      'a\t',
      'a\u2028b',
      'a\u00a0b',
      'ä',
      '\u202ea',
      '＠',
      'a\u007f',
      'x'.repeat(65),
      '=?utf-8?q?a?=\r\n',
    ];
    for (const text of mailboxes) expect(isPlainMailbox(text), JSON.stringify(text)).to.equal(false);
    for (const text of [
      'postmaster',
      '@example.com',
      'a@',
      'a@localhost',
      'a@[127.0.0.1]',
      'a@1.2.3.4',
      'a@example.com\r\nBcc: b@c.example',
      'a@example.com>',
      'a@b@example.com',
      'a@exa mple.com',
      'a@example.com,b@example.com',
      'A <a@example.com>',
    ]) {
      expect(toPlainAddress(text), JSON.stringify(text)).to.equal(undefined);
    }
  });
});

for (const driver of drivers) {
  describe(`notices, ${driver.name}`, () => {
    let database: Database;
    let store: Store;
    let clock: TestClock;
    beforeEach(async () => {
      database = await driver.open({ crowded: true });
      store = await openStore(database);
      clock = createTestClock();
    });
    afterEach(() => store.close());

    function open() {
      const mailer = createTestMailer();
      const log = createTestLog();
      return {
        mailer,
        log,
        notices: createNotices({
          from: 'Postmaster@mx.postern.test',
          store,
          mailer,
          clock,
          time: createSureTime(clock),
          ids: createIds(clock),
          log,
        }),
      };
    }
    const rows = () => store.notices.many({}, { sort: 'dueAt' });
    const settled = () =>
      until('every notice has settled', async () => (await rows()).every(({ state }) => state !== 'waiting'));

    it('are stored, sent at once, and then lose their text', async () => {
      const { notices, mailer, log } = open();
      expect(await notices.enqueue(NOTICE)).to.equal('queued');
      await settled();
      expect(mailer.mails).to.have.length(1);
      expect(mailer.mails[0]).to.include({
        to: 'postmaster@example.com',
        subject: 'Your export is ready',
        text: 'https://postern.test/secret\n',
      });
      expect((await rows())[0]).to.include({ state: 'sent', text: '', attempts: 1, lastError: null });
      expect(log.of('notice.sent')).to.have.length(1);
      expect(JSON.stringify(log.lines)).to.not.contain('secret').and.to.not.contain('export is ready');
      await notices.stop();
    });

    it('are retried for a day with growing intervals, and then fail with the reason', async () => {
      const { notices, mailer, log } = open();
      mailer.outcome = later;
      await notices.enqueue(NOTICE);
      const attempted = (count: number) =>
        until(
          `attempt ${count}`,
          async () => (await rows())[0]?.attempts === count && (await rows())[0]?.lastError !== null,
        );
      await attempted(1);
      const gaps: number[] = [];
      for (let last = clock.now(); (await rows())[0]?.state === 'waiting'; last = clock.now()) {
        const due = (await rows())[0]?.dueAt.getTime() ?? 0;
        gaps.push((due - last) / 60_000);
        clock.jump(due - clock.now() - 1);
        expect(await notices.sendDue()).to.deep.equal({ sent: 0, deferred: 0, failed: 0 });
        clock.jump(1);
        await notices.sendDue();
      }
      expect(gaps).to.deep.equal([1, 5, 15, 30, 60, 120, 240, 240, 240, 240, 240]);
      expect((await rows())[0]).to.include({ state: 'failed', text: '', lastError: '451 later' });
      expect(log.of('notice.failed')[0]?.fields).to.include({ reason: '451 later', attempts: 12 });
      await notices.stop();
    });

    it('fail at once after a permanent refusal', async () => {
      const { notices, mailer } = open();
      mailer.outcome = async () => ({ kind: 'failed', reason: '550 nobody here' });
      await notices.enqueue(NOTICE);
      await settled();
      expect((await rows())[0]).to.include({ state: 'failed', lastError: '550 nobody here', attempts: 1 });
      await notices.stop();
    });

    it('that bounce are reported to mail.from, once and without their text', async () => {
      const { notices, mailer } = open();
      mailer.outcome = async () => ({ kind: 'failed', reason: '550 nobody here' });
      await notices.enqueue(NOTICE);
      await until(
        'the bounce has settled',
        async () => (await rows()).filter(({ state }) => state === 'failed').length === 2,
      );
      const [, bounce] = mailer.mails;
      expect(bounce).to.include({ to: 'Postmaster@mx.postern.test', subject: 'Undelivered: Your export is ready' });
      expect(bounce?.text)
        .to.include('postmaster@example.com')
        .and.include('550 nobody here')
        .and.not.include('secret');
      expect(mailer.mails).to.have.length(2);
    });

    it('do not wait for the length of a jump when the clock is set back', async () => {
      const { notices, mailer } = open();
      mailer.outcome = later;
      clock.jump(3 * 24 * HOUR_MS);
      await notices.enqueue(NOTICE);
      await until('the first attempt', async () => (await rows())[0]?.lastError === '451 later');
      await store.notices.insert({
        id: 'claimed',
        account: 'one',
        to: 'b@example.com',
        subject: 's',
        text: 't',
        createdAt: new Date(clock.now()),
        state: 'waiting',
        attempts: 1,
        dueAt: new Date(clock.now() + 300_000),
        lastError: null,
      });
      clock.jump(-3 * 24 * HOUR_MS);
      mailer.outcome = async () => ({ kind: 'sent' });
      // The run that made the first attempt may not have ended, and a call while it lasts begins no other.
      await until('both are sent', async () => {
        await notices.sendDue();
        return (await rows()).every(({ state }) => state === 'sent');
      });
      await notices.stop();
    });

    it('keep to their backoff and their claims otherwise', async () => {
      const { notices } = open();
      const waits: readonly (readonly [attempts: number, minutes: number])[] = [
        [1, 5],
        [5, 60],
        [7, 240],
        [11, 240],
      ];
      for (const [attempts, minutes] of waits) {
        await store.notices.insert({
          id: `n${attempts}`,
          account: 'one',
          to: 'b@example.com',
          subject: 's',
          text: 't',
          createdAt: new Date(clock.now()),
          state: 'waiting',
          attempts,
          dueAt: new Date(clock.now() + minutes * 60_000),
          lastError: null,
        });
      }
      expect(await notices.sendDue()).to.deep.equal({ sent: 0, deferred: 0, failed: 0 });
      await notices.stop();
    });

    it('survive an error of the mailer and a crash during a send', async () => {
      const first = open();
      first.mailer.outcome = () => Promise.reject(new Error('a fault'));
      await first.notices.enqueue(NOTICE);
      await until('the fault', async () => (await rows())[0]?.lastError === 'internal error');
      await first.notices.stop();
      // As if it had died right after its claim: the row waits until the claim is over.
      await store.notices.change({ id: (await rows())[0]?.id ?? '' }, { dueAt: new Date(clock.now() + 300_000) });
      const second = open();
      await second.notices.sendDue();
      expect(second.mailer.mails).to.have.length(0);
      clock.jump(300_000);
      expect(await second.notices.sendDue()).to.deep.equal({ sent: 1, deferred: 0, failed: 0 });
      await second.notices.stop();
    });

    it('are sent once by two concurrent processes', async () => {
      const all = [open(), open(), open()];
      const due = new Date(clock.now());
      for (let i = 0; i < 12; i++)
        await store.notices.insert({
          id: `n${i}`,
          ...NOTICE,
          to: `a${i}@example.com`,
          createdAt: due,
          state: 'waiting',
          attempts: 0,
          dueAt: due,
          lastError: null,
        });
      await Promise.all(all.flatMap(({ notices }) => [notices.sendDue(), notices.sendDue()]));
      const sent = all.flatMap(({ mailer }) => mailer.mails.map(({ id }) => id));
      expect(sent.toSorted()).to.deep.equal([...Array(12).keys()].map((i) => `n${i}`).toSorted());
      for (const { notices } of all) await notices.stop();
    });

    it('are limited to 3 an hour and 10 a day for an address, for any callers', async () => {
      const all = [open(), open()];
      const ask = (i: number) =>
        all[i % 2]?.notices.enqueue({
          ...NOTICE,
          account: `account-${i}`,
          to: i % 3 === 0 ? 'PostMaster@EXAMPLE.com' : NOTICE.to,
        });
      const count = async (from: number) =>
        (await Promise.all(Array.from({ length: 8 }, (_, i) => ask(from + i)))).filter(
          (outcome) => outcome === 'queued',
        ).length;
      const counts = [];
      for (let hour = 0; hour < 6; hour++) {
        counts.push(await count(hour * 8));
        clock.jump(HOUR_MS - 1);
        counts.push(await count(hour * 8));
        clock.jump(1);
      }
      expect(counts).to.deep.equal([3, 0, 3, 0, 3, 0, 1, 0, 0, 0, 0, 0]);
      clock.jump(18 * HOUR_MS);
      expect(await count(0)).to.equal(3);
      await Promise.all(all.map(({ notices }) => notices.stop()));
    }).timeout(20_000);

    it('are limited to 20 a day for a domain from one account, and unused ones are returned', async () => {
      const { notices } = open();
      const outcomes = [];
      for (let i = 0; i < 22; i++) outcomes.push(await notices.enqueue({ ...NOTICE, to: `person${i}@example.com` }));
      expect(outcomes).to.deep.equal([...Array(20).fill('queued'), 'limited', 'limited']);
      expect(await notices.enqueue({ ...NOTICE, to: 'person@example.net' })).to.equal('queued');
      for (let i = 0; i < 3; i++)
        expect(await notices.enqueue({ ...NOTICE, account: 'two', to: 'person21@example.com' })).to.equal('queued');
      await notices.stop();
    }).timeout(20_000);

    it('reject other addresses, and subjects of more than a line', async () => {
      const { notices } = open();
      expect(await notices.enqueue({ ...NOTICE, to: 'a@example.com\r\nBcc: b@example.com' })).to.equal('refused');
      for (const subject of ['', 'a\r\nBcc: b@example.com', 'a\nb', 'ä'.repeat(3), 'x'.repeat(201)]) {
        expect(
          await notices.enqueue({ ...NOTICE, subject }).then(
            () => 'taken',
            (error: unknown) => error,
          ),
          JSON.stringify(subject),
        ).to.be.instanceOf(TypeError);
      }
      expect(await rows()).to.deep.equal([]);
      await notices.stop();
    });

    it('are deleted a month after they ended, with their limits and links', async () => {
      const { notices, mailer } = open();
      await notices.enqueue(NOTICE);
      await settled();
      mailer.outcome = later;
      await notices.enqueue({ ...NOTICE, to: 'waiting@example.com' });
      await until('its attempt', async () => mailer.mails.length === 2);
      const at = new Date(clock.now());
      await store.verifications.insert({
        id: 'old',
        account: 'one',
        domain: 'example.com',
        email: 'a@example.com',
        createdAt: at,
        expiresAt: at,
        usedAt: null,
      });
      expect(await notices.purge()).to.equal(0);
      clock.jump(32 * 24 * HOUR_MS);
      expect(await notices.purge()).to.be.greaterThan(5);
      expect((await rows()).map(({ to }) => to)).to.deep.equal(['waiting@example.com']);
      expect(await store.verifications.many({})).to.deep.equal([]);
      expect(await store.quotas.many({})).to.deep.equal([]);
      await notices.stop();
    });
  });
}
