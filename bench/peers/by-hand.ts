import { join } from 'node:path';
import { cpuSeconds, memoryMb, start } from '../processes.ts';
import type { Peer } from './peer.ts';

/** smtp-server, simpleParser and a POST, of the packages that this tree has anyway. */
export function createByHand(how: 'fetch' | 'undici'): Peer {
  return {
    name: `by hand, ${how}`,
    does: { before250: 'in memory', durable: 'no', verdicts: 'none', parsed: 'yes', posted: 'yes, tried once' },
    missing: async () => undefined,
    async start(sink) {
      const { pid, first, stop } = await start([join(import.meta.dirname, 'hand.ts'), how, sink]);
      return { port: Number(first.port), cpu: () => cpuSeconds(pid), memory: () => memoryMb(pid), stop };
    },
  };
}
