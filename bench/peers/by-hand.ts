import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { cpuSeconds, memoryMb, start } from '../processes.ts';
import type { Peer } from './peer.ts';

const IN_MEMORY = { before250: 'in memory', durable: 'no', posted: 'yes, tried once' };
const DURABLE = {
  before250: 'written to a file of its own, file and folder synced',
  durable: 'yes',
  posted: 'yes, tried once and again at the next start',
};

/**
 * smtp-server, simpleParser and a POST, of the packages that this tree has anyway. `durable` posts by undici and keeps
 * each message in a file until it is posted; the others keep nothing.
 */
export function createByHand(how: 'fetch' | 'undici' | 'durable'): Peer {
  return {
    name: `by hand, ${how}`,
    does: { verdicts: 'none', parsed: 'yes', ...(how === 'durable' ? DURABLE : IN_MEMORY) },
    missing: async () => undefined,
    async start({ urls, dir, certificate }) {
      const queue = join(dir, 'queue');
      if (how === 'durable') mkdirSync(queue);
      const { pid, first, stop } = await start([
        join(import.meta.dirname, 'hand.ts'),
        ...(how === 'fetch' ? ['--fetch'] : []),
        ...(how === 'durable' ? ['--queue', queue] : []),
        ...(certificate ? ['--cert', certificate.cert, '--key', certificate.key] : []),
        ...urls,
      ]);
      return {
        port: Number(first.port),
        cpu: () => cpuSeconds(pid),
        memory: () => memoryMb(pid),
        ...(how === 'durable' && { held: () => readdirSync(queue).length }),
        stop,
      };
    },
  };
}
