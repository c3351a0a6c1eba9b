import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { freePort } from '../../test/support/free-port.ts';
import { cpuSeconds, memoryMb, startListener } from '../processes.ts';
import { installDebian } from './debian.ts';
import type { Peer } from './peer.ts';

/** Debian's Python, for which its packages are. */
const PYTHON = '/usr/bin/python3';
const there = () => spawnSync(PYTHON, ['-c', 'import aiosmtpd']).status === 0;

/** aiosmtpd with the parser and the HTTP client of Python's own library. */
export const aiosmtpd: Peer = {
  name: 'aiosmtpd',
  does: {
    before250: 'parsed and posted, and answered with 200',
    durable: 'as far as the receiver does',
    verdicts: 'none',
    parsed: 'yes',
    posted: 'yes, tried once',
  },
  async missing(install) {
    if (there()) return undefined;
    return install ? installDebian('python3-aiosmtpd') : 'python3-aiosmtpd is not installed';
  },
  async start({ urls: [url = ''] }) {
    const port = await freePort();
    const { pid, stop } = await startListener(
      PYTHON,
      [join(import.meta.dirname, 'by_hand.py'), String(port), url],
      port,
    );
    return { port, cpu: () => cpuSeconds(pid), memory: () => memoryMb(pid), stop };
  },
};
