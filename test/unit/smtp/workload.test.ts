import { expect } from 'chai';
import { type Client, type Started, startListener } from '../../support/smtp.ts';

const MOST = 1_000_000;

/** What one transaction may cost: recipients times bytes. */
describe('a large message for many recipients', () => {
  let started: Started;
  afterEach(() => started.stop());

  /** Names recipients; returns how many were accepted, and the reply to the first other. */
  async function name(client: Client, from: number, count: number) {
    let taken = 0;
    for (let n = from; n < from + count; n++) {
      const reply = await client.say(`RCPT TO:<b${n}@ours.test>`);
      if (!reply.startsWith('250')) return { taken, reply };
      taken++;
    }
    return { taken, reply: undefined };
  }
  async function deliver(client: Client, bytes: number): Promise<string> {
    expect(await client.say('DATA')).to.match(/^354/);
    client.send(`Subject: a\r\n\r\n${`${'x'.repeat(98)}\r\n`.repeat(Math.floor(bytes / 100))}.\r\n`);
    return client.reply();
  }

  it('is accepted for a hundred; the others get 452 4.5.3 at RCPT and are sent in another transaction', async () => {
    started = await startListener({ maxMessageBytes: MOST, maxRecipients: 1000 });
    const client = await started.client();
    let at = 0;
    for (const expected of [100, 100, 50]) {
      await client.say(`MAIL FROM:<a@sender.test> SIZE=${MOST}`);
      const { taken, reply } = await name(client, at, 250 - at);
      expect(taken).to.equal(expected);
      if (at + taken < 250) expect(reply).to.match(/^452 4\.5\.3/);
      expect(await deliver(client, 900_000)).to.match(/^250 2\.0\.0/);
      at += taken;
    }
    expect(started.below.taken.flatMap(({ routed }) => routed)).to.have.length(250);
  }).timeout(20_000);

  it('counts the copies of a route as recipients, and always accepts one recipient', async () => {
    started = await startListener({ maxMessageBytes: MOST, maxRecipients: 1000 });
    const { lookup } = started.below;
    started.below.lookup = (mailbox, domain) => {
      const found = lookup(mailbox, domain);
      if (found.kind !== 'matched') return found;
      const also = Array.from({ length: 149 }, (_, n) => ({ routeId: `1.${n}`, url: 'http://127.0.0.1/' }));
      return { ...found, match: { ...found.match, also } };
    };
    const client = await started.client();
    await client.say(`MAIL FROM:<a@sender.test> SIZE=${MOST}`);
    expect(await name(client, 0, 2)).to.deep.include({ taken: 1 });
    expect(await deliver(client, 900_000)).to.match(/^250 2\.0\.0/);
  });

  it('that declares a smaller size is refused with 452 4.5.3 at its end, as one that declares none', async () => {
    started = await startListener({ maxMessageBytes: MOST, maxRecipients: 1000 });
    for (const declared of [' SIZE=100', '']) {
      const client = await started.client();
      await client.say(`MAIL FROM:<a@sender.test>${declared}`);
      expect((await name(client, 0, 500)).taken).to.equal(500);
      expect(await deliver(client, 900_000)).to.match(/^452 4\.5\.3/);
    }
    expect(started.below.taken).to.have.length(0);
  }).timeout(20_000);

  it('is not limited if small, whatever it declares', async () => {
    started = await startListener({ maxMessageBytes: MOST, maxRecipients: 1000 });
    for (const declared of [' SIZE=50000', '']) {
      const client = await started.client();
      await client.say(`MAIL FROM:<a@sender.test>${declared}`);
      expect((await name(client, 0, 1000)).taken).to.equal(1000);
      expect(await deliver(client, 60_000)).to.match(/^250 2\.0\.0/);
    }
  }).timeout(30_000);
});
