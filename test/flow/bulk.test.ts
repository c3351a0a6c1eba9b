import { expect } from 'chai';
import { BULK_ACTIONS, type BulkAction } from '../../src/queue/states.ts';
import { postern } from '../support/command.ts';
import { type HostWorld, startHost } from '../support/host-world.ts';
import { until } from '../support/until.ts';

// The command line, the API and the console change many deliveries in one way: what each counts first is what it changes.

describe('a bulk change of deliveries', function () {
  this.timeout(120_000);
  let world: HostWorld;
  let env: Record<string, string>;

  before(async () => {
    world = await startHost();
    env = { POSTERN_DATA_DIR: world.dir };
    const { url } = world.hooks.main;
    world.hooks.main.answer({ status: 500, body: 'away' });
    for (const route of [
      { pattern: 'ordered', url, order: 'sender' },
      { pattern: 'laptop', url: 'pull:' },
      { pattern: 'held', url, action: 'hold' },
      { pattern: 'gone', action: 'discard' },
      { pattern: 'dropped', url, action: 'discard' },
    ])
      await world.api('/inbound/add-route', { domain: 'in.test', ...route });
    for (const [mailbox, count] of [
      ['ordered', 3],
      ['laptop', 2],
      ['held', 1],
      ['gone', 1],
      ['dropped', 1],
      ['plain', 2],
    ] as const)
      for (let n = 0; n < count; n++)
        await world.api('/inbound/send-raw', {
          raw_message: `From: a@sender.test\r\nSubject: ${n}\r\n\r\nHello.`,
          to: [`${mailbox}@in.test`],
          mail_from: 'a@sender.test',
          client_address: '192.0.2.1',
        });
    await until(
      'what is due was tried',
      () => world.hooks.main.requests.filter((one) => one.method === 'POST').length >= 3,
    );
  });
  after(() => world.stop());

  async function byCommand(action: BulkAction, ...options: string[]): Promise<number> {
    const name = action === 'replay' ? ['replay', '--held', '--delivered'] : ['queue', action];
    return (await postern([...name, '--account', world.main, '--json', ...options], env)).json()[0].count;
  }
  const byHost = (action: 'retry' | 'drop', params: object) =>
    world.host(action, { query: `account:${world.main}`, ...params });

  /** The account asks for one state at a time. */
  async function byApi(action: BulkAction): Promise<number> {
    let sum = 0;
    for (const state of BULK_ACTIONS[action].states)
      sum += (await world.api(`/inbound/${action}`, { from: '2020-01-01', state, dry_run: true })).matched;
    return sum;
  }

  it('selects the same number by the command line, the API and the console', async () => {
    // Without two behind another in their order, and two that are pulled.
    const retried = { command: await byCommand('retry', '--dry-run'), api: await byApi('retry') };
    expect(retried).to.deep.equal({ command: 3, api: 3 });
    expect(await byHost('retry', { dry_run: true })).to.deep.include({
      matched: 3,
      by_state: [{ state: 'waiting', count: 3 }],
    });
    const dropped = { command: await byCommand('drop', '--dry-run'), api: await byApi('drop') };
    expect(dropped).to.deep.equal({ command: 8, api: 8 });
    expect((await byHost('drop', { dry_run: true })).by_state).to.deep.equal([
      { state: 'waiting', count: 7 },
      { state: 'held', count: 1 },
    ]);
    // Without the one that has nowhere to go.
    const replayed = { command: await byCommand('replay', '--dry-run'), api: await byApi('replay') };
    expect(replayed).to.deep.equal({ command: 2, api: 2 });
  });

  it('changes the same number, as the history shows', async () => {
    expect(await byHost('retry', {})).to.include({ matched: 3, changed: 3 });
    expect(await byCommand('retry')).to.equal(3);
    expect(await byCommand('replay')).to.equal(2);
    expect(await byCommand('drop')).to.equal(9);
    // The daemon gathers its entries for a moment; a command writes its own at once.
    const recorded = async () => {
      const { actions } = await world.api('/actions/list');
      return actions.filter(({ what }: any) => !/added/.test(what));
    };
    await until('the four to be recorded', async () => (await recorded()).length === 4);
    expect((await recorded()).map(({ by, what, count }: any) => [by, what, count])).to.deep.equal([
      ['command line', 'dropped', 9],
      ['command line', 'replayed', 2],
      ['command line', 'retried', 3],
      ['operator', 'retried', 3],
    ]);
  });
});
