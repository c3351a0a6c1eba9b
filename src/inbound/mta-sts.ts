import { hash } from 'node:crypto';
import { frozen } from '../base/frozen.ts';
import type { Routing } from './types.ts';

// MTA-STS for inbound domains (RFC 8461): senders deliver only over TLS, with a certificate of one of these hosts.

export interface MtaStsSettings {
  readonly mode: 'none' | 'testing' | 'enforce';
  /** The targets of MX records. */
  readonly mxHosts: readonly string[];
}

/** A day while it is tested, so that a mistake ends soon; else four weeks. Seconds. */
const MAX_AGE = { none: 86_400, testing: 86_400, enforce: 2_419_200 };

/** The text of the policy. */
export function mtaStsPolicy({ mode, mxHosts }: MtaStsSettings): string {
  const lines = [
    'version: STSv1',
    `mode: ${mode}`,
    ...mxHosts.map((name) => `mx: ${name}`),
    `max_age: ${MAX_AGE[mode]}`,
  ];
  return lines.map((line) => `${line}\r\n`).join('');
}

/** The value of the TXT record at `_mta-sts.DOMAIN`, which changes with the policy. */
export const mtaStsRecord = (settings: MtaStsSettings): string =>
  `v=STSv1; id=${hash('sha256', mtaStsPolicy(settings)).slice(0, 20)}`;

/** The policies of inbound domains, by the host that a sender requests. */
export function createMtaStsPolicies(
  settings: MtaStsSettings,
  { routing }: { readonly routing: Pick<Routing, 'ownerOf'> },
) {
  const text = mtaStsPolicy(settings);
  return frozen({
    /** The policy at `mta-sts.DOMAIN`; undefined: there is none. */
    at(host: string): string | undefined {
      const domain = /^mta-sts\.([^:]+?)\.?(?::\d+)?$/i.exec(host)?.[1]?.toLowerCase();
      const has = settings.mode !== 'none' && domain !== undefined && routing.ownerOf(domain) !== undefined;
      return has ? text : undefined;
    },
  });
}
