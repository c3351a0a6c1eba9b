import { ownNames } from '../../composition/slices.ts';
import { checkDkim, checkMx, checkPtr, checkSpf, type RecordCheck, toReverseName } from '../../dns/checks.ts';
import { sameName } from '../../dns/types.ts';
import { createReservedNames, RESERVED_WORDS } from '../../mail/reserved-names.ts';
import { keyPlace, selectorOf } from '../../sending/domains/keys.ts';
import { isClaim } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
import { type Check, type Finding, fault, isLocal, ok, skipped, type World, warning } from './finding.ts';

/** Forward and reverse DNS of hostname match; many servers refuse mail from hosts where they do not. */
export const hostName: Check = {
  name: 'host name',
  async run({ settings, resolver }) {
    const { hostname } = settings;
    if (isLocal(settings))
      return [skipped('host name', `${hostname}; not checked, because every listener is on loopback`)];
    if (!hostname.includes('.')) {
      return [
        fault(
          'host name',
          `"${hostname}" is not a fully qualified name`,
          'Set hostname to the fully qualified name of this machine, such as mx1.example.com.',
        ),
      ];
    }
    const [v4, v6] = await Promise.all([resolver.resolve(hostname, 'A'), resolver.resolve(hostname, 'AAAA')]);
    const addresses = [v4, v6].flatMap((answer) => (answer.kind === 'records' ? answer.records : []));
    if (addresses.length === 0) {
      const failed = [v4, v6].some(({ kind }) => kind === 'failure');
      return [
        failed
          ? skipped('host name', `no DNS answer for ${hostname}`)
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
  if (found === 'unknown') return skipped(check, 'no DNS answer');
  if (found.valid) return ok(check, `points to ${hostname}`);
  const answer = await resolver.resolve(toReverseName(ip) ?? '', 'PTR');
  return fault(
    check,
    answer.kind === 'records' ? `points to ${answer.records.join(', ')}, not ${hostname}` : 'no PTR record',
    `Ask your provider to set its PTR record to ${hostname}.`,
  );
}

/** The base of all links in mail and in API answers can be reached. */
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
          `${settings.public_url} is a local address`,
          'Set public_url to the https:// URL of the reverse proxy in front of http.listen.',
        ),
      ];
    }
    const found = await resolver.addresses(url.hostname);
    if (found.kind === 'failure') return [skipped(check, `no DNS answer for ${url.hostname}`)];
    if (found.kind !== 'records')
      return [
        fault(
          check,
          `${url.hostname} has no address in the DNS`,
          `Publish one, or correct public_url: links in mail use ${settings.public_url}.`,
        ),
      ];
    if (url.protocol !== 'https:')
      return [
        warning(
          check,
          `${settings.public_url} is not encrypted`,
          'API keys travel in plaintext: put a TLS proxy in front and set public_url to its https:// URL.',
        ),
      ];
    return [ok(check, `${settings.public_url} (${found.records.join(', ')})`)];
  },
};

/** Somebody reads the mail to postmaster. */
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
        'mail to postmaster stays in the queue, unread',
        'Set smtp.postmaster to a mailbox that you read: other operators report problems there.',
      ),
    ];
  },
};

/** Most domains of each kind that are checked: there may be 100,000, and the daily tests cover the rest. */
const MOST = 500;
/** Domains checked at one time, to spare the resolver. */
const AT_ONCE = 20;

/** The MX records of inbound domains point to this host. */
export const inboundDomains: Check = {
  name: 'inbound domains',
  async run({ settings, resolver, store, noStore }) {
    if (!store) return [skipped('inbound domains', noStore)];
    const rows = (await store.inboundDomains.many({})).filter((row) => !isClaim(row));
    if (rows.length === 0) return [skipped('inbound domains', 'none yet (postern domain add)')];
    const hosts = [settings.hostname, ...settings.inbound.mx_hosts];
    const findings = await each(rows, async ({ id }): Promise<Finding> => {
      const check = `MX ${id}`;
      const found = await checkMx(resolver, id, hosts);
      if (found === 'unknown') return skipped(check, 'no DNS answer');
      if (found.valid) return ok(check, `points to ${hosts.length === 1 ? settings.hostname : 'one of our hosts'}`);
      return fault(
        check,
        found.error ?? 'does not point to this host',
        `Publish an MX record for ${id} that points to ${settings.hostname}, or list the hosts that share the work in inbound.mx_hosts.`,
      );
    });
    return cut(findings, rows.length, 'inbound domains');
  },
};

