import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { freeMemory } from '../../../src/base/bytes.ts';
import type { Spool } from '../../../src/queue/delivery.ts';
import { openReception } from '../../../src/smtp/reception.ts';
import { createTestLog } from '../../support/log.ts';
import { attempt, freshSpool, mail, put, settled } from '../../support/spool.ts';

/** The bytes of a message, as one of its deliveries or anybody else gets them. */
async function taken(spool: Spool, messageId: string, deliveryId?: string): Promise<Uint8Array> {
  const found = await spool.message(messageId, deliveryId);
  if (found?.body.kind !== 'memory') throw new Error('no body');
  return found.body.bytes;
}

describe('accepted mail on the spool', () => {
  it('is the same after a restart, byte for byte', async () => {
    const opened = await freshSpool();
    const { message, delivery } = await put(opened.spool, opened.clock);
    const spool = await opened.reopen();
    const found = await spool.message(message.id);
    expect(
      found?.body.kind === 'memory' &&
        Buffer.compare(found.body.bytes, message.body.kind === 'memory' ? message.body.bytes : new Uint8Array()),
    ).to.equal(0);
    expect(found?.message).to.deep.equal({
      id: message.id,
      receivedAt: message.receivedAt,
      envelope: message.envelope,
      trace: message.trace,
      verdicts: null,
    });
    expect(await spool.delivery(delivery.id)).to.deep.equal({
      ...delivery,
      size: 1500,
      state: 'waiting',
      createdAt: message.receivedAt,
      dueAt: message.receivedAt,
      attempts: 0,
      endedAt: null,
      budgetFrom: message.receivedAt,
      parked: false,
      lastStatus: null,
      lastError: null,
    });
  });

  it('is acknowledged for each of many concurrent callers', async () => {
    const { spool, clock } = await freshSpool();
    const mails = Array.from({ length: 300 }, () => mail(clock));
    const outcomes = await Promise.all(mails.map(({ message, deliveries }) => spool.accept(message, deliveries)));
    expect(new Set(outcomes)).to.deep.equal(new Set(['accepted']));
    expect(spool.backlog('acme')).to.equal(300);
    expect((await spool.count({})).waiting).to.equal(300);
  });

  it('is one message with a delivery for each recipient', async () => {
    const { spool, clock } = await freshSpool();
    const recipients = Array.from({ length: 1000 }, (_, i) => `user${i}@example.com`);
    const { message } = await put(spool, clock, { recipients });
    expect(spool.backlog('acme')).to.equal(1000);
    const all = await spool.list({}, 2000);
    expect(all.map(({ recipient }) => recipient).sort()).to.deep.equal(recipients.toSorted());
    expect(new Set(all.map(({ messageId }) => messageId))).to.deep.equal(new Set([message.id]));
  });

  it('is reported to listeners after it was accepted', async () => {
    const { spool, clock } = await freshSpool();
    const told: string[] = [];
    spool.onChange((fresh) => {
      told.push(...fresh.map(({ id }) => id));
    });
    const { delivery } = await put(spool, clock);
    expect(told).to.deep.equal([delivery.id]);
  });

  it('stays accepted when a listener throws', async () => {
    const { spool, clock, log } = await freshSpool();
    spool.onChange(() => {
      throw new Error('not my day');
    });
    await put(spool, clock);
    expect(spool.backlog('acme')).to.equal(1);
    expect(log.of('spool.fault')).to.have.length(1);
  });

  it('is rejected with an error if its id exists, and the first one stays', async () => {
    const { spool, clock } = await freshSpool();
    const first = await put(spool, clock);
    const second = mail(clock, { id: first.message.id, recipients: ['other@example.com'] });
    expect(await spool.accept(second.message, second.deliveries)).to.equal('fault');
    expect(spool.backlog('acme')).to.equal(1);
    expect(await spool.list({ recipient: 'other@example.com' }, 10)).to.have.length(0);
  });

  it('does not fail with an invalid one that came at the same time', async () => {
    const { spool, clock } = await freshSpool();
    const good = Array.from({ length: 20 }, () => mail(clock));
    const wrong = mail(clock);
    const hostile = { ...wrong.message, receivedAt: Number.NaN };
    const [bad, ...outcomes] = await Promise.all([
      spool.accept(hostile, wrong.deliveries),
      ...good.map(({ message, deliveries }) => spool.accept(message, deliveries)),
    ]);
    expect(bad).to.equal('fault');
    expect(new Set(outcomes)).to.deep.equal(new Set(['accepted']));
    expect(spool.backlog('acme')).to.equal(20);
    expect(await spool.delivery(wrong.deliveries[0]?.id ?? '')).to.equal(undefined);
  });

  it('is not affected by text that looks like SQL', async () => {
    const { spool, clock } = await freshSpool();
    const recipient = `'); DROP TABLE deliveries; --@example.com`;
    const { delivery } = await put(spool, clock, { recipients: [recipient], url: `https://x.example/'"; --` });
    expect((await spool.list({ recipient }, 10)).map(({ id }) => id)).to.deep.equal([delivery.id]);
  });

  it('gives separate bytes to each caller, which each may free', async () => {
    const { spool, clock } = await freshSpool();
    const bytes = randomBytes(5000);
    const { message, deliveries } = await put(spool, clock, {
      body: { kind: 'memory', bytes },
      recipients: ['a@example.com', 'b@example.com', 'c@example.com'],
    });
    const asked = [undefined, ...deliveries.map(({ id }) => id), undefined, ...deliveries.map(({ id }) => id)];
    for (const delivery of asked) {
      const found = await taken(spool, message.id, delivery);
      expect(bytes.equals(found), `for ${delivery}`).to.equal(true);
      freeMemory(found);
      expect(found.byteLength).to.equal(0);
    }
  });

  it('keeps the bytes of one delivery when another ends, and when the cache is cleared', async () => {
    const { spool, clock } = await freshSpool();
    const bytes = randomBytes(5000);
    const { message, deliveries } = await put(spool, clock, {
      body: { kind: 'memory', bytes },
      recipients: ['a@example.com', 'b@example.com'],
    });
    const [first, second] = deliveries;
    if (!first || !second) throw new Error('no deliveries');
    const held = await taken(spool, message.id, first.id);
    await spool.settle(settled(clock, second));
    const ended = await put(spool, clock);
    await spool.settle(settled(clock, ended.delivery));
    expect(await spool.purge({ deliveredBefore: clock.now() + 1, deadBefore: 0, deliveredBytes: 1e9 })).to.equal(2);
    expect(bytes.equals(held)).to.equal(true);
    freeMemory(held);
    expect(bytes.equals(await taken(spool, message.id, first.id)), 'of the next attempt').to.equal(true);
  });

  it('is evicted from memory by newer mail, and still complete for its holders and new readers', async () => {
    const { spool, clock } = await freshSpool();
    const bytes = randomBytes(200_000);
    const recipients = ['a@example.com', 'b@example.com'];
    const old = await put(spool, clock, { body: { kind: 'memory', bytes }, recipients });
    const held = await taken(spool, old.message.id, old.deliveries[0]?.id);
    for (let at = 0; at < 400; at++) await put(spool, clock, { body: { kind: 'memory', bytes } });
    expect(bytes.equals(held)).to.equal(true);
    expect(bytes.equals(await taken(spool, old.message.id, old.deliveries[1]?.id))).to.equal(true);
  });

  it('is read from the disk when it is replayed', async () => {
    const { spool, clock } = await freshSpool();
    const bytes = randomBytes(5000);
    const { message, delivery } = await put(spool, clock, { body: { kind: 'memory', bytes } });
    freeMemory(await taken(spool, message.id, delivery.id));
    await spool.settle(settled(clock, delivery));
    expect(await spool.replay({ ids: [delivery.id] }, clock.now())).to.equal(1);
    expect(bytes.equals(await taken(spool, message.id, delivery.id))).to.equal(true);
  });

  it('excludes a command that came after its final dot', async () => {
    const { spool, clock } = await freshSpool();
    const one = mail(clock);
    const writer = spool.body(one.message.id);
    const reception = openReception(
      { mostBytes: 1e9, maxMessageBytes: 10_000, maxReceived: 10, bareNewline: 'reject' },
      {
        sink: {
          messageId: one.message.id,
          write: (bytes) => writer.write(bytes)?.then(() => undefined),
          async finish() {
            await spool.accept({ ...one.message, body: await writer.finish() }, one.deliveries);
            return { id: one.message.id };
          },
          abort: writer.abort,
        },
        log: createTestLog(),
      },
    );
    const chunk = new Uint8Array(
      Buffer.from(`Subject: x\r\n\r\n${'x'.repeat(900)}\r\n.\r\nMAIL FROM:<next@x.example>\r\n`),
    );
    const progress = await reception.take(Buffer.from(chunk.buffer));
    expect(progress.ended && progress.rest.toString()).to.equal('MAIL FROM:<next@x.example>\r\n');
    expect((await taken(spool, one.message.id, one.deliveries[0]?.id)).byteLength).to.equal(916);
  });

  it('may be empty, any number of times', async () => {
    const { spool, clock } = await freshSpool();
    for (let at = 0; at < 3; at++) {
      const body = await spool.body(`empty-${at}`).finish();
      const one = mail(clock, { body });
      expect(await spool.accept(one.message, one.deliveries)).to.equal('accepted');
      expect((await taken(spool, one.message.id, one.deliveries[0]?.id)).byteLength).to.equal(0);
    }
  });

  it('takes over the memory of its bytes: nothing is copied, and the caller loses access', async () => {
    const { spool, clock } = await freshSpool();
    const one = mail(clock);
    expect(await spool.accept(one.message, one.deliveries)).to.equal('accepted');
    expect(one.message.body.kind === 'memory' && one.message.body.bytes.byteLength).to.equal(0);
    expect((await taken(spool, one.message.id, one.deliveries[0]?.id)).byteLength).to.equal(1500);
  });

  it('keeps its verdicts', async () => {
    const opened = await freshSpool();
    const { message, delivery } = await put(opened.spool, opened.clock);
    const verdicts = {
      spf: { result: 'pass', detail: 'sender permitted' },
      dkim: { signed: true, valid: true },
      dmarc: { result: 'pass', policy: null, aligned: true },
      arc: { result: 'none' },
    } as const;
    await opened.spool.settle(
      { ...settled(opened.clock, delivery, { attempt: attempt(opened.clock, 500) }), state: 'waiting' },
      verdicts,
    );
    expect((await opened.spool.message(message.id))?.message.verdicts).to.deep.equal(verdicts);
    const spool = await opened.reopen();
    expect((await spool.message(message.id))?.message.verdicts).to.deep.equal(verdicts);
  });

  it('is still on the disk after delivery', async () => {
    const { spool, clock } = await freshSpool();
    const { message, delivery } = await put(spool, clock);
    await spool.settle(settled(clock, delivery, { attempt: attempt(clock, 204) }));
    expect((await spool.message(message.id))?.body).to.deep.equal({
      kind: 'memory',
      bytes: message.body.kind === 'memory' ? message.body.bytes : null,
    });
  });

  it('proves by a synced write that mail could be accepted', async () => {
    const { spool } = await freshSpool();
    await spool.check();
  });

  it('finishes running writes when it is closed', async () => {
    const opened = await freshSpool();
    const mails = Array.from({ length: 50 }, () => mail(opened.clock));
    const outcomes = Promise.all(mails.map(({ message, deliveries }) => opened.spool.accept(message, deliveries)));
    const spool = await opened.reopen();
    const accepted = (await outcomes).filter((outcome) => outcome === 'accepted').length;
    expect(accepted).to.equal(50);
    expect(spool.backlog('acme')).to.equal(50);
  });
});
