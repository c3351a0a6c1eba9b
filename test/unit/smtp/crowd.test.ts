import { expect } from 'chai';
import {
  type Client,
  openData,
  type Started,
  sendMessage,
  startListener,
  whereverSessionsAre,
} from '../../support/smtp.ts';
import { until } from '../../support/until.ts';

const HOLDERS = 20;
const EACH = 2;
/** The attack at a small size: every slot is held from twenty addresses. */
const FULL = { maxSessions: HOLDERS * EACH, maxSessionsPerAddress: EACH };
const addressOf = (n: number) => `127.0.1.${1 + n}`;
const HONEST = '127.0.2.1';

/** Takes every slot. */
async function hold(started: Started, helo?: string): Promise<Client[]> {
  const held: Client[] = [];
  for (let n = 0; n < HOLDERS * EACH; n++) held.push(await started.client(helo, addressOf(n % HOLDERS)));
  return held;
}

const ended = (clients: readonly Client[]) =>
  clients.flatMap((client) => client.pending().filter((reply) => reply.startsWith('421')));

whereverSessionsAre('twenty addresses that hold every session', (start) => {
  let started: Started;
  afterEach(() => started.stop());

  it('lose the longest idle one to a client of another address, which delivers at once', async () => {
    started = await start(FULL);
    const held = await hold(started);
    const honest = await started.client(undefined, HONEST);
    expect(await sendMessage(honest, 'honest')).to.match(/^250 2\.0\.0/);
    await until('the end of another', () => ended(held).length === 1);
    expect(ended(held)[0]).to.match(/^421 4\.3\.2/);
    await until('the log', () => started.log.of('smtp.session').length === 1);
  });

  it('get 421 4.7.0 above their own limit, and take no slot of an address with fewer', async () => {
    started = await start(FULL);
    await hold(started);
    const honest = await started.client(undefined, HONEST);
    for (let n = 0; n < HOLDERS; n++) await started.raw(addressOf(n)).reply();
    expect(await sendMessage(honest, 'honest')).to.match(/^250 2\.0\.0/);
  });

  it('keep a slot while a message of theirs is being received', async () => {
    started = await start(FULL);
    const held = await hold(started);
    const [sending, ...others] = held;
    if (!sending) throw new Error('nobody');
    await openData(sending);
    // All others go, one after the other.
    for (let n = 0; n < others.length; n++) expect(await started.raw(`127.0.3.${1 + n}`).reply()).to.match(/^220/);
    await until('the ends', () => ended(others).length === others.length);
    sending.send('Subject: a\r\n\r\nb\r\n.\r\n');
    expect(await sending.reply()).to.match(/^250 2\.0\.0/);
  });
});

describe('a crowded listener', () => {
  let started: Started;
  afterEach(() => started.stop());

  it('closes the session that has waited longest without mail, not the oldest one', async () => {
    started = await startListener({ maxSessions: 3, maxSessionsPerAddress: 1 });
    const first = await started.client(undefined, addressOf(1));
    await started.clock.advance(2000);
    const second = await started.client(undefined, addressOf(2));
    await started.clock.advance(2000);
    await started.client(undefined, addressOf(3));
    await sendMessage(first, 'mail');
    expect(await started.raw(HONEST).reply()).to.match(/^220/);
    expect(await second.reply()).to.match(/^421 4\.3\.2/);
    expect(first.pending()).to.deep.equal([]);
  });

  it('has short timeouts for clients without mail, and none for a message being received', async () => {
    started = await startListener(FULL);
    const held = await hold(started);
    const [sending, ...others] = held;
    if (!sending) throw new Error('nobody');
    await openData(sending);
    for (let second = 0; second < 12; second++) await started.clock.advance(1000);
    // Below four fifths of all slots the others are left alone.
    await until('the ends', () => ended(others).length > HOLDERS * EACH * 0.2);
    expect(ended(others).every((reply) => reply.startsWith('421 4.4.2'))).to.equal(true);
    expect(sending.pending()).to.deep.equal([]);
  });

  it('closes the slowest message when nothing else is left', async () => {
    started = await startListener({ maxSessions: 2, maxSessionsPerAddress: 1 });
    const slow = await started.client(undefined, addressOf(1));
    const quick = await started.client(undefined, addressOf(2));
    await openData(slow);
    await openData(quick);
    for (let second = 0; second < 12; second++) {
      const arrived = started.below.held;
      slow.send(`${'x'.repeat(598)}\r\n`);
      quick.send(`${'x'.repeat(9998)}\r\n`);
      await until('the bytes', () => started.below.held >= arrived + 10_600);
      await started.clock.advance(1000);
    }
    expect(await started.raw(HONEST).reply()).to.match(/^220/);
    expect(await slow.reply()).to.match(/^421 4\.3\.2/);
    quick.send('.\r\n');
    expect(await quick.reply()).to.match(/^250 2\.0\.0/);
  });

  it('counts the networks of one IPv6 site (/48) together', async () => {
    started = await startListener({ maxSessionsPerAddress: 2, proxyProtocol: ['127.0.0.1'] });
    const from = async (address: string) => {
      const client = started.raw();
      client.send(`PROXY TCP6 ${address} 2001:db8::1 50000 25\r\n`);
      return (await client.reply()).slice(0, 9);
    };
    for (let n = 0; n < 8; n++) expect(await from(`2001:db8:1:${n}::7`)).to.match(/^220/);
    expect(await from('2001:db8:1:99::7')).to.equal('421 4.7.0');
    expect(await from('2001:db8:2:99::7')).to.match(/^220/);
  });
});
