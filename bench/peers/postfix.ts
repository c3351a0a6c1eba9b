import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../test/support/free-port.ts';
import { startPostfix, whyNoPostfix } from '../../test/support/postfix.ts';
import { sessionMb, sessionSeconds } from '../processes.ts';
import { installDebian } from './debian.ts';
import type { Peer } from './peer.ts';

/**
 * Held, so that nothing but taking the mail is measured: no attempt at delivery competes with it. Else as Debian ships
 * it, but for sizes and for a process to each of 500 connections: with the 100 of the default, some of them hear
 * nothing for ever.
 */
const MAIN = {
  smtpd_recipient_restrictions: 'check_recipient_access static:HOLD',
  in_flow_delay: '0',
  message_size_limit: '26214400',
  default_process_limit: '600',
  smtpd_client_connection_count_limit: '0',
};

/** An instance of Debian's postfix, apart from the system's own. */
export const postfix: Peer = {
  name: 'postfix',
  does: {
    before250: 'written to the queue and synced',
    durable: 'yes',
    verdicts: 'none',
    parsed: 'no',
    posted: 'no: it stays in the queue',
  },
  acceptsOnly: true,
  async missing(install) {
    const why = whyNoPostfix();
    return why === 'postfix is not installed' && install ? (installDebian('postfix') ?? whyNoPostfix()) : why;
  },
  async start({ dir, certificate }) {
    const port = await freePort();
    const { pid, stop } = await startPostfix(dir, {
      listen: [`127.0.0.1:${port}`],
      next: port,
      main: MAIN,
      ...(certificate && { tls: certificate }),
    });
    const now = () => sessionMb(pid);
    return {
      port,
      cpu: () => sessionSeconds(pid),
      memory: () => ({ peak: now(), now: now() }),
      held: () => countFiles(join(dir, 'queue/hold')),
      stop,
    };
  },
};

/** Its queue may have a folder for each first letter of a name. */
function countFiles(dir: string): number {
  return readdirSync(dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).length;
}
