import { expect } from 'chai';
import { createDataScanner } from '../../../src/smtp/reception.ts';
import { randomFrom } from '../../support/random-text.ts';
import { type Client, openData, type Started, sendMessage, sha256, startListener } from '../../support/smtp.ts';
import { until } from '../../support/until.ts';

/** Content of a message as the scanner gives it back when the bytes come in two chunks. */
function scanned(
  bytes: Buffer,
  split: number,
  bareNewline: 'reject' | 'normalize' = 'reject',
): { content: Buffer; state: string; rest: string } {
  const scanner = createDataScanner(bareNewline);
  const first = scanner.scan(bytes.subarray(0, split));
  if (first.state !== 'more')
    return {
      content: Buffer.concat(first.pieces),
      state: first.state,
      rest: first.rest.toString() + bytes.subarray(split).toString(),
    };
  const second = scanner.scan(bytes.subarray(split));
  return {
    content: Buffer.concat([...first.pieces, ...second.pieces]),
    state: second.state,
    rest: second.rest.toString(),
  };
}

describe('the bytes of a message', () => {
  it('are the same for any chunks, with dots at line starts unstuffed', () => {
    const sent = Buffer.from('..\r\n.a\r\n\r\n....\r\na.\r\n.\tb\r\n\x01\x7f\xff\xc3\r\n.\r\nNOOP\r\n', 'latin1');
    for (let split = 0; split <= sent.length; split++) {
      const { content, state, rest } = scanned(sent, split);
      expect(state).to.equal('end');
      expect(content.toString('latin1')).to.equal('.\r\na\r\n\r\n...\r\na.\r\n\tb\r\n\x01\x7f\xff\xc3\r\n');
      expect(rest).to.equal('NOOP\r\n');
    }
  });

  it('may be empty', () => {
    for (let split = 0; split <= 3; split++)
      expect(scanned(Buffer.from('.\r\n'), split)).to.deep.equal({ content: Buffer.alloc(0), state: 'end', rest: '' });
  });

  it('are refused with a bare CR, a bare LF or a NUL, for any chunks', () => {
    for (const bad of [
      '\n',
      'a\nb',
      '\n.\r\n',
      '\r\n.\n',
      '\r\n.\rx',
      '\rx',
      'a\0b',
      '\0',
      '.\n',
      '.\rx',
      '\r\r\n',
      '\r\0',
      '\r\n.\r\r\n',
    ]) {
      const sent = Buffer.from(`a\r\nb${bad}\r\n.\r\n`);
      for (let split = 0; split <= sent.length; split++)
        expect(scanned(sent, split).state, JSON.stringify(bad)).to.equal('bare');
    }
  });
});

describe('the bytes of a large message', () => {
  // A chunk that is long enough is looked at 16 bytes at a time; chunks of one byte never are.
  for (const bareNewline of ['reject', 'normalize'] as const) {
    it(`are the same as one by one, at any position in a line (${bareNewline})`, () => {
      const pieces = [
        '\r\n',
        '\r\n.',
        '\r\n..',
        '\r\n\r\n',
        '.',
        '\r',
        '\n',
        '\0',
        '\r\n.\r\n',
        '\x0e',
        '\xff',
        '\t',
        '\r\n.\n',
      ];
      const states = new Set<string>();
      for (let seed = 1; seed <= 1000; seed++) {
        const random = randomFrom(seed);
        // Of few kinds at a time, so that many get as far as the end.
        const some = pieces.filter((_, n) => n < 5 || random() < 0.1);
        let text = '';
        while (text.length < 1500)
          text += 'x'.repeat(Math.floor(random() * 70)) + (some[Math.floor(random() * some.length)] ?? '');
        const sent = Buffer.from(`${text}\r\n.\r\nQUIT\r\n`, 'latin1');
        const whole = scanned(sent, Math.floor(random() * 40), bareNewline);
        const single = scannedSingly(sent, bareNewline);
        expect(whole.state, `seed ${seed}`).to.equal(single.state);
        states.add(whole.state);
        // Nothing of a message that is refused is kept.
        if (whole.state === 'end')
          expect(whole.content.equals(single.content) && whole.rest === single.rest).to.equal(true);
      }
      expect(states).to.include('end').and.include('bare');
    });
  }
});

function scannedSingly(bytes: Buffer, bareNewline: 'reject' | 'normalize'): ReturnType<typeof scanned> {
  const scanner = createDataScanner(bareNewline);
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at++) {
    const { pieces: some, state } = scanner.scan(bytes.subarray(at, at + 1));
    pieces.push(...some);
    if (state !== 'more') return { content: Buffer.concat(pieces), state, rest: bytes.toString('utf8', at + 1) };
  }
  return { content: Buffer.concat(pieces), state: 'more', rest: '' };
}

