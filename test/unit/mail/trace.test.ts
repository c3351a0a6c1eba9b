import { expect } from 'chai';
import { toMailDate, traceLine } from '../../../src/mail/addresses/envelope.ts';

const trace = {
  envelope: { mailFrom: 'ada@example.org', client: { address: '192.0.2.1', helo: 'mx.example.org', tls: 'TLSv1.3' } },
  protocol: 'ESMTPS',
  hostname: 'in.example.com',
  messageId: 'm1',
  receivedAt: Date.UTC(2026, 0, 5, 12, 0, 0),
  recipient: 'to@example.com',
};

describe('our Received line', () => {
  it('names client, server, protocol, recipient and time', () => {
    expect(traceLine(trace)).to.equal(
      'Received: from mx.example.org ([192.0.2.1])\r\n\tby in.example.com (Postern) with ESMTPS id m1\r\n' +
        '\tfor <to@example.com>\r\n\t(envelope-from <ada@example.org>); Mon, 05 Jan 2026 12:00:00 +0000\r\n',
    );
  });

  it('marks IPv6, omits several recipients, and marks an unknown client', () => {
    const line = traceLine({
      ...trace,
      recipient: undefined,
      envelope: { mailFrom: '', client: { address: '2001:db8::1', helo: null, tls: null } },
    });
    expect(line)
      .to.contain('from unknown ([IPv6:2001:db8::1])')
      .and.to.contain('(envelope-from <>)')
      .and.not.to.contain('for <');
  });

  it('prevents header injection by a client', () => {
    const line = traceLine({
      ...trace,
      recipient: 'a\r\nBcc: x@y',
      envelope: { mailFrom: 'a\r\nX: y', client: { address: null, helo: 'evil\r\nX-Evil: 1', tls: null } },
    });
    expect(line.split('\r\n').filter((part) => part !== '' && !part.startsWith('\t'))).to.have.length(1);
    expect(line).not.to.match(/evil/i);
  });

  it('writes dates in the format of RFC 5322', () => {
    expect(toMailDate(0)).to.equal('Thu, 01 Jan 1970 00:00:00 +0000');
  });
});
