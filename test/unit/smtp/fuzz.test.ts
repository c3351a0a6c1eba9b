import { expect } from 'chai';
import { openData, type Started, startListener } from '../../support/smtp.ts';
import { until } from '../../support/until.ts';

const SESSIONS = 2000;
const AT_ONCE = 40;
const SEED = 20260105;

/** Chance that comes out the same in every run (mulberry32). */
function createChance(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const LINES = [
  'EHLO client.test',
  'HELO x',
  'MAIL FROM:<a@sender.test>',
  'MAIL FROM:<> SIZE=10 BODY=8BITMIME SMTPUTF8',
  'RCPT TO:<b@ours.test>',
  'RCPT TO:<"\\"@x"@ours.test>',
  'RCPT TO:<nobody@ours.test>',
  'DATA',
  'Subject: x',
  '',
  '.',
  '..',
  '.x',
  'RSET',
  'NOOP',
  'STARTTLS',
  'VRFY x',
  'HELP',
  'AUTH PLAIN AA==',
  'BDAT 5 LAST',
  'GET / HTTP/1.1',
  'PROXY TCP4 1.2.3.4 1.2.3.4 1 2',
  '\0\0\0',
  '\x16\x03\x01\x02\x00\x01',
  'QUIT',
  'x'.repeat(3000),
];
const ENDS = ['\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\n', '\r', '', '\r\n.\r\n', '\r\n\r\n', '\0\r\n'];

/** A dialog in some order with some line ends, and some of its bytes changed. */
function invent(chance: (below: number) => number): Buffer {
  let text = chance(3) === 0 ? '' : 'EHLO c\r\nMAIL FROM:<a@sender.test>\r\nRCPT TO:<b@ours.test>\r\n';
  for (let i = chance(25); i >= 0; i--) text += (LINES[chance(LINES.length)] ?? '') + (ENDS[chance(ENDS.length)] ?? '');
  const bytes = Buffer.from(text, 'latin1');
  for (let i = chance(6); i > 0 && bytes.length > 0; i--) bytes[chance(bytes.length)] = chance(256);
  return bytes;
}

describe('random bytes', () => {
  let started: Started;
  before(async () => {
    started = await startListener({ maxSessions: 10_000, maxSessionsPerAddress: 10_000 });
  });
  after(() => started.stop());

  it(`neither stop the listener nor leave anything behind (${SESSIONS} sessions, seed ${SEED})`, async function () {
    this.timeout(60_000);
    const chance = createChance(SEED);
    const session = async () => {
      const client = started.raw();
      const bytes = invent(chance);
      const cut = chance(bytes.length + 1);
      const leave = chance(4);
      client.send(bytes.subarray(0, cut));
      await new Promise((resolve) => setImmediate(resolve));
      client.send(bytes.subarray(cut));
      if (leave === 0) client.destroy();
      else client.end();
      await client.closed();
      client.destroy();
    };
    for (let i = 0; i < SESSIONS; i += AT_ONCE) {
      await Promise.all(Array.from({ length: AT_ONCE }, session));
    }
    await until('the end of all sessions', () => started.log.of('smtp.session').length === SESSIONS);
    expect(started.below.open).to.equal(0);
    expect(started.log.of('smtp.fault')).to.deep.equal([]);
    expect(started.below.taken.length, 'messages that made sense').to.be.greaterThan(10);
    for (const { bytes } of started.below.taken) expect(bytes.toString('latin1')).to.not.match(/\0|\r(?!\n)|(?<!\r)\n/);
    const client = await started.client();
    await openData(client);
    expect(await client.say('text\r\n.')).to.match(/^250 2\.0\.0/);
  });
});
