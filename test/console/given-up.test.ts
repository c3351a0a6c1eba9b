import { join } from 'node:path';
import { expect } from 'chai';
import { systemClock } from '../../src/base/clock.ts';
import { spoolDir } from '../../src/composition/slices.ts';
import { openDatabase } from '../../src/composition/storage.ts';
import { recordCommandActions } from '../../src/journal/command-access.ts';
import { openStore } from '../../src/store/store.ts';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, DESK, LOOKS, openConsolePage } from '../support/console-page.ts';
import { startDaemon, type TestDaemon, testSettings } from '../support/daemon.ts';
import { createTestLog } from '../support/log.ts';
import { message, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { attempt, openOne, put, settled, spoolSettings } from '../support/spool.ts';
import { until } from '../support/until.ts';

const program = chromium();

const HOUR_MS = 3_600_000;
/** More than one call replays. */
const MANY = 1_040;

/** A folder of a daemon with two routes. */
async function prepare(first: string, second: string) {
  const { api, dir, stop } = await startDaemon();
  await api('/inbound/add-domain', { domain: 'in.test' });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'box-*', url: first });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'sales', url: second });
  const routes: { id: string; url: string }[] = await api('/inbound/routes', { domain: 'in.test' });
  await stop();
  const store = await openStore(await openDatabase(testSettings(dir), createTestLog()));
  const [account] = await store.accounts.many({});
  await store.close();
  return {
    dir,
    account: account?.id ?? '',
    routes: [first, second].map((url) => routes.find((one) => one.url === url)?.id),
  };
}

/** Puts mail on the queue that was given up an hour ago. */
async function giveUp(
  dir: string,
  to: { account: string; url: string; routeId: string },
  many: number,
  status: number,
) {
  const clock = { ...systemClock, now: () => Date.now() - HOUR_MS };
  const folder = spoolDir(testSettings(dir));
  const spool = await openOne(folder, { clock, log: createTestLog() }, spoolSettings(folder));
  for (let i = 0; i < many; i++) {
    const { delivery } = await put(spool, clock, {
      id: `01kc${status}${String(i).padStart(10, '0')}`,
      ...to,
      recipients: [`box-${i}@in.test`],
    });
    await spool.settle(settled(clock, delivery, { state: 'dead', attempt: attempt(clock, status) }));
  }
  await spool.close();
}

