import { expect } from 'chai';
import { type ChildDaemon, spawnDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { copiesEnv } from '../support/faults/copies.ts';
import { size } from '../support/faults/sizes.ts';
import { message, sendMail } from '../support/mail.ts';
import { startReceiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const KILLS = size('ORDER_KILLS', 20, 2);
const SENDERS = size('ORDER_SENDERS', 20, 12);
const EACH = size('ORDER_EACH', 100, 20);

/** What arrived with 2xx for the first time, by sender, in the order of its arrival. */
type Passed = ReadonlyMap<string, number[]>;

/**
 * Senders write one message after another, each after the 250 of the one before, while the daemon is killed; the endpoint
 * is slow, answers 500 or resets the connection for some. Returns what was acknowledged, and what arrived.
 */
async function storm(order: string, kills: number): Promise<{ acknowledged: number; passed: Passed }> {
  const dir = await tempDir();
  const hook = await startReceiver();
  const env = { POSTERN_INBOUND__OWNERSHIP: 'first', ...(await copiesEnv()) };
  let daemon: ChildDaemon | undefined = await spawnDaemon(dir, env);
  const passed = new Map<string, number[]>();
  const attempts = new Map<string, number>();
  hook.answer(async (request) => {
    const [event] = postsOf([request]).flatMap(eventsOf);
    if (!event) return { status: 200 };
    const [who = '', number] = event.msg.subject.split('-');
    const n = Number(number);
    const attempt = (attempts.get(event.msg.subject) ?? 0) + 1;
    attempts.set(event.msg.subject, attempt);
    if (n % 3 === 0) await new Promise((resolve) => setTimeout(resolve, (n % 7) * 3));
    // One in a run of many, so that the endpoint does not count as down.
    if (attempt === 1 && n % 19 === 7) return who.endsWith('1') ? 'reset' : { status: 500 };
    const before = passed.get(who) ?? [];
    if (!before.includes(n)) passed.set(who, [...before, n]);
    return { status: 200 };
  });
  try {
    const { api } = createCaller(daemon.base, KEY);
    await api('/inbound/add-domain', { domain: 'in.test' });
    await api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url, order });
    let acknowledged = 0;
    const acked = new Set<string>();
    const write = async (who: string): Promise<void> => {
      for (let n = 1; n <= EACH; ) {
        const smtp = daemon?.smtp;
        const text = message(`${who}-${n}`).replace('ada@example.org', `${who}@example.org`);
        const reply =
          smtp && (await sendMail(smtp, { from: `${who}@sender.test`, to: 'jo@in.test' }, text).catch(() => ''));
        if (!reply?.startsWith('250')) {
          await new Promise((resolve) => setTimeout(resolve, 20));
          continue;
        }
        acknowledged++;
        acked.add(`${who}-${n++}`);
      }
    };
    const people = Array.from({ length: SENDERS }, (_, i) => `s${i}`);
    const writing = Promise.all(people.map(write));
    for (let kill = 1; kill <= kills; kill++) {
      const at = (kill * SENDERS * EACH) / (kills + 1);
      await until('some of the mail', () => acknowledged >= at, 120_000);
      const killed = daemon;
      daemon = undefined;
      await killed?.end('SIGKILL');
      daemon = await spawnDaemon(dir, env);
    }
    await writing;
    const has = (name: string): boolean => {
      const [who = '', n] = name.split('-');
      return passed.get(who)?.includes(Number(n)) ?? false;
    };
    await until('all that was acknowledged', () => [...acked].every(has), 300_000);
    return { acknowledged, passed };
  } finally {
    await daemon?.end();
    await hook.stop();
  }
}

/** How many messages arrived after a later one of their sender. */
const late = (passed: Passed): number =>
  [...passed.values()].reduce(
    (sum, numbers) => sum + numbers.filter((n, i) => numbers.slice(0, i).some((other) => other > n)).length,
    0,
  );

describe(`kill -9 under ordered mail, ${KILLS} times`, function () {
  this.timeout(900_000);

  it('posts no message of a sender before an earlier one, but may repeat one', async () => {
    const { acknowledged, passed } = await storm('sender', KILLS);
    console.log(`      in order: acknowledged ${acknowledged}, kills ${KILLS}, late ${late(passed)}`);
    expect(acknowledged).to.equal(SENDERS * EACH);
    expect(late(passed)).to.equal(0);
  });

  it('posts some out of order without ordering (control)', async () => {
    const { acknowledged, passed } = await storm('none', 1);
    console.log(`      in order, control: acknowledged ${acknowledged}, kills 1, late ${late(passed)}`);
    expect(late(passed)).to.be.above(0);
  });
});
