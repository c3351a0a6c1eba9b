import { networkInterfaces } from 'node:os';

/** Whether this machine has ::1. Many containers do not. */
export function hasIPv6(): boolean {
  return Object.values(networkInterfaces()).some((addresses) => addresses?.some(({ address }) => address === '::1'));
}
