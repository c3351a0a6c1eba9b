import { expect } from 'chai';
import { carry, createCarrierWorld, HELLO } from '../../support/carrier-world.ts';
import { createTestClock } from '../../support/clock.ts';
import { CLOSE } from '../../support/scripted-smtp.ts';
import { until } from '../../support/until.ts';

describe('the sessions of outgoing mail', () => {
  const world = createCarrierWorld();
  afterEach(world.stop);

  it('carry one message after another, with RSET between', async () => {
    const server = await world.server();
    const carrier = world.carrier();
    for (let i = 0; i < 3; i++)
      expect(await carry(carrier, { recipient: `b${i}@example.com` })).to.include({ kind: 'answered', code: 250 });
    expect(server.sessions).to.have.length(1);
    expect(server.sessions[0]?.commands.filter((line) => /^(?:RSET|RCPT|EHLO)/.test(line))).to.deep.equal([
      'EHLO out.postern.test',
      'RCPT TO:<b0@example.com>',
      'RSET',
      'RCPT TO:<b1@example.com>',
      'RSET',
      'RCPT TO:<b2@example.com>',
    ]);
    expect(server.sessions[0]?.messages).to.have.length(3);
  });

  it('continue after a recipient was refused', async () => {
    const server = await world.server((step, line) =>
      step === 'RCPT' && line.includes('bad') ? '550 5.1.1 no' : undefined,
    );
    const carrier = world.carrier();
    expect(await carry(carrier, { recipient: 'bad@example.com' })).to.include({ code: 550 });
    expect(await carry(carrier)).to.include({ code: 250 });
    expect(server.sessions).to.have.length(1);
  });

  it('are not reused after the message itself was refused, or 421', async () => {
    for (const [step, said] of [
      ['dot', '550 5.7.1 spam'],
      ['RCPT', '421 4.3.2 bye'],
    ] as const) {
      const server = await world.server((now, _line, seen) =>
        now === step && seen.commands.length < 6 && server.sessions.length === 1 ? said : undefined,
      );
      const carrier = world.carrier();
      await carry(carrier);
      expect(await carry(carrier)).to.include({ code: 250 });
      expect(server.sessions, step).to.have.length(2);
      await world.stop();
    }
  });

  it('are replaced once when they were closed by the server', async () => {
    const stale = {
      'closed while idle': () => server.drop(),
      'closed by RSET': () =>
        server.say((step, _line, seen) => (step === 'RSET' && seen === server.sessions[0] ? CLOSE : undefined)),
      'refused RSET': () =>
        server.say((step, _line, seen) =>
          step === 'RSET' && seen === server.sessions[0] ? '421 4.4.2 idle for too long' : undefined,
        ),
      'closed by MAIL': () =>
        server.say((step, _line, seen) => (step === 'MAIL' && seen === server.sessions[0] ? CLOSE : undefined)),
      '421 to MAIL': () =>
        server.say((step, _line, seen) =>
          step === 'MAIL' && seen === server.sessions[0] ? '421 4.7.0 too many messages' : undefined,
        ),
      '503 to RCPT': () =>
        server.say((step, _line, seen) =>
          (step === 'RCPT' || step === 'DATA') && seen === server.sessions[0] ? '503 5.5.1 MAIL first' : undefined,
        ),
    };
    let server = await world.server();
    for (const [name, becomeStale] of Object.entries(stale)) {
      const carrier = world.carrier();
      await carry(carrier);
      becomeStale();
      expect(await carry(carrier), name).to.include({ kind: 'answered', code: 250 });
      expect(server.sessions, name).to.have.length(2);
      expect(
        server.sessions.flatMap(({ messages }) => messages.map(String)),
        name,
      ).to.deep.equal([HELLO, HELLO]);
      await world.stop();
      server = await world.server();
    }
  });

  it('are not replaced when the message may have been accepted', async () => {
    const server = await world.server((step, _line, { messages }) =>
      step === 'dot' && messages.length === 2 ? CLOSE : undefined,
    );
    const carrier = world.carrier();
    await carry(carrier);
    expect(await carry(carrier)).to.include({ kind: 'unanswered' });
    expect(server.sessions).to.have.length(1);
  });

  it('are not replaced when 421 is the answer to the message itself', async () => {
    const server = await world.server((step, _line, { messages }) =>
      step === 'dot' && messages.length === 2 ? '421 4.3.0 closing' : undefined,
    );
    const carrier = world.carrier();
    await carry(carrier);
    expect(await carry(carrier)).to.include({ kind: 'answered', code: 421 });
    expect(server.sessions).to.have.length(1);
  });

  it('end when a server sends an unexpected reply', async () => {
    const server = await world.server((step) =>
      step === 'dot' ? '250 2.0.0 queued\r\n250 2.0.0 and once more' : undefined,
    );
    const carrier = world.carrier();
    for (let i = 0; i < 2; i++) expect(await carry(carrier)).to.include({ code: 250 });
    expect(server.sessions).to.have.length(2);
    expect(server.sessions.map(({ messages }) => messages.length)).to.deep.equal([1, 1]);
  });

  it('end with QUIT after ten idle seconds, after a hundred messages, and with the carrier', async () => {
    const server = await world.server();
    const clock = createTestClock();
    const carrier = world.carrier({ clock });
    await carry(carrier);
    await clock.advance(9_999);
    await carry(carrier);
    expect(server.sessions).to.have.length(1);
    await clock.advance(10_000);
    await until('QUIT', () => server.sessions[0]?.commands.at(-1) === 'QUIT' && server.sessions[0].closed);
    for (let i = 0; i < 101; i++) await carry(carrier);
    expect(server.sessions.map(({ messages }) => messages.length)).to.deep.equal([2, 100, 1]);
    await until('QUIT', () => server.sessions[1]?.commands.at(-1) === 'QUIT');
    await carrier.stop();
    await until('QUIT', () => server.sessions[2]?.commands.at(-1) === 'QUIT' && server.sessions[2].closed);
  });

  it('are kept open, up to five for one server', async () => {
    const server = await world.server();
    const carrier = world.carrier();
    const burst = () =>
      Promise.all(Array.from({ length: 8 }, (_, i) => carry(carrier, { recipient: `b${i}@example.com` })));
    expect((await burst()).every((attempt) => attempt.kind === 'answered' && attempt.code === 250)).to.equal(true);
    expect(server.sessions).to.have.length(8);
    await until('three to end', () => server.sessions.filter(({ closed }) => closed).length === 3);
    await burst();
    expect(server.sessions).to.have.length(11);
    expect(server.sessions.flatMap(({ messages }) => messages)).to.have.length(16);
  });

  it('to a server that never answers QUIT are closed too', async () => {
    const server = await world.server((step) => (step === 'QUIT' ? { bytes: '', then: 'hang' } : undefined));
    const carrier = world.carrier();
    await carry(carrier);
    await carrier.stop();
    await until('the end', () => server.sessions[0]?.closed);
  });
});