describe('the bytes of a message, where bare line ends are accepted', () => {
  /** Written after RFC 5321 sections 4.1.1.4 and 4.5.2 alone: over the whole text, by patterns. */
  function meant(text: string): { content: string; rest: string } | undefined {
    const end = /(?:^|\r\n)\.\r\n/.exec(text);
    if (!end) return undefined;
    const lines = text
      .slice(0, end.index + (end[0].startsWith('\r') ? 2 : 0))
      .replace(/\r\n|\r|\n/g, '\n')
      .replace(/^\./gm, '');
    return { content: lines.replaceAll('\n', '\r\n'), rest: text.slice(end.index + end[0].length) };
  }

  it('end at CRLF.CRLF alone and have only CRLF, for any input and chunks', () => {
    let ends = 0;
    const letters = ['a', '.', '\r', '\n'];
    for (let n = 0; n < 4 ** 7; n++) {
      const text = `${Array.from({ length: 7 }, (_, digit) => letters[Math.floor(n / 4 ** digit) % 4]).join('')}\r\n.\r\nQUIT\r\n`;
      const wanted = meant(text);
      for (const split of [0, 1 + (n % 7), 8]) {
        const { content, state, rest } = scanned(Buffer.from(text), split, 'normalize');
        expect({ state, content: content.toString(), rest }, JSON.stringify(text)).to.deep.equal({
          state: 'end',
          ...wanted,
        });
        expect(content.toString()).to.not.match(/\r(?!\n)|(?<!\r)\n/);
      }
      if (wanted?.rest !== 'QUIT\r\n') ends++;
    }
    expect(ends).to.be.greaterThan(50);
  });

  it('are still refused with a NUL', () => {
    for (const text of ['a\0b\r\n.\r\n', '\0\r\n.\r\n', '\r\0\r\n.\r\n', '\n\0\r\n.\r\n', '\r\n.\0\r\n.\r\n']) {
      for (let split = 0; split < 5; split++)
        expect(scanned(Buffer.from(text), split, 'normalize').state, JSON.stringify(text)).to.equal('bare');
    }
  });
});

