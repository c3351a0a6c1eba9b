import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { createTransport } from 'nodemailer';
import { type Started, startListener } from '../../support/smtp.ts';

const pem = (name: string) => readFileSync(join(import.meta.dirname, '../../fixtures/tls', `${name}.pem`), 'utf8');

describe('a common client (nodemailer)', () => {
  let started: Started;
  beforeEach(async () => {
    started = await startListener({ tls: { cert: pem('first.cert'), key: pem('first.key'), minVersion: 'TLSv1.2' } });
  });
  afterEach(() => started.stop());

  for (const tls of [false, true]) {
    it(`delivers ${tls ? 'over STARTTLS' : 'in plaintext'}, several messages in one session`, async () => {
      const transport = createTransport({
        host: '127.0.0.1',
        port: started.port,
        pool: true,
        maxConnections: 1,
        ignoreTLS: !tls,
        requireTLS: tls,
        tls: { rejectUnauthorized: false },
      });
      for (const text of ['one\n.\n..two', 'täxt 🚪'.repeat(20_000)]) {
        const sent = await transport.sendMail({
          from: 'a@sender.test',
          to: ['b@ours.test', 'jörg@ours.test'],
          subject: 'Grüße',
          text,
        });
        expect(sent.response).to.match(/^250 2\.0\.0 OK: queued as message-\d$/);
      }
      transport.close();
      const [first, second] = started.below.taken;
      expect(first?.arrival).to.deep.include({ protocol: tls ? 'UTF8SMTPS' : 'UTF8SMTP' });
      expect(first?.routed.map(({ recipient }) => recipient)).to.deep.equal(['b@ours.test', 'jörg@ours.test']);
      expect(first?.bytes.toString()).to.include('\r\none\r\n.\r\n..two\r\n');
      expect(second?.bytes.length).to.be.greaterThan(200_000);
    });
  }

  it('is told which recipients were refused', async () => {
    const transport = createTransport({ host: '127.0.0.1', port: started.port, ignoreTLS: true });
    const sent = await transport.sendMail({
      from: 'a@sender.test',
      to: ['b@ours.test', 'nobody@ours.test'],
      text: 'x',
    });
    expect(sent.accepted).to.deep.equal(['b@ours.test']);
    expect(sent.rejected).to.deep.equal(['nobody@ours.test']);
  });
});
