import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { createPrometheus } from '../../../src/base/prometheus.ts';
import { createBrake } from '../../../src/inbound/brake.ts';
import type { Match, RoutedRecipient } from '../../../src/inbound/types.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

const MINUTE = 60_000;
const ANSWER = ['In-Reply-To: <1@example.com>'];

/** A brake for more than four answers in ten minutes. */
function openBrake(messages = 4) {
  const clock = createTestClock();
  const log = createTestLog();
  const metrics = createPrometheus({ clock }, { ofProcess: false });
  const brake = createBrake({ messages, windowMs: 10 * MINUTE }, { clock, log, metrics });

  /** Whether the brake marks a message. */
  async function marks(
    { from = 'ann@example.net', to = 'box@in.test', header = ANSWER, mailFrom = from, ...match } = {} as Mail,
  ) {
    const bytes = Buffer.from([`From: Ann <${from}>`, ...header, '', 'x'].join('\r\n'));
    const envelope = { mailFrom, client: { address: '192.0.2.1', helo: 'mx.example.net', tls: null } };
    const loops = await brake.loopsOf({ envelope, body: { kind: 'memory', bytes } }, [routed(to, match)]);
    return loops.includes(to);
  }
  const after = async (n: number, mail: Mail = {}) => {
    for (let i = 0; i < n; i++) await marks(mail);
    return marks(mail);
  };
  return { brake, clock, log, metrics, marks, after };
}

interface Mail extends Partial<Match> {
  readonly from?: string;
  readonly to?: string;
  readonly header?: readonly string[];
  readonly mailFrom?: string;
}

const routed = (recipient: string, match: Partial<Match> = {}): RoutedRecipient => ({
  recipient,
  match: { kind: 'inbound', account: 'a', routeId: '1.1', pattern: '*', url: 'https://app.test/', ...match } as Match,
});

describe('loop protection (the brake)', () => {
  it('marks replies beyond the allowed number in the window', async () => {
    const { after, marks } = openBrake();
    expect(await after(3)).to.equal(false);
    expect(await marks()).to.equal(true);
    expect(await marks({ to: 'other@in.test' })).to.equal(false);
    expect(await marks({ from: 'jo@example.net' })).to.equal(false);
    expect(await marks({ account: 'b' })).to.equal(false);
  });

  it('counts mail that identifies itself as a reply, and no notifications', async () => {
    const { after } = openBrake();
    const notice = ['Subject: DISK CRITICAL', 'Auto-Submitted: auto-generated', 'Precedence: bulk'];
    expect(await after(100, { header: notice })).to.equal(false);
    expect(await after(100, { header: ['Subject: Question'] })).to.equal(false);
    for (const [i, header] of [
      ['Subject: AW: Hallo'],
      ['Auto-Submitted: auto-replied'],
      ['X-Autoreply: yes'],
      ['References: <1@a.test>'],
    ].entries())
      expect(await after(4, { header, from: `jo${i}@example.net` }), String(header)).to.equal(true);
  });

  it('identifies an author by From, even if the envelope sender is empty or varies', async () => {
    const { marks } = openBrake();
    for (let i = 0; i < 4; i++) await marks({ mailFrom: i % 2 ? '' : `bounce+${i}@esp.test` });
    expect(await marks({ from: 'ANN@Example.NET' })).to.equal(true);
  });

  it('counts by route if the address varies by conversation', async () => {
    const { marks } = openBrake();
    const reply = (i: number) => ({ to: `box+${i}@in.test`, captures: { ticket: String(i) } });
    for (let i = 0; i < 4; i++) expect(await marks(reply(i))).to.equal(false);
    expect(await marks(reply(5))).to.equal(true);
    expect(await marks({ ...reply(6), routeId: '1.2' })).to.equal(false);
  });

  it('expires: as many replies in twice the time are not marked', async () => {
    const { clock, marks } = openBrake();
    for (let i = 0; i < 40; i++) {
      expect(await marks(), `answer ${i}`).to.equal(false);
      await clock.advance(4 * MINUTE);
    }
  });

  it('marks until the rate has halved, and logs it once', async () => {
    const { clock, log, metrics, marks, after } = openBrake();
    expect(await after(4)).to.equal(true);
    for (let i = 0; i < 200; i++) {
      await clock.advance(MINUTE);
      expect(await marks(), `minute ${i}`).to.equal(true);
    }
    const [line, ...more] = log.of('message.loop');
    expect(line?.fields).to.include({ account: 'a', from: 'ann@example.net', to: 'box@in.test' });
    expect(more).to.deep.equal([]);
    expect(metrics.count('postern_loops_total')).to.equal(1);
    await clock.advance(20 * MINUTE);
    expect(await marks()).to.equal(false);
    expect(await after(4)).to.equal(true);
    expect(log.of('message.loop')).to.have.length(2);
  });

  it('is not evicted by addresses of others, and keeps an active pair among many of its own', async () => {
    const { after, marks } = openBrake();
    expect(await after(4)).to.equal(true);
    for (let i = 0; i < 3000; i++) {
      await marks({ from: `x${i}@flood.test`, account: 'flooded' });
      if (i % 100 === 0) expect(await marks()).to.equal(true);
    }
    for (let i = 0; i < 400; i++) await marks({ from: `y${i}@flood.test` });
    expect(await marks()).to.equal(true);
  });

  it('marks nothing if it is disabled, and only mail for routes', async () => {
    expect(await openBrake(0).after(100)).to.equal(false);
    expect(await openBrake().after(100, { kind: 'return' })).to.equal(false);
  });

  it('reads the beginning of a large message in a file', async () => {
    const path = join(mkdtempSync(join(tmpdir(), 'brake-')), 'mail');
    const text = `From: ann@example.net\r\nIn-Reply-To: <1@a.test>\r\n\r\n${'x'.repeat(100_000)}`;
    writeFileSync(path, text);
    const { brake } = openBrake();
    const envelope = { mailFrom: '', client: { address: null, helo: null, tls: null } };
    const body = { kind: 'file', path, size: text.length, sha256: '' } as const;
    const marked = [];
    for (let n = 0; n < 5; n++) marked.push(...(await brake.loopsOf({ envelope, body }, [routed('box@in.test')])));
    rmSync(dirname(path), { recursive: true });
    expect(marked).to.deep.equal(['box@in.test']);
  });

  it('reads any message without an exception', async () => {
    const { brake } = openBrake();
    const envelope = { mailFrom: '', client: { address: null, helo: null, tls: null } };
    for (const text of [
      '',
      ' x',
      '\r\n',
      'From:',
      'From: <',
      `From: ${'a,'.repeat(40_000)}`,
      `In-Reply-To: x\r\n${'A: b\r\n'.repeat(9000)}`,
    ])
      expect(
        await brake.loopsOf({ envelope, body: { kind: 'memory', bytes: Buffer.from(text) } }, [routed('a@in.test')]),
      ).to.deep.equal([]);
  });
});