/** No account owns a reserved domain, added before it was reserved: its mail may be meant for the operator. */
export const reservedDomains: Check = {
  name: 'reserved domains',
  async run({ settings, store, noStore }) {
    if (!store) return [skipped('reserved domains', noStore)];
    const names = createReservedNames(ownNames(settings));
    const isAlone = (await store.accounts.many({}, { limit: 2 })).length < 2;
    const rows = (await store.inboundDomains.many({})).filter((row) => !isClaim(row));
    const findings = rows.flatMap(({ id, account }): Finding[] => {
      const reserved = names.whyReserved(id);
      if (reserved === undefined) return [];
      const seen = `owned by account ${account}: ${RESERVED_WORDS[reserved]}`;
      const advice = `Its mail goes to that account. To stop that: postern domain remove ${id}. Nobody can add it again.`;
      return [(isAlone ? warning : fault)(`inbound domain ${id}`, seen, advice)];
    });
    return findings.length > 0
      ? findings.slice(0, MOST)
      : [ok('reserved domains', 'no account owns a reserved domain')];
  },
};

/** SPF and DKIM records of sender domains are valid. */
export const senderDomains: Check = {
  name: 'sender domains',
  async run(world) {
    const { store, noStore } = world;
    if (!store) return [skipped('sender domains', noStore)];
    const rows = await store.senderDomains.many({}, { limit: MOST + 1 });
    const domains = [...new Set(rows.map(({ domain }) => domain))];
    if (domains.length === 0) return [skipped('sender domains', 'none yet')];
    const findings = await each(domains, (domain) => senderRecords(world, store, domain));
    return cut(findings.flat(), domains.length, 'sender domains');
  },
};

async function senderRecords({ settings, resolver }: World, store: Store, domain: string): Promise<readonly Finding[]> {
  const { hostname, senders } = settings;
  const key = await store.domainKeys.one({ id: domain });
  const spf = finding(
    `SPF ${domain}`,
    await checkSpf(resolver, domain, senders.spf_include),
    `Ask its owner to add include:${senders.spf_include} to the SPF record of ${domain}.`,
  );
  if (!key) return [spf, skipped(`DKIM ${domain}`, 'no key requested yet (/senders/check-domain)')];
  const selector = selectorOf(key, { dkimSelector: senders.dkim_selector });
  const place = keyPlace({ hostname }, domain, { selector, publicKey: key.publicKey });
  const dkim = await checkDkim(resolver, place, key.publicKey);
  return [
    spf,
    finding(
      `DKIM ${domain}`,
      dkim,
      `Ask its owner to publish the TXT record shown by /senders/check-domain at ${place.name}.`,
    ),
  ];
}

function finding(check: string, found: RecordCheck, advice: string): Finding {
  if (found === 'unknown') return skipped(check, 'no DNS answer');
  return found.valid ? ok(check, 'valid') : warning(check, found.error, advice);
}

/** The records that this host needs to send mail. */
export const sending: Check = {
  name: 'sending',
  async run({ settings, resolver }) {
    const { hostname, inbound, senders, outbound } = settings;
    if (isLocal(settings)) return [skipped('sending', 'every listener is on loopback')];
    const back = await checkMx(resolver, outbound.return_domain, [hostname, ...inbound.mx_hosts]);
    const name = `return domain ${outbound.return_domain}`;
    const returns =
      back === 'unknown'
        ? skipped(name, 'no DNS answer')
        : back.valid
          ? ok(name, 'its MX points to this host')
          : warning(
              name,
              back.error ?? 'does not point to this host',
              `Bounces are lost. Publish an MX record for ${outbound.return_domain} that points to ${hostname}, or set outbound.return_domain.`,
            );
    return [returns, await spfInclude(senders.spf_include, resolver)];
  },
};

async function spfInclude(include: string, resolver: World['resolver']): Promise<Finding> {
  const check = `SPF include ${include}`;
  const answer = await resolver.resolve(include, 'TXT');
  if (answer.kind === 'failure') return skipped(check, 'no DNS answer');
  const records = answer.kind === 'records' ? answer.records.filter((text) => /^v=spf1( |$)/i.test(text)) : [];
  if (records.length === 1) return ok(check, records[0] ?? '');
  return warning(
    check,
    records.length === 0 ? 'no SPF record' : 'more than one SPF record',
    `Sender domains include it: publish one TXT record at ${include}, such as "v=spf1 ip4:YOUR-ADDRESS -all", or set senders.spf_include.`,
  );
}

async function each<T, R>(items: readonly T[], look: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let from = 0; from < Math.min(items.length, MOST); from += AT_ONCE)
    results.push(...(await Promise.all(items.slice(from, Math.min(from + AT_ONCE, MOST)).map(look))));
  return results;
}

/** Says so if there were more domains than were checked. */
function cut(findings: readonly Finding[], domains: number, check: string): readonly Finding[] {
  return domains <= MOST
    ? findings
    : [...findings, skipped(check, `more than ${MOST}; only the first ${MOST} were checked`)];
}
