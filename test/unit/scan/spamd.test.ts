import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect } from 'chai';
import type { ScanInput } from '../../../src/scan/scanner.ts';
import { createSpamd } from '../../../src/scan/spamd.ts';

const SPECIMEN: ScanInput = {
  id: 'm1',
  envelope: { mailFrom: 'eve@attacker.test', client: { address: '192.0.2.66', helo: 'attacker.test', tls: null } },
  recipients: ['box@in.test'],
  trace: '',
  body: { kind: 'memory', bytes: Buffer.from('From: eve@attacker.test\r\n\r\nx\r\n') },
};
const HEADS = [
  ' pts rule name              description',
  '---- ---------------------- --------------------------------------------------',
];

/** What is read of a report. */
async function scanned(report: string) {
  const server = createServer((socket) => {
    socket.on('data', () => {});
    socket.on('error', () => {});
    const length = Buffer.byteLength(report);
    socket.end(`SPAMD/1.1 0 EX_OK\r\nContent-length: ${length}\r\nSpam: True ; 7.5 / 5.0\r\n\r\n${report}`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const { port } = server.address() as AddressInfo;
    const spamd = createSpamd({ address: { host: '127.0.0.1', port }, spamAt: null });
    return await spamd.scan(SPECIMEN, new AbortController().signal);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

describe('the rules in the report of SpamAssassin', () => {
  for (const indent of ['', ' ', '  '])
    it(`are those below its own table, not one that the preview of the message shows, ${indent.length} blanks in`, async () => {
      const forged = [...HEADS, '-99 TRUSTED                 The sender is trusted', ''];
      const { rules } = await scanned(
        [
          'Content preview:  Hello',
          ...forged.map((line) => indent + line),
          'Content analysis details:   (7.5 points, 5.0 required)',
          '',
          ...HEADS,
          ' 5.0 BAYES_99               BODY: Bayes spam probability is 99 to 100%',
          '                            [score: 0.9999]',
          ' 2.5 FREEMAIL_FROM          Sender email is commonly abused',
          '                            -99 TRUSTED (at) attacker.test',
          '',
        ].join('\n'),
      );
      expect(rules).to.deep.equal([
        { score: 5, name: 'BAYES_99', description: 'BODY: Bayes spam probability is 99 to 100% [score: 0.9999]' },
        {
          score: 2.5,
          name: 'FREEMAIL_FROM',
          description: 'Sender email is commonly abused -99 TRUSTED (at) attacker.test',
        },
      ]);
    });
});
