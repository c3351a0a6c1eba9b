import { createHmac } from 'node:crypto';
import { expect } from 'chai';
import { Webhook } from 'standardwebhooks';
import type { Bytes } from '../../../src/base/bytes.ts';
import { sharedPostId } from '../../../src/base/ids.ts';
import { MANDRILL } from '../../../src/inbound/formats.ts';
import { toSigningSecret } from '../../../src/webhooks/signing.ts';
import type { Mail, Post } from '../../../src/webhooks/types.ts';
import { bytesOf, crlf, eventOf, eventsOf, formValue, KEY, multipart, renderJob, spooled } from '../../support/mime.ts';
import { CORPUS } from '../../support/mime-corpus.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';
import { startZone } from '../../support/zone.ts';

const NOTHING: Bytes = { kind: 'memory', bytes: new Uint8Array(0) };
const JOB = { url: 'https://example.com/hook?x=1', keys: [KEY], at: Date.now(), style: MANDRILL };

/** A message of its own for each. */
const partsOf = (raws: readonly Buffer[]): Mail[] =>
  raws.map((bytes, i) => ({
    message: spooled({ id: `m${i}`, receivedAt: Date.UTC(2026, 0, 5, 12, i) }),
    body: { kind: 'memory', bytes },
    delivery: { id: `m${i}-abc`, recipient: `box-${i}@example.net` },
  }));

describe('several messages in one POST', () => {
  let renderer: OpenRenderer;
  before(async () => {
    ({ renderer } = await openRenderer());
  });
  after(() => renderer.stop());

  async function share(mails: readonly Mail[], keys: readonly string[] = [KEY]): Promise<Post> {
    const rendered = await renderer.renderShared({ ...JOB, mails, keys, at: Date.now() });
    if (!rendered) throw new Error('one of them broke the parser');
    return rendered;
  }

  it('are the same events as alone, in order', async () => {
    const parts = partsOf(Object.values(CORPUS).map(({ bytes }) => bytes));
    const alone = await Promise.all(
      parts.map(async (part) => {
        const job = renderJob(Buffer.alloc(0), part);
        return eventOf((await renderer.render(job)).body);
      }),
    );
    const together = await share(parts);
    expect(await eventsOf(together.body)).to.deep.equal(alone);
    expect(together.found).to.have.length(parts.length);
  });

  it('are signed together, under the id of the POST and with every key', async () => {
    const { id, body, headers } = await share(partsOf([crlf('Subject: a', '', 'é'), crlf('', 'x')]), [KEY, 'previous']);
    const form = await bytesOf(body);
    expect([headers['webhook-id'], id]).to.deep.equal(Array(2).fill(sharedPostId(['m0-abc', 'm1-abc'])));
    for (const key of [KEY, 'previous'])
      new Webhook(toSigningSecret(key)).verify(form, { ...headers }, { jsonParse: false });
    expect(headers['X-Mandrill-Signature']).to.equal(
      createHmac('sha1', KEY)
        .update(`${JOB.url}mandrill_events${formValue(form)}`)
        .digest('base64'),
    );
  });

  it('include an unparseable one as raw; the others are parsed', async () => {
    const deep = multipart('mixed', ['Subject: many'], ...Array.from({ length: 3000 }, () => ['', 'x']));
    const { body, found } = await share(partsOf([crlf('Subject: a', '', 'x'), deep, crlf('Subject: c', '', 'x')]));
    const events = await eventsOf(body);
    expect(found[1]?.parseError).to.be.a('string');
    expect(events[1]?.msg.parse_error).to.equal(found[1]?.parseError);
    expect(events[1]?.msg.raw_msg).to.contain('Subject: many');
    expect([0, 2].map((i) => [events[i]?.msg.subject, found[i]?.parseError])).to.deep.equal([
      ['a', null],
      ['c', null],
    ]);
  });

  it('have their own verdicts: existing ones, or computed now', async () => {
    const [first, second] = partsOf([crlf('Subject: a', '', 'x'), crlf('Subject: b', '', 'x')]);
    if (!first || !second) throw new Error('two messages');
    const unseen = { ...second, message: { ...second.message, verdicts: null } };
    const { body, found } = await share([first, unseen]);
    expect(found.map((one) => one?.verdicts.spf.result)).to.deep.equal(['pass', 'temperror']);
    expect((await eventsOf(body)).map(({ msg }) => msg.spf.result)).to.deep.equal(['pass', 'temperror']);
  });

  it('do not wait for one whose sender has slow name servers: it is omitted', async () => {
    const spf = { TXT: ['v=spf1 ip4:192.0.2.1 -all'] };
    const zone = await startZone({ 'quick.test': spf, 'slow.test': spf });
    zone.behave('drop', 'slow.test');
    const dns = { servers: [zone.server], timeoutMs: 30_000, questionsPerMessage: 60, budgetMs: 60_000 };
    const patient = await openRenderer({ dns });
    const parts = partsOf([crlf('Subject: a', '', 'x'), crlf('Subject: b', '', 'x'), crlf('Subject: c', '', 'x')]);
    const unseen = parts.map((part, i) => {
      const { message } = part;
      const mailFrom = i === 1 ? 'ann@slow.test' : 'bob@quick.test';
      return { ...part, message: { ...message, verdicts: null, envelope: { ...message.envelope, mailFrom } } };
    });
    const job = { ...JOB, mails: unseen };
    const rendered = await patient.renderer.renderShared(job);
    const alone = await patient.renderer.renderShared({ ...job, mails: unseen.slice(1) });
    await patient.renderer.stop();
    await zone.stop();
    expect(rendered?.found.map((one) => one?.verdicts.spf.result)).to.deep.equal(['pass', undefined, 'pass']);
    expect(rendered?.id).to.equal(sharedPostId(['m0-abc', 'm2-abc']));
    expect((await eventsOf(rendered?.body ?? NOTHING)).map(({ msg }) => msg.subject)).to.deep.equal(['a', 'c']);
    // What is left by all is a POST of its own, under its own id.
    expect(alone?.found.map((one) => one !== undefined)).to.deep.equal([false, true]);
    expect([alone?.id, alone?.headers['webhook-id']]).to.deep.equal(['m2-abc', 'm2-abc']);
  });
});
