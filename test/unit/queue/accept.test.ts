import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { attempt, freshSpool, mail, put, settled } from '../../support/spool.ts';

describe('what is put on the spool', () => {
  it('is there again after closing and opening, byte for byte', async () => {
    const opened = await freshSpool();
    const { message, delivery } = await put(opened.spool, opened.clock);
    const spool = await opened.reopen();
    const found = await spool.message(message.id);
    expect(
      found?.body.kind === 'inline' &&
        Buffer.compare(found.body.bytes, message.body.kind === 'inline' ? message.body.bytes : new Uint8Array()),
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

  it('answers each of many that come at once', async () => {
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

  it('is told to whoever listens, after it was accepted', async () => {
    const { spool, clock } = await freshSpool();
    const told: string[] = [];
    spool.onChange((fresh) => {
      told.push(...fresh.map(({ id }) => id));
    });
    const { delivery } = await put(spool, clock);
    expect(told).to.deep.equal([delivery.id]);
  });

  it('stays accepted when a listener fails', async () => {
    const { spool, clock, log } = await freshSpool();
    spool.onChange(() => {
      throw new Error('not my day');
    });
    await put(spool, clock);
    expect(spool.backlog('acme')).to.equal(1);
    expect(log.of('spool.fault')).to.have.length(1);
  });

  it('is refused as a fault when its id is there already, and the first one stays as it was', async () => {
    const { spool, clock } = await freshSpool();
    const first = await put(spool, clock);
    const second = mail(clock, { id: first.message.id, recipients: ['other@example.com'] });
    expect(await spool.accept(second.message, second.deliveries)).to.equal('fault');
    expect(spool.backlog('acme')).to.equal(1);
    expect(await spool.list({ recipient: 'other@example.com' }, 10)).to.have.length(0);
  });

  it('does not fail with a wrong one that came at the same time', async () => {
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

  it('is not changed by text that looks like SQL', async () => {
    const { spool, clock } = await freshSpool();
    const recipient = `'); DROP TABLE deliveries; --@example.com`;
    const { delivery } = await put(spool, clock, { recipients: [recipient], url: `https://x.example/'"; --` });
    expect((await spool.list({ recipient }, 10)).map(({ id }) => id)).to.deep.equal([delivery.id]);
  });

  it('is found in memory while it is fresh, even when someone gave its bytes away to a thread', async () => {
    const { spool, clock } = await freshSpool();
    const { message } = await put(spool, clock, { body: { kind: 'inline', bytes: new Uint8Array(randomBytes(5000)) } });
    const first = await spool.message(message.id);
    if (first?.body.kind !== 'inline') throw new Error('no body');
    const copy = Buffer.from(first.body.bytes);
    const { buffer } = first.body.bytes;
    if (buffer instanceof ArrayBuffer) structuredClone(buffer, { transfer: [buffer] });
    expect(first.body.bytes.byteLength).to.equal(0);
    const second = await spool.message(message.id);
    expect(second?.body.kind === 'inline' && copy.equals(second.body.bytes)).to.equal(true);
  });

  it('keeps the verdicts that were taken', async () => {
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

  it('is kept in memory no longer than it is open, and found on the disk afterwards', async () => {
    const { spool, clock } = await freshSpool();
    const { message, delivery } = await put(spool, clock);
    await spool.settle(settled(clock, delivery, { attempt: attempt(clock, 204) }));
    expect((await spool.message(message.id))?.body).to.deep.equal({
      kind: 'inline',
      bytes: message.body.kind === 'inline' ? message.body.bytes : null,
    });
  });

  it('proves with a synced write that mail could be taken', async () => {
    const { spool } = await freshSpool();
    await spool.check();
  });

  it('finishes what is under way when it is closed', async () => {
    const opened = await freshSpool();
    const mails = Array.from({ length: 50 }, () => mail(opened.clock));
    const outcomes = Promise.all(mails.map(({ message, deliveries }) => opened.spool.accept(message, deliveries)));
    const spool = await opened.reopen();
    const accepted = (await outcomes).filter((outcome) => outcome === 'accepted').length;
    expect(accepted).to.equal(50);
    expect(spool.backlog('acme')).to.equal(50);
  });
});
