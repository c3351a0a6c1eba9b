import { expect } from 'chai';
import { spawnDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { KILLS, loadThroughKills, MESSAGES } from '../support/kill-load.ts';
import { startReceiver, type Receiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

describe(`kill -9 in the middle of ${MESSAGES} messages, ${KILLS} times`, () => {
  let hook: Receiver;
  beforeEach(async () => { hook = await startReceiver(); });
  afterEach(() => hook.stop());

  it('loses nothing that was acknowledged, and repeats carry the same webhook-id', async () => {
    const dir = await tempDir();
    const { postern, acknowledged } = await loadThroughKills({
      start: () => spawnDaemon(dir), place: ({ smtp }) => smtp, hello: ['EHLO client.example.org'], to: 'x@in.test',
      async prepare({ base }) {
        const { api } = createCaller(base, KEY);
        await api('/inbound/add-domain', { domain: 'in.test' });
        await api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
      },
    });
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
