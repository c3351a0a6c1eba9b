import { expect } from 'chai';
import { type ChildDaemon, spawnDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { startMailServer } from '../support/mail-server.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { size } from '../support/sizes.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

// What is answered is durable, also where it is many small things: events of the lists, mails of an account.

const MESSAGES = 200;
const HEADERS = 'X-Number';

/** Posted events without repeats of a batch. */
const arrived = (hook: Receiver) =>
  [...new Map(postsOf(hook.requests).map((post) => [post.headers['webhook-id'], post])).values()].flatMap(eventsOf);
const idsOf = (hook: Receiver) => new Set(postsOf(hook.requests).map(({ headers }) => headers['webhook-id']));

describe('kill -9 during changes of the lists', () => {
  it('loses no event of an answered change, and counts each batch once', async () => {
    const hook = await startReceiver();
    const dir = await tempDir();
    const env = { POSTERN_WEBHOOKS__BATCH_WAIT_MS: '20', POSTERN_WEBHOOKS__BATCH_EVENTS: '7' };
    let daemon = await spawnDaemon(dir, env);
    const { id } = await createCaller(daemon.base, KEY).api('/webhooks/add', { url: hook.url, events: ['blacklist'] });
    const answered: string[] = [];
    for (let round = 0; round < size(3, 2); round++) {
      const { ask } = createCaller(daemon.base, KEY);
      let next = 0;
      const caller = async () => {
        while (next < 400) {
          const email = `r${round}-${next++}@example.com`;
          if ((await ask('/rejects/add', { email })).status === 200) answered.push(email);
        }
      };
      const calling = Promise.allSettled(Array.from({ length: 8 }, caller));
      const before = answered.length;
      await until('some changes', () => answered.length - before > 40 + 30 * round, 60_000);
      await daemon.end('SIGKILL');
      await calling;
      daemon = await spawnDaemon(dir, env);
    }
    const emails = () => new Set(arrived(hook).map(({ reject }) => reject.email));
    await until('all that were answered', () => answered.every((email) => emails().has(email)), 60_000).catch(() => {});
    expect(answered.filter((email) => !emails().has(email))).to.deep.equal([]);
    expect(emails().size, 'an event in two batches').to.equal(arrived(hook).length);
    const { api } = createCaller(daemon.base, KEY);
    await until(
      'the numbers',
      async () => (await api('/webhooks/info', { id })).events_sent === arrived(hook).length,
      20_000,
    );
    expect((await api('/webhooks/info', { id })).batches_sent).to.equal(idsOf(hook).size);
    expect(await daemon.end()).to.equal(0);
    await hook.stop();
  }).timeout(240_000);
});

describe(`kill -9 while ${MESSAGES} mails are sent`, function () {
  this.timeout(240_000);

  it('loses none, repeats only those in flight, and keeps every number correct', async () => {
    const server = await startMailServer();
    const dir = await tempDir();
    const env = {
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${server.port}`,
      POSTERN_OUTBOUND__QUOTA: 'false',
      POSTERN_OUTBOUND__CONCURRENCY: '10',
    };
    let daemon: ChildDaemon = await spawnDaemon(dir, env);
    const api = (path: string, params: object) => createCaller(daemon.base, KEY).api(path, params);
    const ids: string[] = [];
    try {
      for (let n = 0; n < MESSAGES; n += 20) {
        const to = Array.from({ length: 20 }, (_, i) => ({
          email: `${(n + i) % 10 === 0 ? 'gone' : 'jo'}${n + i}@to.test`,
        }));
        const answer = await api('/messages/send', {
          message: {
            from_email: 'news@sender.test',
            subject: 'kill',
            text: 'x',
            headers: { [HEADERS]: String(n) },
            to,
            tags: ['kill'],
          },
        });
        ids.push(...answer.map(({ _id }: { _id: string }) => _id));
        if (n === Math.floor(MESSAGES / 60) * 20 || n === Math.floor(MESSAGES / 30) * 20) {
          await until('some are on their way', () => server.asked.length > n / 2);
          await daemon.end('SIGKILL');
          daemon = await spawnDaemon(dir, env);
        }
      }
      const asked = () => new Set(server.asked).size;
      await until('all were handed over', () => asked() === MESSAGES, 120_000);
      await until(
        'all are counted',
        async () => {
          const [tag] = await api('/tags/list', {});
          return tag?.sent === MESSAGES * 0.9 && tag.hard_bounces === MESSAGES * 0.1;
        },
        120_000,
      );
      const found = await api('/messages/search', { limit: 1000 });
      expect(new Set(found.map(({ _id }: { _id: string }) => _id))).to.deep.equal(new Set(ids));
      const states = found.map(({ state }: { state: string }) => state);
      expect(states.filter((state: string) => state === 'bounced')).to.have.length(MESSAGES * 0.1);
      expect(states.filter((state: string) => state === 'sent')).to.have.length(MESSAGES * 0.9);
      expect(server.asked.length - MESSAGES, 'repeats: at most what was in flight at two kills').to.be.at.most(2 * 20);
      expect(new Set(server.mails.flatMap(({ to }) => to)).size).to.equal(MESSAGES * 0.9);
      expect(await api('/rejects/list', {})).to.have.length(MESSAGES * 0.1);
    } finally {
      await daemon.end();
      await server.stop();
    }
  });
});
