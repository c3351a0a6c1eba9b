import type { NameServers, ZoneAnswers } from '../../src/dns/name-servers.ts';
import type { MxRecord } from '../../src/dns/types.ts';

/** The name servers of inbound.example.com, of which one still has the records of before; other names have none. */
export const exampleNameServers: NameServers = { ask };

const NAMES = { ns1: '192.0.2.53', ns2: '198.51.100.53' };

function ask(name: string, type: 'MX'): Promise<ZoneAnswers<MxRecord>>;
function ask(name: string, type: 'TXT'): Promise<ZoneAnswers<string>>;
async function ask(name: string, type: 'MX' | 'TXT'): Promise<ZoneAnswers<MxRecord> | ZoneAnswers<string>> {
  if (!name.endsWith('inbound.example.com')) return 'none';
  const zone = { zone: 'example.com', leftOut: 0 };
  const ns1 = { server: 'ns1.example.com', address: NAMES.ns1 };
  const ns2 = { server: 'ns2.example.com', address: NAMES.ns2 };
  if (type === 'MX') {
    const mx = (exchange: string) => ({
      kind: 'records' as const,
      records: [{ exchange, priority: 10 }],
      ttl: 300,
    });
    return {
      ...zone,
      servers: [
        { ...ns1, answer: mx('mx.postern.test') },
        { ...ns2, answer: mx('mail.old.example.com') },
      ],
    };
  }
  const records = ['postern-domain=e37a47d6583f78a0b1a4ad9ea2e137a1'];
  return {
    ...zone,
    servers: [
      { ...ns1, answer: { kind: 'records', records, ttl: 300 } },
      { ...ns2, answer: { kind: 'none' } },
    ],
  };
}
