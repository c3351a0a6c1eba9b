import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

describe('mail of a resumed subaccount', function () {
  this.timeout(60_000);
  /** What is held back asks again by itself after half a minute at the soonest. */
  const SOONER_MS = 10_000;
  let server: MailServer;
  let running: TestDaemon;
  let env: Record<string, string>;
  before(async () => {
    server = await startMailServer();
    env = { POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${server.port}` };
    running = await startDaemon(env, { dir: await tempDir() });
  });
  after(async () => {
    await running.stop();
    await server.stop();
  });

  const send = (to: string, subaccount: string) =>
    running.api('/messages/send', {
      message: { from_email: 'news@sender.test', text: 'Hello', to: [{ email: to }], subaccount },
    });
  const asked = (to: string) => server.asked.filter((one) => one === to).length;
  /** Until they were held back: their time is moved on. */
  const held = (...addresses: readonly string[]) =>
    until('they are held back', async () => {
      const { out } = await postern(['queue', 'list', '--kind', 'outbound', '--state', 'waiting', '--jsonl'], {
        POSTERN_DATA_DIR: running.dir,
      });
      const rows = out
        .trim()
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line));
      return addresses.every((to) =>
        rows.some(
          ({ recipient, accepted_at: at, due_at: due, attempts }) => recipient === to && due > at && attempts === 0,
        ),
      );
    });

  it('is sent at once, without other mail, also after a restart', async () => {
    for (const id of ['one', 'other']) {
      await running.api('/subaccounts/add', { id });
      await running.api('/subaccounts/pause', { id });
    }
    await send('first@to.test', 'one');
    await send('other@to.test', 'other');
    await held('first@to.test', 'other@to.test');
    await running.api('/subaccounts/resume', { id: 'one' });
    await until('it leaves', () => asked('first@to.test') === 1, SOONER_MS);

    await running.api('/subaccounts/pause', { id: 'one' });
    await send('second@to.test', 'one');
    await held('second@to.test');
    await running.stop();
    running = await startDaemon(env, { dir: running.dir });
    await held('second@to.test');
    await running.api('/subaccounts/resume', { id: 'one' });
    await until('it leaves', () => asked('second@to.test') === 1, SOONER_MS);
    expect(asked('other@to.test')).to.equal(0);
  });
});
