import { allowedNetworks } from '../base/networks.ts';
import { type CarrierDeps, type CarrierSettings, createMailCarrier } from './carrier.ts';
import { createPolicies } from './mta-sts.ts';
import { createPolicyFetch } from './mta-sts-fetch.ts';
import type { MailCarrier } from './types.ts';

type Way = Pick<CarrierSettings, 'relay' | 'mxPort'>;

export interface CarriersSettings extends Omit<CarrierSettings, keyof Way | 'relaySetting'> {
  /** For mail of our own: `mail.relay`, `mail.mx_port`. */
  readonly own: Way;
  /** For mail of accounts: `outbound.relay`, `outbound.mx_port`. */
  readonly accounts: Way;
  readonly mtaSts: boolean;
}

const HTTPS_PORT = 443;

/** The carriers of our own mail and of that of accounts, which know the same policies. */
export function createMailCarriers(
  { own, accounts, mtaSts, ...settings }: CarriersSettings,
  deps: Omit<CarrierDeps, 'policies'>,
): { readonly own: MailCarrier; readonly accounts: MailCarrier } {
  const fetchPolicy = createPolicyFetch({ allowed: allowedNetworks(settings), port: HTTPS_PORT }, deps);
  const policies = mtaSts ? createPolicies({ ...deps, fetchPolicy }) : null;
  const carrierOf = (relaySetting: string, way: Way) =>
    createMailCarrier({ ...settings, ...way, relaySetting }, { ...deps, policies });
  return { own: carrierOf('mail.relay', own), accounts: carrierOf('outbound.relay', accounts) };
}
