import { expect } from 'chai';
import { aMail, crlf, eventOf, multipart, renderJob, spooled, TRACE } from '../../support/mime.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';
import { PATIENCE } from '../../support/until.ts';

const innocent = crlf('From: a@example.com', 'Subject: innocent', '', 'x');

/** Names of encoded words by the ten thousand: decoding them takes some hundred milliseconds. */
const slow = (() => {
  const words = '=?utf-8?b?w6k=?= =?koi8-r?b?w6k=?= '.repeat(6500);
  return multipart(
    'mixed',
    ['From: a@example.com', `Subject: ${words}`],
    ...Array.from({ length: 3 }, () => [`Content-Disposition: attachment; filename="${words}"`, '', 'body']),
  );
})();

/** The bad message among twenty others; all are answered. */
async function renderAmong(renderer: OpenRenderer, bad: Buffer) {
  const jobs = Array.from({ length: 21 }, (_, i) => renderJob(i === 10 ? bad : innocent));
  const rendered = await Promise.all(jobs.map(renderer.render));
  const [found] = rendered.splice(10, 1);
  if (found === undefined) throw new Error('nothing was rendered');
  return { bad: found, others: rendered };
}

const openBreakable = (memoryMb = 256, file = '../../support/mime-thread.ts', timeoutMs?: number) =>
  openRenderer({ memoryMb, script: new URL(file, import.meta.url), ...(timeoutMs !== undefined && { timeoutMs }) });

