import { expect } from 'chai';
import { spawnDaemon, type ChildDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, openSession } from '../support/mail.ts';
import { startReceiver, type Receiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

// `npm run test:kill` sets the full size; within `npm test` it is small.
const KILLS = Number(process.env.KILLS ?? 2);
const MESSAGES = Number(process.env.KILL_MESSAGES ?? 200);
const CONNECTIONS = 20;

describe(`kill -9 in the middle of ${MESSAGES} messages, ${KILLS} times`, () => {
  let hook: Receiver;
  beforeEach(async () => { hook = await startReceiver(); });
  afterEach(() => hook.stop());

  /** Sends every message once over several sessions; answers what was acknowledged: subject → the reply of the 250. Stops when the daemon dies. */
  async function load(postern: ChildDaemon, round: number, acknowledged: Map<string, string>): Promise<void> {
    let next = 0;
    async function session(): Promise<void> {
      const smtp = await openSession(postern.smtp);
      await smtp.say('EHLO client.example.org');
      while (next < MESSAGES) {
        const subject = `r${round}-m${next++}`;
        await smtp.say('MAIL FROM:<ada@example.org>');
        await smtp.say('RCPT TO:<x@in.test>');
        await smtp.say('DATA');
        const reply = await smtp.data(message(subject, subject.repeat(500)));
        if (reply.startsWith('250')) acknowledged.set(subject, reply);
      }
      smtp.close();
    }
    await Promise.allSettled(Array.from({ length: CONNECTIONS }, session));
  }

  it('loses nothing that was acknowledged, and repeats carry the same webhook-id', async () => {
    const dir = await tempDir();
    const acknowledged = new Map<string, string>();
    let postern = await spawnDaemon(dir);
    const api = () => createCaller(postern.base, KEY).api;
    await api()('/inbound/add-domain', { domain: 'in.test' });
    await api()('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
    for (let round = 0; round < KILLS; round++) {
      const loading = load(postern, round, acknowledged);
      const before = acknowledged.size;
      // Somewhere in the middle, at another place each round.
      const share = (round + 1) / (KILLS + 1);
      await until('some of the load', () => acknowledged.size - before >= MESSAGES * share * 0.9, 60_000);
      await postern.end('SIGKILL');
      await loading;
      postern = await spawnDaemon(dir);
    }
    await load(postern, KILLS, acknowledged);
    const posts = createLedger(hook);
    await until('everything acknowledged', () => {
      const arrived = posts();
      return arrived.size >= acknowledged.size && [...acknowledged.keys()].every((subject) => arrived.has(subject));
    }, 120_000).catch(() => {});
    const arrived = posts();
    expect([...acknowledged.keys()].filter((subject) => !arrived.has(subject)), 'acknowledged, but never delivered').to.deep.equal([]);
    const split = [...arrived].filter(([, ids]) => ids.size > 1);
    expect(split.map(([subject]) => subject), 'one message under two ids').to.deep.equal([]);
    for (const [subject, reply] of acknowledged) {
      expect([...arrived.get(subject) ?? []][0], subject).to.contain(/queued as (\w+)/.exec(reply)?.[1] ?? 'an id');
    }
    expect(await postern.end()).to.equal(0);
  }).timeout(600_000);
});

/** What arrived so far: subject → the webhook-ids it came under. Reads each post once. */
function createLedger(hook: Receiver): () => ReadonlyMap<string, ReadonlySet<string>> {
  const ids = new Map<string, Set<string>>();
  let read = 0;
  return () => {
    for (const post of postsOf(hook.requests.slice(read))) {
      const subject = String(eventsOf(post)[0].msg.subject);
      ids.set(subject, (ids.get(subject) ?? new Set()).add(String(post.headers['webhook-id'])));
    }
    read = hook.requests.length;
    return ids;
  };
}
