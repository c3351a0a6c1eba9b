import { ownNames } from '../../composition/slices.ts';
import { checkDkim, checkMx, checkPtr, checkSpf, type RecordCheck, toReverseName } from '../../dns/checks.ts';
import { sameName } from '../../dns/types.ts';
import { createReservedNames, RESERVED_WORDS } from '../../mail/reserved-names.ts';
import { keyPlace, selectorOf } from '../../sending/domains/keys.ts';
import { isClaim } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
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

/** Domains looked at of each kind: a host may have a hundred thousand, and their daily tests tell of the rest. */
const MOST = 500;
/** Looked at at one time: a resolver is not there for us alone. */
const AT_ONCE = 20;

/** Mail of an inbound domain comes here only when its MX says so. */
export const inboundDomains: Check = {
  name: 'inbound domains',
  async run({ settings, resolver, store, noStore }) {
    if (!store) return [skipped('inbound domains', noStore)];
    const rows = await store.inboundDomains.many({}, { limit: MOST + 1 });
    if (rows.length === 0) return [skipped('inbound domains', 'there are none yet (/inbound/add-domain)')];
    const hosts = [settings.hostname, ...settings.inbound.mx_hosts];
    const findings = await each(
      rows.filter((row) => !isClaim(row)),
      async ({ id }): Promise<Finding> => {
        const check = `MX ${id}`;
        const found = await checkMx(resolver, id, hosts);
        if (found === 'unknown') return skipped(check, 'the DNS gave no answer');
        if (found.valid) return ok(check, `names ${hosts.length === 1 ? settings.hostname : 'one of our hosts'}`);
        return fault(
          check,
          found.error ?? 'does not name us',
          `Publish an MX record for ${id} that names ${settings.hostname}, or name the hosts that share the work in inbound.mx_hosts.`,
        );
      },
    );
    return cut(findings, 'inbound domains');
  },
};

/** Domains that were added before they were reserved: with several accounts, one may read what is meant for the operator. */
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
      const seen = `account ${account} has it: ${RESERVED_WORDS[reserved]}`;
      const advice = `Its mail goes to that account. If it must not, delete ${id} with the key of the account (/inbound/delete-domain); nobody can add it again.`;
      return [(isAlone ? warning : fault)(`inbound domain ${id}`, seen, advice)];
    });
    return findings.length > 0
      ? findings.slice(0, MOST)
      : [ok('reserved domains', 'no account has a domain that is reserved')];
  },
};

/** What accounts send is believed when SPF and DKIM of their domains are right. */
export const senderDomains: Check = {
  name: 'sender domains',
  async run(world) {
    const { store, noStore } = world;
    if (!store) return [skipped('sender domains', noStore)];
    const rows = await store.senderDomains.many({}, { limit: MOST + 1 });
    const domains = [...new Set(rows.map(({ domain }) => domain))];
    if (domains.length === 0) return [skipped('sender domains', 'there are none yet')];
    return cut((await each(domains, (domain) => senderRecords(world, store, domain))).flat(), 'sender domains');
  },
};

async function senderRecords({ settings, resolver }: World, store: Store, domain: string): Promise<readonly Finding[]> {
  const { hostname, senders } = settings;
  const key = await store.domainKeys.one({ id: domain });
  const spf = finding(
    `SPF ${domain}`,
    await checkSpf(resolver, domain, senders.spf_include),
    `Its owner adds include:${senders.spf_include} to the SPF record of ${domain}.`,
  );
  if (!key) return [spf, skipped(`DKIM ${domain}`, 'nobody has asked for its key yet (/senders/check-domain)')];
  const selector = selectorOf(key, { dkimSelector: senders.dkim_selector });
  const place = keyPlace({ hostname }, domain, { selector, publicKey: key.publicKey });
  const dkim = await checkDkim(resolver, place, key.publicKey);
  return [
    spf,
    finding(
      `DKIM ${domain}`,
      dkim,
      `Its owner publishes the TXT record that /senders/check-domain shows at ${place.name}.`,
    ),
  ];
}

function finding(check: string, found: RecordCheck, advice: string): Finding {
  if (found === 'unknown') return skipped(check, 'the DNS gave no answer');
  return found.valid ? ok(check, 'as it should be') : warning(check, found.error, advice);
}

/** What this host itself needs for mail that it sends. */
export const sending: Check = {
  name: 'sending',
  async run({ settings, resolver }) {
    const { hostname, inbound, senders, outbound } = settings;
    if (isLocal(settings)) return [skipped('sending', 'every listener is on loopback')];
    const back = await checkMx(resolver, outbound.return_domain, [hostname, ...inbound.mx_hosts]);
    const name = `return domain ${outbound.return_domain}`;
    const returns =
      back === 'unknown'
        ? skipped(name, 'the DNS gave no answer')
        : back.valid
          ? ok(name, 'its MX names us')
          : warning(
              name,
              back.error ?? 'does not name us',
              `Bounces get lost. Publish an MX record for ${outbound.return_domain} that names ${hostname}, or set outbound.return_domain.`,
            );
    return [returns, await spfInclude(senders.spf_include, resolver)];
  },
};

async function spfInclude(include: string, resolver: World['resolver']): Promise<Finding> {
  const check = `SPF include ${include}`;
  const answer = await resolver.resolve(include, 'TXT');
  if (answer.kind === 'failure') return skipped(check, 'the DNS gave no answer');
  const records = answer.kind === 'records' ? answer.records.filter((text) => /^v=spf1( |$)/i.test(text)) : [];
  if (records.length === 1) return ok(check, records[0] ?? '');
  return warning(
    check,
    records.length === 0 ? 'there is no SPF record' : 'there is more than one SPF record',
    `Sender domains include it: publish one TXT record at ${include}, as "v=spf1 ip4:YOUR-ADDRESS -all", or set senders.spf_include.`,
  );
}

async function each<T, R>(items: readonly T[], look: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let from = 0; from < Math.min(items.length, MOST); from += AT_ONCE)
    results.push(...(await Promise.all(items.slice(from, Math.min(from + AT_ONCE, MOST)).map(look))));
  return results;
}

function cut(findings: readonly Finding[], check: string): readonly Finding[] {
  return findings.length < MOST
    ? findings
    : [...findings, skipped(check, `more than ${MOST}; the others were not looked at`)];
}
