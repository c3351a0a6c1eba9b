import { join } from 'node:path';
import { expect } from 'chai';
import { megabytesIn, watchDisk } from '../support/attacks/disk.ts';
import { figures } from '../support/attacks/figures.ts';
import { type Flooded, flood } from '../support/attacks/flood.ts';
import type { Patch } from '../support/attacks/patches.ts';
import { size } from '../support/attacks/sizes.ts';
import { startVictim, type Victim } from '../support/attacks/victim.ts';
import { message, openSession, sendMail } from '../support/mail.ts';
import { until } from '../support/until.ts';

const MB = 1024 * 1024;
const UNDECLARED = size(1024, 200) * MB;
const LINE = 100 * MB;
const LIMIT_MB = 25;
const MEMORY_MB = size(40, 60);
const OPENING = ['EHLO big.test', 'MAIL FROM:<big@sender.test>', 'RCPT TO:<x@in.test>', 'DATA'];
const LINES = `${'x'.repeat(76)}\r\n`;

describe('oversize messages and lines', () => {
  let victim: Victim | undefined;
  afterEach(async () => {
    await victim?.stop();
    victim = undefined;
  });

  /** A daemon that has taken and delivered mail before, so that what grows is not its code. */
  async function warm(patches: readonly Patch[] = [], env: Readonly<Record<string, string>> = {}): Promise<Victim> {
    const fresh = (victim = await startVictim({ patches, env }));
    const big = `Subject: warm\r\n\r\n${LINES.repeat((20 * MB) / 78)}`;
    for (let i = 0; i < 3; i++)
      await sendMail(
        fresh.postern.smtp,
        { from: 'a@sender.test', to: 'x@in.test' },
        i === 0 ? big : message(`warm ${i}`),
      );
    await until('the deliveries', () => fresh.posts().length === 3, 60_000);
    fresh.hook.requests.splice(0);
    // The form of a large post is a file until its delivery is settled.
    await until('the end of the forms', async () => (await megabytesIn(join(fresh.dir, 'spool/tmp'))) < 0.1);
    return fresh;
  }

  /** Floods, and answers what grew meanwhile. */
  async function grown(of: Victim, sending: () => Promise<Flooded>) {
    const [rss, disk] = [await of.rss(), await megabytesIn(of.dir)];
    await of.forgetPeak();
    const watch = watchDisk(of.dir);
    const { replies, sent, seconds } = await sending();
    const mostDisk = await watch.end();
    return {
      replies,
      sent: sent / MB,
      seconds,
      rss: (await of.peak()) - rss,
      most: mostDisk - disk,
      left: (await megabytesIn(of.dir)) - disk,
    };
  }

  const undeclared =
    (of: Victim, total = UNDECLARED) =>
    () =>
      flood(of.postern.smtp, { opening: OPENING, filling: LINES, total, closing: '.\r\n' });
  const long = (of: Victim, opening: readonly string[]) => () =>
    flood(of.postern.smtp, { opening, filling: 'x', total: LINE, closing: '\r\n.\r\n' });

  it('are refused at MAIL if they declare their size, otherwise read and dropped', async () => {
    const postern = await warm();
    const session = await openSession(postern.postern.smtp);
    await session.say('EHLO big.test');
    expect(await session.say(`MAIL FROM:<big@sender.test> SIZE=${1024 * MB}`)).to.match(/^552 5\.3\.4/);
    session.close();

    const whole = await grown(postern, undeclared(postern));
    const inData = await grown(postern, long(postern, OPENING));
    const inCommand = await grown(postern, long(postern, ['EHLO big.test']));
    figures(12, {
      'MB undeclared': whole.sent,
      seconds: whole.seconds,
      'RSS + MB': whole.rss,
      'most disk + MB': whole.most,
      'disk left + MB': whole.left,
      'RSS + MB by a line in DATA': inData.rss,
      'by a line of a command': inCommand.rss,
      'MB of it read': inCommand.sent,
    });
    expect(whole.replies, 'of the whole').to.deep.equal(['552 5.3.4 Message size exceeds the limit']);
    expect(whole.sent * MB, 'all of it was read').to.be.at.least(UNDECLARED);
    expect(inData.replies, 'of a line in DATA').to.deep.equal(['552 5.3.4 Message size exceeds the limit']);
    expect(inCommand.replies, 'of a line of a command').to.deep.equal(['500 5.5.2 Line too long']);
    for (const { rss, most, left } of [whole, inData, inCommand]) {
      expect(rss, 'MB of memory').to.be.below(MEMORY_MB);
      expect(most, 'MB of disk, meanwhile').to.be.below(LIMIT_MB + 5);
      expect(left, 'MB of disk, after').to.be.below(2);
    }
    expect(await sendMail(postern.postern.smtp, { from: 'a@sender.test', to: 'x@in.test' }, message('after'))).to.match(
      /^250/,
    );
    await until('the delivery', () => postern.hook.requests.some(({ body }) => body.includes('after')));
    expect(postern.posts()).to.have.length(1);
    expect(postern.faults()).to.deep.equal([]);
  });

  it('would fill disk and memory without the limits (control)', async () => {
    const unlimited = {
      file: 'smtp/reception.ts',
      from: 'if (size > settings.maxMessageBytes) return refuse(REFUSALS.tooBig);',
      to: '',
    };
    const hoarding = {
      file: 'smtp/reception.ts',
      from: 'received.see(bytes);',
      to: 'received.see(bytes); (Reflect.get(globalThis, "hoard") ?? (Reflect.set(globalThis, "hoard", []), Reflect.get(globalThis, "hoard"))).push(Buffer.from(bytes));',
    };
    const postern = await warm([unlimited, hoarding], { POSTERN_SMTP__MAX_MESSAGE_BYTES: String(1024 * MB) });
    const session = await openSession(postern.postern.smtp);
    await session.say('EHLO big.test');
    expect(await session.say(`MAIL FROM:<big@sender.test> SIZE=${1023 * MB}`)).to.match(/^250/);
    session.close();
    const { replies, rss, most } = await grown(postern, undeclared(postern, 100 * MB));
    expect(replies[0]).to.match(/^250/);
    expect(rss, 'MB of memory').to.be.above(MEMORY_MB);
    expect(most, 'MB of disk').to.be.above(LIMIT_MB + 5);
  });
});
