import { expect } from 'chai';
import { MongoClient } from 'mongodb';
import { type Answer, startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../../support/database.ts';
import { eventsOf, postsOf } from '../../support/events.ts';
import { message, sendMail } from '../../support/mail.ts';
import { type MongoProxy, startMongoProxy } from '../../support/mongo-proxy.ts';
import { lacks } from '../../support/mongo-server.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { PATIENCE, until } from '../../support/until.ts';

const CLIENTS = 6;

/** The ways in which a primary steps down; each ends by itself or by `end`. */
interface StepDown {
  readonly name: string;
  /** Whether this server can. */
  readonly possible: boolean;
  begin(proxy: MongoProxy): Promise<void>;
  end(proxy: MongoProxy): void;
}

const STEP_DOWNS: readonly StepDown[] = [
  {
    name: 'for good, until another is found',
    possible: true,
    begin: async (proxy) => proxy.stepDown(),
    end: (proxy) => proxy.mend(),
  },
  {
    name: 'by itself, for three seconds',
    possible: mongoDriver?.kind === 'secantus',
    async begin() {
      const client = new MongoClient((await mongoServer()).url('admin'));
      await client.db('admin').command({ replSetStepDown: 3, secondaryCatchUpPeriodSecs: 1, force: true });
      await client.close();
    },
    end: () => undefined,
  },
];

describe('a primary that steps down under load', function () {
  this.timeout(120_000 * PATIENCE);
  let hook: Receiver;
  before(async function () {
    if (!mongoDriver) this.skip();
    hook = await startReceiver();
  });
  after(() => hook?.stop());

  for (const { name, possible, begin, end } of STEP_DOWNS)
    it(`loses nothing that was acknowledged, and does no call twice: ${name}`, async function () {
      if (!possible) this.skip();
      const server = await mongoServer();
      const proxy = await startMongoProxy(server.address);
      const postern = await startDaemon({
        POSTERN_STORE__URL: server.url(newDatabaseName(), proxy.address),
        POSTERN_STORE__TIMEOUT_MS: String(1000 * PATIENCE),
        POSTERN_INBOUND__OWNERSHIP: 'first',
        // With more connections it would give two webhooks one number.
        ...(mongoDriver && lacks(mongoDriver.kind, 'atomic changes') && { POSTERN_STORE__MAX_CONNECTIONS: '1' }),
      });
      hook.requests.length = 0;
      await postern.api('/inbound/add-domain', { domain: 'in.test' });
      await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
      const load = startLoad(postern, hook.url);
      await until('load', () => load.done() >= 5 * CLIENTS);
      await begin(proxy);
      await until('every client to meet it', () => load.refused() >= CLIENTS);
      end(proxy);
      const refused = load.done();
      await until('every client to go on', () => load.done() >= refused + 5 * CLIENTS, 30_000 * PATIENCE);
      const { calls, mails } = await load.stop();

      const urls: string[] = (await settled(postern, '/webhooks/list')).body.map((row: any) => row.url);
      for (const { answer, url } of calls) {
        const times = urls.filter((one) => one === url).length;
        if (answer.status === 200) expect(times, url).to.equal(1);
        else {
          expect([answer.status, answer.body.name], url).to.deep.equal([503, 'ServiceUnavailable']);
          expect(times, url).to.be.within(0, 1); // the answer may be lost, and the client does not repeat it here
        }
      }
      for (const { reply } of mails) expect(reply).to.match(/^(?:250|451) /);
      const taken = mails.filter(({ reply }) => reply.startsWith('250')).map(({ subject }) => subject);
      await until('every mail to be posted', () => posted(hook).length >= taken.length);
      expect(posted(hook).toSorted()).to.deep.equal(taken.toSorted());
      await postern.stop();
      await proxy.close();
    });
});

/** The answer once the store is known to be back. */
const settled = (postern: TestDaemon, path: string): Promise<Answer> =>
  until(`${path} to be answered`, async () => {
    const answer = await postern.ask(path);
    return answer.status !== 503 && answer;
  });

const posted = ({ requests }: Receiver): string[] =>
  postsOf(requests).flatMap((post) => eventsOf(post).map((event) => event.msg.subject));

/** Clients that add webhooks, none of them twice, and one that sends mail; each goes on until it is told to stop. */
function startLoad(postern: TestDaemon, url: string) {
  const calls: { readonly url: string; readonly answer: Answer }[] = [];
  const mails: { readonly subject: string; readonly reply: string }[] = [];
  let going = true;
  async function call(client: number): Promise<void> {
    for (let n = 0; going; n++) {
      const own = `${url}/${client}-${n}`;
      calls.push({ url: own, answer: await postern.ask('/webhooks/add', { url: own, events: ['send'] }) });
    }
  }
  async function mail(): Promise<void> {
    for (let n = 0; going; n++) {
      const subject = `mail ${n}`;
      const reply = await sendMail(postern.smtp, { from: 'ada@example.org', to: 'x@in.test' }, message(subject));
      mails.push({ subject, reply });
    }
  }
  const running = Promise.all([mail(), ...Array.from({ length: CLIENTS }, (_, client) => call(client))]);
  return {
    done: () => calls.filter(({ answer }) => answer.status === 200).length,
    refused: () => calls.filter(({ answer }) => answer.status !== 200).length,
    async stop() {
      going = false;
      await running;
      return { calls, mails };
    },
  };
}
