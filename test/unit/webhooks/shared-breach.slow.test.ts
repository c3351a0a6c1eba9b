import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds, deliveryId } from '../../../src/base/ids.ts';
import { createRunningTime } from '../../../src/base/running-time.ts';
import { PLAIN_TARGET } from '../../../src/webhooks/destinations.ts';
import { openPoster } from '../../support/delivery.ts';
import { eventsOf } from '../../support/events.ts';
import { createTestLog } from '../../support/log.ts';
import { crlf } from '../../support/mime.ts';
import { startReceiver } from '../../support/receiver.ts';
import { openRenderer } from '../../support/renderer.ts';
import { createWebhookDispatcher } from '../../support/roads.ts';
import { openOne } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

describe('a message that breaks the parser in a shared POST', function () {
  this.timeout(60_000);

  /** Posts of three messages, each by what its events are; and how often each was attempted. */
  async function postsOf(raws: readonly string[]): Promise<{ posts: string[][]; attempts: number[] }> {
    const [receiver, { renderer }] = await Promise.all([
      startReceiver(),
      openRenderer({ script: new URL('../../support/mime-thread.ts', import.meta.url) }),
    ]);
    const poster = openPoster();
    const log = createTestLog();
    const spool = await openOne(await tempDir(), { clock: systemClock, log });
    const ids = createIds(systemClock);
    for (const raw of raws) {
      const id = ids.message();
      const bytes = crlf('From: ada@example.com', raw, '', 'x');
      const envelope = { mailFrom: '', client: { address: null, helo: null, tls: null } };
      const message = {
        id,
        receivedAt: systemClock.now(),
        trace: '',
        envelope,
        body: { kind: 'memory', bytes },
      } as const;
      const where = { account: 'acc', url: receiver.url, routeId: '1.1', pattern: '*', recipient: 'r@in.example' };
      const delivery = { id: deliveryId(id, '1.1', 'r@in.example'), kind: 'inbound', messageId: id, ...where } as const;
      expect(await spool.accept(message, [delivery])).to.equal('accepted');
    }
    const dispatcher = createWebhookDispatcher(
      {
        concurrency: 16,
        concurrencyPerEndpoint: 4,
        concurrencyAtStart: 2,
        batchBytes: 1024 ** 2,
        retryHours: 1,
        orderHoldMs: 900_000,
      },
      {
        spool,
        poster,
        renderer,
        clock: systemClock,
        ids,
        log,
        destinations: { of: async () => ({ kind: 'here' }), batchEvents: () => 10, target: () => PLAIN_TARGET },
        time: createRunningTime(systemClock),
        signingKeys: { keysFor: async () => ['k'] },
      },
    );
    await dispatcher.start();
    await until('all are delivered', async () => (await spool.count({})).delivered === 3);
    const posts = receiver.requests.map((post) => eventsOf(post).map(({ msg }) => msg.parse_error ?? msg.subject));
    const attempts = (await spool.list({}, 10)).map((row) => row.attempts);
    await dispatcher.stop();
    await Promise.all([renderer.stop(), poster.stop(), receiver.stop()]);
    return { posts, attempts };
  }

  it('has all of them posted singly, itself raw, without a failed attempt', async () => {
    const { posts, attempts } = await postsOf(['Subject: a', 'X-Test: throw\r\nSubject: bad', 'Subject: c']);
    expect(posts).to.have.deep.members([['a'], ['the parser failed'], ['c']]);
    expect(attempts).to.deep.equal([1, 1, 1]);
  });

  it('control: three harmless messages share a POST', async () => {
    expect((await postsOf(['Subject: a', 'Subject: b', 'Subject: c'])).posts).to.deep.equal([['a', 'b', 'c']]);
  });
});
