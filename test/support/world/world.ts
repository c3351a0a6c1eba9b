import { mkdtempSync, rmSync } from 'node:fs';
import { chmod } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openAgent, whyNoRoots } from '../package/machine.ts';
import { ACME, startAuthority } from './certificates.ts';
import { APP, CUSTOMER } from './documents.ts';
import { type MailServers, startMailServers } from './mail.ts';
import { type Names, startNames } from './names.ts';
import { type Network, openNetwork, v4, v6 } from './network.ts';

// Everybody that a mail host has to do with, on addresses of their own.

export interface World {
  readonly dir: string;
  readonly network: Network;
  readonly names: Names;
  readonly mail: MailServers;
  /** The application whose webhook takes mail. */
  readonly app: Application;
  /** Certificates that everybody trusts. */
  readonly trusted: readonly string[];
  stop(): Promise<void>;
}

export interface Application {
  /** From now on. */
  answers(status: number): Promise<void>;
  /** What was posted so far. */
  received(): Promise<readonly { readonly id: string; readonly text: string }[]>;
}

/** Why there can be no such world here; undefined when there can. */
export const whyNoWorld = (): Promise<string | undefined> =>
  whyNoRoots(
    ...['ip', 'nft', 'openssl', 'curl', 'dig', 'swaks', 'nsd', 'unbound', 'unbound-control'],
    ...['postfix', 'opendkim', 'opendmarc', 'pebble', 'dpkg-deb'],
  );

export async function startWorld(): Promise<World> {
  const dir = mkdtempSync(join(tmpdir(), 'postern-world-'));
  // A run that is cut off leaves no gigabyte behind.
  const clear = () => rmSync(dir, { recursive: true, force: true });
  process.once('exit', clear);
  await chmod(dir, 0o755); // the users of these servers must get through
  const network = await openNetwork(join(dir, 'network'));
  try {
    const names = await startNames(network, join(dir, 'names'));
    await names.publish({
      [ACME]: [`A ${v4('acme')}`],
      [APP]: [`A ${v4('app')}`, `AAAA ${v6('app')}`],
      [CUSTOMER]: ['MX 10 mx.there.example.'],
    });
    const { trusted } = await startAuthority(network, join(dir, 'acme'));
    const mail = await startMailServers(join(dir, 'mail'), { network, names, trusted, mailboxes: [CUSTOMER] });
    // On the IPv6 address, which takes IPv4 too.
    const agent = await openAgent(network.outside, '::', '80');
    return {
      dir,
      network,
      names,
      mail,
      trusted,
      app: {
        answers: async (status) => void (await agent.ask({ do: 'answer', status, to: '' })),
        received: async () => (await agent.ask({ do: 'received' })) as Awaited<ReturnType<Application['received']>>,
      },
      async stop() {
        await mail.stop();
        await agent.stop();
        await network.stop();
        clear();
        process.off('exit', clear);
      },
    };
  } catch (error) {
    await network.stop();
    throw error;
  }
}
