import { expect } from 'chai';
import { sentId } from '../../../src/mail/addresses/return-address.ts';
import { mailUrl } from '../../../src/mail/outgoing.ts';
import type { Settlement } from '../../../src/queue/delivery.ts';
import { readReport } from '../../../src/sending/reporter.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { aDelivery } from '../../support/delivery.ts';
import { settleDown } from '../../support/dispatcher-bench.ts';
import { answer, createWorld, HOURS, noDomain, noServer, type SendingWorld } from '../../support/sending-world.ts';

const MINUTES = 60_000;
const DAYS = 24 * HOURS;

/** Where the answers of this suite come from. */
const CONNECTION = { source_ip: '192.0.2.1', destination_ip: '192.0.2.25', destination: 'mx.example.com' };

describe('outgoing mail', () => {
  let world: SendingWorld;
  const open = async (...args: Parameters<typeof createWorld>): Promise<SendingWorld> => {
    world = await createWorld(...args);
    await world.dispatcher.start();
    return world;
  };
  afterEach(async () => {
    const stopped = world.dispatcher.stop();
    await world.clock.advance(10_000);
    await stopped;
  });
  const many = (count: number, change: Parameters<SendingWorld['mail']>[0] = {}) =>
    Promise.all(Array.from({ length: count }, () => world.mail(change)));
  const row = (id: string) => world.spool.delivery(id);

  it('is composed for its recipient, sent, and reported as sent with all data for the store', async () => {
    await open();
    const delivery = await world.mail(
      { recipient: 'Jo@example.com' },
      { rcptMetadata: { 'jo@example.com': { user: '9' } } },
    );
    await settleDown(world);
    expect(world.sent.map(({ recipient }) => recipient)).to.deep.equal(['Jo@example.com']);
    expect(world.composed[0]).to.include({
      recipient: 'Jo@example.com',
      id: sentId(delivery.id),
      accountNumber: 7,
      at: world.clock.now(),
    });
    expect(await row(delivery.id)).to.include({ state: 'delivered', attempts: 1, lastStatus: 250 });
    const [report] = await world.spool.reports(1);
    const told = report && readReport(report);
    expect(told?.event).to.deep.include({
      account: 'acc',
      message: sentId(delivery.id),
      kind: 'send',
      detail: { diag: '250 2.0.0 ok', ...CONNECTION },
    });
    expect(told?.sent).to.deep.include({
      id: sentId(delivery.id),
      account: 'acc',
      sender: 'news@sender.example',
      email: 'Jo@example.com',
      subject: 'News',
      tags: ['weekly'],
      template: null,
      subaccount: 'cust-1',
      metadata: { list: 'a', user: '9' },
      apiKey: 'k1',
    });
  });

  it('is deleted as soon as it ends, if its content is hidden', async () => {
    await open();
    const notes: Settlement[] = [];
    const { settle } = world.spool;
    world.spool.settle = (settlement, fresh) => {
      notes.push(settlement);
      return settle(settlement, fresh);
    };
    let code = 450;
    world.serve(() => answer(code, '4.2.0 later'));
    await world.mail({ recipient: 'hidden@example.com' }, { extras: { hideContent: true } });
    await settleDown(world);
    code = 250;
    await world.clock.advance(5000);
    await world.mail({ recipient: 'shown@example.com' });
    await settleDown(world);
    expect(notes.map(({ state, forget }) => [state, forget])).to.deep.equal([
      ['waiting', undefined],
      ['delivered', true],
      ['delivered', undefined],
    ]);
  });

  it('is retried after 4xx with the intervals of webhooks, and ends as a soft bounce after five days', async () => {
    await open();
    world.serve(() => answer(450, '4.2.0 greylisted'));
    const delivery = await world.mail();
    await settleDown(world);
    expect(await row(delivery.id)).to.include({ state: 'waiting', attempts: 1, lastStatus: 450, parked: false });
    await world.clock.advance(5000);
    await world.clock.advance(30_000);
    await world.clock.advance(5 * MINUTES);
    expect(world.sent.map(({ at }) => at - (world.sent[0]?.at ?? 0))).to.deep.equal([0, 5000, 35_000, 335_000]);
    await world.clock.advance(5 * DAYS - 400_000);
    expect((await row(delivery.id))?.state).to.equal('waiting');
    await world.clock.advance(HOURS);
    expect(await row(delivery.id)).to.include({ state: 'dead', lastStatus: 450 });
    const kinds = (await world.reports()).map(({ kind }) => kind);
    expect(kinds, 'one deferral a day').to.deep.equal([
      'deferral',
      'deferral',
      'deferral',
      'deferral',
      'deferral',
      'soft_bounce',
    ]);
    expect((await world.reports())[0]?.detail).to.deep.equal({ diag: '450 4.2.0 greylisted', ...CONNECTION });
    expect((await world.reports()).at(-1)?.detail).to.deep.equal({
      diag: 'smtp;451 4.4.7 delivery time expired; the last answer was: 450 4.2.0 greylisted',
      description: 'transient',
      code: 70,
      rule: 'temporary',
    });
  });

  it('ends at once after 5xx, as the hard or soft bounce of the reply', async () => {
    await open();
    world.serve((recipient) =>
      recipient.startsWith('full') ? answer(552, '5.2.2 Over Quota') : answer(550, '5.1.1 User unknown'),
    );
    const gone = await world.mail();
    const full = await world.mail({ recipient: 'full@example.com' });
    await settleDown(world);
    expect(await row(gone.id)).to.include({ state: 'dead', attempts: 1 });
    expect(await row(full.id)).to.include({ state: 'dead', attempts: 1 });
    expect(await world.reports()).to.deep.equal([
      {
        kind: 'hard_bounce',
        detail: {
          diag: 'smtp;550 5.1.1 User unknown',
          description: 'bad_mailbox',
          code: 10,
          rule: 'mailbox-unknown',
          ...CONNECTION,
        },
      },
      {
        kind: 'soft_bounce',
        detail: {
          diag: 'smtp;552 5.2.2 Over Quota',
          description: 'mailbox_full',
          code: 22,
          rule: 'mailbox-full',
          ...CONNECTION,
        },
      },
    ]);
  });

  it('ends at once as a hard bounce if the domain accepts no mail', async () => {
    await open();
    world.serve(() => noDomain);
    const delivery = await world.mail();
    await settleDown(world);
    expect(await row(delivery.id)).to.include({ state: 'dead' });
    expect(await world.reports()).to.deep.equal([
      {
        kind: 'hard_bounce',
        detail: {
          diag: 'smtp;550 5.1.2 no such domain',
          description: 'invalid_domain',
          code: 21,
          rule: 'domain-unknown',
        },
      },
    ]);
  });

  it('waits without an attempt while it may not be sent, and is sent at exactly that time', async () => {
    await open();
    const until = world.clock.now() + 2 * DAYS;
    world.leave((_outgoing, _queuedAt, now) => (now < until ? { kind: 'later', at: until } : { kind: 'now' }));
    const delivery = await world.mail();
    await settleDown(world);
    expect(await row(delivery.id)).to.include({ state: 'waiting', attempts: 0, dueAt: until });
    await world.clock.advance(2 * DAYS - 1);
    expect(world.sent).to.deep.equal([]);
    await world.clock.advance(1);
    expect(world.sent).to.have.length(1);
    expect((await world.reports()).map(({ kind }) => kind)).to.deep.equal(['send']);
  });

  it('keeps that time over a restart', async () => {
    await open();
    const until = world.clock.now() + 10 * DAYS;
    world.leave((_outgoing, _queuedAt, now) => (now < until ? { kind: 'later', at: until } : { kind: 'now' }));
    const delivery = await world.mail();
    await settleDown(world);
    const stopped = world.dispatcher.stop();
    await world.clock.advance(10_000);
    await stopped;
    const next = await world.restart();
    await world.clock.advance(HOURS);
    expect(await row(delivery.id)).to.include({ state: 'waiting', attempts: 0, dueAt: until });
    expect(world.sent).to.deep.equal([]);
    const over = next.stop();
    await world.clock.advance(10_000);
    await over;
  });

  it('is rejected with the reason if it waited too long', async () => {
    await open();
    world.leave(() => ({ kind: 'never', reason: 'its subaccount was paused for 3 days' }));
    const delivery = await world.mail();
    await settleDown(world);
    expect(await row(delivery.id)).to.include({ state: 'dead', lastError: 'its subaccount was paused for 3 days' });
    expect(await world.reports()).to.deep.equal([
      { kind: 'reject', detail: { reason: 'rule', diag: 'its subaccount was paused for 3 days' } },
    ]);
  });

  it('is not delayed for longer than its retry period', async () => {
    await open({}, 3);
    world.leave((_outgoing, _queuedAt, now) => ({ kind: 'later', at: now + 10 * MINUTES }));
    const delivery = await world.mail();
    await world.clock.advance(4 * HOURS);
    expect((await row(delivery.id))?.state).to.equal('dead');
    expect((await world.reports()).map(({ kind }) => kind)).to.deep.equal(['soft_bounce']);
  });

  it('is rejected and never lost if it cannot be composed', async () => {
    await open();
    world.compose(() => ({ kind: 'refused', reason: 'too large', final: true }));
    const delivery = await world.mail();
    await settleDown(world);
    expect(await row(delivery.id)).to.include({ state: 'dead', lastError: 'cannot be composed: too large' });
    expect(await world.reports()).to.deep.equal([
      { kind: 'reject', detail: { reason: 'invalid', diag: 'cannot be composed: too large' } },
    ]);
  });

  it('that cannot be composed waits for a fix, and is rejected when it expires', async () => {
    await open({}, 12);
    world.compose(() => ({ kind: 'refused', reason: 'a fault of ours', final: false }));
    const delivery = await world.mail();
    await world.clock.advance(HOURS);
    expect(await row(delivery.id)).to.include({ state: 'waiting', lastError: 'cannot be composed: a fault of ours' });
    expect(world.log.of('delivery.fault').length).to.be.within(2, 10);
    await world.clock.advance(12 * HOURS);
    expect(await row(delivery.id)).to.include({ state: 'dead' });
    expect(await world.reports()).to.deep.equal([
      { kind: 'reject', detail: { reason: 'invalid', diag: 'cannot be composed: a fault of ours' } },
    ]);
  });

  it('scheduled for later is not sent early, even to probe its destination, and its retry period starts then', async () => {
    await open({}, 3);
    world.serve((recipient) => (recipient.startsWith('later') ? answer(450, '4.2.0 busy') : noServer));
    const later = await world.mail({ recipient: 'later@example.com', notBefore: world.clock.now() + 40 * DAYS });
    await many(6);
    await world.clock.advance(HOURS);
    expect(world.log.of('endpoint.down')).to.have.length(1);
    await world.clock.advance(40 * DAYS - HOURS - 1);
    expect(world.sent.filter(({ recipient }) => recipient.startsWith('later'))).to.deep.equal([]);
    await world.clock.advance(5 * MINUTES);
    expect(world.sent.filter(({ recipient }) => recipient.startsWith('later'))).to.not.deep.equal([]);
    expect(await row(later.id)).to.include({ state: 'waiting' });
    await world.clock.advance(2 * HOURS);
    expect(await row(later.id)).to.include({ state: 'waiting' });
    await world.clock.advance(2 * HOURS);
    expect(await row(later.id)).to.include({ state: 'dead' });
  });

  it('is not sent when it was dropped before its time', async () => {
    await open();
    const delivery = await world.mail({ notBefore: world.clock.now() + HOURS });
    await settleDown(world);
    await world.spool.drop({ ids: [delivery.id] }, world.clock.now());
    await world.clock.advance(2 * HOURS);
    expect(world.sent).to.deep.equal([]);
  });

  it('is rejected if its account may no longer send as its sender', async () => {
    await open({ mayWriteFrom: async (account, from) => account !== 'acc' || from !== 'news@sender.example' });
    const delivery = await world.mail();
    await settleDown(world);
    expect(world.sent).to.deep.equal([]);
    expect(await row(delivery.id)).to.include({ state: 'dead' });
    expect(await world.reports()).to.deep.equal([
      { kind: 'reject', detail: { reason: 'rule', diag: 'its account may not use this sender address any more' } },
    ]);
  });

  it('that was scheduled is claimed before its first attempt only, and not reported if it was cancelled', async () => {
    const claimed: string[] = [];
    const scheduling = {
      claim: async (delivery: string) => {
        claimed.push(delivery);
        return delivery === cancelled.id ? { kind: 'cancelled' as const } : { kind: 'ours' as const, first: true };
      },
      release: async () => {},
    };
    await open({ scheduling });
    world.serve((recipient) =>
      recipient.startsWith('grey') && world.sent.length < 3 ? answer(450, '4.2.0 later') : answer(250, '2.0.0 ok'),
    );
    const notBefore = world.clock.now() + HOURS;
    const [now, grey, cancelled] = [
      await world.mail(),
      await world.mail({ recipient: 'grey@example.com', notBefore }),
      await world.mail({ recipient: 'no@example.com', notBefore }),
    ];
    await world.clock.advance(2 * HOURS);
    expect(claimed).to.deep.equal([grey.id, cancelled.id]);
    const ended = await Promise.all([now, grey, cancelled].map(({ id }) => row(id)));
    expect(ended.map((one) => one?.state)).to.deep.equal(['delivered', 'delivered', 'dropped']);
    expect((await row(grey.id))?.attempts).to.equal(2);
    expect((await world.reports()).map(({ kind }) => kind)).to.deep.equal(['send', 'deferral', 'send']);
  });

  it('moved on another host is sent at its new time, with its full retry period from then on', async () => {
    let at = 0;
    const claim = async () =>
      world.clock.now() < at ? { kind: 'moved' as const, at } : { kind: 'ours' as const, first: true };
    await open({ scheduling: { claim, release: async () => {} } }, 12);
    at = world.clock.now() + 10 * DAYS;
    world.serve(() => answer(450, '4.2.0 later'));
    const delivery = await world.mail({ notBefore: world.clock.now() + HOURS });
    await world.clock.advance(10 * DAYS - 1);
    expect(world.sent).to.deep.equal([]);
    await world.clock.advance(10 * HOURS);
    expect(await row(delivery.id)).to.include({ state: 'waiting' });
    expect(world.sent[0]?.at).to.equal(at);
    await world.clock.advance(4 * HOURS);
    expect(await row(delivery.id)).to.include({ state: 'dead' });
  });

  for (const first of [true, false])
    it(`finding its destination down before an attempt ${first ? 'gives its claim back' : 'keeps a claim that was there before: it may have been sent'}`, async () => {
      const released: string[] = [];
      await open({
        scheduling: {
          claim: async () => ({ kind: 'ours', first }),
          release: async (delivery: string) => {
            released.push(delivery);
          },
        },
      });
      world.serve(() => noServer);
      const notBefore = world.clock.now() + HOURS;
      await many(20, { notBefore });
      await world.clock.advance(HOURS + 1000);
      const tried = (await world.rows()).filter(({ attempts }) => attempts > 0);
      expect(tried.length).to.be.within(5, 15);
      expect(released.length > 0).to.equal(first);
      expect(tried.filter(({ id }) => released.includes(id))).to.deep.equal([]);
    });

  it('spares a destination that is down: no connection and 421 open the breaker, and all mail is sent at its recovery', async () => {
    await open();
    let n = 0;
    world.serve(() => (n++ % 2 === 0 ? noServer : answer(421, '4.3.2 closing')));
    await many(30);
    await world.clock.advance(HOURS);
    expect(world.log.of('endpoint.down')).to.have.length(1);
    expect(world.sent.length, 'a probe each half minute').to.be.within(100, 160);
    world.serve(() => answer(250, '2.0.0 ok'));
    await world.clock.advance(5 * MINUTES);
    expect((await world.spool.count({})).delivered).to.equal(30);
  });

  it('to one recipient does not affect the destination, for any reply', async () => {
    await open();
    world.serve((recipient) => (recipient.startsWith('bad') ? answer(450, '4.2.0 busy') : answer(250, '2.0.0 ok')));
    for (let i = 0; i < 20; i++) await world.mail({ recipient: `bad${i}@example.com` });
    await world.mail();
    await world.clock.advance(HOURS);
    expect(world.log.of('endpoint.down')).to.deep.equal([]);
    expect(world.sent.filter(({ recipient }) => recipient === 'jo@example.com')).to.have.length(1);
    expect((await world.rows()).some(({ parked }) => parked)).to.equal(false);
  });

  it('has a limit per destination, and takes no slot from webhooks', async () => {
    await open();
    let open5 = 0;
    let most = 0;
    world.serve(async () => {
      most = Math.max(most, ++open5);
      await new Promise<void>((resolve) => {
        world.clock.after(9 * MINUTES, resolve);
      });
      open5--;
      return answer(250, '2.0.0 ok');
    });
    await many(60);
    for (const host of ['a', 'b', 'c', 'd', 'e', 'f']) await many(10, { url: mailUrl(`${host}.example`) });
    await world.clock.advance(6 * HOURS);
    expect(most, 'in all').to.be.at.most(10);
    expect((await world.spool.count({})).delivered).to.equal(120);
  });

  it('whose destination is down until it expires ends as a soft bounce', async () => {
    await open({}, 3);
    world.serve(() => noServer);
    const delivery = await world.mail();
    await world.clock.advance(6 * HOURS);
    expect((await row(delivery.id))?.state).to.equal('dead');
    expect((await world.reports()).at(-1)).to.deep.include({ kind: 'soft_bounce' });
    expect((await world.reports()).filter(({ kind }) => kind === 'soft_bounce')).to.have.length(1);
  });

  it('whose message was lost is reported, because its row exists', async () => {
    await open();
    const delivery = aDelivery(mailUrl('example.com'), { kind: 'outbound', recipient: 'jo@example.com' });
    await world.put([delivery]); // nobody sends this: it has nothing of an account's mail
    await settleDown(world);
    expect((await row(delivery.id))?.state).to.equal('dropped');
    expect((await world.reports()).map(({ kind }) => kind)).to.deep.equal(['reject']);
  });

  it('waits for the store without an attempt or a log line', async () => {
    let away = true;
    await open({
      composing: async () => {
        if (away) throw new StoreAway('away');
        return {
          hostname: 'mx.example',
          returnDomain: 'bounces.example',
          publicUrl: 'https://mx.example',
          secret: 's',
        };
      },
    });
    const delivery = await world.mail();
    await world.clock.advance(10 * MINUTES);
    expect(await row(delivery.id)).to.include({ state: 'waiting', attempts: 0 });
    expect(world.log.lines).to.deep.equal([]);
    away = false;
    await world.clock.advance(MINUTES);
    expect((await row(delivery.id))?.state).to.equal('delivered');
  });

  it('is composed the same way at every attempt', async () => {
    await open();
    world.serve(() => answer(450, '4.2.0 greylisted'));
    await world.mail();
    await world.clock.advance(MINUTES);
    expect(world.composed).to.have.length(3);
    expect(world.composed[2]).to.deep.equal(world.composed[0]);
  });
});