describe('DATA', () => {
  let started: Started;
  let client: Client;
  beforeEach(async () => {
    started = await startListener();
    client = await started.client();
  });
  afterEach(() => started.stop());

  it('keeps every byte: 8-bit, malformed UTF-8, long lines, no header', async () => {
    const every = Buffer.from(
      Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => ![0, 10, 13].includes(byte)),
    );
    const body = Buffer.concat([
      every,
      Buffer.from('\r\n'),
      Buffer.alloc(100_000, 'x'),
      Buffer.from('\r\n\xc3\x28\xff\xfe\r\n\r\n\t \r\n', 'latin1'),
    ]);
    await openData(client);
    client.send(body);
    client.send('.\r\n');
    expect(await client.reply()).to.match(/^250 2\.0\.0/);
    expect(sha256(started.below.taken[0]?.bytes ?? Buffer.alloc(0))).to.equal(sha256(body));
  });

  it('keeps a large message with many dots', async () => {
    const lines = Array.from({ length: 20_000 }, (_, i) => '.'.repeat(i % 4) + 'x'.repeat(i % 37));
    await openData(client);
    client.send(lines.map((line) => `${line.startsWith('.') ? '.' : ''}${line}\r\n`).join(''));
    client.send('.\r\n');
    expect(await client.reply()).to.match(/^250 2\.0\.0/);
    expect(sha256(started.below.taken[0]?.bytes ?? Buffer.alloc(0))).to.equal(
      sha256(Buffer.from(lines.join('\r\n') + '\r\n')),
    );
  });

  it('passes on sender, client and protocol', async () => {
    await client.say('EHLO Client.Test');
    await client.say('MAIL FROM:<A@Sender.Test> SMTPUTF8');
    await client.say('RCPT TO:<B@Ours.test>');
    await client.say('RCPT TO:<b@ours.test>');
    await client.say('RCPT TO:<"c d"@ours.test>');
    await client.say('DATA');
    await client.say('text\r\n.');
    const { arrival, routed } = started.below.taken[0] ?? expect.fail('nothing was taken');
    expect(arrival).to.deep.equal({
      envelope: { mailFrom: 'A@Sender.Test', client: { address: '127.0.0.1', helo: 'Client.Test', tls: null } },
      protocol: 'UTF8SMTP',
    });
    expect(routed.map(({ recipient }) => recipient)).to.deep.equal(['B@Ours.test', '"c d"@ours.test']);
  });

  it('records the protocol SMTP after HELO and ESMTP after EHLO', async () => {
    await sendMessage(client, 'one');
    await client.say('HELO client.test');
    await sendMessage(client, 'two');
    expect(started.below.taken.map(({ arrival }) => arrival.protocol)).to.deep.equal(['ESMTP', 'SMTP']);
  });

  it('refuses a message over the limit at its end, stores nothing of it, and continues', async () => {
    await openData(client);
    const part = Buffer.from(`${'x'.repeat(998)}\r\n`.repeat(100));
    for (let i = 0; i < 30; i++) client.send(part);
    client.send('.\r\n');
    expect(await client.reply()).to.match(/^552 5\.3\.4/);
    expect(started.below).to.include({ open: 0, held: 0 });
    expect(await sendMessage(client, 'small')).to.match(/^250 2\.0\.0/);
  });

  it('accepts a message of exactly the limit and refuses one byte more', async () => {
    await openData(client);
    client.send('x'.repeat(999_998));
    expect(await client.say('\r\n.')).to.match(/^250 2\.0\.0/);
    await openData(client);
    client.send('x'.repeat(999_999));
    expect(await client.say('\r\n.')).to.match(/^552 5\.3\.4/);
  });

  it('buffers no more than the limit of a line of 100 MB', async () => {
    await openData(client);
    const part = Buffer.alloc(1_000_000, 'x');
    for (let i = 0; i < 100; i++) {
      client.send(part);
      if (client.socket().writableNeedDrain) await new Promise((resolve) => client.socket().once('drain', resolve));
      expect(started.below.held).to.be.at.most(1_000_000);
    }
    expect(await client.say('\r\n.')).to.match(/^552 5\.3\.4/);
  });

  it('refuses a message in a mail loop', async () => {
    const line = 'received: from a by b; Mon, 05 Jan 2026 12:00:00 +0000\r\n';
    expect(await sendMessage(client, `${line.repeat(50)}\r\n${line.repeat(9)}`)).to.match(/^250 2\.0\.0/);
    expect(await sendMessage(client, `${line.repeat(51)}\r\ntext`)).to.match(/^554 5\.4\.6/);
    expect(started.below).to.include({ open: 0 });
  });

  it('counts Received lines for any chunks', async () => {
    await openData(client);
    for (const byte of 'Received: x\r\n'.repeat(51)) {
      client.send(byte);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await client.say('\r\ntext\r\n.')).to.match(/^554 5\.4\.6/);
  });

  it('stores nothing of a message whose client disconnected', async () => {
    await openData(client);
    client.send('Subject: half\r\n');
    await until('the first bytes', () => started.below.held > 0);
    client.destroy();
    await until('the end', () => started.below.open === 0);
    expect(started.below.taken).to.have.length(0);
    await until('the line in the log', () => started.log.of('smtp.session').length === 1);
  });

  it('rejects a message whose client closed its side before the final dot', async () => {
    await openData(client);
    client.send('Subject: half\r\n\r\ntext\r\n.');
    client.end();
    await client.closed();
    await until('the end', () => started.below.open === 0);
    expect(started.below.taken).to.have.length(0);
  });

  it('answers a client that closed its side after its last command', async () => {
    client.send('MAIL FROM:<a@sender.test>\r\nRCPT TO:<b@ours.test>\r\nDATA\r\nx\r\n.\r\nQUIT\r\n');
    client.end();
    const replies = [];
    for (let i = 0; i < 5; i++) replies.push((await client.reply()).slice(0, 3));
    expect(replies).to.deep.equal(['250', '250', '354', '250', '221']);
  });

  it('replies 250 only once the message is accepted', async () => {
    let synced = () => {};
    started.below.accept = () =>
      new Promise((resolve) => {
        synced = () => resolve('accepted');
      });
    await openData(client);
    client.send('text\r\n.\r\nNOOP\r\n');
    await until('accept', () => started.below.open === 0);
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
    expect(client.pending()).to.deep.equal([]);
    synced();
    expect(await client.reply()).to.match(/^250 2\.0\.0 OK: queued as message-1$/);
    expect(await client.reply()).to.match(/^250 2\.0\.0/);
  });

  it('logs an error once, with its stack, and hides it from the client', async () => {
    started.below.accept = async () => {
      throw new Error('secret of the house');
    };
    expect(await sendMessage(client, 'text')).to.equal('451 4.3.0 Local error in processing, try again later');
    const faults = started.log.of('smtp.fault');
    expect(faults).to.have.length(1);
    expect(faults[0]?.fields['fault']).to.be.an.instanceOf(Error);
  });

  it('accepts 5,000 recipients up to its limit and defers the rest', async () => {
    await client.say('MAIL FROM:<a@sender.test>');
    client.send(Array.from({ length: 5000 }, (_, i) => `RCPT TO:<b${i}@ours.test>\r\n`).join(''));
    const codes = new Map<string, number>();
    for (let i = 0; i < 5000; i++) {
      const code = (await client.reply()).slice(0, 9);
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
    expect([...codes]).to.deep.equal([
      ['250 2.1.5', 100],
      ['452 4.5.3', 4900],
    ]);
    await client.say('DATA');
    expect(await client.say('text\r\n.')).to.match(/^250 2\.0\.0/);
    expect(started.below.taken[0]?.routed).to.have.length(100);
  });
});
