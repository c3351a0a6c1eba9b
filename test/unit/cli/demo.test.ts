import { generateKeyPairSync } from 'node:crypto';
import { expect } from 'chai';
import { sendMail } from '../../../src/cli/demo/services.ts';
import { postern } from '../../support/command.ts';
import { startMailSink } from '../../support/mail-sink.ts';

describe('postern demo', () => {
  it('opens the console by a link, and gets real verdicts without a name server: SPF, DKIM and DMARC pass', async function () {
    this.timeout(30_000);
    // Whatever name servers the machine has, the demo does not ask them: the tests let nobody ask
    // (support/dns-isolation.ts).
    const { code, out } = await postern(['demo', '--once']);
    const [, port] = /API on 127\.0\.0\.1:(\d+)\n/.exec(out) ?? [];
    expect(out).to.match(new RegExp(`^ +Console: http://127\\.0\\.0\\.1:${port}/console/enter/[\\w-]{44} \\(`, 'm'));
    expect(out)
      .to.match(/^ +spf +pass \(sender SPF authorized\)$/m)
      .and.to.match(/^ +dkim +valid$/m)
      .and.to.match(/^ +dmarc +pass \(policy reject\)$/m);
    expect(out).to.contain('X-Mandrill-Signature is valid; webhook-signature (Standard Webhooks) is valid');
    expect(code).to.equal(0);
  });
  it('sends its mail again if the daemon has no time for it at that moment', async () => {
    let calls = 0;
    const sink = await startMailSink({
      onConnect: (_session, done) =>
        done(calls++ === 0 ? Object.assign(new Error('busy'), { responseCode: 421 }) : null),
    });
    const { privateKey } = generateKeyPairSync('rsa', {
      modulusLength: 1024,
      publicKeyEncoding: { type: 'spki', format: 'pem' },
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    });
    const letter = { to: 'up@demo.example', subject: 'Hello', text: 'Hello.' };
    const reply = await sendMail({ host: '127.0.0.1', port: sink.port }, privateKey, letter);
    expect([reply.slice(0, 3), calls, sink.mails.length]).to.deep.equal(['250', 2, 1]);
    await sink.stop();
  });
});
