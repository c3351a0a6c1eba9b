import { expect } from 'chai';
import { faultText, parseQueueQuery } from '../../../src/journal/query-language.ts';
import { postern } from '../../support/command.ts';
import { startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { message, sendMail } from '../../support/mail.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { until } from '../../support/until.ts';

// A state that was added later: every count and every list of states knows it.

describe('held mail, on the command line', function () {
  this.timeout(60_000);
  let running: TestDaemon;
  let hook: Receiver;
  let env: Record<string, string>;
  const run = (...argv: string[]) => postern(argv, env);
  const countOf = async (...argv: string[]) => (await run(...argv, '--json')).json()[0].count;

  before(async () => {
    hook = await startReceiver();
    running = await startDaemon();
    env = { POSTERN_DATA_DIR: running.dir };
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url, action: 'hold' });
    for (const name of ['one', 'two', 'three'])
      await sendMail(running.smtp, { from: 'ada@example.org', to: `${name}@in.test` }, message(name));
  });
  after(async () => {
    await running.stop();
    await hook.stop();
  });

  it('is listed with waiting and failed mail, with its reason, and counted below', async () => {
    const { out } = await run('queue', 'list');
    expect(out)
      .to.match(/ held +\d+s /)
      .and.to.contain('0 waiting, 0 dead, 3 held, 0 delivered, 0 dropped');
    const [one] = (await run('queue', 'list', '--json')).records();
    expect(one).to.include({ state: 'held' });
    expect(one.waits).to.match(/^Held by route \S+ until it is released$/);
  });

  it('is counted by a dry run of a drop, and of a replay by id or with --held, and by no other replay', async () => {
    const [{ id }] = (await run('queue', 'list', '--json', '--recipient', 'one@in.test')).records();
    expect(await countOf('queue', 'drop', '--all', '--dry-run')).to.equal(3);
    expect(await countOf('replay', id, '--dry-run')).to.equal(1);
    expect(await countOf('replay', '--all', '--dry-run')).to.equal(0);
    expect(await countOf('replay', '--all', '--delivered', '--dry-run')).to.equal(0);
    expect(await countOf('replay', '--all', '--held', '--dry-run')).to.equal(3);
    expect(await countOf('queue', 'retry', '--all', '--dry-run')).to.equal(0);
  });

  it('is selected by a query of the host', () => {
    const parsed = parseQueueQuery('state:held', 0);
    if ('fault' in parsed) throw new Error(faultText(parsed.fault));
    expect(parsed.filter).to.deep.equal({ states: ['held'] });
  });

  it('is dropped, and released by a replay', async () => {
    const [{ id }] = (await run('queue', 'list', '--json', '--recipient', 'one@in.test')).records();
    expect(await countOf('queue', 'drop', '--recipient', 'two@in.test')).to.equal(1);
    expect(await countOf('replay', id)).to.equal(1);
    await until('it is posted', async () => hook.requests.length === 1);
    expect((await run('queue', 'list')).out).to.contain('1 held');
  });
});