describe('a message that breaks its render thread', function () {
  this.timeout(30_000);

  it('is delivered raw when parsing takes too long; others are parsed', async () => {
    const { renderer, log } = await openBreakable(256, '../../support/mime-thread.ts', 1000);
    const { bad, others } = await renderAmong(renderer, crlf('From: a@example.com', 'X-Test: hang', '', 'x'));
    await renderer.stop();
    expect(bad.parseError).to.equal('parsing took more than 1000 ms');
    expect(others.map(({ parseError }) => parseError)).to.deep.equal(others.map(() => null));
    expect(log.of('message.parse_failed').map(({ fields }) => fields)).to.deep.equal([
      { message: 'm1', reason: 'parsing took more than 1000 ms' },
    ]);
    expect(log.of('worker.ended').length).to.be.at.least(2);
  });

  it('is not posted with others: no shared POST is made, and each is rendered alone', async () => {
    const { renderer } = await openBreakable();
    const job = renderJob(innocent);
    const mails = [innocent, crlf('X-Test: throw', 'Subject: bad', '', 'x'), innocent].map((bytes) => aMail(bytes));
    const together = await renderer.renderShared({ ...job, mails });
    const sound = await renderer.renderShared({ ...job, mails: mails.filter((_, i) => i !== 1) });
    await renderer.stop();
    expect(together).to.equal(undefined);
    expect(sound?.found.map((one) => one?.parseError)).to.deep.equal([null, null]);
  });

  it('is distinguished from a thread that is only busy', async () => {
    // A port hands over up to a thousand messages before the loop turns; no beat came in that time.
    const { renderer, log } = await openRenderer({ timeoutMs: 300 * PATIENCE });
    const busy = multipart(
      'alternative',
      ['From: a@example.com', 'Subject: busy'],
      ['Content-Type: text/plain', '', 'x'.repeat(100_000)],
    );
    let left = 1500;
    const one = async (): Promise<void> => {
      while (left-- > 0) await renderer.render(renderJob(busy));
    };
    await Promise.all(Array.from({ length: 64 }, one));
    await renderer.stop();
    expect(log.of('worker.ended')).to.deep.equal([]);
  });

  it('is parsed within the deadline', async () => {
    const { renderer } = await openRenderer({ timeoutMs: 5000 * PATIENCE });
    const { parseError } = await renderer.render(renderJob(slow));
    await renderer.stop();
    expect(parseError).to.equal(null);
  });

  it('is delivered raw when it needs too much memory; others are parsed', async () => {
    const { renderer, log } = await openBreakable(48);
    const { bad, others } = await renderAmong(renderer, crlf('From: a@example.com', 'X-Test: memory', '', 'x'));
    await renderer.stop();
    expect(bad.parseError).to.equal('parsing needed more than 48 MB');
    expect(others.map(({ parseError }) => parseError)).to.deep.equal(others.map(() => null));
    expect(log.of('worker.ended')[0]?.fields).to.include({ reason: 'a task needed more than 48 MB' });
  });

  it('is delivered raw when the thread breaks; others are parsed', async () => {
    const { renderer } = await openBreakable();
    const { bad, others } = await renderAmong(renderer, crlf('From: a@example.com', 'X-Test: throw', '', 'x'));
    await renderer.stop();
    expect(bad.parseError).to.equal('the parser failed');
    expect(others.map(({ parseError }) => parseError)).to.deep.equal(others.map(() => null));
  });

  it('is delivered raw when its payload cannot be written; others are parsed', async () => {
    const { renderer, log } = await openBreakable();
    const { bad, others } = await renderAmong(renderer, crlf('From: a@example.com', 'Subject: unwritable', '', 'x'));
    await renderer.stop();
    expect(bad.parseError).to.equal('the parser failed');
    expect(others.map(({ parseError }) => parseError)).to.deep.equal(others.map(() => null));
    expect(log.of('message.parse_failed')[0]?.fields).to.include({ message: 'm1', reason: 'the parser failed' });
    expect(log.of('worker.ended')).to.deep.equal([]);
  });

  it('fails alone when even its raw bytes cannot be rendered', async () => {
    const { renderer } = await openBreakable();
    const failed = renderer.render(renderJob(crlf('X-Test: die', '', 'x'))).then(
      () => 'rendered',
      (error: Error) => error.message,
    );
    const others = await Promise.all(Array.from({ length: 5 }, () => renderer.render(renderJob(innocent))));
    expect(await failed).to.equal('rendering failed: the parser failed');
    expect(others.map(({ parseError }) => parseError)).to.deep.equal(others.map(() => null));
    await renderer.stop();
  });

  it('is not blamed when a thread cannot start', async () => {
    const { renderer, log } = await openBreakable(256, '../../support/nowhere.ts');
    expect(await renderer.render(renderJob(innocent)).catch((error: Error) => error.message)).to.equal(
      'rendering failed: the thread did not start',
    );
    await renderer.stop();
    expect(log.of('message.parse_failed')).to.deep.equal([]);
  });

  it('has the unparsed data in its payload, with the reason', async () => {
    const { renderer } = await openRenderer();
    const raw = crlf('From: a@example.com', ...Array.from({ length: 1001 }, (_, i) => `X-${i}: y`), '', 'body');
    const { body, parseError } = await renderer.render(renderJob(raw));
    const { msg } = await eventOf(body);
    await renderer.stop();
    expect(parseError).to.equal('a header of more than 1000 fields');
    expect(msg).to.include({
      parse_error: parseError,
      email: 'in@example.net',
      from_email: 'a@example.com',
      from_name: null,
      subject: '',
    });
    expect(msg).not.to.have.any.keys('text', 'html');
    expect(msg).to.deep.include({ attachments: {}, images: {} });
    expect(msg.to).to.deep.equal([]);
    expect(Object.keys(msg.headers)).to.deep.equal(['Received']);
    expect(msg.raw_msg).to.equal((TRACE + raw.toString()).replaceAll('\r\n', '\n'));
    expect(msg.spf.result).to.equal('pass');
  });

  it('gets verdicts like any other, so that a thousand fields cannot prevent them', async () => {
    const { renderer } = await openRenderer();
    const raw = crlf(
      'DKIM-Signature: v=1; d=example.com',
      ...Array.from({ length: 1001 }, (_, i) => `X-${i}: y`),
      '',
      'body',
    );
    const { verdicts } = await renderer.render(renderJob(raw, { message: spooled({ verdicts: null }) }));
    await renderer.stop();
    expect(verdicts.spf.result).to.equal('temperror');
    expect(verdicts.dkim).to.deep.equal({ signed: true, valid: false });
  });
});
