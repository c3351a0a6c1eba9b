import { expect } from 'chai';
import { parseProxyHeader } from '../../../src/smtp/proxy-header.ts';
import { openData, type Started, startListener, whereverSessionsAre } from '../../support/smtp.ts';
import { until } from '../../support/until.ts';

const SIGNATURE = '0d0a0d0a000d0a515549540a';

/** A version 2 header: command and family as hex, addresses as hex. */
const v2 = (command: string, family: string, addresses: string) =>
  Buffer.from(SIGNATURE + command + family + (addresses.length / 2).toString(16).padStart(4, '0') + addresses, 'hex');

const V2_IPV4 = v2('21', '11', 'c6336407' + 'cb007101' + 'c350' + '0019');
const V2_IPV6 = v2(
  '21',
  '21',
  '20010db8000000000000000000000007' + '20010db8000000000000000000000001' + 'c350' + '0019',
);
const V1 = 'PROXY TCP4 198.51.100.7 203.0.113.1 50000 25\r\n';

describe('a PROXY header', () => {
  const client = (text: string | Buffer) => {
    const header = parseProxyHeader(Buffer.from(text));
    return header.kind === 'client' ? header.address : header.kind;
  };

  it('names the client in both versions', () => {
    expect(client(V1)).to.equal('198.51.100.7');
    expect(client('PROXY TCP6 2001:DB8:0:0::7 2001:db8::1 50000 25\r\nEHLO')).to.equal('2001:db8::7');
    expect(client('PROXY TCP6 ::ffff:c633:6407 ::1 50000 25\r\n')).to.equal('198.51.100.7');
    expect(client(V2_IPV4)).to.equal('198.51.100.7');
    expect(client(V2_IPV6)).to.equal('2001:db8::7');
    expect(client(v2('21', '21', '00000000000000000000ffffc6336407' + '0'.repeat(32) + 'c3500019'))).to.equal(
      '198.51.100.7',
    );
    expect(client(v2('21', '11', 'c6336407cb007101c3500019' + '0300040102030405'))).to.equal('198.51.100.7');
  });

  it('may declare a connection of the proxy itself', () => {
    for (const header of [
      'PROXY UNKNOWN\r\n',
      'PROXY UNKNOWN ::1 ::1 1 2\r\n',
      v2('20', '00', ''),
      v2('20', '11', 'c6336407cb007101c3500019'),
      v2('21', '00', ''),
      v2('21', '31', '00'.repeat(216)),
    ]) {
      expect(client(header)).to.equal('local');
    }
  });

  it('is waited for until its deadline', () => {
    for (const whole of [Buffer.from(V1), V2_IPV4]) {
      for (let cut = 0; cut < whole.length; cut++)
        expect(client(whole.subarray(0, cut)), `cut at ${cut}`).to.equal('more');
    }
  });

  for (const [what, header] of Object.entries({
    'no header': 'EHLO client.test\r\n',
    'a lower-case word': 'proxy TCP4 198.51.100.7 203.0.113.1 50000 25\r\n',
    'a bare line feed': 'PROXY TCP4 198.51.100.7 203.0.113.1 50000 25\n'.padEnd(120),
    'a line without end': `PROXY TCP4 ${'1'.repeat(200)}`,
    'no ports': 'PROXY TCP4 198.51.100.7 203.0.113.1\r\n',
    'a port too large': 'PROXY TCP4 198.51.100.7 203.0.113.1 65536 25\r\n',
    'an octet too large': 'PROXY TCP4 198.51.100.256 203.0.113.1 1 25\r\n',
    'the wrong family': 'PROXY TCP4 2001:db8::7 2001:db8::1 1 25\r\n',
    'the other wrong family': 'PROXY TCP6 198.51.100.7 203.0.113.1 1 25\r\n',
    'a name for an address': 'PROXY TCP4 client.test 203.0.113.1 1 25\r\n',
    'two blanks': 'PROXY  TCP4 198.51.100.7 203.0.113.1 1 25\r\n',
    UDP: 'PROXY UDP4 198.51.100.7 203.0.113.1 1 25\r\n',
    'version 3': v2('31', '11', 'c6336407cb007101c3500019'),
    'an unknown command': v2('22', '11', 'c6336407cb007101c3500019'),
    datagrams: v2('21', '12', 'c6336407cb007101c3500019'),
    'too short an address': v2('21', '11', 'c6336407'),
    'too short an IPv6 address': v2('21', '21', 'c6336407cb007101c3500019'),
    'a length of 64 KiB': Buffer.from(`${SIGNATURE}2111ffff`, 'hex'),
    'a broken signature': Buffer.from('0d0a0d0a000d0a515549540b2111000c', 'hex'),
  })) {
    it(`is refused with ${what}`, () => {
      expect(client(header)).to.equal('bad');
    });
  }
});

