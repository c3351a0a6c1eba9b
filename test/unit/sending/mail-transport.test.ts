import { expect } from 'chai';
import { carry, createCarrierWorld, HELLO } from '../../support/carrier-world.ts';
import { createTestClock } from '../../support/clock.ts';
import { CLOSE, HANG, type Said, type Step } from '../../support/scripted-smtp.ts';
import { until } from '../../support/until.ts';

const at = (step: Step, said: Said) => (now: Step) => (now === step ? said : undefined);

describe('the carrier of outgoing mail', () => {
  const world = createCarrierWorld();
  afterEach(world.stop);

  it('hands a message over and returns the reply, from where and to where', async () => {
    const server = await world.server();
    const attempt = await carry(world.carrier());
    expect(attempt).to.deep.include({
      kind: 'answered',
      code: 250,
      diag: '2.0.0 queued as 1',
      host: 'mx.example.com',
      address: '127.0.0.1',
      source: '127.0.0.1',
      tls: false,
    });
    expect(attempt.durationMs).to.be.a('number');
    expect(server.sessions[0]?.commands).to.deep.equal([
      'EHLO out.postern.test',
      'MAIL FROM:<bounce@sender.example>',
      'RCPT TO:<b@example.com>',
      'DATA',
    ]);
    expect(server.sessions[0]?.messages.map(String)).to.deep.equal([HELLO]);
  });

  it('reports the deciding reply, at any stage', async () => {
    const server = await world.server();
    const table: readonly [Step, string, object][] = [
      ['MAIL', '550 5.7.1 not from you', { code: 550, diag: '5.7.1 not from you' }],
      ['MAIL', '451 4.7.1 later', { code: 451, diag: '4.7.1 later' }],
      ['RCPT', '550 5.1.1 no such user', { code: 550, diag: '5.1.1 no such user' }],
      ['RCPT', '450 greylisted', { code: 450, diag: 'greylisted' }],
      ['DATA', '554 no', { code: 554, diag: 'no' }],
      ['DATA', '452 4.3.1 full', { code: 452, diag: '4.3.1 full' }],
      ['dot', '554 5.6.0 spam', { code: 554, diag: '5.6.0 spam' }],
      ['dot', '421 4.3.0 closing', { code: 421, diag: '4.3.0 closing' }],
      [
        'RCPT',
        '550-5.1.1 The account\r\n550-5.1.1 does not exist.\r\n550 5.1.1 https://example.com/help',
        { code: 550, diag: '5.1.1 The account does not exist. https://example.com/help' },
      ],
      ['RCPT', '550-no enhanced\r\n550-\r\n550 code', { code: 550, diag: 'no enhanced code' }],
      ['RCPT', '550', { code: 550, diag: '' }],
      ['dot', '250', { code: 250, diag: '' }],
      ['dot', '250-2.0.0 Ok:\r\n250 2.0.0 queued', { code: 250, diag: '2.0.0 Ok: queued' }],
    ];
    for (const [step, said, expected] of table) {
      server.say(at(step, said));
      expect(await carry(world.carrier()), `${step} ${said}`).to.include({
        kind: 'answered',
        host: 'mx.example.com',
        ...expected,
      });
    }
  });

  it('makes one printable line of any reply', async () => {
    const server = await world.server(at('RCPT', `550-5.1.1 a\u001b[31m\tb\u202ec\u0000d\r\n550 ${'x'.repeat(2000)}`));
    const attempt = await carry(world.carrier());
    expect(attempt).to.include({ kind: 'answered', code: 550 });
    const diag = attempt.kind === 'answered' ? attempt.diag : '';
    expect(diag)
      .to.match(/^5\.1\.1 a \[31m b c d x+$/)
      .and.to.have.length(500);
    server.say(at('RCPT', '550 5.1.1 gibt es nicht: Jürgen'));
    expect(await carry(world.carrier())).to.include({ diag: '5.1.1 gibt es nicht: Jürgen' });
  });

  it('treats invalid replies, silence and a closed connection as temporary', async () => {
    const nonsense: readonly Said[] = [
      CLOSE,
      'HTTP/1.1 400 Bad Request',
      '99999 x',
      '199 x',
      '354 what',
      { bytes: '550 5.1.1 cut', then: 'close' },
      { bytes: '550-half\r\n', then: 'close' },
    ];
    for (const said of nonsense) {
      for (const step of ['MAIL', 'RCPT', 'dot'] as const) {
        const server = await world.server(at(step, said));
        expect(await carry(world.carrier()), `${step} ${String(said)}`).to.include({
          kind: 'unanswered',
          permanent: false,
        });
        expect(server.sessions, `${step} ${String(said)}`).to.have.length(1);
        await world.stop();
      }
    }
    for (const said of [
      CLOSE,
      '554 5.3.2 go away',
      '421 busy',
      'SSH-2.0-OpenSSH_9.2',
      { bytes: '220 ', then: 'close' },
    ] as const) {
      await world.server(at('banner', said));
      expect(await carry(world.carrier()), String(said)).to.include({ kind: 'unanswered', permanent: false });
      await world.stop();
    }
    await world.server((step) => (step === 'EHLO' || step === 'HELO' ? '550 5.7.1 who are you' : undefined));
    expect(await carry(world.carrier())).to.include({
      kind: 'unanswered',
      permanent: false,
      reason: 'mx.example.com (127.0.0.1): 550 5.7.1 who are you',
    });
  });

  it('rejects an endless reply', async () => {
    await world.server(at('RCPT', { bytes: '550-for ever\r\n'.repeat(10_000), then: 'hang' }));
    expect(await carry(world.carrier())).to.include({ kind: 'unanswered' });
    await world.stop();
    await world.server(at('banner', { bytes: 'x'.repeat(100_000), then: 'hang' }));
    expect(await carry(world.carrier())).to.include({ kind: 'unanswered' });
  });

  it('falls back to HELO where EHLO is unknown', async () => {
    const server = await world.server(at('EHLO', '502 what'));
    expect(await carry(world.carrier())).to.include({ kind: 'answered', code: 250 });
    expect(server.sessions[0]?.commands.slice(0, 2)).to.deep.equal(['EHLO out.postern.test', 'HELO out.postern.test']);
  });

  it('never sends a message twice if it may have been accepted', async () => {
    const server = await world.server(at('dot', CLOSE));
    const zone = {
      'example.com': {
        MX: [
          { exchange: 'mx.example.com', priority: 1 },
          { exchange: 'second.example.com', priority: 2 },
        ],
      },
      'mx.example.com': { A: ['127.0.0.1'] },
      'second.example.com': { A: ['127.0.0.11'] },
    };
    const second = await world.server(undefined, { address: '127.0.0.11', port: server.port });
    expect(await carry(world.carrier({ zone }))).to.include({ kind: 'unanswered', permanent: false });
    expect(server.sessions.flatMap(({ messages }) => messages)).to.have.length(1);
    expect(second.sessions).to.have.length(0);
  });

  it('stuffs dots and ends lines, for any bytes', async () => {
    const server = await world.server();
    const table: readonly [string, string][] = [
      ['a: b\r\n\r\n.\r\n..\r\n.x\r\n', 'a: b\r\n\r\n..\r\n...\r\n..x\r\n'],
      ['.a: b\r\n\r\nend', '..a: b\r\n\r\nend\r\n'],
      ['a: b\n\n.\nbare LF', 'a: b\r\n\r\n..\r\nbare LF\r\n'],
      ['a: b\r\n\r\nbare CR\r.\rx\r', 'a: b\r\n\r\nbare CR\r\n..\r\nx\r\n'],
      ['a: b\r\n\r\n\n.\r\n', 'a: b\r\n\r\n\r\n..\r\n'],
      ['', '\r\n'],
      [`a: b\r\n\r\n${'x'.repeat(70_000)}\r\n.`, `a: b\r\n\r\n${'x'.repeat(70_000)}\r\n..\r\n`],
    ];
    const carrier = world.carrier();
    for (const [text] of table)
      expect(await carry(carrier, { text: Buffer.from(text, 'latin1') }), JSON.stringify(text.slice(0, 40))).to.include(
        { kind: 'answered', code: 250 },
      );
    expect(server.sessions.flatMap(({ messages }) => messages.map((bytes) => bytes.toString('latin1')))).to.deep.equal(
      table.map(([, expected]) => expected),
    );
    const all = Buffer.from(
      [...'a: b\r\n\r\n']
        .map((letter) => letter.charCodeAt(0))
        .concat(
          Array.from({ length: 256 }, (_, i) => i).filter((i) => i !== 10 && i !== 13),
          [13, 10],
        ),
    );
    await carry(carrier, { text: all });
    expect(server.sessions.at(-1)?.messages.at(-1)?.equals(all)).to.equal(true);
  });

  describe('with extensions', () => {
    it('uses 8BITMIME where it is offered and needed', async () => {
      const text = 'Subject: x\r\n\r\ngrüße\r\n';
      const server = await world.server(undefined, { offers: ['8BITMIME', 'SMTPUTF8', 'SIZE 1000'] });
      await carry(world.carrier(), { text });
      await carry(world.carrier());
      expect(server.sessions.map(({ commands }) => commands[1])).to.deep.equal([
        `MAIL FROM:<bounce@sender.example> BODY=8BITMIME SIZE=${Buffer.byteLength(text)}`,
        `MAIL FROM:<bounce@sender.example> SIZE=${HELLO.length}`,
      ]);
      await world.stop();
      const plain = await world.server();
      expect(await carry(world.carrier(), { text })).to.include({ code: 250 });
      expect(plain.sessions[0]?.commands[1]).to.equal('MAIL FROM:<bounce@sender.example>');
    });

    it('uses SMTPUTF8 for an address and for a header', async () => {
      const server = await world.server(undefined, { offers: ['8BITMIME', 'SMTPUTF8'] });
      const carrier = world.carrier();
      await carry(carrier, { recipient: 'jürgen@example.com' });
      await carry(carrier, { text: 'Subject: grüße\r\n\r\nx\r\n' });
      await carry(carrier, { text: 'Subject: x\r\n\r\nx\r\n' });
      expect(server.sessions[0]?.commands.filter((line) => /^(?:MAIL|RCPT)/.test(line))).to.deep.equal([
        'MAIL FROM:<bounce@sender.example> SMTPUTF8',
        'RCPT TO:<jürgen@example.com>',
        'MAIL FROM:<bounce@sender.example> BODY=8BITMIME SMTPUTF8',
        'RCPT TO:<b@example.com>',
        'MAIL FROM:<bounce@sender.example>',
        'RCPT TO:<b@example.com>',
      ]);
    });

    it('fails permanently if SMTPUTF8 is needed and not offered, and writes domains as A-labels', async () => {
      const server = await world.server(undefined, { offers: ['8BITMIME'] });
      const zone = { 'example.com': { A: ['127.0.0.1'] }, 'xn--bcher-kva.example': { A: ['127.0.0.1'] } };
      expect(await carry(world.carrier({ zone }), { recipient: 'jürgen@example.com' }))
        .to.include({ kind: 'answered', code: 550 })
        .and.to.have.property('diag')
        .that.matches(/^5\.6\.7 /);
      expect(await carry(world.carrier({ zone }), { text: 'Subject: grüße\r\n\r\nx\r\n' }))
        .to.include({ kind: 'answered', code: 550 })
        .and.to.have.property('diag')
        .that.matches(/^5\.6\.7 /);
      // Not UTF-8, so nothing that SMTPUTF8 would help.
      expect(
        await carry(world.carrier({ zone }), { text: Buffer.from('Subject: gr\xfc\xdfe\r\n\r\nx\r\n', 'latin1') }),
      ).to.include({ code: 250 });
      expect(await carry(world.carrier({ zone }), { recipient: 'b@Bücher.example' })).to.include({
        kind: 'answered',
        code: 250,
      });
      expect(server.sessions.at(-1)?.commands[2]).to.equal('RCPT TO:<b@xn--bcher-kva.example>');
    });

    it('does not send a message above the limit of the server', async () => {
      const server = await world.server(undefined, { offers: ['SIZE 1000'] });
      expect(await carry(world.carrier(), { text: `a: b\r\n\r\n${'x'.repeat(1000)}\r\n` }))
        .to.include({ kind: 'answered', code: 552 })
        .and.to.have.property('diag')
        .that.matches(/^5\.3\.4 /);
      expect(server.sessions[0]?.commands.some((line) => line.startsWith('MAIL'))).to.equal(false);
      await world.stop();
      await world.server(undefined, { offers: ['SIZE 0'] });
      expect(await carry(world.carrier(), { text: 'x'.repeat(5000) })).to.include({ code: 250 });
    });
  });

  it('lets no address inject a command', async () => {
    const server = await world.server();
    const hostile = [
      'b@example.com\r\nRCPT TO:<c@example.com>',
      'b@example.com\nDATA',
      'b@example.com> SIZE=1',
      '<b@example.com>',
      'b c@example.com',
      '"b c"@example.com',
      'b@example.com\u0000',
      'b@example.com ',
      'b@example.com\u0085',
      'b@exam\u2028ple.com',
      'b',
      '',
      '@example.com',
      'b@',
      'b@[127.0.0.1]',
      'b@127.0.0.1',
      `${'b'.repeat(1000)}@example.com`,
      '@a.example:b@example.com',
    ];
    for (const address of hostile) {
      expect(await carry(world.carrier(), { recipient: address }), address)
        .to.deep.include({ kind: 'answered', code: 553, host: '' })
        .and.to.have.property('diag')
        .that.matches(/^5\.1\.3 /);
      if (address !== '' && !address.includes('['))
        expect(await carry(world.carrier(), { mailFrom: address }), address)
          .to.deep.include({ kind: 'answered', code: 553 })
          .and.to.have.property('diag')
          .that.matches(/^5\.1\.7 /);
    }
    expect(server.sessions).to.have.length(0);
    expect(await carry(world.carrier(), { mailFrom: '' })).to.include({ code: 250 });
    expect(server.sessions[0]?.commands[1]).to.equal('MAIL FROM:<>');
  });

  it('has one deadline in all, and one for each host to get ready', async () => {
    for (const [step, advance, reason] of [
      ['banner', 30_000, 'mx.example.com (127.0.0.1): timed out'],
      ['RCPT', 60_000, 'timed out'],
      ['dot', 60_000, 'timed out'],
    ] as const) {
      const server = await world.server(at(step, HANG));
      const clock = createTestClock();
      const carrying = carry(world.carrier({ clock }));
      await until('the step', () =>
        step === 'banner'
          ? server.sessions.length === 1
          : step === 'RCPT'
            ? server.sessions[0]?.commands.includes('DATA')
            : server.sessions[0]?.messages.length === 1,
      );
      await clock.advance(advance);
      const { detail: _, ...rest } = await carrying;
      expect(rest).to.deep.equal({ kind: 'unanswered', reason, permanent: false, durationMs: advance });
      await until('the end of the session', () => server.sessions[0]?.closed);
      await world.stop();
    }
  });

  it('is cancelled on stop', async () => {
    const server = await world.server(at('MAIL', HANG));
    const carrier = world.carrier();
    const carrying = carry(carrier);
    await until('the command', () => server.sessions[0]?.commands.includes('DATA'));
    await carrier.stop();
    expect(await carrying).to.include({ kind: 'unanswered', permanent: false });
    await until('the end of the session', () => server.sessions[0]?.closed);
  });
});