if (program !== undefined) {
  describe('failed deliveries, in a browser', function () {
    this.timeout(180_000);
    let hook: Receiver;
    let other: Receiver;
    let running: TestDaemon;
    let page: ConsolePage;
    let account: string;
    before(async () => {
      [hook, other] = [await startReceiver(), await startReceiver()];
      const prepared = await prepare(hook.url, other.url);
      const { dir, routes } = prepared;
      account = prepared.account;
      await giveUp(dir, { account, url: hook.url, routeId: routes[0] ?? '' }, MANY, 500);
      await giveUp(dir, { account, url: other.url, routeId: routes[1] ?? '' }, 1, 503);
      other.answer({ status: 503 });
      running = await startDaemon({ POSTERN_CONSOLE__OPERATOR_READS_MAIL: 'true' }, { dir });
      await sendMail(running.smtp, { from: 'ann@sender.test', to: 'sales@in.test' }, message('Not taken'));
      await until('the history to be filled in', async () => (await count('dead')) === MANY + 1);
      await until('the endpoint to fail', async () => other.requests.length > 0);
      page = await openConsolePage(program, running, hook);
    });
    after(async () => {
      await page?.stop();
      await other?.stop();
    });

    const count = async (state: string) => (await running.api('/inbound/causes', { query: `state:${state}` })).count;

    it('are counted by endpoint and answer; each cause is a filter', async () => {
      await page.open('/given-up');
      await page.shows('Replay all 1,041');
      await page.shows(`${hook.url.replace('http://', '')}: HTTP 500`);
      await page.shows('; deleted from ');
      await page.press(`${other.url.replace('http://', '')}: HTTP 503`);
      await page.shows('Replay all 1 that match');
      await page.shows('box-0@in.test');
    });

    it('are replayed by a job shown on every screen, except to an endpoint that is still down', async () => {
      hook.answer({ status: 200 });
      await page.open('/given-up');
      await page.press('Replay all 1,041');
      await page.shows('1,041 messages will be posted again');
      await page.shows('To 2 endpoints. Oldest: ');
      await page.press('Exclude');
      await page.shows('Replay 1,040');
      expect(await count('dead')).to.equal(MANY + 1);
      await page.press('Replay 1,040');
      await page.shows('of 1,040');
      await page.press('Close');
      await page.press('Refused');
      await page.shows('Replay complete: 1,040 messages.');
      await page.browser.open(`${running.base}/console/refused`, ...DESK);
      await page.shows('Replay complete: 1,040 messages.');
      await until('the mail to be delivered', async () => (await count('delivered')) === MANY);
      expect(await count('dead')).to.equal(1);
      await page.press('Close');
      await until('the bar to be gone', async () => !(await page.text()).includes('Replay complete'));
    });

    it('show that the process ended before a job started, without a count', async () => {
      const { actions } = await running.api('/actions/list');
      const start = actions.findLast(({ detail }: { detail: string }) => /^job \w+:/.test(detail));
      const id = '01kcinterrupted0000000000';
      const { by, what, count: many } = start;
      const detail = start.detail.replace(/^job \w+/, `job ${id}`);
      recordCommandActions(join(running.dir, 'journal.db'), [
        { at: Date.now(), account, by, what, count: many, detail },
      ]);
      const job = {
        ...{ operation: 'jobs/info', id, what: 'Replay', one: 'message', several: 'messages', of: MANY },
        again: { operation: 'inbound/replay', params: { query: '*', state: 'dead' } },
      };
      const stored = JSON.stringify(JSON.stringify({ job, account }));
      await page.browser.evaluate(`sessionStorage.setItem('postern-job', ${stored})`);
      await page.browser.open(`${running.base}/console/refused`, ...DESK);
      await page.shows('Replay interrupted.');
      await page.shows('Resume');
      expect(await page.faults()).to.deep.equal([]);
      await page.press('Close');
      await until('the bar to be gone', async () => !(await page.text()).includes('Replay interrupted'));
    });

    it('show that a job was interrupted, and continue with the remaining items', async () => {
      const job = {
        ...{
          operation: 'jobs/info',
          id: '01kcgone000000000000000000',
          what: 'Replay',
          one: 'message',
          several: 'messages',
        },
        ...{ of: MANY, again: { operation: 'inbound/replay', params: { query: '*', state: 'dead' } } },
      };
      const stored = JSON.stringify(JSON.stringify({ job, account }));
      await page.browser.evaluate(`sessionStorage.setItem('postern-job', ${stored})`);
      await page.browser.open(`${running.base}/console/refused`, ...DESK);
      await page.shows('Resume');
      expect(await page.faults()).to.deep.equal([]);
      other.answer({ status: 200 });
      await page.press('Resume');
      await until('the mail to be delivered', async () => (await count('dead')) === 0);
      await until('the bar to be gone', async () => !(await page.text()).includes('Resume'));
    });

    for (const [scheme, size] of LOOKS)
      it(`have no accessibility violations (axe) in the confirmation, in ${scheme} colours at ${size[0]} px`, async () => {
        await page.browser.prefer(scheme);
        await page.open('/mail?q=state%3Adelivered', size);
        await page.press('Replay all that match');
        await page.shows('Replay 1,04');
        expect(await page.faults()).to.deep.equal([]);
        expect(await page.fits()).to.equal(true);
      });
  });

  describe('dropping mail, in a browser', function () {
    this.timeout(120_000);
    let hook: Receiver;
    let page: ConsolePage;
    let running: TestDaemon;
    const dead = 3;
    before(async () => {
      hook = await startReceiver();
      hook.answer({ status: 503 });
      const { dir, account, routes } = await prepare(hook.url, `${hook.url}?sales`);
      const to = { account, url: hook.url, routeId: routes[0] ?? '' };
      await giveUp(dir, to, dead, 500);
      running = await startDaemon({ POSTERN_CONSOLE__OPERATOR_READS_MAIL: 'true' }, { dir });
      const route = { domain: 'in.test', url: hook.url };
      await running.api('/inbound/add-route', { ...route, pattern: 'keep-*', action: 'hold' });
      await running.api('/inbound/add-route', { ...route, pattern: 'stop', format: 'postmark' });
      await until('the history to be filled in', async () => (await count('dead')) === dead);
      page = await openConsolePage(program, running, hook);
    });
    after(() => page?.stop());

    const count = async (state: string) => (await running.api('/inbound/causes', { query: `state:${state}` })).count;
    const queued = async (state: string) => (await running.api('/inbound/deliveries', { state })).length;
    const locked = () =>
      page.browser.evaluate(`[...document.querySelectorAll('dialog button.danger')].some((one) => one.disabled)`);

    it('shows the count, and drops nothing if more match by the time it is typed', async () => {
      await page.open('/given-up');
      await page.shows('Replay all 3');
      await page.press('More actions');
      await page.press('Drop\u2026');
      await page.shows('3 messages will not be posted');
      expect(await locked()).to.equal(true);
      await page.fill('Type 3 to confirm', '2');
      expect(await locked()).to.equal(true);
      await page.fill('Type 3 to confirm', '3');
      hook.answer({ status: 403 }); // by which a receiver of this format ends a delivery
      await sendMail(running.smtp, { from: 'ann@sender.test', to: 'stop@in.test' }, message('Not wanted'));
      await until('the fourth to be given up', async () => (await count('dead')) === dead + 1);
      await page.press('Drop 3');
      await page.shows('4 deliveries match now (limit 3); nothing was dropped');
      expect(await queued('dead')).to.equal(dead + 1);
      expect(await queued('dropped')).to.equal(0);
      await page.press('Cancel');
    });

    for (const [scheme, size] of LOOKS)
      it(`has no accessibility violations (axe) in the confirmation, in ${scheme} colours at ${size[0]} px`, async () => {
        await page.browser.prefer(scheme);
        await page.open('/given-up', size);
        await page.shows('Replay all 4'); // the number moves the button that is pressed
        await page.press('More actions');
        await page.press('Drop\u2026');
        await page.shows('Type 4 to confirm');
        expect(await page.faults()).to.deep.equal([]);
        expect(await page.fits()).to.equal(true);
      });

    it('drops only failed deliveries that a search finds', async () => {
      await page.open('/given-up?q=to%3Astop');
      await page.shows('Replay all 1 that match');
      await page.press('More actions');
      await page.press('Drop\u2026');
      await page.fill('Type 1 to confirm', '1');
      await page.press('Drop 1');
      await page.shows('1 message dropped.');
      await page.press('Close');
      await page.shows('No failed messages match this search');
      expect(await queued('dead')).to.equal(dead);
      const { actions } = await until('it is noted', async () => {
        const list = await running.api('/actions/list');
        return list.actions[0]?.what === 'dropped' && list;
      });
      expect(actions[0]).to.include({ by: 'operator', count: 1, detail: 'state dead, query to:stop' });
    });

    it('asks for confirmation once on the page of a message', async () => {
      const [one] = await running.api('/inbound/deliveries', { state: 'dead', limit: 1 });
      await page.open(`/message/${one.id}`);
      await page.shows('Replay\u2026');
      await page.press('More actions');
      await page.press('Drop\u2026');
      await page.shows('1 message will not be posted');
      await page.press('Drop 1');
      await page.shows('1 message dropped.');
      await page.press('Close');
      await page.shows('Dropped after 1 attempt');
      expect(await page.text())
        .to.contain('Replay\u2026')
        .and.not.to.contain('Drop\u2026');
      expect(await queued('dead')).to.equal(dead - 1);
    });

    it('shows mail held by a route on the first screen, and releases or drops it', async () => {
      for (const to of ['keep-1@in.test', 'keep-2@in.test'])
        await sendMail(running.smtp, { from: 'ann@sender.test', to }, message(`For ${to}`));
      await until('both in the history', async () => (await count('held')) === 2);
      await page.open('/');
      await page.shows('Held by routes: release or drop them');
      expect(await page.text()).to.contain('2 messages');
      expect(await page.faults()).to.deep.equal([]);
      await page.press('Held by routes');
      await page.shows('Release all that match');
      const [first, second] = await running.api('/inbound/deliveries', { state: 'held' });
      await page.open(`/message/${first.id}`);
      await page.press('Release\u2026');
      await page.shows('1 message will be posted.');
      await page.press('Release 1');
      await page.shows('1 message queued for delivery.');
      await page.open(`/message/${second.id}`);
      await page.press('More actions');
      await page.press('Drop\u2026');
      await page.press('Drop 1');
      await page.shows('1 message dropped.');
      expect(await queued('held')).to.equal(0);
    });
  });
}
