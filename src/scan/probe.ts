import type { Clock } from '../base/clock.ts';
import { scanInTime } from './run-scanners.ts';
import type { ScanInput, Scanner, ScannerFinding } from './scanner.ts';

// Standard test patterns, each in two pieces, so that no scanner flags this file.
const GTUBE = ['XJS*C4JDBQADN1.NSBN3*2IDNEN*', 'GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X'].join('');
const EICAR = ['X5O!P%@AP[4\\PZX54(P^)7CC)7}$', 'EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*'].join('');

/** The scanner's answer to the test mail, and how long it took; or why there was none. */
type Probed =
  | { readonly scanner: Scanner; readonly found: boolean; readonly ms: number; readonly fault?: undefined }
  | { readonly scanner: Scanner; readonly fault: string };

/** Sends each scanner a message that it must detect, one after the other, and closes their connections. */
export async function* probe(
  scanners: readonly Scanner[],
  { timeoutMs, clock }: { readonly timeoutMs: number; readonly clock: Clock },
): AsyncGenerator<Probed> {
  for (const scanner of scanners) {
    const began = clock.monotonic();
    try {
      const asked = testInput(scanner, clock.now());
      const finding = await scanInTime(clock, timeoutMs, (late) => scanner.scan(asked, late));
      yield { scanner, found: isFound(finding), ms: Math.round(clock.monotonic() - began) };
    } catch (error) {
      yield { scanner, fault: error instanceof Error ? error.message || error.name : String(error) };
    } finally {
      await scanner.stop();
    }
  }
}

const isFound = ({ spam, virus }: ScannerFinding): boolean => spam === 'spam' || virus === 'infected';

function testInput({ finds }: Scanner, now: number): ScanInput {
  const lines = [
    'From: Postern <postmaster@example.com>',
    'To: <postmaster@example.com>',
    'Subject: A test of the scanners',
    `Date: ${new Date(now).toUTCString().replace('GMT', '+0000')}`,
    'Message-ID: <scanner-test@example.com>',
    'MIME-Version: 1.0',
    ...(finds === 'spam'
      ? ['Content-Type: text/plain', '', GTUBE]
      : [
          'Content-Type: application/octet-stream; name=test.com',
          'Content-Transfer-Encoding: base64',
          '',
          base64(EICAR),
        ]),
    '',
  ];
  return {
    id: 'scanner-test',
    envelope: { mailFrom: 'postmaster@example.com', client: { address: '192.0.2.1', helo: 'example.com', tls: null } },
    recipients: ['postmaster@example.com'],
    trace: 'Received: from example.com ([192.0.2.1]) by localhost with ESMTP id scanner-test\r\n',
    body: { kind: 'memory', bytes: Buffer.from(lines.join('\r\n')) },
  };
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');
