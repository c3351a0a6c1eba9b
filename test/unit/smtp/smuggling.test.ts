import { expect } from 'chai';
import { type Started, startListener } from '../../support/smtp.ts';
import { until } from '../../support/until.ts';

// What some server or other has taken for the end of DATA. Only CRLF.CRLF is one (RFC 5321 section 4.1.1.4).
const ENDINGS = ['\n.\n', '\n.\r\n', '\r\n.\n', '\r.\r', '\r.\r\n', '\r\n.\r', '\r\n\0.\r\n', '\r\n.\r\r\n', '\n.\r'];
const SMUGGLED =
  'MAIL FROM:<evil@sender.test>\r\nRCPT TO:<b@ours.test>\r\nDATA\r\nSubject: evil\r\n\r\nx\r\n.\r\nQUIT\r\n';
const BEGIN = 'MAIL FROM:<a@sender.test>\r\nRCPT TO:<b@ours.test>\r\nDATA\r\n';

describe('SMTP smuggling', () => {
  let started: Started;
  before(async () => {
    started = await startListener({ maxSessions: 1000, maxSessionsPerAddress: 1000 });
  });
  after(() => started.stop());

  for (const ending of ENDINGS) {
    it(`ends at ${JSON.stringify(ending)} with 521 and runs nothing behind it, for any chunks`, async () => {
      const message = `Subject: x\r\n\r\ntext${ending}`;
      for (let cut = message.length - ending.length - 1; cut <= message.length + 1; cut++) {
        const client = await started.client();
        client.send(BEGIN);
        for (let i = 0; i < 3; i++) await client.reply();
        const bytes = message + SMUGGLED;
        client.send(bytes.slice(0, cut));
        for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
        client.send(bytes.slice(cut));
        expect(await client.reply(), `cut at ${cut}`).to.match(/^521 5\.5\.2/);
        expect(await client.reply(), `cut at ${cut}`).to.equal('closed');
        client.destroy();
      }
      await until('the end of all', () => started.below.open === 0);
      expect(started.below.taken).to.have.length(0);
    });
  }

  it('is prevented when everything arrives in one packet', async () => {
    const client = await started.client();
    client.send(`${BEGIN}Subject: x\r\n\r\ntext\n.\r\n${SMUGGLED}`);
    const replies = [];
    for (let i = 0; i < 5; i++) replies.push((await client.reply()).slice(0, 3));
    expect(replies).to.deep.equal(['250', '250', '354', '521', 'clo']);
    expect(started.below.taken).to.have.length(0);
  });

  it('is detected in a message that is already over the limit', async () => {
    const client = await started.client();
    client.send(`${BEGIN}${'x'.repeat(1_100_000)}\n.\r\n${SMUGGLED}`);
    for (let i = 0; i < 3; i++) await client.reply();
    expect(await client.reply()).to.match(/^521 5\.5\.2/);
    expect(await client.reply()).to.equal('closed');
  });
});

describe('SMTP smuggling where bare line ends are accepted', () => {
  let started: Started;
  before(async () => {
    started = await startListener({ bareNewline: 'normalize', maxSessions: 1000, maxSessionsPerAddress: 1000 });
  });
  after(() => started.stop());

  for (const ending of ENDINGS.filter((text) => !text.includes('\0'))) {
    it(`keeps the bytes behind ${JSON.stringify(ending)} as text of one message, for any chunks`, async () => {
      const message = `Subject: x\r\n\r\ntext${ending}`;
      const inside = SMUGGLED.slice(0, SMUGGLED.indexOf('\r\n.\r\n') + 2);
      for (let cut = message.length - ending.length - 1; cut <= message.length + 1; cut++) {
        const before = started.below.taken.length;
        const client = await started.client();
        client.send(BEGIN);
        for (let i = 0; i < 3; i++) await client.reply();
        const bytes = message + SMUGGLED;
        client.send(bytes.slice(0, cut));
        for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
        client.send(bytes.slice(cut));
        expect(await client.reply(), `cut at ${cut}`).to.match(/^250 2\.0\.0/);
        expect(await client.reply(), `cut at ${cut}`).to.match(/^221/);
        const taken = started.below.taken.slice(before);
        expect(taken).to.have.length(1);
        const text = taken[0]?.bytes.toString() ?? '';
        expect(text)
          .to.match(/^Subject: x\r\n\r\ntext\r\n/)
          .and.not.match(/\r(?!\n)|(?<!\r)\n/);
        expect(text.endsWith(`\n${inside}`)).to.equal(true);
        client.destroy();
      }
    });
  }

  it('accepts a message with LF line ends, as printers send it', async () => {
    const client = await started.client();
    client.send(`${BEGIN}Subject: x\n\none\n..two\n\r\n.\r\n`);
    for (let i = 0; i < 3; i++) await client.reply();
    expect(await client.reply()).to.match(/^250 2\.0\.0/);
    expect(started.below.taken.at(-1)?.bytes.toString()).to.equal('Subject: x\r\n\r\none\r\n.two\r\n\r\n');
  });
});
