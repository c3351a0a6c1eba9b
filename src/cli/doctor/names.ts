import { checkPtr, toReverseName } from '../../dns/address-checks.ts';
import { sameName } from '../../dns/names.ts';
import { type Check, type Finding, fault, isLocal, ok, skipped, type World, warning } from './finding.ts';

/** Our name has an address, and the address has our name: many servers take no mail from a host of which that is not so. */
export const hostName: Check = {
  name: 'host name',
  async run({ settings, resolver }) {
    const { hostname } = settings;
    if (isLocal(settings))
      return [skipped('host name', `${hostname}; every listener is on loopback, so nobody asks for it`)];
    if (!hostname.includes('.')) {
      return [
        fault(
          'host name',
          `"${hostname}" is no full name`,
          'Set hostname to the full name of this machine, as mx1.example.com.',
        ),
      ];
    }
    const [v4, v6] = await Promise.all([resolver.resolve(hostname, 'A'), resolver.resolve(hostname, 'AAAA')]);
    const addresses = [v4, v6].flatMap((answer) => (answer.kind === 'records' ? answer.records : []));
    if (addresses.length === 0) {
      const failed = [v4, v6].some(({ kind }) => kind === 'failure');
      return [
        failed
          ? skipped('host name', `the DNS gave no answer about ${hostname}`)
          : fault(
              'host name',
              `${hostname} has no address in the DNS`,
              `Publish an A record (and AAAA, if you have IPv6) for ${hostname}.`,
            ),
      ];
    }
    return [
      ok('host name', `${hostname} has ${addresses.join(', ')}`),
      ...(await Promise.all(addresses.map((ip) => reverse(ip, hostname, resolver)))),
    ];
  },
};

async function reverse(ip: string, hostname: string, resolver: World['resolver']): Promise<Finding> {
  const check = `reverse DNS ${ip}`;
  const found = await checkPtr(resolver, ip, hostname);
  if (found === 'unknown') return skipped(check, 'the DNS gave no answer');
  if (found.valid) return ok(check, `names ${hostname}`);
  const answer = await resolver.resolve(toReverseName(ip) ?? '', 'PTR');
  return fault(
    check,
    answer.kind === 'records' ? `names ${answer.records.join(', ')}, not ${hostname}` : 'there is no PTR record',
    `Ask whoever gave you the address (your provider) to set its PTR record to ${hostname}.`,
  );
}

/** Links in mail and in answers of the API begin with it. */
export const publicUrl: Check = {
  name: 'public URL',
  async run({ settings, resolver }) {
    const url = new URL(settings.public_url);
    const check = 'public URL';
    if (isLocal(settings)) return [skipped(check, `${settings.public_url}; every listener is on loopback`)];
    const { host } = settings.http.listen;
    if (url.hostname === host || sameName(url.hostname, 'localhost')) {
      return [
        warning(
          check,
          `${settings.public_url} is an address, and only this machine may know it`,
          'Set public_url to the https address under which a proxy in front shows http.listen to the world.',
        ),
      ];
    }
    const found = await resolver.addresses(url.hostname);
    if (found.kind === 'failure') return [skipped(check, `the DNS gave no answer about ${url.hostname}`)];
    if (found.kind !== 'records')
      return [
        fault(
          check,
          `${url.hostname} has no address in the DNS`,
          `Publish one, or correct public_url: links in mail lead to ${settings.public_url}.`,
        ),
      ];
    if (url.protocol !== 'https:')
      return [
        warning(
          check,
          `${settings.public_url} is not encrypted`,
          'API keys travel over it: put a TLS proxy in front and set public_url to https://.',
        ),
      ];
    return [ok(check, `${settings.public_url} (${found.records.join(', ')})`)];
  },
};

/** Somebody reads what the world writes to our postmaster. */
export const postmaster: Check = {
  name: 'postmaster',
  async run({ settings }) {
    const check = 'postmaster';
    const { postmaster: address } = settings.smtp;
    if (address !== '') return [ok(check, `mail to postmaster is forwarded to ${address}`)];
    if (isLocal(settings)) return [skipped(check, 'every listener is on loopback')];
    return [
      warning(
        check,
        'mail to postmaster waits on the queue, where nobody may look',
        'Set smtp.postmaster to an address that you read; other postmasters report trouble there.',
      ),
    ];
  },
};
