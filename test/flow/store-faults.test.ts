import { expect } from 'chai';
import { type Answer, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../support/database.ts';
import { type Command, type MongoProxy, startMongoProxy, WIRE_FAULTS } from '../support/mongo-proxy.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { PATIENCE, until } from '../support/until.ts';

/** A call that writes, and how many of what it makes there are. */
interface Write {
  readonly path: string;
  params(name: string): object;
  /** Looked up by its name, in a list. */
  count(name: string): Promise<number>;
  /** False if a repeated call makes another one. */
  readonly once?: false;
}

describe('a write to the store', function () {
  this.timeout(120_000 * PATIENCE);
  let proxy: MongoProxy;
  let postern: TestDaemon;
  let hook: Receiver;
  let made = 0;

  before(async function () {
    if (!mongoDriver) this.skip();
    hook = await startReceiver();
    const server = await mongoServer();
    proxy = await startMongoProxy(server.address);
    postern = await startDaemon({
      POSTERN_STORE__URL: server.url(newDatabaseName(), proxy.address),
      POSTERN_STORE__TIMEOUT_MS: String(2000 * PATIENCE),
      POSTERN_INBOUND__REFRESH_MS: '3600000',
      POSTERN_INBOUND__OWNERSHIP: 'first',
    });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
  });
  after(async () => {
    await postern?.stop();
    await proxy?.close();
    await hook?.stop();
  });

  /** The answer once the store is known to be back. */
  const settled = (path: string, params: object): Promise<Answer> =>
    until(`${path} to be answered`, async () => {
      const answer = await postern.ask(path, params);
      return answer.status !== 503 && answer;
    });
  const rows = async (path: string, params: object = {}): Promise<any[]> => (await settled(path, params)).body;
  const count = async (path: string, field: string, value: string, params: object = {}): Promise<number> =>
    (await rows(path, params)).filter((row) => row[field] === value).length;

  const writes: readonly Write[] = [
    {
      path: '/templates/add',
      params: (name) => ({ name, code: '<p>Hello</p>' }),
      count: (name) => count('/templates/list', 'name', name),
    },
    {
      path: '/inbound/add-domain',
      params: (name) => ({ domain: `${name}.test` }),
      count: (name) => count('/inbound/domains', 'domain', `${name}.test`),
    },
    {
      path: '/inbound/add-route',
      params: (name) => ({ domain: 'in.test', pattern: name, url: hook.url }),
      count: (name) => count('/inbound/routes', 'pattern', name, { domain: 'in.test' }),
      once: false,
    },
    {
      path: '/rejects/add',
      params: (name) => ({ email: `${name}@to.test` }),
      count: (name) => count('/rejects/list', 'email', `${name}@to.test`, { email: `${name}@to.test` }),
    },
    {
      path: '/whitelists/add',
      params: (name) => ({ email: `${name}@to.test` }),
      count: (name) => count('/whitelists/list', 'email', `${name}@to.test`, { email: `${name}@to.test` }),
    },
    {
      path: '/webhooks/add',
      params: (name) => ({ url: `${hook.url}/${name}`, events: ['send'] }),
      count: (name) => count('/webhooks/list', 'url', `${hook.url}/${name}`),
      once: false,
    },
    {
      path: '/subaccounts/add',
      params: (name) => ({ id: name }),
      count: (name) => count('/subaccounts/list', 'id', name),
    },
    {
      path: '/senders/add-domain',
      params: (name) => ({ domain: `${name}.sender.test` }),
      count: (name) => count('/senders/domains', 'domain', `${name}.sender.test`),
    },
  ];

  for (const write of writes)
    for (const fault of WIRE_FAULTS)
      it(`is done or refused with 503, never lost or done twice: ${write.path}, ${fault}`, async () => {
        const commands = await commandsOf(write);
        expect(commands).not.to.deep.equal([]);
        let failed = 0;
        for (const [n, command] of commands.entries()) {
          const name = `n${made++}`;
          proxy.failNext(nth(commands, n), fault);
          const answer = await postern.ask(write.path, write.params(name));
          const at = `${command.name} ${command.collection}, ${JSON.stringify(answer.body)}`;
          if (answer.status === 200) {
            expect(await write.count(name), at).to.equal(1);
            continue;
          }
          failed++;
          expect([answer.status, answer.body.name], at).to.deep.equal([503, 'ServiceUnavailable']);
          // The client repeats the call: the first may have been done.
          const again = await settled(write.path, write.params(name));
          expect(again.status, JSON.stringify(again.body)).to.be.below(500);
          expect(await write.count(name), at).to.be.within(1, write.once === false ? 2 : 1);
        }
        // On a replica set the driver may have repeated each command.
        if (failed === 0) expect(mongoDriver?.kind).to.be.oneOf(['secantus', 'url', 'mongod']);
      });

  /** The commands of the call, in order. Those of the daemon's own work that came between are left out. */
  async function commandsOf({ path, params }: Write): Promise<readonly Command[]> {
    await settled('/users/ping', {});
    const lists = [];
    for (let round = 0; round < 3; round++) {
      const from = proxy.commands.length;
      expect((await settled(path, params(`n${made++}`))).status).to.equal(200);
      lists.push(proxy.commands.slice(from));
    }
    const [first = [], ...others] = lists;
    const same = (a: Command, b: Command) => a.name === b.name && a.collection === b.collection;
    return first.filter((command) => others.every((list) => list.some((one) => same(one, command))));
  }

  /** Chooses the command at this index of the call: it counts those of that name and collection. */
  function nth(commands: readonly Command[], index: number): (command: Command) => boolean {
    const wanted = commands[index];
    const isWanted = ({ name, collection }: Command) => name === wanted?.name && collection === wanted.collection;
    let before = commands.slice(0, index).filter(isWanted).length;
    return (command) => isWanted(command) && before-- === 0;
  }
});