whereverSessionsAre('a session behind a proxy', (start) => {
  let started: Started;
  beforeEach(async () => {
    started = await start({ proxyProtocol: ['10.0.0.0/8', '127.0.0.1'], maxSessionsPerAddress: 2 });
  });
  afterEach(() => started.stop());

  for (const [version, header, address] of [
    ['1', V1, '198.51.100.7'],
    ['2', V2_IPV4, '198.51.100.7'],
    ['2 with IPv6', V2_IPV6, '2001:db8::7'],
  ] as const) {
    it(`announces the client (version ${version}), in the envelope and in the log`, async () => {
      const client = started.raw();
      client.send(header);
      expect(await client.reply()).to.match(/^220 mx\.ours\.test/);
      await client.say('EHLO client.test');
      await openData(client);
      await client.say('text\r\n.');
      expect(started.below.taken[0]?.arrival.envelope.client.address).to.equal(address);
      await client.say('QUIT');
      await until('the log', () => started.log.of('smtp.session').length > 0);
      expect(started.log.of('smtp.session')[0]?.fields['client']).to.equal(address);
    });
  }

  it('may be split anywhere before the session', async () => {
    for (const header of [Buffer.from(V1), V2_IPV4]) {
      const client = started.raw();
      for (const byte of [...header]) {
        client.send(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      client.send('EHLO client.test\r\n');
      expect(await client.reply()).to.match(/^220/);
      expect(await client.reply()).to.match(/^250-/);
    }
  });

  it('counts against the limit of the announced address', async () => {
    const clients = [];
    for (let i = 0; i < 3; i++) {
      const client = started.raw();
      client.send(V1);
      clients.push(await client.reply());
    }
    expect(clients.map((reply) => reply.slice(0, 9))).to.deep.equal(['220 mx.ou', '220 mx.ou', '421 4.7.0']);
    const other = started.raw();
    other.send('PROXY TCP4 198.51.100.8 203.0.113.1 50000 25\r\n');
    expect(await other.reply()).to.match(/^220/);
  });

  it('gives the proxy’s own address if it says so', async () => {
    const client = started.raw();
    client.send('PROXY UNKNOWN\r\n');
    expect(await client.reply()).to.match(/^220/);
    await client.say('QUIT');
    await until('the log', () => started.log.of('smtp.session').length > 0);
    expect(started.log.of('smtp.session')[0]?.fields['client']).to.equal('127.0.0.1');
  });

  it('is required', async () => {
    const client = started.raw();
    client.send('EHLO client.test\r\n');
    expect(await client.reply()).to.equal('closed');
    await until('the log', () => started.log.of('smtp.refused').length === 1);
  });

  it('frees its slot when the proxy disconnects', async () => {
    const small = await start({ proxyProtocol: ['127.0.0.1'], maxSessions: 1 });
    for (let i = 0; i < 3; i++) {
      const client = small.raw();
      client.send('PROXY ');
      client.end();
      await client.closed();
    }
    // The listener hears of the end of a connection a moment after the client.
    await until('a greeting', async () => {
      const client = small.raw();
      client.send(V1);
      const reply = await client.reply();
      client.end();
      await client.closed();
      return reply.startsWith('220');
    });
    await small.stop();
  });

  it('does not delay a stop', async () => {
    const client = started.raw();
    client.send('PROXY ');
    await new Promise((resolve) => client.socket().once('connect', resolve));
    await started.listener.stop();
    await client.closed();
  });
});

describe('a client that is not a listed proxy', () => {
  it('cannot announce another client', async () => {
    const started = await startListener({ proxyProtocol: ['10.0.0.0/8'] });
    const client = await started.client();
    expect(await client.say(V1.trimEnd())).to.match(/^500 5\.5\.2/);
    await openData(client);
    await client.say('text\r\n.');
    expect(started.below.taken[0]?.arrival.envelope.client.address).to.equal('127.0.0.1');
    await started.stop();
  });
});

describe('a proxy', () => {
  it('has a deadline for its header', async () => {
    const started = await startListener({ proxyProtocol: ['127.0.0.1'] });
    const client = started.raw();
    client.send('PROXY TCP4 198');
    await until('the connection', async () => {
      await started.clock.advance(11_000);
      return client.pending().length === 0;
    });
    await client.closed();
    await started.stop();
  });
});
