import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { mongoDriver } from '../support/database.ts';
import { eventsOf } from '../support/events.ts';
import { size } from '../support/faults/sizes.ts';
import { type Hosts, inSeconds, RECORDS, send, startHosts } from '../support/hosts.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const KILLS = size('HOST_KILLS', 20, 2);
const MESSAGES = size('HOST_MESSAGES', 2000, 60);
const CLIENTS = 8;

/** Where the mail goes in turn: to a server that is up, to one that is down, and to one that is up, later. */
const WAYS = [
  () => ({}),
  () => ({ message: { to: [{ email: 'jo@down.test' }] } }),
  () => ({ send_at: inSeconds(20) }),
] as const;

interface Seen {
  readonly acknowledged: ReadonlySet<string>;
  readonly arrived: readonly string[];
  /** Subjects of the events of posts that were answered with 200. */
  readonly told: readonly string[];
  /** Ids of those events. */
  readonly ids: ReadonlySet<string>;
}

const without = (all: Iterable<string>, some: readonly string[]) => {
  const known = new Set(some);
  return [...all].filter((one) => !known.has(one));
};

function show(what: string, { acknowledged, arrived, told, ids }: Seen): void {
  console.log(
    `      ${what}: acknowledged ${acknowledged.size}, lost ${without(acknowledged, arrived).length}, ` +
      `sent again ${arrived.length - new Set(arrived).size}, events lost ${without(acknowledged, told).length}, ` +
      `posted again ${told.length - ids.size}`,
  );
}

/** Sends through a third host, which is killed under load and loses its folder, again and again; another adopts it. */
async function loseHosts(hosts: Hosts): Promise<Seen> {
  const acknowledged = new Set<string>();
  const told: string[] = [];
  const ids = new Set<string>();
  let isUp = true;
  hosts.hook.answer((post) => {
    if (!isUp) return { status: 503 };
    for (const event of eventsOf(post)) {
      told.push(event.msg.subject);
      ids.add(event._id);
    }
    return { status: 200 };
  });
  await hosts.a.api('/webhooks/add', { url: hosts.hook.url, events: ['send'] });
  hosts.zone.set({ ...RECORDS, 'down.test': { fails: 'servfail' } });
  let number = 0;
  for (let kill = 1; kill <= KILLS; kill++) {
    isUp = kill % 2 === 0;
    const dir = await tempDir();
    const lost = await hosts.spawn(dir);
    const enough = Math.ceil((MESSAGES * kill) / KILLS);
    const client = async () => {
      while (lost.running()) {
        const n = number++;
        const way = WAYS[n % WAYS.length] ?? WAYS[0];
        const done = await send(lost, `mail ${n}`, way()).catch(() => undefined);
        if (done === undefined) return;
        acknowledged.add(`mail ${n}`);
        // In the middle of the calls of the other clients.
        if (acknowledged.size === enough) lost.signal('SIGKILL');
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    await lost.end('SIGKILL');
    await rm(join(dir, 'spool'), { recursive: true });
    const [row] = (await hosts.rows.hosts.many({})).filter(({ name }) => name === 'c.postern.test');
    if (!row) throw new Error('the host has no row');
    const adopted = await hosts.cli('host', 'adopt', row.id, '--by', 'b.postern.test');
    expect(adopted.code, adopted.err).to.equal(0);
    expect((await hosts.cli('host', 'forget', row.id)).code).to.equal(0);
  }
  isUp = true;
  hosts.zone.set({ ...RECORDS, 'down.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] } });
  await send(hosts.b, 'the last', { send_at: inSeconds(20) });
  const isIdle = async () =>
    hosts.arrived().includes('the last') &&
    told.includes('the last') &&
    (await hosts.rows.copies.many({}, { limit: 1 })).length === 0 &&
    (await hosts.b.queue('--state', 'waiting')).length === 0;
  await until('all that is left to leave', isIdle, 600_000);
  return { acknowledged, arrived: hosts.arrived(), told, ids };
}

if (mongoDriver)
  describe(`hosts that are killed under load and lose their folder, ${KILLS} times in ${MESSAGES} messages`, function () {
    this.timeout(1_800_000);
    let hosts: Hosts;
    afterEach(() => hosts?.stop());

    it('lose no mail and no event with copies', async () => {
      hosts = await startHosts({ POSTERN_QUEUE__COPIES: 'store' });
      const seen = await loseHosts(hosts);
      show('with copies', seen);
      expect(seen.acknowledged.size).to.be.at.least(MESSAGES);
      expect(without(seen.acknowledged, seen.arrived), 'acknowledged, but never sent').to.deep.equal([]);
      expect(without(seen.acknowledged, seen.told), 'sent, but never posted').to.deep.equal([]);
    });

    it('(control) lose both without copies', async () => {
      hosts = await startHosts();
      const seen = await loseHosts(hosts);
      show('without copies', seen);
      expect(without(seen.acknowledged, seen.arrived)).to.not.deep.equal([]);
      expect(without(seen.acknowledged, seen.told)).to.not.deep.equal([]);
    });
  });
else console.log('      hosts that are lost: left out, there is no server with the protocol of MongoDB');
