import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { mongoDriver } from '../support/database.ts';
import { type Books, createHostMail, MAIL_SETTINGS } from '../support/faults/host-mail.ts';
import { size } from '../support/faults/sizes.ts';
import { type Hosts, startHosts } from '../support/hosts.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const KILLS = size('HOST_KILLS', 20, 2);
const MESSAGES = size('HOST_MESSAGES', 2000, 200);
const CLIENTS = 16;
/** Kinds of mail that cannot have been delivered before the kill. */
const WAITING = /down|held|scheduled/;

/** Mail of every kind through hosts that are killed under load and lose their folder; others adopt them meanwhile. */
async function loseHosts(hosts: Hosts, all: boolean) {
  const { books, give, pull, takeEvents, recover } = await createHostMail(hosts);
  let acknowledged = 0;
  const adoptions: Promise<void>[] = [];
  for (let kill = 1; kill <= KILLS; kill++) {
    takeEvents(kill % 2 === 0);
    const dir = await tempDir();
    const name = `c${kill}.postern.test`;
    const lost = await hosts.spawn(dir, { POSTERN_HOSTNAME: name });
    const enough = Math.ceil((MESSAGES * kill) / KILLS);
    const client = async () => {
      // In the middle of the calls of the other clients.
      while (lost.running())
        if ((await give(lost).catch(() => false)) && ++acknowledged === enough) lost.signal('SIGKILL');
    };
    const consumer = async () => {
      while (lost.running()) await pull(lost, 2).catch(() => {});
    };
    await Promise.all([...Array.from({ length: CLIENTS }, client), consumer()]);
    await lost.end('SIGKILL');
    await rm(join(dir, 'spool'), { recursive: true });
    adoptions.push(adopt(hosts, name, kill % 2 === 0 ? 'a' : 'b'));
  }
  await Promise.all(adoptions);
  await recover(all);
  return { books, acknowledged };
}

function show(how: string, { figures }: Books): void {
  for (const { kind, owed, lost, again } of figures())
    console.log(`      ${how}, ${kind}: owed ${owed}, lost ${lost}, came again ${again}`);
}

async function adopt(hosts: Hosts, name: string, by: 'a' | 'b'): Promise<void> {
  const { cli, rows } = hosts;
  const { log } = hosts[by];
  // 75 (EX_TEMPFAIL) says that the store did not answer in time, and to try again.
  const adoption = async () => {
    const { code, err } = await cli('host', 'adopt', name, '--by', `${by}.postern.test`);
    const seen = (['store.away', 'copy.fault', 'host.adopted'] as const).flatMap((event) => log.of(event).slice(-5));
    expect(code, `${err}${JSON.stringify(seen, undefined, 2)}`).to.be.oneOf([0, 75]);
    return code === 0;
  };
  await until(`the adoption of ${name}`, adoption, 300_000);
  const row = (await rows.hosts.many({})).find((one) => one.name === name);
  expect((await cli('host', 'forget', row?.id ?? '')).code).to.equal(0);
}

if (mongoDriver)
  describe(`hosts that are killed under load and lose their folder, ${KILLS} times in ${MESSAGES} messages`, function () {
    this.timeout(3_600_000);
    let hosts: Hosts;
    afterEach(() => hosts?.stop());

    it('lose no mail and no event with copies, and repeat some only under the same id', async () => {
      hosts = await startHosts({ ...MAIL_SETTINGS, POSTERN_QUEUE__COPIES: 'store' });
      const { books, acknowledged } = await loseHosts(hosts, true);
      show('with copies', books);
      expect(acknowledged).to.be.at.least(MESSAGES);
      expect(books.lost()).to.deep.equal([]);
      expect(books.renamed()).to.deep.equal([]);
    });

    it('(control) lose what waits without copies', async () => {
      hosts = await startHosts(MAIL_SETTINGS);
      const { books } = await loseHosts(hosts, false);
      show('without copies', books);
      for (const { kind, lost } of books.figures()) if (WAITING.test(kind)) expect(lost, kind).to.be.above(0);
    });
  });
else console.log('      hosts that are lost: left out, there is no server with the protocol of MongoDB');
