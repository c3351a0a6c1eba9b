import { expect } from 'chai';
import { postern } from '../../support/command.ts';

describe('postern demo', () => {
  it('gets real verdicts on a machine without a name server: SPF, DKIM and DMARC of its own zone pass', async function () {
    this.timeout(30_000);
    // Whatever name servers the machine has, the demo does not ask them: the tests let nobody ask
    // (support/dns-isolation.ts).
    const { code, out } = await postern(['demo', '--once']);
    expect(out)
      .to.match(/^ +spf +pass \(sender SPF authorized\)$/m)
      .and.to.match(/^ +dkim +valid$/m)
      .and.to.match(/^ +dmarc +pass \(policy reject\)$/m);
    expect(out).to.contain('X-Mandrill-Signature is valid; webhook-signature (Standard Webhooks) is valid');
    expect(code).to.equal(0);
  });
});
